"""Which of a broker's settings can be changed while it runs, what they change, and their values.

Each is known by Kafka's name and stands for a field of the configuration, or for the default of a
setting of topics. A value comes from the first of these that has it: what was set for this broker,
what was set for all brokers of the cluster, the broker's own configuration.

Sources: KIP-226 (dynamic broker configuration), KIP-339 (incremental changes). Kafka can change
fewer: those of groups, offsets and new topics need a restart there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.cluster.core.topic_config import KEPT_DOC, TOPIC_KEYS, Kind, TopicKey, check_value
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.topics.core.config_resource import Change, edited, split

EVERY_BROKER: Final = ""
"""Name of the resource whose settings are those of all brokers."""

_MINUTE_MS: Final = 60_000
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1

Values = Mapping[str, str]
"""Kafka's name of a setting -> its value in normal spelling."""


class Origin(enum.IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    BROKER = 2
    EVERY_BROKER = 3


class Given(NamedTuple):
    """One of the values that a setting was given."""

    name: str
    value: str
    origin: Origin


class DynamicKey(NamedTuple):
    """A setting that can be changed while brokers run: it has a field or a topic's key, or is kept
    for tools."""

    kind: Kind
    field: str = ""
    """The field of the configuration."""
    topic_key: str = ""
    """The setting of topics whose default it is."""
    unit: int = 1
    """How many of the field's units one of its own is."""
    kept: str = ""
    """What Kafka's default is, of a setting that means nothing here."""


FIELDS: Final[Mapping[str, DynamicKey]] = MappingProxyType(
    {
        "auto.create.topics.enable": DynamicKey(Kind.BOOLEAN, "auto_create_topics"),
        "default.replication.factor": DynamicKey(Kind.INT, "default_replication_factor"),
        "errors.deadletterqueue.auto.create.topics.enable": DynamicKey(
            Kind.BOOLEAN, "errors_deadletterqueue_auto_create_topics_enable"
        ),
        "errors.deadletterqueue.topic.name.prefix": DynamicKey(
            Kind.STRING, "errors_deadletterqueue_topic_name_prefix"
        ),
        "fetch.max.bytes": DynamicKey(Kind.INT, "fetch_bytes_max"),
        "group.consumer.assignment.interval.ms": DynamicKey(
            Kind.INT, "group_consumer_assignment_interval_ms"
        ),
        "group.consumer.heartbeat.interval.ms": DynamicKey(
            Kind.INT, "group_consumer_heartbeat_interval_ms"
        ),
        "group.consumer.max.assignment.interval.ms": DynamicKey(
            Kind.INT, "group_consumer_assignment_interval_max_ms"
        ),
        "group.consumer.max.heartbeat.interval.ms": DynamicKey(
            Kind.INT, "group_consumer_heartbeat_interval_max_ms"
        ),
        "group.consumer.max.session.timeout.ms": DynamicKey(
            Kind.INT, "group_consumer_session_timeout_max_ms"
        ),
        "group.consumer.max.size": DynamicKey(Kind.INT, "group_consumer_max_size"),
        "group.consumer.min.assignment.interval.ms": DynamicKey(
            Kind.INT, "group_consumer_assignment_interval_min_ms"
        ),
        "group.consumer.min.heartbeat.interval.ms": DynamicKey(
            Kind.INT, "group_consumer_heartbeat_interval_min_ms"
        ),
        "group.consumer.min.session.timeout.ms": DynamicKey(
            Kind.INT, "group_consumer_session_timeout_min_ms"
        ),
        "group.consumer.session.timeout.ms": DynamicKey(
            Kind.INT, "group_consumer_session_timeout_ms"
        ),
        "group.initial.rebalance.delay.ms": DynamicKey(
            Kind.INT, "group_initial_rebalance_delay_ms"
        ),
        "group.max.session.timeout.ms": DynamicKey(Kind.INT, "group_session_timeout_max_ms"),
        "group.max.size": DynamicKey(Kind.INT, "group_size_max"),
        "group.min.session.timeout.ms": DynamicKey(Kind.INT, "group_session_timeout_min_ms"),
        "group.share.assignment.interval.ms": DynamicKey(
            Kind.INT, "group_share_assignment_interval_ms"
        ),
        "group.share.delivery.count.limit": DynamicKey(
            Kind.INT, "group_share_delivery_count_limit"
        ),
        "group.share.heartbeat.interval.ms": DynamicKey(
            Kind.INT, "group_share_heartbeat_interval_ms"
        ),
        "group.share.max.size": DynamicKey(Kind.INT, "group_share_max_size"),
        "group.share.partition.max.record.locks": DynamicKey(
            Kind.INT, "group_share_partition_max_record_locks"
        ),
        "group.share.record.lock.duration.ms": DynamicKey(
            Kind.INT, "group_share_record_lock_duration_ms"
        ),
        "group.share.session.timeout.ms": DynamicKey(Kind.INT, "group_share_session_timeout_ms"),
        "max.connections": DynamicKey(Kind.INT, "connections_max"),
        "max.connections.per.ip": DynamicKey(Kind.INT, "connections_per_host_max"),
        "min.insync.replicas": DynamicKey(Kind.INT, "default_min_insync_replicas"),
        "num.partitions": DynamicKey(Kind.INT, "num_partitions"),
        "offset.metadata.max.bytes": DynamicKey(Kind.INT, "offset_metadata_bytes_max"),
        "offsets.retention.minutes": DynamicKey(
            Kind.INT, "offsets_retention_ms", unit=_MINUTE_MS
        ),
    }
)  # fmt: skip

_TOPIC_NAMES: Final[Mapping[str, str]] = {
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.local.retention.bytes": "local.retention.bytes",
    "log.local.retention.ms": "local.retention.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.remote.copy.lag.bytes": "remote.copy.lag.bytes",
    "log.remote.copy.lag.ms": "remote.copy.lag.ms",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "max.decompressed.message.bytes": "max.decompressed.message.bytes",
    "message.max.bytes": "max.message.bytes",
}

DEFAULTS_OF_TOPICS: Final[Mapping[str, DynamicKey]] = MappingProxyType(
    {name: DynamicKey(TOPIC_KEYS[key].kind, topic_key=key) for name, key in _TOPIC_NAMES.items()}
)

KEPT: Final[Mapping[str, DynamicKey]] = MappingProxyType(
    {
        name: DynamicKey(kind, kept=default)
        for name, kind, default in (
            ("background.threads", Kind.INT, "10"),
            ("log.cleaner.backoff.ms", Kind.LONG, "15000"),
            ("log.cleaner.dedupe.buffer.size", Kind.LONG, "134217728"),
            ("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, "0.9"),
            ("log.cleaner.io.buffer.size", Kind.INT, "524288"),
            ("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "1.7976931348623157E308"),
            ("log.cleaner.threads", Kind.INT, "1"),
            ("log.flush.interval.messages", Kind.LONG, str(_LONG_MAX)),
            ("log.index.interval.bytes", Kind.INT, "4096"),
            ("log.index.size.max.bytes", Kind.INT, "10485760"),
            ("log.preallocate", Kind.BOOLEAN, "false"),
            ("log.segment.delete.delay.ms", Kind.LONG, "60000"),
            ("num.io.threads", Kind.INT, "8"),
            ("num.network.threads", Kind.INT, "3"),
            ("num.recovery.threads.per.data.dir", Kind.INT, "2"),
            ("num.replica.fetchers", Kind.INT, "1"),
            ("sasl.kerberos.min.time.before.relogin", Kind.LONG, "60000"),
            ("unclean.leader.election.enable", Kind.BOOLEAN, "false"),
        )
    }
)
"""Kafka's dynamic settings of what is not here: a broker has no log directories, replica fetchers
or pools of threads. They are stored and told, as those of topics are, because tools set them."""

DYNAMIC: Final[Mapping[str, DynamicKey]] = MappingProxyType(
    {**FIELDS, **DEFAULTS_OF_TOPICS, **KEPT}
)
"""Kafka's name -> what it changes."""


def checked(name: str, value: str) -> str:
    """Return a value in normal spelling. Raises InvalidRequest, as Kafka calls it for brokers.

    Ranges of fields are the configuration's to check.
    """
    key = DYNAMIC.get(name)
    if key is None:
        raise InvalidRequest(f"{name} cannot be changed while a broker runs")
    if not key.field:
        try:
            return check_value(_as_of_topics(name, key), value)
        except InvalidTopicConfig as error:
            raise InvalidRequest(str(error)) from error
    if key.kind is Kind.STRING:
        return value.strip()
    text = value.strip().lower()
    if key.kind is Kind.BOOLEAN:
        if text not in ("true", "false"):
            raise InvalidRequest(f"{name} must be true or false, not {value!r}")
        return text
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequest(f"{name} must be a number, not {value!r}") from None
    if abs(number) > _INT_MAX:
        raise InvalidRequest(f"{name} must be at most {_INT_MAX}, not {text}")
    return str(number)


def _as_of_topics(name: str, key: DynamicKey) -> TopicKey:
    """Return which values a setting without a field takes."""
    if key.topic_key:
        return TOPIC_KEYS[key.topic_key]._replace(name=name)
    most = {Kind.INT: _INT_MAX, Kind.LONG: _LONG_MAX}.get(key.kind)
    least = None if most is None else 0
    return TopicKey(name, key.kind, key.kept, KEPT_DOC, least, most)


def foreign(before: Values) -> dict[str, str]:
    """Return the settings that only another release knows: replacing all the others leaves them."""
    return {name: value for name, value in before.items() if name not in DYNAMIC}


def changed(before: Values, changes: Sequence[Change]) -> dict[str, str]:
    """Apply changes to what was set. Resetting what is not set, or unknown, changes nothing.

    Raises InvalidRequest (a setting named twice, one that is not dynamic, no value, unknown
    operation, a bad value).
    """

    def items(name: str) -> list[str]:
        key = DYNAMIC.get(name)
        if key is None or key.kind is not Kind.LIST:
            raise InvalidRequest(f"{name} is not a list: set it as a whole")
        return split(before.get(name, TOPIC_KEYS[key.topic_key].default))

    after = edited(before, changes, items)
    now = [change.name for change in changes if change.name in after]
    return after | {name: checked(name, after[name]) for name in now}


def given(name: str, of_broker: Values, of_every: Values) -> list[Given]:
    """Return the values that a setting was given, the one that counts first."""
    layers = ((Origin.BROKER, of_broker), (Origin.EVERY_BROKER, of_every))
    return [Given(name, one[name], origin) for origin, one in layers if name in one]


def effective(of_broker: Values, of_every: Values) -> dict[str, str]:
    """Return what was set for a broker in any way, as far as this release knows it."""
    both = {**of_every, **of_broker}
    return {name: value for name, value in both.items() if name in DYNAMIC}


def fields_of(values: Values) -> dict[str, int | bool | str]:
    """Return the fields of the configuration that are not as its file says."""
    found: dict[str, int | bool | str] = {}
    for name, value in values.items():
        key = DYNAMIC[name]
        if key.field and key.kind is Kind.STRING:
            found[key.field] = value
        elif key.field:
            is_flag = key.kind is Kind.BOOLEAN
            found[key.field] = value == "true" if is_flag else int(value) * key.unit
    return found


def topic_defaults_of(values: Values) -> dict[str, str]:
    """Return the defaults of topics that are not Kafka's: a topic's key -> value."""
    return {key.topic_key: values[n] for n, key in DEFAULTS_OF_TOPICS.items() if n in values}
