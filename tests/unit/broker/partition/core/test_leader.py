"""The leader of a partition, step by step: each rule of TAKEOVER.md about leading, and no loop."""

from __future__ import annotations

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.errors import LeadershipLost, NotEnoughReplicas, NotLeader, SegmentsChanged
from broker.partition.core.leader import RETRY_S, PartitionLeader
from broker.partition.core.leader_effects import (
    AdoptList,
    ChangeDone,
    ChangeList,
    Close,
    CloseLedger,
    Compact,
    CreateLedger,
    DeleteLedgers,
    DiscardLedger,
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
    Release,
    Roll,
    RollSealed,
    RollUnanswered,
    Stage,
    State,
    SwitchLedger,
    Trim,
    Trimmed,
    UnfoldList,
)
from client.errors import (
    ConnectionLoss,
    LedgerFenced,
    NotEnoughBookies,
    Outcome,
    VersionConflict,
)
from client.ids import LedgerId, Offset
from client.log.compacted import Round, Swap
from client.log.segment_pages import Page, PageName
from client.log.segments import SegmentFacts, SegmentList, unfolded
from tests.fakes.brokers import batch
from tests.unit.broker.partition.core.leader_driver import FIRST, NOW_MS, Lead, kinds, new_log, one

NEXT = LedgerId(2)
THIRD = LedgerId(3)


def roll(lead: Lead, ledger_id: LedgerId = NEXT, ticket: int = 1) -> None:
    """Roll to the end."""
    assert kinds(lead.ask(Roll(ticket))) == ["CreateLedger"]
    listing = one(lead.hear(LedgerCreated(ledger_id)), ChangeList)
    lead.hear(ListChanged(listing.expected_version + 1))
    lead.settle()
    facts = one(lead.hear(LedgerClosed()), ChangeList)
    done = lead.hear(ListChanged(facts.expected_version + 1))
    assert done[-1] == ChangeDone(ticket)
    lead.settle()


# --- roll -------------------------------------------------------------------------------


def test_a_roll_goes_step_by_step() -> None:
    lead = Lead()
    lead.append("a")
    lead.settle()
    assert lead.ask(Roll(7)) == [CreateLedger(lead.leader.segments.leader_epoch)]
    (listing,) = lead.hear(LedgerCreated(NEXT))
    assert isinstance(listing, ChangeList)
    assert listing.expected_version == 1
    assert [item.ledger_id for item in listing.segments.segments] == [FIRST, NEXT]
    assert kinds(lead.hear(ListChanged(2))) == ["AdoptList", "RollListed"]
    assert lead.leader.stage is Stage.DRAINING
    assert kinds(lead.confirm()) == ["SwitchLedger", "AdoptList", "CloseLedger"]
    (facts,) = lead.hear(LedgerClosed())
    assert isinstance(facts, ChangeList)
    assert facts.expected_version == 2
    assert [item.base_offset for item in facts.segments.segments] == [0, 1]
    sealed, done = lead.hear(ListChanged(3))
    assert isinstance(sealed, RollSealed)
    assert (sealed.ledger_id, sealed.facts.last_offset) == (FIRST, 0)
    assert done == ChangeDone(7)
    assert lead.leader.stage is Stage.NONE


def test_list_first_nothing_goes_to_a_ledger_that_is_not_listed() -> None:
    lead = Lead()
    lead.settle()
    lead.ask(Roll(1))
    lead.append("before")
    assert kinds(lead.hear(LedgerCreated(NEXT))) == ["ChangeList"]
    lead.append("while listing")
    assert [len(entry.appends) for entry in lead.sent[FIRST]] == [0, 1, 1]
    assert lead.ledger_id == FIRST


def test_drain_nothing_goes_to_the_next_ledger_before_the_previous_one_is_complete() -> None:
    lead = Lead()
    lead.settle()
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    lead.append("before")
    lead.hear(ListChanged(2))
    assert len(lead.sent[FIRST]) == 3, "snapshot, batch, the snapshot that ends the segment"
    late = lead.append("after")
    assert late.base_offset == 1
    assert lead.confirm(1) == []
    assert lead.ledger_id == FIRST
    effects = lead.confirm(1)
    assert one(effects, SwitchLedger).ledger_id == NEXT
    assert [len(entry.appends) for entry in lead.sent[NEXT]] == [0, 1], "a snapshot comes first"
    assert not late.completed
    lead.settle()
    assert late.completed


def test_drain_waits_for_what_the_writer_has_no_room_for() -> None:
    lead = Lead()
    lead.settle()
    append, _ = lead.leader.append(batch("x"), NOW_MS, 0.0)
    lead.leader.log.on_turn_over()
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    leader = lead.leader
    effects = leader.on_outcome(ListChanged(2), lead.now)
    assert "SwitchLedger" not in kinds(effects), "an entry still waits to be sent"
    assert leader.log.queue.waiting
    assert leader.stage is Stage.DRAINING
    assert not append.completed


def test_one_roll_the_next_one_begins_after_the_last_step() -> None:
    lead = Lead()
    lead.append("a")
    lead.settle()
    lead.ask(Roll(1))
    assert lead.ask(Roll(2)) == []
    assert lead.ask(Trim(3, Offset(0))) == []
    lead.hear(LedgerCreated(NEXT))
    lead.hear(ListChanged(2))
    lead.settle()
    assert "CreateLedger" not in kinds(lead.hear(LedgerClosed())), "the facts are not listed"
    effects = lead.hear(ListChanged(3))
    assert kinds(effects) == ["RollSealed", "ChangeDone", "CreateLedger"]
    effects = lead.hear(LedgerRefused(NotEnoughBookies("gone")))
    assert kinds(effects) == ["ChangeDone", "ChangeDone"], "the trim has nothing to do"


def test_a_previous_ledger_whose_closing_nobody_answers_is_closed_again() -> None:
    lead = Lead()
    lead.settle()
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    lead.hear(ListChanged(2))
    lead.settle()
    error = ConnectionLoss("/ledgers")
    effects = lead.hear(LedgerNotClosed(error, is_unanswered=True))
    assert effects == [RollUnanswered(FIRST, error), CloseLedger(FIRST, RETRY_S)]
    assert kinds(lead.hear(LedgerClosed())) == ["ChangeList"]


def test_a_previous_ledger_that_is_not_ours_ends_the_leadership() -> None:
    lead = Lead()
    lead.settle()
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    lead.hear(ListChanged(2))
    held = lead.append("held")
    ended, done = [
        effect
        for effect in [*lead.settle(), *lead.hear(LedgerNotClosed(LedgerFenced("x"), False))]
        if isinstance(effect, Ended | ChangeDone)
    ]
    assert isinstance(ended, Ended)
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, LeadershipLost)
    assert held.completed, "the next ledger had it"


def test_a_roll_without_bookies_leaves_the_log_as_it_is_and_is_not_tried_at_once() -> None:
    lead = Lead()
    lead.settle()
    lead.ask(Roll(1))
    (done,) = lead.hear(LedgerRefused(NotEnoughBookies("two are away")))
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, NotEnoughReplicas)
    assert lead.leader.state is State.OPEN
    assert lead.leader.roll_soon(Now(NOW_MS, lead.now.s + RETRY_S / 2)) == ()
    soon = lead.leader.roll_soon(Now(NOW_MS, lead.now.s + RETRY_S))
    assert kinds(soon) == ["CreateLedger"]


def test_a_full_segment_rolls_once() -> None:
    lead = Lead(config={"segment.bytes": "1000"})
    lead.settle()
    lead.append("a", pad=300)
    _, effects = lead.leader.append(batch("b", pad=600), NOW_MS, lead.now.s)
    assert kinds(lead.do(effects)) == ["CreateLedger"]
    lead.append("c")
    assert lead.leader.roll_soon(lead.now) == ()


def test_burst_appends_wait_for_the_roll_of_a_segment_that_is_full() -> None:
    lead = Lead({"segment.bytes": "4000", "max.message.bytes": "2000"})
    lead.settle()
    size = len(batch("x", pad=300))
    while lead.leader.has_room(size):
        lead.leader.append(batch("x", pad=300), lead.now.ms, lead.now.s)
    assert lead.leader.stage is Stage.CREATING
    assert 4000 <= lead.leader.log.active.size_bytes <= 4400
    lead.do(lead.leader.log.outgoing())
    lead.hear(LedgerCreated(NEXT))
    assert not lead.leader.has_room(size)
    lead.hear(ListChanged(2))
    assert lead.leader.stage is Stage.DRAINING
    assert lead.leader.has_room(size), "they belong to the next segment, and are held for it"
    while lead.leader.has_room(size):
        lead.leader.append(batch("x", pad=300), lead.now.ms, lead.now.s)
    assert lead.leader.log.active.size_bytes <= 4400, "the next roll comes after this one"
    assert not lead.leader.has_room(size)


def test_burst_one_batch_goes_into_a_segment_without_records() -> None:
    lead = Lead({"segment.bytes": "14"})
    lead.settle()
    lead.ask(Roll(1))
    assert lead.leader.log.active.size_bytes > 14, "the snapshot"
    assert lead.leader.has_room(10_000)


def test_burst_a_segment_that_cannot_be_rolled_goes_on() -> None:
    lead = Lead({"segment.bytes": "1000"})
    lead.settle()
    for _ in range(2):
        lead.leader.append(batch("x", pad=450), lead.now.ms, lead.now.s)
    assert not lead.leader.has_room(200)
    lead.hear(LedgerRefused(NotEnoughBookies("none")))
    assert lead.leader.has_room(200)


def test_unlisted_a_ledger_that_was_not_listed_is_discarded_before_anybody_is_told() -> None:
    lead = Lead()
    lead.settle()
    append = lead.append()
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    ended, discard = lead.hear(ListLost(VersionConflict("somebody else")))
    assert isinstance(ended, Ended)
    assert (ended.appends, ended.tickets, ended.is_lost) == ([append], [], True)
    assert discard == DiscardLedger(NEXT, 1)
    (done,) = lead.hear(LedgersDeleted())
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, LeadershipLost)
    assert lead.sent.keys() == {FIRST}


# --- trim -------------------------------------------------------------------------------


def two_segments() -> Lead:
    lead = Lead()
    lead.append("a")
    lead.settle()
    roll(lead)
    return lead


def test_list_then_delete() -> None:
    lead = two_segments()
    (listing,) = lead.ask(Trim(5, Offset(1)))
    assert isinstance(listing, ChangeList)
    assert [item.ledger_id for item in listing.segments.segments] == [NEXT]
    assert lead.leader.log.offsets.log_start == 0, "not before it is listed"
    effects = lead.hear(ListChanged(4))
    assert effects[1:] == [Trimmed([FIRST], Offset(1)), DeleteLedgers([FIRST])]
    assert lead.leader.log.offsets.log_start == 1
    assert lead.hear(LedgersDeleted()) == [ChangeDone(5)]


def test_a_trim_that_is_not_listed_deletes_nothing() -> None:
    lead = two_segments()
    lead.ask(Trim(5, Offset(1)))
    ended, done = lead.hear(ListLost(VersionConflict("somebody else")))
    assert isinstance(ended, Ended)
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, LeadershipLost)
    assert lead.leader.log.offsets.log_start == 0
    assert lead.hear(ListChanged(4)) == []


def paged(count: int) -> tuple[Lead, dict[PageName, Page]]:
    """A leader that has rolled so often, with two segments to a page; and its pages."""
    lead = Lead(segment_page_entries=2)
    pages: dict[PageName, Page] = {}
    for number in range(count):
        lead.append(f"v{number}")
        lead.settle()
        lead.ask(Roll(1))
        listing = one(lead.hear(LedgerCreated(LedgerId(FIRST + 1 + number))), ChangeList)
        pages |= dict(listing.pages)
        lead.hear(ListChanged(listing.expected_version + 1))
        lead.settle()
        facts = one(lead.hear(LedgerClosed()), ChangeList)
        lead.hear(ListChanged(facts.expected_version + 1))
        lead.settle()
    return lead, pages


def test_pages_are_written_with_the_set_that_names_them() -> None:
    """PAGE-FIRST."""
    lead, pages = paged(3)
    assert not pages
    lead.ask(Roll(1))
    listing = one(lead.hear(LedgerCreated(LedgerId(9))), ChangeList)
    ((name, page),) = listing.pages
    assert name == (0, 0, 9)
    assert [item.base_offset for item in page.segments] == [0, 1]
    assert [ref.name for ref in listing.segments.pages] == [name]


def test_a_trim_opens_the_oldest_page_and_goes_on_with_the_next() -> None:
    """PAGE-BY-PAGE, LIST-THEN-DELETE."""
    lead, pages = paged(6)
    listed = lead.leader.segments
    assert [ref.level for ref in listed.pages] == [1]
    assert lead.ask(Trim(5, Offset(3))) == [UnfoldList(listed)]
    index, opened = listed.pages[0], unfolded(listed, pages[listed.pages[0].name])
    leaf = opened.pages[0]
    opened = unfolded(opened, pages[leaf.name])
    listing = one(lead.hear(ListUnfolded(opened, (index, leaf))), ChangeList)
    assert listing.segments.log_start_offset == 3
    assert (listing.segments.oldest, len(listing.segments.pages)) == ((), 1)
    delete = one(lead.hear(ListChanged(listing.expected_version + 1)), DeleteLedgers)
    assert delete == DeleteLedgers([FIRST, NEXT], (index, leaf))
    done, unfold = lead.hear(LedgersDeleted())
    assert done == ChangeDone(5)
    assert isinstance(unfold, UnfoldList), "the third segment is in the next page"
    unread = one(lead.hear(ListUnfolded(unfold.segments)), ChangeDone)
    assert unread == ChangeDone(0), "a page that cannot be read is left for the next round"


def test_what_is_left_of_a_trim_waits_for_what_others_asked_for() -> None:
    """PAGE-BY-PAGE."""
    lead, pages = paged(6)
    (unfold,) = lead.ask(Trim(5, Offset(3)))
    assert isinstance(unfold, UnfoldList)
    opened = unfolded(unfold.segments, pages[unfold.segments.pages[0].name])
    opened = unfolded(opened, pages[opened.pages[0].name])
    listing = one(lead.hear(ListUnfolded(opened)), ChangeList)
    lead.hear(ListChanged(listing.expected_version + 1))
    assert lead.ask(Roll(6)) == []
    assert kinds(lead.hear(LedgersDeleted())) == ["ChangeDone", "CreateLedger"]


def test_a_trim_above_the_oldest_page_reads_none() -> None:
    lead, _ = paged(6)
    assert kinds(lead.ask(Maintain(1))) == ["UnfoldList"], "retention has to look"
    listed = lead.leader.segments
    assert lead.hear(ListUnfolded(listed)) == [ChangeDone(1)]
    forever, _ = paged(0)
    assert forever.ask(Trim(2, Offset(0))) == [ChangeDone(2)]


def test_a_trim_inside_a_segment_only_moves_the_log_start() -> None:
    lead = Lead()
    lead.append("a")
    lead.append("b")
    lead.settle()
    lead.ask(Trim(5, Offset(1)))
    assert kinds(lead.hear(ListChanged(2))) == ["AdoptList", "Trimmed", "ChangeDone"]
    assert lead.ask(Trim(6, Offset(0))) == [ChangeDone(6)], "it never goes back"


def test_own_snapshot_no_segment_goes_before_the_active_ledger_can_replace_what_it_knows() -> None:
    lead = Lead()
    lead.append("a")
    lead.settle()
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    lead.hear(ListChanged(2))
    while lead.ledger_id == FIRST:
        lead.confirm(1)
    lead.hear(LedgerClosed())
    lead.hear(ListChanged(3))
    assert lead.under_way, "the first entry of the next ledger"
    listing = one(lead.ask(Trim(5, Offset(1))), ChangeList)
    assert len(listing.segments.segments) == 2
    lead.hear(ListChanged(4))
    lead.settle()
    maintained = one(lead.do(lead.leader.ask(Maintain(6), lead.now)), ChangeList)
    assert [item.ledger_id for item in maintained.segments.segments] == [NEXT]


def test_maintenance_does_not_wait_for_a_change_under_way() -> None:
    lead = two_segments()
    lead.ask(Roll(1))
    assert lead.ask(Maintain(9)) == [ChangeDone(9)]


# --- fail -------------------------------------------------------------------------------


def test_unknown_whatever_was_accepted_fails_in_order_wherever_it_is() -> None:
    lead = Lead(entries_before_sharing=1)
    lead.settle()
    appends = [lead.append("sent")]
    lead.ask(Roll(1))
    lead.hear(LedgerCreated(NEXT))
    lead.hear(ListChanged(2))
    appends += [lead.append("held"), lead.append("gathers")]
    lead.ask(Trim(2, Offset(0)))
    (ended,) = lead.do(lead.leader.end("a test"))
    assert isinstance(ended, Ended)
    assert ended.appends == appends
    assert ended.tickets == [1, 2]
    assert ended.error.outcome is Outcome.UNKNOWN
    assert ended.is_lost


def test_nothing_comes_after_the_end() -> None:
    lead = Lead()
    lead.append()
    lead.ask(Roll(1))
    lead.do(lead.leader.end("a test"))
    assert lead.leader.end("again") == ()
    assert lead.leader.on_confirmed() == ()
    assert lead.leader.log.on_turn_over() == ()
    assert lead.hear(LedgerCreated(NEXT)) == []
    assert lead.leader.roll_soon(lead.now) == ()
    (done,) = lead.ask(Roll(4))
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, NotLeader)
    with pytest.raises(NotLeader, match="ended"):
        lead.append()


# --- close ------------------------------------------------------------------------------


def test_grace_what_was_accepted_is_confirmed_before_the_ledger_is_closed() -> None:
    lead = Lead()
    lead.settle()
    append = lead.append()
    assert lead.ask(Close(3)) == []
    assert lead.leader.state is State.CLOSING
    with pytest.raises(NotLeader, match="closing"):
        lead.append()
    assert lead.confirm(1) == []
    assert append.completed
    assert lead.confirm(1) == [CloseLedger(FIRST)], "a snapshot came last"
    done, ended = lead.hear(LedgerClosed())
    assert done == ChangeDone(3)
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.is_lost) == ("closed", False)


def test_close_waits_for_the_roll_under_way() -> None:
    lead = Lead()
    lead.settle()
    lead.ask(Roll(1))
    assert lead.ask(Close(2)) == []
    lead.hear(LedgerCreated(NEXT))
    lead.hear(ListChanged(2))
    lead.settle()
    lead.hear(LedgerClosed())
    effects = lead.hear(ListChanged(3))
    assert effects[1:] == [ChangeDone(1), CloseLedger(NEXT)]


def test_a_ledger_that_cannot_be_closed_in_peace_is_left_to_the_next_leader() -> None:
    lead = Lead()
    lead.settle()
    error = LedgerFenced("somebody recovers")
    assert lead.ask(Close(3)) == [CloseLedger(FIRST)]
    done, ended = lead.hear(LedgerNotClosed(error, is_unanswered=False))
    assert done == ChangeDone(3, error)
    assert isinstance(ended, Ended)
    assert "not closed gracefully" in ended.reason


# --- compaction -------------------------------------------------------------------------------


def rolled(lead: Lead, count: int) -> None:
    """Seal so many segments of one record each; ledgers 1, 2, ..."""
    for number in range(count):
        lead.append()
        lead.settle()
        lead.ask(Roll(0))
        lead.hear(LedgerCreated(LedgerId(number + 2)))
        lead.hear(ListChanged(10 + number))
        lead.settle()
        lead.hear(LedgerClosed())
        lead.hear(ListChanged(20 + number))
        lead.settle()


def swap_of(lead: Lead, *ledgers: int) -> Swap:
    old = [one for one in lead.leader.segments.segments if one.ledger_id in ledgers]
    new = old[0]._replace(ledger_id=LedgerId(77), facts=old[-1].facts, cleaned=True)
    return Swap(tuple(one.ledger_id for one in old), (new,))


def test_a_swap_is_one_change_of_the_list_and_retires_the_old_ledgers() -> None:
    lead = Lead()
    rolled(lead, 4)
    swap = swap_of(lead, 1, 2)
    wanted = one(lead.ask(Compact(5, swap, Round(Offset(2), -1))), ChangeList).segments
    assert [item.ledger_id for item in wanted.segments] == [77, 3, 4, 5]
    assert lead.leader.stage is Stage.TRIMMING
    effects = lead.hear(ListChanged(30))
    assert kinds(effects) == ["AdoptList", "Compacted", "ChangeDone"]
    assert one(effects, ChangeDone) == ChangeDone(5, None)
    assert lead.leader.segments.compaction.cleaned_until == 2


def test_compact_cas_a_swap_of_what_was_trimmed_changes_nothing() -> None:
    lead = Lead()
    rolled(lead, 4)
    swap = swap_of(lead, 1, 2)
    lead.ask(Trim(0, Offset(1)))
    lead.hear(ListChanged(30))
    lead.hear(LedgersDeleted())
    (done,) = lead.ask(Compact(5, swap))
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, SegmentsChanged)
    assert lead.leader.state is State.OPEN


def test_grace_replaced_ledgers_are_deleted_after_the_list_let_them_go() -> None:
    lead = Lead()
    rolled(lead, 4)
    lead.ask(Compact(0, swap_of(lead, 1, 2)))
    lead.hear(ListChanged(30))
    assert kinds(lead.ask(Release(6, NOW_MS - 1))) == ["ChangeDone"]
    wanted = one(lead.ask(Release(6, NOW_MS)), ChangeList).segments
    assert wanted.compaction.retired == ()
    effects = lead.hear(ListChanged(31))
    assert kinds(effects) == ["AdoptList", "Released", "DeleteLedgers"]
    assert one(effects, DeleteLedgers).ledger_ids == (1, 2)
    assert lead.hear(LedgersDeleted()) == [ChangeDone(6, None)]


def test_a_swap_waits_for_the_change_before_it() -> None:
    lead = Lead()
    rolled(lead, 4)
    swap = swap_of(lead, 1, 2)
    lead.append()
    lead.settle()
    lead.ask(Roll(0))
    assert lead.ask(Compact(5, swap)) == []
    lead.hear(LedgerCreated(LedgerId(50)))
    lead.hear(ListChanged(30))
    lead.settle()
    lead.hear(LedgerClosed())
    wanted = one(lead.hear(ListChanged(31)), ChangeList).segments
    assert [item.ledger_id for item in wanted.segments] == [77, 3, 4, 5, 50]


# --- READ-ONLY --------------------------------------------------------------------------------


def read_only() -> PartitionLeader:
    """Return a leader without a ledger; segment 1 is sealed, what is in ledger 2 was recovered."""
    listed = SegmentList().opened(FIRST, base_offset=Offset(0), created_ms=NOW_MS, recovered={})
    listed = listed.opened(
        NEXT,
        base_offset=Offset(10),
        created_ms=NOW_MS,
        recovered={FIRST: (Offset(0), SegmentFacts(Offset(9), 100, 5))},
    ).led()
    log = new_log()
    log.offsets.log_end = log.offsets.high_watermark = Offset(30)
    log.has_own_snapshot = True
    known = {NEXT: (Offset(10), SegmentFacts(Offset(29), 70, 6))}
    leader = PartitionLeader("t-0", log, listed, 4, recovered=known)
    leader.configure(TopicConfig.parse({"retention.ms": "-1"}))
    return leader


def test_read_only_nothing_is_appended_and_nothing_is_rolled() -> None:
    leader, now = read_only(), Now(NOW_MS, 100.0)
    assert leader.start() == ()
    with pytest.raises(NotEnoughReplicas):
        leader.append(batch("a"), *now)
    (done,) = leader.ask(Roll(1), now)
    assert isinstance(done, ChangeDone)
    assert isinstance(done.error, NotEnoughReplicas)
    leader.check()


def test_read_only_a_trim_stores_what_was_stored_and_readers_go_on_knowing_more() -> None:
    leader, now = read_only(), Now(NOW_MS, 100.0)
    assert leader.readable.segments[-1].facts is not None
    (change,) = leader.ask(Trim(1, Offset(10)), now)
    assert isinstance(change, ChangeList)
    assert [one.ledger_id for one in change.segments.segments] == [NEXT]
    assert change.segments.segments[-1].facts is None, "its aborted transactions are listed nowhere"
    adopted = one(leader.on_outcome(ListChanged(5), now), AdoptList)
    assert adopted.segments.segments[-1].facts is not None
    assert kinds(leader.on_outcome(LedgersDeleted(), now)) == ["ChangeDone"]
    leader.check()


def test_read_only_there_is_nothing_to_close() -> None:
    leader, now = read_only(), Now(NOW_MS, 100.0)
    assert kinds(leader.ask(Close(1), now)) == ["ChangeDone", "Ended"]
    assert leader.state is State.ENDED
