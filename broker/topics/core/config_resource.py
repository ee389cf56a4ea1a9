"""Applies SET, DELETE, APPEND and SUBTRACT to a topic's settings, and names the resource types."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind, TopicConfig
from broker.errors import InvalidRequest, InvalidTopicConfig


class ConfigResource(enum.IntEnum):
    """Numbers of resource types."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Operation(enum.IntEnum):
    """What to do with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One change of one setting."""

    name: str
    operation: int
    value: str | None


def replaced(settings: Sequence[tuple[str, str]]) -> TopicConfig:
    """Return a configuration that consists of `settings`. Raises InvalidTopicConfig."""
    return TopicConfig.parse(dict(settings))


def changed(config: TopicConfig, changes: Sequence[Change]) -> TopicConfig:
    """Apply changes to a topic's settings.

    Raises InvalidRequest (unknown operation, a setting named twice), InvalidTopicConfig.
    """

    def items(name: str) -> list[str]:
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise InvalidTopicConfig(f"unknown topic setting {name!r}")
        if key.kind is not Kind.LIST:
            raise InvalidTopicConfig(f"{name} is not a list")
        return split(config.value(name))

    return TopicConfig.parse(edited(config.overrides, changes, items))


def edited(
    before: Mapping[str, str], changes: Sequence[Change], items_of: Callable[[str], list[str]]
) -> dict[str, str]:
    """Apply changes to settings of any resource; resetting what is not set changes nothing.

    `items_of` returns what is in a list now, and raises InvalidTopicConfig if it is none. Raises
    that, and InvalidRequest (unknown operation, a setting named twice, no value).
    """
    names = [change.name for change in changes]
    if len(dict.fromkeys(names)) != len(names):
        raise InvalidRequest("the request changes a setting twice")
    after = dict(before)
    for name, operation, value in changes:
        if operation == Operation.DELETE:
            after.pop(name, None)
            continue
        if value is None:
            raise InvalidRequest(f"{name} has no value")
        if operation == Operation.SET:
            after[name] = value
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            after[name] = ",".join(_edited(items_of(name), operation, split(value)))
        else:
            raise InvalidRequest(f"unknown operation {operation} on {name}")
    return after


def split(text: str) -> list[str]:
    """Return the items of a list."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _edited(present: list[str], operation: int, given: list[str]) -> list[str]:
    if operation == Operation.APPEND:
        return [*present, *(item for item in given if item not in present)]
    return [item for item in present if item not in given]
