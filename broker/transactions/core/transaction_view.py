"""What can be asked of the transactional ids of a coordinator partition."""

from __future__ import annotations

from broker.coordinator.core.coordinator_types import LogRecord
from broker.transactions.core.transaction_records import in_order, transaction_record
from broker.transactions.core.transaction_table import TransactionTable
from broker.transactions.core.transaction_types import TransactionMetadata, TransactionState
from client.ids import Offset


class TransactionView:
    """Reads a transaction table; changes nothing. Only what is durable is shown."""

    def __init__(self, table: TransactionTable) -> None:
        self._table = table

    def ids(self) -> list[str]:
        """Return all ids."""
        return [one.transactional_id for one in self._table if one.stored is not None]

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        """Return an id as stored, None if there is none.

        While markers are written, `partitions` are those that have none yet.
        """
        transaction = self._table.get(transactional_id)
        if transaction is None or transaction.stored is None:
            return None
        if not transaction.is_prepared:
            return transaction.stored
        return transaction.stored._replace(partitions=in_order([*transaction.unmarked]))

    def state_counts(self) -> dict[TransactionState, int]:
        """Count ids by state, for metrics."""
        counts = dict.fromkeys(TransactionState, 0)
        for transaction in self._table:
            if transaction.stored is not None:
                counts[transaction.stored.state] += 1
        return counts

    def snapshot(self, transactional_id: str) -> list[LogRecord]:
        """Return the durable state of an id as records, nothing if a newer one is in flight."""
        transaction = self._table.get(transactional_id)
        if transaction is None or transaction.stored is None or transaction.is_writing:
            return []
        return [transaction_record(transactional_id, transaction.stored)]

    def kept_from(self, start: Offset) -> Offset:
        """Return `start`: copies are all that is needed."""
        return start

    def check(self) -> None:
        """Assert the invariants of all ids and of the deadline order."""
        self._table.check()
