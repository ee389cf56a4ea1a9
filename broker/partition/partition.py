"""One partition that this broker leads.

This is the shell around `core/leader.py`, which makes the decisions; futures, metrics and logs are
here. Other objects are responsible for changes of the log (`changes`), reads (`reader`), room for
appends (`admission`), the replication of the active ledger (`replication`), and size and usage
(`usage`). A partition is opened by `opening.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    BrokerError,
    InvalidTransactionState,
    LeadershipLost,
    NotLeader,
    SequenceError,
)
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import Append, LogEntry
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import (
    Close,
    Effect,
    Ended,
    Now,
    PlanSend,
    SendEntries,
    State,
    StepOutcome,
)
from broker.partition.core.log_state import LogState
from broker.partition.core.offsets import LogOffsets
from broker.partition.core.sequence_gaps import SequenceGaps
from broker.partition.core.transactions.held_appends import HeldAppend
from broker.partition.core.transactions.verification import ProducerTransaction
from broker.partition.core.watermark_waits import ReadableWaits
from broker.partition.leading.admission import Admission
from broker.partition.leading.effect_runner import EffectRunner
from broker.partition.leading.entry_sender import EntrySender
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.leading.log_changes import HIGH_WATERMARK, LogChanges
from broker.partition.leading.partition_transactions import PartitionTransactions
from broker.partition.log_services import LogServices
from broker.partition.opening import Opened
from broker.partition.partition_reader import PartitionReader
from broker.partition.replication import Replication
from broker.partition.tail_cache import Fetched
from broker.partition.usage import LogUsage
from client.errors import LedgerError, MetadataError
from client.ids import EntryId, LeaderEpoch, Offset
from client.metadata.store import NODE_BYTES_MAX
from client.wire.kafka.batches.records import Buffer, parse_header

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
        self._leader = _leader_of(self.name, services, opened, now)
        steps = LeaderSteps(services, topic, index, opened.writer, self._on_outcome)
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
            self._carry_out, self._sender.send, self._leader.log.on_turn_over
        )
        self.reader = PartitionReader(
            services,
            steps.node,
            opened.segments,
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
        self.admission = Admission(self._leader, services.clock)
        self.replication = Replication(steps, lambda: self.is_open)
        self.usage = LogUsage(self._leader)
        self.configure(topic)
        self.reader.on_segment_begun(opened.writer, self._leader.log.active)
        self._runner.run(self._leader.start())

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
        are_keys_checked: bool = False,
        transaction: ProducerTransaction | None = None,
    ) -> Append:
        """Check a batch, assign its offsets and enqueue it; its bytes must not change afterwards.

        Returns at once; see `Append`. Returns the original append for a duplicate, or a completed
        one; for a batch of a `transaction` that is not open here yet, a `HeldAppend`, which gets
        its offsets later. Raises NotLeader, Overloaded, NotEnoughReplicas, the InvalidRecord and
        SequenceError families; nothing was applied then. Callers that can wait use
        `admission.has_room` and `admission.key_check` first.
        """
        if transaction is not None and not self.transactions.are_served:
            transaction = None
        leader = self._leader
        if self._sender.steps.writer.is_ended and leader.state is State.OPEN:
            self.resign(f"ledger {leader.log.active.ledger_id} accepts no more entries")
        end = leader.log.offsets.log_end
        try:
            append, effects = leader.append(
                batch,
                self._services.clock.now_ms(),
                self._runner.now_s(),
                from_client=from_client,
                are_keys_checked=are_keys_checked,
                transaction=transaction,
            )
        except SequenceError as error:
            self._log_refusal(batch, error)
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
        else:
            self._runner.run(self._leader.on_confirmed())

    def _on_refused(self, error: LedgerError) -> None:
        """The ledger accepts no more entries."""
        self.resign(f"add refused: {error!r}")

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

    def _on_confirmed(self, entry: LogEntry) -> None:
        """An entry is on its ack quorum; a snapshot has no appends."""
        metrics = self._services.metrics
        metrics.append_seconds.observe(metrics.now_s() - entry.sent_s)
        appends = entry.appends
        if appends:
            self.reader.on_confirmed(appends)
            for append in appends:
                append.complete()
            waits = self._waits
            for call in waits.confirmed.on_reached(entry.end_offset):
                call()
            if waits.stable:
                for call in waits.stable.on_reached(self.last_stable_offset):
                    call()
        self.transactions.on_entry_confirmed()
        self.admission.look()

    def _on_ended(self, ended: Ended) -> None:
        _LOG.info(
            "partition.ended topic=%s partition=%d epoch=%d reason=%s",
            self.topic.name, self.index, self.leader_epoch, ended.reason,
        )  # fmt: skip
        self.changes.stop()
        self._sender.stop()
        for append in ended.appends:
            append.complete(ended.error)
        self.transactions.stop(ended.error)
        self.reader.close()
        self.changes.settle_all(ended.tickets)
        for call in self._waits.drain():
            call()
        self.admission.look()
        if ended.is_lost:
            self._services.metrics.leaderships_lost += 1
            if self.on_ended is not None:
                self.on_ended()


def _leader_of(name: str, services: LogServices, opened: Opened, now: Now) -> PartitionLeader:
    """Return a leader that continues the log at the end that the takeover found."""
    segments, limits = opened.segments, services.limits
    end = opened.log_end_offset
    active = ActiveSegment(opened.writer.ledger_id, end, now.ms, limits)
    active.transactions.earlier = opened.earlier
    log = LogState(
        name,
        segments.leader_epoch,
        limits,
        LogOffsets(segments.log_start_offset, end, opened.fold.transactions),
        opened.fold,
        active,
        SequenceGaps(now.s + limits.settling_ms / 1000),
    )
    return PartitionLeader(name, log, segments, opened.version, list_bytes_max=_LIST_BYTES_MAX)
