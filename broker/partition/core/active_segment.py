"""The segment being written: its contents so far, its sparse indexes, and when it should end.

Decides when to write a snapshot and when to roll. It counts what was accepted; its facts are final
once everything accepted was confirmed.

With its indexes most searches (`client/log/offset_search.py`) read nothing, or one short run of
entries:

    offset index      (first offset of an entry) -> entry
    timestamp index   (largest timestamp before an entry) -> entry

Producers' timestamps are not monotonic, hence the running maximum: the first batch that reaches a
timestamp cannot be before the last position whose running maximum is still below it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from broker.partition.core.log_limits import UNLIMITED, LogLimits, SegmentLimits
from broker.partition.core.open_transactions import SegmentTransactions
from client.ids import EntryId, LedgerId, Offset
from client.log.segment import SnapshotPlace
from client.log.segments import SegmentFacts
from client.log.snapshot import IndexPoint

_SNAPSHOT_SHARE: Final = 8
"""Large snapshots are written less often: at most about an eighth of the log is snapshots."""

_LISTED_COUNT_MAX: Final = 4096
"""Positions listed in a snapshot; beyond that, every other one is removed."""

POINT_COUNT_MAX: Final = 16_384
"""Positions of a sparse index; beyond that, every other one is removed."""


class SnapshotPoints:
    """The snapshots in the segment: their positions, and when the next one is due.

    Computed from the segment's size and entry count at each snapshot, so that batches cost nothing
    here.
    """

    __slots__ = (
        "_bytes_before",
        "_entries_before",
        "_last_bytes",
        "_limits",
        "_listed_bytes",
        "points",
    )

    def __init__(self, limits: LogLimits) -> None:
        self.points: list[IndexPoint] = []
        """Positions that the next snapshot lists."""
        self._limits = limits
        self._bytes_before = 0
        """Size of the segment including the last snapshot."""
        self._entries_before = 0
        """Entries of the segment including the last snapshot."""
        self._last_bytes = 0
        """Size of the last snapshot."""
        self._listed_bytes = 0
        """Size of the segment before the last snapshot that is listed."""

    def is_due(self, segment_bytes: int, entry_count: int) -> bool:
        """Whether enough was written since the last snapshot, given the segment's size now."""
        written = segment_bytes - self._bytes_before
        limits = self._limits
        return written >= _SNAPSHOT_SHARE * self._last_bytes and (
            entry_count - self._entries_before >= limits.snapshot_interval_entries
            or written >= limits.snapshot_interval_bytes
        )

    def has_batches_after(self, segment_bytes: int) -> bool:
        """Whether batches follow the last snapshot."""
        return segment_bytes > self._bytes_before

    def add(self, point: IndexPoint, segment_bytes: int, size: int) -> None:
        """The next entry is a snapshot of `size` bytes; the segment has `segment_bytes` before."""
        self._list(point, segment_bytes)
        self._bytes_before = segment_bytes + size
        self._entries_before = point.entry_id + 1
        self._last_bytes = size

    def _list(self, point: IndexPoint, segment_bytes: int) -> None:
        """List the snapshot, unless the last listed one is near: every later snapshot carries all
        of them, and would become large."""
        points = self.points
        if points and segment_bytes - self._listed_bytes < self._limits.snapshot_interval_bytes:
            return
        self._listed_bytes = segment_bytes
        points.append(point)
        if len(points) > _LISTED_COUNT_MAX:
            del points[1::2]


class ActiveSegment:
    """Counts and sparse indexes of one segment."""

    __slots__ = (
        "_in_entry",
        "_index_interval_bytes",
        "_next_index_bytes",
        "_snapshots",
        "base_offset",
        "created_ms",
        "end_offset",
        "entry_count",
        "ledger_id",
        "max_timestamp_ms",
        "offsets",
        "size_bytes",
        "timestamps",
        "transactions",
    )

    def __init__(
        self, ledger_id: LedgerId, base_offset: Offset, created_ms: int, limits: LogLimits
    ) -> None:
        self.ledger_id = ledger_id
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.created_ms = created_ms
        self.entry_count = 0
        self.size_bytes = 0
        self.max_timestamp_ms = -1
        self.offsets = SparseIndex()
        self.timestamps = SparseIndex()
        self.transactions = SegmentTransactions(limits.aborted_block_entries)
        self._snapshots = SnapshotPoints(limits)
        self._in_entry = False
        """Whether batches of the next entry were counted."""
        self._index_interval_bytes = limits.index_interval_bytes
        self._next_index_bytes = 0
        """Size of the segment from which on the next entry is indexed."""

    def on_batch(self, offset: Offset, end: Offset, size: int, max_timestamp_ms: int) -> None:
        """The next entry holds a batch of `size` bytes for the offsets [offset, end).

        All batches until `on_entry` belong to the same entry.
        """
        if not self._in_entry:
            self._in_entry = True
            if self.size_bytes >= self._next_index_bytes:
                self._next_index_bytes = self.size_bytes + self._index_interval_bytes
                entry_id = EntryId(self.entry_count)
                self.offsets.add(offset, entry_id)
                self.timestamps.add(self.max_timestamp_ms, entry_id)
        self.end_offset = end
        self.size_bytes += size
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms

    def stand_for(self, size_bytes: int) -> None:
        """Count what was recovered and is not listed as sealed: there is no ledger of ours."""
        self.size_bytes = size_bytes

    def on_entry(self) -> None:
        """The entry with the batches counted since the last entry is complete."""
        assert self._in_entry, "an entry holds batches"
        self._in_entry = False
        self.entry_count += 1

    def on_snapshot(self, size: int) -> None:
        """The next entry is a snapshot of `size` bytes, at the segment's present end."""
        assert not self._in_entry, "earlier batches are in entries before the snapshot"
        point = IndexPoint(self.end_offset, EntryId(self.entry_count), self.max_timestamp_ms)
        self._snapshots.add(point, self.size_bytes, size)
        self.entry_count += 1
        self.size_bytes += size

    def on_block(self, size: int) -> None:
        """The next entry is a block of aborted transactions, of `size` bytes."""
        assert not self._in_entry, "earlier batches are in entries before the block"
        self.transactions.on_block_written(EntryId(self.entry_count))
        self.entry_count += 1
        self.size_bytes += size

    def on_shares(self, size: int) -> None:
        """The next entry has changes of share groups, of `size` bytes."""
        assert not self._in_entry, "earlier batches are in entries before these"
        self.entry_count += 1
        self.size_bytes += size

    @property
    def snapshot_due(self) -> bool:
        """Whether enough was written since the last snapshot."""
        return self._snapshots.is_due(self.size_bytes, self.entry_count)

    @property
    def has_batches_after_snapshot(self) -> bool:
        """Whether batches, or changes of share groups, follow the last snapshot."""
        return self._snapshots.has_batches_after(self.size_bytes)

    @property
    def points(self) -> Sequence[IndexPoint]:
        """The positions that the next snapshot lists."""
        return self._snapshots.points

    def roll_due(self, limits: SegmentLimits, now_ms: int) -> bool:
        """Whether the segment is full, or old, or would be expired if it were sealed.

        A segment without records never ends, so an idle topic does not grow.
        """
        if self.end_offset == self.base_offset:
            return False
        if self.size_bytes >= limits.segment_bytes:
            return True
        if now_ms - self.created_ms >= limits.segment_ms:
            return True
        if limits.retention_ms == UNLIMITED:
            return False
        newest = max(self.max_timestamp_ms, self.created_ms)
        return now_ms - newest > limits.retention_ms

    def facts(self) -> SegmentFacts:
        """Return the segment's facts for the list. Everything accepted must be confirmed, and the
        last entry must be a snapshot."""
        last = SnapshotPlace(self.ledger_id, EntryId(self.entry_count - 1))
        return SegmentFacts(
            Offset(self.end_offset - 1),
            self.size_bytes,
            self.max_timestamp_ms,
            self.transactions.facts(self.end_offset, last),
        )


class SparseIndex:
    """Sorted keys with their entries, thinned out when there are too many of them.

    Keys never decrease with the entry id. Memory: 16 bytes per position.
    """

    __slots__ = ("_entries", "_keys", "_point_count_max")

    def __init__(self, point_count_max: int = POINT_COUNT_MAX) -> None:
        self._point_count_max = point_count_max
        self._keys = array("q")
        self._entries = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, entry_id: EntryId) -> None:
        """Add a position. Of several entries with the same key the last one is kept."""
        at = bisect_right(self._keys, key)
        if at and self._keys[at - 1] == key:
            self._entries[at - 1] = max(self._entries[at - 1], entry_id)
            return
        if at == len(self._keys):
            self._keys.append(key)
            self._entries.append(entry_id)
        else:
            self._keys.insert(at, key)
            self._entries.insert(at, entry_id)
        if len(self._keys) > self._point_count_max:
            del self._keys[1::2]
            del self._entries[1::2]

    def at(self, key: int) -> EntryId | None:
        """Return the last known entry with exactly this key."""
        at = bisect_right(self._keys, key)
        return EntryId(self._entries[at - 1]) if at and self._keys[at - 1] == key else None

    def at_or_before(self, key: int) -> EntryId | None:
        """Return the last known entry whose key is at most `key`."""
        at = bisect_right(self._keys, key)
        return EntryId(self._entries[at - 1]) if at else None

    def after(self, key: int) -> EntryId | None:
        """Return the first known entry whose key is above `key`."""
        at = bisect_right(self._keys, key)
        return EntryId(self._entries[at]) if at < len(self._entries) else None
