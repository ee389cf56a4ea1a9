"""Lists settings the way Kafka's admin requests do.

A list has every known key of a topic with its value, source, type and text, and the broker settings
under the names that Kafka's tools look for. Tools read, modify and write back whole lists, so
nothing may be left out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind
from broker.cluster.core.topology import Endpoint, TopicInfo
from broker.config import BrokerConfig
from broker.front.endpoints import inter_broker_listener, listeners_of
from broker.topics.core.topic_rules import BROKER_DECIDES

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


class Source(enum.IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Listed(NamedTuple):
    """One setting."""

    name: str
    value: str
    source: Source
    kind: Kind
    doc: str
    read_only: bool

    def fields(self, *, synonyms: bool, docs: bool) -> dict[str, Any]:
        """Return the fields of CreateTopics and DescribeConfigs answers."""
        same = {"name": self.name, "value": self.value, "source": self.source}
        return {
            "name": self.name,
            "value": self.value,
            "read_only": self.read_only,
            "config_source": self.source,
            "is_sensitive": False,
            "synonyms": [same] if synonyms else [],
            "config_type": self.kind,
            "documentation": self.doc if docs else None,
        }


def topic_settings(topic: TopicInfo) -> Iterable[Listed]:
    """Return every setting of a topic."""
    effective = {
        "min.insync.replicas": str(topic.ack_quorum),
        "quire.ensemble.size": str(topic.ensemble_size),
    }
    for key in TOPIC_KEYS.values():
        overridden = key.name in topic.config.overrides
        value = topic.config.value(key.name) if overridden else effective.get(key.name, key.default)
        source = Source.TOPIC if overridden else Source.DEFAULT
        yield Listed(key.name, value, source, key.kind, key.doc, read_only=False)


def broker_settings(
    config: BrokerConfig, endpoints: Mapping[str, Endpoint], admin_urls: Sequence[str] = ()
) -> Iterable[Listed]:
    """Return a broker's settings under Kafka's names; none can be changed while it runs.

    `endpoints`: those that it registered.
    `admin_urls`: of all live brokers. With them, and `zookeeper.connect`, whoever knows one Kafka
    address finds everything else of the cluster.
    """
    retention_ms = TOPIC_KEYS["retention.ms"].default
    bound = [
        f"{name}://{bind.host}:{bind.port or endpoints[name].port}"
        for name, _, bind, _ in listeners_of(config)
    ]
    told = [f"{name}://{one.host}:{one.port}" for name, one in endpoints.items()]
    kinds = [f"{name}:{one.protocol}" for name, one in endpoints.items()]
    rows: tuple[tuple[str, object, Kind], ...] = (
        ("advertised.listeners", ",".join(told), Kind.STRING),
        ("auto.create.topics.enable", config.auto_create_topics, Kind.BOOLEAN),
        ("broker.id", config.node_id, Kind.INT),
        ("broker.rack", config.rack or "", Kind.STRING),
        ("connections.max.idle.ms", config.connection_idle_ms, Kind.LONG),
        ("default.replication.factor", config.default_replication_factor, Kind.INT),
        ("delete.topic.enable", True, Kind.BOOLEAN),
        ("fetch.max.bytes", config.fetch_bytes_max, Kind.INT),
        (
            "group.initial.rebalance.delay.ms",
            config.group_initial_rebalance_delay_ms,
            Kind.INT,
        ),
        ("group.max.session.timeout.ms", config.group_session_timeout_max_ms, Kind.INT),
        ("group.max.size", config.group_size_max, Kind.INT),
        ("group.min.session.timeout.ms", config.group_session_timeout_min_ms, Kind.INT),
        ("inter.broker.listener.name", inter_broker_listener(config), Kind.STRING),
        ("inter.broker.protocol.version", "3.9-IV0", Kind.STRING),
        ("listener.security.protocol.map", ",".join(kinds), Kind.STRING),
        ("listeners", ",".join(bound), Kind.STRING),
        ("log.cleanup.policy", TOPIC_KEYS["cleanup.policy"].default, Kind.LIST),
        ("log.dirs", "ledgers", Kind.STRING),
        ("log.message.timestamp.type", "CreateTime", Kind.STRING),
        ("log.retention.bytes", TOPIC_KEYS["retention.bytes"].default, Kind.LONG),
        ("log.retention.hours", int(retention_ms) // _HOUR_MS, Kind.INT),
        ("log.retention.ms", retention_ms, Kind.LONG),
        ("log.segment.bytes", TOPIC_KEYS["segment.bytes"].default, Kind.INT),
        ("message.max.bytes", TOPIC_KEYS["max.message.bytes"].default, Kind.INT),
        ("min.insync.replicas", config.default_min_insync_replicas, Kind.INT),
        ("node.id", config.node_id, Kind.INT),
        ("num.partitions", config.num_partitions, Kind.INT),
        ("offset.metadata.max.bytes", config.offset_metadata_bytes_max, Kind.INT),
        ("offsets.retention.minutes", config.offsets_retention_ms // _MINUTE_MS, Kind.INT),
        ("offsets.topic.num.partitions", config.offsets_topic_partitions, Kind.INT),
        ("offsets.topic.replication.factor", BROKER_DECIDES, Kind.INT),
        ("producer.id.expiration.ms", config.producer_expiration_ms, Kind.INT),
        ("quire.admin.urls", ",".join(admin_urls), Kind.LIST),
        ("socket.request.max.bytes", config.request_bytes_max, Kind.INT),
        ("zookeeper.connect", ",".join(config.zookeeper), Kind.STRING),
        ("zookeeper.session.timeout.ms", config.session_timeout_ms, Kind.INT),
    )
    for name, value, kind in rows:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield Listed(name, text, Source.STATIC_BROKER, kind, "", read_only=True)


def select(settings: Iterable[Listed], names: Collection[str] | None) -> list[Listed]:
    """Keep the named settings, or all if no names are given (null or none, as Kafka reads it)."""
    wanted = frozenset(names or ())
    return [setting for setting in settings if not wanted or setting.name in wanted]
