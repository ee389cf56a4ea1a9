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


SUB = {"type": "record", "name": "Sub", "fields": [{"name": "c", "type": "string"}]}


def of(space: str, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "X", "namespace": space, "fields": [], **more}


SPELLINGS: list[tuple[Any, Any]] = [
    ({"type": "record", "name": "a.b.X", "fields": []}, of("a.b")),
    ({"type": "enum", "name": "a.E", "symbols": ["S"]},
     {"type": "enum", "name": "E", "namespace": "a", "symbols": ["S"]}),
    ({"type": "fixed", "name": "a.F", "size": 2},
     {"type": "fixed", "name": "F", "namespace": "a", "size": 2}),
    (of("a", fields=[{"name": "s", "type": {**SUB, "namespace": "a"}}]),
     of("a", fields=[{"name": "s", "type": SUB}])),
    (of("a", fields=[{"name": "s", "type": {**SUB, "name": "z.Sub"}}]),
     of("a", fields=[{"name": "s", "type": {**SUB, "namespace": "z"}}])),
    (of("other", name="a.X"), of("a")),
    ({"type": "string"}, '"string"'),
    ({"type": "array", "items": {"type": "int"}}, {"type": "array", "items": "int"}),
    ([{"type": "null"}, "int"], ["null", "int"]),
    (of("a", fields=[{"name": "s", "type": SUB}, {"name": "t", "type": "a.Sub"}]),
     of("a", fields=[{"name": "s", "type": SUB}, {"name": "t", "type": "Sub"}])),
    (of("a", aliases=["Old"]), of("a", aliases=["a.Old"])),
    (of("a", aliases=[]), of("a")),
    ({**of(""), "name": "X"}, {"type": "record", "name": "X", "fields": []}),
    (record({**A, "order": "ascending"}), record(A)),
    (record({**A, "aliases": []}), record(A)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_a_schema_written_in_another_way_is_the_same(one: Any, other: Any) -> None:
    assert AVRO.canonical(avro(one), normalize=False) == AVRO.canonical(
        avro(other), normalize=False
    )
    assert AVRO.identity(avro(one)) == AVRO.identity(avro(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (record(A), {**record(A), "doc": "d"}),
        (record(A), record({**A, "default": 1})),
        (record(A), {**record(A), "aliases": ["Old"]}),
        (record(A, B), record(B, A)),
        (["int", "string"], ["string", "int"]),
        (of("a"), of("b")),
        (record(A), record({**A, "order": "ignore"})),
        ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4}),
        (of("a"), of("a", made="by hand")),
    ],
)
def test_what_is_another_schema(one: Any, other: Any) -> None:
    assert AVRO.identity(avro(one)) != AVRO.identity(avro(other))


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [], **more}


@pytest.mark.parametrize(
    ("reader", "writer", "fits"),
    [
        (named("n.Y", aliases=["X"]), named("n.X"), True),
        (named("n.Y", aliases=["n.X"]), named("n.X"), True),
        (named("Y", namespace="n", aliases=["X"]), named("n.X"), True),
        (named("n.Y", aliases=["X"]), named("X"), False),
        (named("E", type="error"), named("E", type="error"), True),
        (named("E", type="error"), named("F", type="error"), False),
    ],
)
def test_aliases_are_full_names_and_errors_are_records(
    reader: Any, writer: Any, *, fits: bool
) -> None:
    found = AVRO.incompatibilities(reader=avro(reader), writer=avro(writer))
    assert (found == ()) is fits, found


DEFAULTS: list[tuple[Any, Any, bool]] = [
    ("boolean", 3, False), ("boolean", True, True), ("string", None, False), ("string", "", True),
    ("int", "1", False), ("int", 1.5, False), ("int", 2**31, False), ("int", -(2**31), True),
    ("int", True, False), ("long", 2**40, True), ("long", 2**63, False), ("float", 1, True),
    ("double", "1", False), ("bytes", "\u00ff", True), ("bytes", 1, False), ("null", None, True),
    ("null", 0, False), (["null", "int"], None, True), (["null", "int"], 1, True),
    (["null", "int"], "a", False), ({"type": "array", "items": "int"}, {}, False),
    ({"type": "array", "items": "int"}, [1, "a"], False),
    ({"type": "array", "items": "int"}, [1], True),
    ({"type": "map", "values": "int"}, [], False),
    ({"type": "map", "values": "int"}, {"a": 1}, True),
    (SUB, {}, False), (SUB, {"c": 1}, False), (SUB, {"c": ""}, True), (SUB, "a", False),
    ({"type": "enum", "name": "E", "symbols": ["S"]}, "T", True),
    ({"type": "fixed", "name": "F", "size": 2}, "a", True),
    ({"type": "int", "logicalType": "date"}, "a", False),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "default", "fits"), DEFAULTS)
def test_a_new_default_is_of_its_fields_type(kind: Any, default: Any, *, fits: bool) -> None:
    schema = avro(record({"name": "a", "type": kind, "default": default}))
    AVRO.canonical(schema, normalize=False)
    if fits:
        AVRO.check_new(schema)
    else:
        with pytest.raises(InvalidSchema, match="of field a of User is no"):
            AVRO.check_new(schema)


@pytest.mark.parametrize("name", ["a-b", "1a", "a.b", "a b", "a$", "é", "a\n"])
def test_names_that_no_jvm_reads_are_not_registered(name: str) -> None:
    inner = named("Inner", fields=[{**A, "name": name}])
    for schema in (
        record({"name": name, "type": "int"}),
        record({**A, "aliases": [name]}),
        record({"name": "s", "type": ["null", {"type": "array", "items": inner}]}),
    ):
        with pytest.raises(InvalidSchema, match="no name for a field"):
            AVRO.check_new(avro(schema))


def test_what_is_stored_may_have_names_that_are_no_longer_registered() -> None:
    """Debezium's connectors named namespaces after servers, with hyphens; Avro took them."""
    old, new = of("my-server.inventory"), of("my-server.inventory", fields=[{**A, "default": 1}])
    text = AVRO.canonical(avro(old), normalize=False)
    assert text == '{"type":"record","name":"X","namespace":"my-server.inventory","fields":[]}'
    assert AVRO.incompatibilities(reader=avro(new), writer=avro(old)) == ()
    assert json.loads(AVRO.formatted(avro(old), "resolved"))["name"] == "X"
    with pytest.raises(InvalidSchema, match="my-server"):
        AVRO.check_new(avro(old))


def test_a_union_has_a_type_once() -> None:
    for union in (
        [record(A), "User"],
        ["int", {"type": "int"}],
        [{"type": "map", "values": "int"}, {"type": "map", "values": "long"}],
    ):
        with pytest.raises(InvalidSchema):
            AVRO.check_new(avro(union))
    AVRO.check_new(avro([record(A), "null"]))


def test_what_is_not_json_is_no_schema() -> None:
    with pytest.raises(InvalidSchema, match="NaN is no number"):
        AVRO.canonical(
            avro(
                '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":NaN}]}'
            ),
            normalize=False,
        )
