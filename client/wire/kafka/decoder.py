"""Bytes into kio's entities: a checked copy first, then kio's reader.

kio's native reader takes a peer's word for how long an array is and reserves that much at once,
which can end the process; and it refuses tagged fields that its schema does not know, although
whoever does not know them must pass over them (KIP-482). So a body is walked along the schema
first, every length held against the bytes that are there, and copied without unknown tags. Items
of lists are counted, because each takes its time, and large bodies are decoded in steps: a struct
without its lists of structs as before, and each struct of those lists by itself. The
hot paths do not come here: `produce.py` and `fetch.py` read their requests themselves.

Covers turning bytes into kio's entities.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable
from typing import Any, Final

from kio.serial import entity_reader
from kio.serial.errors import SerialError

from client.errors import RemoteProtocolError
from client.wire.buffer import STRING_BYTES_MAX, Reader, uvarint_bytes
from client.wire.kafka.shapes import FORMATS, Shape, shapes_of
from client.wire.steps import ITEMS_UNLIMITED, ItemCount, Steps

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_DURATION_MAX_MS: Final = (2**63 - 1) // 1_000
"""kio counts durations in microseconds of 64 bits."""
_UUID_BYTES: Final = 16
AT_ONCE_BYTES: Final = 16 * 1024
"""A body of this many bytes cannot have enough items to be worth steps."""


class _Reader(Reader):
    """Counts the items that lists announce."""

    __slots__ = ("items",)

    def __init__(self, view: memoryview, items: ItemCount) -> None:
        super().__init__(view)
        self.items = items


_Copy = Callable[[_Reader, bytearray], None]


def decode(entity: Any, body: memoryview, items_max: int = ITEMS_UNLIMITED) -> Any:
    """Decode a body; `entity` is kio's class of that message and version.

    Bytes after the last field are ignored, as Kafka ignores them. `items_max`: of all its lists
    together. Raises RemoteProtocolError.
    """
    try:
        return _decode_one(entity, _Reader(body, ItemCount(items_max)))
    except (SerialError, ValueError, OverflowError) as error:
        raise _damage(entity, error) from error


def decode_steps(entity: Any, body: memoryview, items_max: int = ITEMS_UNLIMITED) -> Steps[Any]:
    """Do as `decode`, in steps if the body is large."""
    try:
        if len(body) <= AT_ONCE_BYTES:
            return _decode_one(entity, _Reader(body, ItemCount(items_max)))
        return (yield from _decode_lists(entity, _Reader(body, ItemCount(items_max))))
    except (SerialError, ValueError, OverflowError) as error:
        raise _damage(entity, error) from error


def _damage(entity: Any, error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"{entity.__name__} version {entity.__version__}: {error}")


def _decode_one(entity: Any, reader: _Reader) -> Any:
    checked = bytearray()
    _struct(entity)(reader, checked)
    return _reader(entity)(memoryview(bytes(checked)), 0)[0]


def _decode_lists(entity: Any, reader: _Reader) -> Steps[Any]:
    """Decode a struct as if its lists of structs were empty, and put into it what is in them."""
    flexible = bool(entity.__flexible__)
    checked = bytearray()
    lists: dict[str, tuple[Any, ...]] = {}
    for shape, copy in _fields(entity):
        if copy is not None:
            copy(reader, checked)
            continue
        count = _array_length(reader, shape, flexible)
        is_null = count == -1
        if flexible:
            checked += b"\x00" if is_null else b"\x01"
        else:
            checked += _INT32.pack(-1 if is_null else 0)
        items: list[Any] = []
        has_lists = any(inner is None for _, inner in _fields(shape.nested))
        for _ in range(count):
            if reader.items.is_step_over():
                yield
            if has_lists:
                items.append((yield from _decode_lists(shape.nested, reader)))
            else:
                items.append(_decode_one(shape.nested, reader))
        if items:
            lists[shape.name] = tuple(items)
    if flexible:
        _copy_tags(reader, checked, _tagged(entity))
    found = _reader(entity)(memoryview(bytes(checked)), 0)[0]
    return dataclasses.replace(found, **lists) if lists else found


@functools.cache
def _fields(entity: Any) -> list[tuple[Shape, _Copy | None]]:
    """Return the untagged fields, and what copies each; None for a list of structs."""
    flexible = bool(entity.__flexible__)
    return [
        (shape, None if shape.is_array and shape.nested else _value(shape, flexible))
        for shape in shapes_of(entity)
        if shape.tag is None
    ]


@functools.cache
def _tagged(entity: Any) -> dict[int | None, _Copy]:
    flexible = bool(entity.__flexible__)
    return {
        shape.tag: _value(shape, flexible) for shape in shapes_of(entity) if shape.tag is not None
    }


@functools.cache
def _reader(entity: Any) -> Any:
    return entity_reader(entity)


@functools.cache
def _struct(entity: Any) -> _Copy:
    flexible = bool(entity.__flexible__)
    plain = [_value(shape, flexible) for shape in shapes_of(entity) if shape.tag is None]
    known = _tagged(entity)

    def copy(reader: _Reader, out: bytearray) -> None:
        for copy_value in plain:
            copy_value(reader, out)
        if flexible:
            _copy_tags(reader, out, known)

    return copy


def _copy_tags(reader: _Reader, out: bytearray, known: dict[int | None, _Copy]) -> None:
    kept = []
    for _ in range(reader.items.add(reader.count_tags())):
        tag, size = reader.uvarint(), reader.uvarint()
        data = reader.take(size)
        if tag in known:
            value = bytearray()
            known[tag](_Reader(data, reader.items), value)
            kept.append(uvarint_bytes(tag) + uvarint_bytes(len(value)) + value)
    out += uvarint_bytes(len(kept))
    for field in kept:
        out += field


def _value(shape: Shape, flexible: bool) -> _Copy:
    if shape.is_array:
        return _array(shape, _one(shape, flexible), flexible)
    if shape.nested is not None and shape.nullable and shape.tag is None:
        return _nullable(_one(shape, flexible))
    return _one(shape, flexible)


def _one(shape: Shape, flexible: bool) -> _Copy:
    if shape.nested is not None:
        return _struct(shape.nested)
    if shape.kafka_type == "timedelta_i64":
        return _copy_long_duration
    if shape.kafka_type in FORMATS:
        return _fixed(struct.calcsize(">" + FORMATS[shape.kafka_type]))
    if shape.kafka_type == "uuid":
        return _fixed(_UUID_BYTES)
    if flexible:
        return _copy_compact_string if shape.kafka_type == "string" else _copy_compact
    return _sized(_INT16 if shape.kafka_type == "string" else _INT32)


def _copy_long_duration(reader: _Reader, out: bytearray) -> None:
    """Copy milliseconds, at most as many as kio can read: 292,000 years."""
    (duration_ms,) = reader.unpack(_INT64)
    out += _INT64.pack(max(-_DURATION_MAX_MS, min(duration_ms, _DURATION_MAX_MS)))


def _fixed(size: int) -> _Copy:
    def copy(reader: _Reader, out: bytearray) -> None:
        out += reader.take(size)

    return copy


def _copy_compact_string(reader: _Reader, out: bytearray) -> None:
    """Copy a string: length + 1, 0 for null. Names are kept for long, so theirs has a limit."""
    length = reader.uvarint()
    if length > STRING_BYTES_MAX + 1:
        raise RemoteProtocolError(
            f"string of {length - 1} bytes: at most {STRING_BYTES_MAX} are allowed"
        )
    out += uvarint_bytes(length)
    out += reader.take(max(0, length - 1))


def _copy_compact(reader: _Reader, out: bytearray) -> None:
    """Copy bytes: length + 1, 0 for null."""
    length = reader.uvarint()
    out += uvarint_bytes(length)
    out += reader.take(max(0, length - 1))


def _sized(layout: struct.Struct) -> _Copy:
    """Copy a classic string or bytes: length, -1 for null."""

    def copy(reader: _Reader, out: bytearray) -> None:
        (length,) = reader.unpack(layout)
        out += layout.pack(length)
        if length != -1:
            out += reader.take(length)

    return copy


def _array(shape: Shape, copy_item: _Copy, flexible: bool) -> _Copy:
    """Every item has a byte at least: a count too large ends where the bytes do."""

    def copy(reader: _Reader, out: bytearray) -> None:
        count = _array_length(reader, shape, flexible)
        out += uvarint_bytes(count + 1) if flexible else _INT32.pack(count)
        for _ in range(count):
            copy_item(reader, out)

    return copy


def _array_length(reader: _Reader, shape: Shape, flexible: bool) -> int:
    """Read how many items follow; -1: null, where the schema allows it."""
    count = reader.uvarint() - 1 if flexible else reader.int32()
    if count < -1 or count > reader.remaining:
        raise RemoteProtocolError(f"array of {count} items in {reader.remaining} bytes")
    if count == -1 and not shape.nullable:
        raise RemoteProtocolError(f"{shape.name} must not be null")
    reader.items.add(max(0, count))
    return count


def _nullable(copy_struct: _Copy) -> _Copy:
    """A struct that may be absent: -1, or 1 and the struct."""

    def copy(reader: _Reader, out: bytearray) -> None:
        mark = reader.take(1)
        out += mark
        if mark[0] == 1:
            copy_struct(reader, out)

    return copy
