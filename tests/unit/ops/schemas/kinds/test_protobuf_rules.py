"""Which changes of Protobuf messages are borne, with descriptors made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ops.schemas.kinds.protobuf_rules import Files, differences


def file(*fields: dict[str, Any], package: str = "x", oneofs: int = 0) -> Files:
    found = FileDescriptorProto(package=package)
    message = found.message_type.add(name="M")
    for one in fields:
        message.field.add(**{"label": F.LABEL_OPTIONAL, **one})
    for number in range(oneofs):
        message.oneof_decl.add(name=f"o{number}")
    for name in ("A", "B"):
        found.message_type.add(name=name)
    return Files.of([found])


def field(number: int, type_: int = F.TYPE_INT32, **more: Any) -> dict[str, Any]:
    return {"name": f"f{number}", "number": number, "type": type_, **more}


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (file(field(1), field(2)), file(field(1))),
        (file(field(1)), file(field(1), field(2))),
        (file(field(1, F.TYPE_UINT64)), file(field(1, F.TYPE_BOOL))),
        (file(field(1, F.TYPE_ENUM)), file(field(1, F.TYPE_INT32))),
        (file(field(1, F.TYPE_BYTES)), file(field(1, F.TYPE_STRING))),
        (file({**field(1), "name": "other"}), file(field(1))),
        (file(field(1, F.TYPE_STRING, label=F.LABEL_REPEATED)), file(field(1, F.TYPE_STRING))),
        (file(field(1, oneof_index=0), oneofs=1), file(field(1))),
        (file(), file(field(1, oneof_index=0, proto3_optional=True), oneofs=1)),
    ],
)
def test_changes_that_are_borne(now: Files, before: Files) -> None:
    assert differences(now=now, before=before) == []


@pytest.mark.parametrize(
    ("told", "now", "before"),
    [
        ("the package is y, was x", file(package="y"), file()),
        ("encoded as bytes, was varint", file(field(1, F.TYPE_STRING)), file(field(1))),
        ("encoded as zigzag, was varint", file(field(1, F.TYPE_SINT32)), file(field(1))),
        ("encoded as float, was fixed32", file(field(1, F.TYPE_FLOAT)),
         file(field(1, F.TYPE_FIXED32))),
        ("repeated in one of the two", file(field(1, label=F.LABEL_REPEATED)), file(field(1))),
        ("is a x.A, was a x.B", file(field(1, F.TYPE_MESSAGE, type_name=".x.A")),
         file(field(1, F.TYPE_MESSAGE, type_name=".x.B"))),
        ("required, and new", file(field(1, label=F.LABEL_REQUIRED)), file()),
        ("required, and gone", file(), file(field(1, label=F.LABEL_REQUIRED))),
        ("required in one of the two", file(field(1, label=F.LABEL_REQUIRED)), file(field(1))),
        ("gone from its oneof", file(oneofs=1), file(field(1, oneof_index=0), oneofs=1)),
        ("cannot enter oneof", file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
         file(field(1), field(2))),
    ],
)  # fmt: skip
def test_changes_that_are_not(told: str, now: Files, before: Files) -> None:
    found = differences(now=now, before=before)
    assert len(found) == 1 and told in found[0], found


def test_a_message_that_is_gone() -> None:
    before = FileDescriptorProto(package="x")
    before.message_type.add(name="M").nested_type.add(name="N")
    now = FileDescriptorProto(package="x")
    now.message_type.add(name="M")
    assert differences(now=Files.of([now]), before=Files.of([before])) == ["message x.M.N is gone"]
