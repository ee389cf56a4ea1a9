"""Which of a broker's parts shows which number: the metrics that nobody has to count.

This file is the only home of that wiring; names and meanings are in `metric_table.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metrics import OTHER_TOPICS
from client.exposition import Samples
from client.ledger.metrics import provide_ledgers
from client.process_metrics import provide_process

if TYPE_CHECKING:
    from broker.app import Broker

_B = "quire_broker_"


def provide_all(broker: Broker) -> None:
    """Let a broker's metrics read its parts at each scrape."""
    metrics, partitions = broker.metrics, broker.partitions
    provide_process(metrics, "broker", broker.store)
    provide_ledgers(metrics, broker.ledgers.stats, lambda: len(broker.ledgers.writable_bookies))
    one = metrics.provide_one
    one(_B + "ready", lambda: not broker.unready())
    one(_B + "partitions_led", lambda: len(partitions))
    one(_B + "partitions_opening", lambda: partitions.opening_count)
    one(_B + "partitions_missing", lambda: len(broker.missing()))
    one(
        _B + "partitions_under_replicated",
        lambda: sum(partition.is_under_replicated for partition in partitions),
    )
    one(_B + "tail_cache_bytes", lambda: broker.cache.size)
    one(_B + "read_ahead_bytes", lambda: broker.ahead.size)
    one(_B + "read_ahead_used_bytes", lambda: broker.ahead.used_bytes)
    one(_B + "read_ahead_dropped_bytes", lambda: broker.ahead.dropped_bytes)
    one(
        _B + "unconfirmed_bytes",
        lambda: sum(partition.in_flight_bytes for partition in partitions),
    )
    one("quire_group_rebalances", lambda: broker.groups.rebalance_count)
    metrics.provide("quire_topic_size_bytes", lambda: _topic_sizes(broker))
    metrics.provide(
        "quire_groups",
        lambda: [
            ({"state": state.value}, count) for state, count in broker.groups.state_counts().items()
        ],
    )


def _topic_sizes(broker: Broker) -> Samples:
    sizes: dict[str, int] = {}
    for partition in broker.partitions:
        name = partition.topic.name
        if name not in sizes and len(sizes) >= broker.config.metric_topics_max:
            name = OTHER_TOPICS
        sizes[name] = sizes.get(name, 0) + partition.size_bytes
    for name, size in sorted(sizes.items()):
        yield {"topic": name}, size
