"""Spark's interface for batch queries.

This file is the only home of what a batch reads: between the offsets that the options name, as
they are when the DataFrame is used first. Spark plans a DataFrame once: later actions on it read
the same offsets again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from client.errors import ConfigError
from client.spark.bounds import (
    ending,
    ids_of,
    partitions_of,
    require_topics,
    select_topics,
    starting,
)
from client.spark.kafka_cluster import LATEST, NO_OFFSET, KafkaCluster
from client.spark.options import Options
from client.spark.pushdown import Pruning, prune
from client.spark.range_planner import bytes_per_record, drop_lost, plan_tasks
from client.spark.split_reader import TaskSplits, read_task
from client.spark.splits import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa


class QuireBatchReader(DataSourceReader):
    """Reads topics once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pruning = Pruning()
        if options.pushdown:
            # Spark refuses readers whose class has the method while its own switch is off.
            self.pushFilters = self._push_filters  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        cluster = KafkaCluster(self._options.bootstrap_servers, self._options.fetch_timeout_ms)
        try:
            return plan_batch(cluster, self._options, self._pruning)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options)

    def _push_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pruning = prune(filters)
        return filters


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
    return plan_tasks(cluster, ranges, options, sizes)


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
