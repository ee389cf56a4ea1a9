"""Pairs of JSON schemas, and a sampler: what the old one accepts is tried on the new one.

`random_pair` makes schemas of every keyword of a draft, and changes something in them. `edits` are
the changes that people make. An instance that only the old schema accepts proves that a pair is
incompatible; none found proves nothing.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from jsonschema.validators import (
    Draft4Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)

DRAFTS: Final = {
    "http://json-schema.org/draft-04/schema#": Draft4Validator,
    "http://json-schema.org/draft-07/schema#": Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": Draft202012Validator,
}
_SCALARS: Final = (
    *(None, True, False, 0, 1, 2, 3, 5, 10, -1, 1.0, 1.5, 2.5),
    *("", "a", "b", "x", "xyz", "ab", "z"),
)
_NAMES: Final = ("a", "b", "ab", "c", "t")
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_PATTERNS: Final = ("^a", "b$", "^x", "z")


class Sampler:
    """Instances by chance, more often of a kind that schemas speak of."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def value(self, depth: int = 3) -> Any:
        """Return any value."""
        kind = self.rng.random()
        if depth == 0 or kind < 0.4:
            return self.rng.choice(_SCALARS)
        if kind < 0.6:
            return [self.value(depth - 1) for _ in range(self.rng.randrange(4))]
        names = self.rng.sample(_NAMES, self.rng.randrange(4))
        return {name: self.value(depth - 1) for name in names}

    def like(self, schema: Any, root: Any, depth: int = 4) -> Any:
        """Return a value that a schema may accept."""
        rng = self.rng
        if depth == 0 or not isinstance(schema, dict) or rng.random() < 0.05:
            return self.value(1)
        if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#/"):
            target = root
            for part in schema["$ref"].split("/")[1:]:
                target = target.get(part, {}) if isinstance(target, dict) else {}
            return self.like(target, root, depth - 1)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return rng.choice(schema["enum"])
        inner = [one for word in ("anyOf", "oneOf", "allOf") for one in schema.get(word, ())]
        inner += [schema[word] for word in ("if", "then", "else") if word in schema]
        base = self._typed(schema, root, depth)
        if inner and rng.random() < 0.8:
            other = self.like(rng.choice(inner), root, depth - 1)
            if isinstance(base, dict) and isinstance(other, dict):
                return {**base, **other}
            return other if "type" not in schema or rng.random() < 0.5 else base
        return base

    def _typed(self, schema: Any, root: Any, depth: int) -> Any:
        rng, named = self.rng, schema.get("type")
        kind = rng.choice(named) if isinstance(named, list) else named
        if kind is None:
            words = set(schema)
            if words & {"properties", "required", "patternProperties", "additionalProperties"}:
                kind = "object"
            elif words & {"items", "prefixItems", "contains", "minItems", "maxItems"}:
                kind = "array"
            elif words & {"minimum", "maximum", "multipleOf", "exclusiveMinimum"}:
                kind = "number"
        if kind == "object" or (kind is None and rng.random() < 0.2):
            return self._object(schema, root, depth)
        if kind == "array":
            return self._array(schema, root, depth)
        if kind in ("integer", "number"):
            ends = [schema[word] for word in schema if "imum" in word and schema[word] is not True]
            base = rng.choice([*ends, 0, schema.get("multipleOf", 1)])
            step = rng.choice([0, 1, -1, 1, 2] + ([0.5, -0.5] if kind == "number" else []))
            return base + step
        if kind == "string":
            count = schema.get("minLength", 0) + rng.randrange(3)
            if rng.random() < 0.5:
                count = schema.get("maxLength", count)
            text = "".join(rng.choice("abxz") for _ in range(count))
            return rng.choice([text, *(one for one in _SCALARS if isinstance(one, str))])
        return {"null": None, "boolean": rng.random() < 0.5}.get(kind, self.value(1))

    def _object(self, schema: Any, root: Any, depth: int) -> Any:
        rng, found = self.rng, {}
        for name, one in schema.get("properties", {}).items():
            if name in schema.get("required", ()) or rng.random() < 0.6:
                found[name] = self.like(one, root, depth - 1)
        for name in schema.get("required", ()) if isinstance(schema.get("required"), list) else ():
            found.setdefault(name, self.value(1))
        if rng.random() < 0.5:
            name = rng.choice([*_NAMES, "zz"])
            rest = schema.get("additionalProperties", True)
            for pattern, one in schema.get("patternProperties", {}).items():
                rest = one if re.search(pattern, name) else rest
            found.setdefault(name, self.like(rest, root, depth - 1))
        return found

    def _array(self, schema: Any, root: Any, depth: int) -> Any:
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        count = schema.get("minItems", 0) + self.rng.randrange(3)
        found = [
            self.like(first[n] if n < len(first) else rest, root, depth - 1) for n in range(count)
        ]
        if count > 1 and self.rng.random() < 0.3:
            found[-1] = found[0]
        if found and "contains" in schema:
            found[self.rng.randrange(count)] = self.like(schema["contains"], root, depth - 1)
        return found


def counterexample(reader: Any, writer: Any, rng: random.Random, tries: int = 60) -> Any:
    """Return an instance, in a list, that only `writer` accepts; None: none was found."""
    sampler = Sampler(rng)
    now, was = validator(reader), validator(writer)
    for attempt in range(tries):
        schema = (writer, reader)[attempt % 3 == 2]
        value = sampler.like(schema, schema) if attempt % 4 else sampler.value()
        try:
            if was.is_valid(value) and not now.is_valid(value):
                return [value]
        except (RecursionError, TypeError):  # the library stumbles over schemas that lead back
            continue
    return None


def validator(schema: Any) -> Any:
    """Return the library's validator of a schema."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    return DRAFTS.get(str(named), Draft7Validator)(schema)


class Maker:
    """Schemas of one draft by chance."""

    def __init__(self, draft: str, rng: random.Random) -> None:
        self.draft = draft
        self.rng = rng
        self.has_const = "04" not in draft.rpartition("/draft")[2][:4]
        self.is_newer = "20" in draft
        self.is_newest = "2020" in draft
        self.refers = True

    def document(self) -> Any:
        """Return a whole schema."""
        found = self.schema(3)
        if not isinstance(found, dict):
            found = {"allOf": [found]} if self.has_const else {}
        word = "$defs" if self.is_newer else "definitions"
        self.refers = False  # what refers to itself at one place is no schema
        return {"$schema": self.draft, **found, word: {"D": self.schema(2), "E": self.schema(1)}}

    def schema(self, depth: int) -> Any:
        """Return a schema."""
        rng = self.rng
        if self.has_const and rng.random() < 0.08:
            return rng.random() < 0.7
        if depth == 0 or rng.random() < 0.15:
            return {"type": rng.choice(_TYPES)}
        found: dict[str, Any] = {}
        if rng.random() < 0.5:
            kinds = rng.sample(_TYPES, rng.randint(1, 2))
            found["type"] = kinds[0] if len(kinds) == 1 else kinds
        for word in rng.sample(self._words(), rng.randint(1, 3)):
            found[word] = self.said(word, depth - 1)
        return found

    def _words(self) -> list[str]:
        words = [
            *("enum", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern"),
            *("items", "minItems", "maxItems", "uniqueItems", "required", "properties"),
            *("patternProperties", "additionalProperties", "minProperties", "maxProperties"),
            *("anyOf", "oneOf", "allOf", "not", "$ref", "properties", "properties"),
        ]
        if self.has_const:
            words += ["const", "contains", "propertyNames", "if", "then", "else"]
            words += ["exclusiveMinimum", "exclusiveMaximum"]
        if self.is_newer:
            words += ["dependentRequired", "dependentSchemas", "minContains", "maxContains"]
            words += ["unevaluatedProperties", "unevaluatedItems"]
        else:
            words += ["dependencies"]
        words.append("prefixItems" if self.is_newest else "additionalItems")
        return words if self.refers else [word for word in words if word != "$ref"]

    def said(self, word: str, depth: int) -> Any:  # noqa: C901  (a table)
        """Return what a keyword says."""
        rng = self.rng
        match word:
            case "enum":
                return list(rng.sample([None, 0, 2, 3, 1.5, "a", "x", "xyz", [1], {"a": 1}], 2))
            case "const":
                return rng.choice([None, True, 1, 2, "a", "x", [], {"a": 1}])
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                return rng.choice([0, 1, 2, 3, 1.5])
            case "multipleOf":
                return rng.choice([1, 2, 0.5, 4])
            case "pattern":
                return rng.choice(_PATTERNS)
            case "uniqueItems":
                return rng.random() < 0.8
            case "required":
                return rng.sample(_NAMES, rng.randint(1, 2))
            case "properties" | "dependentSchemas":
                names = rng.sample(_NAMES, rng.randint(1, 2))
                return {name: self.schema(depth) for name in names}
            case "patternProperties":
                return {rng.choice(_PATTERNS): self.schema(depth)}
            case "dependentRequired":
                return {rng.choice(_NAMES): rng.sample(_NAMES, 1)}
            case "dependencies":
                value = rng.sample(_NAMES, 1) if rng.random() < 0.5 else self.schema(depth)
                return {rng.choice(_NAMES): value}
            case "anyOf" | "oneOf" | "allOf" | "prefixItems":
                return [self.schema(depth) for _ in range(rng.randint(1, 2))]
            case "items" if not self.is_newest and rng.random() < 0.4:
                return [self.schema(depth) for _ in range(rng.randint(1, 2))]
            case "propertyNames":
                return {"pattern": rng.choice(_PATTERNS)}
            case "$ref":
                return f"#/{'$defs' if self.is_newer else 'definitions'}/{rng.choice('DE')}"
            case _ if word.startswith(("min", "max")):
                return rng.randrange(4)
        if not self.has_const and word in ("additionalProperties", "additionalItems"):
            return rng.choice([True, False, self.schema(depth)])
        return self.schema(depth)


def random_pair(seed: int) -> tuple[Any, Any]:
    """Return reader and writer: one schema with something changed in it, or two."""
    rng = random.Random(seed)
    maker = Maker(rng.choice(list(DRAFTS)), rng)
    writer = maker.document()
    if rng.random() < 0.15:
        return Maker(maker.draft, rng).document(), writer
    reader = copy.deepcopy(writer)
    for _ in range(rng.randint(1, 2)):
        places = list(_places(reader))
        place = rng.choice(places)
        word = rng.choice(sorted(set(place) - {"$schema", "$defs", "definitions"}) or ["type"])
        if rng.random() < 0.4 and len(place) > 1:
            place.pop(word, None)
        elif word in place and word != "type":
            place[word] = maker.said(word, 1)
        else:
            new = rng.choice(maker._words())
            place[new] = maker.said(new, 1)
    return (reader, writer) if rng.random() < 0.5 else (writer, reader)


def _places(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas in a schema."""
    if not isinstance(value, dict):
        return
    yield value
    for word, inner in value.items():
        if word in ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas"):
            for one in inner.values():
                yield from _places(one)
        elif isinstance(inner, list) and word in (
            "anyOf",
            "oneOf",
            "allOf",
            "prefixItems",
            "items",
        ):
            for one in inner:
                yield from _places(one)
        elif isinstance(inner, dict) and word not in ("const", "dependencies", "dependentRequired"):
            yield from _places(inner)


class Edit(NamedTuple):
    """A change that people make."""

    what: str
    reader: Any
    writer: Any


_PERSON: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 80},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 9},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["name"],
}
_CLOSED: Final = {**_PERSON, "additionalProperties": False}


def _tagged(tag: str, *, closed: bool, **more: Any) -> dict[str, Any]:
    found = {
        "type": "object",
        "title": f"of {tag}",
        "properties": {"t": {"const": tag}, "x": {"type": "integer"}, **more},
        "required": ["t"],
    }
    return {**found, "additionalProperties": False} if closed else found


def _by_enum(one: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(one)
    found["properties"]["t"] = {"type": "string", "enum": [found["properties"]["t"]["const"]]}
    return found


def _placed(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield a schema at the places where people have it."""
    yield "alone", schema
    yield "in a field", {**_CLOSED, "properties": {**_CLOSED["properties"], "event": schema}}
    yield "in items", {"type": "array", "items": schema}
    yield "by $ref", {"$ref": "#/definitions/E", "definitions": {"E": schema}}
    yield "in a map", {"type": "object", "additionalProperties": schema}
    yield "or null", {"anyOf": [{"type": "null"}, schema]}
    yield "in allOf", {"allOf": [{"type": ["object", "array", "string", "number"]}, schema]}


def _object_edits(base: dict[str, Any], *, closed: bool) -> Iterator[tuple[str, Any, Any]]:
    fields = base["properties"]

    def having(**changed: Any) -> dict[str, Any]:
        made = {**base, "properties": {**fields, **changed}}
        made["properties"] = {name: one for name, one in made["properties"].items() if one}
        return made

    if closed:
        yield "optional field added", having(city={"type": "string"}), base
        yield "nested field added", having(at={**_CLOSED}), base
    else:
        yield "optional field dropped", having(age=None), base
    yield "title and description", {**base, "title": "T", "description": "D"}, base
    yield (
        "field described",
        having(name={**fields["name"], "description": "N", "examples": ["x"]}),
        base,
    )
    yield "no longer required", {**base, "required": []}, base
    yield "field may be null", having(name={"type": ["string", "null"], "maxLength": 80}), base
    yield (
        "field may be null, by anyOf",
        having(name={"anyOf": [fields["name"], {"type": "null"}]}),
        base,
    )
    yield (
        "field may be null, by oneOf",
        having(name={"oneOf": [{"type": "null"}, fields["name"]]}),
        base,
    )
    yield "integer to number", having(age={**fields["age"], "type": "number"}), base
    yield "limit wider", having(name={"type": "string", "maxLength": 200}), base
    yield "limit dropped", having(name={"type": "string"}), base
    yield "range wider", having(age={"type": "integer", "minimum": -1, "maximum": 200}), base
    yield "value added", having(kind={"enum": ["a", "b", "c"]}), base
    yield "enum to string", having(kind={"type": "string"}), base
    yield "enum reordered", having(kind={"enum": ["b", "a"]}), base
    yield "more items", having(tags={"type": "array", "items": {"type": "string"}}), base
    yield (
        "items wider",
        having(tags={**fields["tags"], "items": {"type": ["string", "null"]}}),
        base,
    )
    yield (
        "opened",
        {word: one for word, one in base.items() if word != "additionalProperties"},
        base,
    )
    moved = {**base, "properties": {**fields, "name": {"$ref": "#/definitions/n"}}}
    yield "moved to definitions", {**moved, "definitions": {"n": fields["name"]}}, base
    # narrowed
    yield "required added", {**base, "required": ["name", "age"]}, base
    yield "limit narrower", having(name={"type": "string", "maxLength": 7}), base
    yield "range narrower", having(age={"type": "integer", "minimum": 18, "maximum": 150}), base
    yield "type changed", having(name={"type": "integer"}), base
    yield "value removed", having(kind={"enum": ["a"]}), base
    if not closed:
        yield "closed", {**base, "additionalProperties": False}, base


def _choice_edits(word: str, *, closed: bool, enums: bool) -> Iterator[tuple[str, Any, Any]]:
    a, b, c = (_tagged(tag, closed=closed) for tag in "abc")
    if enums:
        a, b, c = map(_by_enum, (a, b, c))
    wide = copy.deepcopy(a)
    wide["properties"]["more"] = {"type": "string"}
    titled = {**a, "title": "another", "description": "d"}
    yield "branches swapped", {word: [b, a]}, {word: [a, b]}
    yield "branch added behind", {word: [a, b, c]}, {word: [a, b]}
    yield "branch added before", {word: [c, a, b]}, {word: [a, b]}
    yield "branch titled", {word: [titled, b]}, {word: [a, b]}
    yield "choice titled", {word: [a, b], "title": "x"}, {word: [a, b]}
    yield "branch's field wider", {word: [_wider(a), b]}, {word: [a, b]}
    yield "one becomes two", {word: [a, b]}, a
    yield "branch removed", {word: [a]}, {word: [a, b]}
    if closed:
        yield "branch's field added", {word: [wide, b]}, {word: [a, b]}


def _wider(branch: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(branch)
    found["properties"]["x"] = {"type": "number"}
    return found


STRING: Final = {"type": "string"}
NULL: Final = {"type": "null"}
INTEGER: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}
TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_OTHERS: Final = (
    ("types to anyOf", {"anyOf": [STRING, NULL]}, TEXT_OR_NULL),
    ("types to oneOf", {"oneOf": [NULL, STRING]}, TEXT_OR_NULL),
    ("anyOf to types", TEXT_OR_NULL, {"anyOf": [STRING, NULL]}),
    ("not narrowed", {"not": {"const": 1}}, {"not": {"enum": [1, 2]}}),
    ("multiple of less", {"type": "integer", "multipleOf": 2},
     {"type": "integer", "multipleOf": 4}),
    ("pattern dropped", STRING, {"type": "string", "pattern": "^a"}),
    ("const to enum", {"enum": [1, 2]}, {"const": 1}),
    ("pattern's properties wider", {"patternProperties": {"^x": NUMBER}},
     {"patternProperties": {"^x": INTEGER}}),
    ("names longer", {"propertyNames": {"maxLength": 9}}, {"propertyNames": {"maxLength": 8}}),
    ("contains wider", {"type": "array", "contains": NUMBER},
     {"type": "array", "contains": INTEGER}),
    ("dependency dropped", {"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["b", "c"]}}),
    ("dependency's schema wider",
     {"dependencies": {"a": {"properties": {"b": NUMBER}}}},
     {"dependencies": {"a": {"properties": {"b": INTEGER}}}}),
    ("tuple longer", {"type": "array", "items": [STRING, NUMBER]},
     {"type": "array", "items": [STRING, INTEGER]}),
    ("if and then wider", {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
     {"if": {"required": ["a"]}, "then": {"required": ["b", "c"]}}),
    ("bounds may be equal", {"type": "number", "minimum": 1},
     {"type": "number", "exclusiveMinimum": 1}),
    ("pattern added", {"type": "string", "pattern": "^a"}, STRING),
    ("unique now", {"type": "array", "uniqueItems": True}, {"type": "array"}),
)  # fmt: skip
_NODE: Final = {
    "type": "object",
    "properties": {
        "v": STRING, "next": {"oneOf": [NULL, {"$ref": "#/definitions/N"}]},
    },
    "additionalProperties": False,
}  # fmt: skip


def edits() -> Iterator[Edit]:
    """Yield the changes that people make, at the places where they make them."""
    found: list[tuple[str, Any, Any]] = []
    found += [(f"closed: {one[0]}", *one[1:]) for one in _object_edits(_CLOSED, closed=True)]
    found += [(f"open: {one[0]}", *one[1:]) for one in _object_edits(_PERSON, closed=False)]
    for word in ("oneOf", "anyOf"):
        for closed in (True, False):
            for enums in (True, False):
                some = _choice_edits(word, closed=closed, enums=enums)
                found += [(f"{word} {closed=} {enums=}: {one[0]}", *one[1:]) for one in some]
    found += _OTHERS
    for what, reader, writer in found:
        if "definitions" in reader:
            yield Edit(what, reader, writer)
            continue
        for (place, now), (_, was) in zip(_placed(reader), _placed(writer), strict=True):
            yield Edit(f"{what}, {place}", now, was)
    more = {**_NODE, "properties": {**_NODE["properties"], "w": {"type": "integer"}}}
    yield Edit(
        "field in what contains itself",
        {"$ref": "#/definitions/N", "definitions": {"N": more}},
        {"$ref": "#/definitions/N", "definitions": {"N": _NODE}},
    )
    newest = "https://json-schema.org/draft/2020-12/schema"
    beside = {
        "$schema": newest,
        "$ref": "#/$defs/A",
        "minLength": 2,
        "$defs": {"A": {"type": "string"}},
    }
    yield Edit("titled, keywords beside $ref", {**beside, "title": "t"}, beside)
    base = {"type": "object", "properties": {"a": {"type": "string"}}}
    sealed = {
        "$schema": newest, "allOf": [{"$ref": "#/$defs/B"}], "properties": {"b": INTEGER},
        "unevaluatedProperties": False, "$defs": {"B": base},
    }  # fmt: skip
    yield Edit("titled, unevaluatedProperties", {**sealed, "title": "t"}, sealed)
    added = {**sealed, "properties": {**sealed["properties"], "c": {"type": "string"}}}
    yield Edit("field added, unevaluatedProperties", added, sealed)
    yield Edit(
        "2020-12 from draft 7",
        {"$schema": newest, "type": "array", "prefixItems": [{"type": "string"}], "items": False},
        {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
    )
