"""What a bookie counts. One table; plain numbers on the hot path, Prometheus at scrape time.

Covers our metric names and their meaning; `bookkeeper_metrics.py` shows the same numbers under the
names that Apache BookKeeper's dashboards ask for. Latencies form a tree:

    quire_bookie_add_seconds          one add, from its arrival to its answer
    ├── quire_bookie_turn_wait_seconds    in line, if its group was full
    └── quire_bookie_group_seconds    its group, from the first request to the answers
        ├── quire_bookie_group_wait_seconds   while the group before was written
        └── quire_bookie_sync_seconds         written and synced, as the event loop sees it
            └── quire_bookie_fsync_seconds    the system call alone, per directory
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bookie.storage.core.group_commit import Group
from client.histogram import (
    BYTES_BUCKETS,
    COUNT_BUCKETS,
    Histogram,
    Stopwatch,
    loop_time,
    observe_alike,
)
from client.node.exposition import Exposition, Kind, Row, Samples, table

_B: Final = "quire_bookie_"
COUNTERS: Final = {
    "adds": "Entries accepted into the log",
    "added_bytes": "Bytes of entries accepted into the log",
    "refused_adds": "Adds answered with anything but OK",
    "reads": "Entries read",
    "read_bytes": "Bytes of entries read",
    "cache_hits": "Reads answered from memory",
    "cold_reads": "Reads that went to index and log",
    "fences": "Fencing reads",
    "groups": "Group commits, one sync each",
    "logged_bytes": "Bytes written to the log",
    "lost_groups": "Groups given up because the disk was full",
    "unreadable_entries": "Reads answered with an I/O error because of damaged bytes",
    "gc_rounds": "Completed rounds of garbage collection",
    "deleted_ledgers": "Ledgers deleted",
    "dropped_file_bytes": "Bytes of log files deleted because nothing in them was live",
    "rewritten_file_bytes": "Bytes reclaimed by rewriting log files in which little was live",
    "unreadable_files": "Log files that could not be rewritten because they are damaged",
    "minor_compactions": "Completed searches for log files in which little was live",
    "major_compactions": "The same with the major threshold",
    "refused_connections": "Connections closed for malformed bytes, or beyond the limit",
    "cut_off_connections": "Connections closed for requests not finished or answers not read",
    "refused_requests": 'Requests answered with "too many requests"',
    "unauthorized_requests": "Requests of clients without TLS, or without an allowed certificate",
    "tls_handshakes_failed": "TLS handshakes that failed, or were not begun",
}
"""Counter -> help. Exposed as quire_bookie_<name>_total."""

GAUGES: Final = {
    "ledgers": "Ledgers known",
    "connections": "Open client connections",
    "connections_waiting_for_disk": "Connections not read because too much is not durable yet",
    "connections_waiting_for_peer": "Connections not read because of their own unread answers",
    "adds_in_progress": "Adds not answered yet",
    "reads_in_progress": "Reads not answered yet, without long polls",
    "long_polls": "Long polls not answered yet",
    "other_requests": "Requests not answered yet that are neither adds nor reads",
    "pending_bytes": "Bytes of entries that are not durable and indexed yet",
    "pending_entries": "Entries that are not durable and indexed yet",
    "waiting_adds": "Adds queued for a group, because earlier ones filled the open one",
    "waiting_bytes": "Bytes of their entries",
    "waiting_reads": "Reads of the disk that wait for others, or give way to adds",
    "open_group_requests": "Requests that wait for the group in flight before theirs is written",
    "groups_in_flight": "Groups being written and synced, at most one per directory",
    "cache_bytes": "Bytes of entries in the cache",
    "cache_entries": "Entries in the cache",
    "batch_read_bytes": "Bytes of entries that batch reads under way have read so far",
    "index_bytes": "Memory of the index: its write buffers and block cache",
    "unfinished_bytes": "Bytes of requests that are not complete",
    "strangers_bytes": "The same of clients that have yet to show a certificate",
    "unread_bytes": "Bytes of answers to clients that are behind in reading them",
    "unsent_bytes": "Bytes of answers not read yet, including those to clients that keep up",
    "admin_body_bytes": "Bytes of the bodies of admin requests under way",
    "damaged_ranges": "Damaged ranges of the log, whose records are unknown; must be 0",
    "failed_directories": "Directories whose disk failed; must be 0",
    "writable_directories": "Directories that have room for entries",
    "tls_handshakes": "TLS handshakes in progress",
    "tls_certificate_expires_seconds": "Unix time at which the first certificate of the bookie's"
    " chain expires",
    "is_registered": "1 while registered in the metadata store",
    "is_read_only": "1 while no ordinary adds are taken",
}
"""Gauge -> help. Exposed as quire_bookie_<name>."""

SECONDS: Final = {
    "group_seconds": ("From the first request of a group to its answers", "add_seconds"),
    "group_wait_seconds": ("Part of it before the group is written", "group_seconds"),
    "sync_seconds": ("Write and sync of one group", "group_seconds"),
    "turn_wait_seconds": (
        "Part of it spent in the queue for a group, for adds that queued",
        "add_seconds",
    ),
}
"""Histogram -> (help, the latency it is a part of). Exposed as quire_bookie_<name>."""

LATENCIES: Final = {
    "add_seconds": "From an add's arrival to its answer",
    "read_seconds": "From a read's arrival to its answer, without long polls",
}
"""Histogram -> help. Exposed as quire_bookie_<name>, with a label for success."""

HISTOGRAMS: Final = {
    "group_entries": "Entries per group commit",
    "group_bytes": "Bytes per group commit",
    "gc_seconds": "One round of garbage collection",
}
"""Histogram -> help. Exposed as quire_bookie_<name>."""

USED_RATIO: Final = _B + "directory_used_ratio"
FSYNC_SECONDS: Final = _B + "fsync_seconds"

ROWS: Final = (
    *(Row(_B + name, Kind.COUNTER, text) for name, text in COUNTERS.items()),
    *(Row(_B + name, Kind.GAUGE, text) for name, text in GAUGES.items()),
    Row(USED_RATIO, Kind.GAUGE, "Used share of a directory's disk, 0 to 1", ("directory",)),
    *(Row(_B + name, Kind.HISTOGRAM, text, ("success",)) for name, text in LATENCIES.items()),
    *(
        Row(_B + name, Kind.HISTOGRAM, text, (), _B + parent)
        for name, (text, parent) in SECONDS.items()
    ),
    Row(FSYNC_SECONDS, Kind.HISTOGRAM, "The system call that makes a group durable",
        ("directory",), _B + "sync_seconds"),
    *(Row(_B + name, Kind.HISTOGRAM, text) for name, text in HISTOGRAMS.items()),
)  # fmt: skip
TABLE: Final = table(ROWS)

QUANTILE_WINDOW_S: Final = 60.0
"""Quantiles are those of the last one or two of this."""


class Durations:
    """Durations of one kind: all since the start, and those of the last one or two windows."""

    def __init__(self) -> None:
        self.all = Histogram()
        self._recent = Histogram()
        self._before = Histogram()
        self._turned_at_s: float | None = None

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count one, or this many that took the same time."""
        observe_alike(self.all, self._recent, seconds, times)

    def recent(self, now_s: float) -> tuple[Histogram, Histogram]:
        """Return what came lately: whoever looks turns the window over when it is full."""
        if self._turned_at_s is None:
            self._turned_at_s = now_s
        if now_s - self._turned_at_s >= QUANTILE_WINDOW_S:
            self._turned_at_s = now_s
            self._before, self._recent = self._recent, Histogram()
        return self._before, self._recent


class Latency:
    """Durations of one kind of request, those that went well apart from those that did not."""

    def __init__(self) -> None:
        self.by_success = {True: Durations(), False: Durations()}

    def observe(self, seconds: float, is_success: bool, times: int = 1) -> None:
        """Count one, or this many that took the same time."""
        self.by_success[is_success].observe(seconds, times)


class BookieMetrics(Exposition):
    """Numbers of one bookie. Counters are attributes: `metrics.adds += 1`."""

    def __init__(self, stopwatch: Stopwatch = loop_time) -> None:
        """`stopwatch`: what durations are measured by."""
        super().__init__(TABLE)
        self.stopwatch = stopwatch
        self.adds = 0
        self.added_bytes = 0
        self.refused_adds = 0
        self.reads = 0
        self.read_bytes = 0
        self.cache_hits = 0
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
        self.minor_compactions = 0
        self.major_compactions = 0
        self.refused_connections = 0
        self.cut_off_connections = 0
        self.refused_requests = 0
        self.unauthorized_requests = 0
        self.tls_handshakes_failed = 0
        self.gauges: dict[str, Callable[[], float]] = {}
        """Gauge -> how to read it now."""
        self.directories: dict[str, Callable[[], float]] = {}
        """Directory -> how to read the used part of its disk, 0 to 1."""
        self.recovery: object | None = None
        """What auto recovery counts while it runs in this process: its `RecoveryStats`."""
        self.fsync_seconds: dict[str, Histogram] = {}
        """By directory."""
        self.group_seconds = Durations()
        self.group_wait_seconds = Durations()
        self.sync_seconds = Durations()
        self.turn_wait_seconds = Durations()
        self.add_seconds = Latency()
        self.read_seconds = Latency()
        self.group_entries = Histogram(COUNT_BUCKETS)
        self.group_bytes = Histogram(BYTES_BUCKETS)
        self.gc_seconds = Histogram()
        self._provide_all()

    def group_written(
        self, group: Group, log_bytes: int, opened_s: float, started_s: float
    ) -> None:
        """Count a group that is durable by now: when it was begun and when its write was."""
        now_s = self.stopwatch()
        self.groups += 1
        self.adds += len(group.entries)
        self.added_bytes += group.entry_bytes
        self.logged_bytes += log_bytes
        self.deleted_ledgers += len(group.deletions)
        self.group_entries.observe(len(group.entries))
        self.group_bytes.observe(log_bytes)
        self.group_wait_seconds.observe(started_s - opened_s)
        self.sync_seconds.observe(now_s - started_s)
        self.group_seconds.observe(now_s - opened_s)

    def _provide_all(self) -> None:
        for name in (*COUNTERS, *HISTOGRAMS):
            self.provide_one(_B + name, lambda name=name: getattr(self, name))  # type: ignore[misc]
        for name in GAUGES:
            self.provide(_B + name, lambda name=name: self._gauge(name))  # type: ignore[misc]
        for name in SECONDS:
            self.provide_one(_B + name, lambda name=name: getattr(self, name).all)  # type: ignore[misc]
        for name in LATENCIES:
            self.provide(_B + name, lambda name=name: self._by_success(name))  # type: ignore[misc]
        self.provide(
            USED_RATIO,
            lambda: [({"directory": name}, read()) for name, read in self.directories.items()],
        )
        self.provide(
            FSYNC_SECONDS,
            lambda: [({"directory": name}, each) for name, each in self.fsync_seconds.items()],
        )

    def _gauge(self, name: str) -> Samples:
        return [({}, self.gauges[name]())] if name in self.gauges else []

    def _by_success(self, name: str) -> Samples:
        latency: Latency = getattr(self, name)
        for is_success, durations in latency.by_success.items():
            yield {"success": str(is_success).lower()}, durations.all
