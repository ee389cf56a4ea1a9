"""Plan a batch query: everything between the offsets that the options name, less what filters skip.

The offsets are those of the moment when the DataFrame is used first. Spark plans a DataFrame once:
later actions on it read the same offsets again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from client.errors import ConfigError
from client.spark.brokers.kafka_cluster import LATEST, NO_OFFSET, KafkaCluster
from client.spark.options import Options
from client.spark.plan.bounds import (
    ending,
    ids_of,
    partitions_of,
    require_topics,
    select_topics,
    starting,
)
from client.spark.plan.input_partitions import bytes_per_record, drop_lost, plan_input_partitions
from client.spark.plan.pushdown import Pruning
from client.spark.splits import OffsetRange, TaskSplits


def plan_batch(cluster: KafkaCluster, options: Options, pruning: Pruning) -> list[TaskSplits]:
    """Plan everything between the options' offsets that the filters do not rule out."""
    topics = select_topics(cluster, options)
    require_topics(topics, options)
    ids = ids_of(topics)
    partitions = partitions_of(topics)
    begin = starting(cluster, options, partitions)
    end = ending(cluster, options, partitions)
    latest = cluster.offsets(
        dict.fromkeys(partitions, LATEST), read_committed=options.read_committed
    )
    ranges: list[OffsetRange] = []
    for at in partitions:
        first, last = begin.get(at, 0), end.get(at, 0)
        if first > last:
            raise ConfigError(
                f"{at}: reading would begin at offset {first}, after its end at {last}: correct"
                " the starting or ending options"
            )
        if last > latest.get(at, 0):
            raise ConfigError(
                f"{at} ends at offset {latest.get(at, 0)}, but the ending options say {last}"
            )
        ranges.append(OffsetRange(ids.get(at.topic, ""), at.topic, at.partition, first, last))
    ranges = _prune(cluster, ranges, pruning)
    ranges = drop_lost(cluster, ranges, options)
    sizes = bytes_per_record(cluster, topics, begin, latest)
    return plan_input_partitions(cluster, ranges, options, sizes)


def _prune(
    cluster: KafkaCluster, ranges: Iterable[OffsetRange], pruning: Pruning
) -> list[OffsetRange]:
    kept = [pruning.narrow(each) for each in ranges if pruning.keeps(each.at)]
    since_ms = pruning.since_ms
    if since_ms is None:
        return kept
    since = cluster.offsets({each.at: since_ms for each in kept if len(each)})
    narrowed = []
    for each in kept:
        first = since.get(each.at, each.start)
        if first != NO_OFFSET:
            start = max(each.start, first)
            narrowed.append(replace(each, start=start, end=max(start, each.end)))
    return narrowed
