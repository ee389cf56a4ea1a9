"""Tells whether everything that one JSON schema accepts is accepted by another, and if not, why.

Structural, and on the safe side: what it cannot prove counts as a difference. What an instance
that the writer accepts must look like is a conjunction of schemas (`json_flattening.py`); each
keyword of the reader is held against what the conjunction says (`json_facts.py`). Where the writer
has alternatives, or only a few values, each of them is looked at alone.

Keywords mean what the draft that a schema names makes of them, `format` and what the draft does not
have restrict nothing. A reader's dynamic reference that may lead to several places, and a reference
that leads nowhere, are never proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ops.schemas.core.errors import InvalidSchema
from ops.schemas.kinds.json_documents import Documents, Node
from ops.schemas.kinds.json_emptiness import Emptiness
from ops.schemas.kinds.json_facts import (
    LOWER_BOUNDS,
    UPPER_BOUNDS,
    Bound,
    Conjunction,
    Flat,
    described,
    is_multiple,
    key_of,
    lower,
    matches,
    named_types,
    of_item,
    of_property,
    required,
    text_of,
    types_of,
    upper,
    values_of,
)
from ops.schemas.kinds.json_flattening import REFERENCES, Flattening
from ops.schemas.kinds.language import DIFFERENCES_MAX

_STEPS_MAX: Final = 50_000
"""Pairs of schemas that one comparison looks at."""
_VALUES_MAX: Final = 300
"""Values of an `enum` that are looked at one by one."""
_NUMBERS: Final = frozenset(("integer", "fraction"))

Differences = Iterator[str]


class Containment:
    """One comparison."""

    def __init__(self, reader: Documents, writer: Documents) -> None:
        self._reader = reader
        self._writer = writer
        self._steps = 0
        self._under_way: set[tuple[int, frozenset[int]]] = set()
        self._schemas = Flattening()
        self._emptiness = Emptiness(self._schemas, self._step)
        self._rules: Sequence[Callable[[Flat, Conjunction, str], Differences]] = (
            self._values, self._bounds, self._numbers_and_texts, self._alternatives,
            self._conditions, self._required, self._properties, self._names, self._items,
            self._contained, self._references,
        )  # fmt: skip

    def differences(self) -> list[str]:
        """Return where the writer accepts what the reader may not; empty if nowhere.

        Raises InvalidSchema for schemas that are too large to compare.
        """
        now, was = self._reader, self._writer
        if text_of([now.value, now.named]) == text_of([was.value, was.named]):
            return []
        try:
            theirs = self._schemas.flat(self._writer.root, is_reader=False)
            found = self._compare(self._reader.root, theirs, "#")
            return [text for text, _ in zip(found, range(DIFFERENCES_MAX), strict=False)]
        except RecursionError:
            raise InvalidSchema("nested too deeply") from None

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise InvalidSchema("the schemas are too large to be compared")

    def _compare(self, reader: Node, writer: Conjunction | None, at: str) -> Differences:
        """Yield what a reader may refuse of what passes the conjunction."""
        if writer is None or reader.value is True:
            return
        key = id(reader.value), frozenset(map(id, writer))
        if key in self._under_way:
            return  # it holds of every instance if it holds of the smaller ones in it
        self._step()
        self._under_way.add(key)
        try:
            ours = self._schemas.flat(reader, is_reader=True)
            if ours is None:
                if not self._emptiness.is_empty(writer):
                    yield f"{at}: nothing is accepted any more"
            elif any(one not in writer for one in ours):
                for part, place in self._parts(ours, writer, at):
                    if part is not None and self._is_split(part, writer):
                        yield from self._compare(reader, part, place)
                    elif part is not None and not self._emptiness.is_empty(part):
                        for one in ours:
                            yield from self._by_rules(one, part, place)
        finally:
            self._under_way.discard(key)

    @staticmethod
    def _is_split(part: Conjunction, whole: Conjunction) -> bool:
        return set(map(id, part)) != set(map(id, whole))

    def _by_rules(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        if any(reader is one or self._schemas.is_same(reader, one) for one in writer):
            return
        for rule in self._rules:
            yield from rule(reader, writer, at)

    def _holds(self, reader: Node, writer: Conjunction | None, at: str) -> bool:
        return next(self._compare(reader, writer, at), None) is None

    def _with(self, writer: Conjunction, *nodes: Node) -> Conjunction | None:
        more = self._schemas.all_flat(nodes, is_reader=False)
        if more is None:
            return None
        return (*writer, *(one for one in more if one not in writer))

    def _parts(
        self, ours: Conjunction, writer: Conjunction, at: str
    ) -> Iterator[tuple[Conjunction | None, str]]:
        """Yield what a conjunction consists of: alternatives, single values or types, or itself."""
        for one in writer:
            for word in ("anyOf", "oneOf"):
                if word in one.value and not any(self._schemas.is_same(each, one) for each in ours):
                    beside = self._schemas.without(one, word)
                    rest = tuple(beside if each is one else each for each in writer)
                    for n, branch in enumerate(one.children(word)):
                        yield self._with(rest, branch), f"{at}/{word}/{n}"
                    return
        is_choosy = any(one.value.keys() & {"anyOf", "oneOf", "not", "if", "enum"} for one in ours)
        values = values_of(writer)
        if values is not None and len(values) <= _VALUES_MAX:
            is_explicit = any("enum" in one.value for one in writer)
            if is_choosy or is_explicit:
                for value in values:
                    node = self._schemas.made(described(value))
                    yield self._with(writer, node), at
                return
        types = types_of(writer)
        kinds = sorted({"number" if one in _NUMBERS else one for one in types})
        if is_choosy and len(kinds) > 1:
            for kind in kinds:
                named = "integer" if kind == "number" and "fraction" not in types else kind
                yield self._with(writer, self._schemas.made({"type": named})), at
            return
        yield writer, at

    def _values(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        types = types_of(writer)
        if "enum" in reader.value:
            theirs = values_of(writer)
            if theirs is None:
                yield f"{at}: only some values are accepted now"
            else:
                ours = set(map(key_of, reader.value["enum"]))
                if not all(key_of(value) in ours for value in theirs):
                    yield f"{at}: values of enum or const are gone"
        missing = types - named_types(reader.value)
        if missing:
            words = sorted({"number" if one == "fraction" else one for one in missing})
            yield f"{at}: type {', '.join(words)} is not accepted any more"

    def _bounds(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        types = types_of(writer)
        for words, exclusive, ends in (
            (LOWER_BOUNDS, "exclusiveMinimum", lower), (UPPER_BOUNDS, "exclusiveMaximum", upper),
        ):  # fmt: skip
            for word, kind in (*words.items(), (exclusive, "number")):
                is_concerned = types & _NUMBERS if kind == "number" else kind in types
                if word not in reader.value or not is_concerned:
                    continue
                now = reader.value[word]
                was = ends(writer, word if word in words else next(iter(words)))
                if was is None and words is LOWER_BOUNDS and kind != "number":
                    was = Bound(0, is_exclusive=False)
                if not _within(now, was, lower=ends is lower, is_exclusive=word == exclusive):
                    yield f"{at}: {word} is {now}, was {'none' if was is None else was.value}"

    def _numbers_and_texts(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        types, values = types_of(writer), values_of(writer)
        if "multipleOf" in reader.value and types & _NUMBERS:
            divisor = reader.value["multipleOf"]
            known = [one.value["multipleOf"] for one in writer if "multipleOf" in one.value]
            known += [] if "fraction" in types else [1]
            if values is not None:
                is_fine = all(_is_multiple_or_none(value, divisor) for value in values)
            else:
                is_fine = any(is_multiple(one, divisor) for one in known)
            if not is_fine:
                yield f"{at}: multipleOf differs"
        if "pattern" in reader.value and "string" in types:
            pattern = reader.value["pattern"]
            is_known = any(one.value.get("pattern") == pattern for one in writer)
            texts = None if values is None else [one for one in values if isinstance(one, str)]
            if not is_known and (texts is None or not all(matches(pattern, t) for t in texts)):
                yield f"{at}: pattern differs"

    def _alternatives(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        any_of = reader.children("anyOf")
        if any_of and not any(self._holds(one, writer, at) for one in any_of):
            yield f"{at}: none of anyOf accepts all that was accepted"
        if "oneOf" in reader.value:
            branches = reader.children("oneOf")
            fitting = [n for n, one in enumerate(branches) if self._holds(one, writer, at)]
            others = [one for n, one in enumerate(branches) if [n] != fitting]
            if len(fitting) != 1 or not all(self._is_disjoint(writer, one) for one in others):
                yield f"{at}: not exactly one of oneOf accepts all that was accepted"
        if "not" in reader.value:
            now = reader.child("not")
            narrowed = (
                self._holds(one.child("not"), self._schemas.flat(now, is_reader=False), at)
                for one in writer
                if "not" in one.value
            )
            if not self._is_disjoint(writer, now) and not any(narrowed):
                yield f"{at}: not differs"

    def _is_disjoint(self, writer: Conjunction, other: Node) -> bool:
        """Tell whether certainly nothing passes both."""
        both = self._with(writer, other)
        return both is None or self._emptiness.is_empty(both)

    def _conditions(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        if "if" not in reader.value:
            return
        condition = reader.child("if")
        if "then" in reader.value:
            met = self._with(writer, condition)
            if met is not None:
                known = [one for one in writer if "then" in one.value]
                also = [one for one in known if self._holds(one.child("if"), met, at)]
                met = self._with(met, *(one.child("then") for one in also))
            yield from self._compare(reader.child("then"), met, f"{at}/then")
        if "else" in reader.value and not self._holds(condition, writer, at):
            negated = self._schemas.negated_condition(reader)
            known = [one for one in writer if "else" in one.value]
            also = [
                one
                for one in known
                if self._holds(condition, self._schemas.flat(one.child("if"), is_reader=False), at)
            ]
            unmet = self._with((*writer, negated), *(one.child("else") for one in also))
            yield from self._compare(reader.child("else"), unmet, f"{at}/else")

    def _required(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        if "object" not in types_of(writer):
            return
        there = required(writer)
        for name in sorted({*reader.value.get("required", ())} - there):
            yield f"{at}/properties/{name}: is required now"
        for trigger, names in sorted(reader.value.get("dependentRequired", {}).items()):
            if {*names} <= there or self._never_has(writer, trigger):
                continue
            having = self._with(writer, self._schemas.made({"required": [trigger]})) or ()
            if not {*names} <= required(having):
                yield f"{at}: dependentRequired of {trigger} differs"
        for trigger, node in sorted(reader.named("dependentSchemas").items()):
            if self._never_has(writer, trigger):
                continue
            known = [one.named("dependentSchemas").get(trigger) for one in writer]
            nodes = [one for one in known if one is not None]
            met = self._with(writer, self._schemas.made({"required": [trigger]}), *nodes)
            yield from self._compare(node, met, f"{at}/dependentSchemas/{trigger}")

    def _never_has(self, writer: Conjunction, name: str) -> bool:
        was = self._property(writer, name)
        return was is None or self._emptiness.is_empty(was)

    def _property(self, writer: Conjunction, name: str) -> Conjunction | None:
        nodes = [node for one in writer for node in of_property(one, name, is_reader=False)]
        return self._schemas.all_flat(nodes, is_reader=False)

    def _properties(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        words = ("properties", "patternProperties", "additionalProperties")
        if "object" not in types_of(writer) or not any(word in reader.value for word in words):
            return
        ours = reader.value.get("properties", {})
        theirs = {name for one in writer for name in one.value.get("properties", ())}
        for name in sorted({*ours, *theirs, *required(writer)}):
            place = f"{at}/properties/{name}"
            was = self._property(writer, name)
            if was is None or self._emptiness.is_empty(was):
                continue  # it was never there
            for now in of_property(reader, name, is_reader=True):
                if name in ours and name not in theirs and was == ():
                    if not self._holds(now, was, place):
                        yield f"{place}: is described now, and could be anything before"
                else:
                    yield from self._compare(now, was, place)
        yield from self._rest(reader, writer, at)

    def _rest(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        """Compare properties that nobody names."""
        patterns = reader.value.get("patternProperties", {})
        for pattern, now in reader.named("patternProperties").items():
            nodes = []
            for one in writer:
                known = one.value.get("patternProperties", {})
                if pattern in known:
                    nodes.append(one.node.child(known[pattern]))
                elif not known:
                    nodes.append(one.child("additionalProperties"))
            was = self._schemas.all_flat(nodes, is_reader=False)
            yield from self._compare(now, was, f"{at}/patternProperties/{pattern}")
        if reader.value.get("additionalProperties", True) is True:
            return
        now = reader.child("additionalProperties")
        place = f"{at}/additionalProperties"
        alone = []
        for one in writer:
            others = [
                node for p, node in one.named("patternProperties").items() if p not in patterns
            ]
            if not others:
                alone.append(one.child("additionalProperties"))
            elif all(
                self._holds(now, self._schemas.flat(node, is_reader=False), place)
                for node in (*others, one.child("additionalProperties"))
            ):
                return
        yield from self._compare(now, self._schemas.all_flat(alone, is_reader=False), place)

    def _names(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        if "propertyNames" not in reader.value or "object" not in types_of(writer):
            return
        now, place = reader.child("propertyNames"), f"{at}/propertyNames"
        nodes = [self._schemas.made({"type": "string"})]
        nodes += [one.child("propertyNames") for one in writer if "propertyNames" in one.value]
        names = _only_names(writer)
        if names is None:
            was = self._schemas.all_flat(nodes, is_reader=False)
            yield from self._compare(now, was, place)
            return
        for name in sorted(names):
            if not self._never_has(writer, name):
                one = self._schemas.made(described(name))
                was = self._schemas.all_flat([*nodes, one], is_reader=False)
                yield from self._compare(now, was, place)

    def _items(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        if "array" not in types_of(writer):
            return
        most = upper(writer, "maxItems")
        if reader.value.get("uniqueItems") and not (most is not None and most.value <= 1):
            arrays = [one for one in values_of(writer) or () if isinstance(one, list)]
            is_unique = any(one.value.get("uniqueItems") for one in writer) or (
                values_of(writer) is not None
                and all(len(set(map(key_of, one))) == len(one) for one in arrays)
            )
            if not is_unique:
                yield f"{at}: uniqueItems differs"
        if not reader.value.keys() & {"items", "prefixItems"}:
            return
        count = max(len(one.value.get("prefixItems", ())) for one in (reader, *writer))
        for n in range(count + 1):
            if most is not None and most.value <= n:
                return
            nodes = [of_item(one, n) for one in writer]
            was = self._schemas.all_flat(nodes, is_reader=False)
            if was is None or self._emptiness.is_empty(was):
                return  # no array is so long
            place = f"{at}/items/{n}" if n < count else f"{at}/items"
            yield from self._compare(of_item(reader, n), was, place)

    def _contained(self, reader: Flat, writer: Conjunction, at: str) -> Differences:
        if "contains" not in reader.value or "array" not in types_of(writer):
            return
        now, least = reader.child("contains"), reader.value.get("minContains", 1)
        fitting = [
            one
            for one in writer
            if "contains" in one.value
            and self._holds(now, self._schemas.flat(one.child("contains"), is_reader=False), at)
        ]
        known = max((one.value.get("minContains", 1) for one in fitting), default=0)
        shortest = lower(writer, "minItems")
        if shortest is not None and shortest.value >= least > known:
            items = Flat({"items": reader.value["contains"]}, reader.node)
            known = least if next(self._items(items, writer, at), None) is None else known
        if known < least:
            yield f"{at}: contains differs"
        if (most := reader.value.get("maxContains")) is None:
            return
        longest = upper(writer, "maxItems")
        if longest is not None and longest.value <= most:
            return
        for one in writer:
            if "contains" in one.value and one.value.get("maxContains", most + 1) <= most:
                ours = self._schemas.flat(now, is_reader=False)
                if self._holds(one.child("contains"), ours, at):
                    return
        yield f"{at}: maxContains differs"

    def _references(self, reader: Flat, _writer: Conjunction, at: str) -> Differences:
        for word in REFERENCES:
            if word in reader.value:
                yield f"{at}: {word} {str(reader.value[word])[:80]!r} leads nowhere that is known"


def _is_multiple_or_none(value: Any, divisor: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number or is_multiple(value, divisor)


def _within(now: float, was: Bound | None, *, lower: bool, is_exclusive: bool) -> bool:
    """Tell whether a bound lets everything pass that another one did."""
    if was is None:
        return False
    if now == was.value:
        return was.is_exclusive or not is_exclusive
    return now < was.value if lower else now > was.value


def _only_names(writer: Conjunction) -> set[str] | None:
    """Return the names that properties may have; None: there may be others."""
    found: set[str] | None = None
    for one in writer:
        is_closed = one.value.get("additionalProperties") is False
        if is_closed and not one.value.get("patternProperties"):
            names = {*one.value.get("properties", ())}
            found = names if found is None else found & names
    return found
