"""Topic settings: which exist, what they mean, and which values they take.

A topic stores only what was set for it (`overrides`); everything else has the cluster-wide default,
or the one below. The keys are Kafka's, because tools read and write them by name: DescribeConfigs
lists every key with its value, and Connect, Streams and operators set many that have no effect
here. Those are checked, stored and returned; `effect` is false for them.

A stored setting that this release does not know, or whose value it does not take, was written by
another release. It is carried along as it is (`carried`), by everybody who writes the topic's node,
and the topic works with the settings that are known. In place of a value that is out of range the
nearest one holds, and in place of any other that is not taken the default; but never one that
deletes records which the stored value may want to keep (`TopicKey.safe`).

How Quire maps Kafka's terms: the replication factor is a ledger's write quorum,
`min.insync.replicas` its ack quorum, and `quire.ensemble.size` the number of bookies that the
entries of one ledger are striped over.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from broker.errors import InvalidTopicConfig
from client.wire.kafka.batches.records import Codec, Compression

UNLIMITED: Final = -1
_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_JVM_ARRAY_MAX: Final = _INT_MAX - 8
"""The largest array of a JVM, and so the largest record of Java's clients."""
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
    safe: str | None = None
    """What holds in place of a stored value that is not understood; None: the default."""


def _long(
    name: str,
    default: int,
    doc: str,
    at_least: int = 0,
    *,
    effect: bool = False,
    safe: int | None = None,
) -> TopicKey:
    in_place = None if safe is None else str(safe)
    return TopicKey(
        name, Kind.LONG, str(default), doc, at_least, _LONG_MAX, effect=effect, safe=in_place
    )


def _int(name: str, default: int, doc: str, at_least: int = 0, *, effect: bool = False) -> TopicKey:
    return TopicKey(name, Kind.INT, str(default), doc, at_least, _INT_MAX, effect=effect)


BATCH_BYTES_MAX: Final = 5_000_000
"""A batch is in one ledger entry, and bookies accept frames of 5 MiB (`nettyMaxFrameSizeBytes`)."""


def _bool(name: str, default: str, doc: str, *, effect: bool = False) -> TopicKey:
    return TopicKey(name, Kind.BOOLEAN, default, doc, effect=effect)


LOCAL_AS_RETENTION: Final = -2

KEPT_DOC: Final = "Stored for tools; no effect here."

_AS_PRODUCED: Final = "producer"
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""What `compression.type` calls them."""
_GZIP_LEVELS: Final = -1, *range(1, 10)
_NO_GZIP_LEVEL: Final = -1
"""Leaves it to the codec."""

_KEYS: Final = (
    TopicKey(
        "cleanup.policy", Kind.LIST, DELETE,
        "delete drops whole segments by age or size, compact keeps the last record per key; without"
        " either, all records are kept.",
        choices=(DELETE, COMPACT), effect=True, safe="",
    ),
    TopicKey(
        "compression.type", Kind.STRING, _AS_PRODUCED,
        "How batches are stored: producer keeps them as they come; any other value has the broker"
        " compress anew those that come with another codec.",
        choices=(*_CODECS, _AS_PRODUCED), effect=True,
    ),
    TopicKey(
        "compression.gzip.level", Kind.INT, str(_NO_GZIP_LEVEL),
        "Level of batches that the broker compresses with gzip; -1 for the default of the codec.",
        min(_GZIP_LEVELS), max(_GZIP_LEVELS), tuple(map(str, _GZIP_LEVELS)), effect=True,
    ),
    TopicKey(
        "compression.lz4.level", Kind.INT, "9",
        "Level of batches that the broker compresses with lz4.", 1, 17, effect=True,
    ),
    TopicKey(
        "compression.zstd.level", Kind.INT, "3",
        "Level of batches that the broker compresses with zstd.", -131_072, 22, effect=True,
    ),
    _long(
        "delete.retention.ms", _DAY_MS,
        "How long a compacted topic keeps tombstones after compaction.", effect=True,
        safe=_LONG_MAX,
    ),
    TopicKey(
        "errors.deadletterqueue.group.enable", Kind.BOOLEAN, "false",
        "Whether share groups may write their dead letters here.", effect=True,
    ),
    _long("file.delete.delay.ms", 60_000, KEPT_DOC),
    _long("flush.messages", _LONG_MAX, "No effect: every record is synced before its ack."),
    _long("flush.ms", _LONG_MAX, "No effect: every record is synced before its ack."),
    TopicKey("follower.replication.throttled.replicas", Kind.LIST, "", KEPT_DOC),
    _int("index.interval.bytes", 4096, KEPT_DOC),
    TopicKey("leader.replication.throttled.replicas", Kind.LIST, "", KEPT_DOC),
    _long(
        "local.retention.bytes", LOCAL_AS_RETENTION,
        "With remote.storage.enable: size of a partition's ledgers above which the oldest leave the"
        " bookies, once the object store has them; -1 for no limit, -2: as retention.bytes.",
        LOCAL_AS_RETENTION, effect=True, safe=UNLIMITED,
    ),
    _long(
        "local.retention.ms", LOCAL_AS_RETENTION,
        "With remote.storage.enable: age of a segment's newest record at which its ledger leaves"
        " the bookies, once the object store has it; -1 for no limit, -2: as retention.ms.",
        LOCAL_AS_RETENTION, effect=True, safe=UNLIMITED,
    ),
    _long(
        "max.compaction.lag.ms", _LONG_MAX, "Longest time before a record is compacted.", 1,
        effect=True,
    ),
    TopicKey(
        "max.decompressed.message.bytes", Kind.INT, str(_JVM_ARRAY_MAX),
        "Largest record of a compressed batch, decompressed. A batch with a larger one is refused;"
        " what is stored already stays readable and is compacted.",
        1, _JVM_ARRAY_MAX, effect=True,
    ),
    TopicKey(
        "max.message.bytes", Kind.INT, "1048588",
        f"Largest record batch, compressed, with its header. At most {BATCH_BYTES_MAX}: a batch is"
        " in one ledger entry, and bookies accept no larger ones.",
        0, BATCH_BYTES_MAX, effect=True,
        only_because="a batch is in one ledger entry, and bookies accept no larger ones",
    ),
    _bool("message.downconversion.enable", "true", KEPT_DOC),
    TopicKey("message.format.version", Kind.STRING, "3.0-IV1", KEPT_DOC),
    _long(
        "message.timestamp.after.max.ms", 3_600_000,
        "How far ahead of now a record's timestamp may be.", effect=True,
    ),
    _long(
        "message.timestamp.before.max.ms", _LONG_MAX,
        "How far behind now a record's timestamp may be.", effect=True,
    ),
    _long("message.timestamp.difference.max.ms", _LONG_MAX, KEPT_DOC),
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
    _bool("preallocate", "false", KEPT_DOC),
    TopicKey(
        "quire.ensemble.size", Kind.INT, "0",
        "Bookies that one ledger is striped over; 0 means the replication factor.",
        0, _INT_MAX, effect=True,
    ),
    _long(
        "remote.copy.lag.bytes", 0,
        "How many newer bytes a sealed segment waits for before it is copied to the object store;"
        " 0: none, -1: as many as local.retention.bytes. It is copied when either lag is over.",
        -1, effect=True,
    ),
    _long(
        "remote.copy.lag.ms", 0,
        "How old the newest record of a sealed segment is before it is copied to the object store;"
        " 0: any age, -1: as old as local.retention.ms. It is copied when either lag is over.",
        -1, effect=True,
    ),
    _bool(
        "remote.log.copy.disable", "false",
        "Copy nothing more to the object store, and keep what is there until retention takes it.",
        effect=True,
    ),
    _bool(
        "remote.log.delete.on.disable", "false",
        "Needed to set remote.storage.enable to false again: what the object store has is deleted,"
        " and what has no ledger any more is lost with it.", effect=True,
    ),
    _bool(
        "remote.storage.enable", "false",
        "Copy sealed segments to the object store of the brokers (offload.store_url).",
        effect=True,
    ),
    _long(
        "retention.bytes", UNLIMITED,
        "Size of a partition above which its oldest segments are deleted; -1 for no limit.",
        UNLIMITED, effect=True, safe=UNLIMITED,
    ),
    _long(
        "retention.ms", 7 * _DAY_MS,
        "Age of a segment's newest record at which the segment is deleted; -1 for no limit.",
        UNLIMITED, effect=True, safe=UNLIMITED,
    ),
    _int("segment.bytes", 1 << 30, "Size at which a segment is rolled.", 14, effect=True),
    _int("segment.index.bytes", 10_485_760, KEPT_DOC, 4),
    _long("segment.jitter.ms", 0, KEPT_DOC),
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
        why = f": {key.only_because}" if key.only_because else ""
        raise InvalidTopicConfig(f"{key.name} must be between {low} and {high}, not {text}{why}")
    _check_choice(key, str(number))
    return str(number)


def _in_place_of(key: TopicKey, raw: Any) -> str:
    """Return what holds instead of a stored value that `check_value` refuses."""
    other = key.default if key.safe is None else key.safe
    if key.at_least is None or not isinstance(raw, str | int | float):
        return other
    convert: Callable[[Any], float] = float if key.kind is Kind.DOUBLE else int
    try:
        number = convert(raw)
    except (ValueError, OverflowError):
        return other
    if number < key.at_least:
        return str(convert(key.at_least))
    if key.at_most is not None and number > key.at_most:
        return str(convert(key.at_most))
    return other


def _compression(value: Callable[[str], str]) -> Compression | None:
    name = value("compression.type")
    codec = _CODECS.get(name)
    if codec is None:
        return None
    if codec in (Codec.NONE, Codec.SNAPPY):
        return Compression(codec)
    level = int(value(f"compression.{name}.level"))
    is_left = codec is Codec.GZIP and level == _NO_GZIP_LEVEL
    return Compression(codec, None if is_left else level)


class RemoteStorage(NamedTuple):
    """What a topic has in the object store, and for how long on bookies as well."""

    is_on: bool = False
    copies: bool = True
    """Whether sealed segments are still copied."""
    deletes: bool = False
    """Whether what is in the store goes when it is off."""
    local_ms: int = UNLIMITED
    local_bytes: int = UNLIMITED
    """How long ledgers stay that were copied; -1: for ever."""
    lag_ms: int = 0
    lag_bytes: int = 0
    """Which segments are copied: those of which either holds. -1: it never does."""


NO_REMOTE_STORAGE: Final = RemoteStorage(local_ms=7 * _DAY_MS)


def _remote_storage(value: Callable[[str], str]) -> RemoteStorage:
    def local(unit: str) -> int:
        own, whole = int(value(f"local.retention.{unit}")), int(value(f"retention.{unit}"))
        if own == LOCAL_AS_RETENTION:
            return whole
        return own if whole == UNLIMITED else (whole if own == UNLIMITED else min(own, whole))

    def lag(unit: str) -> int:
        own = int(value(f"remote.copy.lag.{unit}"))
        return local(unit) if own == UNLIMITED else own

    return RemoteStorage(
        value("remote.storage.enable") == "true",
        value("remote.log.copy.disable") == "false",
        value("remote.log.delete.on.disable") == "true",
        local("ms"),
        local("bytes"),
        lag("ms"),
        lag("bytes"),
    )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic that Quire acts on, and the overrides they come from."""

    overrides: Mapping[str, str] = field(default_factory=dict)
    """What was set for this topic: key -> normalized value."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Cluster-wide values that replace the defaults below; already checked."""
    carried: Mapping[str, Any] = field(default_factory=dict)
    """Stored settings that this release does not understand, as they are: those it does not know,
    and values that it does not take, in whose place others hold."""
    cleanup_policy: tuple[str, ...] = (DELETE,)
    compression: Compression | None = None
    """How batches are stored; None: as their producers compressed them."""
    max_decompressed_message_bytes: int = _JVM_ARRAY_MAX
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
    remote: RemoteStorage = NO_REMOTE_STORAGE
    takes_dead_letters: bool = False

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
            compression=_compression(value),
            max_decompressed_message_bytes=int(value("max.decompressed.message.bytes")),
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
            remote=_remote_storage(value),
            takes_dead_letters=value("errors.deadletterqueue.group.enable") == "true",
        )

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> TopicConfig:
        """Read what is stored of a topic, whichever release wrote it."""
        taken: dict[str, str] = {}
        carried: dict[str, Any] = {}
        for name, raw in stored.items():
            key = TOPIC_KEYS.get(name)
            if key is None:
                carried[name] = raw
                continue
            try:
                if not isinstance(raw, str):
                    raise InvalidTopicConfig(f"{name} is not stored as text")
                taken[name] = check_value(key, raw)
            except InvalidTopicConfig:
                carried[name] = raw
                taken[name] = _in_place_of(key, raw)
        return replace(cls.parse(taken), carried=types.MappingProxyType(carried))

    def stored(self) -> dict[str, Any]:
        """Return what is to be stored of a topic: what was set, and what is carried along."""
        return {**self.overrides, **self.carried}

    def after(self, before: TopicConfig) -> TopicConfig:
        """Return these settings with what has to be carried along of those that they replace: all
        that this release does not know, and values that nobody has set anew."""
        kept = {
            name: raw
            for name, raw in before.carried.items()
            if name not in TOPIC_KEYS or before.overrides[name] == self.overrides.get(name)
        }
        return replace(self, carried=types.MappingProxyType(kept)) if kept else self

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
        return replace(TopicConfig.parse(self.overrides, defaults), carried=self.carried)
