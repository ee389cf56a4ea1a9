"""From rows and numbers kept elsewhere to Prometheus' text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from client.histogram import COUNT_BUCKETS, Histogram
from client.node.exposition import Exposition, Kind, Row, table
from tests.fakes.scrape import parse

ROWS = table(
    (
        Row("quire_eaten", Kind.COUNTER, "Apples eaten.", ("kind",)),
        Row("quire_left", Kind.GAUGE, "Apples left."),
        Row("quire_basket", Kind.HISTOGRAM, "Apples per basket."),
    )
)


def test_what_is_provided_is_read_at_each_scrape() -> None:
    made = Exposition(ROWS)
    left = [3]
    made.provide_one("quire_left", lambda: left[0])
    made.provide("quire_eaten", lambda: [({"kind": "red"}, 2), ({"kind": "green"}, 0)])
    assert parse(made.exposition()) == {
        'quire_eaten_total{kind="red"}': 2,
        'quire_eaten_total{kind="green"}': 0,
        "quire_left": 3,
    }
    left[0] = 4
    assert parse(made.exposition())["quire_left"] == 4


def test_histograms_are_cumulative_and_have_sum_and_count() -> None:
    made = Exposition(ROWS)
    basket = Histogram(COUNT_BUCKETS)
    made.provide_one("quire_basket", lambda: basket)
    for count in (1, 3, 5000):
        basket.observe(count)
    found = parse(made.exposition())
    assert found['quire_basket_bucket{le="1.0"}'] == 1
    assert found['quire_basket_bucket{le="4.0"}'] == 2
    assert found['quire_basket_bucket{le="+Inf"}'] == found["quire_basket_count"] == 3
    assert found["quire_basket_sum"] == 5004


def test_others_metrics_come_and_go() -> None:
    made, other = Exposition(ROWS), Exposition(ROWS)
    other.provide_one("quire_left", lambda: 1)
    made.add_part(other)
    assert parse(made.exposition()) == {"quire_left": 1}
    made.remove_part(other)
    assert parse(made.exposition()) == {}


def test_unknown_names_and_names_listed_twice_are_mistakes() -> None:
    with pytest.raises(AssertionError):
        Exposition(ROWS).provide_one("quire_pears", lambda: 1)
    with pytest.raises(AssertionError):
        table(tuple(ROWS.values()), tuple(ROWS.values()))


LABEL = st.text(max_size=8)
VALUE = st.floats(allow_nan=False)


class _ByTheLibrary(Collector):
    """The same numbers, written by the Prometheus library."""

    def __init__(self, eaten: dict[str, float], left: float, basket: Histogram) -> None:
        self.eaten, self.left, self.basket = eaten, left, basket

    def collect(self) -> Iterator[Metric]:
        counter = CounterMetricFamily("quire_eaten", "Apples eaten.", labels=["kind"])
        for kind, count in self.eaten.items():
            counter.add_metric([kind], count)
        yield counter
        yield GaugeMetricFamily("quire_left", "Apples left.", value=self.left)
        yield HistogramMetricFamily(
            "quire_basket", "Apples per basket.", buckets=self.basket.cumulative(),
            sum_value=self.basket.total,
        )  # fmt: skip


@given(
    eaten=st.dictionaries(LABEL, VALUE, max_size=5),
    left=VALUE,
    counts=st.lists(st.floats(0, 5000), max_size=20),
)
def test_the_text_is_what_the_library_would_write(
    eaten: dict[str, float], left: float, counts: list[float]
) -> None:
    basket = Histogram(COUNT_BUCKETS)
    for count in counts:
        basket.observe(count)
    made = Exposition(ROWS)
    made.provide("quire_eaten", lambda: [({"kind": kind}, n) for kind, n in eaten.items()])
    made.provide_one("quire_left", lambda: left)
    made.provide_one("quire_basket", lambda: basket)
    registry = CollectorRegistry()
    registry.register(_ByTheLibrary(eaten, left, basket))
    assert made.exposition() == generate_latest(registry)
