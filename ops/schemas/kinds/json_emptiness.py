"""Tells of a conjunction of JSON schemas whether certainly nothing passes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ops.schemas.kinds.json_facts import (
    Conjunction,
    lower,
    of_item,
    of_property,
    required,
    type_of,
    types_of,
    upper,
    values_of,
)
from ops.schemas.kinds.json_flattening import Flattening

_DEPTH_MAX: Final = 6
"""Of alternatives that are looked at within alternatives."""

_BOUNDS: Final = (
    ("number", "minimum", "maximum"),
    ("string", "minLength", "maxLength"),
    ("array", "minItems", "maxItems"),
    ("object", "minProperties", "maxProperties"),
)


class Emptiness:
    """Remembers what was found."""

    def __init__(self, schemas: Flattening, step: Callable[[], None]) -> None:
        """`step` is called for each conjunction that is looked at; it may raise."""
        self._schemas = schemas
        self._step = step
        self._known: dict[frozenset[int], bool] = {}
        self._kept: list[Conjunction] = []
        """So that their identities stay theirs."""
        self._depth = 0

    def is_empty(self, flats: Conjunction | None) -> bool:
        """Tell whether certainly nothing passes."""
        if flats is None:
            return True
        key = frozenset(map(id, flats))
        if key not in self._known:
            self._step()
            self._known[key] = False  # nothing is known of what contains itself
            self._kept.append(flats)
            self._known[key] = self._find(flats)
        return self._known[key]

    def _find(self, flats: Conjunction) -> bool:
        types = set(types_of(flats))
        for kind, least, most in _BOUNDS:
            low, high = lower(flats, least), upper(flats, most)
            if low is None or high is None:
                continue
            is_point = low.value == high.value and (low.is_exclusive or high.is_exclusive)
            if low.value > high.value or is_point:
                types -= {"integer", "fraction"} if kind == "number" else {kind}
        if "object" in types and any(self._never_is(flats, name) for name in required(flats)):
            types.discard("object")
        if "array" in types and self._is_too_short(flats):
            types.discard("array")
        if not types:
            return True
        values = values_of(flats)
        if values is not None and not any(type_of(value) in types for value in values):
            return True
        return self._has_no_alternative(flats)

    def _never_is(self, flats: Conjunction, name: str) -> bool:
        nodes = [node for one in flats for node in of_property(one, name, is_reader=False)]
        return self.is_empty(self._schemas.all_flat(nodes, is_reader=False))

    def _is_too_short(self, flats: Conjunction) -> bool:
        """Tell whether an item that has to be there cannot be."""
        least = lower(flats, "minItems")
        count = 0 if least is None else int(least.value)
        longest = max((len(one.value.get("prefixItems", ())) for one in flats), default=0)
        return any(
            self.is_empty(
                self._schemas.all_flat([of_item(one, n) for one in flats], is_reader=False)
            )
            for n in range(min(count, longest + 1))
        )

    def _has_no_alternative(self, flats: Conjunction) -> bool:
        if self._depth >= _DEPTH_MAX:
            return False
        self._depth += 1
        try:
            for one in flats:
                for word in ("anyOf", "oneOf"):
                    if word not in one.value:
                        continue
                    rest = [each for each in flats if each is not one]
                    beside = self._schemas.without(one, word)
                    some = (
                        self._schemas.flat(branch, is_reader=False) for branch in one.children(word)
                    )
                    if all(
                        branch is None or self.is_empty((*rest, beside, *branch)) for branch in some
                    ):
                        return True
            return False
        finally:
            self._depth -= 1
