"""Tells whether everything that one JSON schema accepts is accepted by another, and if not, why.

Structural, and on the safe side: what it cannot prove counts as a difference. So a `not`, a
`pattern` or a keyword that it does not know is accepted only where both schemas say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.kinds.language import DIFFERENCES_MAX

_STEPS_MAX: Final = 50_000
"""Pairs of schemas that one comparison looks at."""

_TYPES: Final = ("null", "boolean", "object", "array", "number", "string", "integer")

_LOWER_IS_WIDER: Final = {
    "minimum": "number",
    "exclusiveMinimum": "number",
    "minLength": "string",
    "minItems": "array",
    "minProperties": "object",
}
_HIGHER_IS_WIDER: Final = {
    "maximum": "number",
    "exclusiveMaximum": "number",
    "maxLength": "string",
    "maxItems": "array",
    "maxProperties": "object",
}
_LIMITS: Final = _LOWER_IS_WIDER | _HIGHER_IS_WIDER
"""Keyword -> the type that it limits."""
_SAME_OR_ABSENT: Final = {
    "pattern": "string",
    "multipleOf": "number",
    "uniqueItems": "array",
    "contains": "array",
    "minContains": "array",
    "maxContains": "array",
    "unevaluatedItems": "array",
    "propertyNames": "object",
    "patternProperties": "object",
    "dependencies": "object",
    "dependentRequired": "object",
    "dependentSchemas": "object",
    "unevaluatedProperties": "object",
    "not": "",
    "if": "",
    "then": "",
    "else": "",
}
"""Keyword -> the type that it restricts. One that the reader has is fine if the writer has the
same."""

_ANNOTATIONS: Final = frozenset(
    (
        *("title", "description", "default", "examples", "$comment", "$id", "$schema"),
        *("definitions", "$defs", "deprecated", "readOnly", "writeOnly", "format"),
        *("connect.type", "connect.index"),
    )
)
"""Keywords that restrict nothing."""


class Documents(NamedTuple):
    """A schema and those that it refers to, by the name that `$ref` calls them."""

    root: Any
    named: Mapping[str, Any]


class _Node(NamedTuple):
    """A schema inside its document."""

    value: Any
    document: Any


class Containment:
    """One comparison."""

    def __init__(self, reader: Documents, writer: Documents) -> None:
        self._reader = reader
        self._writer = writer
        self._has_same_names = reader.named == writer.named
        self._steps = 0
        self._under_way: set[tuple[int, int]] = set()

    def differences(self) -> list[str]:
        """Return where the writer accepts what the reader may not; empty if nowhere.

        Raises InvalidSchema for references that lead nowhere, and for schemas too large to compare.
        """
        reader = _Node(self._reader.root, self._reader.root)
        writer = _Node(self._writer.root, self._writer.root)
        try:
            found = self._compare(reader, writer, "#")
            return [text for text, _ in zip(found, range(DIFFERENCES_MAX), strict=False)]
        except RecursionError:
            raise InvalidSchema("nested too deeply") from None

    def _compare(self, reader: _Node, writer: _Node, at: str) -> Iterator[str]:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise InvalidSchema("the schemas are too large to be compared")
        if isinstance(reader.value, Mapping) and _restricts_beside_ref(reader.value):
            # Drafts before 2019-09 ignore what stands there; it counts, to be safe.
            beside = {key: value for key, value in reader.value.items() if key != "$ref"}
            yield from self._compare(_Node(beside, reader.document), writer, at)
        reader, writer = self._target(reader, self._reader), self._target(writer, self._writer)
        pair = (id(reader.value), id(writer.value))
        if reader.value in (True, {}) or writer.value is False or pair in self._under_way:
            return
        if reader.value is False:
            yield f"{at}: nothing is accepted any more"
            return
        self._under_way.add(pair)
        try:
            if writer.value is True:
                writer = _Node({}, writer.document)
            yield from self._objects(reader, writer, at)
        finally:
            self._under_way.discard(pair)

    def _objects(self, reader: _Node, writer: _Node, at: str) -> Iterator[str]:
        if self._has_same_names and (reader.value, reader.document) == (
            writer.value,
            writer.document,
        ):
            return
        for keyword in ("anyOf", "oneOf"):
            if keyword in writer.value:
                # Whatever the writer's value is, it is one of these, and all that stands beside.
                beside = {k: v for k, v in writer.value.items() if k != keyword}
                for n, branch in enumerate(writer.value[keyword]):
                    both = _Node(_merged(beside, branch), writer.document)
                    yield from self._compare(reader, both, f"{at}/{keyword}/{n}")
                return
        if "allOf" in writer.value:
            merged: Any = {k: v for k, v in writer.value.items() if k != "allOf"}
            for branch in writer.value["allOf"]:
                target = self._target(_Node(branch, writer.document), self._writer).value
                merged = _merged(merged, target)
            if merged is False:
                return
            writer = _Node(merged, writer.document)
        yield from self._alternatives(reader, writer, at)
        yield from self._values(reader.value, writer.value, at)
        yield from self._limits(reader.value, writer.value, at)
        if "object" in _types(writer.value):
            yield from self._properties(reader, writer, at)
        if "array" in _types(writer.value):
            yield from self._items(reader, writer, at)

    def _alternatives(self, reader: _Node, writer: _Node, at: str) -> Iterator[str]:
        for n, branch in enumerate(reader.value.get("allOf", ())):
            yield from self._compare(_Node(branch, reader.document), writer, f"{at}/allOf/{n}")
        if "anyOf" in reader.value:
            branches = [_Node(one, reader.document) for one in reader.value["anyOf"]]
            if not any(self._holds(one, writer, at) for one in branches):
                yield f"{at}: none of anyOf accepts all that was accepted"
        if "oneOf" in reader.value:
            branches = [_Node(one, reader.document) for one in reader.value["oneOf"]]
            fitting = [one for one in branches if self._holds(one, writer, at)]
            others = [one for one in branches if one not in fitting]
            if len(fitting) != 1 or not all(_disjoint(one.value, writer.value) for one in others):
                yield f"{at}: not exactly one of oneOf accepts all that was accepted"

    def _holds(self, reader: _Node, writer: _Node, at: str) -> bool:
        return next(self._compare(reader, writer, at), None) is None

    def _values(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], at: str
    ) -> Iterator[str]:
        ours, theirs = _values(reader), _values(writer)
        if theirs is not None:
            if ours is not None and not all(_is_in(value, ours) for value in theirs):
                yield f"{at}: values of enum or const are gone"
            types = {_type_of(value) for value in theirs}
        else:
            types = _types(writer)
            if ours is not None:
                yield f"{at}: only some values are accepted now"
        missing = {one for one in types if one not in _types(reader)}
        if missing:
            yield f"{at}: type {', '.join(sorted(missing))} is not accepted any more"

    def _limits(
        self, reader: Mapping[str, Any], writer: Mapping[str, Any], at: str
    ) -> Iterator[str]:
        types = _types(writer)
        for keyword, kind in _LIMITS.items():
            if keyword in reader and kind in types:
                now, was = reader[keyword], writer.get(keyword)
                if was is None and kind != "number" and keyword.startswith("min"):
                    was = 0
                if not _within(now, was, lower=keyword in _LOWER_IS_WIDER):
                    yield f"{at}: {keyword} is {now}, was {'none' if was is None else was}"
        for keyword, kind in _SAME_OR_ABSENT.items():
            if keyword in reader and (not kind or kind in types):
                is_off = keyword == "uniqueItems" and reader[keyword] is False
                if is_off or reader[keyword] == writer.get(keyword):
                    continue
                yield f"{at}: {keyword} differs"

    def _properties(self, reader: _Node, writer: _Node, at: str) -> Iterator[str]:
        ours, theirs = reader.value.get("properties", {}), writer.value.get("properties", {})
        required = _required(writer.value)
        for name in sorted(_required(reader.value) - required):
            yield f"{at}/properties/{name}: is required now"
        for name in sorted({*ours, *theirs}):
            place = f"{at}/properties/{name}"
            was = _of_property(writer, name)
            now = _of_property(reader, name)
            if name not in theirs and was.value is not False:
                was_open = next(self._compare(now, was, place), None)
                if was_open is not None:
                    yield f"{place}: is described now, and could be anything before"
                continue
            yield from self._compare(now, was, place)
        rest = _Node(reader.value.get("additionalProperties", True), reader.document)
        before = _Node(writer.value.get("additionalProperties", True), writer.document)
        yield from self._compare(rest, before, f"{at}/additionalProperties")

    def _items(self, reader: _Node, writer: _Node, at: str) -> Iterator[str]:
        ours, theirs = _item_list(reader), _item_list(writer)
        for n in range(max(len(ours.first), len(theirs.first))):
            yield from self._compare(ours.at(n), theirs.at(n), f"{at}/items/{n}")
        yield from self._compare(ours.rest, theirs.rest, f"{at}/items")

    @staticmethod
    def _target(node: _Node, documents: Documents) -> _Node:
        """Follow references. Raises InvalidSchema."""
        for _ in range(100):
            if not isinstance(node.value, Mapping) or "$ref" not in node.value:
                return node
            name, _, fragment = str(node.value["$ref"]).partition("#")
            document = node.document if not name else documents.named.get(name)
            if document is None:
                raise InvalidSchema(f"$ref {name!r} is not among the references")
            node = _Node(_inside(document, fragment), document)
        raise InvalidSchema("a $ref leads back to itself")


class _ItemList(NamedTuple):
    """What an array may hold: the first items one by one, then the rest."""

    first: Sequence[_Node]
    rest: _Node

    def at(self, n: int) -> _Node:
        return self.first[n] if n < len(self.first) else self.rest


def _item_list(node: _Node) -> _ItemList:
    """Read both spellings: `prefixItems` and `items`, or before 2020-12 a list of `items`."""
    value = node.value
    items = value.get("items", True)
    if isinstance(items, list):
        first, rest = items, value.get("additionalItems", True)
    else:
        first, rest = value.get("prefixItems", []), items
    nodes = [_Node(one, node.document) for one in first]
    return _ItemList(nodes, _Node(rest, node.document))


def _of_property(node: _Node, name: str) -> _Node:
    value = node.value.get("properties", {}).get(name)
    if value is None:
        value = node.value.get("additionalProperties", True)
    return _Node(value, node.document)


def _required(value: Mapping[str, Any]) -> set[str]:
    found = value.get("required", ())
    return set(found) if isinstance(found, list) else set()


def _types(value: Mapping[str, Any]) -> set[str]:
    """Return the types that are accepted; every integer is a number."""
    named = value.get("type", list(_TYPES))
    found = {named} if isinstance(named, str) else set(named)
    return found | {"integer"} if "number" in found else found


def _values(value: Mapping[str, Any]) -> Sequence[Any] | None:
    if "const" in value:
        return [value["const"]]
    found = value.get("enum")
    return found if isinstance(found, list) else None


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _is_in(value: Any, values: Iterable[Any]) -> bool:
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _within(now: Any, was: Any, *, lower: bool) -> bool:
    """Tell whether a limit is no narrower. Draft 4 has booleans as exclusive limits."""
    if isinstance(now, bool) or isinstance(was, bool):
        return now is False or now == was
    if was is None:
        return False
    return bool(now <= was) if lower else bool(now >= was)


def _disjoint(one: Any, other: Any) -> bool:
    """Tell whether certainly nothing is accepted by both."""
    if one is False or other is False:
        return True
    if not isinstance(one, Mapping) or not isinstance(other, Mapping) or "$ref" in one:
        return False
    ours, theirs = _values(one), _values(other)
    if ours is not None and theirs is not None:
        return not any(_is_in(value, ours) for value in theirs)
    return not (_types(one) & _types(other))


def _merged(beside: Any, branch: Any) -> Any:
    """Return a schema that accepts at least what both accept together."""
    if beside is False:
        return False
    if branch is True or branch == {}:
        return dict(beside)
    if branch is False or not beside:
        return branch
    merged = {**beside, **branch}
    if "properties" in beside and "properties" in branch:
        merged["properties"] = {**beside["properties"], **branch["properties"]}
    if "required" in beside and "required" in branch:
        merged["required"] = [*beside["required"], *branch["required"]]
    return merged


def _restricts_beside_ref(value: Mapping[str, Any]) -> bool:
    return "$ref" in value and bool(value.keys() - _ANNOTATIONS - {"$ref"})


def _inside(document: Any, fragment: str) -> Any:
    """Return what a JSON pointer points to. Raises InvalidSchema."""
    found = document
    for part in fragment.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise InvalidSchema(f"$ref #{fragment} points to nothing")
    return found
