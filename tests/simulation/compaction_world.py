"""One schedule of a compacted partition: writer, leaders, cleaners, trims and readers at once.

Partition, segment list, compactor and sweep are the production code; ledgers and metadata store are
the scripted ones of `tests/fakes`, whose faults are those that a segment list can meet: answers
that are lost, leaders that are killed or do not know that they were replaced, cleaners broken off
at any step, calls that fail. So a schedule takes milliseconds, and meets hundreds of swaps.

The truth is what stands in the ledgers that leaders wrote themselves, which are kept here even
after they were deleted. Violations carry the names of the invariants of compaction:

    Z1  the newest value of every key below the clean point is there
    Z2  what is there was written at that offset, unchanged
    Z3  a reader that goes on through swaps ends with the newest values
    Z4  a tombstone is seen by every reader that is not slower than it is kept
    Z5  a reader of committed data gets what was committed, and nothing else
    Z6  epochs and ends are what they were, and what leaders know of transactions; nothing is
        cleaned too early
    Z7  no listed ledger is missing, none is left behind for ever
    Z8  a reader comes to the end; what has to go goes
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.compaction.core.round_messages import BeginRound
from broker.compaction.worker import LocalWorker
from broker.errors import BrokerError, CompactionFailed, LogReadFailed, OffsetOutOfRange
from broker.leadership.orphan_ledgers import OrphanLedgers
from client.errors import LedgerError, LogCorrupt, MetadataError, WriteFailed
from client.ids import BrokerId, LedgerId, Offset
from client.log.segment_pages import decode_page
from client.log.segments import Segment, SegmentList, decode_segments
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from client.wire.kafka.batches.records import Codec
from tests.fakes.brokers import Broker, World, done
from tests.fakes.keyed import Kept, keyed, newest, opened
from tests.fakes.transactions import FakeVerifier
from tests.fakes.virtual_time import VirtualTimeLoop
from tests.simulation.compaction_transactions import (
    Batch,
    Producer,
    Written,
    batches,
    committed,
    judged,
    stable_offset,
)
from tests.simulation.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from broker.compaction.core.round_messages import Request, WorkDone
    from broker.partition.partition import Partition
    from client.node.turns import Turns
    from tests.fakes.ledgers import StoredLedger

TROUBLE: Final = (BrokerError, LedgerError, MetadataError, LogCorrupt)
FAULTS: Final = (
    "break off", "child dies", "takeover", "lose reply", "lose request",
    "fail create", "fail open", "fail close", "fail read", "fail delete",
)  # fmt: skip
_LAST_PRODUCER: Final = 99
_SLOW_READ_S: Final = 0.1
_HEALING_S: Final = 5.0
_HEALING_LOOKS: Final = 60
_STUCK_READS: Final = 200
_GONE: Final = ("NoSuchLedger", "NoNode")
"""What is said of a ledger, or of a page of the list, that is not there any more."""
_INTERNAL_MAGIC: Final = 0x51


class FrailWorker:
    """Does the work of rounds as the process that a broker starts for it would, and dies now and
    then, with all that it knows."""

    def __init__(self, world: CompactionWorld, turns: Turns) -> None:
        self._world = world
        self._worker = LocalWorker(turns)
        self._is_dead = False

    @property
    def key_bytes(self) -> int:
        return self._worker.key_bytes

    async def do(self, request: Request) -> WorkDone:
        world = self._world
        self._is_dead &= not isinstance(request, BeginRound)
        if not world.is_healed and world.rng.random() < world.plan.die_p:
            self._is_dead = True
            world.faults["child dies"] = world.faults.get("child dies", 0) + 1
        if self._is_dead:
            await self._worker.close()
            raise CompactionFailed("the child process is gone")
        return await self._worker.do(request)

    async def close(self) -> None:
        await self._worker.close()


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """Options of one schedule, drawn from its seed."""

    keys: int
    batches: int
    think_s: float
    page_entries: int
    segment_bytes: int
    key_bytes: int
    lag_ms_min: int
    retain_ms: int
    grace_ms: int
    deletes: bool
    roll_p: float
    trim_p: float
    takeover_s: float
    break_off_s: float
    lose_p: float
    fail_p: float
    readers: int
    sweeps: bool
    transaction_p: float
    producers: int
    die_p: float
    slow_read_p: float
    """How often an answer of a bookie to a reader, or to the cleaner, is on its way for longer."""

    def describe(self) -> str:
        """Return the options, one per line."""
        return "\n".join(f"  {f.name} = {getattr(self, f.name)}" for f in fields(self))


def draw(seed: int) -> CompactionPlan:
    """Draw the options of a schedule."""
    rng = random.Random(f"compaction {seed}")
    return CompactionPlan(
        keys=rng.choice((1, 2, 4, 8)),
        batches=rng.choice((20, 40, 80)),
        think_s=rng.choice((0.01, 0.05, 0.2)),
        page_entries=rng.choice((2, 3, 256)),
        segment_bytes=rng.choice((200, 800, 1 << 20)),
        key_bytes=rng.choice((25 * 3, 25 * 5, 1 << 20)),
        lag_ms_min=rng.choice((0, 0, 300, 2000)),
        retain_ms=rng.choice((0, 50, 1000, 20_000)),
        grace_ms=rng.choice((500, 2000)),
        deletes=rng.random() < 0.2,
        roll_p=rng.choice((0.3, 0.6, 1.0)),
        trim_p=rng.choice((0.0, 0.0, 0.1)),
        takeover_s=rng.choice((0.3, 1.0, 1e9)),
        break_off_s=rng.choice((0.1, 0.5, 1e9)),
        lose_p=rng.choice((0.0, 0.02, 0.1)),
        fail_p=rng.choice((0.0, 0.0, 0.02)),
        readers=rng.choice((1, 2, 3)),
        sweeps=rng.random() < 0.5,
        transaction_p=rng.choice((0.0, 0.4, 0.8)),
        producers=rng.choice((1, 3)),
        die_p=rng.choice((0.0, 0.0, 0.01, 0.05)),
        slow_read_p=rng.choice((0.0, 0.02, 0.2)),
    )


class CompactionWorld:
    """Everything of one schedule."""

    def __init__(self, seed: int) -> None:
        self.plan = draw(seed)
        self.rng = random.Random(f"compaction run {seed}")
        self.counts: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.log: list[str] = []
        self.is_healed = False
        self._world = World(segment_page_entries=self.plan.page_entries)
        self._originals: dict[LedgerId, Segment] = {}
        """Segments as leaders listed them first, in order."""
        self._books: dict[LedgerId, StoredLedger] = {}
        self._known: dict[LedgerId, list[Batch]] = {}
        self._listed = SegmentList()
        self._flat_before: list[Segment] = []
        self._data = b""
        self._lives: list[tuple[Broker, asyncio.Task[Any]]] = []
        self._leader: Partition | None = None
        self._producers = [Producer(number) for number in range(1, self.plan.producers + 1)]
        self._tasks: list[asyncio.Task[Any]] = []
        self._broken: list[BaseException] = []
        self._broker_count = 0
        self._is_taking_over = asyncio.Lock()

    # ---------------------------------------------------------------- what is known

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def fail(self, name: str, text: str) -> None:
        raise Violation(f"{name}: {text}")

    def note(self, text: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():.3f} {text}")

    def _written(self) -> list[Batch]:
        """Return every batch that ever was in the log, oldest first."""
        found: list[Batch] = []
        for ledger_id in self._originals:
            found += self._batches(ledger_id)
        return found

    def truth(self) -> list[Written]:
        """Return every record that ever was in the log, and what became of it."""
        return judged(self._written())

    def _batches(self, ledger_id: LedgerId) -> list[Batch]:
        known = self._known.get(ledger_id)
        if known is not None:
            return known
        ledger = self._books[ledger_id]
        end = ledger.confirmed if ledger.closed_at is None else ledger.closed_at
        entries = ledger.entries[: end + 1]
        found = batches(entry for entry in entries if entry[16] != _INTERNAL_MAGIC)
        if ledger.closed_at is not None:
            self._known[ledger_id] = found
        return found

    # ---------------------------------------------------------------- the list, as it changes

    def _on_request(self, request: Operation) -> Fault | None:
        try:
            self._look()
        except Violation as error:
            self._broken.append(error)
        is_ours = request.path.startswith(self._path) and request.name in ("set", "create")
        if is_ours and not self.is_healed and self.rng.random() < self.plan.lose_p:
            fault = self.rng.choice((Fault.LOSE_REPLY, Fault.LOSE_REQUEST))
            self.faults[fault.value] = self.faults.get(fault.value, 0) + 1
            return fault
        return None

    def _look(self) -> None:
        """Judge the list if it has changed."""
        data = self._world.cluster.tree.get(self._path).data
        if data == self._data:
            return
        self._data = data
        listed = decode_segments(data)
        self.note(f"list {data.decode()}")
        flat = self._flat(listed)
        there = self._world.backend.service.ledgers
        now_ms = self._world.clock.now_ms()
        for segment in flat:
            if segment.ledger_id not in there:
                self.fail("Z7", f"listed ledger {segment.ledger_id} is missing")
            self._books[segment.ledger_id] = there[segment.ledger_id]
            if segment.cleaned:
                self._check_epoch(segment)
            else:
                self._originals[segment.ledger_id] = segment
        for retired in listed.compaction.retired:
            if retired.ledger_id not in there:
                self.fail("Z7", f"retired ledger {retired.ledger_id} is gone before its time")
            was = self._listed.compaction.retired
            if retired not in was:
                self._check_age(retired.ledger_id, now_ms)
        self._check_replaced(listed, flat, now_ms)
        if len(listed.compaction.retired) > len(self._listed.compaction.retired):
            self.count("swaps")
        if any(segment.cleaned for segment in self._flat_tail(flat)):
            self.fail("Z6", "what a takeover replays was cleaned")
        self._listed = listed
        self._flat_before = flat

    def _check_replaced(self, listed: SegmentList, flat: Sequence[Segment], now_ms: int) -> None:
        """What left the list was trimmed, or waits for its grace."""
        there = {one.ledger_id for one in flat}
        retired = {one.ledger_id for one in listed.compaction.retired}
        for segment in self._flat_before:
            is_trimmed = (segment.end_offset or 0) <= listed.log_start_offset
            if segment.ledger_id not in there | retired and not is_trimmed:
                self.fail("Z7", f"{segment} was replaced, and is not noted as retired")
        for one in self._listed.compaction.retired:
            waited_ms = now_ms - one.since_ms
            if one.ledger_id not in retired and waited_ms < self.plan.grace_ms:
                self.fail("Z7", f"{one} was let go after {waited_ms} ms")

    def _flat_tail(self, flat: Sequence[Segment]) -> Sequence[Segment]:
        """Return the last two segments, and the newest with entries and what follows it."""
        at = max(0, len(flat) - 2)
        while at and not any(one.facts and one.facts.size_bytes for one in flat[at:-1]):
            at -= 1
            if not any(one.facts and one.facts.size_bytes for one in flat[:at]):
                break
        return flat[at:] if any(not one.cleaned for one in flat) else ()

    def _flat(self, listed: SegmentList) -> list[Segment]:
        found = [*listed.oldest]
        left = [*reversed(listed.pages)]
        while left:
            ref = left.pop()
            node = self._world.cluster.tree.get(paths.segment_page(self._path, *ref.name))
            page = decode_page(node.data, ref)
            found += page.segments
            left += reversed(page.pages)
        return [*found, *listed.segments]

    def _check_epoch(self, segment: Segment) -> None:
        assert segment.base_offset is not None
        assert segment.end_offset is not None
        for original in self._originals.values():
            base, end = original.base_offset, original.end_offset
            if base is None or end is None:
                continue
            overlaps = base < segment.end_offset and segment.base_offset < end
            if overlaps and original.leader_epoch != segment.leader_epoch:
                self.fail("Z6", f"{segment} has another epoch than {original}")

    def _check_age(self, ledger_id: LedgerId, now_ms: int) -> None:
        """What was just replaced may be compacted."""
        original = self._originals.get(ledger_id)
        if original is None or original.facts is None or not self.plan.lag_ms_min:
            return
        if original.facts.max_timestamp_ms > now_ms - self.plan.lag_ms_min:
            self.fail("Z6", f"{original} is younger than min.compaction.lag.ms")

    # ---------------------------------------------------------------- who does what

    async def run(self) -> None:
        """Run the schedule; raises Violation."""
        world, plan = self._world, self.plan
        await world.start()
        self._topic = await world.topic(
            cleanup_policy="compact,delete" if plan.deletes else "compact",
            min_cleanable_dirty_ratio="0",
            delete_retention_ms=str(plan.retain_ms),
            min_compaction_lag_ms=str(plan.lag_ms_min),
            segment_bytes=str(max(2000, plan.segment_bytes)),
            retention_bytes="3000",
            message_timestamp_after_max_ms=str(1 << 50),
        )
        self._path = paths.partition(self._topic.id_text, 0)
        world.cluster.on_request = self._on_request
        world.backend.service.read_s = self._slowness(random.Random(f"reads {self.rng.random()}"))
        await self._take_over()
        self._start(self._churn())
        for _ in range(plan.readers):
            self._start(self._read_again_and_again())
        await self._write()
        self.is_healed = True
        await self._heal()
        for task in self._tasks:
            task.cancel()

    def _slowness(self, rng: random.Random) -> Callable[[], float]:
        """Return how slow each read is: swaps come in between."""
        slow_p = self.plan.slow_read_p
        return lambda: rng.expovariate(1 / _SLOW_READ_S) if rng.random() < slow_p else 0.0

    def check_broken(self) -> None:
        """Raise what went wrong in the background."""
        if self._broken:
            raise self._broken[0]

    def _start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await main
            except Exception as error:
                self._broken.append(error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.append(task)
        return task

    async def _take_over(self) -> None:
        """Open the partition in a new broker; the old one is killed, closed, or not told."""
        async with self._is_taking_over:
            await self._open_elsewhere()

    async def _open_elsewhere(self) -> None:
        rng = self.rng
        old = self._lives[-1] if self._lives else None
        how = rng.choice(("kill", "close", "forget"))
        if old is not None:
            self.note(f"take over: {how}")
            if how == "kill":
                old[0].kill()
                old[1].cancel()
            elif how == "close" and self._leader is not None:
                await self._leader.close(1.0)
        while True:
            self._broker_count += 1
            broker = await self._world.broker(self._broker_count, owning=False)
            try:
                self._leader = await broker.open(self._topic)
            except (*TROUBLE, RuntimeError) as error:
                self.note(f"not opened: {error!r}")
                await asyncio.sleep(0.05)
                continue
            break
        broker.services.coordinators.verifier = FakeVerifier()
        self._look()
        self._check_stable(self._leader)
        task = self._start(self._clean(broker, self._leader))
        self._start(self._keep_lease(broker))
        self._lives.append((broker, task))
        for stale, stale_task in self._lives[:-2]:
            if not stale.dead:
                stale.kill()
            stale_task.cancel()

    def _check_stable(self, leader: Partition) -> None:
        """A leader that has just begun knows the open transactions by what it has replayed."""
        log = self._written()
        stable = max(stable_offset(log, leader.high_watermark), leader.log_start_offset)
        if leader.last_stable_offset != stable:
            self.fail("Z6", f"stable up to {leader.last_stable_offset}, not {stable}")

    async def _keep_lease(self, broker: Broker) -> None:
        while not broker.dead:
            try:
                await broker.services.lease.ask(broker.store)
            except MetadataError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)

    async def _clean(self, broker: Broker, partition: Partition) -> None:
        """Compact again and again; the process that does it is killed now and then."""
        settings = CompactionConfig(
            check_interval_ms=200,
            grace_ms=self.plan.grace_ms,
            bytes_per_s=self.rng.choice((0, 3000, 20_000)),
            key_bytes_max=self.plan.key_bytes,
        )
        while not broker.dead:
            worker = FrailWorker(self, broker.services.turns)
            compactor = Compactor(broker.services, [partition], settings, worker)
            task = asyncio.get_running_loop().create_task(self._rounds(compactor))
            pause_s = self.rng.expovariate(1 / self.plan.break_off_s)
            if self.is_healed:
                pause_s = 1e6
            try:
                await asyncio.wait([task], timeout=pause_s)
            finally:
                task.cancel()
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception() or RuntimeError
            self.faults["break off"] = self.faults.get("break off", 0) + 1
            for name in ("rounds", "failures", "removed_records"):
                metrics = broker.services.metrics
                self.counts[f"compaction {name} of {broker.id}"] = getattr(
                    metrics, f"compaction_{name}"
                )

    async def _rounds(self, compactor: Compactor) -> None:
        while True:
            await compactor.visit_all()
            await asyncio.sleep(0.2 * self.rng.random())

    async def _write(self) -> None:
        plan, rng = self.plan, self.rng
        for number in range(plan.batches):
            self.check_broken()
            now_ms = self._world.clock.now_ms()
            pairs = [
                (f"k{rng.randrange(plan.keys)}", None if rng.random() < 0.25 else f"{number}.{at}")
                for at in range(rng.randrange(4) + 1)
            ]
            batch = keyed(*pairs, timestamp_ms=now_ms, codec=rng.choice(list(Codec)))
            assert self._leader is not None
            try:
                async with asyncio.timeout(5.0):
                    if rng.random() < plan.transaction_p:
                        await self._transact(self._leader, pairs, now_ms)
                    else:
                        await done(self._leader.append(batch))
                    if rng.random() < plan.roll_p:
                        await self._leader.changes.roll()
            except (*TROUBLE, TimeoutError):
                await asyncio.sleep(0.1)
                if not self._leader.is_open:
                    await self._take_over()
            await asyncio.sleep(rng.expovariate(1 / plan.think_s))

    async def _transact(
        self, leader: Partition, pairs: list[tuple[str, str | None]], now_ms: int
    ) -> None:
        """Go on with some transaction, or end it."""
        producer = self.rng.choice(self._producers)
        if not producer.is_open or self.rng.random() < 0.6:
            await producer.send(leader, pairs, now_ms)
            self.count("transactional batches")
        else:
            commit = self.rng.random() < 0.5
            await producer.end(leader, commit=commit)
            self.count("commits" if commit else "aborts")

    async def _churn(self) -> None:
        """Take over, trim, sweep, let calls fail."""
        plan, rng = self.plan, self.rng
        next_s = rng.expovariate(1 / plan.takeover_s)
        service = self._world.backend.service
        while not self.is_healed:
            pause_s = rng.random() * 0.2
            await asyncio.sleep(pause_s)
            if self.is_healed:
                return  # a takeover more would take the lead from the one that heals
            next_s -= pause_s
            if next_s < 0:
                next_s = rng.expovariate(1 / plan.takeover_s)
                await self._take_over()
                self.faults["takeover"] = self.faults.get("takeover", 0) + 1
            if rng.random() < plan.trim_p and self._leader is not None:
                await self._trim(self._leader)
            if plan.deletes and self._leader is not None:
                await self._maintain(self._leader)
            if plan.sweeps and rng.random() < 0.3:
                await self._sweep()
            if rng.random() < plan.fail_p:
                name = rng.choice(("create", "open", "close", "read", "delete"))
                service.fail_next(name, WriteFailed("planted"))
                self.faults[f"fail {name}"] = self.faults.get(f"fail {name}", 0) + 1

    async def _trim(self, leader: Partition) -> None:
        offset = Offset(self.rng.randrange(leader.high_watermark + 1))
        try:
            await leader.changes.delete_records(offset)
            self.count("trims")
        except TROUBLE:
            return

    async def _maintain(self, leader: Partition) -> None:
        try:
            await leader.changes.maintain(self._world.clock.now_ms())
        except TROUBLE:
            return

    async def _sweep(self) -> list[LedgerId]:
        world = self._world
        client = world.backend.service.client("sweep")

        class Alone:
            brokers = (BrokerId(1),)

        try:
            sweeper = OrphanLedgers(world.cluster.session(), client, Alone(), BrokerId(1))
            found = await sweeper.sweep()
            await sweeper.sweep_pages()
        except TROUBLE:
            return []
        return found

    # ---------------------------------------------------------------- readers

    async def _read_again_and_again(self) -> None:
        while True:
            await self._read(self.rng.choice((0.0, 0.0, 0.01, 0.1)))
            await asyncio.sleep(self.rng.random() * 0.3)

    async def _read(self, pause_s: float, *, is_committed: bool | None = None) -> list[Kept] | None:
        """Read from the log's start to its end, and judge; None: a trim came in between."""
        loop = asyncio.get_running_loop()
        began_s, stuck = loop.time(), 0
        leader = self._leader
        assert leader is not None
        start = position = leader.log_start_offset
        seen: list[Kept] = []
        size_max = self.rng.choice((1, 300, 1 << 20))
        if is_committed is None:
            is_committed = self.rng.random() < 0.5
        while position < (leader.last_stable_offset if is_committed else leader.high_watermark):
            if self.is_healed or self.rng.random() < 0.5:
                _forget(leader)
            try:
                fetched = await leader.reader.read(
                    position, size_max, at_least_one=True, read_committed=is_committed
                )
            except OffsetOutOfRange:
                return None
            except (BrokerError, LogCorrupt) as error:
                if isinstance(error, LogCorrupt):
                    self.fail("Z8", f"{error}")
                if isinstance(error, LogReadFailed) and any(what in str(error) for what in _GONE):
                    self._check_gone(leader, error)
                stuck += 1
                if stuck > _STUCK_READS:
                    self.fail("Z8", f"a reader at {position} gets {error!r}")
                await asyncio.sleep(0.05)
                leader = self._leader
                assert leader is not None
                continue
            if fetched.next_offset <= position:
                self.fail("Z8", f"a reader at {position} is given nothing below the end")
            given = committed(fetched) if is_committed else opened(map(bytes, fetched.buffers))
            seen += [one for one in given if one.offset >= position]
            position = fetched.next_offset
            if pause_s:
                await asyncio.sleep(self.rng.random() * pause_s)
        took_ms = (loop.time() - began_s) * 1000
        self._judge(seen, start, position, took_ms, is_committed=is_committed)
        return seen

    def _check_gone(self, leader: Partition, error: BaseException) -> None:
        """A ledger or a page that is gone was trimmed, or replaced: then there is a new list."""
        if leader is self._leader and leader.is_open and not self._trims:
            self.fail("Z3", f"a reader is cut off: {error!r}")

    @property
    def _trims(self) -> bool:
        return bool(self.plan.trim_p or self.plan.deletes)

    def _judge(
        self, seen: Sequence[Kept], start: int, end: int, took_ms: float, *, is_committed: bool
    ) -> None:
        self.count("committed readers" if is_committed else "readers")
        truth = {one.record.offset: one for one in self.truth() if start <= one.record.offset < end}
        before = -1
        for one in seen:
            known = truth.get(one.offset)
            if known is None or known.record != one:
                self.fail("Z2", f"{one} is shown, {known} was written")
            elif is_committed and not known.is_committed:
                self.fail("Z5", f"{known} is shown to a reader of committed data")
            if one.offset <= before:
                self.fail("Z3", f"{one.offset} is shown after {before}")
            before = one.offset
        ended = newest([one for one in seen if truth[one.offset].is_committed])
        for key, last in newest([one.record for one in truth.values() if one.is_committed]).items():
            found = ended.get(key)
            if last.value is not None:
                if found != last:
                    self.fail("Z3", f"{key} ends with {found}, written was {last}")
            elif found is not None and found.value is not None and took_ms <= self.plan.retain_ms:
                self.fail("Z4", f"{found} is shown, but not {last}")

    # ---------------------------------------------------------------- the end

    async def _heal(self) -> None:
        """Everything goes well from now on: all that can be clean becomes clean."""
        self._world.backend.service.fail.clear()
        if self.plan.transaction_p:
            await self._abort_across_segments()
        await self._take_over()
        leader = self._leader
        assert leader is not None
        for producer in self._producers:
            if producer.is_open or producer.is_in_doubt:
                await producer.end(leader, commit=not producer.is_in_doubt)
        for _ in range(3):
            now_ms = self._world.clock.now_ms()
            await done(leader.append(keyed(("last", "v"), timestamp_ms=now_ms)))
            await leader.changes.roll()
        await asyncio.sleep(
            (self.plan.retain_ms + self.plan.lag_ms_min + self.plan.grace_ms) / 1000
        )
        for _ in range(_HEALING_LOOKS):
            await asyncio.sleep(_HEALING_S)
            self.check_broken()
            self._look()
            state = self._listed.compaction
            clean = self._cleanable_end() <= state.cleaned_until
            if clean and not state.retired and state.next_horizon_ms < 0:
                break
        await self._read(0.0, is_committed=True)
        seen = await self._read(0.0, is_committed=False)
        if seen is None:
            self.fail("Z8", "nobody trims any more, and a reader is out of range")
        self._look()
        assert seen is not None
        self._check_clean(seen)
        await self._take_over()
        for broker, task in self._lives[:-1]:
            task.cancel()
            broker.dead = True
        await self._sweep()
        self._look()
        listed = {one.ledger_id for one in self._flat(self._listed)}
        listed |= {one.ledger_id for one in self._listed.compaction.retired}
        current = self._listed.leader_epoch
        left = [
            ledger_id
            for ledger_id, ledger in self._world.backend.service.ledgers.items()
            if ledger_id not in listed
            and int(ledger.custom_metadata["quire.leader_epoch"]) < current
        ]
        if left:
            self.fail("Z7", f"{left} are left behind")

    async def _abort_across_segments(self) -> None:
        """Write a transaction into one segment and its end into the next, which is listed in the
        ledger of the takeover that follows: of such a segment nothing is lost (OWN-INDEX)."""
        leader, producer = self._leader, Producer(_LAST_PRODUCER)
        assert leader is not None
        self._producers.append(producer)
        with contextlib.suppress(*TROUBLE, TimeoutError):
            async with asyncio.timeout(5.0):
                await producer.send(leader, [("void", "v")], self._world.clock.now_ms())
                await leader.changes.roll()
                await producer.end(leader, commit=False)

    def _check_clean(self, seen: Sequence[Kept]) -> None:
        """Nothing is left below the clean point that should be gone by now."""
        state = self._listed.compaction
        clean = [one for one in seen if one.offset < state.cleaned_until]
        void = {one.record.offset for one in self.truth() if not one.is_committed}
        newer = newest(clean)
        for one in clean:
            assert one.key is not None
            if one.offset in void:
                self.fail("Z8", f"{one} was aborted, and is left, {state}")
            if newer[one.key] != one:
                self.fail("Z8", f"{one} is left, although {newer[one.key]} is newer, {state}")
            if one.value is None:
                self.fail("Z8", f"{one} is kept for ever, {state}")
        if state.retired:
            self.fail("Z7", f"{state.retired} are kept for ever")
        if state.cleaned_until < self._cleanable_end():
            self.fail("Z8", f"clean is only what is below {state.cleaned_until}")

    def _cleanable_end(self) -> int:
        """Return where compaction has to come to: all but what was written last."""
        ends = [one.end_offset for one in self._flat(self._listed)[:-4]]
        return max((end for end in ends if end is not None), default=0)


def _forget(leader: Partition) -> None:
    """Let a leader know what it has in memory as it would after it has led for long."""
    reader = leader.reader
    reader._tail.clear()
    reader.log._aborted._indexes.clear()
    reader.log._aborted._blocks.clear()


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one schedule of a compacted partition and return what it came to."""
    result = Result(seed=seed, world="compaction")
    world = CompactionWorld(seed)
    loop = VirtualTimeLoop()
    start_s = loop.time()
    try:
        loop.run_until_complete(asyncio.wait_for(world.run(), 100_000.0))
        world.check_broken()
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
    counts: dict[str, int] = {}
    for name, count in world.counts.items():
        short = name.partition(" of ")[0]
        counts[short] = counts.get(short, 0) + count
    result.counts = {**counts, "trace events": len(world.log)}
    result.faults = world.faults
    result.steps = len(world.log)
    result.digest = zlib.crc32("\n".join(world.log).encode())
    if log:
        result.log = world.log
    return result
