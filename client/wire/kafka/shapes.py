"""How kio's classes describe themselves, field by field, in the terms of this package.

`encoder.py` and `decoder.py` walk what it gives.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Fields = Mapping[str, Any]

FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}

# Every response has it, its schema default is missing, and it is nearly always 0.
_EVERYWHERE: Final[Fields] = {"throttle_time": 0}


class Shape(NamedTuple):
    """One field, as the schema describes it."""

    name: str
    kafka_type: str
    nested: Any
    """kio's class of a nested struct, or None for a primitive."""
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    """A plain value, or `dataclasses.MISSING`."""


def _shape(item: dataclasses.Field[Any]) -> Shape:
    inner: Any = item.type
    nullable = False
    if typing.get_origin(inner) in (types.UnionType, typing.Union):
        nullable = types.NoneType in typing.get_args(inner)
        (inner,) = [arg for arg in typing.get_args(inner) if arg is not types.NoneType]
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner = typing.get_args(inner)[0]
        if typing.get_origin(inner) is types.UnionType:
            # Only uuids are spelled so: their null is a value (all zeros), not an absence.
            inner = typing.get_args(inner)[0]
    return Shape(
        name=item.name,
        kafka_type=item.metadata.get("kafka_type", ""),
        nested=inner if dataclasses.is_dataclass(inner) else None,
        is_array=is_array,
        nullable=nullable,
        tag=item.metadata.get("tag"),
        default=_plain_default(item),
    )


def _plain_default(item: dataclasses.Field[Any]) -> Any:
    default = item.default
    if dataclasses.is_dataclass(default):
        return {shape.name: getattr(default, shape.name) for shape in shapes_of(type(default))}
    if isinstance(default, datetime.timedelta):
        return default // datetime.timedelta(milliseconds=1)
    if default is None and item.metadata.get("kafka_type") == "datetime_i64":
        return -1
    if default is dataclasses.MISSING:
        return _EVERYWHERE.get(item.name, default)
    return default


def nested_in(entity: Any, *names: str) -> Any:
    """Return the class of the structs in a field, or in a field of those, and so on."""
    for name in names:
        (entity,) = [shape.nested for shape in shapes_of(entity) if shape.name == name]
    return entity


def shapes_of(entity: Any) -> list[Shape]:
    """Return the fields of one of kio's classes, in the order of the wire."""
    return [_shape(item) for item in dataclasses.fields(entity)]
