"""Which changes of Protobuf messages old and new readers tolerate.

What the wire format itself bears is fine: fields that come and go, other names, numbers of the same
encoding. Incompatible are a message that is gone, a field with another encoding or message type, a
field that turns repeated where that is encoded differently, required fields that come or go, and
fields that leave a oneof or, several of them, enter one.

Source: Protobuf's language guide, "Updating A Message Type".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from ops.schemas.kinds.language import DIFFERENCES_MAX

_F: Final = FieldDescriptorProto
_ENCODINGS: Final[Mapping[int, str]] = {
    _F.TYPE_INT32: "varint",
    _F.TYPE_INT64: "varint",
    _F.TYPE_UINT32: "varint",
    _F.TYPE_UINT64: "varint",
    _F.TYPE_BOOL: "varint",
    _F.TYPE_ENUM: "varint",
    _F.TYPE_SINT32: "zigzag",
    _F.TYPE_SINT64: "zigzag",
    _F.TYPE_FIXED32: "fixed32",
    _F.TYPE_SFIXED32: "fixed32",
    _F.TYPE_FIXED64: "fixed64",
    _F.TYPE_SFIXED64: "fixed64",
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
    _F.TYPE_STRING: "bytes",
    _F.TYPE_BYTES: "bytes",
    _F.TYPE_MESSAGE: "message",
    _F.TYPE_GROUP: "group",
}
"""Types with the same encoding can be read as each other."""


class Files(NamedTuple):
    """All messages and enums of a schema and of what it refers to, by their full names."""

    package: str
    own: frozenset[str]
    """Messages of the schema itself."""
    messages: Mapping[str, DescriptorProto]
    enums: Mapping[str, EnumDescriptorProto]

    @classmethod
    def of(cls, files: Sequence[FileDescriptorProto]) -> Files:
        """Return those of descriptors, of which the last is the schema itself."""
        messages: dict[str, DescriptorProto] = {}
        enums: dict[str, EnumDescriptorProto] = {}
        own: set[str] = set()
        for file in files:
            scope = f".{file.package}" if file.package else ""
            found = dict(_messages(scope, file.message_type))
            messages |= found
            for name, message in found.items():
                enums |= {f"{name}.{one.name}": one for one in message.enum_type}
            enums |= {f"{scope}.{one.name}": one for one in file.enum_type}
            if file is files[-1]:
                own = set(found)
        return cls(files[-1].package, frozenset(own), messages, enums)


def _messages(
    scope: str, messages: Sequence[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _messages(name, message.nested_type)


def differences(*, now: Files, before: Files) -> list[str]:
    """Return why what was written with `before` may not be understood by `now`."""
    found = list(_differences(now, before))
    return found[:DIFFERENCES_MAX]


def _differences(now: Files, before: Files) -> Iterator[str]:
    if now.package != before.package:
        yield f"the package is {now.package or 'none'}, was {before.package or 'none'}"
        return
    for name in sorted(before.messages):
        if name in now.messages:
            yield from _fields(name, now.messages[name], before.messages[name])
        elif name in before.own and not before.messages[name].options.map_entry:
            yield f"message {name[1:]} is gone"


def _fields(name: str, now: DescriptorProto, before: DescriptorProto) -> Iterator[str]:
    ours = {one.number: one for one in now.field}
    theirs = {one.number: one for one in before.field}
    for number in sorted({*ours, *theirs}):
        where = f"{name[1:]}, field {number}"
        if number not in ours or number not in theirs:
            one = ours.get(number) or theirs[number]
            if one.label == _F.LABEL_REQUIRED:
                yield f"{where} ({one.name}) is required, and {'new' if number in ours else 'gone'}"
            elif number in theirs and one.HasField("oneof_index") and not one.proto3_optional:
                yield f"{where} ({one.name}) is gone from its oneof"
            continue
        yield from _field(where, ours[number], theirs[number])
    yield from _oneofs(name, now, theirs)


def _field(where: str, now: FieldDescriptorProto, before: FieldDescriptorProto) -> Iterator[str]:
    ours, theirs = _ENCODINGS[now.type], _ENCODINGS[before.type]
    if ours != theirs:
        yield f"{where} ({now.name}) is encoded as {ours}, was {theirs}"
    elif ours in ("message", "group") and now.type_name != before.type_name:
        yield f"{where} ({now.name}) is a {now.type_name[1:]}, was a {before.type_name[1:]}"
    is_repeated = now.label == _F.LABEL_REPEATED
    if is_repeated != (before.label == _F.LABEL_REPEATED) and ours not in ("bytes", "message"):
        yield f"{where} ({now.name}) is repeated in one of the two only"
    if (now.label == _F.LABEL_REQUIRED) != (before.label == _F.LABEL_REQUIRED):
        yield f"{where} ({now.name}) is required in one of the two only"


def _oneofs(
    name: str, now: DescriptorProto, before: Mapping[int, FieldDescriptorProto]
) -> Iterator[str]:
    for index, oneof in enumerate(now.oneof_decl):
        members = [
            one for one in now.field if one.HasField("oneof_index") and one.oneof_index == index
        ]
        moved = [
            one.name
            for one in members
            if one.number in before and not before[one.number].HasField("oneof_index")
        ]
        if len(moved) > 1:
            yield f"{name[1:]}: fields {', '.join(moved)} cannot enter oneof {oneof.name} together"
