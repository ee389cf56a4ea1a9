"""Pages of the segment list: what their references say, the tree they make, and its JSON."""

from __future__ import annotations

import json

import pytest

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.segment_pages import (
    Page,
    PageName,
    PageRef,
    decode_page,
    find_epoch_end,
    find_offset,
    ref_of,
)
from client.log.segments import (
    Paged,
    Segment,
    SegmentFacts,
    SegmentList,
    decode_segments,
    epoch_end,
    is_inline,
    segment_count,
    unfolded,
)
from client.log.segments import paged as move

NAME = PageName(3, LeaderEpoch(5), LedgerId(77))


def segment(number: int, *, epoch: int = 0, size: int = 100, newest: int = 50) -> Segment:
    """Ten records, from ten times its number on; its ledger id is its number."""
    return Segment(
        LedgerId(number),
        Offset(10 * number),
        LeaderEpoch(epoch),
        1000 * number,
        SegmentFacts(Offset(10 * number + 9), size, newest),
    )


def plain(count: int, *, epoch: int = 4, empty: int = 0) -> SegmentList:
    """A list of so many sealed segments and one that is written; the last `empty` sealed ones are
    of ledgers without entries."""
    sealed = [segment(number, epoch=number % 2) for number in range(count)]
    sealed.sort(key=lambda one: one.leader_epoch)
    sealed = [segment(number, epoch=one.leader_epoch) for number, one in enumerate(sealed)]
    end = Offset(10 * count)
    nothing = SegmentFacts(Offset(end - 1), 0, -1)
    sealed += [
        Segment(LedgerId(count + number), end, LeaderEpoch(2), 0, nothing)
        for number in range(empty)
    ]
    last = Segment(LedgerId(count + empty), end, LeaderEpoch(epoch), 0)
    return SegmentList(LeaderEpoch(epoch), Offset(0), (*sealed, last)).check()


def paged(listed: SegmentList, entries: int) -> Paged:
    return move(listed, listed.segments[-1].ledger_id, entries)


def test_a_reference_sums_its_page_up() -> None:
    page = Page((segment(4, epoch=1, size=7, newest=90), segment(5, epoch=2, size=8, newest=30)))
    assert ref_of(NAME, page) == PageRef(
        NAME, 0, 2, Offset(40), Offset(60), 15, 90, 4000,
        LeaderEpoch(1), LeaderEpoch(2), LedgerId(4), LedgerId(5),
    )  # fmt: skip
    after = Page((segment(6, epoch=2), segment(7, epoch=3)))
    above = Page(pages=(ref_of(NAME, page), ref_of(NAME._replace(number=4), after)))
    assert ref_of(NAME._replace(number=9), above) == PageRef(
        NAME._replace(number=9), 1, 4, Offset(40), Offset(80), 215, 90, 4000,
        LeaderEpoch(1), LeaderEpoch(3), LedgerId(4), LedgerId(7),
    )  # fmt: skip


def test_a_page_without_its_newest_record_still_says_which_ledgers_it_may_hold() -> None:
    ref = ref_of(NAME, Page((segment(4), segment(5))))
    assert [ref.may_hold(LedgerId(at)) for at in (3, 4, 5, 6)] == [False, True, True, False]


def test_json_round_trip() -> None:
    page = Page((segment(4), segment(5)))
    ref = ref_of(NAME, page)
    assert decode_page(page.encode(), ref) == page
    above = Page(pages=(ref,))
    assert decode_page(above.encode(), ref_of(NAME, above)) == above
    assert json.loads(above.encode()) == {
        "version": 1,
        "level": 1,
        "pages": [[3, 5, 77, 0, 2, 40, 60, 200, 50, 4000, 0, 0, 4, 5]],
    }


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b'{"version":2}', b'{"version":1}', b'{"version":1,"level":0}',
        b'{"version":1,"level":0,"segments":[]}', b'{"version":1,"level":1,"pages":[]}',
        b'{"version":1,"level":1,"pages":[[1]]}', b'{"version":1,"level":1,"pages":[1]}',
        Page((segment(4),)).encode(), Page((segment(5), segment(4))).encode(),
        Page((segment(4), segment(5, size=1))).encode(),
        Page((segment(4)._replace(facts=None), segment(5))).encode(),
    ],
)  # fmt: skip
def test_a_page_that_is_not_what_its_reference_says_is_refused(data: bytes) -> None:
    ref = ref_of(NAME, Page((segment(4), segment(5))))
    with pytest.raises(LogCorrupt):
        decode_page(data, ref)


def test_a_page_of_the_future_is_refused_in_words() -> None:
    ref = ref_of(NAME, Page((segment(4),)))
    with pytest.raises(LogCorrupt, match=r"version 9, only 1 to 3 are known.*newer broker"):
        decode_page(b'{"version":9}', ref)


def test_a_short_list_stays_in_one_node_of_the_first_version() -> None:
    listed = plain(4)
    assert paged(listed, 4) == Paged(listed, ())
    assert json.loads(listed.encode())["version"] == 1


def test_what_is_more_than_a_page_moves_into_one() -> None:
    listed = plain(5)
    head, made = paged(listed, 4)
    assert [new.page.segments for new in made] == [listed.segments[:4]]
    assert made[0].name == PageName(0, listed.leader_epoch, LedgerId(5))
    assert head.pages == (ref_of(made[0].name, made[0].page),)
    assert head.segments == listed.segments[4:]
    assert json.loads(head.encode())["version"] == 2
    assert decode_segments(head.encode()) == head


def test_an_old_list_of_any_length_moves_at_once() -> None:
    listed = plain(30)
    head, made = paged(listed, 3)
    assert [ref.level for ref in head.pages] == [2]
    assert [new.name.number for new in made] == list(range(len(made)))
    assert segment_count(head) == 31
    assert head.size_bytes == listed.size_bytes
    assert head.max_timestamp_ms == listed.max_timestamp_ms
    assert len(head.segments) == 4


def test_the_newest_ledger_with_entries_stays_in_the_head() -> None:
    """NEWEST-IN-HEAD: a takeover walks back to it, and reads no page."""
    head, _ = paged(plain(2, empty=9), 2)
    assert head.pages == ()
    head, _ = paged(plain(3, empty=9), 2)
    assert [item.ledger_id for item in head.segments] == list(range(2, 13))
    nothing_yet = plain(0, empty=9)
    assert paged(nothing_yet, 2) == Paged(nothing_yet, ())


def aborted(one: Segment, ledger_id: int) -> Segment:
    """The same segment; what is aborted in it is listed in that ledger."""
    assert one.facts is not None
    place = SnapshotPlace(LedgerId(ledger_id), EntryId(0))
    known = TransactionFacts(True, 1, place, Offset(one.facts.last_offset + 1))
    return one._replace(facts=one.facts._replace(transactions=known))


def test_a_segment_listed_in_a_ledger_that_may_get_no_entry_stays_in_the_head() -> None:
    listed = plain(6, empty=1)
    for at, ledger_id, kept in ((1, 7, 1), (2, 6, 2), (3, 4, 5), (3, 3, 5)):
        segments = [*listed.segments]
        segments[at] = aborted(segments[at], ledger_id)
        head, _ = paged(listed._replace(segments=tuple(segments)), 1)
        assert head.segments[0].ledger_id == kept


def test_a_page_that_speaks_of_transactions_is_refused_by_old_brokers() -> None:
    page = Page((aborted(segment(4), 4), segment(5)))
    ref = ref_of(NAME, page)
    assert json.loads(page.encode())["version"] == 2
    assert decode_page(page.encode(), ref) == page
    assert json.loads(Page((segment(5),)).encode())["version"] == 1


def test_pages_of_a_full_level_move_into_one_of_the_next() -> None:
    listed = plain(5)
    pages: dict[PageName, Page] = {}
    for _ in range(40):
        listed, made = paged(listed, 2)
        pages |= dict(made)
        assert all(ref.name in pages for ref in listed.pages)
        for level in range(6):
            assert sum(1 for ref in listed.pages if ref.level == level) < 2
        listed = grown(listed)
    assert listed.page_count == len(pages)


def grown(listed: SegmentList) -> SegmentList:
    """Roll once."""
    *before, last = listed.segments
    number = last.ledger_id + 1
    assert last.base_offset is not None
    end = Offset(last.base_offset + 10)
    facts = SegmentFacts(Offset(end - 1), 100, 50)
    return listed._replace(
        segments=(
            *before,
            last._replace(facts=facts),
            Segment(LedgerId(number), end, listed.leader_epoch, 0),
        )
    ).check()


def test_a_page_opens_into_its_place() -> None:
    listed = plain(30)
    head, made = paged(listed, 3)
    pages = dict(made)
    opened = head
    while not opened.oldest:
        assert opened.front == (), "nothing is dropped from a page that is not open"
        opened = unfolded(opened, pages[opened.pages[0].name])
    assert opened.front == opened.oldest == listed.segments[:3]
    assert [ref.level for ref in opened.pages] == [0, 0, 1, 1]
    assert segment_count(opened) == segment_count(head)
    assert opened.size_bytes == head.size_bytes
    trimmed = opened.trimmed(2, Offset(20))
    assert trimmed.oldest == listed.segments[2:3]
    assert decode_segments(trimmed.encode()) == trimmed
    with pytest.raises(AssertionError):
        trimmed.trimmed(2, Offset(40))


def test_a_ledger_may_be_in_a_page() -> None:
    """PAGE-LOOK: the head alone never says that a ledger is not listed, if a page may hold it."""
    head, _ = paged(plain(30), 3)
    assert not is_inline(head, LedgerId(5))
    assert head.may_have(LedgerId(5))
    assert not head.may_have(LedgerId(31))


def test_searches_end_at_a_segment_or_at_its_page() -> None:
    listed = plain(9)
    head, made = paged(listed, 4)
    found = find_offset(head.items, Offset(47))
    assert isinstance(found, PageRef)
    assert find_offset(dict(made)[found.name].items, Offset(47)) == listed.segments[4]
    assert find_offset(head.items, Offset(80)) == listed.segments[8]
    # epochs 0 (0..49), 1 (50..89), 4 (90..): the page 40..79 has both
    inside = epoch_end(head, LeaderEpoch(0), Offset(99))
    assert inside == head.pages[1]
    assert find_epoch_end(dict(made)[head.pages[1].name].items, LeaderEpoch(0)) == (0, 50)
    assert epoch_end(head, LeaderEpoch(3), Offset(99)) == (1, 90)


def test_a_list_of_a_newer_broker_is_refused_in_words() -> None:
    with pytest.raises(LogCorrupt, match=r"version 9, only 1 to 5 are known.*newer broker"):
        decode_segments(b'{"version":9}')


@pytest.mark.parametrize(
    "change",
    [
        {"pages": 3}, {"pages": [[1]]}, {"oldest": None}, {"page_count": 0}, {"segments": []},
        {"page_count": "1"},
    ],
)  # fmt: skip
def test_a_damaged_list_with_pages_is_refused(change: dict[str, object]) -> None:
    head, _ = paged(plain(9), 4)
    value = json.loads(head.encode())
    assert value["pages"]
    with pytest.raises(LogCorrupt):
        decode_segments(json.dumps({**value, **change}).encode())
