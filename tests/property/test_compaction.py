"""Compaction against a dict of last values, over random logs and many rounds.

The log has transactions, committed and aborted, interleaved; a map that is too small; rounds that
end anywhere below the last stable offset. After each round: for every key, what a read_committed
reader ends with is what it was (Z1, Z5); every record that is left is one that was written (Z2);
tombstones stay until their horizon (Z4).
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from client.ids import Offset
from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import parse_header
from tests.fakes.keyed import Kept, keyed, opened
from tests.unit.broker.compaction.core.test_cleaning import (
    NOW_MS,
    RETAIN_MS,
    at,
    in_transaction,
    marker,
    one_round,
)

KEYS = "abcdefgh"
PAIRS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.sampled_from("xyz"))),
    min_size=1,
    max_size=4,
)
STEP = st.one_of(
    st.tuples(st.just("plain"), PAIRS),
    st.tuples(st.just("data"), st.integers(1, 3), PAIRS),
    st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
)
ROUND = st.tuples(
    st.integers(2, 12), st.integers(0, 100), st.integers(0, RETAIN_MS * 2), st.integers(0, 50)
)


def written(steps: list[tuple[object, ...]]) -> tuple[list[bytes], int]:
    """Return a log, and its last stable offset."""
    batches: list[bytes] = []
    open_: dict[int, int] = {}
    end = 0
    for kind, *rest in steps:
        if kind == "plain":
            made = keyed(*rest[0])  # type: ignore[misc]
        elif kind == "data":
            producer_id, pairs = rest
            open_.setdefault(producer_id, end)  # type: ignore[arg-type]
            made = in_transaction(
                producer_id,  # type: ignore[arg-type]
                *((key, value or "t") for key, value in pairs),  # type: ignore[attr-defined]
            )
        else:
            producer_id, commit = rest
            if open_.pop(producer_id, None) is None:  # type: ignore[arg-type]
                continue
            made = marker(producer_id, commit=bool(commit))  # type: ignore[arg-type]
        batches.append(at(made, end))
        end = parse_header(batches[-1]).next_offset
    return batches, min(open_.values(), default=end)


def committed(batches: list[bytes], stable: int) -> list[Kept]:
    """Return what a read_committed reader gets below an offset, by the markers that are left."""
    ends: dict[int, list[tuple[int, bool]]] = {}
    for batch in batches:
        header = parse_header(batch)
        if header.is_control:
            found = read_marker(batch)
            ends.setdefault(found.producer_id, []).append((header.base_offset, found.is_commit))
    result: list[Kept] = []
    for batch in batches:
        header = parse_header(batch)
        if header.is_control or header.base_offset >= stable:
            continue
        if header.is_transactional:
            later = [one for one in ends[header.producer_id] if one[0] > header.base_offset]
            if not min(later)[1]:
                continue
        result += opened([batch])
    return result


def last_values(records: list[Kept]) -> dict[str, str]:
    known: dict[str, str] = {}
    for one in records:
        assert one.key is not None
        if one.value is None:
            known.pop(one.key, None)
        else:
            known[one.key] = one.value
    return known


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=40), st.lists(ROUND, min_size=1, max_size=5))
def test_every_reader_ends_with_the_same_values(
    steps: list[tuple[object, ...]], rounds: list[tuple[int, int, int, int]]
) -> None:
    batches, stable = written(steps)
    truth = committed(batches, stable)
    everything = {*opened(batch for batch in batches if not parse_header(batch).is_control)}
    start, now_ms = 0, NOW_MS
    met: dict[Kept, int] = {}
    for slots, share, pause_ms, marked in rounds:
        now_ms += pause_ms
        end = Offset(start + (stable - start) * share // 100)
        before = [one for one in committed(batches, stable) if one.value is None]
        batches, cleaner = one_round(
            batches, start=start, end=end, slots=slots, now_ms=now_ms, marked=marked
        )
        start = max(start, cleaner.end)
        left = committed(batches, stable)
        assert last_values(left) == last_values(truth)
        data = opened(batch for batch in batches if not parse_header(batch).is_control)
        assert {*data} <= everything
        assert [one.offset for one in data] == sorted(one.offset for one in data)
        newest = {one.key: one for one in truth if one.offset < cleaner.end}
        for one in before:
            if one.offset < cleaner.end and newest[one.key] == one:
                # It was there and is the last one: it may go only once its horizon is over.
                if one in left:
                    met.setdefault(one, now_ms)
                else:
                    assert now_ms > met[one] + RETAIN_MS
    for one in data:
        later = [other for other in left if other.key == one.key and other.offset > one.offset]
        is_judged = one.offset < start and one in left
        assert not is_judged or not [other for other in later if other.offset < start]
