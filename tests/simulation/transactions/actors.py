"""Those who write in transaction schedules: clients with a transactional id, one after the other.

They behave as those of whole clusters (`kafka/transaction_client.py`), but call brokers instead of
writing bytes to them (`routes.py`). Who reads is in `watchers.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.errors import BrokerError, NotLeader, OutOfOrderSequence
from broker.faults import code_of
from broker.groups.core.group_types import Commit, OffsetToCommit, ProducerEpoch
from broker.partition.core.held_batches import ProducerTransaction
from broker.transactions.core.transaction import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from client.ids import ProducerId
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.brokers import done
from tests.simulation.kafka.transaction_client import (
    ABORTABLE,
    FATAL,
    MOVED,
    PRODUCE_ABORTABLE,
    RETRIABLE,
    Fenced,
    MustAbort,
)
from tests.simulation.kafka.transaction_link import ProducerKey
from tests.simulation.transactions.routes import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from client.ids import ConnectionId
    from tests.simulation.transactions.book import Transaction
    from tests.simulation.transactions.nodes import Node, Place
    from tests.simulation.transactions.world import TransactionWorld

T = TypeVar("T")
Work = "Callable[[Node, ConnectionId], Awaitable[T]]"

_TOPIC = "t"
DELETED_TOPIC = UUID(int=0xDE1E7ED)
"""Of a topic that had the name before."""
_PAUSE_S = 0.01
_IN_FLIGHT_MAX = 5
_LOST = (ConnectionError, TimeoutError)
_STATES: Place = (TRANSACTIONS_TOPIC, 0)
_OFFSETS: Place = (OFFSETS_TOPIC, 0)


class Client:
    """One producer with a transactional id, from its start until it is fenced."""

    def __init__(self, world: TransactionWorld, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.who = f"{name}#{number}"
        self.rng = world.fork_rng(f"client {self.who}")
        self.generation = self.rng.choice(world.plan.generations)
        self.doing = "nothing"
        self._routes: dict[Place, Route] = {}
        self._key = ProducerKey(-1, -1)
        self._sequences: dict[Place, int] = {}
        self._begun_s = self._used_s = 0.0
        """When its transaction began, and when it asked what its coordinator answered last."""
        self._is_begun = False

    def __repr__(self) -> str:
        return f"{self.who} TV{self.generation}: {self.doing}"

    @property
    def _producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(ProducerId(self._key.producer_id), self._key.epoch)

    @property
    def _version(self) -> TransactionVersion:
        return TransactionVersion.TV0 if self.generation == 1 else TransactionVersion.TV2

    @property
    def _transaction(self) -> ProducerTransaction:
        return ProducerTransaction(self.name, is_tv2=self.generation == 2)

    def begin(self, number: int) -> Transaction:
        """Begin a transaction."""
        self._begun_s = asyncio.get_running_loop().time()
        self._is_begun = False
        return self.world.book.begin(self.name, self.who, number)

    # ---------------------------------------------------------------- requests

    async def start(self, *, anew: bool = True) -> None:
        """Get a producer id and epoch. Raises Fenced."""
        if anew:
            self.world.book.starting(self.name, self.who)
        key = ProducerKey(-1, -1) if anew else self._key
        timeout_ms = self.world.plan.timeout_ms

        def work(node: Node, connection: ConnectionId) -> Awaitable[ProducerIdAndEpoch]:
            request = InitProducerId(
                self.name, timeout_ms, ProducerId(key.producer_id), key.epoch, connection
            )
            return node.coordinator(self.name).init_producer_id(request)

        self._now_has(await self._ask(_STATES, _later(work)))

    def _now_has(self, given: ProducerIdAndEpoch) -> None:
        key = ProducerKey(*given)
        self.world.note("%s has %s", self.who, key)
        self.world.book.given(self.name, self.who, key)
        if key != self._key:
            self._sequences.clear()
        self._key = key

    async def add(self, *places: Place) -> None:
        """Add partitions; nothing to do in TV2. Raises Fenced, MustAbort."""
        if self.generation == 2:
            return
        topics = self.world.topics
        partitions = tuple(
            TransactionPartition(topic, topics[topic].topic_id, index) for topic, index in places
        )
        producer = self._producer
        if self.rng.random() < self.world.plan.deleted_p:
            self.world.count("partitions of deleted topics")
            partitions += (TransactionPartition(_TOPIC, DELETED_TOPIC, 0),)

        def work(node: Node, connection: ConnectionId) -> Awaitable[None]:
            request = AddPartitions(self.name, producer, partitions, connection=connection)
            return node.coordinator(self.name).add_partitions(request)

        await self._ask(_STATES, _later(work))
        self._is_begun = True

    async def send(
        self, transaction: Transaction, place: Place, values: list[bytes], *, wait: bool = True
    ) -> None:
        """Send values in batches; without `wait` nobody looks for the answers.

        Raises Fenced, MustAbort.
        """
        transaction.values.setdefault(place, []).extend(values)
        works = self._batches(place, values)
        route = self._route(place)
        while works:
            if not wait:
                route.abandon(works[:_IN_FLIGHT_MAX])
                return
            answers = route.post(works[:_IN_FLIGHT_MAX])
            try:
                for answer in answers:
                    await self._patiently(answer)
                    works.pop(0)
            except BrokerError as error:
                self._judge(error, is_produce=True)
                route.drop()
            except _LOST as error:
                self.doing = f"producing to {place}: {error!r}"
                route.drop()
            if works:
                await self._pause()

    def _batches(self, place: Place, values: list[bytes]) -> list[Any]:
        works: list[Any] = []
        left = list(values)
        while left:
            count = min(len(left), self.rng.choice((1, 1, 2)))
            some, left = left[:count], left[count:]
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + count
            batch = build_batch(
                [Record(None, value, 1_700_000_000_000) for value in some],
                producer_id=ProducerId(self._key.producer_id),
                producer_epoch=self._key.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            works.append(_produce(place, batch, self._transaction))
        return works

    async def commit_offset(self, transaction: Transaction, group: str, offset: int) -> None:
        """Commit an offset with the transaction. Raises Fenced, MustAbort."""
        await self.add(_OFFSETS)
        transaction.offsets[group, _TOPIC, 0] = offset
        commit = Commit(group, "", None, -1)
        rows = [OffsetToCommit(_TOPIC, 0, offset, -1, repr(transaction))]
        producer = ProducerEpoch(
            ProducerId(self._key.producer_id), self._key.epoch, self._transaction
        )

        async def work(node: Node, connection: ConnectionId) -> None:
            outcomes = await node.groups().commit_in_transaction(commit, rows, producer, connection)
            for error in outcomes:
                if error is not None:
                    raise error

        await self._ask(_OFFSETS, work)

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """End the transaction. Raises Fenced, MustAbort."""
        self.world.book.asked(transaction, self._key, is_commit=commit)
        producer, version = self._producer, self._version

        def work(node: Node, connection: ConnectionId) -> Awaitable[ProducerIdAndEpoch]:
            request = EndTransaction(self.name, producer, commit, version, connection)
            return node.coordinator(self.name).end_transaction(request)

        is_certain = self.generation == 2 and not commit
        given = await self._ask(_STATES, _later(work), is_certain=is_certain)
        self.world.note("%s: %r has ended, commit %s", self.who, transaction, commit)
        self.world.book.answered(transaction)
        self._now_has(given)

    async def give_up(self, transaction: Transaction) -> None:
        """Abort the transaction whatever has become of its batches. Raises Fenced, MustAbort."""
        if self.generation == 2 or self._is_begun:
            await self.end(transaction, commit=False)
        if self.generation == 1:
            await self.start(anew=False)

    # ---------------------------------------------------------------- how to ask

    def _route(self, place: Place) -> Route:
        if place not in self._routes:
            self._routes[place] = Route(self, place)
        return self._routes[place]

    async def _patiently(self, answer: asyncio.Future[T]) -> T:
        patience_s = 1.0 if self.world.is_healed else self.world.plan.patience_s
        async with asyncio.timeout(patience_s * (0.5 + self.rng.random())):
            return await answer

    async def _ask(
        self,
        place: Place,
        work: Callable[[Node, ConnectionId], Awaitable[T]],
        *,
        is_certain: bool = False,
    ) -> T:
        """Ask until there is an answer. `is_certain`: there is one however old the transaction is.

        Raises Fenced, MustAbort.
        """
        route, asked_s = self._route(place), asyncio.get_running_loop().time()
        while True:
            (answer,) = route.post([work])
            try:
                found: T = await self._patiently(answer)
            except BrokerError as error:
                self._judge(error, is_certain=is_certain)
                if code_of(error) in MOVED:
                    route.drop()
            except _LOST as error:
                self.doing = f"asking {place}: {error!r}"
                route.drop()
            else:
                if place == _STATES:
                    self._used_s = asked_s
                return found
            await self._pause()

    def _judge(
        self, error: BrokerError, *, is_produce: bool = False, is_certain: bool = False
    ) -> None:
        """Return if a retry may help. Raises Fenced, MustAbort."""
        code = code_of(error)
        self.doing = f"{error!r}"
        self.world.note("%s: %r", self.who, error)
        if code in RETRIABLE:
            return
        is_excused = self._is_forgotten or (self._is_old and not is_certain)
        self.world.book.refused(self.name, self.who, code, is_excused=is_excused)
        if code in (PRODUCE_ABORTABLE if is_produce else ABORTABLE):
            raise MustAbort(code)
        if code not in FATAL:
            self.world.fail("X12", f"{self.who} is told {error!r}")
        raise Fenced(code)

    @property
    def _is_old(self) -> bool:
        """Whether the coordinator may have aborted the transaction for its age."""
        age_s = asyncio.get_running_loop().time() - self._begun_s
        return age_s > 0.9 * self.world.plan.timeout_ms / 1000

    @property
    def _is_forgotten(self) -> bool:
        """Whether the coordinator may have forgotten the id because nobody used it."""
        age_s = asyncio.get_running_loop().time() - self._used_s
        return age_s > 0.9 * self.world.plan.expiration_ms / 1000

    async def _pause(self) -> None:
        await asyncio.sleep(_PAUSE_S * (0.5 + self.rng.random()))


def _later(call: Callable[[Node, ConnectionId], Awaitable[T]]) -> Any:
    """Make a call whose lookup may fail, too, something to be awaited."""

    async def work(node: Node, connection: ConnectionId) -> T:
        return await call(node, connection)

    return work


def _produce(place: Place, batch: bytes, transaction: ProducerTransaction) -> Any:
    async def work(node: Node, _: ConnectionId) -> int:
        partition = node.leading(place)
        try:
            return await done(partition.append(batch, transaction=transaction))
        except OutOfOrderSequence as error:
            newest = node.world.leader(place)
            if newest is not None and newest[1] is partition:
                raise
            # A leader that has not heard of its successor misses batches that this one has. Clients
            # that follow leader epochs do not go back to it; these here do, at random.
            raise NotLeader("deposed") from error

    return work


class Writer:
    """Whoever writes under one transactional id: one client after the other."""

    def __init__(self, world: TransactionWorld, name: str) -> None:
        self._world = world
        self._name = name
        self._count = 0
        self.finished = asyncio.Event()
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"{self._name}: {self._client}"

    @staticmethod
    def name_of(number: int) -> str:
        """Return the transactional id of a writer."""
        return f"w{number}"

    @classmethod
    def of(cls, world: TransactionWorld, number: int) -> Writer:
        """Return a writer by its number."""
        return cls(world, cls.name_of(number))

    async def run(self) -> None:
        """Write until the world is healed, then commit once more."""
        while not self.finished.is_set():
            self._client = self._next_client()
            await self._live(self._client, is_zombie=False)
            await asyncio.sleep(_PAUSE_S)

    def _next_client(self) -> Client:
        self._count += 1
        return Client(self._world, self._name, self._count)

    async def _live(self, client: Client, *, is_zombie: bool) -> None:
        world, number = self._world, 0
        try:
            await client.start()
            while not world.is_healed:
                number += 1
                await self._next(client, number)
            while not is_zombie:
                number += 1
                transaction = client.begin(number)
                try:
                    places = [(_TOPIC, index) for index in range(world.plan.partitions)]
                    await self._fill(client, transaction, places)
                    await client.end(transaction, commit=True)
                except MustAbort:
                    await client.give_up(transaction)
                else:
                    self.finished.set()
                    return
        except Fenced:
            return

    async def _next(self, client: Client, number: int) -> None:
        plan, rng, world = self._world.plan, client.rng, self._world
        if plan.think_s:
            await asyncio.sleep(rng.expovariate(1 / plan.think_s))
        if rng.random() < plan.zombie_p:
            world.struck("zombie client")
            world.start(lambda: self._live(self._next_client(), is_zombie=True))
        if rng.random() < 0.02:
            await asyncio.sleep(3 * plan.expiration_ms / 1000 if plan.expiration_ms < 2000 else 0)
        transaction = client.begin(number)
        try:
            await self._make(client, transaction)
        except MustAbort:
            await client.give_up(transaction)

    async def _make(self, client: Client, transaction: Transaction) -> None:
        """Make one as it comes. Raises Fenced, MustAbort."""
        world, plan, rng = self._world, self._world.plan, client.rng
        indexes = sorted(rng.sample(range(plan.partitions), rng.randint(1, plan.partitions)))
        places: list[Place] = [(_TOPIC, index) for index in indexes]
        if rng.random() < plan.offsets_only_p:
            world.count("transactions of offsets only")
            places = []
        if rng.random() < plan.abort_p:
            is_blind = rng.random() < plan.blind_p
            await self._fill(client, transaction, places, wait=not is_blind)
            if is_blind:
                await self._work(client)
                await client.give_up(transaction)
            else:
                await client.end(transaction, commit=False)
            return
        await self._fill(client, transaction, places)
        await self._work(client)
        if rng.random() < plan.silence_p:
            world.struck("silent client")
            if rng.random() < 0.5:
                raise Fenced("it will never be heard of again")
            await asyncio.sleep(plan.timeout_ms / 1000 + rng.uniform(0.1, 0.5))
        await client.end(transaction, commit=True)

    async def _work(self, client: Client) -> None:
        """Do something else while the transaction is open."""
        open_s = self._world.plan.open_s
        if open_s and not self._world.is_healed:
            await asyncio.sleep(client.rng.expovariate(1 / open_s))

    async def _fill(
        self, client: Client, transaction: Transaction, places: list[Place], *, wait: bool = True
    ) -> None:
        """Send to partitions, side by side, and perhaps an offset. Raises Fenced, MustAbort."""
        plan, rng = self._world.plan, client.rng
        if places:
            await client.add(*places)
        sends: list[Any] = []
        world_note = self._world.note
        for place in places:
            world_note("%s: %r to %s", client.who, transaction, place)
            values = [
                b"tx:%b:%d:%d:" % (client.who.encode(), transaction.number, number)
                for number in range(rng.randint(1, plan.records_max))
            ]
            sends.append(client.send(transaction, place, values, wait=wait))
        if (wait and rng.random() < plan.offsets_p) or not places:
            group = f"of {client.name}"
            sends.append(client.commit_offset(transaction, group, transaction.number))
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        for outcome in sorted(filter(None, outcomes), key=lambda one: isinstance(one, MustAbort)):
            raise outcome
