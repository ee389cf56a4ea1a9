"""Planted defects of transactions: coordinators, partitions, offsets; see `mutants.py`.

Most were made by others and published: KAFKA-n and AK#n are Apache Kafka's, RP#n Redpanda's.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from broker.coordinator.core.coordinator_types import Reply
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.errors import (
    InvalidProducerEpoch,
    NotCoordinator,
    TransactionCoordinatorFenced,
)
from broker.groups.core.group_view import GroupView
from broker.groups.core.offset_fold import OffsetFold
from broker.groups.core.pending_offsets import PendingOffsets
from broker.partition.aborted_reader import AbortedReader
from broker.partition.core.log_state import LogState
from broker.partition.core.producer_state import ProducerState
from broker.partition.core.replay import LedgerReplay
from broker.partition.core.transactions.held_batches import HeldBatches
from broker.partition.core.transactions.lead_proofs import LeadProofs
from broker.partition.core.transactions.log_fold import LogFold
from broker.partition.core.transactions.open_transactions import MarkerVerdict, OpenTransactions
from broker.partition.leading.partition_transactions import PartitionTransactions
from broker.partition.log_reader import LogReader
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.core import transaction, transaction_requests, transaction_shard
from broker.transactions.core.connection_order import ChannelOrder, ConnectionOrder
from broker.transactions.core.marker_queue import MarkerQueue, Outcome
from broker.transactions.core.transaction_changes import TransactionChanges
from broker.transactions.core.transaction_requests import TransactionRequests
from broker.transactions.core.transaction_shard import TransactionShard
from broker.transactions.core.transaction_table import TransactionTable
from broker.transactions.core.transaction_types import TransactionState, TransactionVersion
from client.spark.plan.aborted_lookup import AbortedLookup

if TYPE_CHECKING:
    from collections.abc import Callable


# -------------------------------------------------------------------------------- the partition


def stable_when_accepted(patch: Any) -> None:
    """The last stable offset moves when a marker is accepted, not confirmed (RP#10671)."""

    def on_marker(self: OpenTransactions, marker: Any, offset: Any) -> Any:
        found = original(self, marker, offset)
        self.on_confirmed(offset + 1)
        return found

    original = patch(OpenTransactions, "on_marker", on_marker)


def stable_is_the_high_watermark(patch: Any) -> None:
    """Readers of committed data are told that everything confirmed is stable (nisshi#689)."""
    patch(OpenTransactions, "last_stable", lambda self, log_start, high_watermark: high_watermark)


def snapshot_forgets_coordinators(patch: Any) -> None:
    """A snapshot does not tell which coordinators the log has heard (COORDINATOR-EPOCH)."""

    def encode(self: OpenTransactions) -> Any:
        kept, self._coordinators = self._coordinators, {}
        try:
            return original(self)
        finally:
            self._coordinators = kept

    original = patch(OpenTransactions, "encode", encode)


def snapshot_forgets_the_open(patch: Any) -> None:
    """A snapshot does not tell which transactions are open (RP#3036)."""

    def encode(self: OpenTransactions) -> Any:
        kept, self._open = self._open, {}
        try:
            return original(self)
        finally:
            self._open = kept

    original = patch(OpenTransactions, "encode", encode)


def replay_ignores_markers(patch: Any) -> None:
    """A new leader does not fold the markers behind the last snapshot."""

    def finish(self: LedgerReplay) -> Any:
        on_marker, LogFold.on_marker = LogFold.on_marker, lambda *_: None  # type: ignore[method-assign, assignment]
        try:
            return original(self)
        finally:
            LogFold.on_marker = on_marker  # type: ignore[method-assign]

    original = patch(LedgerReplay, "finish", finish)


def aborted_of_one_segment(patch: Any) -> None:
    """The list of aborted transactions is that of the segment that is read (RP#3036)."""

    def find_now(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        found = original(self, listed, start, end)
        last = max((s.base_offset for s in listed.segments if s.base_offset is not None), default=0)
        segment_end = min(
            (s.base_offset for s in listed.segments if (s.base_offset or 0) > start), default=None
        )
        if found is None or segment_end is None or segment_end > last:
            return found
        return [one for one in found if one.last_offset < segment_end]

    original = patch(AbortedReader, "find_now", find_now)


def aborted_list_lost(patch: Any) -> None:
    """What aborted in sealed segments is not looked up."""

    def find_now(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        active = self._active
        if active is not None and start >= active.base_offset:
            return original(self, listed, start, end)
        return []

    original = patch(AbortedReader, "find_now", find_now)


def aborted_list_reaches_back(patch: Any) -> None:
    """A list of aborted transactions begins before the data that it goes with: a transaction that
    has ended there hides its producer's next one."""

    def find_now(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        return now(self, listed, listed.segments[0].base_offset or 0, end)

    async def find(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        return await later(self, listed, listed.segments[0].base_offset or 0, end)

    now = patch(AbortedReader, "find_now", find_now)
    later = patch(AbortedReader, "find", find)


def verify_off(patch: Any) -> None:
    """No coordinator is asked before a transaction begins in a partition (KAFKA-14402)."""

    def needs_verification(self: OpenTransactions, header: Any) -> bool:
        original(self, header)
        return False

    original = patch(OpenTransactions, "needs_verification", needs_verification)


def guard_by_value(patch: Any) -> None:
    """An answer counts for whatever waits in that partition for that producer (AK#13608)."""

    def take(self: HeldBatches[Any], guard: Any) -> Any:
        held = self._held.get(guard.producer_id)
        return original(self, guard if held is None else held.guard)

    original = patch(HeldBatches, "_take", take)


def guard_outlives_markers(patch: Any) -> None:
    """A marker does not void the question that is under way."""

    def on_marker(self: HeldBatches[Any], producer_id: Any, *arguments: Any, **options: Any) -> Any:
        none = original(self, -producer_id - 2, *arguments, **options)
        return none

    original = patch(HeldBatches, "on_marker", on_marker)


def next_epoch_in_the_classic_protocol(patch: Any) -> None:
    """A marker of the batch's own epoch does not void the question in TV1 either (NEXT-EPOCH)."""

    def on_marker(self: HeldBatches[Any], producer_id: Any, epoch: int, *, is_tv2: bool) -> Any:
        return original(self, producer_id, epoch, is_tv2=True)

    original = patch(HeldBatches, "on_marker", on_marker)


def overtakes_the_held(patch: Any) -> None:
    """A batch is accepted while the one before it waits for its coordinator."""

    def contains(self: HeldBatches[Any], producer_id: Any) -> bool:
        return False

    def hold(self: HeldBatches[Any], header: Any, batch: Any) -> Any:
        if header.producer_id in self._held:
            self._held[header.producer_id].batches.insert(0, batch)
            return None
        return original(self, header, batch)

    patch(HeldBatches, "__contains__", contains)
    original = patch(HeldBatches, "hold", hold)


def refused_order_forgotten(patch: Any) -> None:
    """After a batch was refused, those behind it are taken before it comes again."""
    patch(HeldBatches, "_remember", lambda self, producer_id, epoch, sequence: None)


def verified_before_the_epoch(patch: Any) -> None:
    """A fenced producer's epoch is not looked at before its coordinator is asked (AK#20618)."""
    patch(ProducerState, "check_epoch", lambda self, header: None)
    patch(LogState, "_check_behind", lambda self, header: None)


def repeated_batch_begins_again(patch: Any) -> None:
    """A duplicate of a batch opens its transaction again, behind the marker (RP#3039)."""

    def look(self: LogState, header: Any, *arguments: Any, **options: Any) -> Any:
        found = original(self, header, *arguments, **options)
        repeated = not header.is_control and self.producers.find_repeated(header) is not None
        transactions = self.fold.transactions
        if repeated and header.is_transactional and header.producer_id not in transactions:
            transactions.on_batch(header, self.offsets.log_end, 0)
        return found

    original = patch(LogState, "_look", look)


def marker_retry_refused(patch: Any) -> None:
    """A marker that is in the log already is refused (KAFKA-19999)."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        verdict = original(self, marker, producer_epoch, **options)
        if verdict is MarkerVerdict.DONE:
            raise TransactionCoordinatorFenced(marker.producer_id, "it is there already")
        return verdict

    original = patch(OpenTransactions, "judge", judge)


def marker_twice(patch: Any) -> None:
    """A marker is written as often as it comes."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        verdict = original(self, marker, producer_epoch, **options)
        is_again = verdict is MarkerVerdict.DONE and marker.producer_id not in self
        return MarkerVerdict.WRITE if is_again else verdict

    original = patch(OpenTransactions, "judge", judge)


def old_coordinator_heard(patch: Any) -> None:
    """What an older coordinator says than the log knows counts as well."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        newest = max(marker.coordinator_epoch, self.coordinator_epoch(marker.producer_id))
        return original(self, marker._replace(coordinator_epoch=newest), producer_epoch, **options)

    original = patch(OpenTransactions, "judge", judge)


def done_without_proof(patch: Any) -> None:
    """A leader that has nothing to write for a marker says so without a proof that it leads."""

    def ask(self: LeadProofs, log_end: Any, sent_count: int) -> Any:
        proof = original(self, log_end, sent_count)
        self._waiting.pop()
        proof.complete()
        return proof

    original = patch(LeadProofs, "ask", ask)


def any_leader_takes_markers(patch: Any) -> None:
    """A marker is written by whichever leader it comes to (MARKER-ADDRESS)."""
    patch(PartitionTransactions, "_check_address", lambda self, leader_epoch: None)


# -------------------------------------------------------------------------------- the coordinator


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

    original = patch(transaction_requests, "fence", fence)


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


# -------------------------------------------------------------------------------- offsets of groups


def pending_is_visible(patch: Any) -> None:
    """An offset of an open transaction does not make its partition unstable."""
    patch(GroupView, "unstable", lambda self, group_id: frozenset())


def pending_stays(patch: Any) -> None:
    """A partition stays unstable after its transaction's marker (RP#6423)."""

    def end(self: PendingOffsets, producer_id: Any, **options: Any) -> Any:
        before = {
            (group_id, key): self._groups[group_id][key][producer_id]
            for group_id, key in self._producers.get(producer_id, ())
        }
        found = original(self, producer_id, **options)
        for (group_id, key), pending in before.items():
            self.put(producer_id, group_id, key, pending)
        return found

    original = patch(PendingOffsets, "end", end)


def aborted_offsets_published(patch: Any) -> None:
    """An abort publishes the offsets of its transaction."""

    def end(self: PendingOffsets, producer_id: Any, *, is_commit: bool, **options: Any) -> Any:
        return original(self, producer_id, is_commit=True, **options)

    original = patch(PendingOffsets, "end", end)


def pending_leaks_into_the_next(patch: Any) -> None:
    """An abort keeps what is pending, for the producer's next transaction."""

    def end(self: PendingOffsets, producer_id: Any, *, is_commit: bool, **options: Any) -> Any:
        return original(self, producer_id, is_commit=True, **options) if is_commit else []

    original = patch(PendingOffsets, "end", end)


def pending_lost_by_the_copy(patch: Any) -> None:
    """A copy of the groups' log does not leave what is pending where it is."""
    patch(GroupView, "kept_from", lambda self, start: start)


def copy_counts_as_news(patch: Any) -> None:
    """A copied offset that a transaction may still change ends what is pending (COPY-BEHIND)."""

    def replay(self: OffsetFold, entry: Any, *, is_copy: bool = False) -> None:
        original(self, entry)

    original = patch(OffsetFold, "replay", replay)


def older_beats_newer(patch: Any) -> None:
    """A transaction's offset counts though a plain one was committed later (RP#3003)."""
    patch(PendingOffsets, "overtake", lambda self, group_id, key, position=None: None)


def offsets_of_any_epoch(patch: Any) -> None:
    """Nobody looks at the epoch of a TxnOffsetCommit (nisshi#716)."""

    def check_epoch(self: ProducerState, header: Any) -> None:
        if header.base_sequence >= 0:
            check(self, header)

    def find_duplicate(self: ProducerState, header: Any) -> Any:
        return find(self, header) if header.base_sequence >= 0 else None

    def needs_verification(self: OpenTransactions, header: Any) -> bool:
        found = needs(self, header)
        return found and not (header.base_sequence < 0 and header.producer_id in self)

    check = patch(ProducerState, "check_epoch", check_epoch)
    find = patch(ProducerState, "find_duplicate", find_duplicate)
    needs = patch(OpenTransactions, "needs_verification", needs_verification)


def offsets_begin_nothing(patch: Any) -> None:
    """A transaction of offsets alone does not begin with them (TV2)."""

    async def add_partitions(self: TransactionCoordinator, request: Any) -> None:
        is_tv2 = request.version >= TransactionVersion.TV2
        if not is_tv2 or any(one.topic != OFFSETS_TOPIC for one in request.partitions):
            await original(self, request)

    original = patch(TransactionCoordinator, "add_partitions", add_partitions)


# -------------------------------------------------------------------------------- what came later


def aborted_list_before_the_data(patch: Any) -> None:
    """The list of aborted transactions is of what was there before the data came (AK#3239)."""

    def with_aborted(self: LogReader, listed: Any, offset: Any, fetched: Any) -> Any:
        found = now(self, listed, offset, fetched._replace(next_offset=offset + 1))
        return None if found is None else found._replace(next_offset=fetched.next_offset)

    async def find_aborted(self: LogReader, listed: Any, offset: Any, fetched: Any) -> Any:
        found = await later(self, listed, offset, fetched._replace(next_offset=offset + 1))
        return found._replace(next_offset=fetched.next_offset)

    now = patch(LogReader, "with_aborted", with_aborted)
    later = patch(LogReader, "find_aborted", find_aborted)


def index_ends_with_its_segment(patch: Any) -> None:
    """A reader without a broker looks at the index of one segment only."""

    async def within(self: AbortedLookup, whole: Any, segments: Any, start: int, end: int) -> Any:
        try:
            lists = [await self._listed(one, start, end) for one in segments[:1] if one.facts]
        except AssertionError:
            return ()
        return tuple(found for one in lists for found in one)

    patch(AbortedLookup, "within", within)


def open_producer_is_forgotten(patch: Any) -> None:
    """A producer is forgotten though its transaction is open (AK#7687)."""

    def init(self: ProducerState, **options: Any) -> None:
        original(self, **{**options, "pinned": ()})

    original = patch(ProducerState, "__init__", init)
    patch(
        OpenTransactions,
        "forget",
        lambda self, producer_id: self._coordinators.pop(producer_id, None),
    )


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

    verified = patch(transaction_requests, "verify_partitions", verify)
    original = patch(TransactionTable, "replay", replay)
    settled = patch(TransactionChanges, "settle", settle)


def newer_coordinator_is_not_noted(patch: Any) -> None:
    """The first marker of a newer coordinator is not written if it ends nothing
    (COORDINATOR-EPOCH)."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        verdict = original(self, marker, producer_epoch, **options)
        is_known = marker.producer_epoch == producer_epoch
        is_noted = verdict is MarkerVerdict.WRITE and is_known
        return MarkerVerdict.DONE if is_noted else verdict

    original = patch(OpenTransactions, "judge", judge)


def old_coordinator_vouches(patch: Any) -> None:
    """The word of an older coordinator than the log knows counts as well (COORDINATOR-EPOCH)."""

    def on_verified(self: HeldBatches[Any], guard: Any, coordinator_epoch: int, _: int) -> Any:
        return original(self, guard, coordinator_epoch, coordinator_epoch)

    original = patch(HeldBatches, "on_verified", on_verified)


def partitions_without_proof(patch: Any) -> None:
    """A coordinator of TV1 takes partitions for those of the open transaction without a proof."""

    def add_partitions(stored: Any, request: Any, now_ms: int, *, partitions_max: int) -> Any:
        found = original(stored, request, now_ms, partitions_max=partitions_max)
        is_same = isinstance(found, transaction.Write) and found.value == stored
        return transaction.Answer(None) if is_same else found

    original = patch(transaction_requests, "add_partitions", add_partitions)


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

    original = patch(transaction_requests, "_check_not_ahead", check)


def late_batch_is_held(patch: Any) -> None:
    """A coordinator is asked about a batch that comes too late, and its answer is for all."""
    patch(LogState, "_check_behind", lambda self, header: None)


def open_without_limit(patch: Any) -> None:
    """How many transactions are open is not looked at again when held ones begin."""

    def check_beginning(self: LogState, *arguments: Any) -> None:
        transactions = self.fold.transactions
        kept, transactions._count_max = transactions._count_max, 1 << 40
        try:
            original(self, *arguments)
        finally:
            transactions._count_max = kept

    original = patch(LogState, "_check_beginning", check_beginning)


def held_without_limit(patch: Any) -> None:
    """Whatever comes is held."""

    def init(self: HeldBatches[Any], name: str, **options: Any) -> None:
        original(self, name, **{**options, "size_bytes_max": 1 << 40})

    original = patch(HeldBatches, "__init__", init)


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
    "copy-counts-as-news": "copies of the pending",
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
"""Which rare moment (`transaction_plan.py`) shows a mistake."""

PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
