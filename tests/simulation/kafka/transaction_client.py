"""A transactional client as Kafka's are, over plain requests, for simulations.

It finds coordinators and leaders, retries what brokers call retriable or leave unanswered, over
other connections, and gives up what they call fatal. Which error means what is the clients' own
table (KIP-890, KIP-360). Sometimes it gives a connection up while a request is under
way, which then arrives there late, behind what the client does over the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from client.wire.kafka.batches.records import Record, build_batch
from tests.simulation.kafka import transaction_link as wire
from tests.simulation.kafka.connection import PRODUCE, Answer, Refused
from tests.simulation.kafka.guide import TROUBLE
from tests.simulation.kafka.transaction_link import ProducerKey, Request, TransactionLink
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from tests.simulation.clusters.transaction_load import TransactionOptions
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.kafka.guide import Guide
    from tests.simulation.transactions.book import Place, Transaction, TransactionBook

SILENCE_S = 2.0
_PAUSE_S = 0.03
_LATE_S = 0.4
_LINGERING_S = 2.0
_IN_FLIGHT_MAX = 5
"""Batches of an idempotent producer to a partition that may be under way: brokers know so many."""
MOVED = (3, 5, 6, 7, 14, 15, 16, 74, 75, 76, 100)
RETRIABLE = (*MOVED, 10, 13, 19, 20, 51, 56, 88)
FATAL = (47, 48, 49, 53, 90)
ABORTABLE = (22, 25, 45, 59, 82, 120)
PRODUCE_ABORTABLE = (47, 48, *ABORTABLE)

T = TypeVar("T")


class Fenced(Exception):
    """This client is over: its successor, or its own restart, goes on."""


class MustAbort(Exception):
    """The transaction cannot be committed."""


class Route:
    """The way to one broker, over one connection at a time."""

    def __init__(
        self, find: Callable[[], Awaitable[str]], rng: random.Random, late_p: float
    ) -> None:
        """`find`: returns the host to connect to; raises what clients meet."""
        self._find = find
        self._rng = rng
        self._late_p = late_p
        self._link: TransactionLink | None = None

    async def link(self) -> TransactionLink:
        """Connect if need be. Raises OSError, TimeoutError, Refused."""
        if self._link is None:
            self._link = await TransactionLink.connect(await self._find(), SILENCE_S)
        return self._link

    def drop(self) -> None:
        """Go on over another connection."""
        if self._link is not None:
            self._link.close()
            self._link = None

    async def link_for(self, requests: list[Request]) -> TransactionLink:
        """Return the connection for requests; perhaps they are under way over an older one."""
        link = await self.link()
        if self._rng.random() >= self._late_p:
            return link
        self._link = None
        delay_s = self._rng.expovariate(1 / _LATE_S)
        frames = b"".join(link.frame_of(request) for request in requests)
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, link.write, frames)
        loop.call_later(delay_s + _LINGERING_S, link.close)
        return await self.link()


class Client(NamedTuple):
    """Who a client is."""

    name: str
    """Its transactional id."""
    who: str
    generation: int


class TransactionalClient:
    """One producer with a transactional id, from its start until it is fenced."""

    def __init__(
        self,
        world: ClusterWorld,
        me: Client,
        guides: dict[str, Guide],
        rng: random.Random,
    ) -> None:
        """`guides`: by topic."""
        assert world.plan.transactions is not None
        self.me = me
        self._world = world
        self._guides = guides
        self._rng = rng
        self._options: TransactionOptions = world.plan.transactions
        self._coordinator = self._route_to(me.name, wire.TRANSACTION_KEY)
        self._groups: dict[str, Route] = {}
        self._leaders: dict[Place, Route] = {}
        self._sequences: dict[Place, int] = {}
        self._key = ProducerKey(-1, -1)
        self._begun_s = 0.0
        self._is_begun = False
        """Whether the coordinator knows of the transaction for sure."""
        self.doing = "nothing"

    def __repr__(self) -> str:
        return f"{self.me.who}: {self.doing}"

    @property
    def book(self) -> TransactionBook:
        """The judge."""
        return self._world.transactions.book

    def begin(self, number: int) -> Transaction:
        """Begin a transaction."""
        self._begun_s = self._world.loop.time()
        self._is_begun = False
        return self.book.begin(self.me.name, self.me.who, number)

    # ---------------------------------------------------------------- requests

    async def start(self, *, anew: bool = True) -> None:
        """Get a producer id and epoch: with `anew` in place of whoever has this name.

        Raises Fenced.
        """
        if anew:
            self.book.starting(self.me.name, self.me.who)
        request = wire.init_producer(
            self.me.name,
            self._options.timeout_ms,
            None if anew else self._key,
            generation=self.me.generation,
        )
        self._now_has(await self._ask(self._coordinator, request, wire.read_producer))

    def _now_has(self, key: ProducerKey) -> None:
        self.book.given(self.me.name, self.me.who, key)
        if key != self._key:
            self._sequences.clear()
        self._key = key

    async def add(self, topic: str, indexes: list[int]) -> None:
        """Add partitions; nothing to do in TV2. Raises Fenced, MustAbort."""
        if self.me.generation == 1:
            request = wire.add_partitions(self.me.name, self._key, topic, indexes)
            await self._ask(self._coordinator, request, wire.read_added)
            self._is_begun = True

    async def send(
        self, transaction: Transaction, place: Place, values: list[bytes], *, wait: bool = True
    ) -> None:
        """Send values in batches, all at once; without `wait` nobody looks for the answers.

        Raises Fenced, MustAbort.
        """
        transaction.values.setdefault(place, []).extend(values)
        requests = deque(self._batches(place, values))
        route = self._leaders.get(place)
        if route is None:
            route = self._leaders[place] = self._route_to_leader(place)
        while requests:
            try:
                some = [*requests][:_IN_FLIGHT_MAX]
                link = await route.link_for(some)
                for request in some:
                    link.write(link.frame_of(request))
                if not wait:
                    route.drop()
                    return
                for _ in some:
                    wire.read_produced(
                        await link.answer_to(requests[0], SILENCE_S), generation=self.me.generation
                    )
                    requests.popleft()
            except Refused as refused:
                route.drop()  # answers of this transaction must not be read as the next one's
                self._judge(refused, PRODUCE)
            except TROUBLE as error:
                self.doing = f"producing to {place}: {error!r}"
                route.drop()
            await self._pause(bool(requests))

    def _batches(self, place: Place, values: list[bytes]) -> list[Request]:
        requests, left = [], deque(values)
        while left:
            count = min(len(left), self._rng.choice((1, 1, 2)))
            records = [self._record(left.popleft()) for _ in range(count)]
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + count
            batch = build_batch(
                records,
                producer_id=self._key.producer_id,  # type: ignore[arg-type]
                producer_epoch=self._key.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            timeout_ms = self._world.produce_timeout_ms
            requests.append(
                wire.produce(self.me.name, *place, batch, timeout_ms, generation=self.me.generation)
            )
        return requests

    def _record(self, value: bytes) -> Record:
        """Return a record; in a compacted topic it replaces others of its key."""
        options = self._world.plan.compaction
        if options is None:
            return Record(None, value, SimClock.EPOCH_MS)
        key = b"k%d" % self._rng.randrange(options.keys)
        return Record(key, value, SimClock.EPOCH_MS + int(self._world.loop.time() * 1000))

    async def commit_offset(self, transaction: Transaction, what: wire.Offset) -> None:
        """Commit an offset with the transaction. Raises Fenced, MustAbort."""
        if self.me.generation == 1:
            request = wire.add_offsets(self.me.name, self._key, what.group)
            await self._ask(
                self._coordinator, request, lambda answer: wire.read_code(answer, "add offsets")
            )
        transaction.offsets[what.group, what.topic, what.partition] = what.offset
        generation = self.me.generation
        request = wire.commit_offset(self.me.name, self._key, what, generation=generation)
        await self._ask(
            self._group(what.group),
            request,
            lambda answer: wire.read_offset_committed(answer, generation=generation),
        )

    async def fetch_offset(self, group: str, topic: str, index: int) -> int:
        """Return the stable offset of a group, which has no members."""
        asking = self.book.asking((group, topic, index))
        request = wire.fetch_offset(group, topic, index)
        offset = await self._ask(self._group(group), request, wire.read_offset)
        self.book.fetched_offset((group, topic, index), asking, offset)
        return offset

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """End the transaction. Raises Fenced, MustAbort."""
        self.book.asked(transaction, self._key, is_commit=commit)
        generation, key = self.me.generation, self._key
        request = wire.end_transaction(self.me.name, key, commit=commit, generation=generation)
        given = await self._ask(
            self._coordinator,
            request,
            lambda answer: wire.read_ended(answer, key, generation=generation),
        )
        self.book.answered(transaction)
        self._now_has(given)

    async def give_up(self, transaction: Transaction) -> None:
        """Abort the transaction whatever has become of its batches. Raises Fenced, MustAbort.

        In TV1 their sequences are not known then, and an epoch of its own begins anew.
        """
        if self.me.generation == 2 or self._is_begun:
            await self.end(transaction, commit=False)
        if self.me.generation == 1:
            await self.start(anew=False)

    # ---------------------------------------------------------------- how to ask

    async def _ask(self, route: Route, request: Request, read: Callable[[Answer], T]) -> T:
        """Ask until there is an answer. Raises Fenced, MustAbort."""
        while True:
            try:
                link = await route.link_for([request])
                return read(await link.ask(request, SILENCE_S))
            except Refused as refused:
                self._judge(refused, request.key)
                if refused.code in MOVED:
                    route.drop()
            except TROUBLE as error:
                self.doing = f"asking {request.key}: {error!r}"
                route.drop()
            await self._pause(True)

    def _judge(self, refused: Refused, key: int) -> None:
        """Return if a retry may help. Raises Fenced, MustAbort."""
        self.doing = f"{refused!r}"
        self._world.oracle.note("%s: %r", self.me.who, refused)
        if refused.code in RETRIABLE:
            return
        self.book.refused(self.me.name, self.me.who, refused.code, is_excused=self._is_excused)
        if refused.code in (PRODUCE_ABORTABLE if key == PRODUCE else ABORTABLE):
            raise MustAbort(refused.code)
        if refused.code not in FATAL:
            self._world.oracle.fail("X12", f"{self.me.who} is told {refused!r}")
        raise Fenced(refused.code)

    @property
    def _is_excused(self) -> bool:
        """Whether the coordinator may have aborted the transaction for its age."""
        age_s = self._world.loop.time() - self._begun_s
        is_old = age_s > 0.9 * self._options.timeout_ms / 1000
        return is_old or "clock jump" in self._world.options.faults

    async def _pause(self, is_needed: bool) -> None:
        if is_needed:
            await asyncio.sleep(_PAUSE_S * (0.5 + self._rng.random()))

    # ---------------------------------------------------------------- ways

    def _route_to(self, key: str, key_type: int) -> Route:
        async def find() -> str:
            guide = next(iter(self._guides.values()))
            link = await TransactionLink.connect(guide.any_host(), SILENCE_S)
            try:
                answer = await link.ask(wire.find_coordinator(key, key_type), SILENCE_S)
                return wire.read_coordinator(answer)
            finally:
                link.close()

        return Route(find, self._rng, self._options.late_p)

    def _group(self, group: str) -> Route:
        if group not in self._groups:
            self._groups[group] = self._route_to(group, wire.GROUP_KEY)
        return self._groups[group]

    def _route_to_leader(self, place: Place) -> Route:
        topic, index = place

        async def find() -> str:
            leader = await self._guides[topic].leader(index)
            if leader is None:
                raise Refused(5, "no leader")
            return leader.host

        return Route(find, self._rng, self._options.late_p)
