"""A bookie's numbers under the names that Apache BookKeeper's dashboards ask for.

The text is written here rather than by the Prometheus library, which would add `_total` to
counters. Latencies are summaries in milliseconds, as there, with quantiles of the last one or two
minutes, as exact as the buckets of our histograms. What they mean is said by the row they are in.

Sources: Apache BookKeeper `BookKeeperServerStats`, `PrometheusTextFormat`; the dashboards that
Apache Pulsar ships.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from bookie.metrics import BookieMetrics, Durations
from client.histogram import Histogram

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
_MS_PER_S: Final = 1000


class _Row(NamedTuple):
    name: str
    kind: str
    """`counter` or `gauge`."""
    read: Callable[[BookieMetrics], float]


def _gauge(name: str) -> Callable[[BookieMetrics], float]:
    def read(metrics: BookieMetrics) -> float:
        found = metrics.gauges.get(name)
        return 0.0 if found is None else found()

    return read


def _counter(name: str) -> Callable[[BookieMetrics], float]:
    return lambda metrics: float(getattr(metrics, name))


def _server_status(metrics: BookieMetrics) -> float:
    """1 writable, 0 read-only, -1 not registered."""
    if not _gauge("is_registered")(metrics):
        return -1.0
    return 0.0 if _gauge("is_read_only")(metrics) else 1.0


TABLE: Final = (
    _Row("bookie_SERVER_STATUS", "gauge", _server_status),
    _Row("bookkeeper_server_ADD_ENTRY_IN_PROGRESS", "gauge", _gauge("adds_in_progress")),
    _Row("bookkeeper_server_READ_ENTRY_IN_PROGRESS", "gauge", _gauge("reads_in_progress")),
    # Nobody waits inside a bookie: whoever is beyond a limit waits in its socket.
    _Row("bookkeeper_server_ADD_ENTRY_BLOCKED", "gauge", _gauge("connections_waiting_for_disk")),
    _Row("bookkeeper_server_READ_ENTRY_BLOCKED", "gauge", _gauge("connections_waiting_for_peer")),
    _Row("bookie_WRITE_BYTES", "counter", _counter("added_bytes")),
    _Row("bookie_READ_BYTES", "counter", _counter("read_bytes")),
    _Row("bookie_journal_JOURNAL_WRITE_BYTES", "counter", _counter("logged_bytes")),
    _Row("bookie_journal_JOURNAL_QUEUE_SIZE", "gauge", _gauge("open_group_requests")),
    _Row("bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE", "gauge", _gauge("groups_in_flight")),
    # Answers leave in the turn of the loop in which their sync returned.
    _Row("bookie_journal_JOURNAL_CB_QUEUE_SIZE", "gauge", lambda _: 0.0),
    _Row("bookie_ledgers_count", "gauge", _gauge("ledgers")),
    _Row("bookie_write_cache_size", "gauge", _gauge("pending_bytes")),
    _Row("bookie_write_cache_count", "gauge", _gauge("pending_entries")),
    _Row("bookie_read_cache_size", "gauge", _gauge("cache_bytes")),
    _Row("bookie_read_cache_count", "gauge", _gauge("cache_entries")),
    _Row("bookie_read_cache_hits", "counter", _counter("cache_hits")),
    _Row("bookie_read_cache_misses", "counter", _counter("cold_reads")),
    _Row("bookie_ledger_writable_dirs", "gauge", _gauge("writable_directories")),
    _Row("bookie_DELETED_LEDGER_TOTAL", "counter", _counter("deleted_ledgers")),
    _Row("bookie_DELETED_LEDGER_COUNT", "counter", _counter("deleted_ledgers")),
    _Row("bookie_MINOR_COMPACTION_TOTAL", "counter", _counter("minor_compactions")),
    _Row("bookie_MINOR_COMPACTION_COUNT", "counter", _counter("minor_compactions")),
    _Row("bookie_MAJOR_COMPACTION_TOTAL", "counter", _counter("major_compactions")),
    _Row("bookie_MAJOR_COMPACTION_COUNT", "counter", _counter("major_compactions")),
    _Row("bookie_RECLAIMED_DELETION_SPACE_BYTES", "counter", _counter("dropped_file_bytes")),
    _Row("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", "counter", _counter("rewritten_file_bytes")),
)
"""Counters and gauges. The older names with _COUNT are still asked for."""

RECOVERY: Final = {
    "auditor_NUM_UNDER_REPLICATED_LEDGERS": "under_replicated_ledgers",
    "replication_worker_NUM_ENTRIES_READ": "read_entries",
    "replication_worker_NUM_BYTES_READ": "read_bytes",
    "replication_worker_NUM_ENTRIES_WRITTEN": "copied_entries",
    "replication_worker_NUM_BYTES_WRITTEN": "copied_bytes",
}
"""Gauge -> number of auto recovery, while it runs in this process."""
_INSIDE_A_BOOKIE: Final = "replication_"
"""What Apache's own put in front of these names inside a bookie; we give them both ways."""

LATENCIES: Final = {
    "bookkeeper_server_ADD_ENTRY_REQUEST": "add_seconds",
    "bookkeeper_server_ADD_ENTRY": "add_seconds",
    "bookkeeper_server_READ_ENTRY_REQUEST": "read_seconds",
    "bookkeeper_server_READ_ENTRY": "read_seconds",
}
"""Summary -> our latency. There is no queue in front of the work, so both of a pair are one."""

DURATIONS: Final = {
    "bookie_journal_JOURNAL_ADD_ENTRY": "group_seconds",
    "bookie_journal_JOURNAL_SYNC": "sync_seconds",
}
"""Summary -> our histogram, all of whose durations went well."""


def exposition(metrics: BookieMetrics, now_s: float) -> bytes:
    """Return the text for a scrape. `now_s`: see `Latency.recent`."""
    return "".join(f"{line}\n" for line in _lines(metrics, now_s)).encode()


def _lines(metrics: BookieMetrics, now_s: float) -> Iterator[str]:
    for row in TABLE:
        yield f"# TYPE {row.name} {row.kind}"
        yield f"{row.name} {float(row.read(metrics))}"
    for directory, used_part in metrics.directories.items():
        name = f"bookie_ledger_dir_{re.sub('[^A-Za-z0-9]', '_', directory)}_usage"
        yield f"# TYPE {name} gauge"
        yield f"{name} {100 * used_part()}"
    for name, field in RECOVERY.items():
        for prefix in ("", _INSIDE_A_BOOKIE) if metrics.recovery is not None else ():
            yield f"# TYPE {prefix}{name} gauge"
            yield f"{prefix}{name} {float(getattr(metrics.recovery, field))}"
    for name, field in LATENCIES.items():
        yield f"# TYPE {name} summary"
        for is_success, durations in getattr(metrics, field).by_success.items():
            yield from _summary(name, is_success, durations, now_s)
    for name, field in DURATIONS.items():
        yield f"# TYPE {name} summary"
        yield from _summary(name, True, getattr(metrics, field), now_s)


def _summary(name: str, is_success: bool, durations: Durations, now_s: float) -> Iterator[str]:
    success = f'success="{str(is_success).lower()}"'
    recent = durations.recent(now_s)
    for quantile in QUANTILES:
        seconds = quantile_of(recent, quantile)
        value = "NaN" if seconds is None else str(seconds * _MS_PER_S)
        yield f'{name}{{{success},quantile="{quantile}"}} {value}'
    yield f"{name}_count{{{success}}} {durations.all.count}"
    yield f"{name}_sum{{{success}}} {durations.all.total * _MS_PER_S}"


def quantile_of(histograms: Sequence[Histogram], quantile: float) -> float | None:
    """Return the upper bound of the bucket in which a quantile lies, None without durations.

    Beyond the last bound it is that bound.
    """
    cumulative = [each.cumulative() for each in histograms]
    sums = [(row[0][0], sum(count for _, count in row)) for row in zip(*cumulative, strict=True)]
    total = sums[-1][1]
    if not total:
        return None
    bound = next(bound for bound, count in sums if count >= quantile * total)
    return float(sums[-2][0] if bound == "+Inf" else bound)
