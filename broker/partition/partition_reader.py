"""Reads of a partition that this broker leads: records, timestamps, ends of epochs.

The newest confirmed batches come from memory (`tail_cache.py`), the rest from ledgers
(`log_reader.py`). Nothing at or above the high watermark is ever returned, and nothing at all
unless the session lease is valid (rule LEASE). The leader puts what was confirmed into memory, and
reports what was listed and dropped; reads change nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeVar

from broker.errors import LeadershipLost, LogReadFailed, NotLeader, OffsetOutOfRange
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.ledgers import Writer
from broker.partition.log_reader import LogReader
from broker.partition.log_services import LogServices
from broker.partition.segment_node import SegmentNode
from broker.partition.tail_cache import Fetched
from client.errors import MetadataError
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import SegmentList
from client.wire.kafka.batches.record_scan import OpenedRecords

T = TypeVar("T")

FIRST: Final = Offset(0)


class Offsets(Protocol):
    """The offsets of the partition as they are now."""

    @property
    def log_start(self) -> Offset:
        """First offset that may be read."""
        ...

    @property
    def last_stable(self) -> Offset:
        """End of what read_committed reads may return."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """Offset after the last confirmed record."""
        ...

    @property
    def log_end(self) -> Offset:
        """Offset after the last accepted record."""
        ...

    @property
    def newest_ms(self) -> int:
        """Largest timestamp of what is confirmed in the ledger that is being written; -1: none."""
        ...


class PartitionReader:
    """Reads one partition under one leader."""

    def __init__(
        self,
        services: LogServices,
        node: SegmentNode,
        segments: SegmentList,
        offsets: Offsets,
        check_leading: Callable[[], None],
        resign: Callable[[str], LeadershipLost],
    ) -> None:
        """`check_leading` raises NotLeader unless we may answer for the partition. `resign` ends
        the leadership, and returns the error to raise."""
        self._node = node
        self._segments = segments
        self._offsets = offsets
        self._check_leading = check_leading
        self._resign = resign
        self._limits = services.limits
        self.tail = services.cache.tail()
        """Gets what is confirmed, and may be read from then on."""
        self.log = LogReader(services, node.pages, node.folder)
        """Reads the ledgers of a segment list."""
        self._swaps = 0
        """How often segments were replaced by compacted ones."""

    # --- reports of the leader ----------------------------------------------------------

    def on_segment_begun(self, writer: Writer, active: ActiveSegment) -> None:
        """A segment begins: read it through the writer of its ledger."""
        self.log.add_own(writer, active)

    def on_listed(self, segments: SegmentList) -> None:
        """Use this list from now on."""
        self._segments = segments

    def on_sealed(self, ledger_id: LedgerId) -> None:
        """A ledger of this leader was closed."""
        self.log.on_sealed(ledger_id)

    def forget(self, ledger_ids: Iterable[LedgerId], compacted_below: Offset = FIRST) -> None:
        """These ledgers were removed from the list; everything below an offset was compacted."""
        self._swaps += compacted_below > FIRST
        self.tail.drop_below(compacted_below)
        self.log.forget(ledger_ids)

    def close(self) -> None:
        """The partition is no longer led here."""
        self.log.close()
        self.tail.clear()

    # --- reads --------------------------------------------------------------------------

    def read_cached(
        self, offset: Offset, size_max: int, *, at_least_one: bool, read_committed: bool
    ) -> Fetched | None:
        """Like `read`, without waiting; None: that takes I/O, or the offset is out of range."""
        self._check_leading()
        offsets = self._offsets
        limit = offsets.last_stable if read_committed else offsets.high_watermark
        if limit <= offset <= offsets.log_end:
            return Fetched([], offset, 0)
        if not offsets.log_start <= offset < limit:
            return None
        fetched = self.tail.read(offset, limit, size_max, at_least_one=at_least_one)
        if read_committed and fetched is not None:
            return self.log.with_aborted(self._segments, offset, fetched)
        return fetched

    def size_from(self, offset: Offset, size_max: int, *, read_committed: bool) -> int:
        """Return how many bytes there are to be read from an offset on; `size_max` if there are
        more, or if they are in ledgers only."""
        offsets = self._offsets
        limit = offsets.last_stable if read_committed else offsets.high_watermark
        if offset >= limit:
            return 0
        size = self.tail.size_from(offset, limit, size_max)
        return size_max if size is None else size

    async def read(
        self, offset: Offset, size_max: int, *, at_least_one: bool, read_committed: bool
    ) -> Fetched:
        """Return whole batches below the high watermark, from the batch that holds `offset`
        onwards; for `read_committed` below the last stable offset, with the aborted transactions in
        them.

        At most `size_max` bytes, except that `at_least_one` batch is returned whatever its size.
        Raises NotLeader, OffsetOutOfRange (after checking that we still lead), LogReadFailed,
        LogCorrupt.
        """
        cached = self.read_cached(
            offset, size_max, at_least_one=at_least_one, read_committed=read_committed
        )
        if cached is not None:
            return cached
        offsets = self._offsets
        if not offsets.log_start <= offset <= offsets.log_end:
            raise await self.out_of_range(offset)
        while True:
            listed, swaps = self._segments, self._swaps
            limit = offsets.last_stable if read_committed else offsets.high_watermark
            try:
                fetched = await self.log.read(
                    listed, offset, limit, size_max, at_least_one=at_least_one
                )
                if not read_committed:
                    return fetched
                if offset >= offsets.log_start:
                    fetched = await self.log.find_aborted(self._segments, offset, fetched)
            except LogReadFailed:
                if listed is self._segments:
                    raise
                swaps = -1  # LIST-ANEW
            if offset < offsets.log_start:  # trimmed meanwhile
                raise await self.out_of_range(offset)
            # SAME-VERSION: a compacted segment lists only aborted transactions that it still holds.
            if swaps == self._swaps:
                return fetched

    async def out_of_range(self, offset: Offset) -> OffsetOutOfRange:
        """Return the error, once the metadata store has confirmed that we still lead.

        A client that gets it resets its position, so a zombie must never return it. Raises
        NotLeader if we no longer lead, or do not know.
        """
        try:
            found, _ = await self._node.read_back()
        except MetadataError as error:
            raise NotLeader(f"cannot check whether this broker still leads: {error!r}") from error
        if found.leader_epoch != self._segments.leader_epoch:
            raise self._resign("another broker has taken the partition over")
        self._check_leading()
        return OffsetOutOfRange(offset, self._offsets.log_start, self._offsets.log_end)

    async def offset_for_timestamp(
        self,
        timestamp_ms: int,
        opened: OpenedRecords | None = None,
        *,
        read_committed: bool = False,
    ) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record that is not older; None: there is none.

        `opened`: limit that all searches of one request share. `read_committed`: only records below
        the last stable offset count. Raises NotLeader, LogReadFailed, LogCorrupt.
        """
        self._check_leading()
        offsets = self._offsets
        opened = opened or OpenedRecords(self._limits.opened_records_max)
        return await self._by_list(
            lambda listed: self.log.find_timestamp(
                listed,
                timestamp_ms,
                offsets.log_start,
                offsets.last_stable if read_committed else offsets.high_watermark,
                opened,
            )
        )

    async def offset_of_max_timestamp(
        self, opened: OpenedRecords | None = None, *, read_committed: bool = False
    ) -> tuple[Offset, int] | None:
        """Return (offset, timestamp) of the first record with the largest timestamp, if any.

        What is not confirmed, or was trimmed, counts for nothing. `read_committed`: None if that
        record is not below the last stable offset, as in Kafka. Raises as `offset_for_timestamp`.
        """
        self._check_leading()
        offsets = self._offsets
        opened = opened or OpenedRecords(self._limits.opened_records_max)
        found = await self._by_list(
            lambda listed: self.log.find_newest(
                listed,
                offsets.newest_ms,
                offsets.log_start,
                offsets.high_watermark,
                opened,
            )
        )
        if found is not None and read_committed and found[0] >= offsets.last_stable:
            return None
        return found

    async def epoch_end(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the largest known leader epoch up to `epoch`, and its end; (-1, -1): unknown.

        Raises NotLeader, LogReadFailed, LogCorrupt.
        """
        self._check_leading()
        high_watermark = self._offsets.high_watermark

        async def find(listed: SegmentList) -> tuple[LeaderEpoch, Offset]:
            try:
                return await self._node.pages.epoch_end(listed, epoch, high_watermark)
            except MetadataError as error:
                raise LogReadFailed(f"cannot read a page of the segment list: {error!r}") from error

        found = await self._by_list(find)
        self._check_leading()
        return found

    async def _by_list(self, find: Callable[[SegmentList], Awaitable[T]]) -> T:
        """Run a search over the list, again if that has changed meanwhile: a page or ledger of the
        old list may have been deleted (LIST-ANEW). Raises what `find` raises."""
        while True:
            listed = self._segments
            try:
                return await find(listed)
            except LogReadFailed:
                if listed is self._segments:
                    raise
