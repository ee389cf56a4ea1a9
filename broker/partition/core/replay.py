"""Replays the end of a closed ledger: finds the end of the log and the state of its producers.

The replay reads entries backwards from the end, in growing runs, until it finds a snapshot, and
then folds the entries after it forwards. The first entry of every ledger is a snapshot, so one
ledger is always enough. Nothing is skipped: an entry that does not continue the previous one means
that the log is corrupt, and the replay fails. Changes of share groups are folded in their order
among the batches.

A record that its writer never saw acknowledged, but that recovery found, counts like any other: the
fold is over what the ledger holds. So does a marker, which is decoded for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.partition.core.log_fold import LogFold
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.open_transactions import SegmentTransactions
from broker.partition.core.shares.share_updates import ShareUpdate, decode_updates
from client.errors import LogCorrupt, RemoteProtocolError
from client.ids import NO_ENTRY, EntryId, Offset
from client.log.aborted_transactions import ABORTED_TYPE
from client.log.entry_format import (
    SHARE_TYPE,
    batch_headers,
    first_offset,
    is_internal,
    open_internal,
)
from client.log.snapshot import IndexPoint, Snapshot, open_snapshot
from client.wire.kafka.batches.control_batch import Marker, read_marker
from client.wire.kafka.batches.records import BatchHeader, Buffer

_FIRST_RUN_ENTRIES: Final = 1
"""A ledger that was closed gracefully ends with a snapshot."""

_RUN_GROWTH: Final = 8
_RUN_ENTRIES_MAX: Final = 256


class LedgerTail(NamedTuple):
    """The result of a replay."""

    base_offset: Offset
    end_offset: Offset
    max_timestamp_ms: int
    size_bytes: int
    points: tuple[IndexPoint, ...]
    """Snapshots of this ledger, including the last one: positions for a sparse index."""
    fold: LogFold
    """Of the log up to `end_offset`."""
    transactions: SegmentTransactions
    """Of this ledger."""
    last_snapshot: EntryId = NO_ENTRY
    """The ledger's last entry if that is a snapshot: it lists all aborted transactions of the
    ledger."""


_Followed = tuple[BatchHeader, Marker | None] | EntryId | list[ShareUpdate]
"""What follows a snapshot: a batch, decoded if it is a marker; a block of aborted transactions; or
changes of share groups."""


class LedgerReplay:
    """Replays one closed ledger of `size_bytes` whose last entry is `last_entry` (at least 0)."""

    def __init__(
        self, last_entry: EntryId, size_bytes: int, limits: LogLimits, now_ms: int
    ) -> None:
        assert last_entry >= 0
        self._last_entry = last_entry
        self._size_bytes = size_bytes
        self._limits = limits
        self._now_ms = now_ms
        self._next = last_entry
        self._run_entries = _FIRST_RUN_ENTRIES
        self._after: list[_Followed] = []
        """What follows the snapshot, newest first."""
        self._snapshot: Snapshot | None = None
        self._snapshot_entry = EntryId(-1)
        self._base_offset: Offset | None = None

    def wanted(self) -> tuple[EntryId, EntryId] | None:
        """Return the next entries to read, as an inclusive range; None: nothing more is needed."""
        if self._snapshot is None:
            return EntryId(max(0, self._next - self._run_entries + 1)), self._next
        if self._base_offset is None:
            return EntryId(0), EntryId(0)
        return None

    def on_entries(self, first: EntryId, payloads: Sequence[Buffer]) -> None:
        """Process the entries that `wanted` returned. Raises LogCorrupt."""
        if first == 0:
            self._base_offset = first_offset(payloads[0])
        if self._snapshot is not None:
            return
        for index in range(len(payloads) - 1, -1, -1):
            payload = payloads[index]
            if not is_internal(payload):
                self._after.extend(_followed(payload))
                continue
            internal = open_internal(payload)
            if internal.type == ABORTED_TYPE:
                self._after.append(EntryId(first + index))
            elif internal.type == SHARE_TYPE:
                self._after.append(decode_updates(internal.body))
            else:
                self._snapshot = open_snapshot(payload)
                self._snapshot_entry = EntryId(first + index)
                return
        if first == 0:
            raise LogCorrupt("the ledger does not begin with a snapshot")
        self._next = EntryId(first - 1)
        self._run_entries = min(_RUN_ENTRIES_MAX, self._run_entries * _RUN_GROWTH)

    def finish(self) -> LedgerTail:
        """Fold the batches after the snapshot onto its state. Raises LogCorrupt."""
        snapshot = self._snapshot
        assert snapshot is not None
        assert self._base_offset is not None
        fold = LogFold(self._limits)
        segment = SegmentTransactions(self._limits.aborted_block_entries)
        fold.restore(snapshot, segment)
        end = snapshot.log_end_offset
        newest = snapshot.max_timestamp_ms
        for followed in reversed(self._after):
            if isinstance(followed, list):
                for update in followed:
                    fold.on_share_update(update)
                continue
            if not isinstance(followed, tuple):
                _fold_in_block(followed, segment)
                continue
            header, marker = followed
            if header.base_offset != end:
                raise LogCorrupt(f"batch at offset {header.base_offset} follows offset {end}")
            if marker is not None:
                fold.on_marker(marker, end, self._now_ms, segment)
            elif header.producer_id >= 0:
                timestamp_ms = header.max_timestamp if header.has_log_append_time else -1
                if header.is_transactional:
                    fold.on_data(header, end, self._now_ms, timestamp_ms, segment)
                else:
                    fold.producers.accept(header, end, self._now_ms, timestamp_ms)
            newest = max(newest, header.max_timestamp)
            end = header.next_offset
        fold.transactions.on_confirmed(end)
        segment.stable_at = fold.transactions.first_open(end)
        here = IndexPoint(snapshot.log_end_offset, self._snapshot_entry, snapshot.max_timestamp_ms)
        is_last = self._snapshot_entry == self._last_entry
        return LedgerTail(
            self._base_offset,
            end,
            newest,
            self._size_bytes,
            (*snapshot.points, here),
            fold,
            segment,
            self._snapshot_entry if is_last else NO_ENTRY,
        )


def _followed(payload: Buffer) -> list[_Followed]:
    """Return the batches of an entry, last one first. Raises LogCorrupt."""
    view = memoryview(payload)
    found: list[_Followed] = []
    for at, header in batch_headers(payload):
        marker = None
        if header.is_control:
            try:
                marker = read_marker(view[at : at + header.size])
            except RemoteProtocolError as error:
                raise LogCorrupt(f"marker at offset {header.base_offset}: {error}") from error
        found.append((header, marker))
    found.reverse()
    return found


def _fold_in_block(entry_id: EntryId, segment: SegmentTransactions) -> None:
    if not len(segment.aborted.rest):
        raise LogCorrupt(
            f"entry {entry_id} is a block of aborted transactions, but none precede it"
        )
    segment.on_block_written(entry_id)
