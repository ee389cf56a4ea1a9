"""Lists settings the way Kafka's admin requests do: of topics, groups, brokers, and subscriptions.

A list has every known key with its value, source, type and text. Tools read, modify and write back
whole lists, so nothing may be left out, and a group has all of them whether it exists or not.

A broker's settings are listed under the names that Kafka's tools look for. Some can be changed
while the broker runs (`broker/settings/core/dynamic_settings.py`). Their texts are those of the
configuration file, which has its own names for them.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from broker.cluster.core.topic_config import KEPT_DOC, TOPIC_KEYS, Kind
from broker.cluster.core.topology import Endpoint, TopicInfo
from broker.config import BrokerConfig
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.front.endpoints import listeners_of
from broker.groups.core.group_settings import BROKER_NAMES, GROUP_KEYS, in_force
from broker.groups.core.group_types import GroupConfig
from broker.settings.core import client_metrics
from broker.settings.core.dynamic_settings import DYNAMIC, EVERY_BROKER, DynamicKey, Given
from broker.settings.live_settings import LiveSettings
from broker.topics.core.topic_rules import BROKER_DECIDES
from client.config import settings_of
from client.errors import QuireError

_HOUR_MS: Final = 3_600_000

AS_CONFIGURED: Final[Mapping[str, tuple[str, Kind]]] = {
    "broker.id": ("node_id", Kind.INT),
    "broker.rack": ("rack", Kind.STRING),
    "connections.max.idle.ms": ("connection_idle_ms", Kind.LONG),
    "connections.max.reauth.ms": ("security.sasl_reauth_max_ms", Kind.LONG),
    "node.id": ("node_id", Kind.INT),
    "offsets.topic.num.partitions": ("offsets_topic_partitions", Kind.INT),
    "producer.id.expiration.ms": ("producer_expiration_ms", Kind.INT),
    "replica.selector.class": ("follower.selector", Kind.STRING),
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

_FIXED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("advertised.listeners", "inter.broker.listener.name", "listener.security.protocol.map",
         "listeners"),
        "listeners are opened when a broker starts; set them in its configuration, and restart it",
    ),
    "delete.topic.enable": "topics can always be deleted",
    "inter.broker.protocol.version": "brokers agree on features by themselves",
    "log.dirs": "a broker holds no data",
    "log.retention.hours": "set log.retention.ms",
    "log.retention.minutes": "set log.retention.ms",
    "log.roll.hours": "set log.roll.ms",
    "offsets.topic.replication.factor": "it is as for topics whose creator did not say",
    "quire.admin.urls": "brokers tell each other where they serve it",
    "follower.replication.throttled.rate": "brokers hold no copies, so nothing is copied",
    "leader.replication.throttled.rate": "brokers hold no copies, so nothing is copied",
}  # fmt: skip
"""Kafka's name -> why it is not changed while a broker runs."""


class Source(enum.IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A value that a setting would have, were it not for what comes before."""

    name: str
    value: str
    source: Source


class Listed(NamedTuple):
    """One setting."""

    name: str
    value: str
    source: Source
    kind: Kind
    doc: str
    read_only: bool
    synonyms: Sequence[Synonym] = ()
    """Where its value comes from, and where it would come from otherwise; none: just from there."""

    def fields(self, *, synonyms: bool, docs: bool) -> dict[str, Any]:
        """Return the fields of CreateTopics and DescribeConfigs answers."""
        same = self.synonyms or (Synonym(self.name, self.value, self.source),)
        return {
            "name": self.name,
            "value": self.value,
            "read_only": self.read_only,
            "config_source": self.source,
            "is_sensitive": False,
            "synonyms": [one._asdict() for one in same] if synonyms else [],
            "config_type": self.kind,
            "documentation": self.doc if docs else None,
        }


def topic_settings(topic: TopicInfo, given: Mapping[str, Sequence[Given]]) -> Iterable[Listed]:
    """Return every setting of a topic. `given`: key -> what the cluster's default was made."""
    effective = {
        "min.insync.replicas": str(topic.ack_quorum),
        "quire.ensemble.size": str(topic.ensemble_size),
    }
    for key in TOPIC_KEYS.values():
        rows = [Synonym(key.name, effective.get(key.name, key.default), Source.DEFAULT)]
        rows[:0] = [Synonym(*one[:2], Source(one.origin)) for one in given.get(key.name, ())]
        if key.name in topic.config.overrides:
            rows.insert(0, Synonym(key.name, topic.config.overrides[key.name], Source.TOPIC))
        first = rows[0]
        yield Listed(key.name, first.value, first.source, key.kind, key.doc, False, rows)


def subscription_settings(values: Mapping[str, str]) -> Iterable[Listed]:
    """Return every setting of a subscription to metrics of clients."""
    for name, (kind, default, doc) in client_metrics.KEYS.items():
        rows = [Synonym(name, default, Source.DEFAULT)]
        if name in values:
            rows.insert(0, Synonym(name, values[name], Source.CLIENT_METRICS))
        yield Listed(name, rows[0].value, rows[0].source, kind, doc, False, rows)


def select(settings: Iterable[Listed], names: Collection[str] | None) -> list[Listed]:
    """Keep the named settings, or all if no names are given (null or none, as Kafka reads it)."""
    wanted = frozenset(names or ())
    return [setting for setting in settings if not wanted or setting.name in wanted]


def broker_settings(
    settings: LiveSettings, endpoints: Mapping[str, Endpoint], admin_urls: Sequence[str] = ()
) -> Iterable[Listed]:
    """Return a broker's settings, sorted by name.

    `endpoints`: those that it registered, by listener.
    `admin_urls`: of all live brokers. With them, and `zookeeper.connect`, whoever knows one Kafka
    address finds everything else of the cluster.
    """
    config = settings.config
    rows = [
        *(
            _listed(name, attrgetter(key)(config), kind, _doc(key))
            for name, (key, kind) in AS_CONFIGURED.items()
        ),
        *(dynamic_setting(settings, name, key) for name, key in DYNAMIC.items()),
        *_listener_rows(config, endpoints),
        *_derived(settings, admin_urls),
    ]
    return sorted(rows)


def shared_settings(settings: LiveSettings) -> Iterable[Listed]:
    """Return what was set for all brokers, sorted by name."""
    for name, value in sorted(settings.of(EVERY_BROKER).items()):
        key = DYNAMIC.get(name)
        if key is not None:
            source = Source.DYNAMIC_DEFAULT
            yield Listed(name, value, source, key.kind, _doc_of(key), read_only=False)


def dynamic_setting(settings: LiveSettings, name: str, key: DynamicKey) -> Listed:
    """Return one that can be changed, with all the values that it was given."""
    if key.topic_key:
        of_file = TOPIC_KEYS[key.topic_key].default
    elif not key.field:
        of_file = key.kept
    else:
        value = getattr(settings.of_file, key.field)
        of_file = _text(value if key.unit == 1 else value // key.unit)
    rows = [Synonym(*one[:2], Source(one.origin)) for one in settings.given(name)]
    source = Source.STATIC_BROKER if key.topic_key or key.field else Source.DEFAULT
    rows.append(Synonym(name, of_file, source))
    first = rows[0]
    return Listed(name, first.value, first.source, key.kind, _doc_of(key), False, rows)


def refusal_of(name: str) -> QuireError | None:
    """Return why a setting cannot be changed while a broker runs; None: it can."""
    if name in DYNAMIC:
        return None
    if name in AS_CONFIGURED:
        key, _ = AS_CONFIGURED[name]
        return InvalidRequest(
            f"{name} is read when a broker starts: set {key} in its configuration, and restart it"
        )
    if name in _FIXED:
        return InvalidRequest(f"{name} cannot be changed: {_FIXED[name]}")
    return InvalidTopicConfig(f"unknown broker setting {name!r}")


def group_listing(
    values: Mapping[str, str], settings: LiveSettings, limits: GroupConfig
) -> Iterable[Listed]:
    """Return every setting of a group. `values`: what was set for it; `limits`: what holds for all.

    What is shown is in force: of a value beyond the bounds that brokers have by now, the nearest
    one within them.
    """
    now = in_force(values, limits)
    for name, key in GROUP_KEYS.items():
        of_all = BROKER_NAMES.get(name)
        if of_all is None:
            rows = [Synonym(name, key.default, Source.DEFAULT)]
        else:
            rows = [*dynamic_setting(settings, of_all, DYNAMIC[of_all]).synonyms]
        if name in now:
            rows.insert(0, Synonym(name, now[name], Source.GROUP))
        yield Listed(name, rows[0].value, rows[0].source, key.kind, key.doc, False, rows)


def _doc_of(key: DynamicKey) -> str:
    if key.topic_key:
        return TOPIC_KEYS[key.topic_key].doc
    return _doc(key.field) if key.field else KEPT_DOC


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


def _derived(settings: LiveSettings, admin_urls: Sequence[str]) -> Iterable[Listed]:
    """Return the settings that are none of ours by themselves."""
    yield _listed("delete.topic.enable", True, Kind.BOOLEAN, "Topics can always be deleted.")
    yield _listed(
        "inter.broker.protocol.version", "3.9-IV0", Kind.STRING,
        "Kept for tools, which infer from it what they may use.",
    )  # fmt: skip
    yield _listed(
        "log.dirs", "ledgers", Kind.STRING, "Stands for the bookies: a broker holds no data."
    )
    retention_ms = settings.topic_defaults.get("retention.ms", TOPIC_KEYS["retention.ms"].default)
    hours = max(-1, int(retention_ms) // _HOUR_MS)
    yield _listed("log.retention.hours", hours, Kind.INT, "log.retention.ms, in hours.")
    yield _listed(
        "offsets.topic.replication.factor", BROKER_DECIDES, Kind.INT,
        "-1: the default of new topics.",
    )  # fmt: skip
    yield _listed(
        "quire.admin.urls", admin_urls, Kind.LIST, "Where live brokers serve the admin API."
    )


def _listed(name: str, value: object, kind: Kind, doc: str) -> Listed:
    return Listed(name, _text(value), Source.STATIC_BROKER, kind, doc, read_only=True)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(value)
    return "" if value is None else str(value)


@functools.cache
def _docs() -> Mapping[str, str]:
    return {declared.key: declared.doc for declared in settings_of(BrokerConfig)}


def _doc(key: str) -> str:
    return f"{_docs()[key]} In the broker's configuration: {key}."
