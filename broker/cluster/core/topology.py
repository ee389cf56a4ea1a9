"""Values that describe a cluster, brokers and topics, and their JSON in znodes.

Each format has a version; a newer one than ours is refused rather than guessed at.
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
from broker.errors import InvalidTopicConfig
from broker.security.core.listeners import DEFAULT_NAME, SecurityProtocol
from client.errors import LogCorrupt
from client.ids import BrokerId
from client.metadata.json_node import read_object, whole

_FORMAT: Final = 1
_INT16_MAX: Final = (1 << 15) - 1
_PARTITIONS_MAX: Final = 1_000_000
"""Every broker goes through all of them: more are damage, whatever the node says."""


Position = tuple[UUID, int]
"""Topic id and index of a partition: a place in the order of all partitions."""


class Endpoint(NamedTuple):
    """Where a broker can be reached by one of its listeners."""

    host: str
    port: int
    advertised: bool
    """Whether host and port were configured for clients. If not, a client on the same machine
    is better served by the address that it used to reach a broker."""
    protocol: SecurityProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker, as its registration says."""

    id: BrokerId
    incarnation: str
    """Differs between any two starts of a broker process."""
    host: str
    port: int
    """Where other brokers reach it: of the listener named `listener`."""
    advertised: bool
    """Whether that address was configured for clients."""
    listener: str = DEFAULT_NAME
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    """By listener; not given: the one of plain text at host and port."""
    admin_url: str = ""
    """Where its admin API is, for other brokers and operators; empty: nowhere."""
    rack: str | None = None
    features: Levels = field(default_factory=dict)
    """What it knows of Kafka's features; nothing: a release that knew of none."""
    unloaded: bool = False
    """Whether an operator wants it to lead nothing; ends with the process."""
    leads_from: Position | None = None
    """On the way there or back: it takes part from this place on; None: it has arrived."""

    def __post_init__(self) -> None:
        """Fill in the endpoint of a broker that has one."""
        if not self.endpoints:
            only = Endpoint(self.host, self.port, self.advertised, SecurityProtocol.PLAINTEXT)
            object.__setattr__(self, "endpoints", {self.listener: only})

    @property
    def is_tls(self) -> bool:
        """Whether other brokers reach it by TLS."""
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
    preferred one first. Brokers hold no data, so that is all a replica list means here."""
    grown_from: tuple[int, ...] = ()
    """Numbers of partitions that it had before, rising: what was there keeps its leaders."""

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
        """Copies that are on stable storage before an acknowledgement.

        The default of `min.insync.replicas` may exceed a small write quorum; then all copies.
        """
        return min(self.config.min_insync_replicas, self.replication_factor)

    @property
    def ensemble_size(self) -> int:
        """Bookies that one ledger is striped over."""
        return max(self.config.ensemble_size, self.replication_factor)

    def with_defaults(self, defaults: Mapping[str, str]) -> TopicInfo:
        """Return the same topic in a cluster with other defaults of topics' settings."""
        return replace(self, config=self.config.with_defaults(defaults))

    def encode(self) -> bytes:
        """Return the znode's bytes."""
        return _dump(
            {
                "version": _FORMAT,
                "topic_id": self.id_text,
                "partition_count": self.partition_count,
                "replication_factor": self.replication_factor,
                "configs": dict(self.config.overrides),
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
                config=TopicConfig.parse(fields["configs"]),
                internal=bool(fields["internal"]),
                created_ms=whole(fields, "created_ms"),
                assignments=_assignments(fields),
                grown_from=_rising(fields.get("grown_from", []), count),
            )
        except (KeyError, TypeError, ValueError, AttributeError, InvalidTopicConfig) as error:
            raise LogCorrupt(f"topic {name}: {error!r}") from error


def _endpoints(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Read listeners; brokers of earlier versions have one and do not say so."""
    if "endpoints" not in fields:
        return {}
    endpoints = {
        str(name): Endpoint(
            str(host),
            whole({"port": port}, "port", 0, 65_535),
            bool(advertised),
            SecurityProtocol(protocol),
        )
        for name, (host, port, advertised, protocol) in fields["endpoints"].items()
    }
    if fields["listener"] not in endpoints:
        raise ValueError(f"no endpoint of listener {fields['listener']!r}")
    return {"listener": fields["listener"], "endpoints": endpoints}


def _dump_position(at: Position | None) -> Mapping[str, object] | None:
    return None if at is None else {"topic_id": str(at[0]), "index": at[1]}


def _position(raw: Any) -> Position | None:
    return None if raw is None else (UUID(raw["topic_id"]), whole(raw, "index"))


def _assignments(fields: Mapping[str, Any]) -> dict[int, tuple[BrokerId, ...]]:
    """Read replica lists, and the single brokers that earlier versions called pins."""
    pins = {index: [broker] for index, broker in fields.get("pins", {}).items()}
    lists = pins | fields.get("assignments", {})
    return {int(index): tuple(map(BrokerId, map(int, lists[index]))) for index in lists}


def _rising(raw: list[Any], below: int) -> tuple[int, ...]:
    """Check numbers of partitions that a topic had. Raises ValueError."""
    counts = tuple(whole({"count": count}, "count", 1, below - 1) for count in raw)
    if any(count >= more for count, more in pairwise(counts)):
        raise ValueError(f"grown_from does not rise: {raw}")
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
        raise LogCorrupt(f"{what} has format {version}, this broker knows {_FORMAT}")
    return fields
