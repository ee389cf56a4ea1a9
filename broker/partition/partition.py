"""One partition that this broker leads: appends, from the check of a batch to its confirmation.

This is the shell around `core/leader.py`, which makes the decisions; futures, metrics and logs are
here. Other objects are responsible for changes of the log (`changes`), reads (`reader`), the
replication of the active ledger (`replication`), and size and usage (`usage`). A partition is
opened by `opening.py`.

    Admission       A partition holds a bounded number of unconfirmed bytes, and a segment that is
                    being rolled grows by a tenth at most. Beyond that a batch is not refused: the
                    caller waits, reads nothing more from its client, and is called back when there
                    is room. No batch overtakes those that wait: otherwise small batches could keep
                    a large one waiting forever.
    EffectRunner    Carrying out an effect may lead to another input with effects of its own: these
                    are queued after the current ones. An effect that raises is a bug of ours, after
                    which nobody can tell whether the rest of the partition is right: it might
                    accept batches and never send them. So the leadership ends (FAILS-LOUDLY). The
                    other effects are carried out first, because each belongs to somebody who waits
                    for it; then the end settles everything else, and the error goes on to the
                    caller.
    EntrySender     Entries go to the ledger while its writer has room; the others stay in the
                    partition's queue. Large ones also take turns with those of other partitions
                    (`leading/send_turns.py`).
    ReadableWaits   Long-polling fetches, and group coordinators that replay their log, wait for
                    the high watermark to pass an offset, or for the last stable offset if they
                    read only committed data. They handle their own deadlines, and cancel.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    BrokerError,
    InvalidTransactionState,
    LeadershipLost,
    NotLeader,
    Overloaded,
    SequenceError,
)
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import Append, HeldAppend, LogEntry
from broker.partition.core.batch_checks import BatchLimits, CheckedBatch, checking
from broker.partition.core.held_batches import ProducerTransaction
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import (
    PLAN,
    SEND,
    Close,
    Effect,
    Effects,
    Ended,
    Now,
    PlanSend,
    SendEntries,
    State,
    StepOutcome,
)
from broker.partition.core.log_state import LogOffsets, LogState
from broker.partition.core.producer_state import RefusedBatches, SequenceGaps
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.leading.log_changes import HIGH_WATERMARK, LogChanges
from broker.partition.leading.partition_shares import PartitionShares
from broker.partition.leading.partition_transactions import PartitionTransactions
from broker.partition.leading.send_turns import LARGE_BYTES, SendTurns
from broker.partition.ledgers import AddDone, Writer, plan_ledger
from broker.partition.log_services import LogServices
from broker.partition.opening import Opened
from broker.partition.partition_reader import PartitionReader
from broker.partition.tail_cache import Fetched
from broker.partition.usage import LogUsage, Replication
from client import callbacks
from client.errors import LedgerError, MetadataError, QuireError
from client.held_memory import HeldMemory
from client.histogram import Stopwatch
from client.ids import NO_LEDGER, Clock, EntryId, LeaderEpoch, Offset
from client.log.segments import FIRST_EPOCH
from client.metadata.store import NODE_BYTES_MAX
from client.wire.kafka.batches.records import BatchHeader, Buffer, parse_header
from client.wire.steps import Steps

__all__ = ["HIGH_WATERMARK", "Append", "Fetched", "Partition", "State"]

_LOG = logging.getLogger(__name__)

_LIST_BYTES_MAX: Final = NODE_BYTES_MAX - 100_000
"""A partition with a longer list is not rolled any more, so that takeovers still have room in the
node."""


class Partition:
    """One led partition: appends, and changes of its log."""

    def __init__(self, services: LogServices, topic: TopicInfo, index: int, opened: Opened) -> None:
        """Begin to lead; the first entry of the ledger, a snapshot, is sent at once."""
        self.topic = topic
        self.index = index
        self.leader_epoch: LeaderEpoch = opened.segments.leader_epoch
        self.on_ended: Callable[[], None] | None = None
        """Called once if the leadership ends for another reason than `close`."""
        self._services = services
        self._waits = ReadableWaits()
        now = Now(services.clock.now_ms(), asyncio.get_running_loop().time())
        self._leader = _leader_of(topic, index, services, opened, now)
        steps = LeaderSteps(
            services, topic, index, opened.writer, self._on_outcome, self._on_step_failed
        )
        self._sender = EntrySender(
            self._leader.log,
            steps,
            services.metrics.now_s,
            self._on_added,
            self._on_refused,
            services.ledgers.memory,
            services.sends,
        )
        self._runner = EffectRunner(
            self._carry_out, self._sender.send, self._leader.log.on_turn_over, self._on_failed
        )
        self.reader = PartitionReader(
            services,
            steps.node,
            self._leader.readable,
            self._leader.log.offsets,
            self.check_leading,
            self._resign_for,
        )
        self.changes = LogChanges(
            services, self._leader, steps, self.reader, self._runner.run, self.check_leading
        )
        self.transactions = PartitionTransactions(
            services, steps, self._leader, self.append, self._runner.run
        )
        self._shares: PartitionShares | None = None
        self.admission = Admission(self._leader, services.clock)
        self.replication = Replication(steps, lambda: self.is_open)
        self.usage = LogUsage(self._leader)
        self.configure(topic)
        if opened.writer is None:
            self.reader.log.on_recovered(opened.earlier)
        else:
            self.reader.on_segment_begun(opened.writer, self._leader.log.active)
        self._runner.run(self._leader.start())

    @property
    def name(self) -> str:
        """Topic and index."""
        return f"{self.topic.name}-{self.index}"

    @property
    def shares(self) -> PartitionShares:
        """Its share groups; most partitions have none, and then this takes no memory."""
        if self._shares is None:
            services = self._services
            self._shares = PartitionShares(
                self._leader,
                self._runner.run,
                services.clock,
                lambda: services.archiving.tell(self.topic.name, self.index),
            )
        return self._shares

    @property
    def has_shares(self) -> bool:
        """Whether any share group reads it."""
        return bool(self._leader.log.fold.shares)

    @property
    def is_open(self) -> bool:
        """Whether we lead."""
        return self._leader.state is State.OPEN

    @property
    def log_start_offset(self) -> Offset:
        """First offset that may be read."""
        return self._leader.log.offsets.log_start

    @property
    def high_watermark(self) -> Offset:
        """Offset after the last confirmed record."""
        return self._leader.log.offsets.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """End of what read_committed reads may return."""
        return self._leader.log.offsets.last_stable

    @property
    def log_end_offset(self) -> Offset:
        """Offset after the last accepted record."""
        return self._leader.log.offsets.log_end

    def configure(self, topic: TopicInfo) -> None:
        """Apply the topic's current configuration."""
        self.topic = topic
        self.changes.configure(topic)
        self._leader.configure(topic.config)
        self.admission.look()

    def check_leading(self) -> None:
        """Raise NotLeader unless we may answer for the partition: it is open, and the session
        lease is valid."""
        self._leader.check_open()
        if not self._services.lease.is_valid(self._runner.now_s()):
            raise NotLeader(f"{self.name}: the metadata session may have expired")

    # --- append -------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer,
        *,
        from_client: bool = True,
        checked: CheckedBatch | None = None,
        transaction: ProducerTransaction | None = None,
    ) -> Append:
        """Check a batch, assign its offsets and enqueue it; its bytes must not change afterwards.

        Returns at once; see `Append`. Returns the original append for a duplicate, or a completed
        one; for a batch of a `transaction` that is not open here yet, a `HeldAppend`, which gets
        its offsets later. Raises NotLeader, Overloaded, NotEnoughReplicas, the InvalidRecord and
        SequenceError families; nothing was applied then. Callers that can wait use
        `admission.has_room` first, and `admission.checking` for a
        batch that takes long to check.
        """
        if transaction is not None and not self.transactions.are_served:
            transaction = None
        leader = self._leader
        writer = self._sender.steps.writer
        if writer is not None and writer.is_ended and leader.state is State.OPEN:
            self.resign(f"ledger {leader.log.active.ledger_id} accepts no more entries")
        end = leader.log.offsets.log_end
        try:
            append, effects = leader.append(
                batch,
                self._services.clock.now_ms(),
                self._runner.now_s(),
                from_client=from_client,
                checked=checked,
                transaction=transaction,
            )
        except SequenceError as error:
            self._log_refusal(batch, error)
            raise
        except QuireError:
            raise
        except Exception as error:
            self._runner.fail(error)
            raise
        if append.base_offset == end:  # otherwise it is a duplicate
            self._sender.on_accepted(append.size)
        elif transaction is not None and isinstance(append, HeldAppend):
            self.transactions.on_held(append)
        if effects:
            self._runner.run(effects)
        return append

    def _log_refusal(self, batch: Buffer, error: SequenceError) -> None:
        """Log the refusal: it costs the producer its epoch, or makes it fail."""
        if isinstance(error, InvalidTransactionState):
            return
        header = parse_header(batch)
        _LOG.warning(
            "producer.refused topic=%s partition=%d epoch=%d producer=%d producer_epoch=%d"
            " sequence=%d records=%d error=%s",
            self.topic.name, self.index, self.leader_epoch, header.producer_id,
            header.producer_epoch, header.base_sequence, header.record_count, error,
        )  # fmt: skip

    def on_high_watermark(
        self, above: Offset, call: Callable[[], None], *, read_committed: bool = False
    ) -> Callable[[], None]:
        """Call `call` once the high watermark is above `above`, or the leadership has ended; for
        `read_committed`, once the last stable offset is.

        `call` is called later, never before this returns. Returns a function that cancels the wait.
        """
        waits = self._waits.stable if read_committed else self._waits.confirmed
        reached = self.last_stable_offset if read_committed else self.high_watermark
        if self._leader.state is State.ENDED or reached > above:
            return asyncio.get_running_loop().call_soon(call).cancel
        return partial(waits.cancel, waits.add(above, call))

    async def seek_ledger(self) -> None:
        """If the partition is read-only and a ledger can be had now, end the leadership: the
        takeover that follows creates one. Raises LedgerError, MetadataError: none can be had."""
        await plan_ledger(self._services.ledgers, self.topic, self.index, self.leader_epoch)
        if self._leader.is_read_only:
            self.resign("a ledger can be created again")

    # --- the end ------------------------------------------------------------------------

    async def close(self, timeout_s: float) -> None:
        """End the leadership gracefully: confirm what was accepted, close the ledger.

        Appends that are not confirmed within the timeout fail with an unknown outcome, and the next
        leader recovers the ledger.
        """
        if self.is_open:
            reason = "closing was cancelled"
            try:
                async with asyncio.timeout(timeout_s):
                    done = self.changes.ask(Close)
                    self.admission.look()  # ends all waits for room
                    error = await done
                    if error is not None:
                        raise error
            except (LedgerError, MetadataError, BrokerError, TimeoutError) as error:
                reason = f"not closed gracefully: {error!r}"
            finally:
                self.resign(reason)
        await self.changes.wait_idle()

    def resign(self, reason: str) -> None:
        """Stop leading at once. Unconfirmed appends fail with an unknown outcome."""
        self._runner.run(self._leader.end(reason))

    def _resign_for(self, reason: str) -> LeadershipLost:
        self.resign(reason)
        return LeadershipLost(f"{self.name}: {reason}")

    # --- inputs -------------------------------------------------------------------------

    def _on_added(self, _entry_id: EntryId, error: LedgerError | None) -> None:
        """The ledger has confirmed its oldest entry, or failed."""
        if error is not None:
            self.resign(f"add failed: {error!r}")
            return
        try:
            effects = self._leader.on_confirmed()
        except Exception as bug:
            self._runner.fail(bug)
            raise
        self._runner.run(effects)

    def _on_refused(self, error: LedgerError) -> None:
        """The ledger accepts no more entries."""
        self.resign(f"add refused: {error!r}")

    def _on_step_failed(self, error: BaseException) -> None:
        """A step raised what it never should: its change would never be done."""
        self._runner.fail(error)

    def _on_failed(self, error: BaseException) -> Effects:
        """An effect, a step or a decision has raised, which is a bug: whether the partition is
        right is not known any more. It gives up its leadership, and the next leader begins from the
        log (FAILS-LOUDLY)."""
        _LOG.error(
            "partition.failed topic=%s partition=%d epoch=%d error=%r",
            self.topic.name, self.index, self.leader_epoch, error, exc_info=error,
        )  # fmt: skip
        return self._leader.end(f"a bug: {error!r}")

    def _on_outcome(self, outcome: StepOutcome) -> None:
        self._runner.run(self._leader.on_outcome(outcome, self._now()))

    def _now(self) -> Now:
        return Now(self._services.clock.now_ms(), self._runner.now_s())

    # --- effects ------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case LogEntry():
                self._on_confirmed(effect)
            case SendEntries():
                self._sender.send()
            case PlanSend():
                self._runner.plan()
            case Ended():
                self._on_ended(effect)
            case _:
                self.changes.carry_out(effect)
                self.admission.look()  # a roll is listed, or has failed

    def _on_confirmed(self, entry: LogEntry) -> None:
        """An entry is on its ack quorum; a snapshot has no appends."""
        metrics = self._services.metrics
        metrics.append_seconds.observe(metrics.now_s() - entry.sent_s)
        appends = entry.appends
        if appends:
            try:
                tail = self.reader.tail
                for append in appends:
                    tail.add(append.base_offset, append.end_offset, append.buffers, append.size)
            finally:
                _complete(appends, None)
            waits = self._waits
            if waits.confirmed.waiting:
                _call(waits.confirmed.on_reached(entry.end_offset))
            if waits.stable.waiting:
                _call(waits.stable.on_reached(self.last_stable_offset))
        elif entry.awaited is not None:
            _complete((entry.awaited,), None)
        if self.transactions.proofs.waiting:
            self.transactions.on_entry_confirmed()
        self.admission.look()

    def _on_ended(self, ended: Ended) -> None:
        _LOG.info(
            "partition.ended topic=%s partition=%d epoch=%d reason=%s",
            self.topic.name, self.index, self.leader_epoch, ended.reason,
        )  # fmt: skip
        self.changes.stop()
        self._sender.stop()
        _complete(ended.appends, ended.error)
        self.transactions.stop(ended.error)
        if self._shares is not None:
            self._shares.stop()
        self.reader.close()
        self.changes.settle_all(ended.tickets)
        _call(self._waits.drain())
        self.admission.look()
        if ended.is_lost:
            self._services.metrics.leaderships_lost += 1
            if self.on_ended is not None:
                self.on_ended()


def _complete(appends: Sequence[Append], error: BrokerError | None) -> None:
    """Tell the owners of appends what became of them; one that raises costs no other its answer."""
    for append in appends:
        try:
            append.complete(error)
        except callbacks.RAISED as raised:
            callbacks.failed(callbacks.Kind.APPEND, raised)


def _call(calls: Sequence[Callable[[], None]]) -> None:
    """Call everybody, whatever one of them raises."""
    for call in calls:
        try:
            call()
        except callbacks.RAISED as raised:
            callbacks.failed(callbacks.Kind.APPEND, raised)


def _follows_refused(
    refused: RefusedBatches, topic: TopicInfo, index: int, header: BatchHeader, now_s: float
) -> bool:
    """Whether a batch before this one was refused by this broker while it did not lead yet."""
    asked = topic.name, topic.topic_id
    return any(refused.is_before(one, index, header, now_s) for one in asked)


def _leader_of(
    topic: TopicInfo, index: int, services: LogServices, opened: Opened, now: Now
) -> PartitionLeader:
    """Return a leader that continues the log at the end that the takeover found."""
    name = f"{topic.name}-{index}"
    segments, limits = opened.segments, services.limits
    end = opened.log_end_offset
    writer = opened.writer
    active = ActiveSegment(NO_LEDGER if writer is None else writer.ledger_id, end, now.ms, limits)
    active.transactions.earlier = opened.earlier
    gaps = SequenceGaps(now.s + limits.settling_ms / 1000)
    if segments.leader_epoch == FIRST_EPOCH:  # nobody else can have refused anything
        gaps = SequenceGaps(now.s, partial(_follows_refused, services.refused, topic, index))
    log = LogState(
        name,
        segments.leader_epoch,
        limits,
        LogOffsets(segments.log_start_offset, end, opened.fold.transactions),
        opened.fold,
        active,
        gaps,
    )
    if writer is None:
        recovered = opened.recovered
        unsealed = [one for one in segments.segments if one.facts is None]
        active.stand_for(sum(recovered[one.ledger_id][1].size_bytes for one in unsealed))
        log.has_own_snapshot = opened.has_snapshot
    return PartitionLeader(
        name,
        log,
        segments,
        opened.version,
        list_bytes_max=_LIST_BYTES_MAX,
        recovered=opened.recovered if writer is None else None,
    )


class EffectRunner:
    """The effects of one leader."""

    __slots__ = (
        "_carry_out",
        "_failed",
        "_is_running",
        "_loop",
        "_on_turn_over",
        "_queue",
        "_send",
        "now_s",
    )

    def __init__(
        self,
        carry_out: Callable[[Effect], None],
        send: Callable[[], None],
        on_turn_over: Callable[[], Effects],
        failed: Callable[[BaseException], Effects],
    ) -> None:
        """`send` carries out `SendEntries`; `on_turn_over` is the input that `PlanSend` asks for.
        Both mostly come alone, once for each entry. `failed` is told of each error, and returns
        the effects of the leadership's end, once."""
        self._carry_out = carry_out
        self._send = send
        self._on_turn_over = on_turn_over
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self.now_s = self._loop.time
        """The loop's time, for intervals."""
        self._queue: list[Effect] = []  # short: a deque takes 760 bytes in each idle partition
        self._is_running = False

    def plan(self) -> None:
        """Call `on_turn_over` when this turn of the loop is over."""
        self._loop.call_soon(self._end_turn)

    def run(self, effects: Effects) -> None:
        """Carry out effects, after those in progress. Raises what one of them raised, once the
        leadership has ended for it."""
        if self._is_running:
            self._queue.extend(effects)
            return
        if effects is PLAN:
            self._loop.call_soon(self._end_turn)
            return
        if effects is SEND:
            try:
                self._send()
            except BaseException as error:
                self._fail(error, ())
                raise
            return
        rest = iter(effects)
        self._is_running = True
        try:
            for effect in rest:
                self._carry_out(effect)
            while self._queue:
                self._carry_out(self._queue.pop(0))
        except BaseException as error:
            self._fail(error, rest)
            raise
        finally:
            self._is_running = False

    def fail(self, error: BaseException) -> None:
        """Something else of this partition has raised, which is a bug: end the leadership."""
        if self._is_running:
            self._queue.extend(self._failed(error))
        else:
            self._fail(error, ())

    def _fail(self, error: BaseException, rest: Iterable[Effect]) -> None:
        """Carry out what is left, each effect on its own, then the end."""
        queue = self._queue
        self._is_running = True
        queue[:0] = rest
        queue.extend(self._failed(error))
        while queue:
            try:
                self._carry_out(queue.pop(0))
            except Exception as another:  # whoever waits for another effect must still get it
                self._failed(another)
        self._is_running = False

    def _end_turn(self) -> None:
        try:
            effects = self._on_turn_over()
        except BaseException as error:
            self.fail(error)
            raise
        if effects:
            self.run(effects)


class EntrySender:
    """Sends the waiting entries of `LogState` to the current ledger."""

    __slots__ = (
        "_awaited",
        "_log",
        "_memory",
        "_now_s",
        "_on_added",
        "_on_refused",
        "_turns",
        "_unsent_bytes",
        "steps",
    )

    def __init__(
        self,
        log: LogState,
        steps: LeaderSteps,
        now_s: Stopwatch,
        on_added: AddDone,
        on_refused: Callable[[LedgerError], None],
        memory: HeldMemory,
        turns: SendTurns,
    ) -> None:
        """`on_refused`: called when the ledger accepts no more entries. `memory`: counts bytes
        until a writer counts them. `turns`: shared by all partitions."""
        self._log = log
        self.steps = steps
        """Has the writer of the current ledger."""
        self._now_s = now_s
        self._on_added = on_added
        self._on_refused = on_refused
        self._memory = memory
        self._turns = turns
        self._unsent_bytes = 0
        """Bytes of accepted batches that no writer has yet."""
        self._awaited: Writer | None = None
        """The writer whose room is waited for."""

    def on_accepted(self, size: int) -> None:
        """A batch was accepted: it is counted until a writer has it or the leadership ends."""
        self._unsent_bytes += size
        self._memory.take(size)

    def stop(self) -> None:
        """The leadership has ended: release what no writer has."""
        self._turns.leave(self)
        size, self._unsent_bytes = self._unsent_bytes, 0
        self._memory.give(size)

    def send(self) -> None:
        """Send entries as far as possible now."""
        queue, writer, now_s = self._log.queue, self.steps.writer, self._now_s()
        assert writer is not None, "a read-only partition has nothing to send"
        room = writer.room
        while queue.waiting:
            if not room.is_free:
                self._await_room(writer)
                return
            size = queue.next_size
            if size > LARGE_BYTES and not self._turns.admits(self, size, is_shared=room.is_shared):
                return
            entry = queue.take()
            entry.sent_s = now_s
            try:
                entry_id = writer.add(entry.buffers, self._on_added)
            except LedgerError as error:
                self._on_refused(error)
                return
            assert entry_id == entry.entry_id, (entry_id, entry.entry_id)
            if size > LARGE_BYTES:
                self._turns.on_sent(size)
            if entry.appends:
                self._unsent_bytes -= size
                self._memory.size -= size  # now counted by the writer: no memory became free

    def on_turn(self) -> None:
        """Large entries may be sent again."""
        writer = self.steps.writer
        if writer is not None and not writer.is_ended:  # otherwise its end is reported elsewhere
            self.send()

    def _await_room(self, writer: Writer) -> None:
        if self._awaited is not writer:
            self._awaited = writer
            writer.room.on_free(lambda: self._on_room(writer))

    def _on_room(self, writer: Writer) -> None:
        """A writer has room again, or has ended."""
        if self._awaited is writer:
            self._awaited = None
        self.on_turn()


class RoomWaits:
    """The batches that wait for room in one partition."""

    __slots__ = ("_next_ticket", "waiting")

    def __init__(self) -> None:
        self._next_ticket = 0
        self.waiting: dict[int, tuple[int, Callable[[], None]]] = {}
        """(size, callback) by ticket, in order. Public because every batch checks whether it is
        empty."""

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, size: int, call: Callable[[], None]) -> int:
        """Wait for room for `size` bytes, after all others; return a ticket for `cancel`."""
        self._next_ticket += 1
        self.waiting[self._next_ticket] = size, call
        return self._next_ticket

    def cancel(self, ticket: int) -> None:
        """Cancel a wait; it is no error if it has ended already."""
        self.waiting.pop(ticket, None)

    @property
    def next_size(self) -> int:
        """Size of the first batch that waits."""
        return next(iter(self.waiting.values()))[0]

    def take(self) -> Callable[[], None]:
        """Remove the first wait and return its callback."""
        return self.waiting.pop(next(iter(self.waiting)))[1]


class Admission:
    """Decides which batches may be appended to one partition now, and which have to wait."""

    __slots__ = ("_clock", "_is_planned", "_leader", "_loop", "_waits")

    def __init__(self, leader: PartitionLeader, clock: Clock) -> None:
        self._leader = leader
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waits = RoomWaits()
        self._is_planned = False

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes need not wait: it fits, and no other batch waits."""
        return not self._waits.waiting and self._leader.has_room(size)

    def on_room(self, size: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once, later, when there is room for `size` bytes or the leadership ends.

        Waits end in the order in which they began. The room is only reserved during `call`. Returns
        a function that cancels the wait.
        """
        ticket = self._waits.add(size, call)
        self.look()

        def cancel() -> None:
            self._waits.cancel(ticket)
            self.look()

        return cancel

    @property
    def limits(self) -> BatchLimits:
        """What the topic's current configuration says of batches."""
        return self._leader.log.batch_limits

    def checking(self, batch: memoryview, compressed_max: int) -> Steps[CheckedBatch]:
        """Check a batch that takes long; `compressed_max`: of its records, if it is compressed.

        Raises the `InvalidRecord` family.
        """
        return checking(batch, self.limits, self._clock.now_ms(), compressed_max)

    def refusal(self, batch: Buffer) -> Overloaded:
        """Return the error for a batch that has waited for room in vain.

        Raises what `append` raises for a batch that would not be accepted anyway.
        """
        self._leader.check_open()
        return self._leader.log.refuse(batch)

    def look(self) -> None:
        """Call back waiting batches as far as there is room, in a turn of their own, so that their
        errors do not reach the caller."""
        if self._waits.waiting and not self._is_planned and self._may_admit():
            self._is_planned = True
            self._loop.call_soon(self._admit)

    def _may_admit(self) -> bool:
        if not self._waits.waiting:
            return False
        leader = self._leader
        return leader.state is not State.OPEN or leader.has_room(self._waits.next_size)

    def _admit(self) -> None:
        self._is_planned = False
        try:
            while self._may_admit():
                self._waits.take()()
        finally:
            self.look()


class WatermarkWaits:
    """One-shot waits on one growing number."""

    __slots__ = ("_arrivals", "_heap", "waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self.waiting: dict[int, Callable[[], None]] = {}
        """By ticket. Public because every confirmed entry checks whether it is empty."""
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, above: int, call: Callable[[], None]) -> int:
        """Add a callback for when the number is above `above`; return a ticket for `cancel`."""
        self._arrivals += 1
        self.waiting[self._arrivals] = call
        heapq.heappush(self._heap, (above, self._arrivals))
        return self._arrivals

    def cancel(self, ticket: int) -> None:
        """Remove a callback; it is no error if it was returned already."""
        if self.waiting.pop(ticket, None) is None:
            return
        if len(self._heap) > 2 * len(self.waiting) + 16:
            self._heap = [item for item in self._heap if item[1] in self.waiting]
            heapq.heapify(self._heap)

    def on_reached(self, value: int) -> list[Callable[[], None]]:
        """Remove and return the callbacks whose threshold is below `value`."""
        due: list[Callable[[], None]] = []
        while self._heap and self._heap[0][0] < value:
            _, ticket = heapq.heappop(self._heap)
            call = self.waiting.pop(ticket, None)
            if call is not None:
                due.append(call)
        return due

    def drain(self) -> list[Callable[[], None]]:
        """Remove and return all callbacks: the number will not grow any more."""
        due = [self.waiting[ticket] for _, ticket in sorted(self._heap) if ticket in self.waiting]
        self._heap.clear()
        self.waiting.clear()
        return due


class ReadableWaits:
    """Waits on the two offsets that bound reads."""

    __slots__ = ("confirmed", "stable")

    def __init__(self) -> None:
        self.confirmed = WatermarkWaits()
        """On the high watermark."""
        self.stable = WatermarkWaits()
        """On the last stable offset."""

    def __len__(self) -> int:
        return len(self.confirmed) + len(self.stable)

    def drain(self) -> list[Callable[[], None]]:
        """Remove and return all callbacks: neither offset will grow any more."""
        return [*self.confirmed.drain(), *self.stable.drain()]
