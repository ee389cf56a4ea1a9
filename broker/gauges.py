"""Gauges that are not counted: each scrape reads them from the part of the broker that knows.

Names and meanings are in `metric_table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.compaction.compactor import Compactor
from broker.compaction.core.plan import NEVER, Standing
from broker.front.core.client_telemetry import ClientTelemetry
from broker.front.core.fetch_sessions import FetchSessions
from broker.front.core.share_sessions import ShareSessions
from broker.front.read_budget import ReadBudget
from broker.front.shares.dead_letters import DeadLetters
from broker.groups.groups import Groups
from broker.leadership.partitions import Partitions
from broker.link.links import Links
from broker.metrics import OTHER_TOPICS, Metrics
from broker.offload.offloader import Offloader
from broker.partition.log_services import LogServices
from broker.partition.partition import Partition
from broker.transactions.transactions import Transactions, provide_transactions
from client.histogram import loop_time
from client.ids import Clock
from client.ledger.metrics import provide_ledgers
from client.node.exposition import Samples
from client.node.process_metrics import provide_process
from client.objects.store import KINDS

_B = "quire_broker_"


def provide_shares(metrics: Metrics, sessions: ShareSessions, letters: DeadLetters) -> None:
    """Let a broker's metrics read who fetches for share groups, and what waits for letters."""
    metrics.provide_one(_B + "share_archiving_records", lambda: letters.waiting)
    metrics.provide_one(_B + "share_sessions", lambda: len(sessions))
    metrics.provide_one(_B + "share_session_partitions", lambda: sessions.partition_count)


def provide_all(
    shared: LogServices,
    partitions: Partitions,
    groups: Groups,
    transactions: Transactions,
    reading: ReadBudget,
    sessions: FetchSessions,
    compactor: Compactor,
    *,
    unready: Callable[[], list[str]],
    missing: Callable[[], list[str]],
    topics_max: int,
) -> None:
    """Let the metrics in `shared` read a broker's parts at each scrape."""
    metrics, ledgers, cache, ahead = shared.metrics, shared.ledgers, shared.cache, shared.ahead
    provide_process(metrics, "broker", shared.store)
    provide_ledgers(metrics, ledgers.stats, lambda: len(ledgers.writable_bookies))
    provide_transactions(metrics, transactions, shared.clock)
    one = metrics.provide_one
    one(_B + "ready", lambda: not unready())
    one(_B + "partitions_led", lambda: len(partitions))
    one(_B + "partitions_opening", lambda: partitions.opening_count)
    one(_B + "partitions_missing", lambda: len(missing()))
    one(
        _B + "partitions_under_replicated",
        lambda: sum(partition.replication.is_under_replicated for partition in partitions),
    )
    one(_B + "fetch_reading_bytes", lambda: reading.taken)
    one(_B + "fetch_sessions", lambda: len(sessions))
    one(_B + "fetch_session_partitions", lambda: sessions.partition_count)
    one(_B + "fetch_sessions_evicted", lambda: sessions.evicted_count)
    one(_B + "tail_cache_bytes", lambda: cache.size)
    one(_B + "read_ahead_bytes", lambda: ahead.size)
    one(_B + "read_ahead_used_bytes", lambda: ahead.used_bytes)
    one(_B + "read_ahead_dropped_bytes", lambda: ahead.dropped_bytes)
    one(
        _B + "unconfirmed_bytes",
        lambda: sum(partition.usage.in_flight_bytes for partition in partitions),
    )
    one(_B + "held_produce_bytes", lambda: partitions.awaited.held_bytes)
    _provide_compaction(shared, compactor)
    _provide_open_transactions(metrics, partitions, shared.clock)
    one("quire_broker_group_members_bytes", lambda: groups.room.held)
    one("quire_group_rebalances", lambda: groups.rebalance_count)
    metrics.provide("quire_topic_size_bytes", lambda: _topic_sizes(partitions, topics_max))
    metrics.provide(
        "quire_groups",
        lambda: [({"state": state.value}, count) for state, count in groups.state_counts().items()],
    )


def provide_links(metrics: Metrics, links: Links) -> None:
    """Show what brokers ask each other."""
    metrics.provide(
        "quire_broker_link_requests",
        lambda: [({"state": name}, count) for name, count in links.outcomes.items()],
    )
    metrics.provide_one("quire_broker_link_requests_open", lambda: links.open_count)
    metrics.provide_one("quire_broker_links_up", lambda: links.up_count)


def provide_telemetry(metrics: Metrics, telemetry: ClientTelemetry) -> None:
    """Show what clients tell of themselves."""
    metrics.provide("quire_client_metric", lambda: telemetry.samples(loop_time()))
    metrics.provide_one("quire_broker_client_metrics_clients", lambda: telemetry.client_count)
    metrics.provide_one("quire_broker_client_metrics_series", lambda: telemetry.series_count)
    metrics.provide_one("quire_broker_client_metrics_dropped", lambda: telemetry.dropped)


def _provide_open_transactions(metrics: Metrics, partitions: Partitions, clock: Clock) -> None:
    """Transactions as partitions see them, whatever their coordinators say."""

    def oldest_s() -> float:
        starts_ms = (partition.usage.oldest_open_ms for partition in partitions)
        oldest_ms = min((at_ms for at_ms in starts_ms if at_ms is not None), default=None)
        return 0.0 if oldest_ms is None else max(clock.now_ms() - oldest_ms, 0) / 1000

    one = metrics.provide_one
    one(
        "quire_transaction_open_in_partitions",
        lambda: sum(partition.usage.open_transactions for partition in partitions),
    )
    one("quire_transaction_open_in_partitions_seconds", oldest_s)
    one(
        "quire_transaction_undecided_records",
        lambda: max((partition.usage.undecided_records for partition in partitions), default=0),
    )
    one(
        "quire_transaction_held_bytes",
        lambda: sum(partition.usage.held_bytes for partition in partitions),
    )


def provide_offload(shared: LogServices, offloader: Offloader) -> None:
    """Show what goes to the object store, and what comes from it."""
    one, statuses, archive = shared.metrics.provide_one, offloader.statuses, shared.archive

    def lag_s() -> float:
        since = [each.plan.lag_since_ms for each in statuses() if each.plan.lag_since_ms >= 0]
        return max(0, shared.clock.now_ms() - min(since)) / 1000 if since else 0.0

    one(_B + "offload_lag_bytes", lambda: sum(each.plan.lag_bytes for each in statuses()))
    one(_B + "offload_lag_seconds", lag_s)
    one(_B + "offload_stuck_partitions", lambda: sum(bool(each.reason) for each in statuses()))
    one(_B + "offload_buried_objects", lambda: sum(len(each.state.graves) for each in statuses()))
    one(_B + "offload_bytes", lambda: offloader.held_bytes)
    one(_B + "archive_bytes", lambda: archive.cached_bytes if archive else 0)
    one(_B + "archive_read_bytes", lambda: archive.read_bytes if archive else 0)
    one(_B + "archive_failures", lambda: archive.failures if archive else 0)
    requests = dict.fromkeys(KINDS, 0) if archive is None else archive.store.requests
    shared.metrics.provide(
        _B + "object_store_requests",
        lambda: [({"kind": kind}, count) for kind, count in requests.items()],
    )


def _provide_compaction(shared: LogServices, compactor: Compactor) -> None:
    one, statuses = shared.metrics.provide_one, compactor.statuses

    def standings() -> list[Standing]:
        return [status.found for status in statuses() if status.found is not None]

    one(
        _B + "compaction_dirty_ratio",
        lambda: max((found.dirty_ratio for found in standings()), default=0.0),
    )
    one(
        _B + "compaction_due_partitions",
        lambda: sum(status.why is not None for status in statuses()),
    )
    one(
        _B + "compaction_stuck_partitions",
        lambda: sum(bool(status.reason) for status in statuses()),
    )

    one(_B + "compaction_saved_bytes", compactor.saved_bytes)

    def waiting_s() -> float:
        now_ms = shared.clock.now_ms()
        return (
            max((now_ms - each.due_ms for each in statuses() if each.due_ms >= 0), default=0) / 1000
        )

    one(_B + "compaction_waiting_seconds", waiting_s)

    def overdue_s() -> float:
        now_ms = shared.clock.now_ms()
        return max((now_ms - found.overdue_ms for found in standings()), default=0.0) / 1000

    def last_clean_s() -> float:
        cleaned_ms = compactor.oldest_clean_ms()
        return 0.0 if cleaned_ms is None else (shared.clock.now_ms() - cleaned_ms) / 1000

    def next_due_s() -> float:
        times = [min(found.overdue_ms, found.horizon_ms) for found in standings()]
        return max(0.0, (min(times, default=NEVER) - shared.clock.now_ms()) / 1000)

    one(_B + "compaction_last_clean_seconds", last_clean_s)
    one(_B + "compaction_next_due_seconds", next_due_s)
    one(_B + "compaction_bytes", lambda: compactor.held_bytes)
    one(_B + "compaction_overdue_seconds", lambda: max(0.0, overdue_s()))


def _topic_sizes(partitions: Iterable[Partition], topics_max: int) -> Samples:
    sizes: dict[str, int] = {}
    for partition in partitions:
        name = partition.topic.name
        if name not in sizes and len(sizes) >= topics_max:
            name = OTHER_TOPICS
        sizes[name] = sizes.get(name, 0) + partition.usage.size_bytes
    for name, size in sorted(sizes.items()):
        yield {"topic": name}, size
