"""Cut ranges of offsets into tasks, and put tiny ranges together in one: the rule, without I/O.

The limits are `minPartitions`, `maxRecordsPerPartition` and `maxBytesPerPartition`. A task costs
more than ten milliseconds whatever it reads, so neighbours that are small together share one, and
the newest records of a partition, which its ledgers do not show yet, are read with those before
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

    Limits that make more pieces than `count_min` make about a multiple of it: who asks for as many
    tasks as there are slots wants none that is left over, for which all slots but one would wait.
    """
    wholes = [whole for whole in ranges if len(whole)]
    counts = [_count(whole, limits, bytes_per_record) for whole in wholes]
    if limits.count_min is not None:
        wanted = multiple(sum(counts), limits.count_min)
        if wanted > sum(counts):
            counts = list(map(max, counts, _shares(wholes, wanted)))
    return [
        piece
        for whole, count in zip(wholes, counts, strict=True)
        for piece in _pieces(whole, count)
    ]


def multiple(count: int, of: int) -> int:
    """Return the least multiple of `of` that is not below `count`, nor 0."""
    return max(1, -(-count // of)) * of


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


def _shares(wholes: Sequence[OffsetRange], wanted: int) -> list[int]:
    """Return how many pieces each range gets of about `wanted`, as in Spark's Kafka source.

    Ranges too small to deserve a cut are set aside first: the others share what is left of the
    wanted number in proportion to their lengths.
    """
    lengths = [len(whole) for whole in wholes]
    small = [_deserved(length, sum(lengths), wanted) == 1 for length in lengths]
    large_total = sum(
        length for length, is_small in zip(lengths, small, strict=True) if not is_small
    )
    left = max(wanted - sum(small), 1)
    return [
        1 if is_small else min(_deserved(length, large_total, left), length)
        for length, is_small in zip(lengths, small, strict=True)
    ]


def _deserved(length: int, total: int, count: int) -> int:
    return max(1, int(length * count / total + 0.5))
