"""The takeover machine, step by step."""

from __future__ import annotations

import pytest

from broker.partition.core.log_limits import LogLimits
from broker.partition.core.replay import LedgerTail
from broker.partition.core.takeover import (
    Claim,
    Commit,
    CommitLost,
    Committed,
    CommitUnknown,
    CreateLedger,
    DeleteLedger,
    ReadBack,
    ReadList,
    Recover,
    Replay,
    Resign,
    Serve,
    State,
    Takeover,
)
from broker.partition.core.transactions.log_fold import LogFold
from broker.partition.core.transactions.segment_transactions import SegmentTransactions
from client.errors import LocalProtocolError, LogCorrupt
from client.ids import LedgerId, Offset
from client.log.paging import paged
from client.log.segments import SegmentFacts, SegmentList, is_inline

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
    commit = takeover.on_created(NEW, 99)
    assert isinstance(commit, Commit)
    return takeover, commit


def test_a_new_partition_needs_no_recovery() -> None:
    takeover, step = at_list(SegmentList(), 0)
    assert step == CreateLedger(0)
    commit = takeover.on_created(NEW, 99)
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
    assert takeover.on_replayed(LedgerId(3), tail(20, 30)) == CreateLedger(3)


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
    assert takeover.on_replayed(LedgerId(1), known) == CreateLedger(2)
    commit = takeover.on_created(NEW, 99)
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
    assert takeover.on_replayed(LedgerId(1), tail(0, 10)) == CreateLedger(4)


def test_a_log_of_empty_ledgers_ends_where_the_list_says() -> None:
    listed = opened_list(10, 10).trimmed(1, Offset(10))
    takeover, _ = at_list(listed)
    takeover.on_recovered(LedgerId(2))
    takeover.on_recovered(LedgerId(3))
    takeover.on_replayed(LedgerId(3), None)
    takeover.on_replayed(LedgerId(2), None)
    takeover.on_created(NEW, 99)
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
    assert takeover.on_replayed(LedgerId(2), tail(10, 30)) == CreateLedger(2)
    commit = takeover.on_created(NEW, 99)
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
    takeover.on_created(NEW, 99)
    serve = takeover.on_commit(Committed(8))
    assert isinstance(serve, Serve)
    assert serve.log_end_offset == 30


def test_ledgers_that_do_not_continue_each_other_are_an_error() -> None:
    takeover, _ = at_list(opened_list(10).rolled(LedgerId(3), 5))
    takeover.on_recovered(LedgerId(2))
    takeover.on_recovered(LedgerId(3))
    takeover.on_replayed(LedgerId(3), tail(31, 44))
    with pytest.raises(LogCorrupt, match="begins at 31"):
        takeover.on_replayed(LedgerId(2), tail(10, 30))


def test_a_ledger_that_begins_elsewhere_than_listed_is_an_error() -> None:
    takeover, _ = at_list(opened_list(10))
    takeover.on_recovered(LedgerId(1))
    takeover.on_recovered(LedgerId(2))
    with pytest.raises(LogCorrupt, match="the list says 10"):
        takeover.on_replayed(LedgerId(2), tail(9, 25))


def test_a_lost_commit_deletes_the_unlisted_ledger() -> None:
    takeover, _ = at_commit()
    assert takeover.on_commit(CommitLost()) == DeleteLedger(NEW)
    assert takeover.on_discarded() == Resign("lost the compare-and-set")
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
    assert takeover.on_read_back(opened_list(10, 25), 8) == DeleteLedger(NEW)


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
    assert takeover.on_read_back(others, 8) == DeleteLedger(NEW)


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
    commit = takeover.on_created(NEW, 99)
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
