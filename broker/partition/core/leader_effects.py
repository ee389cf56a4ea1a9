"""What the leader of a partition is asked, what it wants done, and how it hears of the outcome.

A *change* is what somebody asks for; an *effect* is for the shell to carry out, in the order in
which effects are returned; a *step* is an effect that takes I/O, and exactly one *outcome* of it
comes back as an input, unless the leadership ends before. Where the leader stands meanwhile is its
*state*, and how far a change has come its *stage*.
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
from client.log.compacted import Round, Swap
from client.log.segment_pages import NewPage, Page, PageRef
from client.log.segments import SegmentFacts, SegmentList


class State(enum.Enum):
    """Where the leadership stands."""

    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


class Stage(enum.Enum):
    """Where the change under way stands; the table is in `leader.py`."""

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
    """Wall clock, for what is stored."""
    s: float
    """The loop's time, for intervals."""


# --- changes: whoever asks for one has a ticket, and 0 if nobody waits for it ---------------


class Roll(NamedTuple):
    """Continue the log in a new ledger."""

    ticket: int


class Trim(NamedTuple):
    """Move the log start up to `before`, and drop the segments below it."""

    ticket: int
    before: Offset


class Maintain(NamedTuple):
    """Do what time alone makes due: forget producers, roll, and unless a change is under way, drop
    expired segments."""

    ticket: int


class Compact(NamedTuple):
    """Put compacted segments in the place of their originals, and note that a round is complete.

    Error: SegmentsChanged, and then nothing has happened.
    """

    ticket: int
    swap: Swap | None
    done: Round | None = None


class Release(NamedTuple):
    """Delete ledgers that were replaced up to `before_ms`, wall clock."""

    ticket: int
    before_ms: int


class Close(NamedTuple):
    """End the leadership in peace."""

    ticket: int


Change = Roll | Trim | Maintain | Compact | Release | Close


# --- steps ----------------------------------------------------------------------------------


class CreateLedger(NamedTuple):
    """Create the next ledger. Outcomes: LedgerCreated, LedgerRefused."""

    leader_epoch: LeaderEpoch


class ChangeList(NamedTuple):
    """Make the pages, then compare-and-set the segment list. Outcomes: ListChanged, ListLost."""

    segments: SegmentList
    expected_version: int
    pages: Sequence[NewPage] = ()


class UnfoldList(NamedTuple):
    """Open the list's first page, so that its oldest segments are known. Outcome: ListUnfolded."""

    segments: SegmentList


class ReadTrail(NamedTuple):
    """Read the pages below which an offset stands, from the head down. Outcome: TrailRead."""

    segments: SegmentList
    offset: Offset


class CloseLedger(NamedTuple):
    """Close a ledger that is complete. Outcomes: LedgerClosed, LedgerNotClosed."""

    ledger_id: LedgerId
    delay_s: float = 0.0
    """How long to wait before."""


class DeleteLedgers(NamedTuple):
    """Delete ledgers, and pages, that are not listed any more. Outcome: LedgersDeleted."""

    ledger_ids: Sequence[LedgerId]
    pages: Sequence[PageRef] = ()


class DiscardLedger(NamedTuple):
    """Delete a ledger of ours if it is certain that it is not listed and never will be: the list
    has another version than ours and does not name it. Outcome: LedgersDeleted."""

    ledger_id: LedgerId
    version: int


LeaderStep = (
    CreateLedger | ChangeList | UnfoldList | ReadTrail | CloseLedger | DeleteLedgers | DiscardLedger
)


# --- outcomes -------------------------------------------------------------------------------


class LedgerCreated(NamedTuple):
    """The next ledger is there."""

    ledger_id: LedgerId


class LedgerRefused(NamedTuple):
    """There is no next ledger."""

    error: QuireError


class ListChanged(NamedTuple):
    """The list is as we wanted it."""

    version: int


class ListLost(NamedTuple):
    """Somebody else changed the list, or nobody can say what became of ours."""

    error: QuireError


class ListUnfolded(NamedTuple):
    """The same list with its first page opened, and the pages that it needs no more when it is
    written like that. Unchanged if the page cannot be read: then nothing is dropped."""

    segments: SegmentList
    opened: Sequence[PageRef] = ()


class TrailRead(NamedTuple):
    """The pages, the one that the head names first; None: they cannot be read now."""

    pages: Sequence[Page] | None


class LedgerClosed(NamedTuple):
    """The ledger is closed at its last confirmed entry."""


class LedgerNotClosed(NamedTuple):
    """It is not, or not that we know. `is_unanswered`: nobody answered, so ask again."""

    error: QuireError
    is_unanswered: bool


class LedgersDeleted(NamedTuple):
    """The ledgers are gone, or are left to the sweep of orphans."""


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
    """Take what waits in the queue and send it, while the ledger's writer has room."""


class PlanSend(NamedTuple):
    """Call `LogState.on_turn_over` when this turn of the loop is over."""


class BeginSegment(NamedTuple):
    """Appends go into a new segment now: read it through its own ledger's writer."""

    active: ActiveSegment


class SwitchLedger(NamedTuple):
    """Entries go to this ledger from now on."""

    ledger_id: LedgerId


class AdoptList(NamedTuple):
    """The list that reads go by."""

    segments: SegmentList


class RollListed(NamedTuple):
    """The next ledger is listed."""

    ledger_id: LedgerId


class RollUnanswered(NamedTuple):
    """Nobody has answered the closing of the previous ledger; it is tried again."""

    ledger_id: LedgerId
    error: QuireError


class RollSealed(NamedTuple):
    """The previous ledger is closed, and its facts are listed."""

    ledger_id: LedgerId
    facts: SegmentFacts


class Trimmed(NamedTuple):
    """These ledgers left the list."""

    ledger_ids: Sequence[LedgerId]
    log_start: Offset


class Compacted(NamedTuple):
    """Compacted segments are listed, and their originals are retired; or a round is complete."""

    swap: Swap | None
    done: Round | None


class Released(NamedTuple):
    """These ledgers, which were replaced, are not listed any more."""

    ledger_ids: Sequence[LedgerId]


class ChangeDone(NamedTuple):
    """Tell whoever asked for a change what became of it."""

    ticket: int
    error: QuireError | None = None


class Ended(NamedTuple):
    """The leadership is over: stop all steps, let go of all ledgers."""

    reason: str
    error: LeadershipLost
    appends: Sequence[Append]
    """Not confirmed: whether they survive is not known."""
    tickets: Sequence[int]
    """Of changes that will not be made."""
    is_lost: bool
    """Whether nobody wanted it to end."""


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
    | ChangeDone
)
"""What changes of the log bring with them."""

Effect = LogEntry | SendEntries | PlanSend | LeaderStep | ChangeEffect | Ended
"""An entry: it is on its ack quorum; complete its appends, wake who waits for its end."""

Effects = Sequence[Effect]

# Those of the hot path, made once.
NOTHING: Final[Effects] = ()
SEND: Final[Effects] = (SendEntries(),)
PLAN: Final[Effects] = (PlanSend(),)
SEND_AND_PLAN: Final[Effects] = (SendEntries(), PlanSend())
