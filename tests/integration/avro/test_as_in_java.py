"""Avro schemas are stored and compared as Avro's Java library prints and compares them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.core.schema import Kind, Resolved, Schema
from ops.schemas.kinds.avro_schemas import AvroLanguage
from tests.integration.avro import judge

AVRO = AvroLanguage()
SPACES = ("", "n", "n.m")
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PAIRS = 2_500


def resolved(value: Any) -> Resolved:
    return Resolved(Schema(Kind.AVRO, json.dumps(value)))


class Maker:
    """Schemas by chance, with names and what refers to them in all spellings."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.known: list[str] = []

    def schema(self, depth: int = 3, space: str = "") -> Any:
        kinds = ["primitive", "primitive", "named"]
        if depth:
            kinds += ["record", "enum", "fixed", "array", "map", "union"]
        kind = self.rng.choice(kinds)
        if kind == "named" and self.known:
            full = self.rng.choice(self.known)
            own, _, short = full.rpartition(".")
            return short if own == space and self.rng.random() < 0.5 and own else full
        if kind in ("primitive", "named"):
            word = self.rng.choice(PRIMITIVES)
            return self.rng.choice([word, word, {"type": word}, {"type": word, "note": 1}])
        if kind == "array":
            return {"type": "array", "items": self.schema(depth - 1, space)}
        if kind == "map":
            return {"type": "map", "values": self.schema(depth - 1, space)}
        if kind == "union":
            return self.rng.sample(PRIMITIVES, self.rng.randint(1, 3))
        return self.named(kind, depth, space)

    def named(self, kind: str, depth: int, space: str) -> dict[str, Any]:
        own = self.rng.choice((space, *SPACES))
        short = f"T{len(self.known)}"
        full = f"{own}.{short}" if own else short
        found: dict[str, Any] = {"type": kind, "name": short}
        if own and self.rng.random() < 0.4:
            found["name"] = full
            if self.rng.random() < 0.3:
                found["namespace"] = "elsewhere"
        elif own != space or self.rng.random() < 0.3:
            found["namespace"] = own
        self.known.append(full)
        if self.rng.random() < 0.4:
            found["aliases"] = self.rng.sample([f"A{len(self.known)}", "x.Y", "n.T0", "T1"], 2)
        if self.rng.random() < 0.3:
            found["doc"] = "d"
        if self.rng.random() < 0.2:
            found["made"] = {"by": [1, 2]}
        if kind == "enum":
            found["symbols"] = ["P", "Q", "R"][: self.rng.randint(1, 3)]
            if self.rng.random() < 0.3:
                found["default"] = "P"
        elif kind == "fixed":
            found["size"] = self.rng.randint(1, 3)
        else:
            found["fields"] = [self.field(n, depth, own) for n in range(self.rng.randint(0, 3))]
        items = list(found.items())
        self.rng.shuffle(items)
        return dict(items)

    def field(self, number: int, depth: int, space: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": f"f{number}", "type": self.schema(depth - 1, space)}
        if self.rng.random() < 0.3:
            found["order"] = self.rng.choice(["ascending", "descending", "ignore"])
        if self.rng.random() < 0.2:
            found["aliases"] = self.rng.choice([[], ["g"]])
        if self.rng.random() < 0.2:
            found["extra"] = True
        if found["type"] in ("int", "long") and self.rng.random() < 0.5:
            found["default"] = 7
        return found


def edited(value: Any, rng: random.Random) -> Any:
    """Change one thing in a schema."""
    value = json.loads(json.dumps(value))
    places = list(_places(value))
    if not places:
        return rng.choice([value, "string", ["null", value], "long"])
    place = rng.choice(places)
    match rng.randrange(7):
        case 0 if "fields" in place:
            place["fields"].append({"name": f"new{rng.randrange(9)}", "type": "int", "default": 1})
        case 1 if place.get("fields"):
            place["fields"].pop()
        case 2 if place.get("fields"):
            field = rng.choice(place["fields"])
            if isinstance(field["type"], str):
                field["type"] = rng.choice([*PRIMITIVES, ["null", field["type"]]])
                field.pop("default", None)
        case 3 if "name" in place:
            old = place["name"]
            place["name"] = f"{old}x"
            place["aliases"] = [rng.choice([old, f"n.{old}", f"n.m.{old}"])]
        case 4 if "symbols" in place:
            place["symbols"] = [*place["symbols"], "Z"]
        case 5 if "size" in place:
            place["size"] += 1
        case _ if "fields" in place:
            place["fields"].append({"name": "needed", "type": "string"})
    return value


def _places(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for one in value:
            yield from _places(one)
    elif isinstance(value, dict):
        if "name" in value and value.get("type") in ("record", "enum", "fixed"):
            yield value
        for field in value.get("fields", ()):
            yield from _places(field["type"])
        for key in ("items", "values"):
            yield from _places(value.get(key))


def ours(call: Any) -> str:
    try:
        return str(call())
    except InvalidSchema as error:
        return f"!{error}"


def differing(asked: Sequence[Any], found: Sequence[str], java: Sequence[str]) -> list[Any]:
    """Return what both could read and do not agree about."""
    return [
        row
        for row in zip(asked, found, java, strict=True)
        if row[1] != row[2] and not any(one.startswith("!") for one in row[1:])
    ]


def only_java_reads(asked: Sequence[Any], found: Sequence[str], java: Sequence[str]) -> list[Any]:
    rows = zip(asked, found, java, strict=True)
    return [row for row in rows if row[1].startswith("!") and not row[2].startswith("!")]


def test_schemas_are_printed_as_in_java() -> None:
    asked = [Maker(seed).schema() for seed in range(PAIRS)]
    java = judge.printed(asked)
    found = [ours(lambda one=one: AVRO.canonical(resolved(one), normalize=False)) for one in asked]
    assert differing(asked, found, java) == []
    assert sum(not one.startswith("!") for one in java) > PAIRS // 2
    assert only_java_reads(asked, found, java) == []


def test_compatibility_is_judged_as_in_java() -> None:
    rng = random.Random(1)
    pairs = []
    for seed in range(PAIRS):
        writer = Maker(seed).schema()
        pairs.append((edited(writer, rng), writer))
    java = judge.reads(pairs)

    def verdict(reader: Any, writer: Any) -> str:
        told = AVRO.incompatibilities(reader=resolved(reader), writer=resolved(writer))
        return "INCOMPATIBLE" if told else "COMPATIBLE"

    found = [ours(lambda pair=pair: verdict(*pair)) for pair in pairs]
    assert differing(pairs, found, java) == []
    assert only_java_reads(pairs, found, java) == []
    assert min(java.count("COMPATIBLE"), java.count("INCOMPATIBLE")) > PAIRS // 20
