"""Spark's interface for writing streams: each micro-batch as `writer.py` writes a batch.

A batch that Spark plans again after a crash is written again; consumers see it twice. With
`deliveryGuarantee=exactly-once` they do not: that writer is in `exactly_once/`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from client.spark.write.writer import Written, count_of, write_rows
from client.spark.write.writer_options import WriterOptions, check_columns, parse_writer_options

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class QuireStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of microbatches to topics."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.info("spark.batch_written batch=%d records=%d", batchId, count_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning(
            "spark.batch_aborted batch=%d records_that_stay=%d", batchId, count_of(messages)
        )


def make_stream_writer(
    options: Mapping[str, str], schema: StructType
) -> DataSourceStreamArrowWriter:
    """Return the writer of a stream. Raises ConfigError for options or columns that do not do."""
    parsed = parse_writer_options(options)
    check_columns(schema, parsed)
    if parsed.sink_id:
        from client.spark.write.exactly_once.stream_writer import ExactlyOnceStreamWriter

        return ExactlyOnceStreamWriter(parsed)
    return QuireStreamWriter(parsed)
