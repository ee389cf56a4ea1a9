"""The open transactions of a partition, and how far its log is decided.

The state is a fold over the log in the order of acceptance, as in `producer_state.py`: data of a
producer opens its transaction, and the producer's next marker closes it. A transaction is
*undecided* until its marker is confirmed, because a takeover may still lose the marker. The last
stable offset is the first offset of any undecided transaction, or else the high watermark.

    MARKER-ONCE        a marker closes an open transaction of its own epoch or an older one; for a
                       producer with an epoch for each transaction (TV2), only of an older epoch,
                       because the marker has the next one. A marker with nothing to close is
                       written if its producer epoch or coordinator epoch is new to the log.
                       Otherwise it is done.
    COORDINATOR-EPOCH  the log keeps the newest coordinator epoch of each producer, and the leader
                       refuses markers of older coordinators. So the first marker of a newer one is
                       written even if there is nothing to close: only the log tells the next
                       leader.
    STABLE             a transaction is undecided until its marker is confirmed, not accepted.
    PROVEN             "done" is derived from this log, which may be that of a replaced leader: the
                       caller answers only after the confirmation of an entry that was added later.

What is open belongs to the partition; what was aborted, to a ledger (`SegmentTransactions`). An
index lists the aborted transactions of a ledger (`client/log/aborted_transactions.py`): in blocks,
which are entries of the ledger, and in its snapshots those that are in no block yet. A block is
written when there are enough of them, so that snapshots stay small however many transactions abort.
The last entry of a ledger that its leader closed is a snapshot, which lists all of them. Those of a
ledger that was closed by recovery are listed in the first snapshot of the next ledger.

The model of these rules is `tests/model/Transactions.tla`. Source: KIP-98, KIP-890.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.errors import (
    InvalidTransactionState,
    NotEnoughReplicas,
    TransactionCoordinatorFenced,
)
from client.errors import LogCorrupt
from client.ids import EntryId, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import AbortedBlock, AbortedTransaction, LedgerAborted
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.snapshot import SnapshotTransactions
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import BatchHeader

UNKNOWN_EPOCH: Final = -1
"""Epoch of a producer, or of a coordinator, that is not in the log."""

_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qiqhq")
_CLOSED: Final = -1


class OpenTransaction(NamedTuple):
    """A transaction that has data and no marker."""

    first_offset: Offset
    producer_epoch: int
    started_ms: int
    """When its first batch was accepted."""


class MarkerVerdict(enum.Enum):
    """What to do with a marker."""

    CLOSE = "close"
    """Write it: it ends the open transaction."""
    WRITE = "write"
    """Write it, although nothing is open: its epochs are new to the log."""
    DONE = "done"
    """Write nothing; answer once leadership is proven."""


class OpenTransactions:
    """The transactions of one partition. `count_max` bounds memory and snapshots."""

    __slots__ = ("_closing", "_coordinators", "_count_max", "_open")

    _closing: _Closing | None
    """Transactions whose marker is not confirmed; None: there are none."""

    def __init__(self, *, count_max: int = 5_000) -> None:
        self._count_max = count_max
        self._reset()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._open

    def __iter__(self) -> Iterator[tuple[ProducerId, OpenTransaction]]:
        """Iterate over the open transactions, oldest first."""
        return iter(self._open.items())

    # --- batches ------------------------------------------------------------------------

    @property
    def has_state(self) -> bool:
        """Whether there is anything to store in a snapshot."""
        return bool(self._open or self._coordinators)

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether a coordinator must verify a batch before it is accepted (VERIFY).

        Raises InvalidTransactionState for a non-transactional batch of a producer with an open
        transaction;
        NotEnoughReplicas, which clients retry, while too many transactions are open here.
        """
        known = self._open.get(header.producer_id)
        if not header.is_transactional:
            if known is not None:
                raise InvalidTransactionState(
                    header.producer_id,
                    f"its transaction has been open since offset {known.first_offset}",
                )
            return False
        if known is not None:
            return known.producer_epoch != header.producer_epoch
        if len(self._open) >= self._count_max:
            raise NotEnoughReplicas(f"{len(self._open)} transactions are open in this partition")
        return True

    def on_batch(self, header: BatchHeader, base_offset: Offset, now_ms: int) -> None:
        """A transactional batch with data was accepted, or found in the log, at `base_offset`."""
        if header.producer_id in self._open:
            return
        self._open[header.producer_id] = OpenTransaction(base_offset, header.producer_epoch, now_ms)

    # --- markers ------------------------------------------------------------------------

    def judge(self, marker: Marker, producer_epoch: int, *, is_tv2: bool) -> MarkerVerdict:
        """Return what to do with a marker of a producer whose epoch in the log is `producer_epoch`.

        Raises TransactionCoordinatorFenced. Changes nothing.
        """
        known = self.coordinator_epoch(marker.producer_id)
        if marker.coordinator_epoch < known:
            raise TransactionCoordinatorFenced(
                marker.producer_id, f"coordinator epoch {marker.coordinator_epoch} after {known}"
            )
        if marker.producer_id in self._open:
            is_its_own = marker.producer_epoch == producer_epoch and not is_tv2
            closes = is_its_own or marker.producer_epoch > producer_epoch
            return MarkerVerdict.CLOSE if closes else MarkerVerdict.DONE
        is_new = marker.producer_epoch > producer_epoch or (
            marker.producer_epoch == producer_epoch and marker.coordinator_epoch > known
        )
        return MarkerVerdict.WRITE if is_new else MarkerVerdict.DONE

    def on_marker(self, marker: Marker, offset: Offset) -> AbortedTransaction | None:
        """A marker was accepted, or found in the log, at `offset`.

        Returns the aborted transaction if the marker aborts data.
        """
        self._coordinators[marker.producer_id] = marker.coordinator_epoch
        closed = self._open.pop(marker.producer_id, None)
        if closed is None:
            return None
        first = closed.first_offset
        if self._closing is None:
            self._closing = _Closing()
        self._closing.add(offset, first)
        if marker.is_commit:
            return None
        return AbortedTransaction(marker.producer_id, closed.first_offset, offset)

    def coordinator_epoch(self, producer_id: ProducerId) -> int:
        """Return a producer's newest coordinator epoch in the log, or UNKNOWN_EPOCH."""
        return self._coordinators.get(producer_id, UNKNOWN_EPOCH)

    def forget(self, producer_id: ProducerId) -> None:
        """The producer's state has expired; it has no open transaction."""
        assert producer_id not in self._open, producer_id
        self._coordinators.pop(producer_id, None)

    # --- what is stable -----------------------------------------------------------------

    def on_confirmed(self, high_watermark: Offset) -> None:
        """Everything below `high_watermark` is confirmed, including markers."""
        if self._closing is not None and not self._closing.on_confirmed(high_watermark):
            self._closing = None

    def last_stable(self, log_start: Offset, high_watermark: Offset) -> Offset:
        """Return the offset below which everything is decided, between the two."""
        if not self._open and not self._closing:
            return high_watermark
        stable = self.first_open(high_watermark)
        if self._closing is not None:
            stable = min(stable, self._closing.first)
        return max(log_start, min(high_watermark, stable))

    def first_open(self, log_end: Offset) -> Offset:
        """Return the last stable offset once the whole log is confirmed: `log_end` if no
        transaction is open."""
        return next(iter(self._open.values())).first_offset if self._open else log_end

    # --- snapshots ----------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the state as bytes.

        Count i32, then per producer: id i64, coordinator epoch i32, first offset of the open
        transaction i64 (-1: none), its producer epoch i16, its start in ms i64. A snapshot comes
        after the markers that it covers: for its reader all of them are confirmed.
        """
        parts = [b""]
        for producer_id, known in self._open.items():
            parts.append(_PRODUCER.pack(producer_id, self.coordinator_epoch(producer_id), *known))
        parts.extend(
            _PRODUCER.pack(producer_id, epoch, _CLOSED, 0, 0)
            for producer_id, epoch in self._coordinators.items()
            if producer_id not in self._open
        )
        parts[0] = _COUNT.pack(len(parts) - 1)
        return b"".join(parts)

    def restore(self, data: memoryview) -> memoryview:
        """Replace the state by an encoded one; return the bytes after it. Raises LogCorrupt."""
        self._reset()
        try:
            (count,) = _COUNT.unpack_from(data)
            at, newest = _COUNT.size, _CLOSED
            for _ in range(count):
                producer_id, coordinator, first, epoch, started_ms = _PRODUCER.unpack_from(data, at)
                at += _PRODUCER.size
                if coordinator != UNKNOWN_EPOCH:
                    self._coordinators[producer_id] = coordinator
                if first != _CLOSED:
                    if first <= newest:
                        raise LogCorrupt(
                            f"open transactions at {first} and before are not in order"
                        )
                    self._open[producer_id] = OpenTransaction(first, epoch, started_ms)
                    newest = first
        except struct.error as error:
            raise LogCorrupt(f"transaction snapshot of {len(data)} bytes is truncated") from error
        return data[at:]

    def _reset(self) -> None:
        self._open: dict[ProducerId, OpenTransaction] = {}
        self._coordinators: dict[ProducerId, int] = {}
        """Epoch of the coordinator that wrote the producer's last marker."""
        self._closing = None


NOT_ENDED: Final = Offset(-1)


class SegmentTransactions:
    """Transactions of one ledger, while it is written or replayed.

    `block_entries`: aborted ones per block. A leader also keeps the blocks of its active ledger in
    memory, 24 bytes for each aborted transaction.
    """

    __slots__ = ("_block_entries", "aborted", "blocks", "earlier", "is_transactional", "stable_at")

    def __init__(self, block_entries: int) -> None:
        self._block_entries = block_entries
        self.is_transactional = False
        """Whether the ledger holds data of transactions, or markers."""
        self.aborted = LedgerAborted()
        self.blocks: dict[EntryId, AbortedBlock] = {}
        """All blocks of the ledger, if it is being written."""
        self.earlier: Mapping[LedgerId, LedgerAborted] = {}
        """For the first snapshot: indexes of earlier ledgers that were closed by recovery."""
        self.stable_at = NOT_ENDED
        """Everything before it is decided by the log up to the ledger's end."""

    @property
    def has_state(self) -> bool:
        """Whether there is anything to store in a snapshot."""
        return self.is_transactional or bool(self.earlier)

    def on_aborted(self, entry: AbortedTransaction, stable_offset: Offset) -> None:
        """An ABORT marker was added. `stable_offset`: first offset of the oldest transaction still
        open after it, otherwise the offset after the marker."""
        self.aborted.add(entry, stable_offset)

    @property
    def is_block_due(self) -> bool:
        """Whether to write a block now."""
        return len(self.aborted.rest) >= self._block_entries

    def on_block_written(self, entry_id: EntryId) -> None:
        """The block of everything that was in no block yet is entry `entry_id` of the ledger."""
        self.blocks[entry_id] = self.aborted.on_block_written(entry_id)

    def within(self, fetch_offset: Offset, end_offset: Offset) -> list[AbortedTransaction]:
        """Return those with data or their marker in [fetch_offset, end_offset)."""
        return self.aborted.within(fetch_offset, end_offset, self.blocks)

    # --- snapshots and facts ------------------------------------------------------------

    def snapshot(self, *, is_first: bool) -> SnapshotTransactions:
        """Return the content of a snapshot; the ledger's first one includes earlier ledgers."""
        earlier = self.earlier if is_first else {}
        return SnapshotTransactions(self.is_transactional, self.aborted, earlier)

    def restore(self, known: SnapshotTransactions) -> None:
        """Restore the state from a snapshot of the ledger; blocks before it stay unread."""
        self.is_transactional = known.is_transactional
        self.aborted = known.aborted

    def facts(self, end_offset: Offset, place: SnapshotPlace) -> TransactionFacts | None:
        """Return the ledger's facts for the list; the ledger ends at `end_offset`.

        `place`: the snapshot that lists the aborted transactions.
        """
        assert self.stable_at != NOT_ENDED
        stable = min(self.stable_at, end_offset)
        if not self.is_transactional and stable == end_offset:
            return None
        count = len(self.aborted)
        return TransactionFacts(self.is_transactional, count, place if count else None, stable)


class _Closing:
    """The transactions of one partition whose markers are accepted and not confirmed.

    Made when there is one, since two empty deques take 1.5 KB in each partition.
    """

    __slots__ = ("_firsts", "_markers")

    def __init__(self) -> None:
        self._markers: deque[tuple[Offset, Offset]] = deque()
        """(offset of the marker, first offset of the transaction)."""
        self._firsts: deque[Offset] = deque()
        """The first offsets of `_markers` without those that a later one is smaller than: the first
        item is the minimum. A transaction leaves it when its marker is confirmed, however long an
        older one stays open."""

    @property
    def first(self) -> Offset:
        """The smallest first offset."""
        return self._firsts[0]

    def add(self, marker: Offset, first: Offset) -> None:
        """A marker was accepted."""
        self._markers.append((marker, first))
        firsts = self._firsts
        while firsts and firsts[-1] > first:
            firsts.pop()
        firsts.append(first)

    def on_confirmed(self, high_watermark: Offset) -> bool:
        """Everything below is confirmed; return whether any are left."""
        markers, firsts = self._markers, self._firsts
        while markers and markers[0][0] < high_watermark:
            if markers.popleft()[1] == firsts[0]:
                firsts.popleft()
        return bool(markers)
