"""What a broker counts, and how Prometheus reads it.

This file is the only home of metric names. Hot paths add to plain ints and lists here; turning
them into samples happens when somebody scrapes. Each broker has its own registry, so several
live in one process. Other parts of the broker hand in a function that reads a number they keep
anyway (`add_gauge`), rather than keeping a second one here.

Latencies form a tree: quire_request_seconds{api="Produce"} contains the waiting for the ledger,
which the ledger client reports on its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from client.wire.kafka.apis import ApiKey

LATENCY_BUCKETS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip

Samples = Iterable[tuple[Mapping[str, str], float]]


class Histogram:
    """Counts of observations by upper bound."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it), ending with +Inf."""
        bounds = [str(bound) for bound in LATENCY_BUCKETS_S] + ["+Inf"]
        running = 0
        out = []
        for bound, count in zip(bounds, self.counts, strict=True):
            running += count
            out.append((bound, float(running)))
        return out


class Metrics:
    """The counters of one broker; also a Prometheus collector."""

    def __init__(self) -> None:
        self.request_seconds: dict[int, Histogram] = {}
        """By API key, from the request's arrival to its answer's departure."""
        self.request_errors: dict[int, int] = {}
        """By API key: requests that failed in a way that no handler expected."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.produced_bytes = 0
        self.produced_batches = 0
        self.produce_errors: dict[int, int] = {}
        """By error code, per partition of a request."""
        self.fetched_bytes = 0
        self.fetch_errors: dict[int, int] = {}
        self._gauges: list[tuple[str, str, Callable[[], Samples]]] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add_gauge(self, name: str, text: str, read: Callable[[], Samples]) -> None:
        """Export numbers kept elsewhere; `read` yields (labels, value) pairs at each scrape."""
        self._gauges.append((name, text, read))

    def on_request(self, api_key: int, seconds: float) -> None:
        """Count one answered request."""
        histogram = self.request_seconds.get(api_key)
        if histogram is None:
            histogram = self.request_seconds[api_key] = Histogram()
        histogram.observe(seconds)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Say nothing ahead: what exists shows at each scrape."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield every metric; called by the registry."""
        yield self._requests()
        yield _by_label(
            "quire_request_failures",
            "Requests that failed unexpectedly; each left a traceback in the log.",
            "api", {_api(key): count for key, count in sorted(self.request_errors.items())},
        )  # fmt: skip
        yield _by_label(
            "quire_produce_errors", "Refused partitions of Produce requests.", "code",
            {str(code): count for code, count in sorted(self.produce_errors.items())},
        )  # fmt: skip
        yield _by_label(
            "quire_fetch_errors", "Refused partitions of Fetch requests.", "code",
            {str(code): count for code, count in sorted(self.fetch_errors.items())},
        )  # fmt: skip
        for name, text, value in (
            ("quire_received_bytes", "Bytes received from clients.", self.received_bytes),
            ("quire_sent_bytes", "Bytes sent to clients.", self.sent_bytes),
            ("quire_connections_opened", "Connections accepted.", self.connections_opened),
            ("quire_connections_refused", "Connections over a limit.", self.connections_refused),
            ("quire_protocol_errors", "Connections closed for bad bytes.", self.protocol_errors),
            ("quire_produced_bytes", "Record bytes accepted.", self.produced_bytes),
            ("quire_produced_batches", "Record batches accepted.", self.produced_batches),
            ("quire_fetched_bytes", "Record bytes sent to consumers.", self.fetched_bytes),
        ):
            yield CounterMetricFamily(name, text, value=value)
        for name, text, read in self._gauges:
            yield _gauge(name, text, read())

    def _requests(self) -> Metric:
        family = HistogramMetricFamily(
            "quire_request_seconds", "Time from a request's arrival to its answer.", labels=["api"]
        )
        for key, histogram in sorted(self.request_seconds.items()):
            family.add_metric([_api(key)], histogram.cumulative(), histogram.total)
        return family


def _api(key: int) -> str:
    try:
        return ApiKey(key).name.lower()
    except ValueError:
        return str(key)


def _by_label(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, samples: Samples) -> Metric:
    rows = list(samples)
    labels = list(rows[0][0]) if rows else []
    family = GaugeMetricFamily(name, text, labels=labels)
    for row, value in rows:
        family.add_metric([row[label] for label in labels], value)
    return family
