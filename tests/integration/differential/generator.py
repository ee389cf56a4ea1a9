"""Requests out of a seed: valid ones of every API and version, and what becomes of them when a
few of their fields are changed.

A base (`bases`) is a request that is in order. Most requests have one change, some none, some
several: a value that is unknown, empty, extreme, null or of the wrong kind; a list without an
entry, with one twice, with one more, or null. What is changed is drawn from the schema of the
version, so that no field is forgotten. The same seed gives the same requests, whatever is
answered: what only an answer can tell (the id of a topic, of a member, of a producer) is a
`Known`, put in when the request is sent.

Whatever a request changes belongs to it alone (names with its number) or is never compared
exactly (`campaign.py`): a difference in one answer should not be found again in others.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from client.wire.kafka.apis import ApiKey, request_type
from client.wire.kafka.shapes import Shape
from tests.integration.differential.bases import BASES, BATCHES, Base, tamed, values_of
from tests.integration.differential.known import Known
from tests.integration.differential.plain_wire import Tree, complete, shapes

_CHANGES = (0, 1, 1, 1, 1, 1, 1, 2, 2, 3)
"""How many fields of a request are changed: one of these."""
_NULL_WHERE_NONE_MAY_BE = 0.04


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and what is asked before it."""

    number: int
    key: ApiKey
    version: int
    fields: Tree
    prepare: tuple[str, ...]
    changes: str
    """What was changed of a valid request."""


class _Place(NamedTuple):
    """A value in a request that can be changed."""

    path: str
    holder: Any
    at: str | int
    shape: Shape
    is_list: bool


def requests(seed: int, count: int, versions: Mapping[int, tuple[int, int]]) -> Iterator[Request]:
    """Yield every API in every version unchanged, then what the seed makes of them.

    `versions`: of the APIs that may be asked. Raises KeyError for one without a base.
    """
    rng = random.Random(seed)
    plain = [
        (ApiKey(key), version, base)
        for key, (low, high) in sorted(versions.items())
        for version in range(low, high + 1)
        for base in BASES[ApiKey(key)]
        if base.versions is None or version in base.versions
    ]
    for number in range(count):
        if number < len(plain):
            yield _request(rng, number, *plain[number], changes=0)
            continue
        key = ApiKey(rng.choice(sorted(versions)))
        low, high = versions[key]
        version = rng.randint(low, high)
        base = rng.choice([
            one for one in BASES[key] if one.versions is None or version in one.versions
        ])  # fmt: skip
        yield _request(rng, number, key, version, base, rng.choice(_CHANGES))


def _request(
    rng: random.Random, number: int, key: ApiKey, version: int, base: Base, changes: int
) -> Request:
    entity = request_type(key, version)
    fields = complete(entity, copy.deepcopy(base.fields(number, version)))
    said = [_change(rng, key, number, entity, fields) for _ in range(changes)]
    said += tamed(key, version, number, fields)
    what = ", ".join(one for one in said if one) or "as it should be"
    return Request(number, key, version, fields, base.prepare, f"{base.name}: {what}")


def _places(entity: Any, holder: Tree, path: str = "") -> Iterator[_Place]:
    for shape in shapes(entity):
        if shape.name not in holder or shape.tag is not None:
            continue
        here = f"{path}.{shape.name}".lstrip(".")
        value = holder[shape.name]
        yield _Place(here, holder, shape.name, shape, shape.is_array)
        if value is None or isinstance(value, Known):
            continue
        if shape.is_array:
            for at, one in enumerate(value):
                if shape.nested is None:
                    yield _Place(f"{here}[{at}]", value, at, shape, False)
                elif one is not None:
                    yield from _places(shape.nested, one, f"{here}[{at}]")
        elif shape.nested is not None:
            yield from _places(shape.nested, value, here)


def _change(rng: random.Random, key: ApiKey, number: int, entity: Any, fields: Tree) -> str:
    places = [one for one in _places(entity, fields) if not _is_left(one)]
    if not places:
        return ""
    place = rng.choice(places)
    if place.is_list:
        return _change_list(rng, key, number, place)
    old = place.holder[place.at]
    new = _other(rng, key, number, place, old)
    place.holder[place.at] = new
    return f"{place.path}={_short(new)}"


def _is_left(place: _Place) -> bool:
    """Timeouts stay as they are: whether something is done in time is no matter of the protocol."""
    return place.shape.name in ("timeout", "max_wait") or (
        place.shape.nested is not None and not place.is_list and not place.shape.nullable
    )


def _other(rng: random.Random, key: ApiKey, number: int, place: _Place, old: Any) -> Any:
    shape = place.shape
    if shape.nested is not None:
        return complete(shape.nested, {}) if old is None else None
    if shape.kafka_type == "bool":
        return not old
    may_be_null = shape.kafka_type in ("string", "bytes", "records")
    if may_be_null and old is not None:
        is_null = shape.nullable and isinstance(place.at, str)
        if rng.random() < (0.2 if is_null else _NULL_WHERE_NONE_MAY_BE):
            return None
    pool = [
        one for one in values_of(key, shape, number) if type(one) is not type(old) or one != old
    ]
    return rng.choice(pool)


def _change_list(rng: random.Random, key: ApiKey, number: int, place: _Place) -> str:
    rows = place.holder[place.at]
    if rows is None:
        place.holder[place.at] = []
        return f"{place.path} empty"
    how = rng.choice(("empty", "null", "twice", "less", "more", "more"))
    if how == "null" and not place.shape.nullable and rng.random() > _NULL_WHERE_NONE_MAY_BE * 4:
        how = "twice"
    if how in ("twice", "less", "more") and not rows:
        if place.shape.nested is None:
            rows.append(rng.choice(values_of(key, place.shape, number)))
        else:
            rows.append(complete(place.shape.nested, {}))
        return f"{place.path} one"
    if how == "null":
        place.holder[place.at] = None
    elif how == "empty":
        place.holder[place.at] = []
    elif how == "less":
        rows.pop(rng.randrange(len(rows)))
    else:
        rows.insert(rng.randrange(len(rows) + 1), copy.deepcopy(rng.choice(rows)))
    if how == "more":
        return f"{place.path} more, {_change_item(rng, key, number, place, rows)}"
    return f"{place.path} {how}"


def _change_item(
    rng: random.Random, key: ApiKey, number: int, place: _Place, rows: Sequence[Any]
) -> str:
    at = rng.randrange(len(rows))
    if place.shape.nested is not None:
        return f"[{at}]" + _change(rng, key, number, place.shape.nested, rows[at])
    item = _Place(f"[{at}]", rows, at, place.shape, False)
    new = _other(rng, key, number, item, rows[at])
    item.holder[at] = new
    return f"[{at}]={_short(new)}"


_NAMES_OF_BATCHES = {value: name for name, value in BATCHES.items() if len(value) > 1}


def _short(value: Any) -> str:
    if isinstance(value, bytes) and value in _NAMES_OF_BATCHES:
        return f"<{_NAMES_OF_BATCHES[value]}>"
    text = repr(value)
    return text if len(text) <= 48 else f"{text[:24]}...({len(text)} characters)"
