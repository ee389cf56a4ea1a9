"""Comparing JSON schemas: sound for any two of them, and no stricter than people expect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st
from jsonschema.validators import Draft7Validator

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.kinds.json_containment import Containment, Documents


def differences(reader: Any, writer: Any, **named: Any) -> list[str]:
    return Containment(Documents(reader, named), Documents(writer, named)).differences()


NAMES = st.sampled_from("ab")
NUMBERS = st.sampled_from([0, 1, 2, 3, 1.5])
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "x", "xyz"]))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
COUNTS = st.integers(0, 3)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(LEAVES, min_size=1, max_size=3, unique_by=repr),
        "const": LEAVES,
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "exclusiveMinimum": NUMBERS,
        "exclusiveMaximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2]),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "pattern": st.sampled_from(["^x", "z$"]),
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "uniqueItems": st.booleans(),
        "items": inner | st.lists(inner, min_size=1, max_size=2),
        "additionalItems": inner,
        "contains": inner,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
        "additionalProperties": inner,
        "propertyNames": st.just({"pattern": "^a"}),
        "dependencies": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        "anyOf": st.lists(inner, min_size=1, max_size=3),
        "oneOf": st.lists(inner, min_size=1, max_size=3),
        "allOf": st.lists(inner, min_size=1, max_size=2),
        "not": inner,
        "if": inner,
        "then": inner,
    }
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({n: keywords[n] for n in names}))


SCHEMAS = st.recursive(st.booleans() | _schemas(st.just(True)), _schemas, max_leaves=6)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=5, max_size=20))
@example({"properties": {"a": True}, "patternProperties": {"^a": False}}, {}, [{"a": 1}])
def test_what_counts_as_compatible_accepts_all_that_was_accepted(
    reader: Any, writer: Any, values: list[Any]
) -> None:
    assume(not differences(reader, writer))
    was, now = Draft7Validator(writer), Draft7Validator(reader)
    try:
        accepted = [(was.is_valid(value), now.is_valid(value)) for value in values]
    except TypeError:  # jsonschema stumbles over `additionalItems` beside `items: true`
        reject()
    assert (True, False) not in accepted, (reader, writer, values)


@given(SCHEMAS)
def test_a_schema_is_compatible_with_itself(schema: Any) -> None:
    assert differences(schema, schema) == []


CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("change", "reader", "writer"),
    [
        ("everything", {}, CLOSED),
        ("optional property of a closed model",
         {**CLOSED, "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}, CLOSED),
        ("wider number", {"type": "number"}, {"type": "integer"}),
        ("one more type", {"type": ["string", "null"]}, {"type": "string"}),
        ("one more value", {"enum": [1, 2, 3]}, {"enum": [1, 2]}),
        ("no longer required", CLOSED, {**CLOSED, "required": ["a"]}),
        ("wider limits", {"minimum": 0, "maxLength": 9}, {"minimum": 1, "maxLength": 8}),
        ("one more of oneOf", {"oneOf": [{"type": "null"}, {"type": "string"}, {"type": "object"}]},
         {"oneOf": [{"type": "null"}, {"type": "string"}]}),
        ("title and description", {**CLOSED, "title": "x", "description": "y"}, CLOSED),
        ("a property less in an open model",
         {"type": "object"}, {"type": "object", "properties": {"a": {"type": "integer"}}}),
    ],
)  # fmt: skip
def test_what_people_may_change(change: str, reader: Any, writer: Any) -> None:
    assert differences(reader, writer) == [], change


@pytest.mark.parametrize(
    ("told", "reader", "writer"),
    [
        ("#/properties/a: is required now", {**CLOSED, "required": ["a"]}, CLOSED),
        ("#: type null is not accepted any more", {"type": "string"}, {"type": ["string", "null"]}),
        ("#: maxLength is 7, was 8", {"maxLength": 7}, {"maxLength": 8}),
        ("#/properties/a: is described now, and could be anything before",
         {"properties": {"a": {"type": "string"}}}, {"type": "object"}),
        ("#/properties/a: nothing is accepted any more",
         {"type": "object", "additionalProperties": False}, CLOSED),
        ("#: values of enum or const are gone", {"enum": [1]}, {"enum": [1, 2]}),
    ],
)  # fmt: skip
def test_what_is_told_of_a_difference(told: str, reader: Any, writer: Any) -> None:
    assert told in differences(reader, writer)


def test_schemas_that_refer_to_themselves_and_to_others() -> None:
    def tree(value: str) -> Any:
        node = {
            "type": "object",
            "properties": {"next": {"$ref": "#/definitions/node"}, "value": {"type": value}},
            "additionalProperties": False,
        }
        return {"$ref": "#/definitions/node", "definitions": {"node": node}}

    assert differences(tree("number"), tree("integer")) == []
    assert differences(tree("integer"), tree("number")) != []
    other = {"definitions": {"x": {"type": "string"}}}
    assert differences({"$ref": "other#/definitions/x"}, {"type": "string"}, other=other) == []
    assert differences({"$ref": "other#/definitions/x"}, {}, other=other) != []


def test_the_same_text_with_another_reference_is_compared() -> None:
    text = {"$ref": "other"}
    now, was = Documents(text, {"other": {"type": "string"}}), Documents(text, {"other": {}})
    assert Containment(now, was).differences() != []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "unknown"},
        {"$ref": "#"},
        {"$ref": "#/x", "x": {"$ref": "#/x"}},
    ],
)
def test_references_that_lead_nowhere(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        differences(schema, {"type": "string"})


def test_schemas_that_would_take_for_ever_are_refused() -> None:
    schema: Any = {"type": "string"}
    other: Any = {"type": ["string", "null"]}
    for _ in range(12):
        schema = {"anyOf": [schema, {**schema, "minLength": 1}, {"minLength": 2, **schema}]}
        other = {"anyOf": [other, {**other, "minLength": 1}, {"minLength": 2, **other}]}
    with pytest.raises(InvalidSchema, match="large"):
        differences(schema, other)
