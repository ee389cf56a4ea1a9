"""The transactional ids of one coordinator partition.

Everything that a shard keeps is here; `transaction_requests` and `transaction_shard` change it,
`transaction_view` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.coordinator.core.coordinator_types import Reply
from broker.coordinator.core.wakes import Wakes
from broker.errors import BrokerError
from broker.transactions.core.connection_order import ConnectionOrder
from broker.transactions.core.transaction import is_allowed
from broker.transactions.core.transaction_changes import TransactionChanges
from broker.transactions.core.transaction_entry import Change, Parked, Transaction
from broker.transactions.core.transaction_types import (
    PREPARED,
    ShardEffect,
    ShardEffects,
    TransactionMetadata,
    TransactionState,
)


class TransactionTable:
    """Transactions by id."""

    def __init__(self, order: ConnectionOrder) -> None:
        self.order: Final = order
        self.wakes: Final = Wakes()
        self.changes: Final = TransactionChanges()
        self.parked_count = 0
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, Transaction] = {}

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    def __len__(self) -> int:
        return len(self._transactions)

    def get(self, transactional_id: str) -> Transaction | None:
        """Return a transaction, None if there is none."""
        return self._transactions.get(transactional_id)

    def get_or_create(self, transactional_id: str) -> Transaction:
        """Return a transaction, a new one if there was none."""
        found = self._transactions.get(transactional_id)
        if found is None:
            found = self._transactions[transactional_id] = Transaction(transactional_id)
        return found

    def open_transactions(self) -> list[Transaction]:
        """Return the ids whose transaction is open, as stored."""
        return list(self._open.values())

    def replay(self, transactional_id: str, value: TransactionMetadata) -> None:
        """Take over a durable value."""
        transaction = self.get_or_create(transactional_id)
        transaction.stored = value
        if value.state is TransactionState.ONGOING:
            self._open[transactional_id] = transaction
        else:
            self._open.pop(transactional_id, None)

    def remove(self, transactional_id: str) -> None:
        """The id is gone."""
        if self._transactions.pop(transactional_id, None) is not None:
            self._open.pop(transactional_id, None)
            self.wakes.forget(transactional_id)
            self.order.forget(transactional_id)

    def note(self, transaction: Transaction) -> None:
        """After a change: forget an id that never was stored, make sure others are woken."""
        if transaction.stored is None and transaction.change is None:
            self.remove(transaction.transactional_id)
        else:
            self.wakes.note(transaction.transactional_id, transaction.next_deadline())

    def give_up(self, error: BrokerError) -> ShardEffects:
        """Answer everybody who waits with an error, and forget what is under way."""
        effects: list[ShardEffect] = []
        for transaction in self:
            change = transaction.change
            if isinstance(change, Change):
                effects += (Reply(reply.token, error) for reply in change.replies)
            elif change is not None and change.token is not None:
                effects.append(Reply(change.token, error))
            effects += (Reply(parked.token, error) for parked in transaction.parked)
            self.unpark(transaction)
            transaction.change = None
            self.note(transaction)
        effects += (Reply(token, error) for token in self.changes.forget())
        return effects

    # --- values -------------------------------------------------------------------------------

    def write(
        self, transaction: Transaction, value: TransactionMetadata, replies: Sequence[Reply]
    ) -> ShardEffects:
        """Append the next value of an id, behind Complete* if that is not in the log yet."""
        done = transaction.done
        values = (value,) if done is None or done == value else (done, value)
        transaction.done = transaction.complete_s = None
        return self.changes.write(transaction, values, replies)

    # --- parked requests ----------------------------------------------------------------------

    def park(self, transaction: Transaction, parked: Parked) -> None:
        """Let a request wait."""
        transaction.parked.append(parked)
        self.parked_count += 1
        self.note(transaction)

    def unpark(self, transaction: Transaction, now_s: float | None = None) -> list[Parked]:
        """Take the requests that wait; with `now_s` those that waited for too long."""
        found = []
        while transaction.parked and (now_s is None or transaction.parked[0].until_s <= now_s):
            found.append(transaction.parked.popleft())
        self.parked_count -= len(found)
        return found

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        for transaction in self._transactions.values():
            stored, change = transaction.stored, transaction.change
            assert stored is not None or change is not None, "an id that nobody needs"
            assert not transaction.unmarked or transaction.is_prepared
            done = transaction.done
            assert (done is None) == (transaction.complete_s is None)
            if done is not None:
                assert stored is not None and stored.state in PREPARED, "nothing was decided"
                assert is_allowed(stored.state, done.state)
                assert not transaction.unmarked and not isinstance(change, Change)
            if isinstance(change, Change):
                before = stored
                for value in change.values:
                    state = None if before is None else before.state
                    assert value == before or is_allowed(state, value.state), (before, value)
                    before = value
        assert self._open == {
            name: one
            for name, one in self._transactions.items()
            if one.stored is not None and one.stored.state is TransactionState.ONGOING
        }
        assert self.parked_count == sum(len(one.parked) for one in self)
        self.wakes.check({one.transactional_id: one.next_deadline() for one in self})
