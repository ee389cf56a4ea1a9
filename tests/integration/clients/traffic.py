"""The traffic that every client carries, and what must be true of what it received.

Record number n has the key `key-<n % 20>` and the value `value-<n>`, so that order per key, loss
and duplication show in the values alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

PARTITION_COUNT = 4
FIRST = range(0, 200)
"""Numbers that two members of a group receive."""
SECOND = range(200, 260)
"""Numbers published afterwards: the restarted group receives exactly these."""
HEADER = ("origin", b"quire test")
PATIENCE_S = 60.0


class Received(NamedTuple):
    partition: int
    offset: int
    key: str
    value: str


def key(number: int) -> str:
    return f"key-{number % 20}"


def value(number: int) -> str:
    return f"value-{number}"


def check(received: Iterable[Received], numbers: range) -> None:
    """Assert that exactly these numbers arrived, once each, in order per partition and key."""
    by_offset: dict[int, list[int]] = {}
    by_key: dict[str, list[int]] = {}
    partition_of_key: dict[str, int] = {}
    seen = []
    for record in received:
        number = int(record.value.removeprefix("value-"))
        assert record.key == key(number)
        seen.append(number)
        by_offset.setdefault(record.partition, []).append(record.offset)
        by_key.setdefault(record.key, []).append(number)
        assert partition_of_key.setdefault(record.key, record.partition) == record.partition
    assert sorted(seen) == list(numbers)
    for ordered in [*by_offset.values(), *by_key.values()]:
        assert ordered == sorted(ordered)


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Call `condition` until it is true; it does the waiting itself, by polling its client."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"no {what} within {timeout_s:g} s"
