"""Turn the text of one option into a value, or say what is wrong with it.

Values are whole numbers, sizes (`64m`), durations (`15m`), and JSON by topic and partition. Every
function raises a ConfigError that begins with the option's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

from client.errors import ConfigError

Bounds = Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]]
"""A word, or offsets (or timestamps) by topic and partition."""

_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION_UNITS: Final = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def choice(values: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """Return one of the allowed words, the first one by default; case does not matter."""
    value = values.get(name, allowed[0]).lower()
    if value not in allowed:
        raise ConfigError(f"option {name}: {values[name]!r} is not one of {', '.join(allowed)}")
    return value


def truth(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return true or false."""
    return choice(values, name, ("true", "false") if default else ("false", "true")) == "true"


def positive(
    values: Mapping[str, str], name: str, *, at_least: int = 1, default: int | None = None
) -> int | None:
    """Return a whole number."""
    if name not in values:
        return default
    text = values[name]
    if not re.fullmatch(r"\d+", text) or int(text) < at_least:
        raise ConfigError(f"option {name}: {text!r} is not a whole number of {at_least} or more")
    return int(text)


def size_bytes(values: Mapping[str, str], name: str) -> int | None:
    """Return a size; `64m` is 64 MiB, as in Spark."""
    if name not in values:
        return None
    match = re.fullmatch(r"(\d+)\s*([bkmgt]?)(?:i?b)?", values[name].lower())
    if match is None or int(match[1]) == 0:
        raise ConfigError(
            f"option {name}: {values[name]!r} is not a size; write bytes, or like 64m"
        )
    return int(match[1]) * _SIZE_UNITS[match[2]]


def duration_ms(values: Mapping[str, str], name: str, default: int) -> int:
    """Return a duration; `15m` is a quarter of an hour, a bare number milliseconds."""
    if name not in values:
        return default
    match = re.fullmatch(r"(\d+)\s*(ms|s|min|m|h|d|)", values[name].lower())
    if match is None:
        raise ConfigError(f"option {name}: {values[name]!r} is not a duration; write it like 15m")
    return int(match[1]) * _DURATION_UNITS[match[2]]


def bounds_json(values: Mapping[str, str], name: str, default: str) -> Bounds:
    """Return `earliest`, `latest`, or {topic: {partition: number}}."""
    text = values.get(name, default)
    if text.lower() in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], text.lower())
    example = f'{name} like earliest, latest or {{"topic":{{"0":23,"1":-2}}}}'
    tree = _json(name, text, example)
    bounds: dict[str, dict[int, int]] = {}
    for topic, row in tree.items():
        if topic.startswith("$"):
            continue  # what offsets of a checkpoint carry besides
        if not isinstance(row, dict):
            raise ConfigError(f"option {name}: {topic!r} has no partitions; write {example}")
        bounds[topic] = {}
        for partition, number in row.items():
            is_number = isinstance(number, int) and not isinstance(number, bool)
            if not partition.isdecimal() or not is_number or number < -2:
                raise ConfigError(
                    f"option {name}: {json.dumps(number)} of {topic}-{partition} is not an offset"
                )
            bounds[topic][int(partition)] = number
    return bounds


def partition_lists(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """Return {topic: partitions}."""
    example = f'{name} like {{"topic":[0,1]}}'
    lists: dict[str, tuple[int, ...]] = {}
    for topic, row in _json(name, text, example).items():
        numbers = row if isinstance(row, list) else []
        if not numbers or any(not isinstance(n, int) or n < 0 for n in numbers):
            raise ConfigError(f"option {name}: {topic!r} has no partitions; write {example}")
        lists[topic] = tuple(sorted(set(numbers)))
    return lists


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"option {name}: {text!r} is not JSON; write {example}") from error
    if not isinstance(tree, dict) or not tree:
        raise ConfigError(f"option {name}: {text!r} names no topic; write {example}")
    return tree
