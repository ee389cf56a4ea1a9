"""The takeover of one partition, as a state machine without I/O.

The shell carries out each returned step, one at a time, and reports its outcome. TAKEOVER.md
numbers the steps and gives the reasons for them.

    state        input                        next        returned step
    CLAIMING     on_claimed                   READING     ReadList
    READING      on_list                      RECOVERING  Recover(last but one), or the next step
    RECOVERING   on_recovered                 RECOVERING  FindEnd(last)
                                              REPLAYING   Replay(newest needed), or the next step
    REPLAYING    on_replayed                  REPLAYING   Replay(the ledger before)
                                              PLANNING    PlanLedger
    PLANNING     on_planned, on_no_ledger     COMMITTING  Commit
    COMMITTING   on_commit(Committed)         LEADING     Serve
                 on_commit(CommitLost)        SETTLING    ReadBack, if an earlier outcome is unknown
                                              RESIGNED    Resign
                 on_commit(CommitUnknown)     SETTLING    ReadBack
                                              RESIGNED    Resign, without a ledger
    SETTLING     on_read_back                 LEADING     Serve: our ledger is last, at our version
                                              COMMITTING  Commit again: nothing has changed,
                                                          and it was not refused
                                              RESIGNED    Resign: it is not listed, or not last
    any          on_failed                    RESIGNED    Resign

The commit is one transaction: it closes the last ledger, creates ours and sets the list. It is the
only proof of leadership. Its outcome is determined by finding our own ledger id
in the list, never by the version alone, because a lost answer may hide a success.

With fewer writable bookies than an ack quorum there is no ledger to be had. Then the commit closes
the last ledger and sets the epoch, and that is all: the partition is led for reads (READ-ONLY),
until a takeover finds bookies again. The segments stay listed as they were, because what the first
snapshot of our ledger would say is written nowhere. Such a commit cannot be told from that of
another broker that had no ledger either, so an unknown outcome is given up (OWN-ID).

If a ledger was ended by recovery, its aborted transactions are listed in the first snapshot of our
ledger; its facts, which the commit stores, say so (LISTED-ONCE-MORE). A leader that commits but
never writes its first entry does not do that, so a takeover that finds such a ledger empty replays
the ledgers before it again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.partition.core.replay import LedgerTail
from client.errors import LocalProtocolError, LogCorrupt
from client.ids import NO_ENTRY, NO_LEDGER, EntryId, LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import LedgerAborted
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.segment_pages import NewPage
from client.log.segments import PAGE_ENTRIES, Paged, Segment, SegmentFacts, SegmentList, paged

RECOVER_LEDGERS: Final = 2
"""The last two: the old leader may still write to the last but one when it lists the last."""


class State(enum.Enum):
    """State of a takeover."""

    CLAIMING = "claiming"
    READING = "reading"
    RECOVERING = "recovering"
    REPLAYING = "replaying"
    PLANNING = "planning"
    COMMITTING = "committing"
    SETTLING = "settling"
    LEADING = "leading"
    RESIGNED = "resigned"


Recovered = Mapping[LedgerId, tuple[Offset, SegmentFacts]]
"""Base offset and facts of recovered ledgers."""


class Claim(NamedTuple):
    """Acquire the owner ephemeral: only a hint, so that few brokers compete."""


class ReadList(NamedTuple):
    """Read the segment list with its version."""


class Recover(NamedTuple):
    """Fence, recover and close a ledger. A missing ledger is a failure."""

    ledger_id: LedgerId


class FindEnd(NamedTuple):
    """Fence and recover a ledger; the commit closes it. A missing ledger is a failure."""

    ledger_id: LedgerId


class Replay(NamedTuple):
    """Replay a ledger up to its end (`core/replay.py`); report None if it has no entries."""

    ledger_id: LedgerId


class PlanLedger(NamedTuple):
    """Choose id and bookies of a ledger, which the commit creates; too few bookies are no
    failure."""

    leader_epoch: LeaderEpoch


class Commit(NamedTuple):
    """Create the pages. Then, all or nothing: close the last ledger where it was found to end,
    create ours, and set the list if its version is still the expected one."""

    segments: SegmentList
    expected_version: int
    pages: tuple[NewPage, ...] = ()


class Committed(NamedTuple):
    """It happened; this is the list's version."""

    version: int


class CommitLost(NamedTuple):
    """It was refused. The list or the last ledger has another version: another broker changed it,
    or we did, without getting the answer."""


class CommitUnknown(NamedTuple):
    """The answer was lost: it may have happened, or may still happen."""


CommitOutcome = Committed | CommitLost | CommitUnknown


class ReadBack(NamedTuple):
    """Read the list again, after a sync."""


class Serve(NamedTuple):
    """Lead: append to `ledger_id` with the new epoch; None: answer reads only."""

    segments: SegmentList
    """As committed."""
    version: int
    ledger_id: LedgerId | None
    tail: LedgerTail | None
    """Replay of the newest ledger with entries; None: the log never had an entry."""
    log_end_offset: Offset
    earlier: Mapping[LedgerId, LedgerAborted]
    """Aborted transactions of earlier ledgers, for our first snapshot."""
    recovered: Recovered
    """What `segments` does not say of its ledgers; empty if we have a ledger."""
    has_snapshot: bool
    """Whether the last ledger of the list has entries, so that a takeover needs no older one."""


class Resign(NamedTuple):
    """Stop; the caller decides whether to try again."""

    reason: str


Step = (
    Claim | ReadList | Recover | FindEnd | Replay | PlanLedger | Commit | ReadBack | Serve | Resign
)


class Takeover:
    """One attempt to lead one partition."""

    def __init__(self, page_entries: int = PAGE_ENTRIES) -> None:
        """`page_entries`: segments, or pages, per page of the list."""
        self.state = State.CLAIMING
        self._page_entries = page_entries
        self._list = SegmentList()
        self._version = -1
        self._to_recover: list[LedgerId] = []
        self._replay_index = -1
        self._tails: dict[LedgerId, LedgerTail | None] = {}
        self._ledger_id: LedgerId | None = None
        self._log_end = Offset(0)
        self._committed = Paged(SegmentList(), ())
        self._unlisted: Recovered = {}
        """What the committed list does not say of its ledgers."""
        self._earlier: dict[LedgerId, LedgerAborted] = {}
        """Indexes of aborted transactions for our first snapshot."""
        self._outcome_unknown = False
        self._is_refused = False
        """Whether it was refused since: for the last ledger if the list is unchanged, for good."""

    def start(self) -> Step:
        """Return the first step."""
        self._expect(State.CLAIMING)
        return Claim()

    def on_claimed(self) -> Step:
        """The owner ephemeral is ours."""
        self._expect(State.CLAIMING)
        self.state = State.READING
        return ReadList()

    def on_list(self, segments: SegmentList, version: int) -> Step:
        """The list was read; the takeover only succeeds at this version."""
        self._expect(State.READING)
        if segments.deleted:
            return self._resign("the topic was deleted")
        self._list = segments
        self._version = version
        self._to_recover = [item.ledger_id for item in segments.segments[-RECOVER_LEDGERS:]]
        self.state = State.RECOVERING
        return self._next_recovery()

    def on_recovered(self, ledger_id: LedgerId) -> Step:
        """Nothing can be added to the ledger, and where it ends was found."""
        self._expect(State.RECOVERING)
        assert self._to_recover[0] == ledger_id
        del self._to_recover[0]
        return self._next_recovery()

    def on_replayed(self, ledger_id: LedgerId, tail: LedgerTail | None) -> Step:
        """The ledger's end was replayed; None: it has no entries. Raises LogCorrupt."""
        self._expect(State.REPLAYING)
        assert self._list.segments[self._replay_index].ledger_id == ledger_id
        self._tails[ledger_id] = tail
        self._replay_index -= 1
        return self._next_replay()

    def on_planned(self, ledger_id: LedgerId, now_ms: int) -> Step:
        """Our ledger is planned; commit a list with it."""
        self._expect(State.PLANNING)
        self._ledger_id = ledger_id
        recovered = self._recover_facts(ledger_id)
        opened = self._list.opened(
            ledger_id, base_offset=self._log_end, created_ms=now_ms, recovered=recovered
        )
        self._committed = paged(opened, ledger_id, self._page_entries)
        return self._commit()

    def on_no_ledger(self) -> Step:
        """Too few bookies accept entries: commit a list without a ledger of ours."""
        self._expect(State.PLANNING)
        self._unlisted = self._recover_facts(NO_LEDGER)
        self._committed = Paged(self._list.led(), ())
        return self._commit()

    def on_commit(self, outcome: CommitOutcome) -> Step:
        """The compare-and-set has ended; with its success the leadership begins."""
        self._expect(State.COMMITTING)
        match outcome:
            case Committed(version):
                return self._serve(version)
            case CommitLost():
                if not self._outcome_unknown:
                    return self._resign("lost the compare-and-set")
                self._is_refused = True
            case CommitUnknown():
                if self._ledger_id is None:
                    return self._resign("whether the list names our epoch is unknown")
                self._outcome_unknown = True
        self.state = State.SETTLING
        return ReadBack()

    def on_read_back(self, segments: SegmentList, version: int) -> Step:
        """The list was read again: it shows the outcome of the unknown attempt."""
        self._expect(State.SETTLING)
        assert self._ledger_id is not None
        if segments.may_have(self._ledger_id):
            last = segments.segments[-1].ledger_id == self._ledger_id
            if last and version == self._version + 1:
                return self._serve(version)
            return self._resign("overtaken right after the compare-and-set")
        if version == self._version and not self._is_refused:
            return self._commit()
        return self._resign("lost the compare-and-set")

    def on_failed(self, reason: str) -> Step:
        """A step failed."""
        return self._resign(reason)

    def is_current(self, version: int) -> bool:
        """Whether `version` is still that of the list that this takeover has read."""
        return version == self._version

    def describe(self) -> str:
        """One stable line for logs and transcripts."""
        return f"state={self.state.value} version={self._version} ledger={self._ledger_id}"

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise LocalProtocolError(f"takeover is {self.state.value}, input is for {state.value}")

    def _next_recovery(self) -> Step:
        """Recover in list order: the older ledger's end is final before the newer one's."""
        if len(self._to_recover) > 1:
            return Recover(self._to_recover[0])
        if self._to_recover:
            return FindEnd(self._to_recover[0])
        self.state = State.REPLAYING
        self._replay_index = len(self._list.segments) - 1
        return self._next_replay()

    def _next_replay(self) -> Step:
        """Replay backwards until a ledger with entries was found, all unsealed ledgers were
        replayed, and all those whose aborted transactions our first snapshot must list."""
        while self._replay_index >= 0:
            segment = self._list.segments[self._replay_index]
            if segment.facts is None or self._newest_tail() is None or self._is_unlisted(segment):
                return Replay(segment.ledger_id)
            self._replay_index -= 1
        self._log_end = self._derive_end()
        self.state = State.PLANNING
        return PlanLedger(LeaderEpoch(self._list.leader_epoch + 1))

    def _recover_facts(self, ledger_id: LedgerId) -> Recovered:
        """Return the facts of all recovered ledgers; our first snapshot, in `ledger_id`, lists the
        aborted transactions that no snapshot of theirs lists."""
        recovered = {
            segment.ledger_id: facts for segment, facts in self._recovered() if facts is not None
        }
        for recovered_id, (_, facts) in recovered.items():
            tail, known = self._tails[recovered_id], facts.transactions
            place = known.aborted_at if known is not None else None
            if tail is not None and place is not None and place.ledger_id == ledger_id:
                self._earlier[recovered_id] = tail.transactions.aborted
        return recovered

    def _is_unlisted(self, segment: Segment) -> bool:
        """Whether the ledger that should list a sealed segment's aborted transactions is empty."""
        known = segment.facts.transactions if segment.facts is not None else None
        place = known.aborted_at if known is not None else None
        if place is None or place.ledger_id not in self._tails:
            return False
        return self._tails[place.ledger_id] is None

    def _newest_tail(self) -> LedgerTail | None:
        for segment in reversed(self._list.segments):
            tail = self._tails.get(segment.ledger_id)
            if tail is not None:
                return tail
        return None

    def _recovered(self) -> list[tuple[Segment, tuple[Offset, SegmentFacts] | None]]:
        """Pair each segment with its recovered (base, facts); None if the list has them already.

        Raises LogCorrupt if the ledgers are not consecutive.
        """
        expected = stable = self._list.log_start_offset
        result: list[tuple[Segment, tuple[Offset, SegmentFacts] | None]] = []
        for segment in self._list.segments:
            base = segment.base_offset if segment.base_offset is not None else expected
            tail = self._tails.get(segment.ledger_id)
            if tail is not None and tail.base_offset != base:
                raise LogCorrupt(
                    f"ledger {segment.ledger_id} begins at offset {tail.base_offset}, but the"
                    f" segment list says {base}"
                )
            facts = segment.facts
            if facts is not None:
                expected, stable = Offset(facts.last_offset + 1), facts.stable_offset
                is_unlisted = tail is not None and self._is_unlisted(segment)
                if tail is not None and is_unlisted:
                    known = tail.transactions.facts(expected, self._place(segment, tail))
                    facts = facts._replace(transactions=known)
                result.append((segment, (base, facts) if is_unlisted else None))
                continue
            expected = base if tail is None else tail.end_offset
            size = 0 if tail is None else tail.size_bytes
            newest = -1 if tail is None else tail.max_timestamp_ms
            if tail is not None:
                known = tail.transactions.facts(expected, self._place(segment, tail))
            else:
                is_open = stable < expected
                known = TransactionFacts(False, 0, None, stable) if is_open else None
            facts = SegmentFacts(Offset(expected - 1), size, newest, known)
            stable = facts.stable_offset
            result.append((segment, (base, facts)))
        return result

    def _place(self, segment: Segment, tail: LedgerTail) -> SnapshotPlace:
        """Return the snapshot that lists a ledger's aborted transactions: its last entry, or the
        first entry of our ledger."""
        if tail.last_snapshot != NO_ENTRY:
            return SnapshotPlace(segment.ledger_id, tail.last_snapshot)
        return SnapshotPlace(self._ledger_id or NO_LEDGER, EntryId(0))

    def _derive_end(self) -> Offset:
        """Return the end of the log. Raises LogCorrupt."""
        pairs = self._recovered()
        if not pairs:
            return self._list.log_start_offset
        segment, recovered = pairs[-1]
        facts = segment.facts if recovered is None else recovered[1]
        assert facts is not None
        return Offset(facts.last_offset + 1)

    def _commit(self) -> Step:
        self.state = State.COMMITTING
        return Commit(self._committed.segments, self._version, self._committed.pages)

    def _serve(self, version: int) -> Step:
        self.state = State.LEADING
        listed = self._list.segments
        return Serve(
            self._committed.segments,
            version,
            self._ledger_id,
            self._newest_tail(),
            self._log_end,
            self._earlier,
            self._unlisted,
            bool(listed) and self._tails.get(listed[-1].ledger_id) is not None,
        )

    def _resign(self, reason: str) -> Step:
        self.state = State.RESIGNED
        return Resign(reason)
