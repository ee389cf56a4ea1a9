"""Share groups (KIP-932) in a simulated cluster: their members, who writes for them, an operator,
a tool that looks where they are, and their judge (`share_book.py`).

Members run one after the other on hosts of their own; the others share the host `feeder`. All of
them speak the Kafka protocol, and strangers to this file say which brokers there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from broker.errors import BrokerError
from broker.topics.core.config_resource import Change, Operation
from client.errors import QuireError
from client.log.segments import decode_segments
from client.wire.kafka.apis import ApiKey
from tests.simulation.kafka.connection import Refused as RefusedCode
from tests.simulation.kafka.consumer_book import Place
from tests.simulation.kafka.consumer_member import SILENCE_S, find_coordinator
from tests.simulation.kafka.group_member import Refused
from tests.simulation.kafka.guide import TROUBLE, Guide
from tests.simulation.kafka.share_book import NONE, Order, ShareBook, Terms
from tests.simulation.kafka.share_feeder import Feeder
from tests.simulation.kafka.share_log import Fate, ShareLog, read_log
from tests.simulation.kafka.share_member import ShareMember, ShareOptions

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from broker.app import Broker
    from broker.partition.core.shares.share_partition import SharePartition
    from client.metadata.tree import Tree
    from tests.fakes.wire_client import WireClient
    from tests.simulation.machine.hosts import Host
    from tests.simulation.machine.loop import SimLoop

SHARED: Final = "shared"
"""The topic that groups share."""
GROUPS: Final = ("queue", "other")
FEEDER: Final = "feeder"
_PARTITION_PATH = re.compile(r"^/quire/partitions/([^/]+)/(\d+)$")
_AUDIT_S = 0.3
_PATIENCE_S = 8.0
"""How long an operator tries."""
_ORDER_REFUSALS = {"non_empty_group", "group_id_not_found", "not_coordinator",
                   "coordinator_load_in_progress", "coordinator_not_available"}  # fmt: skip
_OUT_OF_RANGE = 1
_ALTER, _FORGET, _DELETE = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLoad:
    """The share groups of a schedule, and what they are given."""

    members: int
    """Of each group."""
    groups: int
    partitions: int
    terms: Terms
    window_max: int
    is_earliest: bool
    share: ShareOptions
    session_s: float
    """How long a member may be silent."""
    heartbeat_s: float
    writers: int
    """Producers whose batches are just stored."""
    transactional: int
    """Producers with transactions."""
    abort_p: float
    batch_records_max: int
    think_s: float
    trim_every_s: float
    """How often records are deleted; 0: never."""
    order_every_s: float
    """How often an operator wants a group to begin elsewhere; 0: never."""
    keys: int = 0
    """Keys of the records of a compacted topic; 0: it is not compacted."""

    def settings(self) -> dict[str, Any]:
        """Return the settings of brokers."""
        return {
            "group_share_session_timeout_ms": int(self.session_s * 1000),
            "group_share_heartbeat_interval_ms": int(self.heartbeat_s * 1000),
            "group_share_assignment_interval_ms": 0,
            "group_share_record_lock_duration_ms": int(self.terms.lock_s * 1000),
            "group_share_delivery_count_limit": self.terms.deliveries_max,
        }

    def group_settings(self) -> dict[str, str]:
        """Return the settings of each group."""
        return {
            "share.auto.offset.reset": "earliest" if self.is_earliest else "latest",
            "share.isolation.level": (
                "read_committed" if self.terms.read_committed else "read_uncommitted"
            ),
        }


class Surroundings(Protocol):
    """What share groups need of the world that they are in."""

    loop: SimLoop
    brokers: list[Host]
    healed: bool
    """Whether nothing fails any more."""

    def fork_rng(self, name: str) -> random.Random:
        """Return a generator of its own for one purpose."""
        ...


class _Look(dict[Place, tuple[int, int]]):
    """(start, lag) of each partition, as a tool was told."""


class ShareClients:
    """All share groups of one schedule."""

    def __init__(
        self,
        world: Surroundings,
        load: ShareLoad,
        running: Callable[[str], Broker | None],
        count: Callable[[str], None],
        note: Callable[[str], None],
        say: Callable[[str], None],
        *,
        broker_session_s: float,
    ) -> None:
        """`running`: returns the broker that a host runs or ran last; `say`: is told what the judge
        is at."""
        self._world = world
        self._load = load
        self._running_on = running
        self._count = count
        self._say = say
        self.books = [
            ShareBook(
                world.loop,
                group_id,
                load.terms,
                count,
                note,
                session_s=broker_session_s,
                is_earliest=load.is_earliest,
                is_compacted=load.keys > 0,
            )
            for group_id in GROUPS[: load.groups]
        ]
        self._members: list[Host] = []
        self._running: dict[str, ShareMember] = {}
        self._away: set[ShareBook] = set()
        """Groups whose members stay away, since an operator wants that."""
        self._looks: dict[ShareBook, _Look] = {}
        self._feeding: list[asyncio.Task[None]] = []
        self._ordered: tuple[ShareBook, Order] | None = None
        """What an operator waits for."""
        self._is_set_up = asyncio.Event()
        self.on_trim: Callable[[int, int], None] = lambda index, offset: None

    def assign(self, host: Host) -> None:
        """Let a member run on a host."""
        self._members.append(host)

    def runs_on(self, host: Host) -> bool:
        """Tell whether a host is one of members, or of those who feed them."""
        return host in self._members or host.name == FEEDER

    def host_names(self) -> list[str]:
        """Return what the hosts are called."""
        count = self._load.members * self._load.groups
        return [*(f"share{number}" for number in range(count)), FEEDER]

    # ---------------------------------------------------------------- leaders

    def watch(self, tree: Tree) -> None:
        """See every leader epoch that begins, in the store's tree."""
        change = tree.set

        def watched(path: str, data: bytes, version: int) -> object:
            result = change(path, data, version)
            match = _PARTITION_PATH.match(path)
            if match is not None:
                place = Place(UUID(match[1]), int(match[2]))
                for book in self.books:
                    book.led(place, decode_segments(data).leader_epoch)
            return result

        tree.set = watched  # type: ignore[method-assign, assignment]

    def _epoch_of(self, host: str, place: Place) -> int:
        broker = self._running_on(host)
        partition = None if broker is None else broker.partitions.find(SHARED, place.index)
        return -1 if partition is None else partition.leader_epoch

    def _topic_id(self) -> UUID | None:
        for host in self._world.brokers:
            broker = self._running_on(host.name)
            topic = None if broker is None else broker.cluster.topics.get(SHARED)
            if topic is not None:
                return topic.topic_id
        return None

    def _places(self) -> list[Place]:
        topic_id = self._topic_id()
        assert topic_id is not None
        return [Place(topic_id, index) for index in range(self._load.partitions)]

    def _guide(self, name: str) -> Guide:
        names = [host.name for host in self._world.brokers]
        rng = self._world.fork_rng(f"share guide {name}")
        return Guide(names, rng, lambda *_: None, knows_epochs=True, topic=SHARED)

    # ---------------------------------------------------------------- processes

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of the next process of a host."""
        return self._feed(host) if host.name == FEEDER else self._run(host)

    def _options(self) -> ShareOptions:
        """Return how members behave now."""
        return self._load.share.calm() if self._world.healed else self._load.share

    def book_of(self, host: Host) -> ShareBook:
        """Return the book of the group that a host's members are in."""
        return self.books[self._members.index(host) % len(self.books)]

    async def _run(self, host: Host) -> None:
        """Be one member after the other: one that has left comes back."""
        await self._is_set_up.wait()
        names = [broker.name for broker in self._world.brokers]
        rng = self._world.fork_rng(f"{host.name} {host.starts}")
        book = self.book_of(host)
        book.members.pop(host.name, None)
        while True:
            while book in self._away:  # noqa: ASYNC110  (virtual time)
                await asyncio.sleep(0.1)
            member = ShareMember(host.name, SHARED, names, book, rng, self._options, self._epoch_of)
            member.on_closed = self._check_closed
            self._running[host.name] = member
            await member.run()
            await asyncio.sleep(rng.expovariate(2.0))

    def leave(self, host: Host) -> None:
        """Let the member on a host leave, and come back."""
        if host.name in self.book_of(host).members:
            self._running[host.name].leave()

    async def _feed(self, host: Host) -> None:
        """Feed the groups, look at them, and be their operator."""
        await self._is_set_up.wait()
        load, name = self._load, f"{host.name}#{host.starts}"
        rng = self._world.fork_rng(name)
        feeder = Feeder(
            name, SHARED, load.partitions, self._guide(name), rng, self._count,
            records_max=load.batch_records_max, think_s=load.think_s, keys=load.keys,
        )  # fmt: skip
        mains = [feeder.write(self._is_over) for _ in range(load.writers)]
        mains += [
            feeder.transact(f"tx{number}", load.abort_p, self._is_over)
            for number in range(load.transactional)
        ]
        if load.trim_every_s:
            mains.append(feeder.trim(load.trim_every_s, self._trims, self._is_over))
        if load.order_every_s:
            mains.append(self._operate(rng))
        self._away.clear()
        if self._ordered is not None:
            self._obeyed({})
        loop = asyncio.get_running_loop()
        self._feeding = [loop.create_task(main) for main in mains]
        looks = [
            self._look(book, self._world.fork_rng(f"{name} {book.group_id}")) for book in self.books
        ]
        await asyncio.gather(*looks)

    def _is_over(self) -> bool:
        return self._world.healed

    def _trims(self, index: int, offset: int) -> None:
        self.on_trim(index, offset)
        for book in self.books:
            book.trims(self._places()[index], offset)

    async def begin(self) -> None:
        """Set the groups' settings, at some broker, then let members and feeders begin; the topic
        is there. Look at leaders for ever."""
        rng = self._world.fork_rng("shares set up")
        while not self._knows_settings():
            host = rng.choice(self._world.brokers)
            broker, process = self._running_on(host.name), host.process
            if broker is not None and process is not None and process.alive and not process.paused:
                process.context.run(self._world.loop.create_task, self._set_up(broker))
            await asyncio.sleep(0.3)
        self._is_set_up.set()
        await self._audit()

    def _knows_settings(self) -> bool:
        """Whether all brokers know the groups' settings."""
        names = [host.name for host in self._world.brokers]
        brokers = [broker for broker in map(self._running_on, names) if broker is not None]
        return bool(brokers) and all(
            broker.services.group_settings.of(book.group_id)
            for broker in brokers
            for book in self.books
        )

    async def _set_up(self, broker: Broker) -> None:
        services = broker.services
        changes = [
            Change(name, Operation.SET, value)
            for name, value in self._load.group_settings().items()
        ]
        with contextlib.suppress(BrokerError, QuireError):
            for book in self.books:
                await services.group_settings.edit(
                    book.group_id,
                    changes,
                    services.groups.limits,
                    replaces=False,
                    validate_only=False,
                )

    # ---------------------------------------------------------------- a tool that looks

    async def _look(self, book: ShareBook, rng: random.Random) -> None:
        """Ask where a group is, for ever."""
        while True:
            await asyncio.sleep(0.4 * rng.random())
            try:
                client = await find_coordinator(self._any_host(rng), book.group_id)
                try:
                    for _ in range(5):
                        self._looks[book] = await self._look_once(client, book)
                        await asyncio.sleep(0.5 * rng.random())
                finally:
                    await client.close()
            except (Refused, *TROUBLE):
                continue

    async def _look_once(self, client: WireClient, book: ShareBook) -> _Look:
        sent_s = asyncio.get_running_loop().time()
        client.send(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
            groups=[{
                "group_id": book.group_id,
                "topics": [{"topic_name": SHARED, "partitions": range(self._load.partitions)}],
            }],
        )  # fmt: skip
        answer = await client.receive(SILENCE_S)
        (group,) = answer.groups
        if group.error_code:
            raise Refused(group.error_code.name)
        look = _Look()
        for topic in group.topics:
            for row in topic.partitions:
                if not row.error_code and topic.topic_id is not None:
                    place = Place(topic.topic_id, row.partition_index)
                    look[place] = row.start_offset, row.lag
                    book.looked(place, row.start_offset, row.leader_epoch, sent_s)
        return look

    def _any_host(self, rng: random.Random) -> str:
        return rng.choice(self._world.brokers).name

    # ---------------------------------------------------------------- what leaders have

    def _windows(self, host: Host) -> Iterator[tuple[ShareBook, Place, SharePartition]]:
        """Return the windows that the broker on a host has, where it leads and nothing stops it."""
        broker, process = self._running_on(host.name), host.process
        if broker is None or process is None or not process.alive or process.paused:
            return
        for partition in broker.partitions:
            if partition.topic.name == SHARED and partition.is_open and partition.has_shares:
                place = Place(partition.topic.topic_id, partition.index)
                for book in self.books:
                    share = partition.shares.states.get(book.group_id)
                    if share is not None:
                        yield book, place, share

    def _check_closed(self, host_name: str, group_id: str, member_id: str) -> None:
        """A session has ended: its member has nothing there any more."""
        host = next(one for one in self._world.brokers if one.name == host_name)
        for book, place, share in self._windows(host):
            held = [run.first for run in share._runs if run.holder == member_id]
            if held and book.group_id == group_id:
                book.fail("S6", place, f"{held} are still held over a session that was ended")

    async def _audit(self) -> None:
        """S6: see for ever that no lock is left standing once its time is over, and that windows
        are in order."""
        late: dict[tuple[str, Place, str, int], float] = {}
        while True:
            await asyncio.sleep(_AUDIT_S)
            now_s, before, late = self._world.loop.time(), late, {}
            for host in self._world.brokers:
                for book, place, share in self._windows(host):
                    self._count("windows looked at")
                    try:
                        share.check()
                    except AssertionError as error:
                        book.fail("S2", place, f"its window is out of order: {error!r}")
                    for run in share._runs:
                        if not run.holder or run.lock_ends_s > now_s:
                            continue
                        key = host.name, place, book.group_id, run.first
                        late[key] = run.lock_ends_s
                        if before.get(key) == run.lock_ends_s:
                            book.fail("S6", place, f"the lock of {run.first} does not end")

    # ---------------------------------------------------------------- an operator

    async def _operate(self, rng: random.Random) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_over():
            await asyncio.sleep(rng.expovariate(1 / self._load.order_every_s))
            if self._is_over():
                return
            book = rng.choice(self.books)
            self._away.add(book)
            for host in self._members:
                if self.book_of(host) is book:
                    self.leave(host)
            what = rng.choice((_ALTER, _ALTER, _FORGET, _DELETE))
            order = self._order(book, what, rng)
            until_s = loop.time() + _PATIENCE_S
            while loop.time() < until_s and not await self._ask(  # noqa: ASYNC110  (virtual time)
                book, what, order, rng
            ):
                await asyncio.sleep(0.3)
            self._away.discard(book)

    def _order(self, book: ShareBook, what: int, rng: random.Random) -> Order:
        places = tuple(self._places())
        if what != _ALTER:
            return Order(places, 0 if self._load.is_earliest else None)
        place = rng.choice(places)
        start, lag = self._looks.get(book, {}).get(place, (0, 0))
        return Order((place,), rng.randrange(max(start, 0) + max(lag, 0) + 1))

    async def _ask(self, book: ShareBook, what: int, order: Order, rng: random.Random) -> bool:
        """Order something; return whether it was done."""
        try:
            client = await find_coordinator(self._any_host(rng), book.group_id)
        except (Refused, *TROUBLE):
            return False
        self._ordered = book, order
        book.orders(order)
        codes: dict[Place, int | None] = {}
        with contextlib.suppress(*TROUBLE):
            codes = await self._send_order(client, book.group_id, what, order)
        self._obeyed(codes)
        await client.close()
        return all(codes.get(place) == NONE for place in order.places)

    def _obeyed(self, codes: dict[Place, int | None]) -> None:
        """An order was answered, or never will be."""
        assert self._ordered is not None
        (book, order), self._ordered = self._ordered, None
        for place in order.places:
            code = codes.get(place)
            book.obeyed(order, place, code or NONE, is_sure=code is not None)

    async def _send_order(
        self, client: WireClient, group_id: str, what: int, order: Order
    ) -> dict[Place, int | None]:
        """Return what became of an order in each partition; None: nobody knows."""
        if what == _ALTER:
            rows = [
                {"partition_index": place.index, "start_offset": order.start}
                for place in order.places
            ]
            topics = [{"topic_name": SHARED, "partitions": rows}]
            client.send(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group_id, topics=topics)
        elif what == _FORGET:
            topics = [{"topic_name": SHARED}]
            client.send(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=group_id, topics=topics)
        else:
            client.send(ApiKey.DELETE_GROUPS, 2, groups_names=[group_id])
        answer = await client.receive(SILENCE_S + 10.0)
        if what == _DELETE:
            (result,) = answer.results
            return dict.fromkeys(order.places, self._known(result.error_code))
        if answer.error_code:
            return dict.fromkeys(order.places, self._known(answer.error_code))
        (topic,) = answer.responses
        if what == _FORGET:
            return dict.fromkeys(order.places, self._known(topic.error_code))
        return {
            place: self._known(row.error_code)
            for place, row in zip(order.places, topic.partitions, strict=True)
        }

    @staticmethod
    def _known(code: Any) -> int | None:
        """Return a code that says what has happened; None for others."""
        is_known = not code or code.name in _ORDER_REFUSALS or int(code) == _OUT_OF_RANGE
        return int(code) if is_known else None

    # ---------------------------------------------------------------- the judge

    async def judge(self) -> None:
        """S8: see everything settled; then hold what was told against the log."""
        self._say("waiting for those who feed")
        while not self._feeding or not all(  # noqa: ASYNC110  (virtual time)
            task.done() for task in self._feeding
        ):
            await asyncio.sleep(0.1)
        guide = self._guide("judge")
        for place in self._places():
            await self._log(guide, place)
        for book in self.books:
            self._looks.pop(book, None)
            while left := self._unsettled(book):
                self._say(f"waiting for group {book.group_id}: {left}")
                await asyncio.sleep(0.1)
        for place in self._places():
            log = await self._log(guide, place)
            for book in self.books:
                book.judge(place, log)

    async def _log(self, guide: Guide, place: Place) -> ShareLog:
        """Read a partition's log once no transaction is open."""
        while True:
            try:
                log = await read_log(guide, SHARED, place.index)
                if Fate.OPEN not in log.fates.values():
                    return log
                self._say(f"waiting for a transaction in {place.index}")
            except (RefusedCode, *TROUBLE) as error:
                self._say(f"reading partition {place.index}: {error!r}")
            await asyncio.sleep(0.1)

    def _unsettled(self, book: ShareBook) -> str:
        """Return what is missing to S8; empty if nothing is."""
        look = self._looks.get(book, {})
        left = {
            place.index: look.get(place, "unknown")
            for place in self._places()
            if place not in look or look[place][0] < 0 or look[place][1]
        }
        return f"(start, lag) is {left}; members: {book.members}" if left else ""
