"""Histograms count what Prometheus' own would count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference

from client.histogram import LATENCY_BUCKETS_S, Histogram, observe_alike, observe_each


@given(st.lists(st.floats(0, 100) | st.sampled_from(LATENCY_BUCKETS_S), max_size=30))
def test_it_is_cumulative_and_bounds_are_inclusive(values: list[float]) -> None:
    ours = Histogram()
    theirs = Reference("x", "X.", buckets=LATENCY_BUCKETS_S, registry=CollectorRegistry())
    for value in values:
        ours.observe(value)
        theirs.observe(value)
    (family,) = theirs.collect()
    expected = [
        (sample.labels["le"], sample.value) for sample in family.samples
        if sample.name == "x_bucket"
    ]  # fmt: skip
    assert [(float(bound), count) for bound, count in ours.cumulative()] == [
        (float(bound), count) for bound, count in expected
    ]
    assert ours.count == len(values)
    assert ours.total == pytest.approx(sum(values))


def test_other_bounds() -> None:
    histogram = Histogram((1.0, 5.0))
    histogram.observe(3)
    assert histogram.cumulative() == [("1.0", 0), ("5.0", 1), ("+Inf", 1)]


def test_several_of_the_same_value_count_as_often() -> None:
    at_once, one_by_one = Histogram(), Histogram()
    at_once.observe(0.003, 3)
    for _ in range(3):
        one_by_one.observe(0.003)
    assert at_once.cumulative() == one_by_one.cumulative()
    assert at_once.total == pytest.approx(one_by_one.total)


def test_one_value_each_is_as_good_as_one_call_each() -> None:
    one, other, both = Histogram(), Histogram((1.0, 2.0)), (Histogram(), Histogram((1.0, 2.0)))
    for value in (0.003, 1.0, 99.0):
        one.observe(value)
        other.observe(2 * value)
        observe_each(both, (value, 2 * value))
    assert [each.cumulative() for each in both] == [one.cumulative(), other.cumulative()]
    assert [each.total for each in both] == [one.total, other.total]


def test_two_alike_count_the_same() -> None:
    one, pair = Histogram(), (Histogram(), Histogram())
    for value, times in ((0.003, 1), (1.0, 4), (99.0, 2)):
        one.observe(value, times)
        observe_alike(*pair, value, times)
    assert [each.cumulative() for each in pair] == [one.cumulative()] * 2
    assert [each.total for each in pair] == [one.total] * 2
