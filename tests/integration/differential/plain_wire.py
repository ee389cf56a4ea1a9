"""Kafka messages as plain values, also such as no client would send: by kio's schemas alone.

Quire's own encoder refuses what is not valid, and kio's reader refuses answers that it knows no
value for. Here null is written wherever it is given, also where the schema has no null, and every
number is read as it is. Error codes become their names.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import is_flexible, request_type, response_type
from client.wire.kafka.encoder import blank
from client.wire.kafka.shapes import FORMATS, Shape, shapes_of

Tree = dict[str, Any]

_API_VERSIONS = 18


@functools.cache
def shapes(entity: Any) -> tuple[Shape, ...]:
    """Return the fields of one of kio's classes."""
    return tuple(shapes_of(entity))


def complete(entity: Any, fields: Mapping[str, Any]) -> Tree:
    """Return the fields that a version has, the missing ones as empty as can be.

    Tagged fields are there only if they are given.
    """
    found: Tree = {}
    for shape in shapes(entity):
        if shape.tag is not None and shape.name not in fields:
            continue
        value = fields[shape.name] if shape.name in fields else blank(entity)[shape.name]
        if shape.is_array and value is not None:
            nested = shape.nested
            value = [complete(nested, one) for one in value] if nested else list(value)
        elif shape.nested is not None and value is not None:
            value = complete(shape.nested, value)
        found[shape.name] = value
    return found


def request_frame(key: int, version: int, number: int, fields: Mapping[str, Any]) -> bytes:
    """Encode a request, its length before it."""
    head = struct.pack(">hhih", key, version, number, 4) + b"test"
    if is_flexible(key, version):
        head += b"\x00"
    out = bytearray(head)
    _write_struct(out, request_type(key, version), fields)
    return struct.pack(">i", len(out)) + bytes(out)


def read_response(key: int, version: int, frame: bytes) -> Tree:
    """Decode a response without its length."""
    reader = _Reader(frame)
    reader.take(4)
    entity = response_type(key, version)
    if key != _API_VERSIONS and is_flexible(key, version):
        reader.skip_tags()
    found = _read_struct(reader, entity)
    assert reader.at == len(frame), f"{len(frame) - reader.at} bytes after the answer"
    return found


# --- writing -------------------------------------------------------------------------------------


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_struct(out: bytearray, entity: Any, fields: Mapping[str, Any]) -> None:
    flexible = bool(entity.__flexible__)
    tags: list[tuple[int, bytes]] = []
    for shape in shapes(entity):
        if shape.tag is None:
            _write_field(out, shape, fields[shape.name], flexible=flexible)
        elif shape.name in fields:
            value = bytearray()
            _write_field(value, shape, fields[shape.name], flexible=flexible)
            tags.append((shape.tag, bytes(value)))
    if flexible:
        out += _uvarint(len(tags))
        for tag, data in sorted(tags):
            out += _uvarint(tag) + _uvarint(len(data)) + data


def _write_field(out: bytearray, shape: Shape, value: Any, *, flexible: bool) -> None:
    if not shape.is_array:
        _write_one(out, shape, value, flexible=flexible)
        return
    count = -1 if value is None else len(value)
    out += _uvarint(count + 1) if flexible else struct.pack(">i", count)
    for one in value or ():
        _write_one(out, shape, one, flexible=flexible, is_item=True)


def _write_one(
    out: bytearray, shape: Shape, value: Any, *, flexible: bool, is_item: bool = False
) -> None:
    if shape.nested is not None:
        if shape.nullable and shape.tag is None and not is_item:
            out += b"\xff" if value is None else b"\x01"
        if value is not None:
            _write_struct(out, shape.nested, value)
    elif shape.kafka_type in FORMATS:
        out += struct.pack(">" + FORMATS[shape.kafka_type], value)
    elif shape.kafka_type == "uuid":
        out += bytes(16) if value is None else value.bytes
    else:
        data = value.encode() if isinstance(value, str) else value
        count = -1 if data is None else len(data)
        if flexible:
            out += _uvarint(count + 1)
        else:
            out += struct.pack(">h" if shape.kafka_type == "string" else ">i", count)
        out += data or b""


# --- reading -------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self._data) - self.at, "the answer ends too early"
        self.at += size
        return self._data[self.at - size : self.at]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


def _read_struct(reader: _Reader, entity: Any) -> Tree:
    flexible = bool(entity.__flexible__)
    found = {
        shape.name: _read_field(reader, shape, flexible=flexible)
        for shape in shapes(entity)
        if shape.tag is None
    }
    tagged = {shape.tag: shape for shape in shapes(entity) if shape.tag is not None}
    if not flexible:
        return found
    for shape in tagged.values():
        default = blank(entity)[shape.name]
        found[shape.name] = list(default) if shape.is_array and default is not None else default
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        data = reader.take(reader.uvarint())
        if tag in tagged:
            found[tagged[tag].name] = _read_field(_Reader(data), tagged[tag], flexible=True)
    return found


def _read_field(reader: _Reader, shape: Shape, *, flexible: bool) -> Any:
    if not shape.is_array:
        return _read_one(reader, shape, flexible=flexible)
    count = reader.uvarint() - 1 if flexible else reader.number(">i")
    if count < 0:
        return None
    return [_read_one(reader, shape, flexible=flexible, is_item=True) for _ in range(count)]


def _read_one(reader: _Reader, shape: Shape, *, flexible: bool, is_item: bool = False) -> Any:
    if shape.nested is not None:
        if shape.nullable and shape.tag is None and not is_item and reader.number(">b") < 0:
            return None
        return _read_struct(reader, shape.nested)
    if shape.kafka_type in FORMATS:
        value = reader.number(">" + FORMATS[shape.kafka_type])
        return _code_name(value) if shape.kafka_type == "error_code" else value
    if shape.kafka_type == "uuid":
        data = reader.take(16)
        return UUID(bytes=data) if any(data) else None
    layout = ">h" if shape.kafka_type == "string" else ">i"
    size = reader.uvarint() - 1 if flexible else reader.number(layout)
    if size < 0:
        return None
    data = reader.take(size)
    return data.decode() if shape.kafka_type == "string" else data


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def strings_of(value: Any) -> set[str]:
    """Return every string in a tree."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return set().union(*map(strings_of, value.values())) if value else set()
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return set().union(*map(strings_of, value)) if value else set()
    return set()
