"""One schedule of transactions alone: clients, coordinators and leaders that come and go.

The brokers are those of `nodes.py`: production code over scripted ledgers and a
metadata store in memory, so that a schedule takes a fraction of a second and meets what is rare in
whole clusters: leaderships and coordinators that move every moment while the old ones do not know
it, markers, questions and requests that arrive late, answers that are lost, epochs that are used
up, ids and producers that expire. That is the freedom of `tests/model/Transactions.tla`.

The faults are in `nemesis.py`. The judge is that of whole clusters
(`book.py`, X1 to X14) with `judge.py`.
"""

from __future__ import annotations

import asyncio
import random
import traceback
import zlib
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.errors import BrokerError
from broker.transactions.core.marker_queue import Leader
from broker.transactions.core.transaction import (
    TransactionMetadata,
    TransactionState,
)
from broker.transactions.core.transaction_records import transaction_record
from client.errors import LedgerError, LogCorrupt, MetadataError
from client.ids import BrokerId, ProducerId
from client.log.segments import decode_segments
from client.metadata import paths
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.brokers import World, done
from tests.fakes.virtual_time import VirtualTimeLoop
from tests.simulation.clusters.oracle import PartitionBook
from tests.simulation.result import Result
from tests.simulation.transactions.actors import Writer
from tests.simulation.transactions.book import TransactionBook
from tests.simulation.transactions.judge import check_taken_over, judge_partition
from tests.simulation.transactions.nemesis import Nemesis
from tests.simulation.transactions.nodes import Node
from tests.simulation.transactions.plan import TOPIC, draw
from tests.simulation.transactions.watchers import CommittedReader, OffsetWatcher, read_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from uuid import UUID

    from broker.cluster.core.topology import TopicInfo
    from broker.partition.partition import Partition
    from client.metadata.memory import Operation
    from tests.fakes.ledgers import StoredLedger
    from tests.simulation.transactions.nodes import Place

FAULTS: Final = (
    "move coordinator", "move groups", "move leader", "unaware leader", "kill broker",
    "cut brokers", "late marker", "late question", "late answer", "late request", "lost answer",
    "slow lane", "roll", "zombie client", "silent client",
)  # fmt: skip
"""What a long run has to meet; counted as they happen."""
_TROUBLE = (BrokerError, LedgerError, MetadataError, LogCorrupt)
_HEALED_S_MAX = 60.0


class Violation(AssertionError):
    """An invariant does not hold."""


class _Ledger:
    """A ledger as `TransactionLog` wants it."""

    def __init__(self, stored: StoredLedger) -> None:
        self._stored = stored
        self.deleted = False

    @property
    def acked(self) -> int:
        """Last confirmed entry."""
        return self._stored.confirmed

    @property
    def closed_at(self) -> int | None:
        """Last entry, if it is final."""
        return self._stored.closed_at

    @property
    def sent(self) -> list[bytes]:
        """Entries that were stored."""
        return self._stored.entries


class TransactionWorld:
    """Everything of one schedule; also the oracle that its judge asks."""

    def __init__(self, seed: int) -> None:
        self.plan = draw(seed)
        self._seed = seed
        self.rng = random.Random(f"transactions run {seed}")
        self._link_rng = random.Random(f"transactions links {seed}")
        self.counts: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.log: list[str] = []
        self.is_healed = False
        self.forgets_producers = self.plan.producers_max < 100
        self.doing = "nothing"
        self.base: World
        self.nodes: dict[BrokerId, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.topic_by_id: dict[UUID, TopicInfo] = {}
        self.book = TransactionBook(self)  # type: ignore[arg-type]
        self._partitions: dict[Place, PartitionBook] = {}
        self._ledgers: dict[int, _Ledger] = {}
        self._lists: dict[str, bytes] = {}
        self.leaders: dict[Place, tuple[Node, Partition]] = {}
        """Who really leads."""
        self.moving: dict[Place, asyncio.Lock] = {}
        self.cuts: set[tuple[BrokerId, BrokerId]] = set()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._broken: list[BaseException] = []
        self._last_producer_id = 0
        self.broken = asyncio.Event()

    # ---------------------------------------------------------------- what the judge asks

    def count(self, name: str) -> None:
        """Count an event."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def struck(self, fault: str) -> None:
        """Count a fault."""
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def fail(self, name: str, text: str) -> None:
        """Report a violation."""
        violation = Violation(f"{name}: {text}")
        self._broken.append(violation)
        self.broken.set()
        raise violation

    def note(self, text: str, *values: object) -> None:
        """Write a line of the schedule's log."""
        now_s = asyncio.get_running_loop().time() - 1000
        self.log.append(f"{now_s:.4f} {text % values if values else text}")

    def partition(self, topic: str, index: int) -> PartitionBook:
        """Return the book of a partition, as its list is now."""
        self._look()
        return self._partitions[topic, index]

    def ledger(self, ledger_id: int) -> _Ledger:
        """Return a ledger, even if it was deleted."""
        return self._ledgers[ledger_id]

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0: there is none."""
        found = self.topics.get(topic)
        return 0 if found is None else found.partition_count

    def topic_of(self, book: PartitionBook) -> str:
        """Return the name of a partition's topic."""
        return book.name.partition("/")[0]

    def _on_request(self, _: Operation) -> None:
        self._look()

    def _look(self) -> None:
        """Take notice of ledgers that are listed."""
        there = self.base.backend.service.ledgers
        for (topic, index), book in self._partitions.items():
            path = paths.partition(self.topics[topic].id_text, index)
            data = self.base.cluster.tree.get(path).data
            if self._lists.get(path) != data:
                self._lists[path] = data
                for segment in decode_segments(data).segments:
                    ledger_id = int(segment.ledger_id)
                    if ledger_id not in book.chain:
                        book.chain.append(ledger_id)
                        self._ledgers[ledger_id] = _Ledger(there[segment.ledger_id])
            for ledger_id in book.chain:
                if self._ledgers[ledger_id].acked >= 0:
                    book.confirmed.add(ledger_id)

    def check_limits(self) -> None:
        """X14: what waits and what is open stays within its limits."""
        for node in self.nodes.values():
            for place, partition in node.led.items():
                log = partition._leader.log
                held = log.held
                if held.size_bytes > log.limits.held_bytes_max and len(held) > 1:
                    self.fail("X14", f"{place} holds {held.size_bytes} bytes")
                if len(log.fold.transactions) > log.limits.open_transactions_max:
                    self.fail("X14", f"{place} has {len(log.fold.transactions)} open")
            if node.states is not None:
                parked = node.states._shard._table.parked_count
                if parked > self.plan.coordination().parked_requests_max:
                    self.fail("X14", f"{parked} requests are parked")

    # ---------------------------------------------------------------- how messages travel

    def lane_delay_s(self) -> float:
        """Draw how long messages of a new connection between brokers take."""
        rng = self._link_rng
        if not self.is_healed and rng.random() < self.plan.lane_late_p:
            self.struck("slow lane")
            return rng.expovariate(1 / 0.15)
        return 0.0005 + 0.002 * rng.random()

    def held_s(self, what: str) -> float:
        """Draw for how long one message between brokers is held."""
        rng = self._link_rng
        if self.is_healed or rng.random() >= self.plan.message_late_p:
            return 0.0
        kinds = {"markers": "late marker", "questions": "late question"}
        self.struck(kinds.get(what, "late answer"))
        return rng.expovariate(1 / self.plan.late_s)

    def is_cut(self, one: BrokerId, other: BrokerId) -> bool:
        """Whether two brokers cannot reach each other."""
        return (min(one, other), max(one, other)) in self.cuts

    async def take_producer_id(self) -> ProducerId:
        """Give the next producer id."""
        await asyncio.sleep(0.001)
        self._last_producer_id += 1
        return ProducerId(self._last_producer_id)

    def fork_rng(self, name: str) -> random.Random:
        """Return a generator of its own for one purpose."""
        return random.Random(f"{self._seed} {name}")

    # ---------------------------------------------------------------- tasks

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin a task; what it raises ends the schedule."""

        async def guarded() -> None:
            try:
                await main()
            except Exception as error:
                self._broken.append(error)
                self.broken.set()

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks[task] = None
        task.add_done_callback(lambda one: self._tasks.pop(one, None))
        return task

    # ---------------------------------------------------------------- leaders

    def leader(self, place: Place) -> tuple[Node, Partition] | None:
        """Return who really leads a partition."""
        found = self.leaders.get(place)
        return found if found is not None and found[1].is_open else None

    async def move(self, place: Place, target: Node, *, unaware_s: float | None = None) -> bool:
        """Let a broker take a partition over; the one before hears of it later, or at once.

        Returns whether it leads: the one before may have changed the list of ledgers meanwhile.
        """
        async with self.moving[place]:
            before = self.leaders.get(place)
            life = target.life
            self.note("NEMESIS %s goes to %d, unaware %s", place, target.id, unaware_s)
            try:
                partition = await target.broker.open(self.topics[place[0]], place[1])
            except _TROUBLE as error:
                self.note("not opened: %r", error)
                return False
            if target.life != life:
                partition.resign("killed meanwhile")
                return False
            if before is not None and before[0] is target:
                target.closed(place, before[1])
                before[1].resign("opened again")
            check_taken_over(self, place, partition)
            self.leaders[place] = target, partition
            target.opened(place, partition)
            if before is not None and before[0] is not target:
                self._depose(place, *before, unaware_s)
            leader = Leader(target.id, partition.leader_epoch)
            for node in self.nodes.values():
                self._tell(node, place, leader, at_once=node is target)
            return True

    def _depose(
        self, place: Place, node: Node, partition: Partition, unaware_s: float | None
    ) -> None:
        def end() -> None:
            node.closed(place, partition)
            partition.resign("another broker leads it")

        if unaware_s is None:
            end()
        else:
            self.struck("unaware leader")
            asyncio.get_running_loop().call_later(unaware_s, end)

    def _tell(self, node: Node, place: Place, leader: Leader, *, at_once: bool) -> None:
        stale_s = 0.0 if at_once or self.is_healed else self.rng.expovariate(1 / self.plan.stale_s)
        life = node.life

        def tell() -> None:
            if node.life == life:
                node.heard(place, leader)

        asyncio.get_running_loop().call_later(stale_s, tell)

    # ---------------------------------------------------------------- the schedule

    async def run(self) -> None:
        """Run all of it. Raises what is wrong."""
        plan = self.plan
        await self._begin()
        writers = [Writer.of(self, number) for number in range(plan.writers)]
        for writer in writers:
            self.start(writer.run)
        for number in range(plan.readers):
            for index in range(plan.partitions):
                self.start(CommittedReader(self, (TOPIC, index), f"reader{number}").follow)
        self.start(OffsetWatcher(self).watch)
        nemesis = Nemesis(self)
        self.start(nemesis.move_and_kill)
        self.start(nemesis.cut_now_and_then)
        await self._or_broken(asyncio.sleep(plan.seconds))
        await self._or_broken(self._heal(writers))
        self.check_broken()

    async def _or_broken(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something, unless an invariant is violated meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        broken = asyncio.get_running_loop().create_task(self.broken.wait())
        await asyncio.wait([task, broken], return_when=asyncio.FIRST_COMPLETED)
        broken.cancel()
        if not task.done():
            task.cancel()
        self.check_broken()
        await task

    def check_broken(self) -> None:
        """Raise what went wrong in the background."""
        if self._broken:
            raise self._broken[0]

    async def _begin(self) -> None:
        plan, rng = self.plan, self.rng
        self.base = base = await World(
            snapshot_interval_entries=plan.snapshot_entries,
            entries_before_sharing=rng.choice((1, 2)),
            producer_count_max=plan.producers_max,
            open_transactions_max=plan.open_max,
            held_bytes_max=plan.held_bytes,
            in_flight_bytes_max=plan.room_bytes,
            aborted_block_entries=plan.block_entries,
        ).start()
        counts = {TOPIC: plan.partitions, TRANSACTIONS_TOPIC: 1, OFFSETS_TOPIC: 1}
        for name, count in counts.items():
            topic = await base.topic(name, count, message_timestamp_after_max_ms=str(1 << 50))
            self.topics[name] = topic
            self.topic_by_id[topic.topic_id] = topic
            for index in range(count):
                self._partitions[name, index] = PartitionBook(f"{name}/{index}")
                self._partitions[name, index].trim_to = 0 if name == TOPIC else 1 << 62
                self.moving[name, index] = asyncio.Lock()
        base.cluster.on_request = self._on_request
        service = base.backend.service
        disk_rng = random.Random(f"transactions disks {self._seed}")
        mean_s = rng.choice((0.0, 0.001, 0.005))
        if mean_s:
            service.arrival_s = lambda: mean_s * disk_rng.random()
            service.answer_s = lambda: mean_s * disk_rng.random()
        service.keep_unconfirmed = lambda ledger: disk_rng.randint(
            ledger.confirmed + 1, max(ledger.confirmed + 1, len(ledger.entries))
        )
        for number in range(plan.nodes):
            node = Node(self, number + 1)
            self.nodes[node.id] = node
            await node.start()
        await self._write_first_epochs()
        for place in self.moving:
            await self.move(place, rng.choice([*self.nodes.values()]))

    async def _write_first_epochs(self) -> None:
        """Let ids be there already, with epochs that will soon be used up."""
        if not self.plan.first_epoch:
            return
        node = next(iter(self.nodes.values()))
        partition = await node.broker.open(self.topics[TRANSACTIONS_TOPIC], 0)
        for number in range(self.plan.writers):
            producer_id = await self.take_producer_id()
            value = TransactionMetadata(
                producer_id, self.plan.first_epoch, 1000, TransactionState.EMPTY,
                updated_ms=self.base.clock.now_ms(),
            )  # fmt: skip
            record = transaction_record(Writer.name_of(number), value)
            batch = build_batch([Record(record.key, record.value, 0)])
            await done(partition.append(batch, from_client=False))
        await partition.close(1.0)

    async def _heal(self, writers: list[Writer]) -> None:
        """Everything works from now on: see that all ends well."""
        self.note("healed")
        self.is_healed = True
        self.cuts.clear()
        for place in self.moving:
            while not await self.move(place, self.rng.choice([*self.nodes.values()])):
                self.note("once more")
        try:
            async with asyncio.timeout(_HEALED_S_MAX):
                for writer in writers:
                    self.doing = f"waiting for {writer}"
                    await writer.finished.wait()
                    self.check_broken()
                while undecided := self.book.undecided():
                    self.doing = f"undecided is {undecided}"
                    await asyncio.sleep(0.05)
                for index in range(self.plan.partitions):
                    if hanging := self.book.log(TOPIC, index).open_transactions():
                        self.fail("X8", f"{TOPIC}/{index}: {hanging} is open, all have ended")
                    await judge_partition(self, (TOPIC, index))
                self.doing = "reading the log of offsets"
                await read_offsets(self)
        except TimeoutError:
            self.fail("T16", self.doing)
        self.book.judge()


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one schedule of transactions and return what it came to."""
    result = Result(seed=seed, world="transactions")
    loop = VirtualTimeLoop()
    start_s = loop.time()
    asyncio.set_event_loop(loop)
    world = TransactionWorld(seed)
    try:
        loop.run_until_complete(asyncio.wait_for(world.run(), 100_000.0))
        world.check_broken()
        for context in loop.errors:
            if "exception" in context:
                world.fail("UNHANDLED", repr(context))
    except Exception as error:
        known = str(error) if isinstance(error, Violation) else f"error: {error!r}"
        result.violation = known
        result.detail = f"{world.plan.describe()}\n{traceback.format_exc()}"
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        result.virtual_s = loop.time() - start_s
        loop.close()
        asyncio.set_event_loop(None)
    result.counts = {**world.counts, "trace events": len(world.log)}
    result.faults = world.faults
    result.steps = len(world.log)
    result.digest = zlib.crc32("\n".join(world.log).encode())
    if log:
        result.log = world.log
    return result
