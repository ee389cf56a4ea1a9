"""Spark's interface for streams, around `plan/micro_batch_stream.py` and `task_reader.py`.

What Spark calls when, and in which process:

- the object that answers the driver's hooks lives in a process of its own as long as the query
  runs, and is killed at its end: `stop()` is never called, nothing may depend on it;
- the object whose `read()` runs is another one, pickled once per query: it has the options and
  nothing else. What a plan found out is in the splits;
- `commit(end)` of a batch comes when the next one is planned, and after the last one never:
  `listener.py` does better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from client.spark.options import Options
from client.spark.plan.micro_batch_stream import MicroBatchStream
from client.spark.plan.source_offset import Json
from client.spark.read.task_reader import read_task

if TYPE_CHECKING:
    import pyarrow as pa


class QuireStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._made: MicroBatchStream | None = None

    def initialOffset(self) -> Json:
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit of which Spark needs to know only that there is one.

        It cannot carry several limits together; `latestOffset` applies those of the options.
        """
        options = self._options
        if options.trigger_offsets_max is not None:
            return ReadMaxRows(options.trigger_offsets_max)
        if options.trigger_bytes_max is not None:
            return ReadMaxBytes(options.trigger_bytes_max)
        if options.trigger_offsets_min is not None:
            return ReadMinRows(options.trigger_offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        return self._stream.latest(
            start, "none" if isinstance(limit, ReadAllAvailable) else "options"
        )

    def reportLatestOffset(self) -> Json | None:
        return self._stream.report()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.stop_at_what_is_there()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        return self._stream.tasks(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._options)

    def commit(self, end: Json) -> None:
        self._stream.commit(end)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()

    @property
    def _stream(self) -> MicroBatchStream:
        if self._made is None:
            self._made = MicroBatchStream(self._options)
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_made": None}
