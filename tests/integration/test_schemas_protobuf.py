"""Protobuf sources, with Google's compiler in its process."""

from __future__ import annotations

import pytest

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.core.schema import Kind, Resolved, Schema
from ops.schemas.kinds.protobuf_schemas import ProtobufLanguage

PROTOBUF = ProtobufLanguage()
SOURCE = """
syntax = "proto3";
package x;
import "google/protobuf/timestamp.proto";
import "team/other.proto";
message M {
  int32 a = 1;
  google.protobuf.Timestamp at = 2;
  map<string, team.Other> others = 3;
}
"""
OTHER = 'syntax = "proto3"; package team; message Other { string name = 1; }'


def source(text: str, **named: str) -> Resolved:
    return Resolved(Schema(Kind.PROTOBUF, text), named)


def test_a_source_is_the_same_schema_as_its_descriptor() -> None:
    named = {"team/other.proto": OTHER}
    one = source(SOURCE, **named)
    assert PROTOBUF.canonical(one, normalize=False) == SOURCE.strip()
    other = source(PROTOBUF.formatted(one, "serialized"), **named)
    assert PROTOBUF.identity(other) == PROTOBUF.identity(one)
    assert PROTOBUF.incompatibilities(reader=other, writer=one) == []


def test_a_change_of_what_is_referred_to_counts() -> None:
    now = source(SOURCE, **{"team/other.proto": OTHER.replace("string", "int32")})
    before = source(SOURCE, **{"team/other.proto": OTHER})
    assert PROTOBUF.incompatibilities(reader=now, writer=before) == [
        "team.Other, field 1 (name) is encoded as varint, was bytes"
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("message {", "line:1:9: Expected message name"),
        ('syntax = "proto3"; import "no.proto"; message M {}', "no.proto: File not found"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "already been used"),
        ('syntax = "proto9"; message M {}', "proto9"),
    ],
)
def test_what_is_no_source_is_told_in_the_compilers_words(text: str, told: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        PROTOBUF.canonical(source(text), normalize=False)
    assert told in str(refused.value)
    assert "/" not in str(refused.value).replace("no.proto", "")


@pytest.mark.parametrize(
    "name", ["../up.proto", "/etc/x.proto", "a//b.proto", "a\\b.proto", "x\0y"]
)
def test_a_reference_leads_nowhere_else(name: str) -> None:
    with pytest.raises(InvalidSchema, match="import path"):
        PROTOBUF.canonical(
            source('syntax = "proto3"; message M {}', **{name: OTHER}), normalize=False
        )
