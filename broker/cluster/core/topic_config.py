"""Topic settings: which exist, what they mean, and which values they take.

A topic stores only what was set for it (`overrides`); everything else has the cluster-wide default,
or the one below. The keys are Kafka's, because tools read and write them by name: DescribeConfigs
lists every key with its value, and Connect, Streams and operators set many that have no effect
here. Those are checked, stored and returned; `effect` is false for them.

How Quire maps Kafka's terms: the replication factor is a ledger's write quorum,
`min.insync.replicas` its ack quorum, and `quire.ensemble.size` the number of bookies that the
entries of one ledger are striped over.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.errors import InvalidTopicConfig

UNLIMITED: Final = -1
_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_DAY_MS: Final = 86_400_000

DELETE: Final = "delete"
COMPACT: Final = "compact"


class Kind(enum.IntEnum):
    """Type of a setting, as DescribeConfigs numbers them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class TopicKey(NamedTuple):
    """One setting of a topic."""

    name: str
    kind: Kind
    default: str
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    effect: bool = False
    """Whether Quire acts on it; otherwise it is only stored."""
    only_because: str = ""
    """Why there are no other choices: part of the error message."""


def _long(
    name: str, default: int, doc: str, at_least: int = 0, *, effect: bool = False
) -> TopicKey:
    return TopicKey(name, Kind.LONG, str(default), doc, at_least, _LONG_MAX, effect=effect)


def _int(name: str, default: int, doc: str, at_least: int = 0, *, effect: bool = False) -> TopicKey:
    return TopicKey(name, Kind.INT, str(default), doc, at_least, _INT_MAX, effect=effect)


def _bool(name: str, default: str, doc: str) -> TopicKey:
    return TopicKey(name, Kind.BOOLEAN, default, doc)


_KEPT: Final = "Stored for tools; no effect here."

_AS_PRODUCED: Final = (
    "batches are stored and sent as their producers compressed them; set compression.type of the"
    " producers"
)
"""Kafka's brokers recompress batches that use another codec: they decode each batch, and give it a
new checksum. Here batches stay unopened, under the producer's checksum, from end to end. That is
worth more than choosing the codec in one place."""

_KEYS: Final = (
    TopicKey(
        "cleanup.policy", Kind.LIST, DELETE,
        "delete drops whole segments by age or size, compact keeps the last record per key; without"
        " either, all records are kept.",
        choices=(DELETE, COMPACT), effect=True,
    ),
    TopicKey(
        "compression.type", Kind.STRING, "producer",
        "Batches are stored as the producer compressed them; nothing else is possible.",
        choices=("producer",), only_because=_AS_PRODUCED,
    ),
    _int("compression.gzip.level", -1, _KEPT, -1),
    _int("compression.lz4.level", 9, _KEPT, 1),
    _int("compression.zstd.level", 3, _KEPT, -131072),
    _long(
        "delete.retention.ms", _DAY_MS,
        "How long a compacted topic keeps tombstones after compaction.", effect=True,
    ),
    _long("file.delete.delay.ms", 60_000, _KEPT),
    _long("flush.messages", _LONG_MAX, "No effect: every record is synced before its ack."),
    _long("flush.ms", _LONG_MAX, "No effect: every record is synced before its ack."),
    TopicKey("follower.replication.throttled.replicas", Kind.LIST, "", _KEPT),
    _int("index.interval.bytes", 4096, _KEPT),
    TopicKey("leader.replication.throttled.replicas", Kind.LIST, "", _KEPT),
    _long("local.retention.bytes", -2, _KEPT, -2),
    _long("local.retention.ms", -2, _KEPT, -2),
    _long(
        "max.compaction.lag.ms", _LONG_MAX, "Longest time before a record is compacted.", 1,
        effect=True,
    ),
    _int(
        "max.message.bytes", 1_048_588, "Largest record batch, compressed, with its header.",
        effect=True,
    ),
    _bool("message.downconversion.enable", "true", _KEPT),
    TopicKey("message.format.version", Kind.STRING, "3.0-IV1", _KEPT),
    _long(
        "message.timestamp.after.max.ms", 3_600_000,
        "How far ahead of now a record's timestamp may be.", effect=True,
    ),
    _long(
        "message.timestamp.before.max.ms", _LONG_MAX,
        "How far behind now a record's timestamp may be.", effect=True,
    ),
    _long("message.timestamp.difference.max.ms", _LONG_MAX, _KEPT),
    TopicKey(
        "message.timestamp.type", Kind.STRING, "CreateTime",
        "Who sets the timestamps of records: the producer or the broker.",
        choices=("CreateTime", "LogAppendTime"), effect=True,
    ),
    TopicKey(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5",
        "Share of uncompacted bytes above which a partition is compacted.", 0, 1, effect=True,
    ),
    _long(
        "min.compaction.lag.ms", 0, "Shortest time before a record is compacted.", effect=True
    ),
    _int(
        "min.insync.replicas", 2,
        "Ack quorum: how many bookies must have synced a record before it is acknowledged. At most"
        " the replication factor.", 1, effect=True,
    ),
    _bool("preallocate", "false", _KEPT),
    TopicKey(
        "quire.ensemble.size", Kind.INT, "0",
        "Bookies that one ledger is striped over; 0 means the replication factor.",
        0, _INT_MAX, effect=True,
    ),
    _bool("remote.log.copy.disable", "false", _KEPT),
    _bool("remote.log.delete.on.disable", "false", _KEPT),
    _bool("remote.storage.enable", "false", _KEPT),
    _long(
        "retention.bytes", UNLIMITED,
        "Size of a partition above which its oldest segments are deleted; -1 for no limit.",
        UNLIMITED, effect=True,
    ),
    _long(
        "retention.ms", 7 * _DAY_MS,
        "Age of a segment's newest record at which the segment is deleted; -1 for no limit.",
        UNLIMITED, effect=True,
    ),
    _int("segment.bytes", 1 << 30, "Size at which a segment is rolled.", 14, effect=True),
    _int("segment.index.bytes", 10_485_760, _KEPT, 4),
    _long("segment.jitter.ms", 0, _KEPT),
    _long("segment.ms", 7 * _DAY_MS, "Age at which a segment is rolled.", 1, effect=True),
    _bool(
        "unclean.leader.election.enable", "false", "No effect: there are no unclean elections."
    ),
)  # fmt: skip

TOPIC_KEYS: Final[Mapping[str, TopicKey]] = types.MappingProxyType({key.name: key for key in _KEYS})


NO_DEFAULTS: Final[Mapping[str, str]] = types.MappingProxyType({})


def check_value(key: TopicKey, value: str) -> str:
    """Return the value in its normalized form. Raises InvalidTopicConfig."""
    text = value.strip()
    if key.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise InvalidTopicConfig(f"{key.name} must be true or false, not {value!r}")
        return text.lower()
    if key.kind is Kind.LIST:
        items = [item.strip() for item in text.split(",") if item.strip()]
        for item in items:
            _check_choice(key, item)
        return ",".join(dict.fromkeys(items))
    if key.kind is Kind.STRING:
        _check_choice(key, text)
        return text
    return _check_number(key, text)


def _check_choice(key: TopicKey, value: str) -> None:
    if key.choices and value not in key.choices:
        why = f": {key.only_because}" if key.only_because else ""
        raise InvalidTopicConfig(
            f"{key.name} must be one of {', '.join(key.choices)}, not {value!r}{why}"
        )


def _check_number(key: TopicKey, text: str) -> str:
    convert: Callable[[str], float] = float if key.kind is Kind.DOUBLE else int
    try:
        number = convert(text)
    except ValueError:
        raise InvalidTopicConfig(f"{key.name} must be a number, not {text!r}") from None
    low, high = key.at_least, key.at_most
    # Written so that NaN fails too.
    if (low is not None and not number >= low) or (high is not None and not number <= high):
        raise InvalidTopicConfig(f"{key.name} must be between {low} and {high}, not {text}")
    return str(number)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic that Quire acts on, and the overrides they come from."""

    overrides: Mapping[str, str] = field(default_factory=dict)
    """What was set for this topic: key -> normalized value."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Cluster-wide values that replace the defaults below; already checked."""
    cleanup_policy: tuple[str, ...] = (DELETE,)
    max_message_bytes: int = 1_048_588
    timestamp_before_max_ms: int = _LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    log_append_time: bool = False
    min_insync_replicas: int = 2
    ensemble_size: int = 0
    """0 means the replication factor."""
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    dirty_ratio_min: float = 0.5
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = _LONG_MAX
    delete_retention_ms: int = _DAY_MS

    @classmethod
    def parse(
        cls, overrides: Mapping[str, str], defaults: Mapping[str, str] = NO_DEFAULTS
    ) -> TopicConfig:
        """Check every key and value of `overrides`. Raises InvalidTopicConfig."""
        checked: dict[str, str] = {}
        for name in sorted(overrides):
            key = TOPIC_KEYS.get(name)
            if key is None:
                raise InvalidTopicConfig(f"unknown topic setting {name!r}")
            checked[name] = check_value(key, overrides[name])

        def value(name: str) -> str:
            return checked.get(name, defaults.get(name, TOPIC_KEYS[name].default))

        return cls(
            overrides=types.MappingProxyType(checked),
            defaults=defaults,
            cleanup_policy=tuple(filter(None, value("cleanup.policy").split(","))),
            max_message_bytes=int(value("max.message.bytes")),
            timestamp_before_max_ms=int(value("message.timestamp.before.max.ms")),
            timestamp_after_max_ms=int(value("message.timestamp.after.max.ms")),
            log_append_time=value("message.timestamp.type") == "LogAppendTime",
            min_insync_replicas=int(value("min.insync.replicas")),
            ensemble_size=int(value("quire.ensemble.size")),
            retention_bytes=int(value("retention.bytes")),
            retention_ms=int(value("retention.ms")),
            segment_bytes=int(value("segment.bytes")),
            segment_ms=int(value("segment.ms")),
            dirty_ratio_min=float(value("min.cleanable.dirty.ratio")),
            compaction_lag_ms_min=int(value("min.compaction.lag.ms")),
            compaction_lag_ms_max=int(value("max.compaction.lag.ms")),
            delete_retention_ms=int(value("delete.retention.ms")),
        )

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return DELETE in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether records are compacted by key, so that every record needs a key."""
        return COMPACT in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """Age at which a segment is rolled: for compacted topics, early enough for
        `max.compaction.lag.ms`."""
        return (
            min(self.segment_ms, self.compaction_lag_ms_max) if self.compacts else self.segment_ms
        )

    def value(self, name: str) -> str:
        """Return a setting's value as text: its default if it was not set."""
        default = self.defaults.get(name, TOPIC_KEYS[name].default)
        return self.overrides.get(name, default)

    def with_defaults(self, defaults: Mapping[str, str]) -> TopicConfig:
        """Return the same topic's settings in a cluster with other defaults."""
        return TopicConfig.parse(self.overrides, defaults)
