"""The takeover machine, step by step."""

from __future__ import annotations

import pytest

from broker.partition.core.log_fold import LogFold
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.open_transactions import SegmentTransactions
from broker.partition.core.replay import LedgerTail
from broker.partition.core.takeover import (
    Claim,
    Commit,
    CommitLost,
    Committed,
    CommitUnknown,
    FindEnd,
    PlanLedger,
    ReadBack,
    ReadList,
    Recover,
    Replay,
    Resign,
    Serve,
    State,
    Takeover,
)
from client.errors import LocalProtocolError, LogCorrupt
from client.ids import EntryId, LedgerId, Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.segments import SegmentFacts, SegmentList, is_inline, paged

NEW = LedgerId(50)


def tail(base: int, end: int, newest: int = 5) -> LedgerTail:
    transactions = SegmentTransactions(1000)
    transactions.stable_at = Offset(end)
    fold = LogFold(LogLimits())
    return LedgerTail(Offset(base), Offset(end), newest, 100, (), fold, transactions)


def facts(last: int) -> SegmentFacts:
    return SegmentFacts(Offset(last), 100, 5)


def opened_list(*ends: int) -> SegmentList:
    """Ledgers 1, 2, ..., each opened by another leader and ending before `ends`; one more is
    open."""
    listed = SegmentList().opened(LedgerId(1), base_offset=Offset(0), created_ms=0, recovered={})
    start = 0
    for number, end in enumerate(ends, 1):
        listed = listed.opened(
            LedgerId(number + 1),
            base_offset=Offset(end),
            created_ms=0,
            recovered={LedgerId(number): (Offset(start), facts(end - 1))},
        )
        start = end
    return listed


def at_list(listed: SegmentList, version: int = 7) -> tuple[Takeover, object]:
    takeover = Takeover()
    assert takeover.start() == Claim()
    assert takeover.on_claimed() == ReadList()
    return takeover, takeover.on_list(listed, version)


def at_commit() -> tuple[Takeover, Commit]:
    takeover, step = at_list(opened_list(10))
    assert step == Recover(LedgerId(1))
    takeover.on_recovered(LedgerId(1))
    takeover.on_recovered(LedgerId(2))
    takeover.on_replayed(LedgerId(2), tail(10, 25))
    commit = takeover.on_planned(NEW, 99)
    assert isinstance(commit, Commit)
    return takeover, commit


def test_a_new_partition_needs_no_recovery() -> None:
    takeover, step = at_list(SegmentList(), 0)
    assert step == PlanLedger(0)
    commit = takeover.on_planned(NEW, 99)
    assert isinstance(commit, Commit)
    assert commit.expected_version == 0
    assert [item.ledger_id for item in commit.segments.segments] == [NEW]
    serve = takeover.on_commit(Committed(1))
    assert isinstance(serve, Serve)
    assert (serve.version, serve.ledger_id, serve.tail, serve.log_end_offset) == (1, NEW, None, 0)
    assert takeover.state is State.LEADING


def test_the_last_two_are_recovered_the_older_one_first() -> None:
    takeover, step = at_list(opened_list(10, 20))
    assert step == Recover(LedgerId(2))
    assert takeover.on_recovered(LedgerId(2)) == Recover(LedgerId(3))
    assert takeover.on_recovered(LedgerId(3)) == Replay(LedgerId(3))
    assert takeover.on_replayed(LedgerId(3), tail(20, 30)) == PlanLedger(3)


def test_the_new_list_has_our_ledger_last_and_the_next_epoch() -> None:
    _, commit = at_commit()
    assert commit.expected_version == 7
    assert commit.segments.leader_epoch == 2
    last = commit.segments.segments[-1]
    assert (last.ledger_id, last.base_offset, last.created_ms) == (NEW, 25, 99)
    assert commit.segments.segments[1].facts == SegmentFacts(Offset(24), 100, 5)


def test_nothing_is_served_before_the_commit() -> None:
    takeover, _ = at_commit()
    assert takeover.state is State.COMMITTING
    assert isinstance(takeover.on_commit(Committed(8)), Serve)


def test_an_empty_last_ledger_is_skipped_for_the_one_before() -> None:
    takeover, _ = at_list(opened_list(10))
    takeover.on_recovered(LedgerId(1))
    assert takeover.on_recovered(LedgerId(2)) == Replay(LedgerId(2))
    assert takeover.on_replayed(LedgerId(2), None) == Replay(LedgerId(1))
    known = tail(0, 10)
    assert takeover.on_replayed(LedgerId(1), known) == PlanLedger(2)
    commit = takeover.on_planned(NEW, 99)
    assert isinstance(commit, Commit)
    assert commit.segments.segments[1].facts == SegmentFacts(Offset(9), 0, -1)
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert serve.tail is known
    assert serve.log_end_offset == 10


def test_several_empty_ledgers_in_a_row() -> None:
    takeover, _ = at_list(opened_list(10, 10, 10))
    takeover.on_recovered(LedgerId(3))
    takeover.on_recovered(LedgerId(4))
    for ledger in (4, 3, 2):
        step = takeover.on_replayed(LedgerId(ledger), None)
        assert step == Replay(LedgerId(ledger - 1))
    assert takeover.on_replayed(LedgerId(1), tail(0, 10)) == PlanLedger(4)


def test_a_log_of_empty_ledgers_ends_where_the_list_says() -> None:
    listed = opened_list(10, 10).trimmed(1, Offset(10))
    takeover, _ = at_list(listed)
    takeover.on_recovered(LedgerId(2))
    takeover.on_recovered(LedgerId(3))
    takeover.on_replayed(LedgerId(3), None)
    takeover.on_replayed(LedgerId(2), None)
    takeover.on_planned(NEW, 99)
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert (serve.tail, serve.log_end_offset) == (None, 10)


def test_a_takeover_during_a_roll_learns_both_ends() -> None:
    listed = opened_list(10).rolled(LedgerId(3), 5)
    takeover, step = at_list(listed)
    assert step == Recover(LedgerId(2))
    assert takeover.on_recovered(LedgerId(2)) == Recover(LedgerId(3))
    assert takeover.on_recovered(LedgerId(3)) == Replay(LedgerId(3))
    assert takeover.on_replayed(LedgerId(3), tail(30, 44)) == Replay(LedgerId(2))
    assert takeover.on_replayed(LedgerId(2), tail(10, 30)) == PlanLedger(2)
    commit = takeover.on_planned(NEW, 99)
    assert isinstance(commit, Commit)
    assert [(s.base_offset, s.end_offset) for s in commit.segments.segments] == [
        (0, 10), (10, 30), (30, 44), (44, None),
    ]  # fmt: skip


def test_a_takeover_during_a_roll_before_anything_was_written_there() -> None:
    takeover, _ = at_list(opened_list(10).rolled(LedgerId(3), 5))
    takeover.on_recovered(LedgerId(2))
    takeover.on_recovered(LedgerId(3))
    takeover.on_replayed(LedgerId(3), None)
    takeover.on_replayed(LedgerId(2), tail(10, 30))
    takeover.on_planned(NEW, 99)
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert serve.log_end_offset == 30


def test_ledgers_that_do_not_continue_each_other_are_an_error() -> None:
    takeover, _ = at_list(opened_list(10).rolled(LedgerId(3), 5))
    takeover.on_recovered(LedgerId(2))
    takeover.on_recovered(LedgerId(3))
    takeover.on_replayed(LedgerId(3), tail(31, 44))
    with pytest.raises(LogCorrupt, match="begins at offset 31"):
        takeover.on_replayed(LedgerId(2), tail(10, 30))


def test_a_ledger_that_begins_elsewhere_than_listed_is_an_error() -> None:
    takeover, _ = at_list(opened_list(10))
    takeover.on_recovered(LedgerId(1))
    takeover.on_recovered(LedgerId(2))
    with pytest.raises(LogCorrupt, match="segment list says 10"):
        takeover.on_replayed(LedgerId(2), tail(9, 25))


def test_a_lost_commit_leads_nothing() -> None:
    takeover, _ = at_commit()
    assert takeover.on_commit(CommitLost()) == Resign("lost the compare-and-set")
    assert takeover.state is State.RESIGNED


def test_an_unknown_commit_that_came_through() -> None:
    takeover, commit = at_commit()
    assert takeover.on_commit(CommitUnknown()) == ReadBack()
    serve = takeover.on_read_back(commit.segments, 8)
    assert isinstance(serve, Serve)
    assert serve.version == 8


def test_an_unknown_commit_that_did_not_happen_is_tried_again() -> None:
    takeover, commit = at_commit()
    takeover.on_commit(CommitUnknown())
    assert takeover.on_read_back(opened_list(10), 7) == commit
    assert isinstance(takeover.on_commit(Committed(8)), Serve)


def test_an_unknown_commit_that_comes_through_after_the_reading_back() -> None:
    takeover, commit = at_commit()
    takeover.on_commit(CommitUnknown())
    takeover.on_read_back(opened_list(10), 7)
    assert takeover.on_commit(CommitLost()) == ReadBack()
    assert isinstance(takeover.on_read_back(commit.segments, 8), Serve)


def test_an_unknown_commit_beaten_by_somebody_else() -> None:
    takeover, _ = at_commit()
    takeover.on_commit(CommitUnknown())
    assert isinstance(takeover.on_read_back(opened_list(10, 25), 8), Resign)


def test_an_unknown_commit_that_the_last_ledger_refuses_since_can_never_succeed() -> None:
    """CLOSE-WITH-COMMIT: somebody closed the ledger, so the list is as it was, and stays so."""
    takeover, commit = at_commit()
    takeover.on_commit(CommitUnknown())
    assert takeover.on_read_back(opened_list(10), 7) == commit
    assert takeover.on_commit(CommitLost()) == ReadBack()
    assert isinstance(takeover.on_read_back(opened_list(10), 7), Resign)


def test_an_unknown_commit_that_came_through_and_was_overtaken() -> None:
    """The same version would be wrong to go by: our ledger is listed, so it must not be deleted,
    and somebody else has recovered it, so we must not write."""
    takeover, commit = at_commit()
    takeover.on_commit(CommitUnknown())
    overtaken = commit.segments.opened(
        LedgerId(60),
        base_offset=Offset(25),
        created_ms=0,
        recovered={NEW: (Offset(25), facts(24))},
    )
    assert isinstance(takeover.on_read_back(overtaken, 9), Resign)


def test_a_version_alone_proves_nothing() -> None:
    takeover, _ = at_commit()
    takeover.on_commit(CommitUnknown())
    others = opened_list(10, 25)
    assert isinstance(takeover.on_read_back(others, 8), Resign)


def test_failures_resign() -> None:
    takeover, _ = at_list(opened_list(10))
    assert takeover.on_failed("bookies are away") == Resign("bookies are away")
    takeover, _ = at_commit()
    assert takeover.on_failed("session expired") == Resign("session expired")


def test_a_deleted_topic_is_not_opened() -> None:
    _, step = at_list(opened_list(10).condemned())
    assert isinstance(step, Resign)


def test_inputs_out_of_place_are_refused() -> None:
    takeover = Takeover()
    with pytest.raises(LocalProtocolError):
        takeover.on_commit(Committed(1))
    takeover.start()
    with pytest.raises(LocalProtocolError):
        takeover.on_list(SegmentList(), 0)
    assert takeover.describe() == "state=claiming version=-1 ledger=None"


def test_is_current() -> None:
    takeover, _ = at_list(opened_list(10), 7)
    assert takeover.is_current(7)
    assert not takeover.is_current(8)


def test_pages_come_with_the_commit_and_again_with_its_repetition() -> None:
    """PAGE-FIRST: the list that is set names what is written before."""
    takeover = Takeover(page_entries=2)
    takeover.start()
    takeover.on_claimed()
    listed = opened_list(10, 20, 30, 40)
    takeover.on_list(listed, 7)
    takeover.on_recovered(LedgerId(4))
    takeover.on_recovered(LedgerId(5))
    takeover.on_replayed(LedgerId(5), tail(40, 45))
    commit = takeover.on_planned(NEW, 99)
    assert isinstance(commit, Commit)
    assert [new.page.segments for new in commit.pages[:1]] == [listed.segments[:2]]
    assert [new.name.ledger_id for new in commit.pages[:1]] == [NEW]
    takeover.on_commit(CommitUnknown())
    assert takeover.on_read_back(listed, 7) == commit
    served = takeover.on_commit(Committed(8))
    assert isinstance(served, Serve)
    assert served.segments == commit.segments


def test_our_ledger_in_a_page_is_listed() -> None:
    """PAGE-LOOK: we were overtaken so long ago that our ledger has left the head."""
    takeover, commit = at_commit()
    takeover.on_commit(CommitUnknown())
    later = commit.segments
    for number in range(4):
        ledger_id = LedgerId(NEW + 1 + number)
        last = later.segments[-1]
        assert last.base_offset is not None
        end = Offset(last.base_offset + 10)
        later = later.opened(
            ledger_id, base_offset=end, created_ms=0,
            recovered={last.ledger_id: (last.base_offset, facts(end - 1))},
        )  # fmt: skip
        later = paged(later, ledger_id, 2).segments
    assert not is_inline(later, NEW)
    step = takeover.on_read_back(later, 12)
    assert isinstance(step, Resign), "a ledger of the log is not deleted"


# --- what is aborted in recovered ledgers ----------------------------------------------------


def aborted_tail(base: int, end: int, *, stable: int | None = None, last: int = -1) -> LedgerTail:
    """One aborted transaction at the ledger's beginning; `last`: its last entry, a snapshot."""
    found = tail(base, end)
    entry = AbortedTransaction(ProducerId(1), Offset(base), Offset(base + 1))
    found.transactions.is_transactional = True
    found.transactions.on_aborted(entry, Offset(base + 2))
    found.transactions.stable_at = Offset(end if stable is None else stable)
    return found._replace(last_snapshot=EntryId(last))


def recovered(
    listed: SegmentList, **tails: LedgerTail | None
) -> tuple[Takeover, Commit, list[int]]:
    """Take over; return the commit, and which ledgers were read back. `tails`: by ledger."""
    takeover, step = at_list(listed)
    read: list[int] = []
    while not isinstance(step, Commit):
        match step:
            case Recover(ledger_id) | FindEnd(ledger_id):
                step = takeover.on_recovered(ledger_id)
            case Replay(ledger_id):
                read.append(ledger_id)
                step = takeover.on_replayed(ledger_id, tails[f"of_{ledger_id}"])
            case PlanLedger():
                step = takeover.on_planned(NEW, 99)
            case _:
                raise AssertionError(step)
    return takeover, step, read


def places(commit: Commit) -> list[SnapshotPlace | None]:
    """Where the commit says that what is aborted in each sealed segment is listed."""
    known = [item.facts.transactions for item in commit.segments.segments if item.facts]
    return [None if one is None else one.aborted_at for one in known]


def test_a_ledger_that_was_ended_in_peace_lists_it_itself() -> None:
    takeover, commit, _ = recovered(opened_list(10), of_2=aborted_tail(10, 25, last=9))
    assert places(commit) == [None, SnapshotPlace(LedgerId(2), EntryId(9))]
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert serve.earlier == {}


def test_what_is_aborted_in_a_recovered_ledger_is_listed_in_our_first_entry() -> None:
    known = aborted_tail(10, 25, stable=20)
    takeover, commit, _ = recovered(opened_list(10), of_2=known)
    facts = commit.segments.segments[1].facts
    assert facts is not None
    ours = SnapshotPlace(NEW, EntryId(0))
    assert facts.transactions == TransactionFacts(True, 1, ours, Offset(20))
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert serve.earlier == {2: known.transactions.aborted}


def listed_in(listed: SegmentList, at: int, ledger_id: int) -> SegmentList:
    """The same list; what is aborted in the segment is listed in the ledger's first entry."""
    segments = [*listed.segments]
    known = segments[at].facts
    assert known is not None
    place = SnapshotPlace(LedgerId(ledger_id), EntryId(0))
    stable = Offset(known.last_offset + 1)
    transactions = TransactionFacts(True, 1, place, stable)
    segments[at] = segments[at]._replace(facts=known._replace(transactions=transactions))
    return listed._replace(segments=tuple(segments)).check()


def test_listed_once_more_when_the_leader_before_us_wrote_nothing() -> None:
    listed = listed_in(listed_in(opened_list(10, 20), 0, 3), 1, 3)
    tails = {"of_3": None, "of_2": aborted_tail(10, 20), "of_1": aborted_tail(0, 10)}
    takeover, commit, read = recovered(listed, **tails)
    assert read == [3, 2, 1], "the older one too, although the newest with entries is known"
    ours = SnapshotPlace(NEW, EntryId(0))
    assert places(commit) == [ours, ours, None]
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert [*serve.earlier] == [1, 2]
    assert serve.tail is tails["of_2"]


def test_what_a_ledger_with_entries_lists_is_left_alone() -> None:
    listed = listed_in(opened_list(10, 20), 0, 2)
    _, commit, read = recovered(listed, of_3=None, of_2=tail(10, 20))
    assert read == [3, 2]
    assert places(commit)[0] == SnapshotPlace(LedgerId(2), EntryId(0))


def test_what_is_undecided_before_an_empty_ledger_is_undecided_behind_it() -> None:
    _, commit, _ = recovered(opened_list(10), of_2=None, of_1=aborted_tail(0, 10, stable=4))
    facts = commit.segments.segments[1].facts
    assert facts is not None
    assert facts.transactions is None, "the list said that all of the segment before was decided"
    open_list = opened_list(10)
    segments = [*open_list.segments]
    before = segments[0].facts
    assert before is not None
    undecided = before._replace(transactions=TransactionFacts(True, 0, None, Offset(4)))
    segments[0] = segments[0]._replace(facts=undecided)
    listed = open_list._replace(segments=tuple(segments))
    _, commit, _ = recovered(listed, of_2=None, of_1=tail(0, 10))
    facts = commit.segments.segments[1].facts
    assert facts is not None
    assert facts.transactions == TransactionFacts(False, 0, None, Offset(4))


# --- READ-ONLY --------------------------------------------------------------------------------


def at_planning() -> Takeover:
    """Return a takeover of ledger 1, sealed, and 2, which ended by recovery with aborted data."""
    takeover, _ = at_list(opened_list(10))
    takeover.on_recovered(LedgerId(1))
    takeover.on_recovered(LedgerId(2))
    known = tail(10, 25)
    known.transactions.is_transactional = True
    known.transactions.on_aborted(
        AbortedTransaction(ProducerId(1), Offset(11), Offset(20)), Offset(25)
    )
    takeover.on_replayed(LedgerId(2), known)
    return takeover


def test_read_only_the_commit_without_a_ledger_says_nothing_of_what_is_listed() -> None:
    takeover = at_planning()
    listed = opened_list(10)
    assert takeover.on_no_ledger() == Commit(listed._replace(leader_epoch=2), 7)
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert serve.ledger_id is None
    assert serve.has_snapshot
    assert (serve.version, serve.log_end_offset) == (8, 25)
    assert serve.segments.segments[-1].facts is None
    base, found = serve.recovered[LedgerId(2)]
    assert (base, found.last_offset) == (10, 24)
    assert [*serve.earlier] == [LedgerId(2)], "readers must know what was aborted there"


def test_read_only_an_unknown_commit_is_given_up() -> None:
    takeover = at_planning()
    takeover.on_no_ledger()
    assert isinstance(takeover.on_commit(CommitUnknown()), Resign)
    takeover = at_planning()
    takeover.on_no_ledger()
    assert isinstance(takeover.on_commit(CommitLost()), Resign)


def test_read_only_a_ledger_without_entries_has_no_snapshot() -> None:
    takeover, _ = at_list(opened_list(10))
    takeover.on_recovered(LedgerId(1))
    takeover.on_recovered(LedgerId(2))
    takeover.on_replayed(LedgerId(2), None)
    takeover.on_replayed(LedgerId(1), tail(0, 10))
    takeover.on_no_ledger()
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert not serve.has_snapshot
    assert serve.log_end_offset == 10
