"""Settings of single groups (KIP-848; resources of type GROUP): which exist, and which values hold.

Kafka 4.4 has 27 of them, and three are ours (`OURS`). Those of the consumer protocol are in force,
and those of share groups that are about records (`broker/settings/core/share_settings.py`); the
others belong to protocols that are not served here, or to how Kafka's coordinator works inside.
They are checked, stored and told all the same, because tools read and write back whole lists.

A group may have what all groups have, or what lies within the bounds that the brokers set
(`group.consumer.min.session.timeout.ms` and so on), and its session must be longer than its
interval of heartbeats. Bounds may become narrower later: a value that was stored before counts as
the nearest one within them, as in Kafka, and is refused only when it is set anew.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from typing import Final

from broker.cluster.core.topic_config import KEPT_DOC, Kind, TopicKey, check_value
from broker.errors import InvalidTopicConfig
from broker.groups.core.group_types import ConsumerTimes, GroupConfig
from broker.topics.core.config_resource import Change, edited, split

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"

_LOCK_MS: Final = "share.record.lock.duration.ms"
_DELIVERIES: Final = "share.delivery.count.limit"
_LOCKS: Final = "share.partition.max.record.locks"

BROKER_NAMES: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        name: f"group.{name}"
        for name in (SESSION, HEARTBEAT, ASSIGNMENT, _LOCK_MS, _DELIVERIES, _LOCKS)
    }
)
"""A group's setting -> the brokers' one that holds for all groups."""

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_TEXT_MAX: Final = 1_000
_ENDS: Final = "min", "max"
_AUTO_RESET: Final = "share.auto.offset.reset"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_INTERNAL: Final = "__"
ORDER: Final = "share.order"
RELEASE_DELAY: Final = "share.release.delay.ms"
RELEASE_DELAY_MAX: Final = "share.release.delay.max.ms"
OURS: Final = (ORDER, RELEASE_DELAY, RELEASE_DELAY_MAX)
"""What Kafka does not have."""
_WEEK_MS: Final = 7 * 86_400_000
_RESETS: Final = re.compile(
    r"latest|earliest|by_duration:(?i:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?)"
)


def _served(name: str, default: int, doc: str, at_least: int, at_most: int = _INT_MAX) -> TopicKey:
    return TopicKey(name, Kind.INT, str(default), doc, at_least, at_most, effect=True)


def _int(name: str, default: int, at_least: int = 0, at_most: int = _INT_MAX) -> TopicKey:
    """Return one that is kept; its bounds are those that Kafka's brokers have by default."""
    return TopicKey(name, Kind.INT, str(default), KEPT_DOC, at_least, at_most)


def _bool(name: str, default: str = "true") -> TopicKey:
    return TopicKey(name, Kind.BOOLEAN, default, KEPT_DOC)


_DEFAULTS: Final = GroupConfig()
_KEYS: Final = (
    _served(
        SESSION, _DEFAULTS.consumer_session_timeout_ms,
        "How long a member of the consumer protocol may be silent before it is removed.", 1,
    ),
    _served(
        HEARTBEAT, _DEFAULTS.consumer_heartbeat_interval_ms,
        "How often members of the consumer protocol send heartbeats.", 1,
    ),
    _served(
        ASSIGNMENT, _DEFAULTS.consumer_assignment_interval_ms,
        "Shortest time between two target assignments of a group of the consumer protocol.", 0,
    ),
    _bool("consumer.assignor.offload.enable"),
    TopicKey(
        _DEAD_LETTERS, Kind.STRING, "",
        "Topic for the dead letters of a share group: of records that are rejected, or come back"
        " for the last time. Empty: there are none, and such records are archived at once.",
        effect=True,
    ),
    TopicKey(
        "errors.deadletterqueue.copy.record.enable", Kind.BOOLEAN, "false",
        "Whether a dead letter has the record's key, value and headers, too.", effect=True,
    ),
    _int("share.session.timeout.ms", 45_000, 45_000, 60_000),
    _int("share.heartbeat.interval.ms", 5_000, 5_000, 15_000),
    _served(
        _LOCK_MS, 30_000, "How long a member has for a record before it is taken back.",
        15_000, 60_000,
    ),
    _served(
        _DELIVERIES, 5, "How often a record is delivered; what comes back then is archived.", 2, 10
    ),
    _served(
        _LOCKS, 2_000,
        "Records of a partition from the first that is not settled to the last that was delivered.",
        100, 4_000,
    ),
    TopicKey(
        _AUTO_RESET, Kind.STRING, "latest",
        "Where the group begins in a partition: latest, earliest, or by_duration:PT1H, before which"
        " time records are passed over.",
        effect=True,
    ),
    TopicKey(
        "share.isolation.level", Kind.STRING, "read_uncommitted",
        "read_committed: records of aborted transactions are archived, those of open ones wait.",
        choices=("read_committed", "read_uncommitted"), effect=True,
    ),
    TopicKey(
        "share.renew.acknowledge.enable", Kind.BOOLEAN, "true",
        "Whether members may ask for more time.", effect=True,
    ),
    TopicKey(
        ORDER, Kind.STRING, "none",
        "key: no two records of a key are in flight at once, and those of a key are delivered in"
        " the order of their offsets; none: in any order. Not one of Kafka's.",
        choices=("none", "key"), effect=True,
    ),
    _served(
        RELEASE_DELAY, 0,
        "How long a record waits before it is delivered again that was released, or whose lock has"
        " passed; each further time twice as long. Not one of Kafka's.", 0, _WEEK_MS,
    ),
    _served(
        RELEASE_DELAY_MAX, 60_000,
        "The longest such wait; never shorter than the first. Not one of Kafka's.", 0, _WEEK_MS,
    ),
    _int("share.assignment.interval.ms", 1_000, 0, 15_000),
    _bool("share.assignor.offload.enable"),
    _int("streams.session.timeout.ms", 45_000, 45_000, 60_000),
    _int("streams.heartbeat.interval.ms", 5_000, 5_000, 15_000),
    _int("streams.num.standby.replicas", 0, 0, 2),
    _int("streams.initial.rebalance.delay.ms", 3_000),
    _int("streams.assignment.interval.ms", 1_000, 0, 15_000),
    _bool("streams.assignor.offload.enable"),
    _int("streams.task.offset.interval.ms", 60_000, 15_000),
    _int("streams.num.warmup.replicas", 2, 0, 20),
    TopicKey("streams.rack.aware.assignment.tags", Kind.LIST, "", KEPT_DOC),
    TopicKey("streams.acceptable.recovery.lag", Kind.LONG, "10000", KEPT_DOC, 0, _LONG_MAX),
    TopicKey("streams.assignor.name", Kind.STRING, "", KEPT_DOC, choices=("sticky",)),
)  # fmt: skip

GROUP_KEYS: Final[Mapping[str, TopicKey]] = types.MappingProxyType(
    {key.name: key for key in sorted(_KEYS)}
)


def foreign(before: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that only another release knows: replacing all the others leaves them."""
    return {name: value for name, value in before.items() if name not in GROUP_KEYS}


def changed(
    before: Mapping[str, str], changes: Sequence[Change], limits: GroupConfig
) -> dict[str, str]:
    """Apply changes to a group's settings. `limits`: what holds for all groups.

    Raises InvalidRequest, InvalidTopicConfig.
    """

    def items(name: str) -> list[str]:
        if name not in GROUP_KEYS or GROUP_KEYS[name].kind is not Kind.LIST:
            raise InvalidTopicConfig(f"{name} is not a list")
        return split(before.get(name, GROUP_KEYS[name].default))

    after = edited(before, changes, items)
    for change in changes:
        if change.name in after:
            after[change.name] = _checked(change.name, after[change.name], limits)
        elif change.name not in GROUP_KEYS and change.name not in before:
            raise InvalidTopicConfig(f"unknown group setting {change.name!r}")
    times = _within(after, limits)
    if times.session_timeout_ms <= times.heartbeat_interval_ms:
        raise InvalidTopicConfig(
            f"{SESSION} ({times.session_timeout_ms}) must be greater than {HEARTBEAT}"
            f" ({times.heartbeat_interval_ms})"
        )
    return after


def times_of(values: Mapping[str, str], limits: GroupConfig) -> ConsumerTimes:
    """Return what holds for a group's members, whoever stored its settings and when.

    If a session would not be longer than two heartbeats are apart, what all groups have holds.
    """
    times = _within(values, limits)
    if times.session_timeout_ms > times.heartbeat_interval_ms:
        return times
    return limits.common_times._replace(assignment_interval_ms=times.assignment_interval_ms)


def in_force(values: Mapping[str, str], limits: GroupConfig) -> dict[str, str]:
    """Return the values that hold of those that were set for a group, as far as they are known."""
    times = times_of(values, limits)
    served = dict(zip((SESSION, HEARTBEAT, ASSIGNMENT), map(str, times), strict=True))
    return {name: served.get(name, one) for name, one in values.items() if name in GROUP_KEYS}


def _bounds(limits: GroupConfig) -> dict[str, tuple[int, int]]:
    """Return between which values each setting may be: what all groups have is always allowed."""
    rows = zip(
        (SESSION, HEARTBEAT, ASSIGNMENT),
        limits.common_times, limits.consumer_times_min, limits.consumer_times_max,
        strict=True,
    )  # fmt: skip
    return {name: (min(one, least), max(one, most)) for name, one, least, most in rows}


def _checked(name: str, value: str, limits: GroupConfig) -> str:
    key = GROUP_KEYS.get(name)
    if key is None:
        raise InvalidTopicConfig(f"unknown group setting {name!r}")
    if len(value) > _TEXT_MAX:
        raise InvalidTopicConfig(f"{name} may have {_TEXT_MAX} characters, not {len(value)}")
    text = check_value(key, value)
    if key.kind is Kind.LIST and text and len(text.split(",")) != len(value.split(",")):
        raise InvalidTopicConfig(f"{name} has an item twice, or an empty one: {value!r}")
    if name == _DEAD_LETTERS and text.startswith(_INTERNAL):
        raise InvalidTopicConfig(f"{name} must not begin with {_INTERNAL}, as {text!r} does")
    if name == _AUTO_RESET and not _RESETS.fullmatch(text):
        raise InvalidTopicConfig(
            f"{name} must be latest, earliest or by_duration:PnDTnHnMn.nS, not {value!r}"
        )
    bounds = _bounds(limits)
    if name not in bounds:
        return text
    low, high = bounds[name]
    if not low <= int(text) <= high:
        least, most = (f"group.{name.replace('consumer.', f'consumer.{end}.')}" for end in _ENDS)
        raise InvalidTopicConfig(
            f"{name} must be between {low} ({least}) and {high} ({most}), not {text}"
        )
    return text


def _within(values: Mapping[str, str], limits: GroupConfig) -> ConsumerTimes:
    """Return a group's times, each within its bounds."""
    found = []
    bounds = _bounds(limits)
    for name, of_all in zip((SESSION, HEARTBEAT, ASSIGNMENT), limits.common_times, strict=True):
        text = values.get(name, "")
        low, high = bounds[name]
        # What is no number was stored by another release, or an editor.
        found.append(min(max(int(text), low), high) if text.isdecimal() else of_all)
    return ConsumerTimes(*found)
