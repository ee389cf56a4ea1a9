"""All transactional ids of one coordinator partition: replay, markers, deadlines.

The ids themselves are in `transaction_table`, what each request does to one is in `transaction`.

The flow of everything durable is that of group coordinators: a request returns `Append(ticket,
records)`; the shell appends the records as one batch; when they are durable it calls `replay` for
each and then `on_stored(ticket)`, which releases the replies. If the log refuses an append,
`on_store_failed(ticket)` undoes the intent; if its outcome is unknown, the whole shard is given up
(`unload`) and loaded again from the log.

    DECIDE-FIRST  No marker leaves before Prepare* is durable, nobody is answered before the change
                  is, and Complete* is written only when every marker is confirmed.
    COMPLETE-LATER
                  Complete* is promised to nobody, so it waits for the next value of its id and
                  goes into the log with it, or alone after a moment. Meanwhile the id is taken
                  for complete: what is answered rests on the decision, which is durable. A
                  coordinator that takes over finds Prepare* and writes the markers again, which
                  partitions have already (MARKER-ONCE).
    RESUME        A shard that was loaded writes the markers of every decision that it finds.
    GRACE         Time that ran out while nobody could coordinate is not held against a producer:
                  after a takeover, open transactions have a whole interval.

Snapshots. As for groups, the log is trimmed at an offset S after every live key was written again
behind S; ids with records in flight are left out of the copy, for these lie behind S already.

Requests. Each is checked against the order of connections, then against the change under way: an
id has one at a time, and everything else is busy until it ends. That comes before the epochs are
compared, for while a decision is not durable nobody knows which epoch will be right.

A request to add partitions that finds its id between two transactions is *parked* instead, until
Complete* is durable or about to be written; then the next transaction begins in the same batch.

    AHEAD   An epoch after the stored one was given by another coordinator, which this one has
            not heard of: it coordinates the id no longer, and must not call the newest producer
            fenced. (PROVEN would keep it from that, too, with a write that must fail.)
    PROVEN  What ends a producer for good is not said on the word of a coordinator that may have
            been taken over: that an id is unknown or has another producer, or that there is
            nothing to end. The answer waits until the log has confirmed a record that was appended
            after the question; if it does not, the client looks for the coordinator again.

Sources: Kafka's TransactionCoordinator and TransactionStateManager; KAFKA-18575 (AK#18467,
AK#18730) on the order of the checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import LogRecord, Now, Reply, Ticket, Token
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
    ABORTED,
    EPOCH_FENCED,
    EXPIRED,
    FENCED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    SETTLED,
    TIMED_OUT,
    AddPartitions,
    AllocateProducerId,
    Answer,
    Decision,
    EndTransaction,
    InitProducerId,
    MarkerWritten,
    NeedsProducerId,
    ProducerIdAndEpoch,
    ShardEffect,
    ShardEffects,
    TransactionConfig,
    TransactionEvent,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    Write,
    WriteMarkers,
    add_partitions,
    completed,
    end_transaction,
    fence,
    holds,
    init_producer_id,
    is_expired,
    is_timed_out,
    successor,
    verify_partitions,
)
from broker.transactions.core.transaction_records import ID_BYTES_MAX, TransactionEntry, decode
from broker.transactions.core.transaction_table import (
    Change,
    Parked,
    Rule,
    Transaction,
    TransactionTable,
    TransactionView,
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


_TOMBSTONES_MAX: Final = 1_000
"""How many ids expire at one time, in one batch."""
_TIMEOUTS_MAX: Final = 50
"""How many transactions that ran out of time are aborted at one time. What was begun together runs
out of time together, and each comes with the markers of all its partitions."""
_NEXT_SOME_S: Final = 0.1
"""When the next of them follow, and the next ids that expire."""


class TransactionShard:
    """The transactional ids of one partition of the internal topic."""

    def __init__(
        self, config: TransactionConfig, order: ConnectionOrder, *, phase: float = 0.0
    ) -> None:
        """Start empty; feed the log to `replay`, then call `loaded`.

        `phase`: which part of an interval it looks for timeouts and expired ids later than a shard
        with phase 0 that was loaded at the same moment, so that all of a broker take turns.
        """
        self._config = config
        self._phase = phase
        self._table = TransactionTable(order)
        self._timeouts_s: float | None = None
        self._expiry_s: float | None = None
        self.requests = TransactionRequests(self._table, config)
        self.view = TransactionView(self._table)

    # --- the log ------------------------------------------------------------------------------

    def replay(self, record: LogRecord) -> None:
        """Apply a durable record. Raises CorruptCoordinatorRecord."""
        entry = decode(record.key, record.value)
        if not isinstance(entry, TransactionEntry):
            return
        if entry.metadata is None:
            self._table.remove(entry.transactional_id)
        else:
            self._table.replay(entry.transactional_id, entry.metadata)

    def loaded(self, now: Now) -> ShardEffects:
        """Go live after the log was replayed to its end."""
        later = 1 + self._phase
        self._timeouts_s = now.s + later * self._config.timeout_interval_ms / 1000
        self._expiry_s = now.s + later * self._config.expiry_interval_ms / 1000
        effects: list[ShardEffect] = []
        for transaction in self._table:
            effects += self._go_on(transaction, now)
        return effects

    def on_stored(self, ticket: Ticket, now: Now) -> ShardEffects:
        """Continue after the records of an Append were replayed."""
        change, transactions = self._table.changes.settle(ticket)
        effects: list[ShardEffect] = list(change.replies)
        for transaction in transactions:
            stored = transaction.stored
            assert stored is not None
            if change.values:
                assert stored == change.values[-1], "the log holds something else"
                effects += self._go_on(transaction, now)
            else:
                effects.append(_event(EXPIRED, transaction.transactional_id, stored))
        return effects

    def on_store_failed(self, ticket: Ticket, error: BrokerError, now: Now) -> ShardEffects:
        """Continue after the log refused an Append: nothing of it is durable."""
        change, transactions = self._table.changes.settle(ticket)
        effects: list[ShardEffect] = [Reply(reply.token, error) for reply in change.replies]
        for transaction in transactions:
            if transaction.is_prepared:
                # Complete* was refused, and what went with it: only that is tried again.
                transaction.done = change.values[0]
                transaction.complete_s = now.s + self._config.retry_ms / 1000
                self._table.note(transaction)
            else:
                effects += self._go_on(transaction, now)
        return effects

    def unload(self, error: BrokerError) -> ShardEffects:
        """Answer everything that waits: this broker no longer coordinates these ids."""
        return self._table.give_up(error)

    # --- markers ------------------------------------------------------------------------------

    def on_marker_written(self, written: Sequence[MarkerWritten], now: Now) -> ShardEffects:
        """Partitions have their markers, or need none any more."""
        effects: list[ShardEffect] = []
        for one in written:
            transaction = self._table.get(one.transactional_id)
            if transaction is None or not transaction.unmarked:
                continue
            stored = transaction.stored
            assert stored is not None
            if stored.number != one.number or stored.producer != one.producer:
                continue
            transaction.unmarked.discard(one.partition)
            if not transaction.unmarked:
                effects += self._complete(transaction, now)
        return effects

    def _go_on(self, transaction: Transaction, now: Now) -> ShardEffects:
        """Do what follows from what is stored: markers of a decision, requests that waited."""
        table, stored = self._table, transaction.stored
        effects: list[ShardEffect] = []
        if stored is None:
            table.note(transaction)
        elif transaction.is_prepared and stored.partitions:
            transaction.unmarked = set(stored.partitions)
            effects.append(
                WriteMarkers(
                    transaction.transactional_id,
                    stored.number,
                    stored.producer,
                    stored.state is TransactionState.PREPARE_COMMIT,
                    stored.version,
                    stored.partitions,
                )
            )
            table.note(transaction)
        elif transaction.is_prepared:
            effects += self._complete(transaction, now)
        else:
            effects += self._take_parked(transaction, now)
            table.note(transaction)
        return effects

    def _complete(self, transaction: Transaction, now: Now) -> ShardEffects:
        """Every marker is confirmed: the id is free, and who waited for that may go on."""
        assert transaction.stored is not None
        assert not transaction.unmarked
        transaction.done = completed(transaction.stored, now.ms)
        # All that wait for a moment are appended at one time, so that they share an entry.
        linger_s = self._config.complete_linger_ms / 1000
        transaction.complete_s = (now.s // linger_s + 2) * linger_s
        effects = self._take_parked(transaction, now)
        self._table.note(transaction)
        return effects

    def _take_parked(self, transaction: Transaction, now: Now) -> ShardEffects:
        """Carry out what waited for the end of the last transaction."""
        current = transaction.current
        assert current is not None
        value, later, at_once = self.requests.take_parked(transaction, current, now)
        if value is None:
            return at_once
        return [*at_once, *self._table.write(transaction, value, later)]

    def _append_complete(self, transaction: Transaction, now: Now) -> ShardEffects:
        """Complete* has waited for long enough, or was refused: append it."""
        effects = [*self._take_parked(transaction, now)]
        if transaction.done is not None:
            effects += self._table.write(transaction, transaction.done, ())
        return effects

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called; perhaps early, never late."""
        deadlines = (self._table.wakes.first(), self._timeouts_s, self._expiry_s)
        return min((at_s for at_s in deadlines if at_s is not None), default=None)

    def on_deadline(self, now: Now) -> ShardEffects:
        """Do what is due for all ids."""
        table = self._table
        effects: list[ShardEffect] = []
        while (transactional_id := table.wakes.pop_due(now.s)) is not None:
            transaction = table.get(transactional_id)
            assert transaction is not None
            for parked in table.unpark(transaction, now.s):
                busy = ConcurrentTransactions(f"{transactional_id!r} is ending a transaction")
                effects.append(Reply(parked.token, busy))
            if transaction.is_due(now.s):
                effects += self._append_complete(transaction, now)
            table.note(transaction)
        if self._timeouts_s is not None and self._timeouts_s <= now.s:
            self._timeouts_s = now.s + self._config.timeout_interval_ms / 1000
            effects += self._abort_timed_out(now)
        if self._expiry_s is not None and self._expiry_s <= now.s:
            self._expiry_s = now.s + self._config.expiry_interval_ms / 1000
            effects += self._expire(now)
        return effects

    def _abort_timed_out(self, now: Now) -> ShardEffects:
        effects: list[ShardEffect] = []
        count = 0
        for transaction in self._table.open_transactions():
            stored = transaction.stored
            assert stored is not None
            if transaction.change is not None or not is_timed_out(stored, now.ms):
                continue
            if count == _TIMEOUTS_MAX:
                self._timeouts_s = now.s + _NEXT_SOME_S
                break
            count += 1
            effects.append(_event(TIMED_OUT, transaction.transactional_id, stored))
            effects += self.requests.decide(transaction, Fence(stored), None, now)
        return effects

    def _expire(self, now: Now) -> ShardEffects:
        table = self._table
        expiration_ms = self._config.transactional_id_expiration_ms
        unused = [
            transaction
            for transaction in table
            if transaction.change is None
            and transaction.stored is not None
            and is_expired(transaction.stored, now.ms, expiration_ms)
        ]
        if not unused:
            return ()
        if len(unused) > _TOMBSTONES_MAX:
            self._expiry_s = now.s + _NEXT_SOME_S
        return table.changes.write_tombstones(unused[:_TOMBSTONES_MAX])


def _event(name: str, transactional_id: str, stored: TransactionMetadata) -> TransactionEvent:
    return TransactionEvent(name, transactional_id, stored.number, stored.producer)
