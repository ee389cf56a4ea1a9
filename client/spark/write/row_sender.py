"""Sort gathered rows by topic and partition, and send them as record batches.

What can only be checked on the rows themselves is checked here: that each has a topic, and that
its partition exists. Order is kept within a partition, as far as Spark has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from client.errors import ConfigError
from client.spark.brokers.kafka_cluster import KafkaCluster
from client.spark.splits import TopicPartition
from client.spark.write.encode import Unsent, encode
from client.spark.write.partitioner import choose
from client.spark.write.task_producer import ProducerTransaction, TaskProducer
from client.spark.write.writer_options import WriterOptions

_MICROS_PER_MS: Final = 1000


class RowSender:
    """Sends the rows of one task."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: WriterOptions,
        transaction: ProducerTransaction | None = None,
    ) -> None:
        self._options = options
        self._producer = TaskProducer(
            cluster, options.acks, options.delivery_timeout_ms, transaction
        )
        self._turn = 0

    @property
    def sent_records(self) -> int:
        """Rows that were acknowledged."""
        return self._producer.sent_records

    def send(self, gathered: Sequence[pa.RecordBatch]) -> None:
        """Send rows; return once all are acknowledged. Raises ConfigError, SparkSourceErrors."""
        rows = pa.concat_batches(gathered)
        batches: dict[TopicPartition, list[Unsent]] = {}
        for topic, of_topic in self._by_topic(rows):
            plain = _plain(of_topic)
            for partition, of_partition in self._by_partition(topic, plain):
                at = TopicPartition(topic, partition)
                batches[at] = encode(of_partition, self._options.codec, self._options.batch_bytes)
        self._producer.send(batches)
        self._turn += 1

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic:
            yield self._options.topic, rows
            return
        topics = rows["topic"]
        if topics.null_count:
            raise ConfigError(
                "null topic present in the data: use option topic for all rows, or give each row"
                " a topic"
            )
        names = pc.unique(topics).to_pylist()
        for name in names:
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics, name))

    def _by_partition(
        self, topic: str, rows: pa.RecordBatch
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        count = self._producer.partition_count(topic)
        # Rows without a key change places from one gathering to the next, so that all partitions
        # get some; where the task begins differs from task to task with what it gathers.
        chosen = choose(rows["partition"], rows["key"], count, (rows.num_rows + self._turn) % count)
        wrong = (chosen < 0) | (chosen >= count)
        if wrong.any():
            raise ConfigError(
                f"topic {topic} has no partition {chosen[np.argmax(wrong)]}: it has {count};"
                " correct the column partition"
            )
        order = np.argsort(chosen, kind="stable")
        found, starts = np.unique(chosen[order], return_index=True)
        ends = np.append(starts[1:], len(chosen))
        if len(found) == 1:
            yield int(found[0]), rows
            return
        sorted_rows = rows.take(pa.array(order))
        for partition, start, end in zip(found, starts, ends, strict=True):
            yield int(partition), sorted_rows.slice(int(start), int(end - start))


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns key, value, headers, timestamp and partition, null where there is none."""
    count = rows.num_rows
    given = dict(zip(rows.schema.names, rows.columns, strict=True))

    def column(name: str, kind: pa.DataType) -> pa.Array:
        found = given.get(name)
        return pa.nulls(count, kind) if found is None else found

    columns = {
        "key": column("key", pa.binary()).cast(pa.binary()),
        "value": column("value", pa.binary()).cast(pa.binary()),
        "headers": column("headers", pa.null()),
        "timestamp": _milliseconds(column("timestamp", pa.int64())),
        "partition": column("partition", pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _milliseconds(column: pa.Array) -> pa.Array:
    """Return timestamps, which Spark counts in microseconds, rounded down."""
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.int64())
    micros = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(micros // _MICROS_PER_MS, mask=is_null)
