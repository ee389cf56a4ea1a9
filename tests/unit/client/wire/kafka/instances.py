"""Random instances of kio's classes, together with the same value as a plain tree.

The plain tree is what Quire's encoder takes; the entity is what kio's writer takes. Both must
give the same bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
import types
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode

_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_CODES = list(ErrorCode)


def instance(entity: Any, rng: random.Random) -> tuple[Any, dict[str, Any]]:
    """Return (kio entity, plain tree) of the same random value."""
    rich: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for item in dataclasses.fields(entity):
        rich[item.name], plain[item.name] = _value(item, rng)
        if item.default is not dataclasses.MISSING and rng.random() < 0.2:
            # Leave it out: the encoder must fill in what kio's class says.
            rich[item.name] = item.default
            del plain[item.name]
    return entity(**rich), plain


def _value(item: Any, rng: random.Random) -> tuple[Any, Any]:
    inner, nullable = _unwrap(item.type)
    tagged = "tag" in item.metadata
    absent = nullable and not tagged and item.metadata.get("kafka_type") != "datetime_i64"
    if absent and rng.random() < 0.25:
        return None, None
    if typing.get_origin(inner) is tuple:
        element, _ = _unwrap(typing.get_args(inner)[0])
        pairs = [_one(element, item, rng) for _ in range(rng.choice((0, 1, 2, 3)))]
        return tuple(rich for rich, _ in pairs), [plain for _, plain in pairs]
    return _one(inner, item, rng)


def _unwrap(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        (inner,) = [arg for arg in typing.get_args(kind) if arg is not types.NoneType]
        return inner, True
    return kind, False


def _one(kind: Any, item: Any, rng: random.Random) -> tuple[Any, Any]:
    if dataclasses.is_dataclass(kind):
        return instance(kind, rng)
    kafka_type = item.metadata["kafka_type"]
    if kafka_type in _RANGES:
        low, high = _RANGES[kafka_type]
        number = rng.choice((low, high, 0, -1 if low < 0 else 1, rng.randint(low, high)))
        return number, number
    if kafka_type == "error_code":
        code = rng.choice(_CODES)
        return code, int(code)
    if kafka_type.startswith("timedelta"):
        ms = rng.randint(0, 2**31 - 1)
        return datetime.timedelta(milliseconds=ms), ms
    if kafka_type == "datetime_i64":
        if _unwrap(item.type)[1] and rng.random() < 0.3:
            return None, -1
        seconds = rng.randint(0, 2**32)
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC), seconds * 1000
    if kafka_type == "bool":
        flag = rng.random() < 0.5
        return flag, flag
    if kafka_type == "float64":
        number = rng.random()
        return number, number
    if kafka_type == "uuid":
        made = uuid.UUID(int=rng.getrandbits(128))
        return made, made
    if kafka_type == "string":
        text = rng.choice(("", "topic", "ünïcode", "x" * rng.choice((1, 127, 128, 300))))
        return text, text
    data = rng.randbytes(rng.choice((0, 1, 200)))
    return data, data
