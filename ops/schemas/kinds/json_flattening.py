"""Schemas as conjunctions: references followed, `allOf` taken apart, in the newest spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ops.schemas.kinds.json_documents import Node
from ops.schemas.kinds.json_facts import Conjunction, Flat, evaluated, key_of, made, text_of

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SCHEMA: Final = frozenset(
    (
        *("not", "if", "then", "else", "items", "contains", "additionalProperties"),
        *("propertyNames", "unevaluatedItems", "unevaluatedProperties"),
    )
)
_SCHEMAS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED_SCHEMAS: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))


class Flattening:
    """Makes `Flat`s; the same one for the same schema, so that its identity says which it is."""

    def __init__(self) -> None:
        self._flats: dict[tuple[int, bool], tuple[Node, Conjunction | None]] = {}
        """By the identity of a schema, and for whom. The node keeps the identity taken."""
        self._made: dict[str, Node] = {}
        self._without: dict[tuple[int, str], Flat] = {}
        self._negated: dict[int, Flat] = {}
        self._same: dict[tuple[int, int], bool] = {}
        self._normal: dict[int, tuple[Node, Mapping[str, Any]]] = {}
        self._kept: list[object] = []
        """Whose identity is a key."""

    def flat(self, node: Node, *, is_reader: bool) -> Conjunction | None:
        """Return what holds together of an instance that passes; None: nothing passes.

        For a reader at least that, for a writer at most.
        """
        if node.value is True:
            return ()
        if node.value is False:
            return None
        key = id(node.value), is_reader
        if key not in self._flats:
            self._flats[key] = node, self._flatten(node, is_reader=is_reader)
        return self._flats[key][1]

    def all_flat(self, nodes: Sequence[Node], *, is_reader: bool) -> Conjunction | None:
        """Return the same for several schemas that hold together."""
        found: dict[int, Flat] = {}
        for node in nodes:
            some = self.flat(node, is_reader=is_reader)
            if some is None:
                return None
            found |= {id(one): one for one in some}
        return tuple(found.values())

    def made(self, value: Mapping[str, Any]) -> Node:
        """Return a schema that no document has, the same one for the same content."""
        return self._made.setdefault(text_of(value), made(value))

    def without(self, flat: Flat, keyword: str) -> Flat:
        """Return a schema without a keyword."""
        key = id(flat), keyword
        if key not in self._without:
            rest = {name: value for name, value in flat.value.items() if name != keyword}
            self._without[key] = Flat(rest, flat.node)
        return self._without[key]

    def negated_condition(self, flat: Flat) -> Flat:
        """Return what holds where the `if` of a schema does not."""
        return self._negated.setdefault(id(flat), Flat({"not": flat.value["if"]}, flat.node))

    def is_same(self, one: Flat, other: Flat) -> bool:
        """Tell whether two schemas say the same in the same words, also where references lead."""
        return self._is_same(one.value, other.value, one.node, other.node)

    def _is_same(
        self, one: Mapping[str, Any], other: Mapping[str, Any], node: Node, other_node: Node
    ) -> bool:
        if one.keys() != other.keys() or node.dialect is not other_node.dialect:
            return False
        key = id(one), id(other)
        if key not in self._same:
            self._kept += (one, other)
            self._same[key] = True  # so it is if all the rest is
            self._same[key] = all(
                self._says_same(word, one[word], other[word], node, other_node) for word in one
            )
        return self._same[key]

    def _says_same(self, word: str, one: Any, other: Any, node: Node, other_node: Node) -> bool:
        if word in REFERENCES:
            ours = node._replace(value={word: one}).target()
            theirs = other_node._replace(value={word: other}).target()
            return ours is not None and theirs is not None and self._are_same(ours, theirs)
        if word in _SCHEMA:
            return self._are_same(node.child(one), other_node.child(other))
        if word in _SCHEMAS and len(one) == len(other):
            return all(
                self._are_same(node.child(a), other_node.child(b))
                for a, b in zip(one, other, strict=True)
            )
        if word in _NAMED_SCHEMAS and one.keys() == other.keys():
            return all(
                self._are_same(node.child(one[name]), other_node.child(other[name])) for name in one
            )
        return bool(key_of(one) == key_of(other))

    def _are_same(self, one: Node, other: Node) -> bool:
        if isinstance(one.value, bool) or isinstance(other.value, bool):
            return one.value is other.value
        pair = []
        for node in (one, other):
            if id(node.value) not in self._normal:
                self._normal[id(node.value)] = node, _normal(node)
            pair.append(self._normal[id(node.value)][1])
        return self._is_same(pair[0], pair[1], one, other)

    def _flatten(self, node: Node, *, is_reader: bool) -> Conjunction | None:
        flats: list[Flat] = []
        waiting, seen = [node], {id(node.value)}
        while waiting:
            one = waiting.pop(0)
            if one.value is False:
                return None
            if one.value is True:
                continue
            value = _normal(one)
            more = [one.child(sub) for sub in value.pop("allOf", ())]
            for word in REFERENCES:
                if value.pop(word, None) is not None:
                    target = one.target()
                    if target is not None:
                        more.append(target)
                    elif is_reader:
                        value[word] = one.value[word]  # nothing is known to pass it
            for sub in more:  # a schema that leads back to itself says nothing more
                if id(sub.value) not in seen:
                    seen.add(id(sub.value))
                    waiting.append(sub)
            flats += self._unevaluated(one, value, is_reader=is_reader)
            if value:
                flats.append(Flat(value, one))
        return tuple(flats)

    def _unevaluated(self, node: Node, value: dict[str, Any], *, is_reader: bool) -> list[Flat]:
        """Take the keywords about what is not evaluated out, and say them as the ones about what is
        not named: exactly, or more for a reader and less for a writer."""
        found: list[Flat] = []
        properties = value.pop("unevaluatedProperties", True)
        items = value.pop("unevaluatedItems", True)
        if properties is True and items is True:
            return found
        seen = evaluated(node, surely=is_reader)
        if properties is not True and not seen.has_all_properties:
            some = {
                "properties": dict.fromkeys(sorted(seen.names), True),
                "patternProperties": dict.fromkeys(sorted(seen.patterns), True),
                "additionalProperties": properties,
            }
            found.append(Flat(some, node))
        if items is not True and not seen.has_all_items:
            found.append(Flat({"prefixItems": [True] * seen.first_items, "items": items}, node))
        return found


def _normal(node: Node) -> dict[str, Any]:
    """Return the keywords of a schema that its draft has, in the newest spelling."""
    given, dialect = node.value, node.dialect
    if "$ref" in given and not dialect.reads_beside_ref:
        return {"$ref": given["$ref"]}
    value = {word: one for word, one in given.items() if word in dialect.keywords}
    if "const" in value:
        const = value.pop("const")
        if "enum" in value:
            value["allOf"] = [*value.get("allOf", ()), {"enum": [const]}]
        else:
            value["enum"] = [const]
    if isinstance(value.get("items"), list):
        value["prefixItems"] = value.pop("items")
        if "additionalItems" in value:
            value["items"] = value.pop("additionalItems")
    value.pop("additionalItems", None)
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(value.get(exclusive), bool) and value.pop(exclusive) and bound in value:
            value[exclusive] = value.pop(bound)
    for name, one in value.pop("dependencies", {}).items():
        word = "dependentRequired" if isinstance(one, list) else "dependentSchemas"
        value[word] = {**value.get(word, {}), name: one}
    if "if" not in value:
        value.pop("then", None)
        value.pop("else", None)
    return value
