"""JSON schemas: what is one, and what is stored."""

from __future__ import annotations

import json

import pytest

from ops.schemas.core.errors import InvalidSchema, RegistryError
from ops.schemas.core.schema import Kind, Resolved, Schema
from ops.schemas.kinds.json_schemas import JsonLanguage

JSON = JsonLanguage()


def schema(text: str, **named: str) -> Resolved:
    return Resolved(Schema(Kind.JSON, text), named)


def test_stored_and_normalized() -> None:
    text = '{ "type": "object",\n "properties": {"b": {}, "a": true} }'
    assert JSON.canonical(schema(text), normalize=False) == (
        '{"type":"object","properties":{"b":{},"a":true}}'
    )
    normal = '{"properties":{"a":true,"b":{}},"type":"object"}'
    assert JSON.canonical(schema(text), normalize=True) == normal
    assert JSON.identity(schema(text)) == JSON.identity(schema(normal))


@pytest.mark.parametrize(
    "text", ["", "7", "[]", '"x"', "null", '{"type":"strin"}', '{"required":"a"}', "[" * 9_000]
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        JSON.canonical(schema(text), normalize=False)


def test_the_draft_is_the_one_that_the_schema_names() -> None:
    limit = '"minimum": 1, "exclusiveMinimum": true'
    draft4 = '{"$schema": "http://json-schema.org/draft-04/schema#", ' + limit + "}"
    JSON.canonical(schema(draft4), normalize=False)
    with pytest.raises(InvalidSchema):
        JSON.canonical(schema("{" + limit + "}"), normalize=False)


def test_references() -> None:
    using = schema('{"$ref": "user.json"}', **{"user.json": '{"type": "string"}'})
    JSON.canonical(using, normalize=False)
    assert JSON.incompatibilities(reader=using, writer=schema('{"type": "string"}')) == []
    with pytest.raises(InvalidSchema, match=r"reference 'user\.json'"):
        JSON.canonical(schema("{}", **{"user.json": "[]"}), normalize=False)
    with pytest.raises(RegistryError, match="has none"):
        JSON.formatted(using, "resolved")


@pytest.mark.parametrize(
    "pattern", [r"^\p{L}+$", r"\P{Lu}", r"\p{Script=Greek}", r"(?<year>\d{4})", r"(?<=a)b", "[^]x"]
)
def test_patterns_are_those_of_ecma(pattern: str) -> None:
    for value in ({"type": "string", "pattern": pattern}, {"patternProperties": {pattern: True}}):
        schema = Resolved(Schema(Kind.JSON, json.dumps(value)))
        assert json.loads(JSON.canonical(schema, normalize=False)) == value


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "*"])
def test_what_no_language_reads_is_no_pattern(pattern: str) -> None:
    schema = Resolved(Schema(Kind.JSON, json.dumps({"type": "string", "pattern": pattern})))
    with pytest.raises(InvalidSchema, match="is not a 'regex'"):
        JSON.canonical(schema, normalize=False)
