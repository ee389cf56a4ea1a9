"""What JSON schemas that hold together say, one kind of fact at a time: types, values, bounds.

A conjunction is a list of `Flat`s: schemas without references and `allOf`, each reduced to the
keywords that its draft has, in one spelling for all drafts. All of them hold of an instance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, isfinite
from typing import Any, Final, NamedTuple

from ops.schemas.kinds.json_documents import DRAFT202012, Node

TYPES: Final = frozenset(("null", "boolean", "object", "array", "string", "integer", "fraction"))
"""JSON's types, and of numbers those that are integers apart from those that are none."""

LOWER_BOUNDS: Final = {
    "minimum": "number",
    "minLength": "string",
    "minItems": "array",
    "minProperties": "object",
}
UPPER_BOUNDS: Final = {
    "maximum": "number",
    "maxLength": "string",
    "maxItems": "array",
    "maxProperties": "object",
}


class Flat:
    """A schema without references and `allOf`."""

    def __init__(self, value: Mapping[str, Any], node: Node) -> None:
        self.value = value
        """Keyword -> what it says; of `const`, `dependencies`, lists of `items` and the booleans of
        draft 4 the newer spelling."""
        self.node = node
        """To which the schemas in it belong."""

    def children(self, keyword: str) -> list[Node]:
        """Return the schemas of a keyword that has a list."""
        return [self.node.child(one) for one in self.value.get(keyword, ())]

    def child(self, keyword: str) -> Node:
        """Return the schema of a keyword; true if it is not there."""
        return self.node.child(self.value.get(keyword, True))

    def named(self, keyword: str) -> dict[str, Node]:
        """Return the schemas of a keyword that has a mapping."""
        return {name: self.node.child(one) for name, one in self.value.get(keyword, {}).items()}


Conjunction = tuple[Flat, ...]


class Bound(NamedTuple):
    """The end of a range of numbers."""

    value: float
    is_exclusive: bool


def made(value: Mapping[str, Any]) -> Node:
    """Return a schema that no document has."""
    return Node(value, DRAFT202012)


def key_of(value: Any) -> Any:
    """Return what is equal for equal JSON values: 1 is 1.0, and is not true."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value), value)
    if isinstance(value, Mapping):
        return frozenset((name, key_of(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(map(key_of, value))
    return value


def type_of(value: Any) -> str:
    """Return one of `TYPES`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "fraction"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def named_types(value: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that the keyword `type` lets pass."""
    if "type" not in value:
        return TYPES
    named = value["type"]
    found = {named} if isinstance(named, str) else set(named)
    if "number" in found:
        found |= {"integer", "fraction"}
    return frozenset(found & TYPES)


def types_of(flats: Conjunction) -> frozenset[str]:
    """Return the types that a conjunction lets pass by `type` and `enum`."""
    found = TYPES
    for one in flats:
        found &= named_types(one.value)
    values = values_of(flats)
    return found if values is None else found & {type_of(value) for value in values}


def values_of(flats: Conjunction) -> list[Any] | None:
    """Return the only values that may pass, if they are few: those of `enum`, and of types that
    have no others; None: there are many."""
    lists = [one.value["enum"] for one in flats if isinstance(one.value.get("enum"), list)]
    named = TYPES
    for one in flats:
        named &= named_types(one.value)
    if not lists:
        if named <= {"null", "boolean"}:
            lists = [[value for value in (None, True, False) if type_of(value) in named]]
        else:
            return None
    keys = [set(map(key_of, one)) for one in lists[1:]]
    return [
        value
        for value in lists[0]
        if all(key_of(value) in one for one in keys) and type_of(value) in named
    ]


def lower(flats: Conjunction, keyword: str) -> Bound | None:
    """Return the highest of the lower bounds of a kind."""
    found = list(_bounds(flats, keyword, "exclusiveMinimum"))
    if keyword == "minProperties":
        found.append(Bound(len(required(flats)), is_exclusive=False))
    if not found:
        return None
    value, is_exclusive = max(found)
    if keyword == "minimum" and "fraction" not in types_of(flats) and isfinite(value):
        return Bound(floor(value) + 1 if is_exclusive else ceil(value), is_exclusive=False)
    return Bound(value, is_exclusive)


def upper(flats: Conjunction, keyword: str) -> Bound | None:
    """Return the lowest of the upper bounds of a kind."""
    found = list(_bounds(flats, keyword, "exclusiveMaximum"))
    if not found:
        return None
    value, is_exclusive = min(found, key=lambda one: (one.value, not one.is_exclusive))
    if keyword == "maximum" and "fraction" not in types_of(flats) and isfinite(value):
        return Bound(ceil(value) - 1 if is_exclusive else floor(value), is_exclusive=False)
    return Bound(value, is_exclusive)


def _bounds(flats: Conjunction, keyword: str, exclusive: str) -> Iterator[Bound]:
    for one in flats:
        if keyword in one.value:
            yield Bound(one.value[keyword], is_exclusive=False)
        if keyword in ("minimum", "maximum") and exclusive in one.value:
            yield Bound(one.value[exclusive], is_exclusive=True)


def required(flats: Conjunction) -> set[str]:
    """Return the properties that must be there, also because of others that must."""
    found = {name for one in flats for name in one.value.get("required", ())}
    while True:
        more = {
            name
            for one in flats
            for trigger, names in one.value.get("dependentRequired", {}).items()
            if trigger in found
            for name in names
        }
        if more <= found:
            return found
        found |= more


def is_multiple(of: Any, divisor: Any) -> bool:
    """Tell whether a number is a multiple of another, as decimals."""
    try:
        return (Fraction(str(of)) / Fraction(str(divisor))).denominator == 1
    except (ValueError, ZeroDivisionError):  # infinite
        return False


def matches(pattern: str, text: str) -> bool | None:
    """Tell whether a pattern of ECMA 262 is found in a text; None: Python may see it otherwise."""
    if not text.isascii() or "\n" in text or re.search(r"\\[pPuxckAZ]|\(\?<[^=!]|\[\^?\]", pattern):
        return None
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except (re.error, RecursionError):
        return None


def of_property(flat: Flat, name: str, *, is_reader: bool) -> list[Node]:
    """Return the schemas that hold of a property: of a reader's at least, of a writer's at most
    those that certainly do."""
    found: list[Node] = []
    is_named = name in flat.value.get("properties", {})
    if is_named:
        found.append(flat.node.child(flat.value["properties"][name]))
    is_rest = not is_named
    for pattern, node in flat.named("patternProperties").items():
        fits = matches(pattern, name)
        if fits or (fits is None and is_reader):
            found.append(node)
        if fits or (fits is None and not is_reader):
            is_rest = False
    if is_rest:
        found.append(flat.child("additionalProperties"))
    return found


def of_item(flat: Flat, index: int) -> Node:
    """Return the schema of an item."""
    first = flat.value.get("prefixItems", ())
    return flat.node.child(first[index]) if index < len(first) else flat.child("items")


def described(value: Any) -> dict[str, Any]:
    """Return a schema that says of one value what keywords can say of it."""
    found: dict[str, Any] = {"enum": [value]}
    match value:
        case str():
            found |= {"minLength": len(value), "maxLength": len(value)}
        case bool() | None:
            pass
        case int() | float():
            found |= {"minimum": value, "maximum": value}
        case list():
            found |= {"minItems": len(value), "maxItems": len(value), "items": False}
            found["prefixItems"] = [{"enum": [one]} for one in value]
        case _:
            found["properties"] = {name: {"enum": [one]} for name, one in value.items()}
            found |= {"required": sorted(value), "additionalProperties": False}
    return found


class Evaluated(NamedTuple):
    """What keywords beside `unevaluatedProperties` and `unevaluatedItems` look at."""

    names: set[str]
    patterns: set[str]
    first_items: int
    has_all_properties: bool
    has_all_items: bool


def evaluated(node: Node, *, surely: bool) -> Evaluated:
    """Return what is surely evaluated in any instance that passes, or what may be."""
    names: set[str] = set()
    patterns: set[str] = set()
    count, all_properties, all_items = 0, False, False
    waiting, seen = [(node, True)], {id(node.value)}
    while waiting:
        one, is_own = waiting.pop()
        value = one.value
        if not isinstance(value, Mapping):
            continue
        names |= set(value.get("properties", ()))
        patterns |= set(value.get("patternProperties", ()))
        count = max(count, len(_list_of_items(value)))
        all_properties |= "additionalProperties" in value
        all_properties |= not is_own and "unevaluatedProperties" in value
        all_items |= "additionalItems" in value or isinstance(value.get("items"), Mapping | bool)
        all_items |= not is_own and "unevaluatedItems" in value
        all_items |= not surely and "contains" in value
        inside = [one.child(sub) for sub in value.get("allOf", ())]
        if not surely:
            inside += [one.child(sub) for word in ("anyOf", "oneOf") for sub in value.get(word, ())]
            inside += [one.child(value[word]) for word in ("if", "then", "else") if word in value]
            inside += [one.child(sub) for sub in value.get("dependentSchemas", {}).values()]
        if value.keys() & {"$ref", "$dynamicRef", "$recursiveRef"}:
            target = one.target()
            inside += [] if target is None else [target]
            all_properties |= not surely and target is None
            all_items |= not surely and target is None
        for sub in inside:
            if id(sub.value) not in seen:
                seen.add(id(sub.value))
                waiting.append((sub, False))
    return Evaluated(names, patterns, count, all_properties, all_items)


def _list_of_items(value: Mapping[str, Any]) -> Sequence[Any]:
    items = value.get("items")
    found: Sequence[Any] = items if isinstance(items, list) else value.get("prefixItems", ())
    return found


def text_of(value: Any) -> str:
    """Return the same text for the same JSON."""
    return json.dumps(value, sort_keys=True)
