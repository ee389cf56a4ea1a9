"""Protobuf schemas that come as descriptors; sources need the compiler, a process:
`tests/integration/test_schemas_protobuf.py`."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ops.schemas.core.errors import InvalidSchema, RegistryError
from ops.schemas.core.schema import Kind, Resolved, Schema
from ops.schemas.kinds.protobuf_schemas import ProtobufLanguage

PROTOBUF = ProtobufLanguage()


def descriptor(type_: int = F.TYPE_INT32, name: str = "m.proto") -> FileDescriptorProto:
    found = FileDescriptorProto(name=name, package="x", syntax="proto3")
    message = found.message_type.add(name="M")
    message.field.add(name="a", number=1, type=type_, label=F.LABEL_OPTIONAL)
    return found


def sent(file: FileDescriptorProto, **named: FileDescriptorProto) -> Resolved:
    def text(one: FileDescriptorProto) -> str:
        return base64.b64encode(one.SerializeToString()).decode()

    return Resolved(
        Schema(Kind.PROTOBUF, text(file)), {name: text(one) for name, one in named.items()}
    )


def test_how_a_descriptor_was_sent_makes_no_difference() -> None:
    other = descriptor(name="elsewhere.proto")
    other.message_type[0].field[0].json_name = "a"
    assert PROTOBUF.identity(sent(other)) == PROTOBUF.identity(sent(descriptor()))
    assert PROTOBUF.identity(sent(descriptor(F.TYPE_INT64))) != PROTOBUF.identity(
        sent(descriptor())
    )
    one = sent(descriptor())
    assert PROTOBUF.canonical(one, normalize=False) == one.schema.text
    assert PROTOBUF.formatted(one, "serialized") == one.schema.text
    with pytest.raises(RegistryError, match="serialized"):
        PROTOBUF.formatted(one, "resolved")


def test_they_are_compared() -> None:
    now, before = sent(descriptor(F.TYPE_STRING)), sent(descriptor())
    assert len(PROTOBUF.incompatibilities(reader=now, writer=before)) == 1
    assert PROTOBUF.incompatibilities(reader=sent(descriptor(F.TYPE_INT64)), writer=before) == []


def test_references_between_descriptors() -> None:
    using = FileDescriptorProto(name="n.proto", dependency=["other.proto"], syntax="proto3")
    field = using.message_type.add(name="N").field.add(name="m", number=1, label=F.LABEL_OPTIONAL)
    field.type, field.type_name = F.TYPE_MESSAGE, ".x.M"
    PROTOBUF.canonical(sent(using, **{"other.proto": descriptor()}), normalize=True)
    with pytest.raises(InvalidSchema):
        PROTOBUF.canonical(sent(using), normalize=True)


def test_what_is_no_descriptor() -> None:
    for data in (b"\xff\xff", b"\x08"):
        schema = Schema(Kind.PROTOBUF, base64.b64encode(data).decode())
        with pytest.raises(InvalidSchema):
            PROTOBUF.canonical(Resolved(schema), normalize=False)
