"""Protobuf sources, with Google's compiler in its process."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.core.schema import Kind, Resolved, Schema
from ops.schemas.kinds import protoc
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


BUILT_IN = {
    "google/type/date.proto": "google.type.Date",
    "google/type/money.proto": "google.type.Money",
    "confluent/meta.proto": "confluent.Meta",
    "confluent/type/decimal.proto": "confluent.type.Decimal",
    "confluent/types/decimal.proto": "confluent.type.Decimal",
}


@pytest.mark.parametrize("path", BUILT_IN)
def test_what_clients_never_register_is_there(path: str) -> None:
    text = f'syntax = "proto3"; import "{path}"; message M {{ {BUILT_IN[path]} a = 1; }}'
    one = source(text)
    sent = source(PROTOBUF.canonical(one, normalize=True))
    assert PROTOBUF.identity(sent) == PROTOBUF.identity(one)
    assert PROTOBUF.incompatibilities(reader=one, writer=sent) == []


def test_a_source_may_refer_to_what_was_sent_as_a_descriptor() -> None:
    sent = PROTOBUF.canonical(source(OTHER), normalize=True)
    one = source(SOURCE, **{"team/other.proto": sent})
    assert PROTOBUF.identity(one) == PROTOBUF.identity(
        source(SOURCE, **{"team/other.proto": OTHER})
    )
    changed = PROTOBUF.canonical(source(OTHER.replace("string", "int32")), normalize=True)
    assert PROTOBUF.incompatibilities(
        reader=one, writer=source(SOURCE, **{"team/other.proto": changed})
    ) == ["team.Other, field 1 (name) is encoded as bytes, was varint"]


def test_a_name_in_json_that_somebody_chose_is_part_of_the_schema() -> None:
    chosen = 'syntax = "proto3"; message M { int32 user_id = 1 [json_name = "uid"]; }'
    plain, default = chosen.replace(' [json_name = "uid"]', ""), chosen.replace("uid", "userId")
    assert PROTOBUF.identity(source(plain)) == PROTOBUF.identity(source(default))
    assert PROTOBUF.identity(source(plain)) != PROTOBUF.identity(source(chosen))


def one_process(monkeypatch: pytest.MonkeyPatch) -> queue.LifoQueue[Any]:
    """Let there be one compiler that has not been started, and nothing compiled before."""
    waiting: queue.LifoQueue[Any] = queue.LifoQueue()
    waiting.put(None)
    monkeypatch.setattr(protoc, "_waiting", waiting)
    monkeypatch.setattr(protoc, "_kept", protoc._Kept())
    return waiting


def test_a_compiler_stays_and_one_that_died_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = one_process(monkeypatch)
    PROTOBUF.identity(source('syntax = "proto3"; message A {}'))
    (first,) = waiting.queue
    PROTOBUF.identity(source('syntax = "proto3"; message B {}'))
    assert waiting.queue == [first]
    first._process.kill()
    with pytest.raises(InvalidSchema, match="the compiler ended"):
        PROTOBUF.identity(source('syntax = "proto3"; message C {}'))
    assert waiting.queue == [None]
    PROTOBUF.identity(source('syntax = "proto3"; message C {}'))
    waiting.queue[0].end()


def test_a_compiler_that_takes_too_long_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = one_process(monkeypatch)
    monkeypatch.setattr(protoc, "_TIMEOUT_S", 0.0)
    with pytest.raises(InvalidSchema, match="did not end within 0 s"):
        PROTOBUF.identity(source('syntax = "proto3"; message A {}'))
    assert waiting.queue == [None]


def test_what_was_compiled_is_compiled_once_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_process(monkeypatch)
    asked: list[list[str]] = []
    ask = protoc._ask
    monkeypatch.setattr(
        protoc, "_ask", lambda arguments: (asked.append(arguments), ask(arguments))[1]
    )
    for _ in range(3):
        PROTOBUF.identity(source(OTHER))
    assert len(asked) == 1
    monkeypatch.setattr(protoc, "_KEPT_BYTES_MAX", 1)
    for _ in range(2):
        PROTOBUF.identity(source('syntax = "proto3"; message A {}'))
    assert len(asked) == 3 and protoc._kept._bytes == 0
    protoc._waiting.queue[0].end()
