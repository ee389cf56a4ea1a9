"""The names that Apache BookKeeper's dashboards ask for, with the kinds and units they expect."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bookie.admin.bookkeeper_metrics import QUANTILES, RECOVERY, TABLE, exposition, quantile_of
from bookie.metrics import QUANTILE_WINDOW_S, BookieMetrics, Durations
from client.autorecovery.metrics import RecoveryStats
from client.histogram import Histogram

ASKED_FOR = [
    "bookie_SERVER_STATUS",
    "bookkeeper_server_ADD_ENTRY_REQUEST",
    "bookkeeper_server_READ_ENTRY_REQUEST",
    "bookkeeper_server_ADD_ENTRY",
    "bookkeeper_server_READ_ENTRY",
    "bookkeeper_server_ADD_ENTRY_IN_PROGRESS",
    "bookkeeper_server_ADD_ENTRY_BLOCKED",
    "bookkeeper_server_READ_ENTRY_IN_PROGRESS",
    "bookkeeper_server_READ_ENTRY_BLOCKED",
    "bookie_WRITE_BYTES",
    "bookie_READ_BYTES",
    "bookie_journal_JOURNAL_ADD_ENTRY",
    "bookie_journal_JOURNAL_SYNC",
    "bookie_journal_JOURNAL_QUEUE_SIZE",
    "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE",
    "bookie_journal_JOURNAL_CB_QUEUE_SIZE",
    "bookie_ledgers_count",
    "bookie_write_cache_size",
    "bookie_write_cache_count",
    "bookie_read_cache_size",
    "bookie_read_cache_count",
    "bookie_read_cache_hits",
    "bookie_read_cache_misses",
    "bookie_ledger_writable_dirs",
    "bookie_ledger_dir__data_one_usage",
    "bookie_DELETED_LEDGER_TOTAL",
    "bookie_DELETED_LEDGER_COUNT",
    "bookie_MAJOR_COMPACTION_TOTAL",
    "bookie_MINOR_COMPACTION_TOTAL",
    "bookie_MAJOR_COMPACTION_COUNT",
    "bookie_MINOR_COMPACTION_COUNT",
    "bookie_RECLAIMED_DELETION_SPACE_BYTES",
    "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
]
"""The table in the reference, section 5.11, as far as it is about a bookie; its count of entries
is left out, see README.md."""


def families(metrics: BookieMetrics, now_s: float = 0.0) -> dict[str, object]:
    text = exposition(metrics, now_s).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def sample(metrics: BookieMetrics, name: str, now_s: float = 0.0, **labels: str) -> float:
    for family in families(metrics, now_s).values():
        for each in family.samples:  # type: ignore[attr-defined]
            # The parser appends what our text must not have.
            if each.name in (name, f"{name}_total") and each.labels == labels:
                return float(each.value)
    raise AssertionError(f"no {name} {labels}")


def test_every_name_is_there_once() -> None:
    metrics = BookieMetrics()
    metrics.directories["/data/one"] = lambda: 0.25
    text = exposition(metrics, 0.0).decode()
    kinds = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert sorted(kinds) == sorted(set(kinds))
    assert set(ASKED_FOR) <= set(kinds)
    assert sample(metrics, "bookie_ledger_dir__data_one_usage") == 25.0


def test_every_row_reads_a_number_that_exists() -> None:
    metrics = BookieMetrics()
    for row in TABLE:
        assert row.read(metrics) in (0.0, -1.0)


def test_large_counters_keep_every_digit() -> None:
    metrics = BookieMetrics()
    metrics.added_bytes = 123_456_789_012_345
    assert sample(metrics, "bookie_WRITE_BYTES") == 123_456_789_012_345


@pytest.mark.parametrize(
    ("registered", "read_only", "status"), [(1, 0, 1.0), (1, 1, 0.0), (0, 0, -1.0), (0, 1, -1.0)]
)
def test_the_status_of_the_server(registered: int, read_only: int, status: float) -> None:
    metrics = BookieMetrics()
    metrics.gauges["is_registered"] = lambda: registered
    metrics.gauges["is_read_only"] = lambda: read_only
    assert sample(metrics, "bookie_SERVER_STATUS") == status


def test_latencies_are_milliseconds_apart_by_success() -> None:
    metrics = BookieMetrics()
    for _ in range(98):
        metrics.add_seconds.observe(0.003, True)
    metrics.add_seconds.observe(0.2, True)
    metrics.add_seconds.observe(99.0, True)
    metrics.add_seconds.observe(1.0, False)
    name = "bookkeeper_server_ADD_ENTRY_REQUEST"
    assert sample(metrics, name, success="true", quantile="0.5") == 5.0
    assert sample(metrics, name, success="true", quantile="0.99") == 250.0
    assert sample(metrics, name, success="true", quantile="1.0") == 10_000.0
    assert sample(metrics, f"{name}_count", success="true") == 100
    assert sample(metrics, f"{name}_sum", success="true") == pytest.approx(99_494.0)
    assert sample(metrics, f"{name}_count", success="false") == 1
    other = "bookkeeper_server_READ_ENTRY_REQUEST"
    assert math.isnan(sample(metrics, other, success="true", quantile="0.5"))


def test_quantiles_forget_what_is_long_ago() -> None:
    durations = Durations()
    assert quantile_of(durations.recent(0.0), 0.5) is None
    durations.observe(1.0)
    assert quantile_of(durations.recent(1.0), 0.5) == 1.0
    assert quantile_of(durations.recent(QUANTILE_WINDOW_S), 0.5) == 1.0
    durations.observe(0.01)
    assert quantile_of(durations.recent(QUANTILE_WINDOW_S + 1), 1.0) == 1.0
    assert quantile_of(durations.recent(2 * QUANTILE_WINDOW_S), 1.0) == 0.01
    assert durations.all.count == 2


def test_quantiles_of_one_duration_are_that_bucket() -> None:
    histogram = Histogram()
    histogram.observe(0.04)
    assert [quantile_of([histogram], each) for each in QUANTILES] == [0.05] * 7


def test_auto_recovery_in_the_same_process_is_counted_under_both_names() -> None:
    metrics = BookieMetrics()
    assert b"replication_worker" not in exposition(metrics, 0.0)
    stats = metrics.recovery = RecoveryStats()
    stats.under_replicated_ledgers, stats.copied_bytes = 3, 70
    assert sample(metrics, "auditor_NUM_UNDER_REPLICATED_LEDGERS") == 3
    assert sample(metrics, "replication_auditor_NUM_UNDER_REPLICATED_LEDGERS") == 3
    assert sample(metrics, "replication_worker_NUM_BYTES_WRITTEN") == 70
    assert sample(metrics, "replication_replication_worker_NUM_BYTES_WRITTEN") == 70
    assert all(hasattr(stats, field) for field in RECOVERY.values())
