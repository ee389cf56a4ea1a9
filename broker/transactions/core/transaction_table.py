"""The transactional ids of one coordinator partition: everything that a shard keeps.

`transaction_shard` changes it; `TransactionView` is what others may ask. What an id can have beside
its stored value:

    change      one append under way, or a producer id that is being allocated for one: everything
                else has to wait for it
    unmarked    partitions whose markers are not confirmed, while the stored state is Prepare*
    done        Complete*, once there are none, until it is in the log (COMPLETE-LATER)
    parked      requests to add partitions, which wait for the end of the last transaction

Each change ends exactly once: settled, or given up with the whole shard. A proof is an append that
concerns no id: once it is durable, this broker was the coordinator until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import (
    Append,
    Reply,
    Snapshot,
    Ticket,
    Token,
    Undecided,
)
from broker.coordinator.core.wakes import Wakes
from broker.errors import BrokerError
from broker.transactions.core.transaction import (
    PREPARED,
    AddPartitions,
    Client,
    Decision,
    ShardEffect,
    ShardEffects,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    in_order,
    is_allowed,
)
from broker.transactions.core.transaction_records import PROOF, transaction_record
from client.ids import Offset, ProducerId

Rule = Callable[[int, ProducerId | None], Decision]
"""What a request does, given the time in ms and perhaps a new producer id."""


class Allocation(NamedTuple):
    """A new producer id is being allocated; the rule is asked again when it is there."""

    transaction: Transaction
    rule: Rule
    token: Token | None


class Change(NamedTuple):
    """Values on their way into the log, and who is answered then."""

    values: tuple[TransactionMetadata, ...]
    """One after the other; empty: the id is removed."""
    replies: tuple[Reply, ...]


class Parked(NamedTuple):
    """A request to add partitions that waits."""

    request: AddPartitions
    token: Token
    until_s: float


class Transaction:
    """One transactional id."""

    __slots__ = (
        "change",
        "client",
        "complete_s",
        "done",
        "parked",
        "stored",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id: Final = transactional_id
        self.stored: TransactionMetadata | None = None
        """The last durable value."""
        self.change: Change | Allocation | None = None
        self.unmarked: set[TransactionPartition] = set()
        self.parked: deque[Parked] = deque()
        self.client: Client | None = None
        """Who used it last, as far as this coordinator has seen."""
        self.done: TransactionMetadata | None = None
        """What follows from `stored`, a decision with all markers confirmed. Not in the log."""
        self.complete_s: float | None = None
        """When `done` is appended at the latest, unless a change is under way then."""

    @property
    def current(self) -> TransactionMetadata | None:
        """What requests are held against: what is stored, or follows from it and the markers."""
        return self.stored if self.done is None else self.done

    @property
    def is_prepared(self) -> bool:
        """Whether its markers are under way."""
        current = self.current
        return current is not None and current.state in PREPARED

    @property
    def is_writing(self) -> bool:
        """Whether a newer value is on its way into the log."""
        return isinstance(self.change, Change)

    def is_due(self, now_s: float) -> bool:
        """Say whether Complete* is to be appended."""
        return self.complete_s is not None and self.complete_s <= now_s and self.change is None

    def next_deadline(self) -> float | None:
        """Return when something has to be done, None if nothing has."""
        deadlines = [self.parked[0].until_s] if self.parked else []
        if self.complete_s is not None and self.change is None:
            deadlines.append(self.complete_s)
        return min(deadlines, default=None)


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

    def snapshot(self, transactional_id: str, undecided: Undecided | None = None) -> Snapshot:
        """Return the durable state of an id, nothing if a newer one is in flight."""
        transaction = self._table.get(transactional_id)
        if transaction is None or transaction.stored is None or transaction.is_writing:
            return Snapshot([])
        return Snapshot([transaction_record(transactional_id, transaction.stored)])

    def kept_from(self, start: Offset) -> Offset:
        """Return `start`: copies are all that is needed."""
        return start

    def check(self) -> None:
        """Assert the invariants of all ids and of the deadline order."""
        self._table.check()
