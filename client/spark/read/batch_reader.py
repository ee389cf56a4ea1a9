"""Spark's interface for batch queries, around `plan/batch_scan.py` and `task_reader.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from client.spark.brokers.kafka_cluster import KafkaCluster
from client.spark.options import Options
from client.spark.plan.batch_scan import plan_batch
from client.spark.plan.pushdown import Pruning, prune
from client.spark.read.task_reader import read_task

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
