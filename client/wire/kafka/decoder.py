"""Bytes into kio's entities: a checked copy first, then kio's reader.

kio's native reader takes a peer's word for how long an array is and reserves that much at once,
which can end the process; and it refuses tagged fields that its schema does not know, although
whoever does not know them must pass over them (KIP-482). So a body is walked along the schema
first, every length held against the bytes that are there, and copied without unknown tags. The
hot paths do not come here: `produce.py` and `fetch.py` read their requests themselves.

Covers turning bytes into kio's entities.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, Final

from kio.serial import entity_reader
from kio.serial.errors import SerialError

from client.errors import RemoteProtocolError
from client.wire.buffer import Reader, uvarint_bytes
from client.wire.kafka.shapes import FORMATS, Shape, shapes_of

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UUID_BYTES: Final = 16
_Copy = Callable[[Reader, bytearray], None]


def decode(entity: Any, body: memoryview) -> Any:
    """Decode a body; `entity` is kio's class of that message and version.

    Bytes after the last field are ignored, as Kafka ignores them. Raises RemoteProtocolError.
    """
    checked = bytearray()
    try:
        _struct(entity)(Reader(body), checked)
        return _reader(entity)(memoryview(bytes(checked)), 0)[0]
    except (SerialError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(
            f"{entity.__name__} version {entity.__version__}: {error}"
        ) from error


@functools.cache
def _reader(entity: Any) -> Any:
    return entity_reader(entity)


@functools.cache
def _struct(entity: Any) -> _Copy:
    flexible = bool(entity.__flexible__)
    shapes = shapes_of(entity)
    plain = [_value(shape, flexible) for shape in shapes if shape.tag is None]
    known: dict[int | None, _Copy] = {
        shape.tag: _value(shape, flexible) for shape in shapes if shape.tag is not None
    }

    def copy(reader: Reader, out: bytearray) -> None:
        for copy_value in plain:
            copy_value(reader, out)
        if flexible:
            _copy_tags(reader, out, known)

    return copy


def _copy_tags(reader: Reader, out: bytearray, known: dict[int | None, _Copy]) -> None:
    kept = []
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        data = reader.take(size)
        if tag in known:
            value = bytearray()
            known[tag](Reader(data), value)
            kept.append(uvarint_bytes(tag) + uvarint_bytes(len(value)) + value)
    out += uvarint_bytes(len(kept))
    for field in kept:
        out += field


def _value(shape: Shape, flexible: bool) -> _Copy:
    if shape.is_array:
        return _array(_one(shape, flexible), flexible)
    if shape.nested is not None and shape.nullable and shape.tag is None:
        return _nullable(_one(shape, flexible))
    return _one(shape, flexible)


def _one(shape: Shape, flexible: bool) -> _Copy:
    if shape.nested is not None:
        return _struct(shape.nested)
    if shape.kafka_type in FORMATS:
        return _fixed(struct.calcsize(">" + FORMATS[shape.kafka_type]))
    if shape.kafka_type == "uuid":
        return _fixed(_UUID_BYTES)
    if flexible:
        return _copy_compact
    return _sized(_INT16 if shape.kafka_type == "string" else _INT32)


def _fixed(size: int) -> _Copy:
    def copy(reader: Reader, out: bytearray) -> None:
        out += reader.take(size)

    return copy


def _copy_compact(reader: Reader, out: bytearray) -> None:
    """Copy a string or bytes: length + 1, 0 for null."""
    length = reader.uvarint()
    out += uvarint_bytes(length)
    out += reader.take(max(0, length - 1))


def _sized(layout: struct.Struct) -> _Copy:
    """Copy a classic string or bytes: length, -1 for null."""

    def copy(reader: Reader, out: bytearray) -> None:
        (length,) = reader.unpack(layout)
        out += layout.pack(length)
        if length != -1:
            out += reader.take(length)

    return copy


def _array(copy_item: _Copy, flexible: bool) -> _Copy:
    """Every item has a byte at least: a count too large ends where the bytes do."""

    def copy(reader: Reader, out: bytearray) -> None:
        if flexible:
            count = reader.uvarint() - 1
            out += uvarint_bytes(count + 1)
        else:
            (count,) = reader.unpack(_INT32)
            out += _INT32.pack(count)
        if count < -1 or count > reader.remaining:
            raise RemoteProtocolError(f"array of {count} items in {reader.remaining} bytes")
        for _ in range(count):
            copy_item(reader, out)

    return copy


def _nullable(copy_struct: _Copy) -> _Copy:
    """A struct that may be absent: -1, or 1 and the struct."""

    def copy(reader: Reader, out: bytearray) -> None:
        mark = reader.take(1)
        out += mark
        if mark[0] == 1:
            copy_struct(reader, out)

    return copy
