"""Which changes of Protobuf messages old and new readers tolerate.

What the wire format itself bears is fine: fields that come and go, other names, numbers of the same
encoding. Incompatible are a message that is gone, a field with another encoding or message type, a
repeated number that turns singular, required fields that come or go, a field that turns required,
one that is gone from its oneof, and fields that share a oneof now although a message could hold
more than one of them before: setting one clears the others, so what was written with two of them is
read as one.

A file of an edition says by features what proto2 and proto3 say by labels and types; they are put
into those terms first.

Source: Protobuf's language guide, "Updating A Message Type" and "Editions: feature settings".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FeatureSet,
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
            found = dict(_messages(scope, _without_features(file).message_type))
            messages |= found
            for name, message in found.items():
                enums |= {f"{name}.{one.name}": one for one in message.enum_type}
            enums |= {f"{scope}.{one.name}": one for one in file.enum_type}
            if file is files[-1]:
                own = set(found)
        return cls(files[-1].package, frozenset(own), messages, enums)


def _without_features(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a file with the labels and types that its features stand for."""
    if file.syntax != "editions":
        return file
    found = FileDescriptorProto()
    found.CopyFrom(file)
    of_file = FeatureSet()
    of_file.MergeFrom(file.options.features)
    for message in found.message_type:
        _resolve(message, of_file)
    return found


def _resolve(message: DescriptorProto, outer: FeatureSet) -> None:
    inherited = _merged(outer, message.options.features)
    for one in (*message.field, *message.extension):
        features = _merged(inherited, one.options.features)
        if features.field_presence == FeatureSet.LEGACY_REQUIRED:
            one.label = _F.LABEL_REQUIRED
        is_delimited = features.message_encoding == FeatureSet.DELIMITED
        if one.type == _F.TYPE_MESSAGE and is_delimited and not message.options.map_entry:
            one.type = _F.TYPE_GROUP
    for nested in message.nested_type:
        _resolve(nested, inherited)


def _merged(outer: FeatureSet, inner: FeatureSet) -> FeatureSet:
    found = FeatureSet()
    found.CopyFrom(outer)
    found.MergeFrom(inner)
    return found


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
        if before.messages[name].options.map_entry:
            continue  # judged with its field, whose name it follows
        if name in now.messages:
            yield from _fields(name, now, before)
        elif name in before.own:
            yield f"message {name[1:]} is gone"


def _fields(name: str, now: Files, before: Files) -> Iterator[str]:
    ours = {one.number: one for one in now.messages[name].field}
    theirs = {one.number: one for one in before.messages[name].field}
    for number in sorted({*ours, *theirs}):
        where = f"{name[1:]}, field {number}"
        if number not in ours or number not in theirs:
            one = ours.get(number) or theirs[number]
            if one.label == _F.LABEL_REQUIRED:
                yield f"{where} ({one.name}) is required, and {'new' if number in ours else 'gone'}"
            elif number in theirs and _oneof(one) is not None:
                yield f"{where} ({one.name}) is gone from its oneof"
            continue
        yield from _field(where, ours[number], theirs[number], now, before)
    yield from _oneofs(name, now.messages[name], theirs)


def _field(
    where: str,
    field: FieldDescriptorProto,
    old: FieldDescriptorProto,
    now: Files,
    before: Files,
) -> Iterator[str]:
    ours, theirs = _ENCODINGS[field.type], _ENCODINGS[old.type]
    if ours != theirs:
        yield f"{where} ({field.name}) is encoded as {ours}, was {theirs}"
    elif ours in ("message", "group"):
        entry, old_entry = now.messages.get(field.type_name), before.messages.get(old.type_name)
        if entry is not None and old_entry is not None and _are_maps(entry, old_entry):
            for part, old_part in zip(entry.field, old_entry.field, strict=True):
                yield from _field(f"{where}, {part.name}", part, old_part, now, before)
        elif field.type_name != old.type_name:
            yield f"{where} ({field.name}) is a {field.type_name[1:]}, was a {old.type_name[1:]}"
    is_list, was_list = field.label == _F.LABEL_REPEATED, old.label == _F.LABEL_REPEATED
    if was_list and not is_list and ours not in ("bytes", "message", "group"):
        yield f"{where} ({field.name}) was repeated"
    if field.label == _F.LABEL_REQUIRED and old.label != _F.LABEL_REQUIRED:
        yield f"{where} ({field.name}) is required, and was not"


def _are_maps(one: DescriptorProto, other: DescriptorProto) -> bool:
    return one.options.map_entry and other.options.map_entry


def _oneof(field: FieldDescriptorProto) -> int | None:
    """Return the place of a field's oneof; proto3's `optional` is none."""
    is_member = field.HasField("oneof_index") and not field.proto3_optional
    return field.oneof_index if is_member else None


def _oneofs(
    name: str, now: DescriptorProto, before: Mapping[int, FieldDescriptorProto]
) -> Iterator[str]:
    for index, oneof in enumerate(now.oneof_decl):
        known = [one for one in now.field if _oneof(one) == index and one.number in before]
        # Fields of one oneof never stood in a message together; all others could.
        homes = {
            ("oneof", home) if (home := _oneof(before[one.number])) is not None else one.number
            for one in known
        }
        if len(homes) > 1:
            names = ", ".join(one.name for one in known)
            yield f"{name[1:]}: fields {names} share oneof {oneof.name}, and did not before"
