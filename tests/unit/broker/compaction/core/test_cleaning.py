"""Which records a round leaves: each rule by itself."""

from __future__ import annotations

from collections.abc import Sequence

from broker.compaction.core.cleaning import AbortedRanges, Cleaner, KeyRound
from broker.compaction.core.key_map import SECRET_BYTES, KeyMap
from client.ids import Offset, ProducerId
from client.log.aborted_transactions import AbortedTransaction
from client.wire.kafka.batches.control_batch import Marker, build_marker, read_marker
from client.wire.kafka.batches.records import (
    DELETE_HORIZON_BIT,
    STAMP_BYTES,
    Record,
    build_batch,
    parse_header,
    stamp,
)
from client.wire.steps import finish
from tests.fakes.keyed import Kept, keyed, opened

NOW_MS = 1_800_000_000_000
RETAIN_MS = 1000


def at(batch: bytes, offset: int) -> bytes:
    """Return the batch with the offset that a log gives it."""
    header = parse_header(batch)
    return stamp(Offset(offset), header.batch_length, header.leader_epoch) + batch[STAMP_BYTES:]


def log(*batches: bytes) -> list[bytes]:
    """Give batches their offsets, from 0."""
    placed: list[bytes] = []
    offset = 0
    for batch in batches:
        placed.append(at(batch, offset))
        offset = parse_header(placed[-1]).next_offset
    return placed


def in_transaction(producer_id: int, *pairs: tuple[str, str]) -> bytes:
    return build_batch(
        [Record(key.encode(), value.encode(), NOW_MS - 5) for key, value in pairs],
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(producer_id: int, *, commit: bool) -> bytes:
    return build_marker(Marker(ProducerId(producer_id), 0, commit, 0), NOW_MS - 4)


def aborted_in(batches: Sequence[bytes]) -> list[AbortedTransaction]:
    """Return what the markers of a log have aborted, by a scan of all of it."""
    open_: dict[ProducerId, Offset] = {}
    found: list[AbortedTransaction] = []
    for batch in batches:
        header = parse_header(batch)
        if header.is_control:
            said = read_marker(batch)
            first = open_.pop(said.producer_id, None)
            if first is not None and not said.is_commit:
                found.append(AbortedTransaction(said.producer_id, first, header.base_offset))
        elif header.is_transactional:
            open_.setdefault(header.producer_id, header.base_offset)
    return found


def key_round(start: int, end: int) -> KeyRound:
    """Return a first pass of a small map over a part of a log."""
    part = Offset(start), Offset(end)
    return KeyRound(KeyMap(9, bytes(SECRET_BYTES), *part), *part)


def one_round(
    batches: Sequence[bytes],
    *,
    start: int = 0,
    end: int | None = None,
    slots: int = 1000,
    now_ms: int = NOW_MS,
    marked: int = 1 << 30,
) -> tuple[list[bytes], Cleaner]:
    """Run a round over a log; return what is left, and how it was cleaned.

    `marked`: of so many offsets it is noted whether they were superseded.
    """
    aborted = AbortedRanges(aborted_in(batches))
    last = parse_header(batches[-1]).next_offset if batches else Offset(0)
    until = last if end is None else Offset(end)
    keys = KeyMap(slots, bytes(SECRET_BYTES), Offset(start), min(until, Offset(start + marked)))
    found = KeyRound(keys, Offset(start), until)
    for batch in batches:
        finish(found.enter(batch, parse_header(batch), aborted))
    cleaner = Cleaner(found, now_ms, RETAIN_MS)
    left = [finish(cleaner.clean(batch, parse_header(batch), aborted)) for batch in batches]
    return [bytes(batch) for batch in left if batch is not None], cleaner


def test_newest_the_last_record_of_a_key_stays_and_what_has_no_key_goes() -> None:
    batches = log(keyed(("a", "1"), ("b", "1"), (None, "x")), keyed(("a", "2"), ("c", "1")))
    left, cleaner = one_round(batches)
    assert opened(left) == [Kept(1, "b", "1"), Kept(3, "a", "2"), Kept(4, "c", "1")]
    assert (cleaner.stats.records_in, cleaner.stats.records_out) == (5, 3)


def test_a_batch_that_loses_nothing_is_the_same_object() -> None:
    batch = log(keyed(("a", "1"), ("b", "1")))[0]
    keys = key_round(0, 2)
    finish(keys.enter(batch, parse_header(batch)))
    cleaner = Cleaner(keys, NOW_MS, RETAIN_MS)
    assert finish(cleaner.clean(batch, parse_header(batch))) is batch


def test_what_was_superseded_is_known_without_a_look_and_the_rest_is_looked_up() -> None:
    pairs = [(key, str(number)) for number in range(30) for key in "aab"[number % 3]]
    batches = log(*(keyed(*pairs[at : at + 4]) for at in range(0, 28, 4)), keyed(("c", "1")))
    whole, _ = one_round(batches)
    assert [one.offset for one in opened(whole)] == [26, 27, 28]
    for marked in range(30):
        left, cleaner = one_round(batches, marked=marked)
        assert (left, cleaner.stats.records_out) == (whole, 3)


def test_a_batch_of_which_all_was_superseded_is_not_opened() -> None:
    batches = log(keyed(("a", "1"), ("b", "1")), keyed(("a", "2"), ("b", "2")))
    found = key_round(0, 4)
    for batch in batches:
        finish(found.enter(batch, parse_header(batch)))
    closed = batches[0][:61] + b"\xff" * (len(batches[0]) - 61)
    assert finish(Cleaner(found, NOW_MS, RETAIN_MS).clean(closed, parse_header(closed))) is None


def test_a_batch_without_records_left_goes() -> None:
    left, _ = one_round(log(keyed(("a", "1")), keyed(("a", "2"))))
    assert opened(left) == [Kept(1, "a", "2")]


def test_round_end_what_stands_at_or_above_it_is_not_judged() -> None:
    batches = log(keyed(("a", "1"), ("a", "2"), ("a", "3"), (None, "x")), keyed(("a", "4")))
    left, _ = one_round(batches, end=2)
    assert [one.offset for one in opened(left)] == [1, 2, 3, 4]


def test_a_full_map_ends_the_round_before_the_key_that_does_not_fit() -> None:
    batches = log(keyed(*((f"k{number}", "1") for number in range(20))), keyed(("k0", "2")))
    left, cleaner = one_round(batches, slots=10)
    assert cleaner.end == 9
    assert len(opened(left)) == 21
    again, cleaner = one_round(left, start=9, slots=30)
    assert cleaner.end == 21
    assert [one.offset for one in opened(again)] == [*range(1, 21)]


def test_horizon_a_tombstone_goes_in_the_first_round_after_its_horizon_and_not_before() -> None:
    batches = log(keyed(("a", "1"), ("b", "1")), keyed(("a", None), ("c", "1")))
    first, cleaner = one_round(batches)
    assert opened(first) == [Kept(1, "b", "1"), Kept(2, "a", None), Kept(3, "c", "1")]
    assert cleaner.stats.next_horizon_ms == NOW_MS + RETAIN_MS
    header = parse_header(first[-1])
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW_MS + RETAIN_MS
    # Later rounds move no horizon.
    second, cleaner = one_round(first, start=4, now_ms=NOW_MS + RETAIN_MS)
    assert second == first
    assert cleaner.stats.next_horizon_ms == NOW_MS + RETAIN_MS
    third, cleaner = one_round(second, start=4, now_ms=NOW_MS + RETAIN_MS + 1)
    assert opened(third) == [Kept(1, "b", "1"), Kept(3, "c", "1")]
    assert cleaner.stats.next_horizon_ms == -1


def test_a_batch_of_which_more_is_judged_gets_a_new_horizon() -> None:
    """Or its second tombstone would go together with the value that it deletes, and whoever has
    read that one already would never hear of it."""
    batches = log(keyed(("b", "1")), keyed(("a", None), ("b", None)))
    first, _ = one_round(batches, end=2)
    assert parse_header(first[1]).base_timestamp == NOW_MS + RETAIN_MS
    later_ms = NOW_MS + RETAIN_MS + 1
    second, cleaner = one_round(first, start=2, now_ms=later_ms)
    assert opened(second) == [Kept(2, "b", None)]
    assert cleaner.stats.next_horizon_ms == later_ms + RETAIN_MS


def test_an_overwritten_tombstone_goes_at_once() -> None:
    left, cleaner = one_round(log(keyed(("a", None)), keyed(("a", "2"))))
    assert opened(left) == [Kept(1, "a", "2")]
    assert cleaner.stats.next_horizon_ms == -1


def test_aborted_data_goes_and_is_newer_than_nothing() -> None:
    batches = log(
        keyed(("a", "1"), ("b", "1")),
        in_transaction(7, ("a", "void"), ("c", "void")),
        keyed(("b", "2")),
        marker(7, commit=False),
        in_transaction(7, ("d", "1")),
        marker(7, commit=True),
    )
    left, cleaner = one_round(batches)
    data = [batch for batch in left if not parse_header(batch).is_control]
    assert opened(data) == [Kept(0, "a", "1"), Kept(4, "b", "2"), Kept(6, "d", "1")]
    markers = [batch for batch in left if parse_header(batch).is_control]
    assert markers == [batches[3], batches[5]]
    assert cleaner.stats.next_horizon_ms == -1


def test_a_marker_goes_a_horizon_after_its_data() -> None:
    batches = log(in_transaction(7, ("a", "1")), marker(7, commit=True), keyed(("a", "2")))
    first, _ = one_round(batches)
    assert [parse_header(batch).base_offset for batch in first] == [1, 2]
    assert first[0] == batches[1], "its data was still there"
    second, cleaner = one_round(first)
    assert read_marker(second[0]) == read_marker(batches[1])
    assert cleaner.stats.next_horizon_ms == NOW_MS + RETAIN_MS
    third, _ = one_round(second, now_ms=NOW_MS + RETAIN_MS)
    assert third == second
    fourth, _ = one_round(third, now_ms=NOW_MS + RETAIN_MS + 1)
    assert [parse_header(batch).base_offset for batch in fourth] == [2]


def test_markers_are_not_judged_by_their_keys() -> None:
    batches = log(
        in_transaction(7, ("a", "1")), marker(7, commit=True),
        in_transaction(8, ("b", "1")), marker(8, commit=True),
    )  # fmt: skip
    left, _ = one_round(batches)
    assert left == batches


def test_what_was_clean_already_does_not_enter_the_map() -> None:
    batches = log(keyed(("a", "1"), ("b", "1")), keyed(("c", "1")))
    found = key_round(2, 3)
    for batch in batches:
        finish(found.enter(batch, parse_header(batch)))
    assert len(found.keys) == 1
