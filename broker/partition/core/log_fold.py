"""The state that a leader derives from its log: producers, open transactions, share groups.

The state is a fold over the log in the order of acceptance: a leader folds what it accepts, a
takeover what it finds, with the same code. A producer with an open transaction is never forgotten.
When another one is forgotten, so is its coordinator epoch.
"""

from __future__ import annotations

from broker.partition.core.log_limits import LogLimits
from broker.partition.core.open_transactions import (
    OpenTransactions,
    SegmentTransactions,
)
from broker.partition.core.producer_state import ProducerState
from broker.partition.core.shares.share_states import ShareStates
from broker.partition.core.shares.share_updates import ShareUpdate
from client.errors import LogCorrupt
from client.ids import Offset
from client.log.snapshot import Snapshot
from client.wire.kafka.batches.control_batch import Marker
from client.wire.kafka.batches.records import BatchHeader


class LogFold:
    """Producers, their transactions and share groups, up to some offset of a partition's log."""

    __slots__ = ("has_transactions", "producers", "shares", "transactions")

    def __init__(self, limits: LogLimits) -> None:
        self.transactions = OpenTransactions(count_max=limits.open_transactions_max)
        self.producers = ProducerState(
            expiration_ms=limits.producer_expiration_ms,
            producer_count_max=limits.producer_count_max,
            pinned=self.transactions,
            on_forgotten=self.transactions.forget,
        )
        self.has_transactions = False
        """Whether the partition has seen transactions: if not, appends need no further checks."""
        self.shares: ShareStates | None = None
        """None: no share group has come yet, as in most partitions."""

    # --- in the order of the log --------------------------------------------------------

    def on_data(
        self,
        header: BatchHeader,
        base_offset: Offset,
        now_ms: int,
        timestamp_ms: int,
        segment: SegmentTransactions,
    ) -> None:
        """Data of a transaction was accepted, or found in the log, at `base_offset`."""
        self.has_transactions = True
        segment.is_transactional = True
        self.producers.accept(header, base_offset, now_ms, timestamp_ms)
        self.transactions.on_batch(header, base_offset, now_ms)

    def on_marker(
        self, marker: Marker, offset: Offset, now_ms: int, segment: SegmentTransactions
    ) -> None:
        """A marker was accepted, or found in the log, at `offset`."""
        self.has_transactions = True
        segment.is_transactional = True
        self.producers.on_marker(marker.producer_id, marker.producer_epoch, now_ms)
        aborted = self.transactions.on_marker(marker, offset)
        if aborted is not None:
            segment.on_aborted(aborted, self.transactions.first_open(Offset(offset + 1)))

    def on_share_update(self, update: ShareUpdate) -> None:
        """A change of a share group was found in the log."""
        self.own_shares().apply(update)

    def own_shares(self) -> ShareStates:
        """Return the share groups, none yet if nobody has asked before."""
        if self.shares is None:
            self.shares = ShareStates()
        return self.shares

    # --- snapshots ----------------------------------------------------------------------

    def encode(self, segment: SegmentTransactions) -> tuple[bytes, bool]:
        """Return the state as bytes, and whether it includes transactions.

        `ProducerState.encode`, followed by `OpenTransactions.encode` if there are transactions,
        here or in the segment, or share groups; then `ShareStates.encode` if there are such.
        """
        producers = self.producers.encode()
        if self.shares:
            return producers + self.transactions.encode() + self.shares.encode(), True
        is_told = self.transactions.has_state or segment.has_state
        return (producers + self.transactions.encode() if is_told else producers), is_told

    def restore(self, snapshot: Snapshot, segment: SegmentTransactions) -> None:
        """Restore the state from a snapshot of the segment's ledger. Raises LogCorrupt."""
        rest = self.producers.restore(snapshot.producers)
        if snapshot.transactions is not None:
            segment.restore(snapshot.transactions)
            rest = self.transactions.restore(rest)
            self.has_transactions = self.transactions.has_state
        if snapshot.has_shares:
            self.own_shares().restore(rest)
            return
        if rest:
            raise LogCorrupt(
                f"{len(rest)} bytes follow the state of {len(self.producers)} producers in a"
                " snapshot"
            )
