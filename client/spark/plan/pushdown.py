"""Which offsets a query's filters can leave out before anything is read (option `pushdown`).

The rule has no I/O. Filters come from Spark as conjunctions; all of them are handed back, so Spark
checks every row again and pruning may be as coarse as it likes, only never wrong. Topic and
partition decide about whole partitions; bounds of the offset narrow ranges; for timestamps only
lower bounds help a broker, which finds the first record that is not older, but knows nothing about
what comes after a younger one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from client.spark.splits import OffsetRange, TopicPartition

_HOLDS: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
    In: lambda value, among: value in among,
    StringStartsWith: lambda value, part: value.startswith(part),
    StringEndsWith: lambda value, part: value.endswith(part),
    StringContains: lambda value, part: part in value,
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True)
class Pruning:
    """What filters say about where to look."""

    filters: tuple[Filter, ...] = ()

    def keeps(self, at: TopicPartition) -> bool:
        """Tell whether a partition can hold a row that the filters let through."""
        known = {"topic": at.topic, "partition": at.partition}
        return all(
            _holds(each, known[column])
            for each in self.filters
            if (column := _column(each)) in known
        )

    def narrow(self, whole: OffsetRange) -> OffsetRange:
        """Return the part of a range whose offsets the filters let through."""
        start, end = whole.start, whole.end
        for each in self.filters:
            if _column(each) == "offset":
                low, high = _bounds(each)
                start = start if low is None else max(start, low)
                end = end if high is None else min(end, high)
        return OffsetRange(whole.topic_id, whole.topic, whole.partition, start, max(start, end))

    @property
    def since_ms(self) -> int | None:
        """Milliseconds since 1970 before which no row is wanted; None: no such filter."""
        times = [
            (low - _EPOCH) // _MILLISECOND
            for each in self.filters
            if _column(each) == "timestamp" and (low := _lowest_time(each)) is not None
        ]
        return max(times, default=None)


def prune(filters: Iterable[Filter]) -> Pruning:
    """Keep the filters on columns that say where a record is."""
    useful = {"topic", "partition", "offset", "timestamp"}
    return Pruning(tuple(each for each in filters if _column(each) in useful))


def _column(each: Filter) -> str:
    inner = each.child if isinstance(each, Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return ".".join(path)


def _holds(each: Filter, value: object) -> bool:
    """Evaluate a filter on a value that is never null; a filter not known here always holds."""
    if isinstance(each, Not):
        return type(each.child) not in _KNOWN or not _holds(each.child, value)
    if isinstance(each, IsNull):
        return False
    holds = _HOLDS.get(type(each))
    return holds is None or bool(holds(value, each.value))  # type: ignore[attr-defined]


_KNOWN: Final = frozenset({*_HOLDS, IsNull, IsNotNull})


def _bounds(each: Filter) -> tuple[int | None, int | None]:
    """Return (first offset, offset after the last one) that a filter lets through."""
    match each:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return value, value + 1
        case In(_, values) if values:
            return min(values), max(values) + 1
        case GreaterThan(_, value):
            return value + 1, None
        case GreaterThanOrEqual(_, value):
            return value, None
        case LessThan(_, value):
            return None, value
        case LessThanOrEqual(_, value):
            return None, value + 1
    return None, None


def _lowest_time(each: Filter) -> datetime.datetime | None:
    match each:
        case (
            EqualTo(_, value)
            | EqualNullSafe(_, value)
            | GreaterThan(_, value)
            | GreaterThanOrEqual(_, value)
        ):
            return value if isinstance(value, datetime.datetime) else None
        case In(_, values) if values:
            lowest: datetime.datetime = min(values)
            return lowest
    return None
