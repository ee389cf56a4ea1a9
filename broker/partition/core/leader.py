"""The leader of one partition: accepts appends, changes the segment list, ends its leadership.

Inputs return effects (`leader_effects.py`), which the shell carries out in order before its next
input. `log_state.py` tracks what was accepted and confirmed; this module decides what follows.

    OPEN      accepts appends, and changes of the list
    CLOSING   a graceful end: accepted appends get confirmed, new ones are refused
    ENDED     closed, or lost: appends that were not confirmed have an unknown outcome

One change is made at a time; each begins from the version that the last one left:

    stage      input              becomes    effects
    -          Roll               CREATING   CreateLedger
    CREATING   LedgerCreated      LISTING    ChangeList
    CREATING   LedgerRefused      -          ChangeDone: the log goes on in the active ledger
    LISTING    ListChanged        DRAINING   the segment's last entry, BeginSegment
    LISTING    ListLost           DISCARDING Ended, DiscardLedger
    DRAINING   last confirmation  SEALING    SwitchLedger, SendEntries, CloseLedger (previous)
    SEALING    LedgerNotClosed    SEALING    CloseLedger again if there was no answer, else Ended
    SEALING    LedgerClosed       FACTS      ChangeList
    FACTS      ListChanged        -          ChangeDone
    -          Trim, Maintain     UNFOLDING  UnfoldList, if the oldest segments are in a page
                                  TRIMMING   ChangeList, otherwise
    UNFOLDING  ListUnfolded       TRIMMING   ChangeList
    TRIMMING   ListChanged        DELETING   DeleteLedgers
    -          Compact, Release,  LOCATING   ReadTrail, if segments of a page are replaced
               Offload
                                  TRIMMING   ChangeList, otherwise
    LOCATING   TrailRead          TRIMMING   ChangeList, or ChangeDone if the list has changed
    DELETING   LedgersDeleted     -          ChangeDone
    DISCARDING LedgersDeleted     -          ChangeDone
    -          Close              FINISHING  the segment's last entry
    FINISHING  last confirmation  CLOSING    CloseLedger
    CLOSING    LedgerClosed       -          ChangeDone, Ended
    any        end, ListLost      -          Ended

A leader for which no ledger could be created (READ-ONLY) refuses appends and rolls. Everything else
goes on, so that a trim can free space. It does not get a ledger later: it ends, and the takeover
that follows creates one.

Rules, by the names that TAKEOVER.md and the tests use:

    LIST-FIRST       nothing is sent to a ledger before it is listed.
    DRAIN            nothing is sent to the next ledger before the previous one is complete.
    ONE-ROLL         a roll begins after the last step of the previous one: at most two are open.
    LIST-THEN-DELETE ledgers are deleted only after they were removed from the list.
    PAGE-BY-PAGE     a trim drops at most one page; the rest follows after changes that are waiting.
    COMPACT-CAS      a compacted segment is listed only if its originals are still in place.
    GRACE            a replaced ledger stays listed as retired until no reader uses it any more.
    BURST            a segment grows by a tenth while it is rolled; further batches wait.
    OWN-SNAPSHOT     no segment is dropped before a snapshot in the active ledger has its state.
    READ-ONLY        without a ledger, everything but appends and rolls goes on.
    RESIGN, UNKNOWN  any failure ends the leadership, with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from broker.cluster.core.topic_config import TopicConfig
from broker.errors import (
    LeadershipLost,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    SegmentsChanged,
)
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import Append
from broker.partition.core.batch_checks import BatchLimits, CheckedBatch
from broker.partition.core.held_batches import ProducerTransaction
from broker.partition.core.leader_effects import (
    NOTHING,
    AdoptList,
    BeginSegment,
    Change,
    ChangeDone,
    ChangeList,
    Close,
    CloseLedger,
    Compact,
    CreateLedger,
    DiscardLedger,
    Effect,
    Effects,
    Ended,
    LedgerClosed,
    LedgerCreated,
    LedgerNotClosed,
    LedgerRefused,
    LedgersDeleted,
    ListChanged,
    ListLost,
    ListUnfolded,
    Maintain,
    Now,
    Offload,
    ReadTrail,
    Release,
    Roll,
    RollListed,
    RollSealed,
    RollUnanswered,
    Stage,
    State,
    StepOutcome,
    SwitchLedger,
    TrailRead,
    Trim,
    UnfoldList,
)
from broker.partition.core.log_limits import UNLIMITED, SegmentLimits
from broker.partition.core.log_state import LogState
from broker.partition.core.segments.list_changes import (
    ListUpdate,
    compacted,
    offloaded,
    released,
    trimmed,
)
from broker.partition.core.segments.retention import looks_into_pages
from broker.partition.core.takeover import Recovered
from client.errors import QuireError
from client.log.compacted import page_of, page_with
from client.log.offloaded import last_of
from client.log.segment_pages import NewPage
from client.log.segments import SegmentList, paged
from client.wire.kafka.batches.records import Buffer

_ROLL_SHARE: Final = 10
"""A segment may grow by a tenth of its size while it is rolled."""
RETRY_S: Final = 1.0
"""Delay before a failed roll, or the closing of a rolled ledger, is retried."""


class PartitionLeader:
    """Makes the decisions for one led partition. Owned and called by one shell only."""

    def __init__(
        self,
        name: str,
        log: LogState,
        segments: SegmentList,
        version: int,
        *,
        list_bytes_max: int = 1 << 20,
        recovered: Recovered | None = None,
    ) -> None:
        """`version`: of the metadata node that holds `segments`. `list_bytes_max`: a partition with
        a longer list is not rolled any more. `recovered`: what `segments` does not say, of a leader
        without a ledger; None: it has one."""
        self._list_bytes_max = list_bytes_max
        self._recovered = recovered
        self.state = State.OPEN
        self.stage = Stage.NONE
        self.log = log
        self.segments = segments
        """The list as stored; after a roll's switch, already with the facts that its last step
        stores."""
        self._name = name
        self._version = version
        self._limits = SegmentLimits()
        self._segment_bytes_max = self._limits.segment_bytes
        """Size up to which appends go on into the active segment while it is rolled."""
        self._asked: list[Change] = []
        self._change: Change | None = None
        """The change in progress."""
        self._wanted = segments
        """The list that the compare-and-set in progress stores."""
        self._update: ListUpdate | None = None
        """The update of the trim, swap or release in progress."""
        self._previous: ActiveSegment | None = None
        """The segment before the active one, while a roll completes it."""
        self._roll_not_before_s = float("-inf")
        self._error: LeadershipLost | None = None
        """Why the leadership ended."""

    def configure(self, config: TopicConfig) -> None:
        """Apply the topic's current configuration."""
        self.log.batch_limits = BatchLimits(
            batch_bytes_max=config.max_message_bytes,
            entry_bytes_max=self.log.limits.entry_bytes_max,
            segment_bytes=config.segment_bytes,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            log_append_time=config.log_append_time,
            keys_required=config.compacts,
            compression=config.compression,
            inflated_record_bytes_max=config.max_decompressed_message_bytes,
        )
        self._limits = SegmentLimits(
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms_max,
            retention_ms=config.retention_ms if config.deletes else UNLIMITED,
            retention_bytes=config.retention_bytes if config.deletes else UNLIMITED,
        )
        self._segment_bytes_max = config.segment_bytes + config.segment_bytes // _ROLL_SHARE

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole log, each counted once."""
        return self.segments.size_bytes + self.log.active.size_bytes

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes need not wait, neither for confirmations of others nor
        for a roll: a burst must not go on into a segment that is full (BURST)."""
        active = self.log.active
        if (
            active.size_bytes + size > self._segment_bytes_max
            and self.is_rolling
            and active.end_offset > active.base_offset
        ):
            return False
        return self.log.has_room(size)

    @property
    def is_read_only(self) -> bool:
        """Whether there is no ledger to append to."""
        return self._recovered is not None

    @property
    def readable(self) -> SegmentList:
        """The list as readers need it: with what is known of its segments and not stored."""
        known = self._recovered
        if known is None:
            return self.segments
        listed = {segment.ledger_id for segment in self.segments.segments}
        return self.segments.with_facts({one: known[one] for one in known if one in listed})

    def check_open(self) -> None:
        """Raise NotLeader unless we lead."""
        if self.state is not State.OPEN:
            raise NotLeader(f"{self._name} is {self.state.value}")

    def check_writable(self) -> None:
        """Raise NotLeader unless we lead, NotEnoughReplicas unless there is a ledger."""
        self.check_open()
        if self.is_read_only:
            raise NotEnoughReplicas(
                f"{self._name} is read-only: too few bookies accept entries, for want of space or"
                " because they are down"
            )

    # --- the append path ----------------------------------------------------------------

    def start(self) -> Effects:
        """Begin to lead: the first entry of the ledger is a snapshot."""
        if self.is_read_only:
            return NOTHING
        self.log.write_snapshot()
        return self.log.outgoing()

    def append(
        self,
        batch: Buffer,
        now_ms: int,
        now_s: float,
        *,
        from_client: bool = True,
        checked: CheckedBatch | None = None,
        transaction: ProducerTransaction | None = None,
    ) -> tuple[Append, Effects]:
        """Accept a batch; its bytes must not change afterwards. Raises as `LogState.append`."""
        if self.state is not State.OPEN or self._recovered is not None:
            self.check_writable()
        log = self.log
        append = log.append(
            batch, now_ms, now_s, from_client=from_client, checked=checked, transaction=transaction,
        )  # fmt: skip
        effects = log.outgoing()
        if log.active.size_bytes >= self._limits.segment_bytes:
            effects = [*effects, *self.roll_soon(Now(now_ms, now_s))]
        return append, effects

    def on_confirmed(self) -> Effects:
        """The ledger confirmed its oldest entry."""
        if self.state is State.ENDED:
            return NOTHING
        log = self.log
        entry = log.on_confirmed()
        outgoing = log.outgoing()
        if self._change is not None:
            return [entry, *outgoing, *self._on_drained()]
        return (entry, *outgoing) if outgoing else (entry,)

    # --- changes ------------------------------------------------------------------------

    def ask(self, change: Change, now: Now) -> Effects:
        """Make a change after those requested before. It ends with `ChangeDone`, or with the end of
        the leadership. Errors: NotEnoughReplicas and Overloaded (the log goes on in the active
        ledger), NotLeader, LeadershipLost."""
        if self.state is State.ENDED:
            error = NotLeader(f"this broker no longer leads {self._name}")
            return (ChangeDone(change.ticket, error),)
        if isinstance(change, Close):
            self.state = State.CLOSING
        effects: list[Effect] = []
        if isinstance(change, Maintain):
            self.log.producers.expire(now.ms)
            if self.log.active.roll_due(self._limits, now.ms):
                effects += self.roll_soon(now)
            if self._change is not None:
                return [*effects, ChangeDone(change.ticket)]
        self._asked.append(change)
        return [*effects, *self._begin_next(now)]

    def withdraw(self, ticket: int) -> bool:
        """Take back a change that was asked for; False: it has begun, and will be made."""
        for change in self._asked:
            if change.ticket == ticket:
                self._asked.remove(change)
                return True
        return False

    @property
    def is_rolling(self) -> bool:
        """Whether a roll is in progress or waits for another change."""
        return any(isinstance(change, Roll) for change in (*self._asked, self._change))

    def roll_soon(self, now: Now) -> Effects:
        """Roll, unless a roll is in progress already or has just failed."""
        if self.is_rolling or self.state is not State.OPEN or now.s < self._roll_not_before_s:
            return NOTHING
        return self.ask(Roll(0), now)

    def on_outcome(self, outcome: StepOutcome, now: Now) -> Effects:
        """A step has ended."""
        change = self._change
        if change is None:
            return NOTHING  # the leadership ended meanwhile
        match outcome:
            case LedgerCreated(ledger_id):
                self.stage = Stage.LISTING
                rolled = self.segments.rolled(ledger_id, now.ms)
                entries = self.log.limits.segment_page_entries
                return self._change_list(*paged(rolled, ledger_id, entries))
            case LedgerRefused(error):
                return self._done(
                    now, NotEnoughReplicas(f"{self._name}: cannot create a ledger: {error!r}")
                )
            case ListChanged(version):
                return self._on_list_changed(version, now)
            case ListLost(error):
                return self._on_list_lost(change, error)
            case ListUnfolded():
                return self._trim(change, outcome, now)
            case TrailRead():
                if isinstance(change, Offload):
                    return self._offload(change, outcome, now)
                return self._swap(change, outcome, now)
            case LedgerClosed():
                return self._on_ledger_closed(change)
            case LedgerNotClosed():
                return self._on_ledger_not_closed(change, outcome)
            case LedgersDeleted():
                return self._on_deleted(now)
        assert_never(outcome)

    def end(self, reason: str) -> Effects:
        """Stop leading at once. Unconfirmed appends fail with an unknown outcome."""
        if self.state is State.ENDED:
            return NOTHING
        is_lost = self.state is State.OPEN
        self.state = State.ENDED
        self.stage = Stage.NONE
        changes = [*self._asked] if self._change is None else [self._change, *self._asked]
        self._change = None
        self._asked.clear()
        self._error = LeadershipLost(f"{self._name}: {reason}")
        tickets = [change.ticket for change in changes]
        return (Ended(reason, self._error, self.log.drain(), tickets, is_lost),)

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        self.log.offsets.check()
        self.segments.check()
        assert (self.stage is Stage.NONE) == (self._change is None)
        assert self._change is not None or not self._asked, "a change waits although none is made"
        assert self.state is not State.ENDED or self.stage in (Stage.NONE, Stage.DISCARDING)
        assert self.is_read_only or (
            self.segments.segments[-1].ledger_id == self.log.active.ledger_id
        )

    def _begin_next(self, now: Now) -> Effects:
        effects: list[Effect] = []
        while self._change is None and self._asked:
            self._change = self._asked.pop(0)
            effects += self._begin(self._change, now)
        return effects

    def _begin(self, change: Change, now: Now) -> Effects:
        match change:
            case Roll():
                return self._begin_roll(now)
            case Trim() | Maintain():
                return self._begin_trim(change, now)
            case Compact():
                return self._begin_swap(change, now)
            case Release():
                return self._write(released(change, self.segments), now)
            case Offload():
                return self._begin_offload(change, now)
            case Close() if self.is_read_only:
                self._change = None
                return [ChangeDone(change.ticket), *self.end("closed")]
            case Close():
                self.log.finish_segment()
                self.stage = Stage.FINISHING
                return [*self.log.outgoing(), *self._on_drained()]
        assert_never(change)

    def _done(self, now: Now, error: QuireError | None = None) -> Effects:
        """The change in progress is done; the next one begins."""
        change, self._change = self._change, None
        assert change is not None
        self.stage = Stage.NONE
        if error is not None and isinstance(change, Roll):
            self._roll_not_before_s = now.s + RETRY_S
        return [ChangeDone(change.ticket, error), *self._begin_next(now)]

    def _lose(self, change: Change, reason: str) -> Effects:
        """The change in progress has shown that another broker leads."""
        self._change = None
        effects = self.end(reason)
        return [*effects, ChangeDone(change.ticket, self._error)]

    def _change_list(self, wanted: SegmentList, pages: Sequence[NewPage] = ()) -> Effects:
        self._wanted = wanted
        return (ChangeList(wanted, self._version, pages),)

    def _on_list_changed(self, version: int, now: Now) -> Effects:
        self.segments = self._wanted
        self._version = version
        if self.stage is Stage.LISTING:
            return self._hold(now)
        if self.stage is Stage.FACTS:
            return self._on_facts_listed(now)
        assert self.stage is Stage.TRIMMING, self.stage
        return self._on_updated(now)

    def _on_list_lost(self, change: Change, error: QuireError) -> Effects:
        is_roll = self.stage is Stage.LISTING
        effects = self._lose(change, f"lost the segment list: {error!r}")
        if not is_roll:
            return effects
        # No other broker knows of our new ledger. The roll is done once that is cleaned up.
        self._change = change
        self.stage = Stage.DISCARDING
        ledger_id = self._wanted.segments[-1].ledger_id
        return [*effects[:-1], DiscardLedger(ledger_id, self._version)]

    # --- roll ---------------------------------------------------------------------------

    def _begin_roll(self, now: Now) -> Effects:
        if self.is_read_only:
            return self._done(now, NotEnoughReplicas(f"{self._name} is read-only"))
        if len(self.segments.encode()) > self._list_bytes_max:
            return self._done(
                now, Overloaded(f"{self._name} has too many segments: increase segment.bytes")
            )
        self.stage = Stage.CREATING
        return (CreateLedger(self.segments.leader_epoch),)

    def _hold(self, now: Now) -> Effects:
        """The next ledger is listed: new appends belong to its segment, and are held back."""
        ledger_id = self.segments.segments[-1].ledger_id
        log = self.log
        log.finish_segment()
        self._previous = log.hold(ledger_id, now.ms)
        self.stage = Stage.DRAINING
        return [
            AdoptList(self.segments),
            RollListed(ledger_id),
            BeginSegment(log.active),
            *log.outgoing(),
            *self._on_drained(),
        ]

    def _on_drained(self) -> Effects:
        """Continue the change if it waits for the ledger to be drained."""
        log = self.log
        if not log.queue.is_drained:
            return NOTHING
        if self.stage is Stage.FINISHING:
            self.stage = Stage.CLOSING
            return (CloseLedger(log.active.ledger_id),)
        if self.stage is not Stage.DRAINING:
            return NOTHING
        assert self._previous is not None
        log.switch()
        self.segments = self.segments.sealed(self._previous.facts())
        self.stage = Stage.SEALING
        return [
            SwitchLedger(log.active.ledger_id),
            *log.outgoing(),
            AdoptList(self.segments),
            CloseLedger(self._previous.ledger_id),
        ]

    def _on_ledger_closed(self, change: Change) -> Effects:
        if self.stage is Stage.SEALING:
            self.stage = Stage.FACTS
            return self._change_list(self.segments)
        assert self.stage is Stage.CLOSING, self.stage
        self._change = None
        return [ChangeDone(change.ticket), *self.end("closed")]

    def _on_ledger_not_closed(self, change: Change, outcome: LedgerNotClosed) -> Effects:
        error = outcome.error
        if self.stage is Stage.CLOSING:
            self._change = None
            return [
                ChangeDone(change.ticket, error),
                *self.end(f"not closed gracefully: {error!r}"),
            ]
        assert self._previous is not None
        ledger_id = self._previous.ledger_id
        if outcome.is_unanswered:
            return RollUnanswered(ledger_id, error), CloseLedger(ledger_id, RETRY_S)
        return self._lose(change, f"lost ledger {ledger_id}: {error!r}")

    def _on_facts_listed(self, now: Now) -> Effects:
        previous, self._previous = self._previous, None
        assert previous is not None
        return [RollSealed(previous.ledger_id, previous.facts()), *self._done(now)]

    # --- trim ---------------------------------------------------------------------------

    def _begin_trim(self, change: Trim | Maintain, now: Now) -> Effects:
        listed = self.segments
        start = change.before if isinstance(change, Trim) else None
        if self.log.has_own_snapshot and looks_into_pages(listed, self._limits, start):
            self.stage = Stage.UNFOLDING
            return (UnfoldList(listed),)
        return self._trim(change, ListUnfolded(listed), now)

    def _trim(self, change: Change, unfolded: ListUnfolded, now: Now) -> Effects:
        assert isinstance(change, Trim | Maintain)
        wanted = trimmed(change, self.segments, unfolded, self.log, self._limits, now)
        return self._write(wanted, now)

    def _write(
        self, update: ListUpdate | None, now: Now, error: QuireError | None = None
    ) -> Effects:
        """Store an updated list; None: there is nothing to do, because of `error`."""
        if update is None:
            return self._done(now, error)
        self._update = update
        self.stage = Stage.TRIMMING
        return self._change_list(update.segments, update.pages)

    def _on_updated(self, now: Now) -> Effects:
        assert self._update is not None
        dropped, report = self._update.dropped, self._update.report
        self.log.offsets.on_trimmed(self.segments.log_start_offset)
        effects: list[Effect] = [AdoptList(self.readable), report]
        if not (dropped.ledger_ids or dropped.pages):
            return [*effects, *self._done(now)]
        self.stage = Stage.DELETING
        return [*effects, dropped]

    def _on_deleted(self, now: Now) -> Effects:
        is_trim = isinstance(self._change, Trim | Maintain)
        if self.stage is Stage.DELETING and self.segments.page_count and is_trim:
            assert self._change is not None
            self._asked.append(self._change._replace(ticket=0))  # the next page may have more
        return self._done(now, self._error)

    # --- compaction ---------------------------------------------------------------------

    def _begin_swap(self, change: Compact, now: Now) -> Effects:
        swap = change.swap
        if swap is not None and page_of(self.segments, swap) is not None:
            self.stage = Stage.LOCATING
            return (ReadTrail(self.segments, swap.last_offset),)
        return self._swap(change, TrailRead(()), now)

    def _swap(self, change: Change, found: TrailRead, now: Now) -> Effects:
        assert isinstance(change, Compact)
        error = SegmentsChanged(f"{self._name}: the segments have changed since the round began")
        return self._write(compacted(change, self.segments, found, now), now, error)

    # --- offload ------------------------------------------------------------------------

    def _begin_offload(self, change: Offload, now: Now) -> Effects:
        step = change.step
        at = last_of(step)
        if at is not None and page_with(self.segments, at) is not None:
            self.stage = Stage.LOCATING
            return (ReadTrail(self.segments, at),)
        return self._offload(change, TrailRead(()), now)

    def _offload(self, change: Offload, found: TrailRead, now: Now) -> Effects:
        error = SegmentsChanged(f"{self._name}: the segments have changed meanwhile")
        return self._write(offloaded(change, self.segments, found, now), now, error)
