"""JSON Schema: documents what the admin API accepts, and checks what it receives.

A schema is the plain dictionary that appears in the OpenAPI document; `read` interprets the same
dictionary, so what is documented is what is checked. It knows only the keywords that the functions
here produce. `read` returns the value in its normal form (whole numbers as int, defaults filled in)
or says which fields are wrong and why.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

Schema = Mapping[str, Any]

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
LONG_MIN: Final = -(1 << 63)
ITEMS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 1_000
"""Longest name in a path or query."""
_FAULTS_MAX: Final = 100
"""No more are looked for."""
_SHOWN_CHARS_MAX: Final = 100
"""Of a name that we do not know."""
_REF: Final = "#/components/schemas/"
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class Fault(NamedTuple):
    """What is wrong with one field."""

    field: str
    """Its place, with dots and indexes: `records[2].key`."""
    message: str


# --- words for the table --------------------------------------------------------------------


def text(doc: str, **keywords: Any) -> Schema:
    """Text; `pattern`, `minLength`, `maxLength`, `enum`, `default` may be given."""
    return {"type": "string", "description": doc, **keywords}


def whole(doc: str, at_least: int = 0, at_most: int = LONG_MAX, **keywords: Any) -> Schema:
    """A whole number within bounds."""
    bounds = {"minimum": at_least, "maximum": at_most}
    return {"type": "integer", "description": doc, **bounds, **keywords}


def number(doc: str) -> Schema:
    """Any number; for answers."""
    return {"type": "number", "description": doc}


def truth(doc: str, **keywords: Any) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": doc, **keywords}


def list_of(items: Schema, doc: str, at_least: int = 0, at_most: int = ITEMS_MAX) -> Schema:
    """A list."""
    bounds = {"minItems": at_least, "maxItems": at_most}
    return {"type": "array", "description": doc, "items": items, **bounds}


def map_of(values: Schema, doc: str) -> Schema:
    """An object with keys that are no field names."""
    return {"type": "object", "description": doc, "additionalProperties": values}


def record(doc: str, fields: Mapping[str, Schema], optional: Sequence[str] = ()) -> Schema:
    """An object with these fields and no others; all but the optional ones are required."""
    return {
        "type": "object",
        "description": doc,
        "properties": dict(fields),
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema["type"]
    changed = {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
    if "enum" in schema:
        changed["enum"] = [*schema["enum"], None]
    return changed


def ref(name: str) -> Schema:
    """A schema of the document's components."""
    return {"$ref": _REF + name}


def page_of(items: Schema, doc: str) -> Schema:
    """One page of a list: its items, and where the next page starts."""
    return record(
        doc,
        {
            "items": list_of(items, "What was asked for, in order."),
            "next": nullable(text("Pass it as `after` to continue; null: this was the last page.")),
        },
    )


# --- checking -------------------------------------------------------------------------------


def read(schema: Schema, value: object, at: str, known: Mapping[str, Schema]) -> Any:
    """Return the value in its normal form. Raises `Faults`. `known`: the components by name."""
    reader = _Reader(known)
    result = reader.read(schema, value, at)
    if reader.faults:
        raise Faults(reader.faults)
    return result


def read_text(schema: Schema, words: Sequence[str], at: str) -> Any:
    """Read a path or query parameter, given as often as `words` has items. Raises `Faults`."""
    if schema["type"] == "array":
        value: object = [_typed(schema["items"], word) for word in words]
    elif len(words) > 1:
        raise Faults([Fault(at, f"is given {len(words)} times")])
    else:
        value = _typed(schema, words[0])
    return read(schema, value, at, {})


class Faults(Exception):
    """A value does not follow its schema."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{fault.field} {fault.message}" for fault in faults))
        self.faults = tuple(faults)


def _typed(schema: Schema, word: str) -> object:
    if schema["type"] == "integer" and _WHOLE.fullmatch(word):
        return int(word)
    if schema["type"] == "boolean" and word in ("true", "false"):
        return word == "true"
    return word


class _Reader:
    def __init__(self, known: Mapping[str, Schema]) -> None:
        self.faults: list[Fault] = []
        self._known = known

    def read(self, schema: Schema, value: object, at: str) -> Any:
        if len(self.faults) >= _FAULTS_MAX:
            return None  # more of them help nobody, and each of a million would cost something
        if "$ref" in schema:
            return self.read(self._known[schema["$ref"].removeprefix(_REF)], value, at)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        kind = _kind(value)
        if kind not in allowed and not (kind == "integer" and "number" in allowed):
            expected = " or ".join(_WORDS[name] for name in allowed)
            self._fault(at, f"must be {expected}")
            return None
        if "enum" in schema and value not in schema["enum"]:
            choices = ", ".join(str(choice) for choice in schema["enum"] if choice is not None)
            self._fault(at, f"must be one of {choices}")
        for problem in _bounds(schema, value):
            self._fault(at, problem)
        if isinstance(value, list) and "items" in schema:
            items = enumerate(value)
            return [self.read(schema["items"], item, f"{at}[{index}]") for index, item in items]
        if isinstance(value, dict):
            return self._object(schema, value, at)
        return value

    def _object(self, schema: Schema, value: Mapping[str, object], at: str) -> dict[str, Any]:
        prefix = f"{at}." if at else ""
        properties: Mapping[str, Schema] = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        found: dict[str, Any] = {}
        for name, item in value.items():
            if len(self.faults) >= _FAULTS_MAX:
                break
            if name in properties:
                found[name] = self.read(properties[name], item, prefix + name)
            elif isinstance(others, Mapping):
                found[name] = self.read(others, item, prefix + name)
            else:
                near = difflib.get_close_matches(name[:_SHOWN_CHARS_MAX], properties, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._fault(prefix + name[:_SHOWN_CHARS_MAX], f"is not known{hint}")
        for name in schema.get("required", ()):
            if name not in value:
                self._fault(prefix + name, "is missing")
        for name, item in properties.items():
            if name not in value and "default" in item:
                found[name] = item["default"]
        return found

    def _fault(self, at: str, message: str) -> None:
        self.faults.append(Fault(at or "body", message))


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((str, "string"), (int, "integer"), (float, "number"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _bounds(schema: Schema, value: object) -> Iterator[str]:
    """Yield what is wrong with the size of a value."""
    if isinstance(value, str):
        if _SURROGATE.search(value):
            yield "holds half a surrogate pair, which is no text"
        if len(value) < schema.get("minLength", 0):
            yield "must not be empty"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"has {len(value)} characters; at most {schema['maxLength']} are allowed"
        pattern = schema.get("pattern")
        if pattern is not None and not re.search(pattern, value):
            yield f"does not match {pattern}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"must be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"must be at most {schema['maximum']}"
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"needs at least {schema['minItems']} of them"
        if len(value) > schema.get("maxItems", len(value)):
            yield f"has {len(value)} of them; at most {schema['maxItems']} are allowed"
