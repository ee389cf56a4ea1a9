"""Takes the requests for the transactional ids of one coordinator partition.

Each is checked against the order of connections, then against the change under way: an id has one
at a time, and meanwhile everything else is busy. That comes before the epochs are compared, for
while a decision is not durable nobody knows which epoch will be right.

A request to add partitions that finds its id between two transactions is *parked* instead, until
Complete* is durable or about to be written; then the next transaction begins in the same batch.

    AHEAD   An epoch after the stored one was given by another coordinator, which this one has
            not heard of: it coordinates the id no longer, and must not call the newest producer
            fenced. (PROVEN would keep it from that, too, with a write that must fail.)
    PROVEN  What ends a producer for good is not said on the word of a coordinator that may have
            been taken over: that an id is unknown or has another producer, or that there is
            nothing to end. The answer waits until the log has confirmed a record that was appended
            after the question; if it does not, the client looks for the coordinator again.

Source: KAFKA-18575 (AK#18467, AK#18730) on the order of the checks.
"""

from __future__ import annotations

from typing import Final

from broker.coordinator.core.coordinator_types import Now, Reply, Ticket, Token
from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NoOpenTransaction,
    NotCoordinator,
    ProducerFenced,
    TransactionalIdNotFound,
)
from broker.transactions.core.transaction import (
    Answer,
    Decision,
    NeedsProducerId,
    Write,
    add_partitions,
    end_transaction,
    fence,
    holds,
    init_producer_id,
    successor,
    verify_partitions,
)
from broker.transactions.core.transaction_entry import Change, Parked, Rule, Transaction
from broker.transactions.core.transaction_records import ID_BYTES_MAX
from broker.transactions.core.transaction_table import TransactionTable
from broker.transactions.core.transaction_types import (
    ABORTED,
    EPOCH_FENCED,
    FENCED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    SETTLED,
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    ProducerIdAndEpoch,
    ShardEffect,
    ShardEffects,
    TransactionConfig,
    TransactionEvent,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
)
from client.ids import ConnectionId, ProducerId

FINAL: Final = (InvalidProducerIdMapping, InvalidTransactionState, ProducerFenced)
"""Refusals that clients end with, which have to be proven."""


class TransactionRequests:
    """What clients and other brokers may ask of a transaction table."""

    def __init__(self, table: TransactionTable, config: TransactionConfig) -> None:
        self._table: Final = table
        self._config: Final = config

    def init_producer_id(self, request: InitProducerId, token: Token, now: Now) -> ShardEffects:
        """Begin an incarnation; the reply is ProducerIdAndEpoch.

        Raises RequestError, TransactionError, OldConnection, CoordinatorNotAvailable.
        """
        try:
            return self._init_producer_id(request, token, now)
        except FINAL as refusal:
            return self.prove(token, refusal)

    def _init_producer_id(self, request: InitProducerId, token: Token, now: Now) -> ShardEffects:
        _check_id(request.transactional_id)
        if (request.producer_id == NO_PRODUCER_ID) != (request.epoch == NO_EPOCH):
            raise InvalidRequest("producer id and epoch must be given together, or not at all")
        if not 0 < request.timeout_ms <= self._config.transaction_timeout_max_ms:
            raise InvalidTransactionTimeout(
                f"a transaction timeout of {request.timeout_ms} ms is out of range"
            )
        table = self._table
        transaction = table.get(request.transactional_id)
        expected = request.expected
        counts = expected is None or transaction is None or self._holds(transaction, expected)
        self._admit(request.transactional_id, request.connection, counts=counts)
        if transaction is None:
            if len(table) >= self._config.transactional_ids_max:
                table.order.forget(request.transactional_id)
                raise CoordinatorNotAvailable("too many transactional ids")
            transaction = table.get_or_create(request.transactional_id)
        transaction.client = request.client or transaction.client
        _check_idle(transaction)
        _check_not_ahead(transaction, expected)
        found = transaction
        return self.decide(
            found,
            lambda now_ms, new_id: init_producer_id(found.current, request, now_ms, new_id),
            token,
            now,
        )

    def add_partitions(self, request: AddPartitions, token: Token, now: Now) -> ShardEffects:
        """Add partitions to a transaction; the reply is None.

        Raises RequestError, TransactionError, OldConnection.
        """
        try:
            return self._add_partitions(request, token, now)
        except FINAL as refusal:
            return self.prove(token, refusal)

    def _add_partitions(self, request: AddPartitions, token: Token, now: Now) -> ShardEffects:
        transaction, stored = self._find(request)
        if self._is_between(transaction, stored, request):
            if self._table.parked_count >= self._config.parked_requests_max:
                raise ConcurrentTransactions("too many requests wait for the end of transactions")
            until_s = now.s + self._config.parked_ms_max / 1000
            self._table.park(transaction, Parked(request, token, until_s))
            return ()
        _check_idle(transaction)
        _check_not_ahead(transaction, request.producer)
        return self.decide(
            transaction,
            lambda now_ms, _: add_partitions(
                stored, request, now_ms, partitions_max=self._config.transaction_partitions_max
            ),
            token,
            now,
        )

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: tuple[TransactionPartition, ...],
    ) -> tuple[BrokerError | None, ...]:
        """Say for each partition whether a broker may accept data: None, or the error.

        What is not durable does not count, and does not matter. A refusal is to be proven before
        it is passed on. Raises RequestError, TransactionError.
        """
        _check_id(transactional_id)
        transaction = self._table.get(transactional_id)
        current = None if transaction is None else transaction.current
        if transaction is None or current is None:
            raise InvalidProducerIdMapping(f"{transactional_id!r} is not known")
        _check_not_ahead(transaction, producer)
        return verify_partitions(current, transactional_id, producer, partitions)

    def end_transaction(self, request: EndTransaction, token: Token, now: Now) -> ShardEffects:
        """Commit or abort a transaction; the reply is the ProducerIdAndEpoch to go on with.

        Raises RequestError, TransactionError, OldConnection.
        """
        try:
            transaction, stored = self._find(request)
            _check_idle(transaction)
            _check_not_ahead(transaction, request.producer)
            return self.decide(
                transaction,
                lambda now_ms, new_id: end_transaction(stored, request, now_ms, new_id),
                token,
                now,
            )
        except FINAL as refusal:
            return self.prove(token, refusal)

    def prove(self, token: Token, result: object) -> ShardEffects:
        """Answer with `result` once the log has shown that this broker coordinates still (PROVEN).

        If it does not, the answer is what the log says: NotCoordinator.
        """
        return self._table.changes.prove(Reply(token, result))

    def abort(self, transactional_id: str, token: Token, now: Now) -> ShardEffects:
        """Abort an open transaction by an operator's word and fence its producer, as if its time
        were over; the reply is the TransactionMetadata of the decision.

        Raises TransactionalIdNotFound, ConcurrentTransactions, NoOpenTransaction.
        """
        transaction = self._table.get(transactional_id)
        stored = None if transaction is None else transaction.current
        if transaction is None or stored is None:
            raise TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}")
        _check_idle(transaction)
        if stored.state is not TransactionState.ONGOING:
            raise NoOpenTransaction(f"{transactional_id!r} has no open transaction")
        event = TransactionEvent(ABORTED, transactional_id, stored.number, stored.producer)
        return [event, *self.decide(transaction, Fence(stored), token, now)]

    def on_producer_id(
        self, ticket: Ticket, outcome: ProducerId | BrokerError, now: Now
    ) -> ShardEffects:
        """Continue with a new producer id, or without one."""
        transaction, rule, token = self._table.changes.pop_allocation(ticket)
        if isinstance(outcome, BrokerError):
            self._table.note(transaction)
            return () if token is None else (Reply(token, outcome),)
        # Nothing has changed since the rule was asked first, so it raises as little as then.
        return self.decide(transaction, rule, token, now, outcome)

    def decide(
        self,
        transaction: Transaction,
        rule: Rule,
        token: Token | None,
        now: Now,
        new_id: ProducerId | None = None,
    ) -> ShardEffects:
        """Do what a rule says. Raises what it raises."""
        table = self._table
        try:
            decision = rule(now.ms, new_id)
        except BrokerError:
            table.note(transaction)
            raise
        if isinstance(decision, NeedsProducerId):
            return (AllocateProducerId(table.changes.allocate(transaction, rule, token)),)
        if isinstance(decision, Answer):
            table.note(transaction)
            return () if token is None else (Reply(token, decision.result),)
        assert isinstance(decision, Write)
        replies = () if token is None else (Reply(token, decision.result),)
        return [
            *_fencing(transaction, decision),
            *table.write(transaction, decision.value, replies),
        ]

    # --- parked requests ----------------------------------------------------------------------

    def take_parked(
        self, transaction: Transaction, value: TransactionMetadata, now: Now
    ) -> tuple[TransactionMetadata | None, list[Reply], list[Reply]]:
        """Carry out the requests that wait for `value`, which is durable or about to be.

        Return (what to store after it, if anything; who is answered once that is durable; who is
        answered at once).
        """
        last = value
        later: list[Reply] = []
        at_once: list[Reply] = []
        for request, token, _ in self._table.unpark(transaction):
            try:
                if request.connection is not None:
                    self._admit(request.transactional_id, request.connection, counts=True)
                decision = add_partitions(
                    last, request, now.ms, partitions_max=self._config.transaction_partitions_max
                )
            except BrokerError as error:
                at_once.append(Reply(token, error))
                continue
            assert not isinstance(decision, NeedsProducerId)
            if isinstance(decision, Write):
                last = decision.value
            # What was added by the request before is no more durable than what this one adds.
            later.append(Reply(token, None))
        if last is value:
            return None, [], [*at_once, *later]
        return last, later, at_once

    def _is_between(
        self, transaction: Transaction, stored: TransactionMetadata, request: AddPartitions
    ) -> bool:
        """Say whether a request to add partitions is right, but a moment early."""
        change = transaction.change
        if change is None:
            return transaction.is_prepared and request.producer == successor(stored)
        if not isinstance(change, Change) or not change.values:
            return False
        last = change.values[-1]
        goes_on = last.state is TransactionState.ONGOING or (
            last.state in SETTLED and last.state is not TransactionState.EMPTY
        )
        return goes_on and last.producer == request.producer

    # --- checks -------------------------------------------------------------------------------

    def _find(
        self, request: AddPartitions | EndTransaction
    ) -> tuple[Transaction, TransactionMetadata]:
        _check_id(request.transactional_id)
        transaction = self._table.get(request.transactional_id)
        if transaction is None:
            self._admit(request.transactional_id, request.connection, counts=False)
            raise InvalidProducerIdMapping(f"{request.transactional_id!r} is not known")
        counts = self._holds(transaction, request.producer)
        self._admit(request.transactional_id, request.connection, counts=counts)
        if counts and request.client is not None:
            transaction.client = request.client
        current = transaction.current
        if current is None:
            raise ConcurrentTransactions(f"{request.transactional_id!r} is being created")
        return transaction, current

    def _holds(self, transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
        """Say whether a client belongs to the present incarnation, or to the one under way."""
        change = transaction.change
        values = change.values if isinstance(change, Change) else ()
        current = transaction.current
        return (current is not None and holds(current, producer)) or any(
            holds(value, producer) for value in values
        )

    def _admit(
        self, transactional_id: str, connection: ConnectionId | None, *, counts: bool
    ) -> None:
        if connection is not None:
            self._table.order.admit(transactional_id, connection, counts=counts)


class Fence:
    """The rule of a transaction that is aborted without its producer; the result is the value."""

    def __init__(self, stored: TransactionMetadata) -> None:
        self._stored = stored

    def __call__(self, now_ms: int, new_id: ProducerId | None) -> Decision:
        """Decide."""
        value = fence(self._stored, now_ms, new_id)
        return NeedsProducerId() if value is None else Write(value, value)


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id must not be empty")
    if len(transactional_id) > ID_BYTES_MAX or len(transactional_id.encode()) > ID_BYTES_MAX:
        raise InvalidRequest("the transactional id is too long")


def _check_not_ahead(transaction: Transaction, producer: ProducerIdAndEpoch | None) -> None:
    """Raise NotCoordinator for an epoch after the stored one (AHEAD)."""
    stored = transaction.current
    if stored is None or producer is None:
        return
    ids = (stored.producer_id, successor(stored).producer_id)
    newest = stored.epoch if producer.producer_id == stored.producer_id else 0
    if producer.producer_id in ids and newest < producer.epoch < EPOCH_FENCED:
        raise NotCoordinator(
            f"{transaction.transactional_id!r} has a newer epoch than this coordinator knows here"
        )


def _check_idle(transaction: Transaction) -> None:
    if transaction.change is not None:
        raise ConcurrentTransactions(f"{transaction.transactional_id!r} has a change under way")


def _fencing(transaction: Transaction, decision: Write) -> list[ShardEffect]:
    """Return the event of a transaction that its producer's next incarnation has fenced."""
    if not isinstance(decision.result, ConcurrentTransactions):
        return []
    stored = transaction.stored
    assert stored is not None
    return [TransactionEvent(FENCED, transaction.transactional_id, stored.number, stored.producer)]
