"""All transactional ids of one coordinator partition: replay, markers, deadlines.

Requests are taken by `transaction_requests`, the ids themselves are in `transaction_table`, what
each request does to one is in `transaction`.

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

Source: Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.coordinator.core.coordinator_types import LogRecord, Now, Reply, Ticket
from broker.errors import BrokerError, ConcurrentTransactions
from broker.transactions.core.connection_order import ConnectionOrder
from broker.transactions.core.transaction import (
    completed,
    is_expired,
    is_timed_out,
)
from broker.transactions.core.transaction_entry import Transaction
from broker.transactions.core.transaction_records import TransactionEntry, decode
from broker.transactions.core.transaction_requests import Fence, TransactionRequests
from broker.transactions.core.transaction_table import TransactionTable
from broker.transactions.core.transaction_types import (
    EXPIRED,
    TIMED_OUT,
    MarkerWritten,
    ShardEffect,
    ShardEffects,
    TransactionConfig,
    TransactionEvent,
    TransactionMetadata,
    TransactionState,
    WriteMarkers,
)
from broker.transactions.core.transaction_view import TransactionView

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
