"""The appends and allocations under way for the transactional ids of a coordinator partition.

An id has one at a time. Each ends exactly once: settled, or given up with the whole shard. A proof
is an append that concerns no id: once it is durable, this broker was the coordinator until then.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.core.coordinator_types import Append, Reply, Ticket, Token
from broker.transactions.core.transaction_entry import Allocation, Change, Rule, Transaction
from broker.transactions.core.transaction_records import PROOF, transaction_record
from broker.transactions.core.transaction_types import ShardEffects, TransactionMetadata


class TransactionChanges:
    """What is under way, by ticket."""

    def __init__(self) -> None:
        self._changes: dict[Ticket, tuple[Transaction, ...]] = {}
        self._proofs: dict[Ticket, Reply] = {}
        self._allocations: dict[Ticket, Allocation] = {}
        self._last_ticket = 0

    def write(
        self,
        transaction: Transaction,
        values: Sequence[TransactionMetadata],
        replies: Sequence[Reply],
    ) -> ShardEffects:
        """Append values of one id, as one batch."""
        assert values
        change = Change(tuple(values), tuple(replies))
        records = tuple(transaction_record(transaction.transactional_id, one) for one in values)
        ticket = self._begin(change, (transaction,))
        return (Append(ticket, records),)

    def write_tombstones(self, transactions: Sequence[Transaction]) -> ShardEffects:
        """Append the removal of ids, as one batch."""
        records = tuple(transaction_record(one.transactional_id, None) for one in transactions)
        ticket = self._begin(Change((), ()), tuple(transactions))
        return (Append(ticket, records),)

    def prove(self, reply: Reply) -> ShardEffects:
        """Append what means nothing, and answer only then."""
        ticket = self._new_ticket()
        self._proofs[ticket] = reply
        return (Append(ticket, (PROOF,)),)

    def settle(self, ticket: Ticket) -> tuple[Change, tuple[Transaction, ...]]:
        """An append is durable, or certainly not in the log. Raises KeyError for unknown ones."""
        proof = self._proofs.pop(ticket, None)
        if proof is not None:
            return Change((), (proof,)), ()
        transactions = self._changes.pop(ticket)
        change = transactions[0].change
        assert isinstance(change, Change)
        for transaction in transactions:
            assert transaction.change is change
            transaction.change = None
        return change, transactions

    def allocate(self, transaction: Transaction, rule: Rule, token: Token | None) -> Ticket:
        """Remember what a new producer id is allocated for."""
        assert transaction.change is None, "one change at a time"
        ticket = self._new_ticket()
        self._allocations[ticket] = Allocation(transaction, rule, token)
        transaction.change = self._allocations[ticket]
        return ticket

    def pop_allocation(self, ticket: Ticket) -> Allocation:
        """An allocation is over. Raises KeyError for unknown ones."""
        allocation = self._allocations.pop(ticket)
        assert allocation.transaction.change is allocation
        allocation.transaction.change = None
        return allocation

    def forget(self) -> list[Token]:
        """Nothing that is under way will end here; return who waits for a proof."""
        waiting = [reply.token for reply in self._proofs.values()]
        self._proofs.clear()
        self._changes.clear()
        self._allocations.clear()
        return waiting

    def _begin(self, change: Change, transactions: tuple[Transaction, ...]) -> Ticket:
        ticket = self._new_ticket()
        for transaction in transactions:
            assert transaction.change is None, "one change at a time"
            transaction.change = change
        self._changes[ticket] = transactions
        return ticket

    def _new_ticket(self) -> Ticket:
        self._last_ticket += 1
        return Ticket(self._last_ticket)
