"""Planted defects of transactions: those of their coordinators, and the table of all.

What a partition does wrong is in `transaction_appends.py`, `transaction_markers.py`
and `transaction_reads.py`, what groups do with their offsets in
`transaction_offsets.py`. Most were made by others and published: KAFKA-n and AK#n are
Apache Kafka's, RP#n Redpanda's. See `table.py`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from broker.coordinator.core.connection_order import ChannelOrder, ConnectionOrder
from broker.coordinator.core.coordinator_types import Reply
from broker.errors import (
    InvalidProducerEpoch,
    NotCoordinator,
)
from broker.transactions.core import transaction, transaction_shard
from broker.transactions.core.marker_queue import MarkerQueue, Outcome
from broker.transactions.core.transaction import TransactionState, TransactionVersion
from broker.transactions.core.transaction_shard import TransactionRequests, TransactionShard
from broker.transactions.core.transaction_table import TransactionChanges, TransactionTable
from broker.transactions.transactions import TransactionCoordinator
from tests.simulation.mutants import (
    transaction_appends,
    transaction_markers,
    transaction_offsets,
    transaction_reads,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def decisions_not_resumed(patch: Any) -> None:
    """A new coordinator does not write the markers of decisions that it finds (AK#15524)."""

    def loaded(self: TransactionShard, now: Any) -> Any:
        go_on = self._go_on
        self._go_on = lambda one, now: () if one.is_prepared else go_on(one, now)  # type: ignore[method-assign]
        try:
            return original(self, now)
        finally:
            del self.__dict__["_go_on"]

    original = patch(TransactionShard, "loaded", loaded)


def answered_before_durable(patch: Any) -> None:
    """A coordinator answers before what it says is in its log."""

    def write(self: TransactionChanges, one: Any, values: Any, replies: Any) -> Any:
        return (*replies, *original(self, one, values, ()))

    original = patch(TransactionChanges, "write", write)


def complete_after_one_marker(patch: Any) -> None:
    """A transaction is complete when the first of its markers is confirmed."""

    def on_marker_written(self: TransactionShard, written: Any, now: Any) -> Any:
        for marker in written:
            found = self._table.get(marker.transactional_id)
            if found is not None and marker.partition in found.unmarked:
                found.unmarked = {marker.partition}
        return original(self, written, now)

    original = patch(TransactionShard, "on_marker_written", on_marker_written)


def completion_left_out(patch: Any) -> None:
    """What follows a decision is stored without its completion (COMPLETE-LATER)."""

    def write(self: TransactionTable, one: Any, value: Any, replies: Any) -> Any:
        one.done = one.complete_s = None
        return self.changes.write(one, (value,), replies)

    patch(TransactionTable, "write", write)


def old_connection_heard(patch: Any) -> None:
    """Requests over an older connection count as well (Jepsen, Bufstream)."""
    patch(ConnectionOrder, "is_newest", lambda self, transactional_id, connection: True)


def stale_connection_heard(patch: Any) -> None:
    """A coordinator takes requests over connections that are older than it (FRESH-LEADER)."""

    def init(self: ConnectionOrder, accepted_before: Any) -> None:
        original(self, type(accepted_before)(-1))

    original = patch(ConnectionOrder, "__init__", init)


def old_session_heard(patch: Any) -> None:
    """Markers of a session that has been replaced are written (CHANNEL)."""
    patch(ChannelOrder, "hear", lambda self, partition, session: True)


def timeout_without_bump(patch: Any) -> None:
    """A coordinator that aborts by itself leaves the producer its epoch (KAFKA-6119)."""

    def fence(stored: Any, now_ms: int, new_id: Any = None) -> Any:
        value = original(stored, now_ms, new_id)
        return None if value is None else value._replace(epoch=stored.epoch)

    original = patch(transaction_shard, "fence", fence)


def init_retry_is_fenced(patch: Any) -> None:
    """The epoch before is forgotten: a repeated InitProducerId is fenced (KAFKA-20357)."""
    patch(transaction, "_is_last", lambda stored, producer: False)


def abort_taken_for_commit(patch: Any) -> None:
    """A commit of what the coordinator has aborted itself is answered as a retry (AK#23204)."""
    steps = transaction._Step
    table = {relation: dict(rows) for relation, rows in transaction._END_TV2.items()}
    rows = table[transaction.Relation.ENDED_BY_COORDINATOR]
    for state in (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT):
        rows[state] = (steps.DONE, rows[state][1])
    patch(transaction, "_END_TV2", table)


def retry_without_proof(patch: Any) -> None:
    """A coordinator of TV1 takes an EndTxn for a retry without a proof that it is one still."""
    steps = transaction._Step
    table = {
        state: tuple(steps.DONE if step is steps.AGAIN else step for step in row)
        for state, row in transaction._END_CLASSIC.items()
    }
    patch(transaction, "_END_CLASSIC", table)


def failed_marker_is_done(patch: Any) -> None:
    """A marker that a partition refused drops those of the whole transaction."""

    def on_answer(self: MarkerQueue, request_id: int, outcomes: Any, now_s: float) -> Any:
        failed = any(outcome is Outcome.FAILED for outcome in outcomes)
        return original(
            self, request_id, [Outcome.WRITTEN] * len(outcomes) if failed else outcomes, now_s
        )

    original = patch(MarkerQueue, "on_answer", on_answer)


def ongoing_id_expires(patch: Any) -> None:
    """An id is forgotten though its transaction is open."""

    def is_expired(stored: Any, now_ms: int, expiration_ms: int) -> bool:
        return not stored.state.name.startswith("PREPARE") and (
            stored.updated_ms + expiration_ms <= now_ms
        )

    patch(transaction_shard, "is_expired", is_expired)


def fence_bumps_twice(patch: Any) -> None:
    """A fence and the end of its transaction raise the epoch by one each (KAFKA-19367)."""

    def prepared(stored: Any, *arguments: Any, **options: Any) -> Any:
        value = original(stored, *arguments, **options)
        twice = options.get("by_coordinator") and options["version"] >= TransactionVersion.TV2
        if value is None or not twice or value.next_producer_id >= 0:
            return value
        return value._replace(epoch=value.epoch + 1)

    original = patch(transaction, "_prepared", prepared)


def last_epoch_is_given(patch: Any) -> None:
    """A client is given the epoch that only fences (KAFKA-18660, KAFKA-20090)."""
    patch(transaction, "EPOCH_LAST", transaction.EPOCH_LAST + 1)


def epoch_burnt(patch: Any) -> None:
    """An epoch is used up though the log refused the record that gives it (AK#8239)."""

    def settle(self: TransactionChanges, ticket: Any) -> Any:
        change, transactions = original(self, ticket)
        for one in transactions:
            stored = one.stored
            if stored is not None and change.values and stored.epoch < change.values[-1].epoch:
                one.stored = stored._replace(epoch=change.values[-1].epoch)
        return change, transactions

    original = patch(TransactionChanges, "settle", settle)


def topic_ids_forgotten(patch: Any) -> None:
    """Markers go to a topic of the same name as the one that was deleted."""

    def replay(self: TransactionTable, transactional_id: str, value: Any) -> None:
        rows = {one._replace(topic_id=None): None for one in value.partitions}
        original(self, transactional_id, value._replace(partitions=tuple(rows)))

    def settle(self: TransactionChanges, ticket: Any) -> Any:
        change, transactions = settled(self, ticket)
        values = tuple(
            one._replace(
                partitions=tuple({p._replace(topic_id=None): None for p in one.partitions})
            )
            for one in change.values
        )
        return change._replace(values=values), transactions

    def verify(stored: Any, transactional_id: str, producer: Any, partitions: Any) -> Any:
        rows = tuple(one._replace(topic_id=None) for one in partitions)
        return verified(stored, transactional_id, producer, rows)

    verified = patch(transaction_shard, "verify_partitions", verify)
    original = patch(TransactionTable, "replay", replay)
    settled = patch(TransactionChanges, "settle", settle)


def partitions_without_proof(patch: Any) -> None:
    """A coordinator of TV1 takes partitions for those of the open transaction without a proof."""

    def add_partitions(stored: Any, request: Any, now_ms: int, *, partitions_max: int) -> Any:
        found = original(stored, request, now_ms, partitions_max=partitions_max)
        is_same = isinstance(found, transaction.Write) and found.value == stored
        return transaction.Answer(None) if is_same else found

    original = patch(transaction_shard, "add_partitions", add_partitions)


def refusal_without_proof(patch: Any) -> None:
    """A client's refusal is answered at once, without a proof that this coordinator is one still
    (PROVEN)."""

    def prove(self: TransactionRequests, token: Any, result: Any) -> Any:
        return original(self, token, result) if result is None else (Reply(token, result),)

    original = patch(TransactionRequests, "prove", prove)


def question_refused_without_proof(patch: Any) -> None:
    """A partition's question is refused at once, without that proof (PROVEN)."""

    async def prove(self: TransactionCoordinator) -> None:
        """Say that all is well."""

    patch(TransactionCoordinator, "_prove", prove)


def ahead_is_fenced(patch: Any) -> None:
    """A coordinator calls newer producers than it knows fenced, at once (AHEAD).

    Without AHEAD alone that refusal has to be proven, as any: nobody is told.
    """

    def check(transaction: Any, producer: Any) -> None:
        try:
            original(transaction, producer)
        except NotCoordinator as error:
            raise InvalidProducerEpoch(producer.producer_id, str(error)) from error

    original = patch(transaction_shard, "_check_not_ahead", check)


def parked_without_limit(patch: Any) -> None:
    """Whatever comes is parked."""

    def init(self: TransactionRequests, table: Any, config: Any) -> None:
        original(self, table, dataclasses.replace(config, parked_requests_max=1 << 40))

    original = patch(TransactionRequests, "__init__", init)


WORLD = "transactions"
IN_CLUSTERS = frozenset(
    (
        "abort-taken-for-commit",
        "aborted-list-lost",
        "aborted-of-one-segment",
        "aborted-offsets-published",
        "answered-before-durable",
        "complete-after-one-marker",
        "decisions-not-resumed",
        "failed-marker-is-done",
        "marker-retry-refused",
        "marker-twice",
        "old-connection-heard",
        "overtakes-the-held",
        "pending-leaks-into-the-next",
        "pending-stays",
        "replay-ignores-markers",
        "snapshot-forgets-the-open",
        "stable-is-the-high-watermark",
        "stable-when-accepted",
        "timeout-without-bump",
        "verify-off",
    )
)
"""What is hunted in whole clusters, among their schedules of transactions."""
KINDS = {
    "any-leader-takes-markers": "stray markers",
    "copy-of-what-may-change": "copies of the pending",
    "left-out-for-good": "copies of the pending",
    "copy-behind-what-is-open": "copies of the pending",
    "guard-outlives-markers": "late questions",
    "late-batch-is-held": "late batches",
    "newer-coordinator-is-not-noted": "vouching zombies",
    "next-epoch-in-the-classic-protocol": "late questions",
    "old-coordinator-vouches": "vouching zombies",
    "open-producer-is-forgotten": "forgotten producers",
    "partitions-without-proof": "stale coordinators",
    "pending-lost-by-the-copy": "copies of the pending",
    "refused-order-forgotten": "forgotten producers",
    "retry-without-proof": "stale coordinators",
}
"""Which rare moment (`transactions/plan.py`) shows a mistake."""

PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
for _part in (
    transaction_appends,
    transaction_markers,
    transaction_offsets,
    transaction_reads,
):
    PLANTS |= _part.PLANTS
