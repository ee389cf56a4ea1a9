"""What a bookie counts. One table; plain numbers on the hot path, Prometheus at scrape time.

Every bookie has its own registry, so that several live in one process. This file is the only
home of metric names and their meaning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

COUNTERS: Final = {
    "adds": "Entries accepted into the log",
    "added_bytes": "Bytes of entries accepted into the log",
    "refused_adds": "Adds answered with anything but OK",
    "reads": "Entries read",
    "read_bytes": "Bytes of entries read",
    "cold_reads": "Reads that went to index and log",
    "fences": "Fencing reads",
    "groups": "Group commits, one sync each",
    "logged_bytes": "Bytes written to the log",
    "lost_groups": "Groups given up because the disk was full",
    "unreadable_entries": "Reads answered with an I/O error because of damaged bytes",
    "gc_rounds": "Completed rounds of garbage collection",
    "deleted_ledgers": "Ledgers deleted",
    "dropped_file_bytes": "Bytes of log files given back because nothing in them lived",
    "rewritten_file_bytes": "Bytes won by rewriting log files in which little lived",
    "unreadable_files": "Log files that could not be rewritten because they are damaged",
    "refused_connections": "Connections closed for malformed bytes, or beyond the limit",
}
"""Counter -> help. Exposed as quire_bookie_<name>_total."""

GAUGES: Final = {
    "ledgers": "Ledgers known",
    "connections": "Open client connections",
    "pending_bytes": "Bytes of entries that are not durable and indexed yet",
    "cache_bytes": "Bytes of entries in the cache",
    "damaged_ranges": "Ranges of the log whose records nobody can name; must be 0",
    "failed_directories": "Directories whose disk failed; must be 0",
    "writable_directories": "Directories that have room for entries",
    "is_registered": "1 while registered in the metadata store",
    "is_read_only": "1 while no ordinary adds are taken",
}
"""Gauge -> help. Exposed as quire_bookie_<name>."""

SECONDS: Final = {
    "sync_seconds": "Write and sync of one group",
    "group_seconds": "From the first request of a group to its answers",
}
"""Histogram -> help. Exposed as quire_bookie_<name>."""

_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10,
)  # fmt: skip


class Seconds:
    """A histogram of durations that asks no clock, unlike the Prometheus library's own."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum += seconds

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        """Return it as Prometheus wants it: cumulative counts."""
        bounds = [*map(str, _BUCKETS), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


class BookieMetrics(Collector):
    """Numbers of one bookie. Counters are attributes: `metrics.adds += 1`."""

    def __init__(self) -> None:
        self.adds = 0
        self.added_bytes = 0
        self.refused_adds = 0
        self.reads = 0
        self.read_bytes = 0
        self.cold_reads = 0
        self.fences = 0
        self.groups = 0
        self.logged_bytes = 0
        self.lost_groups = 0
        self.unreadable_entries = 0
        self.gc_rounds = 0
        self.deleted_ledgers = 0
        self.dropped_file_bytes = 0
        self.rewritten_file_bytes = 0
        self.unreadable_files = 0
        self.refused_connections = 0
        self.gauges: dict[str, Callable[[], float]] = {}
        """Gauge -> how to read it now."""
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.sync_seconds = Seconds()
        self.group_seconds = Seconds()

    def collect(self) -> Iterator[Metric]:
        """Yield everything for a scrape."""
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"quire_bookie_{name}", text, value=getattr(self, name))
        for name, text in GAUGES.items():
            read = self.gauges.get(name)
            if read is not None:
                yield GaugeMetricFamily(f"quire_bookie_{name}", text, value=read())
        for name, text in SECONDS.items():
            yield getattr(self, name).family(f"quire_bookie_{name}", text)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
