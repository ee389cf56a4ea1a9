"""Cut ranges of offsets into tasks, and put tiny ranges together in one: the rule, without I/O.

The limits are `minPartitions`, `maxRecordsPerPartition` and `maxBytesPerPartition`. A task costs
more than ten milliseconds whatever it reads, so neighbours that are small together share one, and
the newest records of a partition, which its ledgers do not show yet, are read with those before
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from math import ceil
from typing import Final

from client.spark.splits import OffsetRange, TopicPartition

TINY_RECORDS: Final = 10_000
TINY_BYTES: Final = 1 << 20
"""Ranges are read by one task as long as all of them together are within both."""

CRUMB_SHARE: Final = 16
"""A range this many times smaller than the one before it in its partition is read with that one."""


@dataclass(frozen=True)
class TaskLimits:
    """What one task may read, and how many tasks there should be at least."""

    count_min: int | None = None
    records_max: int | None = None
    bytes_max: int | None = None


def cut(
    ranges: Sequence[OffsetRange],
    limits: TaskLimits,
    bytes_per_record: Mapping[TopicPartition, float],
) -> list[OffsetRange]:
    """Cut ranges so that each obeys the limits; empty ones are left out.

    Limits that make more pieces than `count_min` make a multiple of it: someone who asks for as
    many tasks as there are slots wants none that is left over, for which all slots but one wait.
    Spark's Kafka source rounds each range's share instead, and may make fewer than asked for.
    """
    wholes = [whole for whole in ranges if len(whole)]
    counts = [_count(whole, limits, bytes_per_record) for whole in wholes]
    if limits.count_min is not None:
        lengths = [len(whole) for whole in wholes]
        counts = shared(counts, lengths, lengths, multiple(sum(counts), limits.count_min))
    return [
        piece
        for whole, count in zip(wholes, counts, strict=True)
        for piece in _pieces(whole, count)
    ]


def multiple(count: int, of: int) -> int:
    """Return the least multiple of `of` that is not below `count`, nor 0."""
    return max(1, -(-count // of)) * of


def shared(
    counts: Sequence[int], sizes: Sequence[int], counts_max: Sequence[int], wanted: int
) -> list[int]:
    """Return how many pieces each of several things is cut into so that there are `wanted`.

    Each gets `counts` at least; each further cut goes where the pieces are largest (`sizes`).
    There are fewer than wanted only if none can be cut any more (`counts_max`).
    """
    made = list(counts)
    largest = [
        (-size / count, at)
        for at, (size, count, most) in enumerate(zip(sizes, counts, counts_max, strict=True))
        if count < most
    ]
    heapify(largest)
    for _ in range(wanted - sum(made)):
        if not largest:
            break
        at = largest[0][1]
        made[at] += 1
        if made[at] < counts_max[at]:
            heapreplace(largest, (-sizes[at] / made[at], at))
        else:
            heappop(largest)
    return made


def group(
    pieces: Sequence[OffsetRange],
    limits: TaskLimits,
    bytes_per_record: Mapping[TopicPartition, float],
) -> list[list[OffsetRange]]:
    """Return what each task reads: tiny ranges together, others alone, order kept.

    Never fewer groups than `count_min` where there are as many ranges.
    """
    groups: list[list[OffsetRange]] = []
    spare = len(pieces) - (limits.count_min or 1)  # as many merges are allowed
    records, size = 0, 0.0
    for piece in pieces:
        piece_size = len(piece) * bytes_per_record.get(piece.at, 0.0)
        if groups and spare > 0:
            together = records + len(piece), size + piece_size
            is_crumb = groups[-1][-1].at == piece.at and CRUMB_SHARE * len(piece) <= len(
                groups[-1][-1]
            )
            tiny = (len(piece), piece_size) if is_crumb else together
            if _within(*tiny, TINY_RECORDS, TINY_BYTES) and _within(
                *together, limits.records_max, limits.bytes_max
            ):
                groups[-1].append(piece)
                records, size = together
                spare -= 1
                continue
        groups.append([piece])
        records, size = len(piece), piece_size
    return groups


def _within(records: int, size: float, records_max: int | None, bytes_max: int | None) -> bool:
    return (records_max is None or records <= records_max) and (
        bytes_max is None or size <= bytes_max
    )


def _count(
    whole: OffsetRange, limits: TaskLimits, bytes_per_record: Mapping[TopicPartition, float]
) -> int:
    count = 1
    if limits.records_max is not None:
        count = ceil(len(whole) / limits.records_max)
    if limits.bytes_max is not None:
        size = len(whole) * bytes_per_record.get(whole.at, 0.0)
        count = max(count, ceil(size / limits.bytes_max))
    return min(count, len(whole))


def _pieces(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut into `count` pieces whose lengths differ by one at most."""
    if count <= 1:
        return [whole]
    edges = [whole.start + len(whole) * index // count for index in range(count + 1)]
    first = replace(whole, end=edges[1])
    rest = [
        replace(whole, start=edges[i], end=edges[i + 1], hint=None)
        for i in range(1, count)
        if edges[i] < edges[i + 1]
    ]
    return [first, *rest]
