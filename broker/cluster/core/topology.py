"""Values that describe a cluster, brokers and topics, and their JSON in znodes.

Each format has a version; a newer one than ours is refused rather than guessed at. What a newer
release adds to ours, fields and settings of a topic, is carried along unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker.cluster.core.features import Levels, read_levels
from broker.cluster.core.topic_config import TopicConfig
from broker.security.core.listeners import DEFAULT_NAME, SecurityProtocol
from client.errors import LogCorrupt
from client.ids import BrokerId
from client.metadata.json_node import read_object, unknown_fields, whole

_FORMAT: Final = 1
_TOPIC_FIELDS: Final = frozenset(
    (
        "version", "topic_id", "partition_count", "replication_factor", "configs", "internal",
        "created_ms", "assignments", "grown_from", "pins",
    )
)  # fmt: skip
_PROTOCOLS: Final = frozenset(map(str, SecurityProtocol))
_INT16_MAX: Final = (1 << 15) - 1
_PARTITIONS_MAX: Final = 1_000_000
"""Every broker iterates over all of them, so a node that says more is treated as corrupt."""


Position = tuple[UUID, int]
"""Topic id and index of a partition: a position in the order of all partitions."""


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    host: str
    port: int
    advertised: bool
    """Whether host and port were configured for clients. If not, a client on the same machine
    is better served by the address that it used to reach a broker."""
    protocol: SecurityProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker, as registered."""

    id: BrokerId
    incarnation: str
    """Differs between any two starts of a broker process."""
    host: str
    port: int
    """The address for other brokers: that of the listener named `listener`."""
    advertised: bool
    """Whether that address was configured for clients."""
    listener: str = DEFAULT_NAME
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    """By listener; by default a plaintext one at host and port."""
    admin_url: str = ""
    """Its admin API, for other brokers and operators; empty: it has none."""
    rack: str | None = None
    features: Levels = field(default_factory=dict)
    """Levels of Kafka's features that it supports; empty: a release without features."""
    unloaded: bool = False
    """Whether an operator wants it to lead no partition; ends with the process."""
    leads_from: Position | None = None
    """During a hand-over: the position from which on it is eligible; None: no hand-over."""

    def __post_init__(self) -> None:
        """Fill in the endpoint of a broker with only one listener."""
        if not self.endpoints:
            only = Endpoint(self.host, self.port, self.advertised, SecurityProtocol.PLAINTEXT)
            object.__setattr__(self, "endpoints", {self.listener: only})

    @property
    def is_tls(self) -> bool:
        """Whether other brokers connect to it with TLS."""
        return self.endpoints[self.listener].protocol.is_tls

    @property
    def is_sasl(self) -> bool:
        """Whether other brokers have to log in."""
        return self.endpoints[self.listener].protocol.is_sasl

    def encode(self) -> bytes:
        """Return the znode's bytes."""
        return _dump(
            {
                "version": _FORMAT,
                "incarnation": self.incarnation,
                "host": self.host,
                "port": self.port,
                "advertised": self.advertised,
                "listener": self.listener,
                "endpoints": {name: list(one) for name, one in self.endpoints.items()},
                "admin_url": self.admin_url,
                "rack": self.rack,
                "features": dict(self.features),
                "unloaded": self.unloaded,
                "leads_from": _dump_position(self.leads_from),
            }
        )

    @classmethod
    def decode(cls, broker_id: BrokerId, data: bytes) -> BrokerInfo:
        """Read the znode's bytes. Raises LogCorrupt."""
        fields = _load(data, f"registration of broker {broker_id}")
        try:
            return cls(
                id=broker_id,
                incarnation=str(fields["incarnation"]),
                host=str(fields["host"]),
                port=whole(fields, "port", 0, 65_535),
                advertised=bool(fields["advertised"]),
                **_endpoints(fields),
                admin_url=str(fields["admin_url"]),
                rack=fields["rack"],
                features=read_levels(fields.get("features", {})),
                unloaded=bool(fields["unloaded"]),
                leads_from=_position(fields.get("leads_from")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LogCorrupt(f"registration of broker {broker_id}: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic's definition."""

    name: str
    topic_id: UUID
    partition_count: int
    replication_factor: int
    """Write quorum of the topic's ledgers: copies of each entry."""
    config: TopicConfig
    internal: bool = False
    created_ms: int = 0
    assignments: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    """Partition index -> the replica list that operators gave it: brokers that should lead it, the
    preferred one first. Brokers hold no data, so a replica list has no other meaning here."""
    grown_from: tuple[int, ...] = ()
    """Former partition counts, ascending: existing partitions keep their leaders."""
    carried: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the node that this release does not know."""

    @property
    def id_text(self) -> str:
        """The topic id as znode paths spell it."""
        return str(self.topic_id)

    @property
    def write_quorum(self) -> int:
        """Copies of each entry."""
        return self.replication_factor

    @property
    def ack_quorum(self) -> int:
        """Copies that must be on stable storage before an acknowledgement.

        The default of `min.insync.replicas` may exceed a small write quorum; then it is all copies.
        """
        return min(self.config.min_insync_replicas, self.replication_factor)

    @property
    def ensemble_size(self) -> int:
        """Bookies that one ledger is striped over."""
        return max(self.config.ensemble_size, self.replication_factor)

    def with_defaults(self, defaults: Mapping[str, str]) -> TopicInfo:
        """Return the same topic with other cluster-wide defaults of topic settings."""
        return replace(self, config=self.config.with_defaults(defaults))

    def encode(self) -> bytes:
        """Return the znode's bytes."""
        return _dump(
            {
                **self.carried,
                "version": _FORMAT,
                "topic_id": self.id_text,
                "partition_count": self.partition_count,
                "replication_factor": self.replication_factor,
                "configs": self.config.stored(),
                "internal": self.internal,
                "created_ms": self.created_ms,
                "assignments": {
                    str(index): list(brokers) for index, brokers in sorted(self.assignments.items())
                },
                "grown_from": list(self.grown_from),
            }
        )

    @classmethod
    def decode(cls, name: str, data: bytes) -> TopicInfo:
        """Read the znode's bytes. Raises LogCorrupt."""
        fields = _load(data, f"topic {name}")
        try:
            count = whole(fields, "partition_count", 1, _PARTITIONS_MAX)
            return cls(
                name=name,
                topic_id=UUID(fields["topic_id"]),
                partition_count=count,
                replication_factor=whole(fields, "replication_factor", 1, _INT16_MAX),
                config=TopicConfig.read(fields["configs"]),
                internal=bool(fields["internal"]),
                created_ms=whole(fields, "created_ms"),
                assignments=_assignments(fields),
                grown_from=_rising(fields.get("grown_from", []), count),
                carried=unknown_fields(fields, _TOPIC_FIELDS),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LogCorrupt(f"topic {name}: {error!r}") from error


def _endpoints(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read listeners; brokers of earlier versions have only one, and no such field.

    One whose protocol only a newer release knows is left out: nobody here could use it.
    """
    if "endpoints" not in fields:
        return {}
    endpoints: dict[str, Endpoint] = {}
    for name, (host, port, advertised, protocol, *_) in fields["endpoints"].items():
        if protocol not in _PROTOCOLS:
            continue
        known = SecurityProtocol(protocol)
        number = whole({"port": port}, "port", 0, 65_535)
        endpoints[str(name)] = Endpoint(str(host), number, bool(advertised), known)
    if fields["listener"] not in endpoints:
        raise ValueError(f"no endpoint of listener {fields['listener']!r}")
    return {"listener": fields["listener"], "endpoints": endpoints}


def _dump_position(at: Position | None) -> Mapping[str, object] | None:
    return None if at is None else {"topic_id": str(at[0]), "index": at[1]}


def _position(raw: Any) -> Position | None:
    return None if raw is None else (UUID(raw["topic_id"]), whole(raw, "index"))


def _assignments(fields: Mapping[str, Any]) -> dict[int, tuple[BrokerId, ...]]:
    """Read replica lists, and the single brokers that earlier versions stored as "pins"."""
    pins = {index: [broker] for index, broker in fields.get("pins", {}).items()}
    lists = pins | fields.get("assignments", {})
    return {int(index): tuple(map(BrokerId, map(int, lists[index]))) for index in lists}


def _rising(raw: list[Any], below: int) -> tuple[int, ...]:
    """Check the former partition counts of a topic. Raises ValueError."""
    counts = tuple(whole({"count": count}, "count", 1, below - 1) for count in raw)
    if any(count >= more for count, more in pairwise(counts)):
        raise ValueError(f"grown_from is not ascending: {raw}")
    return counts


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode()


def _load(data: bytes, what: str) -> dict[str, Any]:
    try:
        fields = read_object(data)
        version = fields["version"]
    except (ValueError, KeyError) as error:
        raise LogCorrupt(f"{what} is not readable: {error!r}") from error
    if version != _FORMAT:
        raise LogCorrupt(f"{what} has format {version}; this broker supports format {_FORMAT}")
    return fields
