"""Spark's interface for writing streams exactly once.

Spark makes a writer on the driver for each micro-batch, pickles it for the tasks, and gives what
these return to another writer, in another process. So a batch begins when its writer is pickled,
and what the commit has to know of that travels with the tasks' messages.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from client.spark.brokers.kafka_cluster import KafkaCluster, shared
from client.spark.errors import BatchTorn, SparkSourceError, TopicMissing
from client.spark.write.exactly_once.decision import Decision, TaskTransaction
from client.spark.write.exactly_once.protocol import Begun, Sink, abort, begin, commit
from client.spark.write.exactly_once.transport import TaskWriting, run
from client.spark.write.writer import Written, write_rows
from client.spark.write.writer_options import WriterOptions

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_BATCH_ID: Final = "streaming.sql.batchId"
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class WrittenInTransaction(Written):
    """What a task wrote, and what the driver needs to make it count."""

    begun: Begun
    query_id: str
    transaction: TaskTransaction | None
    """None: the task had no rows, or the batch is decided already."""


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in transactions that one decision makes visible."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options
        self._sink = Sink(options.sink_id, options.progress_topic, options.transaction_timeout_ms)
        self._begun: Begun | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the batch: to be pickled is to be sent to tasks. Raises SparkSourceErrors."""
        if self._begun is None:
            cluster = self._cluster()
            self._check_progress_topic(cluster)
            self._begun = run(begin(self._sink, time.monotonic()), cluster)
        return self.__dict__

    def _check_progress_topic(self, cluster: KafkaCluster) -> None:
        """See that there is something to keep the progress at, before anything is written.

        Raises TopicMissing. A topic that rows go to is found, or missed, by the tasks.
        """
        topic = self._sink.topic
        if not self._options.topic and topic not in cluster.topics([topic]):
            raise TopicMissing(f"there is no topic {topic}, which option progressTopic names")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenInTransaction:
        assert self._begun is not None
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(_QUERY_ID) or ""
        batch_id = int(context.getLocalProperty(_BATCH_ID) or -1)
        if batch_id < 0:
            raise SparkSourceError(
                "deliveryGuarantee=exactly-once: Spark does not say which micro-batch this is"
            )
        if self._begun.is_decided(query_id, batch_id):
            for _rows in iterator:
                pass  # Spark's own state has to see them; they are in the topic already
            return WrittenInTransaction(0, self._begun, query_id, None)
        writing = TaskWriting(self._sink, context.partitionId(), self._cluster())
        try:
            count = write_rows(iterator, self._options, writing).record_count
        except BaseException:
            # What failed matters, not what the goodbye runs into; the next batch clears it away.
            with contextlib.suppress(SparkSourceError):
                writing.abandon()
            raise
        return WrittenInTransaction(count, self._begun, query_id, writing.open)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        batch = _batch(messages, batchId)
        if batch is None:
            return  # no task, nothing to decide
        begun, decision = batch
        try:
            run(commit(self._sink, begun, decision, time.monotonic()), self._cluster())
        except BatchTorn as error:
            if self._options.fail_on_data_loss:
                raise
            log.warning("spark.batch_torn batch=%d error=%s", batchId, error)
        log.info("spark.batch_committed batch=%d tasks=%d", batchId, len(decision.transactions))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        batch = _batch(messages, batchId)
        if batch is None:
            return
        aborted = run(abort(self._sink, *batch), self._cluster())
        log.warning("spark.batch_aborted batch=%d transactions_aborted=%s", batchId, aborted)

    def _cluster(self) -> KafkaCluster:
        return shared(self._options.bootstrap_servers, self._options.delivery_timeout_ms)


def _batch(
    messages: list[WriterCommitMessage | None], batch_id: int
) -> tuple[Begun, Decision] | None:
    """Return what the tasks of a batch say together; None: there was none."""
    written = [one for one in messages if isinstance(one, WrittenInTransaction)]
    if not written:
        return None
    transactions = tuple(one.transaction for one in written if one.transaction is not None)
    return written[0].begun, Decision(written[0].query_id, batch_id, transactions)
