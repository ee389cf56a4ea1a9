"""What can be asked of the transactional ids of a coordinator partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.coordinator.core.coordinator_types import LogRecord
from broker.transactions.core.transaction_records import in_order, transaction_record
from broker.transactions.core.transaction_table import TransactionTable
from broker.transactions.core.transaction_types import (
    Client,
    TransactionMetadata,
    TransactionState,
)
from client.ids import Offset


class TransactionSummary(NamedTuple):
    """The transactional ids of one coordinator, counted."""

    state_counts: Mapping[TransactionState, int]
    oldest_start_ms: int | None
    """When the oldest open transaction began; None: none is open."""
    oldest_decision_ms: int | None
    """When the oldest was decided whose markers are not all written; None: there is none."""


class TransactionView:
    """Reads a transaction table; changes nothing.

    What is shown is durable: in the log of the coordinator or, that markers are written, in those
    of the partitions (COMPLETE-LATER).
    """

    def __init__(self, table: TransactionTable) -> None:
        self._table = table

    def ids(self) -> list[str]:
        """Return all ids."""
        return [one.transactional_id for one in self._table if one.stored is not None]

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        """Return an id, None if there is none.

        While markers are written, `partitions` are those that have none yet.
        """
        transaction = self._table.get(transactional_id)
        current = None if transaction is None else transaction.current
        if transaction is None or current is None or not transaction.is_prepared:
            return current
        return current._replace(partitions=in_order([*transaction.unmarked]))

    def client(self, transactional_id: str) -> Client | None:
        """Return who used an id last; None: nobody since this broker coordinates it."""
        transaction = self._table.get(transactional_id)
        return None if transaction is None else transaction.client

    def summary(self) -> TransactionSummary:
        """Count what is there, for metrics."""
        counts = dict.fromkeys(TransactionState, 0)
        oldest: dict[bool, int] = {}
        for transaction in self._table:
            stored = transaction.current
            if stored is None:
                continue
            counts[stored.state] += 1
            if stored.state is TransactionState.ONGOING or transaction.is_prepared:
                at_ms = stored.updated_ms if transaction.is_prepared else stored.start_ms
                is_decided = transaction.is_prepared
                oldest[is_decided] = min(at_ms, oldest.get(is_decided, at_ms))
        return TransactionSummary(counts, oldest.get(False), oldest.get(True))

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
