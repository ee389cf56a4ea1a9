"""Turn ranges of offsets into Spark's input partitions, which are its tasks.

What is needed beside the ranges is looked up here: how large records are, and which offsets
retention has removed. Each range is read through its broker or from its ledgers, as `readMode`
says. How ranges are cut is the rule of `task_sizing.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from client.spark.brokers.kafka_cluster import EARLIEST, KafkaCluster
from client.spark.data_loss import report_loss
from client.spark.options import Options
from client.spark.plan.task_sizing import TaskLimits, cut, group
from client.spark.splits import (
    BrokerSplit,
    LedgerSplit,
    OffsetRange,
    Split,
    TaskSplits,
    TopicPartition,
)


def bytes_per_record(
    cluster: KafkaCluster,
    topics: Iterable[str],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> dict[TopicPartition, float]:
    """Return the mean size of a stored record in each partition; 0 where nobody can tell."""
    sizes = cluster.sizes(topics)
    return {
        at: size / max(1, latest.get(at, 0) - earliest.get(at, 0)) for at, size in sizes.items()
    }


def drop_lost(
    cluster: KafkaCluster, ranges: Sequence[OffsetRange], options: Options
) -> list[OffsetRange]:
    """Report offsets that retention has removed; return what is left, without empty ranges."""
    wanted = [each for each in ranges if len(each)]
    earliest = cluster.offsets({each.at: EARLIEST for each in wanted})
    kept: list[OffsetRange] = []
    for each in wanted:
        begin = earliest.get(each.at)
        if begin is None:
            report_loss(
                f"{each.at} no longer exists: offsets {each.start} to {each.end - 1} are gone",
                fail=options.fail_on_data_loss,
            )
        elif begin > each.start:
            report_loss(
                f"{each.at} now begins at offset {begin}: offsets {each.start} to"
                f" {min(begin, each.end) - 1} are gone (was the query slower than retention?)",
                fail=options.fail_on_data_loss,
            )
            if begin < each.end:
                kept.append(replace(each, start=begin, hint=None))
        else:
            kept.append(each)
    return kept


def plan_input_partitions(
    cluster: KafkaCluster,
    ranges: Sequence[OffsetRange],
    options: Options,
    record_bytes: Mapping[TopicPartition, float],
) -> list[TaskSplits]:
    """Cut the ranges into tasks, in the order of topics, partitions and offsets."""
    limits = TaskLimits(
        options.partition_count_min, options.partition_records_max, options.partition_bytes_max
    )
    through_ledgers, through_brokers = _ways(ranges, options, record_bytes)
    splits: list[Split] = []
    if through_ledgers:
        from client.spark.plan import ledger_mode

        splits += ledger_mode.plan(through_ledgers, options)
    splits += [
        _broker_split(cluster, piece) for piece in cut(through_brokers, limits, record_bytes)
    ]
    together = group([_range_of(split) for split in splits], limits, record_bytes)
    rest = iter(splits)
    return [TaskSplits(tuple(itertools.islice(rest, len(ranges)))) for ranges in together]


def _ways(
    ranges: Sequence[OffsetRange], options: Options, record_bytes: Mapping[TopicPartition, float]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Return the ranges that are read from ledgers, and those that brokers serve."""
    ledgers: list[OffsetRange] = []
    brokers: list[OffsetRange] = []
    for each in ranges:
        large = len(each) * record_bytes.get(each.at, 0.0) >= options.ledger_bytes_min
        direct = options.read_mode == "ledger" or (options.read_mode == "auto" and large)
        (ledgers if direct else brokers).append(each)
    return ledgers, brokers


def _broker_split(cluster: KafkaCluster, piece: OffsetRange) -> BrokerSplit:
    epoch = cluster.leader(piece.at).epoch
    return BrokerSplit(piece.topic_id, piece.topic, piece.partition, epoch, piece.start, piece.end)


def _range_of(split: Split) -> OffsetRange:
    """Return the offsets that a split reads."""
    if isinstance(split, LedgerSplit):
        start, end = split.offset_start, split.offset_end
    else:
        start, end = split.start, split.end
    return OffsetRange(split.topic_id, split.topic, split.partition, start, end)
