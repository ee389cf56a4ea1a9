"""Applies SET, DELETE, APPEND and SUBTRACT to a topic's settings, and names the resource types."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
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


def replaced(settings: Sequence[tuple[str, str | None]]) -> TopicConfig:
    """Return a configuration that consists of `settings`; a null value resets to the default."""
    return TopicConfig.parse({name: value for name, value in settings if value is not None})


def changed(config: TopicConfig, changes: Sequence[Change]) -> TopicConfig:
    """Apply changes to a topic's settings.

    Raises InvalidRequest (unknown operation, a setting named twice), InvalidTopicConfig.
    """
    overrides = dict(config.overrides)
    names = [change.name for change in changes]
    if len(dict.fromkeys(names)) != len(names):
        raise InvalidRequest("the request changes a setting twice")
    for change in changes:
        if change.operation == Operation.DELETE:
            overrides.pop(change.name, None)
            continue
        if change.value is None:
            raise InvalidRequest(f"{change.name} has no value")
        if change.operation == Operation.SET:
            overrides[change.name] = change.value
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            overrides[change.name] = _edited(config, overrides, change, change.value)
        else:
            raise InvalidRequest(f"unknown operation {change.operation} on {change.name}")
    return TopicConfig.parse(overrides)


def _edited(config: TopicConfig, overrides: Mapping[str, str], change: Change, value: str) -> str:
    key = TOPIC_KEYS.get(change.name)
    if key is None:
        raise InvalidTopicConfig(f"unknown topic setting {change.name!r}")
    if key.kind is not Kind.LIST:
        raise InvalidTopicConfig(f"{change.name} is not a list")
    present = [item for item in overrides.get(key.name, config.value(key.name)).split(",") if item]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if change.operation == Operation.APPEND:
        return ",".join([*present, *(item for item in given if item not in present)])
    return ",".join(item for item in present if item not in given)
