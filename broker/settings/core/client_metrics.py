"""Which metrics are wanted of which clients (KIP-714): settings of subscriptions, and their sum.

A subscription is a resource of type CLIENT_METRICS. It names metrics by prefixes, says how often
they are wanted, and of which clients: every key of `match` has a regular expression that the whole
of that property must match; without `match` it is all clients. Whoever connects is held against
them, by words of its own, so they take a time that is linear in these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import crc32c

from broker.cluster.core.topic_config import Kind
from broker.errors import InvalidRegularExpression, InvalidRequest, InvalidTopicConfig
from broker.security.core.linear_pattern import LinearPattern
from broker.topics.core.config_resource import Change, edited, split

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"

INTERVAL_DEFAULT_MS: Final = 300_000
_INTERVALS_MS: Final = 100, 3_600_000
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,10}")
_INT_MAX: Final = 2**31 - 1
_EVERYTHING: Final = "*"
_PROPERTIES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_ID_MASK: Final = 0x7FFFFFFF


class Key(NamedTuple):
    """One setting of a subscription."""

    kind: Kind
    default: str
    doc: str


KEYS: Final[Mapping[str, Key]] = {
    INTERVAL_MS: Key(
        Kind.INT, str(INTERVAL_DEFAULT_MS), "How often clients push, in milliseconds."
    ),
    MATCH: Key(
        Kind.LIST, "",
        f"Which clients: PROPERTY=REGULAR EXPRESSION, of {', '.join(_PROPERTIES)}; none: all.",
    ),
    METRICS: Key(
        Kind.LIST, "", "What the names of the metrics begin with; * stands for all metrics."
    ),
}  # fmt: skip

Client = Mapping[str, str]
"""The properties of a client that `match` can name."""


class Wanted(NamedTuple):
    """What is wanted of one client."""

    subscription_id: int
    """Of these metrics at this interval; another number if anything of it changes."""
    metrics: Sequence[str]
    """Prefixes; an empty one: all metrics. None at all: nothing is wanted."""
    interval_ms: int


class Subscription(NamedTuple):
    """One subscription, taken apart."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, LinearPattern], ...]

    def is_about(self, client: Client) -> bool:
        """Say whether it is about a client."""
        return all(pattern.matches(client.get(name, "")) for name, pattern in self.match)


def parse(values: Mapping[str, str]) -> Subscription:
    """Take a subscription's settings apart, as far as this release knows them.

    Raises InvalidTopicConfig, InvalidRequest.
    """
    return Subscription(
        tuple(_items(values, METRICS)), _interval_ms(values), tuple(_patterns(values))
    )


def foreign(before: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that only another release knows: replacing all the others leaves them."""
    return {name: value for name, value in before.items() if name not in KEYS}


def changed(before: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """Apply changes to a subscription's settings. Raises InvalidRequest, InvalidTopicConfig."""

    def items(name: str) -> list[str]:
        if name not in KEYS or KEYS[name].kind is not Kind.LIST:
            raise InvalidTopicConfig(f"{name} is not a list")
        return split(before.get(name, ""))

    after = edited(before, changes, items)
    for name in after:
        if name not in KEYS and name not in before:
            raise InvalidRequest(
                f"unknown setting of client metrics {name!r}; there are {', '.join(KEYS)}"
            )
    parse(after)
    return after


def wanted(subscriptions: Iterable[Subscription], client: Client) -> Wanted:
    """Return what all subscriptions together want of a client."""
    metrics: dict[str, None] = {}
    intervals_ms: list[int] = []
    for one in subscriptions:
        if one.metrics and one.is_about(client):
            metrics.update(dict.fromkeys(one.metrics))
            intervals_ms.append(one.interval_ms)
    interval_ms = min(intervals_ms, default=INTERVAL_DEFAULT_MS)
    prefixes = [""] if _EVERYTHING in metrics else sorted(metrics)
    text = "\n".join([*prefixes, str(interval_ms), str(len(prefixes))])
    return Wanted(crc32c.crc32c(text.encode()) & _ID_MASK, prefixes, interval_ms)


def _items(values: Mapping[str, str], name: str) -> list[str]:
    return list(dict.fromkeys(split(values.get(name, ""))))


def _interval_ms(values: Mapping[str, str]) -> int:
    text = values.get(INTERVAL_MS, str(INTERVAL_DEFAULT_MS)).strip()
    low, high = _INTERVALS_MS
    if not _WHOLE.fullmatch(text) or abs(int(text)) > _INT_MAX:
        raise InvalidTopicConfig(f"{INTERVAL_MS} must be a whole number, not {text[:100]!r}")
    if not low <= int(text) <= high:
        raise InvalidRequest(f"{INTERVAL_MS} must be between {low} and {high}, not {text!r}")
    return int(text)


def _patterns(values: Mapping[str, str]) -> Iterable[tuple[str, LinearPattern]]:
    for item in _items(values, MATCH):
        name, equals, pattern = (part.strip() for part in item.partition("="))
        if not equals or name not in _PROPERTIES:
            raise InvalidTopicConfig(
                f"{MATCH} must have PROPERTY=REGULAR EXPRESSION, of {', '.join(_PROPERTIES)}, not"
                f" {item!r}"
            )
        try:
            yield name, LinearPattern(pattern)
        except InvalidRegularExpression as error:
            raise InvalidTopicConfig(f"{MATCH}: {error}") from error
