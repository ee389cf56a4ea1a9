"""One partition that this broker leads.

This file is the only home of a led partition's public face: who may append and read, and what
the four offsets are. The append path is `write_path.py`, reads from ledgers are `log_reader.py`,
changes of the segment list `segment_changes.py`, the way here `opening.py`.

    OPEN      appends and reads
    CLOSING   a graceful end: what was accepted is confirmed, new appends are refused
    ENDED     closed, or resigned: an add failed, somebody else changed the segment list, or the
              metadata session ended. What was not confirmed then has an unknown outcome.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from broker.core.append_queue import Append
from broker.core.batch_checks import BatchLimits, check_batch
from broker.core.log_limits import UNLIMITED, SegmentLimits
from broker.core.producer_state import AcceptedBatch
from broker.core.sequence_gaps import SequenceGaps, is_gap
from broker.core.topology import TopicInfo
from broker.core.watermark_waits import WatermarkWaits
from broker.errors import (
    BrokerError,
    InvalidTransactionState,
    LeadershipLost,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
    SequenceError,
)
from broker.log_services import LogServices
from broker.opening import Opened
from broker.segment_changes import SegmentChanges
from broker.tail_cache import Fetched
from broker.write_path import WritePath
from client.errors import LedgerError, MetadataError
from client.ids import LeaderEpoch, LedgerId, Offset
from client.ledger.core.schedule import schedule_of
from client.ledger.core.sizing import fitting
from client.wire.kafka.records import BatchHeader, Buffer

__all__ = ["HIGH_WATERMARK", "Append", "Fetched", "Partition", "State"]

_LOG = logging.getLogger(__name__)

HIGH_WATERMARK: Final = Offset(-1)
"""In `delete_records`: everything confirmed so far."""


class State(enum.Enum):
    """Where the leadership stands."""

    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


class Partition:
    """Appends to and reads from one led partition."""

    def __init__(self, services: LogServices, topic: TopicInfo, index: int, opened: Opened) -> None:
        """Begin to lead; the first entry of the ledger, a snapshot, is sent at once."""
        self.topic = topic
        self.index = index
        self.name = f"{topic.name}-{index}"
        self.leader_epoch: LeaderEpoch = opened.segments.leader_epoch
        self.on_ended: Callable[[], None] | None = None
        """Called once if leadership ends for another reason than `close`."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._state = State.OPEN
        self._waits = WatermarkWaits()
        self._gaps = SequenceGaps(self._loop.time() + services.limits.settling_ms / 1000)
        self._tail = services.cache.tail()
        self._write = WritePath(
            services, opened, on_confirmed=self._on_confirmed, on_failed=self._on_failed
        )
        self._offsets = self._write.offsets
        self._changes = SegmentChanges(services, topic, index, opened, self._write, self.resign)
        self.configure(topic)
        try:
            self._write.write_snapshot()
        except LedgerError as error:
            self.resign(f"first add refused: {error!r}")

    @property
    def is_open(self) -> bool:
        """Whether appends are accepted."""
        return self._state is State.OPEN

    @property
    def log_start_offset(self) -> Offset:
        """First offset that may be read."""
        return self._offsets.log_start

    @property
    def high_watermark(self) -> Offset:
        """Offset after the last confirmed record."""
        return self._offsets.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Bound of read_committed reads."""
        return self._offsets.last_stable

    @property
    def log_end_offset(self) -> Offset:
        """Offset after the last accepted record."""
        return self._offsets.log_end

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self._write.in_flight_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole log, each counted once."""
        return self._changes.sealed_bytes + self._write.active.size_bytes

    @property
    def is_under_replicated(self) -> bool:
        """Whether new records get fewer copies than the topic's replication factor."""
        writer = self._write.writer
        return bool(writer.suspended) or writer.metadata.write_quorum < self.topic.write_quorum

    def would_shed(self, bookie_count: int) -> bool:
        """Whether the active ledger has a member that is gone, and a new one would do without."""
        is_possible = self.is_open and bookie_count >= self.topic.ack_quorum
        return is_possible and bool(self._write.writer.lost_members)

    def would_grow(self, bookie_count: int) -> bool:
        """Whether a new ledger would have more copies, or be striped over more bookies."""
        have = self._write.writer.metadata
        topic = self.topic
        wanted = schedule_of(topic.ensemble_size, topic.write_quorum, topic.ack_quorum)
        next_one = fitting(wanted, bookie_count, striping=False, write_quorum_min=topic.ack_quorum)
        return self.is_open and (
            next_one.write_quorum > have.write_quorum or next_one.ensemble_size > have.ensemble_size
        )

    def would_mend(self, marked: Collection[LedgerId]) -> bool:
        """Whether the active ledger is among the marked ones, and all its members are there."""
        writer = self._write.writer
        is_whole = self.is_open and not writer.suspended and not writer.lost_members
        return is_whole and writer.ledger_id in marked

    def configure(self, topic: TopicInfo) -> None:
        """Follow the topic's configuration as it is now."""
        config = topic.config
        self.topic = topic
        self._log_append_time = config.log_append_time
        self._batch_limits = BatchLimits(
            batch_bytes_max=config.max_message_bytes,
            entry_bytes_max=self._services.limits.entry_bytes_max,
            segment_bytes=config.segment_bytes,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            log_append_time=config.log_append_time,
            keys_required=config.compacts,
        )
        self._segment_limits = SegmentLimits(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            retention_ms=config.retention_ms if config.deletes else UNLIMITED,
            retention_bytes=config.retention_bytes if config.deletes else UNLIMITED,
        )

    def check_leading(self) -> None:
        """Raise NotLeader unless we may speak for the partition: open, and our session alive."""
        self._check_open()
        if not self._services.lease.is_valid(self._loop.time()):
            raise NotLeader(f"{self.name}: the metadata session is in doubt")

    # --- append -------------------------------------------------------------------------

    def append(self, batch: Buffer, *, from_client: bool = True) -> Append:
        """Check a batch, give it offsets and enqueue it; its bytes must not change afterwards.

        Returns at once; see `Append`. A duplicate returns the append that it repeats, or a
        completed one. Raises NotLeader, Overloaded, the InvalidRecord and SequenceError
        families; nothing was applied then.
        """
        self._check_open()
        view = memoryview(batch)
        now_ms = self._services.clock.now_ms()
        header = check_batch(view, self._batch_limits, now_ms, from_client=from_client)
        write = self._write
        if header.producer_id >= 0:
            if from_client and header.is_transactional:
                raise InvalidTransactionState(header.producer_id, "no transaction is open")
            known = self._find_duplicate(header)
            if known is not None:
                return write.repeat(known)
        if write.in_flight_bytes + header.size > self._services.limits.in_flight_bytes_max:
            if header.producer_id >= 0:
                self._gaps.on_no_room(header)
            raise Overloaded(f"{self.name} has {write.in_flight_bytes} unconfirmed bytes")
        try:
            append = write.append(view, header, now_ms, stamped=self._log_append_time)
        except LedgerError as error:
            self.resign(f"add refused: {error!r}")
            raise NotLeader(f"{self.name} lost its ledger") from error
        if write.active.size_bytes >= self._segment_limits.segment_bytes:
            self._changes.roll_soon()
        return append

    def _find_duplicate(self, header: BatchHeader) -> AcceptedBatch | None:
        """Return the batch that this one repeats; None: accept it.

        Raises SequenceError; NotLeader or Overloaded if what is missing before it was refused.
        """
        producers = self._write.producers
        is_news = header.base_sequence != 0 and header.producer_id not in producers
        if is_news and self._gaps.is_settling(self._loop.time()):
            raise self._not_yet(header)
        try:
            return producers.find_duplicate(header)
        except OutOfOrderSequence as error:
            ahead = is_gap(error.first, error.expected)
            if ahead and self._gaps.is_settling(self._loop.time()):
                raise self._not_yet(header) from error
            if self._gaps.lacked_room(header, error.expected):
                raise Overloaded(f"{self.name} had no room for the batch before this") from error
            self._log_refusal(header, error)
            raise
        except SequenceError as error:
            self._log_refusal(header, error)
            raise

    def _not_yet(self, header: BatchHeader) -> NotLeader:
        return NotLeader(
            f"{self.name} is led since a moment ago: send what precedes sequence"
            f" {header.base_sequence} of producer {header.producer_id} again, then this"
        )

    def _log_refusal(self, header: BatchHeader, error: SequenceError) -> None:
        """It costs a producer its epoch, or its life."""
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
        if self._state is State.ENDED or self._offsets.high_watermark > above:
            return self._loop.call_soon(call).cancel
        return partial(self._waits.cancel, self._waits.add(above, call))

    # --- read ---------------------------------------------------------------------------

    def read_cached(
        self, offset: Offset, size_max: int, *, at_least_one: bool, read_committed: bool
    ) -> Fetched | None:
        """Like `read`, without waiting; None: it takes I/O, or the offset is out of range."""
        self.check_leading()
        offsets = self._offsets
        limit = offsets.last_stable if read_committed else offsets.high_watermark
        if limit <= offset <= offsets.log_end:
            return Fetched([], offset, 0)
        if not offsets.log_start <= offset < limit:
            return None
        return self._tail.read(offset, limit, size_max, at_least_one=at_least_one)

    async def read(
        self, offset: Offset, size_max: int, *, at_least_one: bool, read_committed: bool
    ) -> Fetched:
        """Return whole batches from the one that holds `offset` on, below the high watermark.

        At most `size_max` bytes, except that `at_least_one` batch comes whatever its size.
        Raises NotLeader, OffsetOutOfRange (confirmed), LogReadFailed, LogCorrupt.
        """
        cached = self.read_cached(
            offset, size_max, at_least_one=at_least_one, read_committed=read_committed
        )
        if cached is not None:
            return cached
        if not self._offsets.log_start <= offset <= self._offsets.log_end:
            raise await self.out_of_range(offset)
        limit = self._offsets.last_stable if read_committed else self._offsets.high_watermark
        return await self._changes.reader.read(offset, limit, size_max, at_least_one=at_least_one)

    async def out_of_range(self, offset: Offset) -> OffsetOutOfRange:
        """Return the error, once the metadata store has confirmed that we still lead.

        A client that gets it starts over somewhere else, so a zombie must never say it. Raises
        NotLeader if we do not lead, or cannot know.
        """
        await self._changes.confirm()
        self.check_leading()
        return OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record that is not older; None: there is none.

        Raises NotLeader, LogReadFailed, LogCorrupt.
        """
        self.check_leading()
        return await self._changes.reader.find_timestamp(
            timestamp_ms, self.log_start_offset, self.high_watermark, self._write.active
        )

    async def offset_of_max_timestamp(self) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record with the largest timestamp, if any."""
        self.check_leading()
        newest = max(self._changes.max_timestamp_ms, self._write.active.max_timestamp_ms)
        return await self.offset_for_timestamp(newest) if newest >= 0 else None

    def epoch_end(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the largest known leader epoch up to `epoch` and its end; (-1, -1): unknown.

        Raises NotLeader.
        """
        self.check_leading()
        return self._changes.segments.epoch_end(epoch, self.high_watermark)

    # --- changes of the log -------------------------------------------------------------

    async def roll(self) -> None:
        """Continue in a new ledger. Raises NotLeader, LeadershipLost, NotEnoughReplicas."""
        await self._changes.roll()

    async def delete_records(self, before: Offset) -> Offset:
        """Move the log start up to `before`, or to the high watermark; return the log start.

        Raises OffsetOutOfRange, NotLeader; LeadershipLost: the outcome is unknown.
        """
        self.check_leading()
        target = self.high_watermark if before == HIGH_WATERMARK else before
        if not 0 <= target <= self.high_watermark:
            raise await self.out_of_range(target)
        await self._changes.trim(target)
        return self.log_start_offset

    async def maintain(self, now_ms: int) -> None:
        """Do what time alone makes due: roll, trim, forget producers.

        Raises NotLeader, LeadershipLost.
        """
        self._write.producers.expire(now_ms)
        if self._write.active.roll_due(self._segment_limits, now_ms):
            self._changes.roll_soon()
        await self._changes.trim_expired(self._segment_limits, now_ms)

    # --- the end ------------------------------------------------------------------------

    async def close(self, timeout_s: float) -> None:
        """Hand over in peace: confirm what was accepted, close the ledger.

        What cannot be confirmed within the timeout fails with an unknown outcome, and the next
        leader recovers the ledger.
        """
        if self._state is State.OPEN:
            self._state = State.CLOSING
            reason = "closing was cancelled"
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changes.close()
                reason = "closed"
            except (LedgerError, MetadataError, BrokerError, TimeoutError) as error:
                reason = f"not closed in peace: {error!r}"
            finally:
                self._end(reason)
        await self._changes.wait_ended()

    def resign(self, reason: str) -> None:
        """Stop leading at once. What is not confirmed fails with an unknown outcome."""
        if self._state is State.ENDED:
            return
        closing = self._state is State.CLOSING
        self._end(reason)
        if not closing:
            self._services.metrics.leaderships_lost += 1
            if self.on_ended is not None:
                self.on_ended()

    def _end(self, reason: str) -> None:
        if self._state is State.ENDED:
            return
        self._state = State.ENDED
        _LOG.info(
            "partition.ended topic=%s partition=%d epoch=%d reason=%s",
            self.topic.name, self.index, self.leader_epoch, reason,
        )  # fmt: skip
        self._changes.end()
        self._write.end(LeadershipLost(f"{self.name}: {reason}"))
        self._tail.clear()
        for call in self._waits.drain():
            call()

    def _check_open(self) -> None:
        if self._state is not State.OPEN:
            raise NotLeader(f"{self.name} is {self._state.value}")

    def _on_confirmed(self, appends: Sequence[Append]) -> None:
        """One entry is on its ack quorum."""
        for append in appends:
            self._tail.add(append.base_offset, append.end_offset, append.buffers, append.size)
        for append in appends:
            append.complete()
        for call in self._waits.on_reached(appends[-1].end_offset):
            call()

    def _on_failed(self, error: LedgerError) -> None:
        self.resign(f"add failed: {error!r}")
