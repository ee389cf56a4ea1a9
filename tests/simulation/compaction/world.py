"""One schedule of a compacted partition: writer, leaders, cleaners, trims and readers at once.

Partition, segment list, compactor and sweep are the production code; ledgers and metadata store are
the scripted ones of `tests/fakes`, whose faults are those that a segment list can meet: answers
that are lost, leaders that are killed or do not know that they were replaced, cleaners broken off
at any step, calls that fail. So a schedule takes milliseconds, and meets hundreds of swaps.

The truth is what stands in the ledgers that leaders wrote themselves (`log.py`).
Violations carry the names of the invariants of compaction:

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
from typing import TYPE_CHECKING, Any, Final

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.compaction.core.round_messages import BeginRound
from broker.compaction.worker import LocalWorker
from broker.errors import BrokerError, CompactionFailed
from broker.leadership.orphan_ledgers import OrphanLedgers
from client.errors import LedgerError, LogCorrupt, MetadataError, WriteFailed
from client.ids import BrokerId, LedgerId, Offset
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from client.wire.kafka.batches.records import Codec
from tests.fakes.brokers import Broker, World, done
from tests.fakes.keyed import Kept, keyed, newest
from tests.fakes.transactions import FakeVerifier
from tests.fakes.virtual_time import VirtualTimeLoop
from tests.simulation.compaction.log import CompactedLog, Violation, fail
from tests.simulation.compaction.plan import draw
from tests.simulation.compaction.readers import CompactionReaders
from tests.simulation.compaction.transactions import Producer, stable_offset
from tests.simulation.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from broker.compaction.core.round_messages import Request, WorkDone
    from broker.partition.partition import Partition
    from client.node.turns import Turns

TROUBLE: Final = (BrokerError, LedgerError, MetadataError, LogCorrupt)
FAULTS: Final = (
    "break off", "child dies", "takeover", "lose reply", "lose request",
    "fail create", "fail open", "fail close", "fail read", "fail delete",
)  # fmt: skip
_LAST_PRODUCER: Final = 99
_SLOW_READ_S: Final = 0.1
_HEALING_S: Final = 5.0
_HEALING_LOOKS: Final = 60


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
        self.known: CompactedLog
        """What is known of the partition, once it is there."""
        self._readers = CompactionReaders(self)
        self._lives: list[tuple[Broker, asyncio.Task[Any]]] = []
        self.leader: Partition | None = None
        self._producers = [Producer(number) for number in range(1, self.plan.producers + 1)]
        self._tasks: list[asyncio.Task[Any]] = []
        self._broken: list[BaseException] = []
        self._broker_count = 0
        self._is_taking_over = asyncio.Lock()

    # ---------------------------------------------------------------- what is known

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def note(self, text: str) -> None:
        self.log.append(f"{asyncio.get_running_loop().time():.3f} {text}")

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
        self.known = CompactedLog(world, plan, self._path, self.count, self.note)
        world.cluster.on_request = self._on_request
        world.backend.service.read_s = self._slowness(random.Random(f"reads {self.rng.random()}"))
        await self._take_over()
        self._start(self._churn())
        for _ in range(plan.readers):
            self._start(self._readers.read_again_and_again())
        await self._write()
        self.is_healed = True
        await self._heal()
        for task in self._tasks:
            task.cancel()

    def _on_request(self, request: Operation) -> Fault | None:
        try:
            self.known.look()
        except Violation as error:
            self._broken.append(error)
        is_ours = request.path.startswith(self._path) and request.name in ("set", "create")
        if is_ours and not self.is_healed and self.rng.random() < self.plan.lose_p:
            fault = self.rng.choice((Fault.LOSE_REPLY, Fault.LOSE_REQUEST))
            self.faults[fault.value] = self.faults.get(fault.value, 0) + 1
            return fault
        return None

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
            elif how == "close" and self.leader is not None:
                await self.leader.close(1.0)
        while True:
            self._broker_count += 1
            broker = await self._world.broker(self._broker_count, owning=False)
            try:
                self.leader = await broker.open(self._topic)
            except (*TROUBLE, RuntimeError) as error:
                self.note(f"not opened: {error!r}")
                await asyncio.sleep(0.05)
                continue
            break
        broker.services.coordinators.verifier = FakeVerifier()
        self.known.look()
        self._check_stable(self.leader)
        task = self._start(self._clean(broker, self.leader))
        self._start(self._keep_lease(broker))
        self._lives.append((broker, task))
        for stale, stale_task in self._lives[:-2]:
            if not stale.dead:
                stale.kill()
            stale_task.cancel()

    def _check_stable(self, leader: Partition) -> None:
        """A leader that has just begun knows the open transactions by what it has replayed."""
        log = self.known.written()
        stable = max(stable_offset(log, leader.high_watermark), leader.log_start_offset)
        if leader.last_stable_offset != stable:
            fail("Z6", f"stable up to {leader.last_stable_offset}, not {stable}")

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
            assert self.leader is not None
            try:
                async with asyncio.timeout(5.0):
                    if rng.random() < plan.transaction_p:
                        await self._transact(self.leader, pairs, now_ms)
                    else:
                        await done(self.leader.append(batch))
                    if rng.random() < plan.roll_p:
                        await self.leader.changes.roll()
            except (*TROUBLE, TimeoutError):
                await asyncio.sleep(0.1)
                if not self.leader.is_open:
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
            if rng.random() < plan.trim_p and self.leader is not None:
                await self._trim(self.leader)
            if plan.deletes and self.leader is not None:
                await self._maintain(self.leader)
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

    # ---------------------------------------------------------------- the end

    async def _heal(self) -> None:
        """Everything goes well from now on: all that can be clean becomes clean."""
        self._world.backend.service.fail.clear()
        if self.plan.transaction_p:
            await self._abort_across_segments()
        await self._take_over()
        leader = self.leader
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
            self.known.look()
            state = self.known.listed.compaction
            clean = self._cleanable_end() <= state.cleaned_until
            if clean and not state.retired and state.next_horizon_ms < 0:
                break
        await self._readers.read(0.0, is_committed=True)
        seen = await self._readers.read(0.0, is_committed=False)
        if seen is None:
            fail("Z8", "nobody trims any more, and a reader is out of range")
        self.known.look()
        assert seen is not None
        self._check_clean(seen)
        await self._take_over()
        for broker, task in self._lives[:-1]:
            task.cancel()
            broker.dead = True
        await self._sweep()
        self.known.look()
        listed = {one.ledger_id for one in self.known.flat()}
        listed |= {one.ledger_id for one in self.known.listed.compaction.retired}
        current = self.known.listed.leader_epoch
        left = [
            ledger_id
            for ledger_id, ledger in self._world.backend.service.ledgers.items()
            if ledger_id not in listed
            and int(ledger.custom_metadata["quire.leader_epoch"]) < current
        ]
        if left:
            fail("Z7", f"{left} are left behind")

    async def _abort_across_segments(self) -> None:
        """Write a transaction into one segment and its end into the next, which is listed in the
        ledger of the takeover that follows: of such a segment nothing is lost (OWN-INDEX)."""
        leader, producer = self.leader, Producer(_LAST_PRODUCER)
        assert leader is not None
        self._producers.append(producer)
        with contextlib.suppress(*TROUBLE, TimeoutError):
            async with asyncio.timeout(5.0):
                await producer.send(leader, [("void", "v")], self._world.clock.now_ms())
                await leader.changes.roll()
                await producer.end(leader, commit=False)

    def _check_clean(self, seen: Sequence[Kept]) -> None:
        """Nothing is left below the clean point that should be gone by now."""
        state = self.known.listed.compaction
        clean = [one for one in seen if one.offset < state.cleaned_until]
        void = {one.record.offset for one in self.known.truth() if not one.is_committed}
        newer = newest(clean)
        for one in clean:
            assert one.key is not None
            if one.offset in void:
                fail("Z8", f"{one} was aborted, and is left, {state}")
            if newer[one.key] != one:
                fail("Z8", f"{one} is left, although {newer[one.key]} is newer, {state}")
            if one.value is None:
                fail("Z8", f"{one} is kept for ever, {state}")
        if state.retired:
            fail("Z7", f"{state.retired} are kept for ever")
        if state.cleaned_until < self._cleanable_end():
            fail("Z8", f"clean is only what is below {state.cleaned_until}")

    def _cleanable_end(self) -> int:
        """Return where compaction has to come to: all but what was written last."""
        ends = [one.end_offset for one in self.known.flat()[:-4]]
        return max((end for end in ends if end is not None), default=0)


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
