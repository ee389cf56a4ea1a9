"""Which changes of Protobuf messages are borne, with descriptors made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FeatureSet, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F

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
        (file(field(1, label=F.LABEL_REPEATED)), file(field(1))),
        (file(field(1)), file(field(1, label=F.LABEL_REQUIRED))),
        (
            file(
                field(1, oneof_index=0), field(2, oneof_index=0), field(3, oneof_index=0), oneofs=1
            ),
            file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
        ),
        (
            file(field(1, oneof_index=1), field(2, oneof_index=1), oneofs=2),
            file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
        ),
        (
            file(field(1), field(2, oneof_index=0), oneofs=1),
            file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
        ),
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
        ("was repeated", file(field(1)), file(field(1, label=F.LABEL_REPEATED))),
        ("is a x.A, was a x.B", file(field(1, F.TYPE_MESSAGE, type_name=".x.A")),
         file(field(1, F.TYPE_MESSAGE, type_name=".x.B"))),
        ("required, and new", file(field(1, label=F.LABEL_REQUIRED)), file()),
        ("required, and gone", file(), file(field(1, label=F.LABEL_REQUIRED))),
        ("required, and was not", file(field(1, label=F.LABEL_REQUIRED)), file(field(1))),
        ("gone from its oneof", file(oneofs=1), file(field(1, oneof_index=0), oneofs=1)),
        ("share oneof o0", file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
         file(field(1), field(2))),
        ("share oneof o0", file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
         file(field(1), field(2, oneof_index=0), oneofs=1)),
        ("share oneof o0", file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
         file(field(1, oneof_index=0), field(2, oneof_index=1), oneofs=2)),
        ("share oneof o0", file(field(1, oneof_index=0), field(2, oneof_index=0), oneofs=1),
         file(field(1, oneof_index=0), field(2, oneof_index=1, proto3_optional=True), oneofs=2)),
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


def mapped(name: str, value: int) -> Files:
    """A message with a map, whose entry is called as protoc calls it."""
    found = FileDescriptorProto(package="x")
    message = found.message_type.add(name="M")
    entry_name = f"{name.capitalize()}Entry"
    message.field.add(
        name=name, number=1, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED,
        type_name=f".x.M.{entry_name}",
    )  # fmt: skip
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=value, label=F.LABEL_OPTIONAL)
    return Files.of([found])


def test_a_map_may_be_renamed_but_holds_the_same() -> None:
    before = mapped("tags", F.TYPE_INT32)
    assert differences(now=mapped("labels", F.TYPE_INT64), before=before) == []
    for name in ("tags", "labels"):
        (told,) = differences(now=mapped(name, F.TYPE_STRING), before=before)
        assert "value (value) is encoded as bytes, was varint" in told


def edition(**features: int) -> Files:
    found = FileDescriptorProto(package="x", syntax="editions")
    message = found.message_type.add(name="M")
    message.field.add(
        name="f", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=".x.M"
    )
    for name, value in features.items():
        setattr(message.field[0].options.features, name, value)
    return Files.of([found])


def test_features_of_an_edition_count_like_labels_and_types() -> None:
    required = edition(field_presence=FeatureSet.LEGACY_REQUIRED)
    delimited = edition(message_encoding=FeatureSet.DELIMITED)
    assert "required, and was not" in differences(now=required, before=edition())[0]
    assert "encoded as group, was message" in differences(now=delimited, before=edition())[0]
