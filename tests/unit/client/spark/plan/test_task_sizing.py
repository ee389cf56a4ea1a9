"""Ranges into tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.spark.plan.task_sizing import TINY_RECORDS, TaskLimits, cut, group
from client.spark.splits import OffsetRange, Position, TopicPartition


def ranges(*lengths: int) -> list[OffsetRange]:
    return [OffsetRange("id", "t", i, 100, 100 + length) for i, length in enumerate(lengths)]


def edges(pieces: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(piece.partition, piece.start, piece.end) for piece in pieces]


def test_without_limits_a_range_is_a_piece_and_empty_ones_go() -> None:
    assert edges(cut(ranges(5, 0, 7), TaskLimits(), {})) == [(0, 100, 105), (2, 100, 107)]


def test_max_records() -> None:
    assert edges(cut(ranges(10), TaskLimits(records_max=4), {})) == [
        (0, 100, 103), (0, 103, 106), (0, 106, 110),
    ]  # fmt: skip


def test_max_bytes_by_the_mean_size_of_a_partitions_records() -> None:
    sizes = {TopicPartition("t", 0): 100.0, TopicPartition("t", 1): 1.0}
    assert edges(cut(ranges(10, 10), TaskLimits(bytes_max=500), sizes)) == [
        (0, 100, 105), (0, 105, 110), (1, 100, 110),
    ]  # fmt: skip


def test_min_partitions_cuts_the_large_ranges() -> None:
    pieces = cut(ranges(1, 1000, 3000), TaskLimits(count_min=9), {})
    assert [piece.partition for piece in pieces] == [0] + 2 * [1] + 6 * [2]


def test_limits_make_a_multiple_of_min_partitions() -> None:
    limits = TaskLimits(count_min=4, records_max=20)
    assert [len(piece) for piece in cut(ranges(88), limits, {})] == [11] * 8
    assert len(cut(ranges(80), limits, {})) == 4
    assert [piece.partition for piece in cut(ranges(60, 21), limits, {})] == [0] * 6 + [1] * 2


@pytest.mark.parametrize("count_min", range(1, 14))
@pytest.mark.parametrize("lengths", [(1000, 1000, 1000), (10, 100, 1000), (2, 2, 2), (7, 7000)])
def test_there_are_as_many_tasks_as_min_partitions_says(
    lengths: tuple[int, ...], count_min: int
) -> None:
    """Spark's source makes 3 of three equal partitions when 4 are asked for, and 9 for 10."""
    limits = TaskLimits(count_min=count_min)
    groups = group(cut(ranges(*lengths), limits, {}), limits, {})
    assert len(groups) == min(count_min, sum(lengths))


def test_min_partitions_never_cuts_a_record() -> None:
    assert len(cut(ranges(2), TaskLimits(count_min=9), {})) == 2


def test_only_the_first_piece_keeps_the_hint() -> None:
    whole = OffsetRange("id", "t", 0, 0, 10, Position(1, 2))
    pieces = cut([whole], TaskLimits(records_max=5), {})
    assert [piece.hint for piece in pieces] == [Position(1, 2), None]


def test_tiny_neighbours_share_a_task() -> None:
    half = TINY_RECORDS // 2
    groups = group(ranges(half, half, 1, 3 * half, 1, 1), TaskLimits(), {})
    assert [[piece.partition for piece in each] for each in groups] == [[0, 1], [2], [3], [4, 5]]


def test_large_records_do_not_share() -> None:
    sizes = {TopicPartition("t", i): 1e6 for i in range(3)}
    assert len(group(ranges(1, 1, 1), TaskLimits(), sizes)) == 3


def test_sharing_stops_at_min_partitions_and_at_max_records() -> None:
    assert len(group(ranges(*[1] * 9), TaskLimits(count_min=5), {})) == 5
    assert len(group(ranges(*[1] * 9), TaskLimits(records_max=3), {})) == 3


def test_sharing_does_not_undo_a_cut_by_bytes() -> None:
    sizes = {TopicPartition("t", 0): 10.0}
    limits = TaskLimits(bytes_max=100)
    pieces = cut(ranges(50), limits, sizes)
    assert [len(each) for each in group(pieces, limits, sizes)] == [1] * 5


def test_the_end_of_a_partition_is_read_with_what_stands_before_it() -> None:
    """Its newest records are not confirmed in its ledger: they come another way, in one task."""
    ledger = OffsetRange("id", "t", 0, 0, 1_000_000)
    newest = OffsetRange("id", "t", 0, 1_000_000, 1_000_100)
    other = OffsetRange("id", "t", 1, 0, 100)
    pieces = [ledger, newest, other]
    assert group(pieces, TaskLimits(count_min=2), {}) == [[ledger, newest], [other]]
    assert len(group(pieces, TaskLimits(count_min=3), {})) == 3
    assert group(pieces, TaskLimits(records_max=1_000_000), {}) == [[ledger], [newest, other]]
    large = [ledger, OffsetRange("id", "t", 0, 1_000_000, 1_900_000)]
    assert len(group(large, TaskLimits(), {})) == 2


@given(
    lengths=st.lists(st.integers(0, 50_000), max_size=12),
    count_min=st.none() | st.integers(1, 40),
    records_max=st.none() | st.integers(1, 20_000),
    bytes_max=st.none() | st.integers(100, 1_000_000),
)
def test_a_plan_covers_every_offset_once_in_order(
    lengths: list[int], count_min: int | None, records_max: int | None, bytes_max: int | None
) -> None:
    whole = ranges(*lengths)
    if records_max is not None:
        records_max = max(records_max, max(lengths, default=1) // 100 + 1)
    if bytes_max is not None:
        bytes_max = max(bytes_max, max(lengths, default=1) // 10)
    limits = TaskLimits(count_min, records_max, bytes_max)
    sizes = {each.at: 10.0 for each in whole}
    pieces = cut(whole, limits, sizes)
    groups = group(pieces, limits, sizes)
    assert [piece for each in groups for piece in each] == pieces
    for each in whole:
        own = [piece for piece in pieces if piece.partition == each.partition]
        at = each.start
        for piece in own:
            assert piece.start == at < piece.end
            at = piece.end
        assert at == (each.end if own else each.start)
        assert bool(own) == bool(len(each))
    assert records_max is None or all(len(piece) <= records_max for piece in pieces)
    assert count_min is None or len(groups) >= min(count_min, len(pieces))
