"""Read the splits of a task one after the other, from brokers or ledgers, as Arrow batches.

It also suits the worker's memory to the work (`gcFreeze`): Spark's worker searches for garbage
after every task, 35 ms with Arrow loaded, unless what is loaded is exempt from it; and what is
freed after each of the large batches is kept for the next one.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from client.node.process import keep_freed_memory
from client.spark.brokers.kafka_cluster import shared
from client.spark.decode.batch_run import BatchRun
from client.spark.options import Options
from client.spark.read.broker_fetch import Chunk, RangeFetch
from client.spark.read.prefetch import prefetched
from client.spark.splits import AbortedTransaction, BrokerSplit, LedgerSplit, TaskSplits

if TYPE_CHECKING:
    import pyarrow as pa

_FREEZE_AT: Final = 2
"""The second task of a process: by then everything that loads late has been loaded."""

_tasks_begun = 0


def read_task(task: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task as Arrow batches.

    For a batch without tasks Spark runs one all the same, with a bare partition of its own.
    """
    if type(task) is InputPartition:
        return
    assert isinstance(task, TaskSplits)
    _suit_memory(options)
    for part in task.parts:
        if isinstance(part, LedgerSplit):
            from client.spark.read import ledger_reader

            yield from ledger_reader.read_split(part, options)
        else:
            yield from _read_from_broker(part, options)


def _read_from_broker(split: BrokerSplit, options: Options) -> Iterator[pa.RecordBatch]:
    from client.spark.decode.decode import Wanted, decode_runs

    cluster = shared(options.bootstrap_servers, options.fetch_timeout_ms)
    aborted: list[AbortedTransaction] = []
    chunks = prefetched(RangeFetch(cluster, split, options).chunks(), cluster.close)
    with closing(chunks):
        wanted = Wanted.by(
            options, split.topic, split.partition, split.start, split.end,
            verified=True,  # by `whole_batches`, in the thread that fetches
        )  # fmt: skip
        yield from decode_runs(_runs(chunks, aborted), wanted, aborted)


def _runs(
    chunks: Iterable[Chunk], aborted: list[AbortedTransaction]
) -> Iterator[tuple[BatchRun, int]]:
    """Yield the batches of each chunk, and the offset they were asked for from, once `aborted` has
    the transactions that concern them."""
    for chunk in chunks:
        aborted.extend(chunk.aborted)
        yield chunk.run, chunk.start


def _suit_memory(options: Options) -> None:
    global _tasks_begun
    _tasks_begun += 1
    if options.gc_freeze and _tasks_begun == 1:
        keep_freed_memory()
    if options.gc_freeze and _tasks_begun == _FREEZE_AT:
        gc.collect()
        gc.freeze()
