"""Lists a broker's settings under the names that Kafka's tools look for.

None of them can be changed while the broker runs. Their texts are those of the configuration file,
which has its own names for them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind
from broker.cluster.core.topology import Endpoint
from broker.config import BrokerConfig
from broker.front.configs.listing import Listed, Source
from broker.front.endpoints import listeners_of
from broker.topics.core.topic_rules import BROKER_DECIDES
from client.config import settings_of

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000

_AS_CONFIGURED: Final[Mapping[str, tuple[str, Kind]]] = {
    "auto.create.topics.enable": ("auto_create_topics", Kind.BOOLEAN),
    "broker.id": ("node_id", Kind.INT),
    "broker.rack": ("rack", Kind.STRING),
    "connections.max.idle.ms": ("connection_idle_ms", Kind.LONG),
    "default.replication.factor": ("default_replication_factor", Kind.INT),
    "fetch.max.bytes": ("fetch_bytes_max", Kind.INT),
    "group.initial.rebalance.delay.ms": ("group_initial_rebalance_delay_ms", Kind.INT),
    "group.max.session.timeout.ms": ("group_session_timeout_max_ms", Kind.INT),
    "group.max.size": ("group_size_max", Kind.INT),
    "group.min.session.timeout.ms": ("group_session_timeout_min_ms", Kind.INT),
    "min.insync.replicas": ("default_min_insync_replicas", Kind.INT),
    "node.id": ("node_id", Kind.INT),
    "num.partitions": ("num_partitions", Kind.INT),
    "offset.metadata.max.bytes": ("offset_metadata_bytes_max", Kind.INT),
    "offsets.topic.num.partitions": ("offsets_topic_partitions", Kind.INT),
    "producer.id.expiration.ms": ("producer_expiration_ms", Kind.INT),
    "socket.request.max.bytes": ("request_bytes_max", Kind.INT),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "transactions.timeout_interval_ms", Kind.INT,
    ),
    "transaction.max.timeout.ms": ("transactions.timeout_max_ms", Kind.INT),
    "transaction.state.log.num.partitions": ("transactions.topic_partitions", Kind.INT),
    "transactional.id.expiration.ms": ("transactions.id_expiration_ms", Kind.INT),
    "zookeeper.connect": ("zookeeper", Kind.STRING),
    "zookeeper.session.timeout.ms": ("session_timeout_ms", Kind.INT),
}  # fmt: skip
"""Kafka's name -> ours, and its type."""

_DEFAULTS_OF_TOPICS: Final[Mapping[str, str]] = {
    "log.cleanup.policy": "cleanup.policy",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
}
"""The broker's name -> the topic's."""


def broker_settings(
    config: BrokerConfig, endpoints: Mapping[str, Endpoint], admin_urls: Sequence[str] = ()
) -> Iterable[Listed]:
    """Return a broker's settings, sorted by name.

    `endpoints`: those that it registered, by listener.
    `admin_urls`: of all live brokers. With them, and `zookeeper.connect`, whoever knows one Kafka
    address finds everything else of the cluster.
    """
    rows = [
        *(
            _listed(name, attrgetter(key)(config), kind, _doc(key))
            for name, (key, kind) in _AS_CONFIGURED.items()
        ),
        *(
            _listed(name, TOPIC_KEYS[key].default, TOPIC_KEYS[key].kind, TOPIC_KEYS[key].doc)
            for name, key in _DEFAULTS_OF_TOPICS.items()
        ),
        *_listener_rows(config, endpoints),
        *_derived(config, admin_urls),
    ]
    return sorted(rows)


def _listener_rows(config: BrokerConfig, endpoints: Mapping[str, Endpoint]) -> Iterable[Listed]:
    told = [f"{name}://{one.host}:{one.port}" for name, one in endpoints.items()]
    yield _listed(
        "advertised.listeners", told, Kind.LIST,
        "Where clients are told to connect: security.advertised_listeners, or advertised_host and"
        " advertised_port.",
    )  # fmt: skip
    yield _listed(
        "inter.broker.listener.name", config.security.inter_broker_name, Kind.STRING,
        _doc("security.inter_broker_listener"),
    )  # fmt: skip
    kinds = [f"{name}:{one.protocol}" for name, one in endpoints.items()]
    yield _listed(
        "listener.security.protocol.map", kinds, Kind.LIST, _doc("security.listener_protocols")
    )
    bound = [
        f"{name}://{bind.host}:{bind.port or endpoints[name].port}"
        for name, _, bind, _ in listeners_of(config)
    ]
    yield _listed(
        "listeners", bound, Kind.LIST,
        "Where the broker listens: security.listeners, or listen_host and port.",
    )  # fmt: skip


def _derived(config: BrokerConfig, admin_urls: Sequence[str]) -> Iterable[Listed]:
    """Return the settings that are none of ours by themselves."""
    yield _listed("delete.topic.enable", True, Kind.BOOLEAN, "Topics can always be deleted.")
    yield _listed(
        "inter.broker.protocol.version", "3.9-IV0", Kind.STRING,
        "Kept for tools, which conclude from it what they may ask for.",
    )  # fmt: skip
    yield _listed(
        "log.dirs", "ledgers", Kind.STRING, "Stands for the bookies: a broker holds no data."
    )
    retention = TOPIC_KEYS["retention.ms"]
    hours = int(retention.default) // _HOUR_MS
    yield _listed("log.retention.hours", hours, Kind.INT, "log.retention.ms, in hours.")
    minutes = config.offsets_retention_ms // _MINUTE_MS
    yield _listed("offsets.retention.minutes", minutes, Kind.INT, _doc("offsets_retention_ms"))
    yield _listed(
        "offsets.topic.replication.factor", BROKER_DECIDES, Kind.INT,
        "-1: as for topics whose creator did not say.",
    )  # fmt: skip
    yield _listed(
        "quire.admin.urls", admin_urls, Kind.LIST, "Where live brokers serve the admin API."
    )


def _listed(name: str, value: object, kind: Kind, doc: str) -> Listed:
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, list | tuple):
        text = ",".join(value)
    else:
        text = "" if value is None else str(value)
    return Listed(name, text, Source.STATIC_BROKER, kind, doc, read_only=True)


@functools.cache
def _docs() -> Mapping[str, str]:
    return {declared.key: declared.doc for declared in settings_of(BrokerConfig)}


def _doc(key: str) -> str:
    return f"{_docs()[key]} In the broker's configuration: {key}."
