"""One partition that this broker leads.

This is the shell around `core/leader.py`, which decides: tasks, futures, the ledger's writer,
metrics and logs are here. Reads are an object of their own, `reader`; so are questions about the
bookies behind the partition, `replication`. The way here is `opening.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    BrokerError,
    InvalidTransactionState,
    LeadershipLost,
    NotLeader,
    SequenceError,
)
from broker.partition.admission import Admission
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import Append, LogEntry
from broker.partition.core.leader import PartitionLeader, State
from broker.partition.core.leader_effects import (
    PLAN,
    SEND,
    AdoptList,
    BeginSegment,
    Change,
    ChangeDone,
    ChangeList,
    Close,
    CloseLedger,
    CreateLedger,
    DeleteLedgers,
    DiscardLedger,
    Effect,
    Effects,
    Ended,
    EntryConfirmed,
    Maintain,
    Now,
    PlanSend,
    Roll,
    RollListed,
    RollSealed,
    RollUnanswered,
    SendEntries,
    StepOutcome,
    SwitchLedger,
    Trim,
    Trimmed,
    UnfoldList,
)
from broker.partition.core.log_state import LogState
from broker.partition.core.offsets import LogOffsets
from broker.partition.core.sequence_gaps import SequenceGaps
from broker.partition.core.watermark_waits import WatermarkWaits
from broker.partition.entry_sender import EntrySender
from broker.partition.leader_steps import LeaderSteps
from broker.partition.log_services import LogServices
from broker.partition.opening import Opened
from broker.partition.partition_reader import PartitionReader
from broker.partition.replication import Replication
from broker.partition.tail_cache import Fetched
from client.errors import LedgerError, MetadataError, QuireError
from client.ids import EntryId, LeaderEpoch, Offset
from client.metadata.store import NODE_BYTES_MAX
from client.wire.kafka.records import Buffer, parse_header

__all__ = ["HIGH_WATERMARK", "Append", "Fetched", "Partition", "State"]

_LOG = logging.getLogger(__name__)

HIGH_WATERMARK: Final = Offset(-1)
"""In `delete_records`: everything confirmed so far."""

_LIST_BYTES_MAX: Final = NODE_BYTES_MAX - 100_000
"""A longer list is not rolled any further, so that takeovers still find room in the node."""


class Partition:
    """Appends to one led partition, and changes of its log."""

    def __init__(self, services: LogServices, topic: TopicInfo, index: int, opened: Opened) -> None:
        """Begin to lead; the first entry of the ledger, a snapshot, is sent at once."""
        self.topic = topic
        self.index = index
        self.leader_epoch: LeaderEpoch = opened.segments.leader_epoch
        self.on_ended: Callable[[], None] | None = None
        """Called once if leadership ends for another reason than `close`."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._waits = WatermarkWaits()
        self._asked = _Asked()
        self._effects: deque[Effect] = deque()
        """To be carried out: those of an input that comes while effects are carried out come
        after these."""
        self._is_performing = False
        self._leader = _leader_of(self.name, services, opened, self._now())
        self._steps = LeaderSteps(services, topic, index, opened.writer, self._on_outcome)
        self.reader = PartitionReader(
            services,
            self._steps.node,
            opened.segments,
            self._leader.log.offsets,
            self.check_leading,
            self._resign_for,
        )
        self._sender = EntrySender(
            self._leader.log, self._steps, services.metrics.now_s, self._on_added, self._on_refused
        )
        self.admission = Admission(self._leader, services.clock)
        self.replication = Replication(self._steps, lambda: self.is_open)
        self.configure(topic)
        self.reader.on_segment_begun(opened.writer, self._leader.log.active)
        self._perform(self._leader.start())

    @property
    def name(self) -> str:
        """Topic and index."""
        return f"{self.topic.name}-{self.index}"

    @property
    def is_open(self) -> bool:
        """Whether appends are accepted."""
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
        """Bound of read_committed reads."""
        return self._leader.log.offsets.last_stable

    @property
    def log_end_offset(self) -> Offset:
        """Offset after the last accepted record."""
        return self._leader.log.offsets.log_end

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self._leader.log.in_flight_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole log, each counted once."""
        return self._leader.size_bytes

    def configure(self, topic: TopicInfo) -> None:
        """Follow the topic's configuration as it is now."""
        self.topic = self._steps.topic = topic
        self._leader.configure(topic.config)

    def check_leading(self) -> None:
        """Raise NotLeader unless we may speak for the partition: open, and our session alive."""
        self._leader.check_open()
        if not self._services.lease.is_valid(self._loop.time()):
            raise NotLeader(f"{self.name}: the metadata session is in doubt")

    # --- append -------------------------------------------------------------------------

    def append(self, batch: Buffer, *, from_client: bool = True) -> Append:
        """Check a batch, give it offsets and enqueue it; its bytes must not change afterwards.

        Returns at once; see `Append`. A duplicate returns the append that it repeats, or a
        completed one. Raises NotLeader, Overloaded, the InvalidRecord and SequenceError
        families; nothing was applied then. Who can wait asks `admission.has_room` first.
        """
        leader = self._leader
        if self._steps.writer.is_ended and leader.state is State.OPEN:
            self.resign(f"ledger {self._steps.writer.ledger_id} takes no more entries")
        try:
            append, effects = leader.append(
                batch, self._services.clock.now_ms(), self._loop.time(), from_client=from_client
            )
        except SequenceError as error:
            self._log_refusal(batch, error)
            raise
        if effects:
            self._perform(effects)
        return append

    def _log_refusal(self, batch: Buffer, error: SequenceError) -> None:
        """It costs a producer its epoch, or its life."""
        if isinstance(error, InvalidTransactionState):
            return
        header = parse_header(batch)
        _LOG.warning(
            "producer.refused topic=%s partition=%d epoch=%d producer=%d producer_epoch=%d"
            " sequence=%d records=%d error=%s",
            self.topic.name, self.index, self.leader_epoch, header.producer_id,
            header.producer_epoch, header.base_sequence, header.record_count, error,
        )  # fmt: skip

    def on_high_watermark(self, above: Offset, call: Callable[[], None]) -> Callable[[], None]:
        """Call once the high watermark is greater than `above`, or leadership has ended.

        The call comes later, never from in here. Returns a function that cancels the wait.
        """
        if self._leader.state is State.ENDED or self.high_watermark > above:
            return self._loop.call_soon(call).cancel
        return partial(self._waits.cancel, self._waits.add(above, call))

    # --- changes of the log -------------------------------------------------------------

    async def roll(self) -> None:
        """Continue in a new ledger. Raises NotLeader, LeadershipLost, NotEnoughReplicas and
        Overloaded (the log goes on in the present one)."""
        await self._ask(Roll)

    async def delete_records(self, before: Offset) -> Offset:
        """Move the log start up to `before`, or to the high watermark; return the log start.

        Raises OffsetOutOfRange, NotLeader; LeadershipLost: the outcome is unknown.
        """
        self.check_leading()
        target = self.high_watermark if before == HIGH_WATERMARK else before
        if not 0 <= target <= self.high_watermark:
            raise await self.reader.out_of_range(target)
        await self._ask(partial(Trim, before=target))
        return self.log_start_offset

    async def maintain(self, now_ms: int) -> None:
        """Do what time alone makes due: roll, trim, forget producers.

        Raises NotLeader, LeadershipLost.
        """
        await self._ask(Maintain, Now(now_ms, self._loop.time()))

    async def _ask(self, change: Callable[[int], Change], now: Now | None = None) -> None:
        """Have a change made, to its end, even if the caller is cancelled. Raises its error."""
        ticket, done = self._asked.new()
        self._perform(self._leader.ask(change(ticket), now or self._now()))
        self.admission.look()  # a partition that closes lets nobody wait any longer
        error = await done
        if error is not None:
            raise error

    # --- the end ------------------------------------------------------------------------

    async def close(self, timeout_s: float) -> None:
        """Hand over in peace: confirm what was accepted, close the ledger.

        What cannot be confirmed within the timeout fails with an unknown outcome, and the next
        leader recovers the ledger.
        """
        if self.is_open:
            reason = "closing was cancelled"
            try:
                async with asyncio.timeout(timeout_s):
                    await self._ask(Close)
            except (LedgerError, MetadataError, BrokerError, TimeoutError) as error:
                reason = f"not closed in peace: {error!r}"
            finally:
                self.resign(reason)
        await self._steps.wait_idle()

    def resign(self, reason: str) -> None:
        """Stop leading at once. What is not confirmed fails with an unknown outcome."""
        self._perform(self._leader.end(reason))

    def _resign_for(self, reason: str) -> LeadershipLost:
        self.resign(reason)
        return LeadershipLost(f"{self.name}: {reason}")

    # --- inputs -------------------------------------------------------------------------

    def _on_added(self, _entry_id: EntryId, error: LedgerError | None) -> None:
        """The ledger settled its oldest entry."""
        if error is not None:
            self.resign(f"add failed: {error!r}")
        else:
            self._perform(self._leader.on_confirmed())

    def _on_refused(self, error: LedgerError) -> None:
        """The ledger takes no more entries."""
        self.resign(f"add refused: {error!r}")

    def _on_turn_over(self) -> None:
        self._perform(self._leader.on_turn_over())

    def _on_outcome(self, outcome: StepOutcome) -> None:
        self._perform(self._leader.on_outcome(outcome, self._now()))

    def _now(self) -> Now:
        return Now(self._services.clock.now_ms(), self._loop.time())

    # --- effects ------------------------------------------------------------------------

    def _perform(self, effects: Effects) -> None:
        """Carry effects out, in order."""
        queue = self._effects
        if self._is_performing or queue:
            queue.extend(effects)
        elif effects is PLAN:
            self._loop.call_soon(self._on_turn_over)
            return
        elif effects is SEND:
            self._sender.send()
            return
        if self._is_performing:
            return
        rest = iter(() if queue else effects)
        self._is_performing = True
        try:
            for effect in rest:
                self._carry_out(effect)
            while queue:
                self._carry_out(queue.popleft())
        except BaseException:
            queue.extendleft(reversed([*rest]))  # whoever comes next goes on with them
            raise
        finally:
            self._is_performing = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendEntries():
                self._sender.send()
            case EntryConfirmed():
                self._on_confirmed(effect.entry)
            case PlanSend():
                self._loop.call_soon(self._on_turn_over)
            case CreateLedger() | ChangeList() | UnfoldList():
                self._steps.start(effect)
            case CloseLedger() | DeleteLedgers() | DiscardLedger():
                self._steps.start(effect)
            case SwitchLedger(ledger_id):
                self._steps.switch(ledger_id)
            case BeginSegment(active):
                self.reader.on_segment_begun(self._steps.writer_of(active.ledger_id), active)
            case AdoptList(segments):
                self.reader.on_listed(segments)
            case RollListed() | RollSealed() | Trimmed() | RollUnanswered():
                self._on_changed(effect)
            case ChangeDone(ticket, error):
                self._on_change_done(ticket, error)
            case Ended():
                self._on_ended(effect)
            case _:
                assert_never(effect)

    def _on_confirmed(self, entry: LogEntry) -> None:
        """An entry is on its ack quorum; a snapshot has no appends."""
        metrics = self._services.metrics
        metrics.append_seconds.observe(metrics.now_s() - entry.sent_s)
        appends = entry.appends
        if appends:
            self.reader.on_confirmed(appends)
            for append in appends:
                append.complete()
            for call in self._waits.on_reached(entry.end_offset):
                call()
        self.admission.look()

    def _on_changed(self, effect: RollListed | RollUnanswered | RollSealed | Trimmed) -> None:
        """A change of the log has come so far."""
        log, metrics = (self.topic.name, self.index), self._services.metrics
        match effect:
            case RollListed(ledger_id):
                _LOG.info("roll.listed topic=%s partition=%d ledger=%d", *log, ledger_id)
            case RollUnanswered(ledger_id, error):
                _LOG.warning(
                    "roll.close_failed topic=%s partition=%d ledger=%d error=%r",
                    *log, ledger_id, error,
                )  # fmt: skip
            case RollSealed(ledger_id, facts):
                self._steps.on_sealed(ledger_id)
                self.reader.on_sealed(ledger_id)
                metrics.segments_rolled += 1
                _LOG.info(
                    "roll.sealed topic=%s partition=%d ledger=%d last_offset=%d bytes=%d",
                    *log, ledger_id, facts.last_offset, facts.size_bytes,
                )  # fmt: skip
            case Trimmed(ledger_ids, log_start):
                metrics.segments_trimmed += len(ledger_ids)
                self.reader.forget(ledger_ids)
                _LOG.info(
                    "trim.done topic=%s partition=%d log_start=%d ledgers=%s",
                    *log, log_start, ",".join(map(str, ledger_ids)),
                )  # fmt: skip

    def _on_change_done(self, ticket: int, error: QuireError | None) -> None:
        if isinstance(error, BrokerError):
            _LOG.warning(
                "change.failed topic=%s partition=%d error=%r", self.topic.name, self.index, error
            )
        self._asked.settle(ticket, error)

    def _on_ended(self, ended: Ended) -> None:
        _LOG.info(
            "partition.ended topic=%s partition=%d epoch=%d reason=%s",
            self.topic.name, self.index, self.leader_epoch, ended.reason,
        )  # fmt: skip
        self._steps.stop()
        self._steps.abandon()
        for append in ended.appends:
            append.complete(ended.error)
        self.reader.close()
        for ticket in ended.tickets:
            self._asked.settle(ticket, LeadershipLost(f"{self.name}: leadership ended"))
        for call in self._waits.drain():
            call()
        self.admission.look()
        if ended.is_lost:
            self._services.metrics.leaderships_lost += 1
            if self.on_ended is not None:
                self.on_ended()


class _Asked:
    """Who waits for which change."""

    __slots__ = ("_last", "_waiting")

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[int, asyncio.Future[QuireError | None]] = {}

    def new(self) -> tuple[int, asyncio.Future[QuireError | None]]:
        """Return a ticket, and what is set to the change's error, or None, when it is made."""
        self._last += 1
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = done
        return self._last, done

    def settle(self, ticket: int, error: QuireError | None) -> None:
        """Tell who waits, if anybody does still."""
        done = self._waiting.pop(ticket, None)
        if done is not None and not done.done():
            done.set_result(error)


def _leader_of(name: str, services: LogServices, opened: Opened, now: Now) -> PartitionLeader:
    """Return the leader that continues the log where the takeover found its end."""
    segments, limits = opened.segments, services.limits
    end = opened.log_end_offset
    log = LogState(
        name,
        segments.leader_epoch,
        limits,
        LogOffsets(segments.log_start_offset, end),
        opened.producers,
        ActiveSegment(opened.writer.ledger_id, end, now.ms, limits),
        SequenceGaps(now.s + limits.settling_ms / 1000),
    )
    return PartitionLeader(name, log, segments, opened.version, list_bytes_max=_LIST_BYTES_MAX)
