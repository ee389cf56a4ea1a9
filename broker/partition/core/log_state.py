"""The end of a led partition's log: what was accepted and what was confirmed, in one order.

    log start <= last stable offset <= high watermark <= log end

The log start moves by trimming, the log end when a batch is accepted, the high watermark when
its entry is confirmed, in order. None of them ever decreases: a reader that saw a record below the
high watermark will find it there after any takeover. The last stable offset is the high watermark
unless a transaction is undecided (`open_transactions.py`).

An append gets its offsets, is recorded for duplicate detection, and is counted in one step, without
copying its bytes (a new prefix, followed by the producer's buffer). At the end of the loop's turn
it is put into an entry that it may share with others (`append_queue.py`), which waits in the
queue until the ledger's writer has room for it.

A change of ledgers has two halves. `hold` begins the next segment: appends are still accepted, but
held back. `switch`, once the previous ledger has confirmed everything, lets them go to the next
ledger, whose first entry is a snapshot of the state at `hold`.

    ACCEPTED-ORDER  producers' sequences follow what was accepted, not what was confirmed.
    PARKED          a duplicate of an unconfirmed batch is answered together with that one.
    SNAPSHOT-FIRST  the first entry of every ledger is a snapshot.
    DRAIN           nothing is sent to the next ledger before the previous one is complete.
    GATHERED        changes of share groups that come while one entry of such is on its way go
                    together in the next; none is behind a snapshot that has it already.
    VERIFY          the first batch of a transaction, and its producer's next ones, are held until
                    the coordinator has verified it (`held_batches.py`).
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from broker.errors import (
    InvalidTransactionState,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    Overloaded,
)
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import (
    Append,
    AppendQueue,
    BatchAccumulator,
    HeldAppend,
    LogEntry,
)
from broker.partition.core.batch_checks import (
    BatchLimits,
    CheckedBatch,
    check_batch,
    check_header,
)
from broker.partition.core.held_batches import HeldBatches, ProducerTransaction
from broker.partition.core.leader_effects import (
    NOTHING,
    PLAN,
    SEND,
    SEND_AND_PLAN,
    Effects,
)
from broker.partition.core.log_fold import LogFold
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.open_transactions import OpenTransactions
from broker.partition.core.producer_state import AcceptedBatch, SequenceGaps, is_gap
from broker.partition.core.shares.share_updates import ShareUpdate, seal_updates
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import seal_block
from client.log.snapshot import seal_snapshot
from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import (
    HEADER_BYTES,
    STAMP_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    stamp,
    stamp_changed,
    stamp_log_append_time,
)


class LogOffsets:
    """Offsets of one partition under one leader. After a takeover everything is confirmed."""

    __slots__ = ("_transactions", "high_watermark", "log_end", "log_start", "newest_ms")

    def __init__(
        self, log_start: Offset, log_end: Offset, transactions: OpenTransactions | None = None
    ) -> None:
        """`transactions`: the log's open transactions, kept up to date; None: there are none."""
        self._transactions = transactions
        self.log_start = log_start
        self.high_watermark = log_end
        self.log_end = log_end
        self.newest_ms = -1
        """Largest timestamp of what is confirmed in the ledger that is being written; -1: none."""
        self.check()

    @property
    def last_stable(self) -> Offset:
        """First offset of the oldest undecided transaction; without one, the high watermark."""
        if self._transactions is None:
            return self.high_watermark
        return self._transactions.last_stable(self.log_start, self.high_watermark)

    def on_accepted(self, end: Offset) -> None:
        """A batch that ends before `end` was enqueued."""
        assert end > self.log_end, (end, self.log_end)
        self.log_end = end

    def on_confirmed(self, end: Offset) -> None:
        """Everything below `end` is on its ack quorum."""
        assert self.high_watermark <= end <= self.log_end, (end, self.high_watermark, self.log_end)
        self.high_watermark = end

    def on_trimmed(self, start: Offset) -> None:
        """Records below `start` may disappear."""
        assert self.log_start <= start <= self.high_watermark, (start, self.high_watermark)
        self.log_start = start

    def check(self) -> None:
        """Assert the order of the offsets."""
        assert 0 <= self.log_start <= self.last_stable <= self.high_watermark <= self.log_end, (
            self.describe()
        )

    def describe(self) -> str:
        """One stable line for logs and transcripts."""
        return (
            f"log_start={self.log_start} high_watermark={self.high_watermark}"
            f" log_end={self.log_end}"
        )


class LogState:
    """Accepts, orders and confirms the appends of one partition under one leader."""

    __slots__ = (
        "_accumulator",
        "_gaps",
        "_is_send_planned",
        "_leader_epoch",
        "_name",
        "_share_changes",
        "_shares_awaited",
        "active",
        "batch_limits",
        "fold",
        "has_own_snapshot",
        "held",
        "limits",
        "offsets",
        "producers",
        "queue",
    )

    def __init__(
        self,
        name: str,
        leader_epoch: LeaderEpoch,
        limits: LogLimits,
        offsets: LogOffsets,
        fold: LogFold,
        active: ActiveSegment,
        gaps: SequenceGaps,
    ) -> None:
        """`fold`: of the log up to its end. `active`: the segment of a new ledger, still without
        entries."""
        self._name = name
        self._leader_epoch = leader_epoch
        self.limits = limits
        self.offsets = offsets
        self.fold = fold
        self.producers = fold.producers
        self.held: HeldBatches[HeldAppend] = HeldBatches(name, size_bytes_max=limits.held_bytes_max)
        self.active = active
        self.has_own_snapshot = False
        """Whether a snapshot is confirmed in the last listed ledger, so that a takeover needs no
        older one."""
        self._gaps = gaps
        self.queue = AppendQueue()
        """Unconfirmed entries. The shell only takes waiting ones from it."""
        self._accumulator = BatchAccumulator(limits)
        self.batch_limits = BatchLimits()
        """Limits of the topic's current configuration."""
        self._is_send_planned = False
        self._share_changes: list[ShareUpdate] = []
        """Of share groups, that are in no entry yet."""
        self._shares_awaited: Append | None = None
        """Completed when these are confirmed."""

    @property
    def in_flight_bytes(self) -> int:
        """Bytes accepted and not confirmed."""
        return self.queue.size_bytes + self._accumulator.size_bytes

    # --- append -------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer,
        now_ms: int,
        now_s: float,
        *,
        from_client: bool,
        checked: CheckedBatch | None = None,
        transaction: ProducerTransaction | None = None,
    ) -> Append:
        """Check a batch, unless that is done (`checked`), assign its offsets and add it to the next
        entry.

        Returns the original append for a duplicate, or a completed one; a `HeldAppend` for a batch
        that its coordinator has to verify. Raises NotLeader, Overloaded, NotEnoughReplicas, the
        InvalidRecord and SequenceError families; nothing was applied then.
        """
        view = memoryview(batch)
        if checked is None:
            checked = check_batch(view, self.batch_limits, now_ms, from_client=from_client)
        header = checked.header
        if header.producer_id >= 0:
            if header.attributes & TRANSACTIONAL_BIT or self.fold.has_transactions:
                waiting = self._look(checked, batch, now_s, transaction, from_client=from_client)
                if waiting is not None:
                    return waiting
            known = self._find_duplicate(header, now_s)
            if known is not None:
                return self._repeat(known)
        size = len(view)
        accumulator = self._accumulator
        in_flight_bytes = self.queue.size_bytes + accumulator.size_bytes
        is_beyond = in_flight_bytes + size > self.limits.in_flight_bytes_max
        if is_beyond and in_flight_bytes and not header.is_control:
            raise self._no_room(header)  # callers that can wait have asked `has_room` before
        if accumulator.size_bytes and not accumulator.has_room(size):
            self._gather()
        base = self.offsets.log_end
        if self.batch_limits.log_append_time:
            set_ms = max_timestamp_ms = now_ms
            prefix = stamp_log_append_time(view, header, base, self._leader_epoch, now_ms)
            rest = view[HEADER_BYTES:]
        else:
            set_ms, max_timestamp_ms = -1, header.max_timestamp
            if checked.is_corrected:
                prefix = stamp_changed(view, header, base, self._leader_epoch)
                rest = view[HEADER_BYTES:]
            else:
                prefix = stamp(base, header.batch_length, self._leader_epoch)
                rest = view[STAMP_BYTES:]
        end = Offset(base + header.record_count)
        whole: Any = view.obj
        is_small = size < self.limits.copy_below_bytes or 2 * size < len(whole)
        append = Append(
            base,
            end,
            (b"".join((prefix, rest)),) if is_small else (prefix, rest),
            size,
            log_append_time_ms=set_ms,
        )
        accumulator.add(append)
        if header.producer_id >= 0:
            self._gaps.on_accepted(header.producer_id)
            if header.attributes & TRANSACTIONAL_BIT:
                self._fold_in(header, batch, base, now_ms, set_ms)
            else:
                self.producers.accept(header, base, now_ms, set_ms)
        self.offsets.on_accepted(end)
        self.active.on_batch(base, end, size, max_timestamp_ms)
        return append

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes stays within the partition's limit. A batch larger than
        the limit has room when nothing else is unconfirmed."""
        in_flight_bytes = self.queue.size_bytes + self._accumulator.size_bytes
        return not in_flight_bytes or in_flight_bytes + size <= self.limits.in_flight_bytes_max

    def refuse(self, batch: Buffer) -> Overloaded:
        """Return the error for a batch that has waited for room in vain.

        Raises as `append`, but reads no records: nothing is stored.
        """
        return self._no_room(check_header(memoryview(batch), self.batch_limits))

    def _no_room(self, header: BatchHeader) -> Overloaded:
        if header.producer_id >= 0:
            self._gaps.on_no_room(header)
        return Overloaded(
            f"{self._name} has {self.in_flight_bytes} unconfirmed bytes, and"
            f" {self.active.size_bytes} in its segment"
        )

    def _look(
        self,
        checked: CheckedBatch,
        batch: Buffer,
        now_s: float,
        transaction: ProducerTransaction | None,
        *,
        from_client: bool,
    ) -> Append | None:
        """Check a batch in a partition with transactions; None: it may be accepted now if its
        sequence is right.

        The epoch is checked first: a fenced producer gets its error without asking a coordinator. A
        batch that is already in the log does not open a transaction again.
        """
        header = checked.header
        producer_id, held, transactions = header.producer_id, self.held, self.fold.transactions
        if header.is_control:
            return None  # a marker: checked by whoever wrote it
        if header.is_transactional:
            if transaction is None and from_client:
                raise InvalidTransactionState(producer_id, "no transaction is open")
            if producer_id in transactions and not transactions.needs_verification(header):
                return None  # its transaction is open
        self.producers.check_epoch(header)
        if header.is_transactional:
            if transaction is not None and transaction.is_verified:
                self._check_beginning(header, now_s, transaction)
                return None
            repeated = self.producers.find_repeated(header)
            if repeated is not None:
                return self._repeat(repeated)
            self._check_behind(header)
        must_ask = self._must_ask(header)
        if not must_ask and producer_id not in held:
            return None
        if transaction is None or not header.is_transactional:
            raise InvalidTransactionState(producer_id, "its transaction is being verified")
        if header.size < self.limits.copy_below_bytes:
            batch = bytes(batch)
        append = HeldAppend(batch, checked, transaction, from_client=from_client)
        append.guard = held.hold(header, append)
        self.fold.has_transactions = True
        return append

    def _must_ask(self, header: BatchHeader) -> bool:
        """Whether a coordinator must verify a batch; raises as `needs_verification`. While too many
        transactions are open, there is no room for it: the producer's next batches must wait."""
        try:
            return self.fold.transactions.needs_verification(header)
        except NotEnoughReplicas:
            self._gaps.on_no_room(header)
            raise

    def _check_behind(self, header: BatchHeader) -> None:
        """Raise OutOfOrderSequence for a batch that comes too late to be accepted in any case.

        If it were held, the producer's next batches would be refused together with it.
        """
        try:
            self.producers.find_duplicate(header)
        except OutOfOrderSequence as error:
            if not is_gap(error.first, error.expected):
                raise

    def _check_beginning(
        self, header: BatchHeader, now_s: float, transaction: ProducerTransaction
    ) -> None:
        """Raise OutOfOrderSequence unless a new epoch of a TV2 producer begins with sequence 0;
        NotEnoughReplicas if too many transactions are open: others may have begun meanwhile."""
        self._must_ask(header)
        first = header.base_sequence
        is_new = transaction.is_tv2 and header.producer_id not in self.producers
        if not is_new or first <= 0 or self._gaps.lacked_room(header):
            return
        if not self._gaps.may_follow_refused(header, now_s):
            raise OutOfOrderSequence(
                header.producer_id,
                f"its transaction begins with sequence {first}, expected 0",
                first=first,
                expected=0,
            )

    def _fold_in(
        self, header: BatchHeader, batch: Buffer, base: Offset, now_ms: int, set_ms: int
    ) -> None:
        """Data of a transaction, or a marker, was accepted at offset `base`."""
        segment = self.active.transactions
        if header.is_control:
            self.fold.on_marker(read_marker(batch), base, now_ms, segment)
        else:
            self.fold.on_data(header, base, now_ms, set_ms, segment)

    def _find_duplicate(self, header: BatchHeader, now_s: float) -> AcceptedBatch | None:
        """Return the batch that this one repeats; None: accept it.

        Raises SequenceError; NotLeader or Overloaded if the missing batches before it were refused.
        """
        is_unknown = header.base_sequence > 0 and header.producer_id not in self.producers
        if is_unknown and self._gaps.may_follow_refused(header, now_s):
            raise self._not_yet(header)
        if is_unknown and self._gaps.lacked_room(header):
            raise self._overtakes()
        try:
            return self.producers.find_duplicate(header)
        except OutOfOrderSequence as error:
            is_ahead = is_gap(error.first, error.expected)
            if is_ahead and self._gaps.may_follow_refused(header, now_s):
                raise self._not_yet(header) from error
            if is_ahead and self._gaps.lacked_room(header):
                raise self._overtakes() from error
            raise

    def _overtakes(self) -> Overloaded:
        return Overloaded(f"{self._name} had no room for the batch before this one")

    def _not_yet(self, header: BatchHeader) -> NotLeader:
        return NotLeader(
            f"{self._name} was taken over just now: producer {header.producer_id} must resend"
            f" everything from before sequence {header.base_sequence}, then this batch"
        )

    def _repeat(self, known: AcceptedBatch) -> Append:
        """Return the original append of a duplicate while that is unconfirmed, else a completed
        one."""
        original = self._find_under_way(known.base_offset)
        if original is not None:
            return original
        done = Append(
            known.base_offset, known.next_offset, (), 0, log_append_time_ms=known.timestamp_ms
        )
        done.complete()
        return done

    def _find_under_way(self, base_offset: Offset) -> Append | None:
        for append in chain(self.queue.appends(), self._accumulator):
            if append.base_offset == base_offset:
                return append
        return None

    # --- share groups -------------------------------------------------------------------

    def change_share(self, update: ShareUpdate) -> Append:
        """Store a change of a share group, which the fold has already; return what completes when
        it is confirmed."""
        self._share_changes.append(update)
        if self._shares_awaited is None:
            end = self.offsets.log_end
            self._shares_awaited = Append(end, end, (), 0)
        return self._shares_awaited

    def _write_shares(self) -> None:
        """Enqueue all changes of share groups that are in no entry yet, in as few as they fit."""
        self._gather()
        awaited, self._shares_awaited = self._shares_awaited, None
        changes, self._share_changes = self._share_changes, []
        end = self.offsets.log_end
        while changes:
            count = size = 0
            while count < len(changes) and (not size or size < self.limits.shared_entry_bytes_max):
                size += changes[count].size
                count += 1
            data = seal_updates(changes[:count], end, self._leader_epoch)
            del changes[:count]
            entry = LogEntry((), (data,), end, len(data))
            entry.awaited = None if changes else awaited
            self._push(entry)
            self.active.on_shares(len(data))

    # --- entries ------------------------------------------------------------------------

    def outgoing(self) -> Effects:
        """Return the effects that send accepted batches: now if they fill an entry, otherwise at
        the end of this turn of the loop."""
        accumulator, queue = self._accumulator, self.queue
        if accumulator.size_bytes:
            if accumulator.is_full:
                self._gather()
            if self._is_send_planned:
                return SEND if queue.waiting else NOTHING
            if accumulator.may_leave(queue.entries_under_way):
                self._is_send_planned = True
                return SEND_AND_PLAN if queue.waiting else PLAN
        if self._share_changes and self._may_write_shares and not self._is_send_planned:
            self._is_send_planned = True
            return SEND_AND_PLAN if queue.waiting else PLAN
        return SEND if queue.waiting else NOTHING

    @property
    def _may_write_shares(self) -> bool:
        """Whether changes of share groups may leave: more may come while entries are on their way,
        and are better sent together."""
        return self.queue.entries_under_way < self.limits.entries_before_sharing

    def on_turn_over(self) -> Effects:
        """The turn of the loop in which `PlanSend` was returned is over. Has no effect if the
        leadership has ended meanwhile: nothing is waiting then."""
        self._is_send_planned = False
        if self._accumulator.may_leave(self.queue.entries_under_way):
            self._gather()
        if self._share_changes and self._may_write_shares:
            self._write_shares()
            if self.active.snapshot_due:
                self.write_snapshot()
        return SEND if self.queue.waiting else NOTHING

    def on_confirmed(self) -> LogEntry:
        """The ledger confirmed its oldest entry: return it."""
        entry = self.queue.pop()
        self.offsets.on_confirmed(entry.end_offset)
        if self.fold.has_transactions:
            self.fold.transactions.on_confirmed(entry.end_offset)
        if entry.appends:
            self.offsets.newest_ms = entry.newest_ms
        else:
            self.has_own_snapshot = True
        return entry

    def write_snapshot(self) -> None:
        """Enqueue a snapshot of everything accepted so far."""
        if self._share_changes:
            self._write_shares()
        self._gather()
        active = self.active
        end = self.offsets.log_end
        state, has_transactions = self.fold.encode(active.transactions)
        data = seal_snapshot(
            end,
            self._leader_epoch,
            active.max_timestamp_ms,
            active.points,
            state,
            active.transactions.snapshot(is_first=active.entry_count == 0)
            if has_transactions
            else None,
            has_shares=bool(self.fold.shares),
        )
        self._push(LogEntry((), (data,), end, len(data)))
        active.on_snapshot(len(data))

    def _write_block(self) -> None:
        """Enqueue a block of all aborted transactions that are in no block yet."""
        active = self.active
        end = self.offsets.log_end
        data = seal_block(active.transactions.aborted.rest, end, self._leader_epoch)
        self._push(LogEntry((), (data,), end, len(data)))
        active.on_block(len(data))

    def _gather(self) -> None:
        """Enqueue an entry with the accumulated batches."""
        if self._accumulator:
            entry = self._accumulator.take()
            entry.newest_ms = self.active.max_timestamp_ms
            self._push(entry)
            self.active.on_entry()
            if self.fold.has_transactions and self.active.transactions.is_block_due:
                self._write_block()
            if self.active.snapshot_due:
                self.write_snapshot()

    def _push(self, entry: LogEntry) -> None:
        entry.entry_id = EntryId(self.active.entry_count)
        self.queue.push(entry)

    # --- changes of ledgers -------------------------------------------------------------

    def finish_segment(self) -> None:
        """End the segment with a snapshot, so that opening it takes reading one entry."""
        if self._share_changes:
            self._write_shares()
        if self.active.has_batches_after_snapshot:
            self.write_snapshot()

    def hold(self, next_ledger_id: LedgerId, now_ms: int) -> ActiveSegment:
        """Begin the next segment; return the previous one: complete, but not yet confirmed."""
        self._gather()
        self.queue.hold()
        previous = self.active
        previous.transactions.stable_at = self.fold.transactions.first_open(self.offsets.log_end)
        self.active = ActiveSegment(next_ledger_id, self.offsets.log_end, now_ms, self.limits)
        self.write_snapshot()
        return previous

    def switch(self) -> None:
        """The previous ledger has confirmed everything: send held entries to the next ledger."""
        self.queue.release()
        self.has_own_snapshot = False
        self.offsets.newest_ms = -1

    def drain(self) -> list[Append]:
        """Remove and return every append that is not confirmed."""
        awaited, self._shares_awaited = self._shares_awaited, None
        self._share_changes.clear()
        return [
            *self.queue.drain(),
            *self._accumulator.drain(),
            *(() if awaited is None else (awaited,)),
        ]
