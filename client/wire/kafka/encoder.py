"""Encoders compiled from kio's classes, which describe themselves field by field.

Covers how a tree of plain values becomes bytes. kio writes messages by walking dataclasses of rich
types; a function compiled once per class from the same description does it from dictionaries and
ints in a fifth of the time. The idea: neighbouring fixed-size fields share one `struct` pack fed
by one `itemgetter`; defaults are merged in with one dictionary union per struct; the rest is one
closure per field. What has been compiled is kept for the life of the process: it depends on
nothing but the schema.

Values are plain: error codes and milliseconds are ints, a null uuid is None. A dictionary may
hold more fields than a version knows (they are dropped) and may leave out what has a default.
Bytes in the place of a struct are its encoding, made before: they are written as they are.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import uuid
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from client.errors import LocalProtocolError
from client.wire.buffer import uvarint_bytes
from client.wire.kafka.shapes import FORMATS, Fields, Shape, shapes_of
from client.wire.steps import STEP_ITEMS, ItemCount, Steps

_Write = Callable[[list[bytes], Any], None]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"
_NO_UUID: Final = bytes(16)


def encode(entity: Any, fields: Fields) -> bytes:
    """Encode a tree of plain values as one of kio's classes.

    Raises LocalProtocolError when a field without default is missing or a value does not fit.
    """
    parts: list[bytes] = []
    try:
        _compile(entity)(parts, fields)
    except KeyError as error:
        raise LocalProtocolError(
            f"{entity.__name__} v{entity.__version__}: field {error} is missing"
        ) from error
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise LocalProtocolError(f"{entity.__name__} v{entity.__version__}: {error}") from error
    return b"".join(parts)


def encode_steps(entity: Any, fields: Fields) -> Steps[bytes]:
    """Do as `encode`, in steps if there are many structs in lists."""
    try:
        is_small = _count(entity, fields) <= STEP_ITEMS
    except (AttributeError, TypeError):
        is_small = True  # `encode` says what is wrong
    if is_small:
        return encode(entity, fields)
    return encode(entity, (yield from _shorten(entity, fields, ItemCount())))


def _shorten(entity: Any, fields: Fields, items: ItemCount) -> Steps[Fields]:
    """Return the same fields with bytes in the place of each struct in a list."""
    short = dict(fields)
    for name, nested in _lists(entity):
        encoded = []
        for item in fields.get(name) or ():
            if items.is_step_over():
                yield
            if not isinstance(item, bytes):
                if _lists(nested):
                    item = yield from _shorten(nested, item, items)
                item = encode(nested, item)
            encoded.append(item)
        if encoded:
            short[name] = encoded
    return short


def _count(entity: Any, fields: Fields) -> int:
    """Count the structs in lists, those that are bytes already not among them."""
    count = 0
    for name, nested in _lists(entity):
        found = fields.get(name) or ()
        count += len(found)
        if _lists(nested):
            for item in found:
                if not isinstance(item, bytes):
                    count += _count(nested, item)
    return count


@functools.cache
def _lists(entity: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields that are lists of structs, with the structs' class."""
    return tuple(
        (shape.name, shape.nested)
        for shape in shapes_of(entity)
        if shape.is_array and shape.nested is not None
    )


def _zero(shape: Shape) -> Any:
    """Return the emptiest value of a field; it is also what an absent tagged field means."""
    if shape.default is not dataclasses.MISSING:
        return shape.default
    if shape.is_array:
        return ()
    if shape.nullable:
        return None
    if shape.nested is not None:
        return blank(shape.nested)
    if shape.kafka_type == "string":
        return ""
    if shape.kafka_type in ("bytes", "records"):
        return b""
    return None if shape.kafka_type == "uuid" else 0


def blank(entity: Any) -> dict[str, Any]:
    """Return the emptiest tree that a class can encode."""
    return {shape.name: _zero(shape) for shape in shapes_of(entity)}


@functools.cache
def _compile(entity: Any) -> _Write:
    """Turn one of kio's classes into a function that appends its encoding to a list."""
    flexible = bool(entity.__flexible__)
    shapes = shapes_of(entity)
    defaults = {
        shape.name: _zero(shape)
        for shape in shapes
        if shape.tag is not None or shape.default is not dataclasses.MISSING
    }
    steps = _steps([shape for shape in shapes if shape.tag is None], flexible=flexible)
    tagged = sorted(_tag_row(shape) for shape in shapes if shape.tag is not None)

    def write(out: list[bytes], fields: Fields | bytes) -> None:
        if isinstance(fields, bytes):
            out.append(fields)
            return
        merged = {**defaults, **fields}
        for step in steps:
            step(out, merged)
        if flexible:
            if tagged:
                _write_tags(out, merged, tagged)
            else:
                out.append(_NO_TAGS)

    return write


def _tag_row(shape: Shape) -> tuple[int, str, _Write, bytes]:
    """Return (tag, name, writer, what the writer writes for the value that goes unsaid)."""
    assert shape.tag is not None
    write_value = _value_writer(shape, flexible=True)
    absent: list[bytes] = []
    write_value(absent, _zero(shape))
    return shape.tag, shape.name, write_value, b"".join(absent)


def _write_tags(
    out: list[bytes], merged: Fields, tagged: Sequence[tuple[int, str, _Write, bytes]]
) -> None:
    present: list[bytes] = []
    count = 0
    for tag, name, write_value, absent in tagged:
        value: list[bytes] = []
        write_value(value, merged[name])
        body = b"".join(value)
        if body != absent:
            count += 1
            present += (uvarint_bytes(tag), uvarint_bytes(len(body)), body)
    out.append(uvarint_bytes(count))
    out += present


def _steps(shapes: Sequence[Shape], *, flexible: bool) -> list[_Write]:
    """Return writers for all fields; neighbours of fixed size share one."""
    steps: list[_Write] = []
    run: list[Shape] = []
    for shape in shapes:
        if not shape.is_array and shape.nested is None and shape.kafka_type in FORMATS:
            run.append(shape)
            continue
        if run:
            steps.append(_run_writer(run))
            run = []
        steps.append(_field_writer(shape, flexible=flexible))
    if run:
        steps.append(_run_writer(run))
    return steps


def _run_writer(run: Sequence[Shape]) -> _Write:
    layout = ">" + "".join(FORMATS[shape.kafka_type] for shape in run)
    pack = struct.Struct(layout).pack
    get = itemgetter(*(shape.name for shape in run))
    if len(run) == 1:
        return lambda out, merged: out.append(pack(get(merged)))
    return lambda out, merged: out.append(pack(*get(merged)))


def _field_writer(shape: Shape, *, flexible: bool) -> _Write:
    name = shape.name
    write_value = _value_writer(shape, flexible=flexible)

    def write(out: list[bytes], merged: Fields) -> None:
        value = merged[name]
        try:
            write_value(out, value)
        except (TypeError, AttributeError, ValueError, struct.error) as error:
            raise ValueError(f"{name}: {error}") from error

    return write


def _value_writer(shape: Shape, *, flexible: bool) -> _Write:
    if shape.is_array:
        return _array_writer(shape, flexible=flexible)
    if shape.nested is not None:
        write_struct = _compile(shape.nested)
        # A tag's presence already says that the struct is there.
        return (
            _nullable_struct(write_struct)
            if shape.nullable and shape.tag is None
            else (write_struct)
        )
    return _primitive_writer(shape.kafka_type, flexible=flexible, nullable=shape.nullable)


def _nullable_struct(write_struct: _Write) -> _Write:
    def write(out: list[bytes], value: Any) -> None:
        if value is None:
            out.append(b"\xff")
        else:
            out.append(b"\x01")
            write_struct(out, value)

    return write


def _array_writer(shape: Shape, *, flexible: bool) -> _Write:
    nullable = shape.nullable
    layout = FORMATS.get(shape.kafka_type) if shape.nested is None else None
    write_item = (
        _compile(shape.nested)
        if shape.nested is not None
        else _primitive_writer(shape.kafka_type, flexible=flexible, nullable=False)
    )

    def write(out: list[bytes], items: Any) -> None:
        if items is None:
            if not nullable:
                raise ValueError("array must not be null")
            out.append(b"\x00" if flexible else b"\xff\xff\xff\xff")
            return
        count = len(items)
        out.append(uvarint_bytes(count + 1) if flexible else _INT32.pack(count))
        if layout is not None:
            out.append(struct.pack(f">{count}{layout}", *items))
            return
        for item in items:
            write_item(out, item)

    return write


def _primitive_writer(kafka_type: str, *, flexible: bool, nullable: bool) -> _Write:
    if kafka_type in FORMATS:
        pack = struct.Struct(">" + FORMATS[kafka_type]).pack
        return lambda out, value: out.append(pack(value))
    if kafka_type == "uuid":
        return _write_uuid
    if kafka_type == "string":
        return _sized_writer(str.encode, _INT16, flexible=flexible, nullable=nullable)
    if kafka_type in ("bytes", "records"):
        return _sized_writer(bytes, _INT32, flexible=flexible, nullable=nullable)
    raise LocalProtocolError(f"schema type {kafka_type!r} is not supported")


def _write_uuid(out: list[bytes], value: uuid.UUID | None) -> None:
    out.append(_NO_UUID if value is None else value.bytes)


def _sized_writer(
    to_bytes: Callable[[Any], bytes], length: struct.Struct, *, flexible: bool, nullable: bool
) -> _Write:
    null = b"\x00" if flexible else length.pack(-1)

    def write(out: list[bytes], value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError("must not be null")
            out.append(null)
            return
        data = to_bytes(value)
        out.append(uvarint_bytes(len(data) + 1) if flexible else length.pack(len(data)))
        out.append(data)

    return write
