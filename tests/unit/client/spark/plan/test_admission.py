"""How much one batch takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.spark.plan.admission import Admission, TriggerLimits
from client.spark.splits import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))
ZERO = {A: 0, B: 0, C: 0}


def end(limits: TriggerLimits, latest: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return Admission(limits).end(ZERO, latest, 0, {A: 10.0, B: 10.0, C: 10.0})


def test_without_limits_everything_goes() -> None:
    assert end(TriggerLimits(), {A: 5, B: 0, C: 10**12}) == {A: 5, B: 0, C: 10**12}


def test_max_offsets_is_shared_out_by_backlog() -> None:
    shares = end(TriggerLimits(offsets_max=100), {A: 1000, B: 3000, C: 0})
    assert shares == {A: 25, B: 75, C: 0}


def test_every_partition_with_records_moves() -> None:
    shares = end(TriggerLimits(offsets_max=10), {A: 1, B: 1, C: 10**6})
    assert shares[A] == shares[B] == 1
    assert shares[C] == 9


def test_max_bytes_counts_what_records_weigh() -> None:
    shares = Admission(TriggerLimits(bytes_max=1000)).end(
        ZERO, {A: 1000, B: 1000, C: 0}, 0, {A: 1.0, B: 9.0, C: 1.0}
    )
    assert shares == {A: 100, B: 100, C: 0}


def test_the_tighter_limit_counts() -> None:
    both = TriggerLimits(offsets_max=50, bytes_max=100)
    assert end(both, {A: 100, B: 0, C: 0}) == {A: 10, B: 0, C: 0}


def test_min_offsets_waits_and_the_delay_ends_the_waiting() -> None:
    admission = Admission(TriggerLimits(offsets_min=10, delay_ms_max=1000))
    assert admission.end(ZERO, {A: 10, B: 0, C: 0}, 0, {}) == {A: 10, B: 0, C: 0}
    begin = {A: 10, B: 0, C: 0}
    few = {A: 10, B: 9, C: 0}
    assert admission.end(begin, few, 500, {}) == begin
    assert admission.end(begin, few, 999, {}) == begin
    assert admission.end(begin, few, 1000, {}) == few
    assert admission.end(few, {A: 11, B: 9, C: 0}, 1999, {}) == few
    assert admission.end(few, {A: 20, B: 9, C: 0}, 1999, {}) == {A: 20, B: 9, C: 0}


def test_after_a_restart_few_records_do_not_wait_again() -> None:
    admission = Admission(TriggerLimits(offsets_min=10, delay_ms_max=1000))
    assert admission.end(ZERO, {A: 1, B: 0, C: 0}, 10**9, {}) == {A: 1, B: 0, C: 0}


def test_a_query_in_a_hurry_does_not_wait_for_more() -> None:
    admission = Admission(TriggerLimits(offsets_min=10, delay_ms_max=1000))
    admission.end(ZERO, {A: 10, B: 0, C: 0}, 0, {})
    begin, few = {A: 10, B: 0, C: 0}, {A: 11, B: 0, C: 0}
    assert admission.end(begin, few, 1, {}) == begin
    assert admission.end(begin, few, 1, {}, hurry=True) == few


@pytest.mark.parametrize("bytes_max", [None, 50])
@given(
    backlog=st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
    offsets_max=st.integers(1, 10**6),
)
def test_shares_stay_within_the_limit_and_starve_nobody(
    backlog: list[int], offsets_max: int, bytes_max: int | None
) -> None:
    start = {TopicPartition("t", i): 5 for i in range(len(backlog))}
    latest = {at: 5 + backlog[at.partition] for at in start}
    limits = TriggerLimits(offsets_max=offsets_max, bytes_max=bytes_max)
    found = Admission(limits).end(start, latest, 0, dict.fromkeys(start, 2.0))
    for at in start:
        assert start[at] <= found[at] <= latest[at]
        assert (found[at] > start[at]) == (latest[at] > start[at])
    taken = sum(found[at] - start[at] for at in start)
    assert taken <= offsets_max + len(backlog)
    if bytes_max is not None:
        assert taken * 2 <= bytes_max + 2 * len(backlog)
