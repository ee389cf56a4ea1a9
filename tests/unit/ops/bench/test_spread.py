"""Percentiles without interpolation, medians and spreads."""

import pytest

from ops.bench.load.channel import LoadFailed
from ops.bench.load.latency import latencies_ms, tail_figures
from ops.bench.spread import Spread, percentile, spread


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.001, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile(range(1, 101), share) == expected


def test_one_value_is_every_percentile() -> None:
    assert [percentile([7.0], share) for share in (0.0, 0.5, 0.999)] == [7.0] * 3


def test_no_values_are_an_error_and_not_a_zero() -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="median"):
        spread([])


def test_a_spread_has_the_least_and_the_most_round() -> None:
    assert spread([5.0, 1.0, 9.0]) == Spread(median=5.0, least=1.0, most=9.0, rounds=3)


def test_only_records_due_in_the_span_count_by_when_they_were_due() -> None:
    arrivals = [(0.9, 900.0), (1.0, 2.0), (1.5, 4.0), (2.0, 800.0)]
    assert latencies_ms(arrivals, 1.0, 2.0) == {"p50": 2.0, "p99": 4.0, "p99_9": 4.0}


def test_a_span_without_records_voids_the_round() -> None:
    with pytest.raises(LoadFailed):
        latencies_ms([(0.5, 1.0)], 1.0, 2.0)


def test_a_tail_reader_is_judged_by_its_p99_before_and_meanwhile() -> None:
    arrivals = [(0.5, 9.0), (1.5, 2.0), (2.5, 3.0), (3.5, 9.0)]
    assert tail_figures(arrivals, 1.0, 2.0, 3.0) == {
        "tail p99 before ms": 2.0,
        "tail p99 during ms": 3.0,
        "tail p99 during / before": 1.5,
    }
