"""Spark's interface for writing batches, and what a writing task does.

Rows are gathered to a few megabytes, sorted by topic and partition (`row_sender.py`), encoded
(`encode.py`) and sent (`task_producer.py`). Once `write` returns, every row of the task is
acknowledged. Nothing is left to do for the commit, and nothing can be taken back by an abort: rows
are written at least once, and twice if Spark runs a task again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from client.errors import ConfigError
from client.spark.brokers.kafka_cluster import shared
from client.spark.write.writer_options import WriterOptions, check_columns, parse_writer_options

if TYPE_CHECKING:
    import pyarrow as pa

    from client.spark.write.task_producer import ProducerTransaction

log = logging.getLogger(__name__)

GATHERED_BYTES: Final = 8 << 20
"""Rows are encoded and sent when this much has come together."""


@dataclass
class Written(WriterCommitMessage):
    """What a task wrote."""

    record_count: int


class QuireWriter(DataSourceArrowWriter):
    """Writes rows to topics once."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log.info("spark.written records=%d", count_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log.warning("spark.write_aborted records_that_stay=%d", count_of(messages))


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> QuireWriter:
    """Return the writer of a batch. Raises ConfigError for options or columns that do not do."""
    if overwrite:
        raise ConfigError("mode overwrite has no meaning for a topic: use mode append")
    parsed = parse_writer_options(options)
    if parsed.sink_id:
        raise ConfigError(
            "option deliveryGuarantee=exactly-once is for streams: a batch has no number by which a"
            " second run of it could be told; use writeStream, with trigger(availableNow=True)"
        )
    check_columns(schema, parsed)
    return QuireWriter(parsed)


def count_of(messages: list[WriterCommitMessage | None]) -> int:
    """Return how many records the tasks wrote that got as far as telling."""
    return sum(one.record_count for one in messages if isinstance(one, Written))


def write_rows(
    batches: Iterator[pa.RecordBatch],
    options: WriterOptions,
    transaction: ProducerTransaction | None = None,
) -> Written:
    """Send all rows of a task; return once every one of them is acknowledged.

    Raises SparkSourceErrors, and ConfigError for rows that name no topic or no such partition.
    """
    from client.spark.write.row_sender import RowSender

    cluster = shared(options.bootstrap_servers, options.delivery_timeout_ms)
    sender = RowSender(cluster, options, transaction)
    gathered: list[pa.RecordBatch] = []
    size = 0
    since_s = time.monotonic()
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        size += batch.nbytes
        if size >= GATHERED_BYTES or _is_late(since_s, options):
            sender.send(gathered)
            gathered, size = [], 0
            since_s = time.monotonic()
    if gathered:
        sender.send(gathered)
    return Written(sender.sent_records)


def _is_late(since_s: float, options: WriterOptions) -> bool:
    waited_ms = (time.monotonic() - since_s) * 1000
    return options.linger_ms is not None and waited_ms >= options.linger_ms
