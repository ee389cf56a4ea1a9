"""A run of segments replaced by others: in the head, in a page; and whenever it may not be."""

from __future__ import annotations

import pytest

from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.compacted import Round, Swap, completed, page_of, released, swapped
from client.log.segment_pages import Page
from client.log.segments import (
    COMPACTED_VERSION,
    Segment,
    SegmentFacts,
    SegmentList,
    decode_segments,
    epoch_end,
    is_inline,
    paged,
    unfolded,
)

NOW_MS = 77


def segment(ledger: int, base: int, end: int | None, epoch: int = 0) -> Segment:
    facts = None if end is None else SegmentFacts(Offset(end - 1), 100, 5)
    return Segment(LedgerId(ledger), Offset(base), LeaderEpoch(epoch), 1, facts)


def log(count: int, epoch: int = 0) -> SegmentList:
    sealed = tuple(segment(number, 10 * number, 10 * number + 10) for number in range(count))
    last = segment(count, 10 * count, None, epoch)
    return SegmentList(LeaderEpoch(epoch), Offset(0), (*sealed, last)).check()


def swap(old: tuple[int, ...], base: int, *ends: int, epoch: int = 0) -> Swap:
    new: list[Segment] = []
    for number, end in enumerate(ends):
        one = segment(900 + number, base, end, epoch)._replace(cleaned=True)
        new.append(one._replace(facts=SegmentFacts(Offset(end - 1), 30, 5)))
        base = end
    return Swap(tuple(map(LedgerId, old)), tuple(new))


def ledgers(listed: SegmentList) -> list[int]:
    return [one.ledger_id for one in listed.segments]


def test_new_segments_stand_where_the_old_ones_did() -> None:
    listed = log(6)
    assert page_of(listed, swap((1, 2, 3), 10, 25, 40)) is None
    found = swapped(listed, swap((1, 2, 3), 10, 25, 40), (), NOW_MS)
    assert found is not None
    assert ledgers(found.segments) == [0, 900, 901, 4, 5, 6]
    assert found.pages == found.dropped == ()
    state = found.segments.compaction
    assert [(one.ledger_id, one.since_ms) for one in state.retired] == [(1, 77), (2, 77), (3, 77)]
    assert state.saved_bytes == 300 - 60
    assert all(is_inline(found.segments, LedgerId(ledger)) for ledger in (1, 2, 3, 900))
    assert decode_segments(found.segments.encode()) == found.segments
    assert f'"version":{COMPACTED_VERSION}'.encode() in found.segments.encode()
    after = released(found.segments, {LedgerId(1), LedgerId(3)})
    assert [one.ledger_id for one in after.compaction.retired] == [2]


@pytest.mark.parametrize(
    "made",
    [
        swap((1, 3), 10, 40),  # not one after the other
        swap((2, 1), 10, 30),
        swap((1, 9), 10, 30),  # not listed
        swap((9,), 10, 20),
        swap((1, 2), 10, 29),  # not the same offsets
        swap((1, 2), 11, 30),
        swap((1, 2), 10, 30, epoch=1),  # another epoch
        swap((6,), 60, 70),  # not sealed
    ],
)
def test_compact_cas_anything_else_changes_nothing(made: Swap) -> None:
    assert swapped(log(6), made, (), NOW_MS) is None


def test_a_run_of_two_epochs_is_not_replaced() -> None:
    listed = log(4)
    before = listed.segments
    two = listed._replace(
        leader_epoch=LeaderEpoch(1),
        segments=(*before[:2], *(one._replace(leader_epoch=LeaderEpoch(1)) for one in before[2:])),
    ).check()
    assert swapped(two, swap((1, 2), 10, 30), (), NOW_MS) is None
    assert swapped(two, swap((1,), 10, 20), (), NOW_MS) is not None


def test_a_segment_that_was_trimmed_does_not_come_back() -> None:
    listed = log(6).trimmed(2, Offset(20))
    assert swapped(listed, swap((1, 2), 10, 30), (), NOW_MS) is None
    assert page_of(listed, swap((0,), 0, 10)) is None


def test_ends_of_epochs_and_searches_are_as_before() -> None:
    listed = log(6)
    found = swapped(listed, swap((0, 1, 2), 0, 30), (), NOW_MS)
    assert found is not None
    end = Offset(65)
    for epoch in (-1, 0, 1):
        assert epoch_end(found.segments, LeaderEpoch(epoch), end) == epoch_end(
            listed, LeaderEpoch(epoch), end
        )


def test_in_a_page_all_pages_above_are_made_anew() -> None:
    listed, made = paged(log(20), LedgerId(20), 2)
    pages = {new.name: new.page for new in made}
    wanted = swap((4, 5), 40, 60)
    ref = page_of(listed, wanted)
    assert ref is not None
    trail: list[Page] = [pages[ref.name]]
    while trail[-1].pages:
        inner = next(one for one in trail[-1].pages if one.base_offset <= 59 < one.end_offset)
        trail.append(pages[inner.name])
    assert swapped(listed, wanted, trail[:-1], NOW_MS) is None
    found = swapped(listed, wanted, trail, NOW_MS)
    assert found is not None
    assert len(found.pages) == len(found.dropped) == len(trail)
    assert found.segments.page_count == listed.page_count + len(trail)
    pages |= {new.name: new.page for new in found.pages}

    def flat(of: SegmentList) -> list[int]:
        while of.pages:
            of = of._replace(segments=(*of.oldest, *of.segments), oldest=())
            page = pages[of.pages[-1].name]
            rest = of._replace(pages=(*of.pages[:-1], *page.pages))
            of = rest._replace(segments=(*page.segments, *rest.segments))
        return ledgers(of)

    assert flat(listed) == [*range(21)]
    assert flat(found.segments) == [0, 1, 2, 3, 900, *range(6, 21)]


def test_in_what_is_left_of_the_oldest_page() -> None:
    listed, made = paged(log(9), LedgerId(9), 4)
    pages = {new.name: new.page for new in made}
    open_ = unfolded(listed, pages[listed.pages[0].name])
    found = swapped(open_, swap((1, 2), 10, 30), (), NOW_MS)
    assert found is not None
    assert [one.ledger_id for one in found.segments.oldest] == [0, 900, 3]


def test_a_complete_round_moves_the_clean_end_and_never_back() -> None:
    after = completed(log(6), Round(Offset(40), 99), NOW_MS)
    assert after.compaction[:3] == (40, NOW_MS, 99)
    again = completed(after, Round(Offset(30), -1), 78)
    assert again.compaction[:3] == (40, 78, -1)
