"""The segment list: legal changes, lookups, JSON."""

from __future__ import annotations

import json

import pytest

from client.errors import LogCorrupt
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.segment import SnapshotPlace, TransactionFacts
from client.log.segment_pages import find_offset
from client.log.segments import (
    Segment,
    SegmentFacts,
    SegmentList,
    decode_epoch,
    decode_segments,
    epoch_end,
    is_inline,
)


def facts(last: int, size: int = 1000, newest: int = 50) -> SegmentFacts:
    return SegmentFacts(Offset(last), size, newest)


def opened(
    before: SegmentList, ledger: int, base: int, recovered: dict[int, tuple[int, int]] | None = None
) -> SegmentList:
    return before.opened(
        LedgerId(ledger),
        base_offset=Offset(base),
        created_ms=7,
        recovered={
            LedgerId(key): (Offset(start), facts(last))
            for key, (start, last) in (recovered or {}).items()
        },
    )


def three() -> SegmentList:
    """Ledgers 1 (0..9), 2 (10..29), 3 (30..), epochs 0, 0, 1."""
    first = opened(SegmentList(), 1, 0)
    rolled = first.rolled(LedgerId(2), 8).sealed(facts(9))
    return opened(rolled, 3, 30, {2: (10, 29)})


def test_each_open_raises_the_epoch_and_adds_a_ledger() -> None:
    first = opened(SegmentList(), 1, 0)
    assert first.leader_epoch == 0
    second = opened(first, 2, 10, {1: (0, 9)})
    assert second.leader_epoch == 1
    assert [item.ledger_id for item in second.segments] == [1, 2]
    assert second.segments[0].facts == facts(9)
    assert second.segments[1] == Segment(LedgerId(2), Offset(10), LeaderEpoch(1), 7)


def test_a_roll_adds_a_ledger_whose_base_is_not_known_yet() -> None:
    rolled = opened(SegmentList(), 1, 0).rolled(LedgerId(2), 8)
    assert rolled.leader_epoch == 0
    assert rolled.segments[1].base_offset is None
    sealed = rolled.sealed(facts(9))
    assert sealed.segments[0].end_offset == 10
    assert sealed.segments[1].base_offset == 10


def test_never_more_than_two_unsealed_segments() -> None:
    rolled = opened(SegmentList(), 1, 0).rolled(LedgerId(2), 8)
    with pytest.raises(AssertionError):
        rolled.rolled(LedgerId(3), 9)


def test_a_takeover_during_a_roll_seals_both() -> None:
    rolled = opened(SegmentList(), 1, 0).rolled(LedgerId(2), 8)
    taken = opened(rolled, 3, 15, {1: (0, 9), 2: (10, 14)})
    assert [(s.base_offset, s.end_offset) for s in taken.segments] == [
        (0, 10), (10, 15), (15, None),
    ]  # fmt: skip


def test_gaps_and_repeated_ledgers_are_impossible() -> None:
    with pytest.raises(AssertionError):
        opened(opened(SegmentList(), 1, 0), 2, 11, {1: (0, 9)})
    with pytest.raises(AssertionError):
        opened(opened(SegmentList(), 1, 0), 1, 10, {1: (0, 9)})


def test_trim_drops_a_prefix_and_keeps_the_last() -> None:
    listed = three()
    trimmed = listed.trimmed(1, Offset(12))
    assert trimmed.log_start_offset == 12
    assert [item.ledger_id for item in trimmed.segments] == [2, 3]
    with pytest.raises(AssertionError):
        listed.trimmed(3, Offset(30))
    with pytest.raises(AssertionError):
        trimmed.trimmed(0, Offset(11))


def found(listed: SegmentList, offset: int) -> int:
    return listed.items.index(find_offset(listed.items, Offset(offset)))


def test_find_skips_segments_without_records() -> None:
    listed = opened(opened(three(), 4, 30, {3: (30, 29)}), 5, 30, {4: (30, 29)})
    assert [found(listed, at) for at in (0, 9, 10, 29, 30, 99)] == [0, 0, 1, 1, 4, 4]


def test_find_ignores_a_base_that_is_not_known() -> None:
    rolled = opened(SegmentList(), 1, 0).rolled(LedgerId(2), 8)
    assert found(rolled, 500) == 0


def test_epoch_ends() -> None:
    listed = opened(three(), 4, 40, {3: (30, 39)})  # epochs 0: 0..29, 1: 30..39, 2: 40..
    end = Offset(55)

    def ask(epoch: int) -> object:
        return epoch_end(listed, LeaderEpoch(epoch), end)

    assert [ask(epoch) for epoch in (0, 1, 2)] == [(0, 30), (1, 40), (2, 55)]
    assert [ask(epoch) for epoch in (-1, 3)] == [(-1, -1), (-1, -1)]
    assert epoch_end(listed.trimmed(2, Offset(30)), LeaderEpoch(0), end) == (0, 30)
    assert epoch_end(SegmentList(), LeaderEpoch(0), end) == (-1, -1)


def test_epochs_without_segments_answer_with_the_one_before() -> None:
    listed = SegmentList(
        LeaderEpoch(9),
        Offset(0),
        (
            Segment(LedgerId(1), Offset(0), LeaderEpoch(2), 0, facts(9)),
            Segment(LedgerId(2), Offset(10), LeaderEpoch(9), 0),
        ),
    )
    assert epoch_end(listed, LeaderEpoch(5), Offset(20)) == (2, 10)


def test_json_round_trip() -> None:
    for listed in (SegmentList(), three(), three().rolled(LedgerId(4), 9), three().condemned()):
        assert decode_segments(listed.encode()) == listed
    assert decode_segments(b"") == SegmentList()


def test_json_names() -> None:
    value = json.loads(three().encode())
    assert value["version"] == 1
    assert value["leader_epoch"] == 1
    assert value["segments"][0] == {
        "ledger": 1, "base_offset": 0, "leader_epoch": 0, "created_ms": 7,
        "last_offset": 9, "bytes": 1000, "max_timestamp_ms": 50,
    }  # fmt: skip
    assert "last_offset" not in value["segments"][2]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":2}',
        b'{"version":1}',
        b'{"version":3}',
        b'{"version":4}',
        b'{"version":3,"leader_epoch":0,"log_start_offset":0,"segments":[]}',
        b"null",
        b'{"version":1,"segments":3}',
    ],
)
def test_damaged_json_is_refused(data: bytes) -> None:
    with pytest.raises(LogCorrupt):
        decode_segments(data)


def test_the_epoch_alone_is_that_of_the_list() -> None:
    for listed in (SegmentList(), three(), three().rolled(LedgerId(4), 9), three().condemned()):
        assert decode_epoch(listed.encode()) == listed.leader_epoch
    assert decode_epoch(b"") == SegmentList().leader_epoch


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"\xff",
        b"[]",
        b'{"version":1}',
        b'{"version":9,"leader_epoch":1}',
        b'{"version":1,"leader_epoch":-2}',
        b'{"version":1,"leader_epoch":1.0}',
    ],
)
def test_an_epoch_of_no_list_that_we_know_is_refused(data: bytes) -> None:
    with pytest.raises(LogCorrupt):
        decode_epoch(data)


def test_json_that_breaks_an_invariant_is_refused() -> None:
    value = json.loads(three().encode())
    value["segments"][1]["base_offset"] = 11
    with pytest.raises(LogCorrupt):
        decode_segments(json.dumps(value).encode())


def test_has() -> None:
    assert is_inline(three(), LedgerId(2))
    assert not three().may_have(LedgerId(9))


def transactional(place: SnapshotPlace | None = None, *, stable: int = 4) -> SegmentList:
    """Like `three`, with transactions in the first segment."""
    first, *rest = three().segments
    assert first.facts is not None
    known = TransactionFacts(True, 2 if place else 0, place, Offset(stable))
    sealed = first._replace(facts=first.facts._replace(transactions=known))
    return three()._replace(segments=(sealed, *rest)).check()


@pytest.mark.parametrize("place", [None, SnapshotPlace(LedgerId(2), EntryId(0))])
def test_facts_of_transactions(place: SnapshotPlace | None) -> None:
    listed = transactional(place)
    value = json.loads(listed.encode())
    assert value["version"] == 3
    assert value["segments"][0]["stable_at_end"] == 4
    assert ("aborted_at" in value["segments"][0]) == (place is not None)
    assert "stable_at_end" not in value["segments"][1]
    assert decode_segments(listed.encode()) == listed
    assert [item.facts.stable_offset for item in listed.segments if item.facts] == [4, 30]
    assert json.loads(three().encode())["version"] == 1, "old brokers read it still"


@pytest.mark.parametrize(
    "change",
    [
        {"transactional": 1},
        {"stable_at_end": 11},
        {"stable_at_end": -1},
        {"aborted": 2},
        {"aborted": 2, "aborted_at": [1]},
        {"aborted": 2, "aborted_at": [1, -1]},
        {"aborted": 2, "aborted_at": 7},
    ],
)
def test_damaged_facts_of_transactions_are_refused(change: dict[str, object]) -> None:
    value = json.loads(transactional().encode())
    value["segments"][0] |= change
    with pytest.raises(LogCorrupt, match="damaged"):
        decode_segments(json.dumps(value).encode())


def test_a_takeover_may_say_anew_where_aborted_transactions_are_listed() -> None:
    listed = transactional(SnapshotPlace(LedgerId(3), EntryId(0)))
    known = listed.segments[0].facts
    assert known is not None
    assert known.transactions is not None
    there = SnapshotPlace(LedgerId(4), EntryId(0))
    moved = known._replace(transactions=known.transactions._replace(aborted_at=there))
    recovered = {LedgerId(1): (Offset(0), moved), LedgerId(3): (Offset(30), facts(29, 0, -1))}
    after = listed.opened(LedgerId(4), base_offset=Offset(30), created_ms=9, recovered=recovered)
    assert after.segments[0].facts == moved
    assert after.segments[1] == listed.segments[1]
