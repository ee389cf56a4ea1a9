"""The changes that a partition's leader is asked for, its effects, and the outcomes of its steps.

A *change* is a request to the leader. An *effect* is carried out by the shell, in the order in
which effects are returned. A *step* is an effect that takes I/O: exactly one *outcome* of it comes
back as an input, unless the leadership ends before. The leader itself has a *state*, and the change
in progress has a *stage*.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.errors import LeadershipLost
from broker.partition.core.active_segment import ActiveSegment
from broker.partition.core.append_queue import Append, LogEntry
from client.errors import QuireError
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log import offloaded
from client.log.compacted import Round, Swap
from client.log.segment_pages import NewPage, Page, PageRef
from client.log.segments import SegmentFacts, SegmentList


class State(enum.Enum):
    """State of the leadership; the table is in `leader.py`."""

    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


class Stage(enum.Enum):
    """Stage of the change in progress; the table is in `leader.py`."""

    NONE = "none"
    CREATING = "creating"
    LISTING = "listing"
    DISCARDING = "discarding"
    DRAINING = "draining"
    SEALING = "sealing"
    FACTS = "facts"
    UNFOLDING = "unfolding"
    TRIMMING = "trimming"
    LOCATING = "locating"
    DELETING = "deleting"
    FINISHING = "finishing"
    CLOSING = "closing"


class Now(NamedTuple):
    """The time of an input."""

    ms: int
    """Wall clock time, for stored timestamps."""
    s: float
    """The loop's time, for intervals."""


# --- changes: each has the ticket of its caller; 0 if no caller waits for it ----------------


class Roll(NamedTuple):
    """Continue the log in a new ledger."""

    ticket: int


class Trim(NamedTuple):
    """Move the log start up to `before`, and drop the segments below it."""

    ticket: int
    before: Offset


class Maintain(NamedTuple):
    """Do what is due by time: expire producers, roll, and drop expired segments unless a change is
    in progress."""

    ticket: int


class Compact(NamedTuple):
    """Replace segments by compacted ones, and record that a round is complete.

    Error: SegmentsChanged; nothing has happened then.
    """

    ticket: int
    swap: Swap | None
    done: Round | None = None


class Release(NamedTuple):
    """Delete ledgers that were replaced up to `before_ms`, wall clock time."""

    ticket: int
    before_ms: int


class Offload(NamedTuple):
    """Make a step on a segment's way to the object store.

    Error: SegmentsChanged; nothing has happened then.
    """

    ticket: int
    step: offloaded.Step


class Close(NamedTuple):
    """End the leadership gracefully."""

    ticket: int


Change = Roll | Trim | Maintain | Compact | Release | Offload | Close


# --- steps ----------------------------------------------------------------------------------


class CreateLedger(NamedTuple):
    """Create the next ledger. Outcomes: LedgerCreated, LedgerRefused."""

    leader_epoch: LeaderEpoch


class ChangeList(NamedTuple):
    """Create the pages, then compare-and-set the segment list. Outcomes: ListChanged, ListLost."""

    segments: SegmentList
    expected_version: int
    pages: Sequence[NewPage] = ()


class UnfoldList(NamedTuple):
    """Read the list's first page and unfold it: its segments become items of the list. Outcome:
    ListUnfolded."""

    segments: SegmentList


class ReadTrail(NamedTuple):
    """Read the path of pages from the list down to the one with an offset. Outcome: TrailRead."""

    segments: SegmentList
    offset: Offset


class CloseLedger(NamedTuple):
    """Close a ledger that is complete. Outcomes: LedgerClosed, LedgerNotClosed."""

    ledger_id: LedgerId
    delay_s: float = 0.0
    """How long to wait first."""


class DeleteLedgers(NamedTuple):
    """Delete ledgers and pages that are no longer listed. Outcome: LedgersDeleted."""

    ledger_ids: Sequence[LedgerId]
    pages: Sequence[PageRef] = ()


class DiscardLedger(NamedTuple):
    """Delete a ledger of ours if it is certainly not listed and never will be: the list has another
    version than the expected one and does not name it. Outcome: LedgersDeleted."""

    ledger_id: LedgerId
    version: int


LeaderStep = (
    CreateLedger | ChangeList | UnfoldList | ReadTrail | CloseLedger | DeleteLedgers | DiscardLedger
)


# --- outcomes -------------------------------------------------------------------------------


class LedgerCreated(NamedTuple):
    """The next ledger was created."""

    ledger_id: LedgerId


class LedgerRefused(NamedTuple):
    """The next ledger could not be created."""

    error: QuireError


class ListChanged(NamedTuple):
    """The list was changed as requested."""

    version: int


class ListLost(NamedTuple):
    """Another broker changed the list, or the outcome of our change is unknown."""

    error: QuireError


class ListUnfolded(NamedTuple):
    """The list with its first page unfolded, and the pages that it no longer needs once it is
    stored like that. The list is unchanged if the page cannot be read: nothing is dropped then."""

    segments: SegmentList
    opened: Sequence[PageRef] = ()


class TrailRead(NamedTuple):
    """The pages, beginning with the one that the list names; None: they cannot be read now."""

    pages: Sequence[Page] | None


class LedgerClosed(NamedTuple):
    """The ledger is closed at its last confirmed entry."""


class LedgerNotClosed(NamedTuple):
    """The ledger is not closed, or the outcome is unknown. `is_unanswered`: there was no answer, so
    retry."""

    error: QuireError
    is_unanswered: bool


class LedgersDeleted(NamedTuple):
    """The ledgers were deleted, or are left to the sweep of orphans."""


StepOutcome = (
    LedgerCreated
    | LedgerRefused
    | ListChanged
    | ListLost
    | ListUnfolded
    | TrailRead
    | LedgerClosed
    | LedgerNotClosed
    | LedgersDeleted
)


# --- effects that are carried out at once ---------------------------------------------------


class SendEntries(NamedTuple):
    """Send waiting entries of the queue while the ledger's writer has room."""


class PlanSend(NamedTuple):
    """Call `LogState.on_turn_over` when this turn of the loop is over."""


class BeginSegment(NamedTuple):
    """Appends belong to a new segment now: read it through the writer of its ledger."""

    active: ActiveSegment


class SwitchLedger(NamedTuple):
    """Entries go to this ledger from now on."""

    ledger_id: LedgerId


class AdoptList(NamedTuple):
    """Reads use this list from now on."""

    segments: SegmentList


class RollListed(NamedTuple):
    """The next ledger is listed."""

    ledger_id: LedgerId


class RollUnanswered(NamedTuple):
    """Closing the previous ledger got no answer; it is retried."""

    ledger_id: LedgerId
    error: QuireError


class RollSealed(NamedTuple):
    """The previous ledger is closed, and its facts are listed."""

    ledger_id: LedgerId
    facts: SegmentFacts


class Trimmed(NamedTuple):
    """These ledgers were removed from the list."""

    ledger_ids: Sequence[LedgerId]
    log_start: Offset


class Compacted(NamedTuple):
    """Compacted segments are listed, and their originals are retired; or a round is complete."""

    swap: Swap | None
    done: Round | None


class Released(NamedTuple):
    """These replaced ledgers are no longer listed."""

    ledger_ids: Sequence[LedgerId]


class Offloaded(NamedTuple):
    """A step on a segment's way to the object store is listed."""

    step: offloaded.Step


class ChangeDone(NamedTuple):
    """Tell the caller of a change its outcome."""

    ticket: int
    error: QuireError | None = None


class Ended(NamedTuple):
    """The leadership has ended: stop all steps, abandon all ledgers."""

    reason: str
    error: LeadershipLost
    appends: Sequence[Append]
    """Unconfirmed appends: whether they survive is unknown."""
    tickets: Sequence[int]
    """Tickets of changes that will not be made."""
    is_lost: bool
    """Whether the leadership was lost, and not closed on request."""


ChangeEffect = (
    BeginSegment
    | SwitchLedger
    | AdoptList
    | RollListed
    | RollUnanswered
    | RollSealed
    | Trimmed
    | Compacted
    | Released
    | Offloaded
    | ChangeDone
)
"""Effects of changes of the log."""

Effect = LogEntry | SendEntries | PlanSend | LeaderStep | ChangeEffect | Ended
"""A LogEntry is on its ack quorum: complete its appends, and the waits for its end offset."""

Effects = Sequence[Effect]

# Effects of the hot path, created once.
NOTHING: Final[Effects] = ()
SEND: Final[Effects] = (SendEntries(),)
PLAN: Final[Effects] = (PlanSend(),)
SEND_AND_PLAN: Final[Effects] = (SendEntries(), PlanSend())
