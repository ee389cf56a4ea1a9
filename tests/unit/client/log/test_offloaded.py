"""What the list becomes on the way to an object store: made where it fits, refused elsewhere,
written and read back, in the head and in pages."""

from __future__ import annotations

import pytest

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.offload_state import NEVER_OFFLOADED, Marked
from client.log.offloaded import (
    Abandon,
    Commit,
    Drop,
    Intend,
    Reject,
    Step,
    Unbury,
    after,
    last_of,
    name_of,
    needed,
    trimmed_away,
)
from client.log.segment import (
    Segment,
    SegmentFacts,
    SnapshotPlace,
    StoredObject,
    TransactionFacts,
)
from client.log.segment_object import ObjectName
from client.log.segment_pages import decode_page, ref_of
from client.log.segments import SegmentList, decode_segments, paged

STORED = StoredObject(5, 100, 30, 77, 9)


def name(number: int, attempt: int = 5) -> ObjectName:
    return ObjectName(Offset(10 * number), LedgerId(number), attempt)


def end(number: int) -> Offset:
    return Offset(10 * number + 10)


def listed(count: int = 4) -> SegmentList:
    sealed = tuple(
        Segment(
            LedgerId(at),
            Offset(10 * at),
            LeaderEpoch(0),
            1,
            SegmentFacts(Offset(10 * at + 9), 8, 1),
        )
        for at in range(count)
    )
    active = Segment(LedgerId(count), Offset(10 * count), LeaderEpoch(0), 1)
    return SegmentList(LeaderEpoch(0), segments=(*sealed, active)).check()


def made(found: SegmentList, *steps: Step) -> SegmentList:
    for step in steps:
        done = after(found, step, (), 50)
        assert done is not None, step
        found = done.segments.check()
        assert decode_segments(found.encode()) == found
    return found


def stored(count: int, of: int = 4) -> SegmentList:
    found = listed(of)
    for at in range(count):
        found = made(found, Intend(name(at), end(at)), Commit(name(at), end(at), STORED))
    return found


def test_a_list_that_never_heard_of_it_is_written_as_before() -> None:
    assert listed().offload is NEVER_OFFLOADED
    assert b'"version":1' in listed().encode()
    assert b'"version":5' in made(listed(), Intend(name(0), end(0))).encode()
    assert b'"version":5' in made(stored(1), Reject(name(0), end(0)), Unbury((name(0),))).encode()


def test_the_whole_way() -> None:
    found = made(stored(2), Drop(name(0), end(0)))
    first, second, third, *_ = found.segments
    assert first.is_ledger_gone
    assert not second.is_ledger_gone
    assert name_of(second) == name(1)
    assert name_of(third) is None
    assert (found.offload.stored_until, found.offload.local_from) == (20, 10)
    assert found.offload.intent is None


REFUSED: dict[str, tuple[SegmentList, Step]] = {
    "a second intent": (made(listed(), Intend(name(0), end(0))), Intend(name(1), end(1))),
    "instead of none": (listed(), Intend(name(0), end(0), name(0, 9))),
    "a commit without intent": (listed(), Commit(name(0), end(0), STORED)),
    "a commit of another attempt": (
        made(listed(), Intend(name(0), end(0))), Commit(name(0, 6), end(0), STORED)
    ),
    "a commit of a segment that is not there": (
        made(listed(), Intend(name(9), end(9))), Commit(name(9), end(9), STORED)
    ),
    "a commit of one that ends elsewhere": (
        made(listed(), Intend(name(0), Offset(9))), Commit(name(0), Offset(9), STORED)
    ),
    "a drop without object": (stored(1), Drop(name(1), end(1))),
    "a drop of another attempt's": (stored(2), Drop(name(1, 6), end(1))),
    "a second drop": (made(stored(1), Drop(name(0), end(0))), Drop(name(0), end(0))),
    "a drop of the tail": (stored(4), Drop(name(3), end(3))),
    "a rejection of all that is left": (
        made(stored(1), Drop(name(0), end(0))), Reject(name(0), end(0))
    ),
    "to abandon what was not intended": (stored(1), Abandon(name(0))),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_changes_nothing(what: str) -> None:
    assert after(*REFUSED[what], (), 50) is None


def test_what_did_not_come_about_is_buried_and_stays_so_until_it_is_gone() -> None:
    found = made(listed(), Intend(name(0), end(0)), Intend(name(0, 6), end(0), name(0)))
    assert found.offload.intent == Marked(name(0, 6), 50)
    assert found.offload.graves == (Marked(name(0), 50),)
    found = made(found, Abandon(name(0, 6)), Unbury((name(0),)))
    assert found.offload.intent is None
    assert found.offload.graves == (Marked(name(0, 6), 50),)


def test_a_rejected_object_is_buried_and_its_segment_copied_anew() -> None:
    found = made(stored(2), Reject(name(1), end(1)))
    assert found.offload.graves == (Marked(name(1), 50),)
    assert found.offload.stored_until == 10
    assert made(found, Intend(name(1, 8), end(1))).offload.intent is not None


def test_a_trim_buries_objects_and_the_one_that_is_being_made() -> None:
    found = made(stored(2), Intend(name(2), end(2)))
    state = trimmed_away(found.offload, found.segments[:3], 60)
    assert [one.name for one in state.graves] == [name(0), name(1), name(2)]
    assert state.intent is None
    state = trimmed_away(found.offload, found.segments[:1], 60)
    assert state.intent is not None


def test_no_ledger_goes_that_a_takeover_may_need() -> None:
    assert needed(listed()) == {3, 4}
    found = listed()
    *before, last, active = found.segments
    assert last.facts is not None
    empty = last._replace(facts=last.facts._replace(size_bytes=0))
    assert needed(found._replace(segments=(*before, empty, active))) == {2, 3, 4}
    # The active ledger should list what the first one has aborted, and may have no entry yet.
    facts = before[0].facts
    assert facts is not None
    known = TransactionFacts(True, 1, SnapshotPlace(LedgerId(4), EntryId(0)), end(0))
    first = before[0]._replace(facts=facts._replace(transactions=known))
    assert needed(found._replace(segments=(first, *before[1:], last, active))) == {0, 3, 4}


def test_a_segment_in_a_page_changes_in_a_new_page() -> None:
    found, new = paged(made(listed(6), Intend(name(0), end(0))), LedgerId(6), 4)
    (page,) = new
    step = Commit(name(0), end(0), STORED)
    assert last_of(step) == 9
    done = after(found, step, [page.page], 50)
    assert done is not None
    assert done.dropped == (ref_of(*page),)
    (changed,) = done.pages
    assert b'"version":3' in changed.page.encode()
    ref = ref_of(*changed)
    assert done.segments.pages == (ref,)
    assert decode_page(changed.page.encode(), ref).segments[0].stored == STORED
    assert b'"version":1' in page.page.encode()


@pytest.mark.parametrize(
    "spoiled",
    [
        b'"object":[1,2,3,4,5]', b'"object":[1,2,3,4,-5,false]', b'"object":[1,2,3,4,5,6]',
        b'"object":7', b'"object":[true,2,3,4,5,false]',
    ],
)  # fmt: skip
def test_an_object_that_makes_no_sense_is_refused(spoiled: bytes) -> None:
    data = stored(1).encode()
    whole = b'"object":[5,100,30,77,9,false]'
    assert whole in data
    with pytest.raises(LogCorrupt):
        decode_segments(data.replace(whole, spoiled))
