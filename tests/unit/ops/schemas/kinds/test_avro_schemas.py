"""Avro schemas: what is one, what is stored, what may follow what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ops.schemas.core.errors import InvalidSchema, RegistryError
from ops.schemas.core.schema import Kind, Resolved, Schema
from ops.schemas.kinds.avro_schemas import AvroLanguage

AVRO = AvroLanguage()


def avro(value: Any, **named: Any) -> Resolved:
    text = value if isinstance(value, str) else json.dumps(value, indent=2)
    return Resolved(Schema(Kind.AVRO, text), {n: json.dumps(v) for n, v in named.items()})


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "User", "fields": list(fields)}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string"}


def test_stored_is_the_text_without_spaces_and_in_the_order_it_had() -> None:
    assert AVRO.canonical(avro(record(A)), normalize=False) == (
        '{"type":"record","name":"User","fields":[{"name":"a","type":"int"}]}'
    )
    assert AVRO.canonical(avro("string"), normalize=False) == '"string"'


def test_normalized_the_order_of_attributes_makes_no_difference() -> None:
    turned = dict(reversed(record(A).items()))
    one, other = (AVRO.canonical(avro(v), normalize=True) for v in (record(A), turned))
    assert one == other
    assert AVRO.identity(avro(record(A))) == AVRO.identity(avro(turned))
    assert AVRO.identity(avro(record(A, B))) != AVRO.identity(avro(record(B, A)))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[", "nosuch", "7", '{"type":"record"}', '{"type":"enum","name":"E"}', "[" * 9_000,
     '{"type":"record","name":"R","fields":[{"name":"a","type":"Unknown"}]}', "null2", "\x00"],
)  # fmt: skip
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        AVRO.canonical(avro(text), normalize=False)


def test_compatibility_is_avros_resolution() -> None:
    def told(reader: Any, writer: Any) -> str:
        return "; ".join(AVRO.incompatibilities(reader=avro(reader), writer=avro(writer)))

    assert told(record(A), record(A, B)) == ""
    assert told(record(A, {**B, "default": ""}), record(A)) == ""
    assert told(record({**A, "type": "long"}), record(A)) == ""
    assert "b (reader_field_missing_default_value" in told(record(A, B), record(A))
    assert "type_mismatch" in told(record(A), record({**A, "type": "long"}))
    assert told(["null", "string"], "string") == ""
    assert told('"string"', ["null", "string"]) != ""


def test_references_are_named_types() -> None:
    team = {"type": "record", "name": "Team", "fields": [{"name": "lead", "type": "User"}]}
    resolved = avro(team, User=record(A))
    AVRO.canonical(resolved, normalize=False)
    inlined = json.loads(AVRO.formatted(resolved, "resolved"))
    assert inlined["fields"][0]["type"]["fields"][0]["name"] == "a"
    with pytest.raises(InvalidSchema):
        AVRO.canonical(avro(team), normalize=False)
    with pytest.raises(RegistryError, match="resolved"):
        AVRO.formatted(resolved, "serialized")
    with pytest.raises(InvalidSchema, match="reference 'User'"):
        AVRO.canonical(avro(team, User={"type": "record"}), normalize=False)
