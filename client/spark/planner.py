"""Cutting ranges of offsets into tasks: the rule, without I/O.

This file is the only home of `minPartitions`, `maxRecordsPerPartition` and
`maxBytesPerPartition`, and of what becomes of many tiny ranges: a task costs more than ten
milliseconds whatever it reads, so neighbours that are small together share one.
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
    """Cut ranges so that each obeys the limits; empty ones are left out."""
    pieces: list[OffsetRange] = []
    for whole in ranges:
        if len(whole):
            pieces += _pieces(whole, _count(whole, limits, bytes_per_record))
    least = limits.count_min
    if least is None or len(pieces) >= least:
        return pieces
    return _cut_to(pieces, least)


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
    records_max = min(TINY_RECORDS, limits.records_max or TINY_RECORDS)
    bytes_max = min(TINY_BYTES, limits.bytes_max or TINY_BYTES)
    records, size = 0, 0.0
    for piece in pieces:
        piece_size = len(piece) * bytes_per_record.get(piece.at, 0.0)
        records, size = records + len(piece), size + piece_size
        if groups and spare > 0 and records <= records_max and size <= bytes_max:
            groups[-1].append(piece)
            spare -= 1
        else:
            groups.append([piece])
            records, size = len(piece), piece_size
    return groups


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


def _cut_to(pieces: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    """Cut the larger pieces until there are about `least`, as Spark's Kafka source does.

    Pieces too small to deserve a cut are set aside first: the others share what is left of the
    wanted number in proportion to their lengths.
    """
    total = sum(map(len, pieces))
    small = [piece for piece in pieces if _deserved(len(piece), total, least) == 1]
    large_total = total - sum(map(len, small))
    wanted = max(least - len(small), 1)
    result: list[OffsetRange] = []
    for piece in pieces:
        count = 1
        if piece not in small:
            count = min(_deserved(len(piece), large_total, wanted), len(piece))
        result += _pieces(piece, count)
    return result


def _deserved(length: int, total: int, count: int) -> int:
    return max(1, int(length * count / total + 0.5))
