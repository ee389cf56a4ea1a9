"""The rules for creating and changing topics: names, partition counts, quorums.

Sources: Kafka's topic name rules and its handling of -1 as "the broker decides".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.cluster.core.topic_config import LOCAL_AS_RETENTION, UNLIMITED, TopicConfig
from broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicConfig,
    InvalidTopicName,
    TopicExists,
)
from client.ids import BrokerId

BROKER_DECIDES: Final = -1
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
"""Topics that clients see but may neither create nor write to."""

NAME_CHARS_MAX: Final = 249
"""Of the name of a topic, all of them ASCII."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_MIN_INSYNC: Final = "min.insync.replicas"
_ENSEMBLE: Final = "quire.ensemble.size"


Assignments = Mapping[int, tuple[BrokerId, ...]]
"""Partition index -> its replica list."""
NO_ASSIGNMENTS: Final[Assignments] = MappingProxyType({})


class TopicDefaults(NamedTuple):
    """What the broker chooses where a request leaves it open, and what it allows."""

    partition_count: int
    replication_factor: int
    min_insync_replicas: int
    ensemble_size: int
    partition_count_max: int
    has_object_store: bool = False


class TopicShape(NamedTuple):
    """The numbers and settings of a topic that is about to be created."""

    partition_count: int
    replication_factor: int
    config: TopicConfig


def check_name(name: str) -> None:
    """Raise InvalidTopicName unless a topic may have this name."""
    if not name:
        raise InvalidTopicName("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic cannot be named {name!r}")
    if len(name) > NAME_CHARS_MAX:
        raise InvalidTopicName(f"a topic name can have at most {NAME_CHARS_MAX} characters")
    if not _NAME.fullmatch(name):
        raise InvalidTopicName(
            f"topic name {name!r} has characters outside letters, digits, '.', '_' and '-'"
        )


def check_not_internal(name: str) -> None:
    """Raise InvalidTopicName for the cluster's own topics, which it creates itself."""
    if name in INTERNAL_TOPICS:
        raise InvalidTopicName(
            f"topic {name!r} is internal: the cluster creates it when it needs it"
        )


def check_unused(name: str, existing: Iterable[str]) -> None:
    """Raise TopicExists, or InvalidTopicName if the name differs from another in . and _ only.

    Kafka makes one metric name of `a.b` and `a_b`; tools rely on them not existing together.
    """
    folded = name.replace(".", "_")
    for other in existing:
        if other == name:
            raise TopicExists(f"topic {name!r} already exists")
        if other.replace(".", "_") == folded:
            raise InvalidTopicName(
                f"topic {name!r} collides with {other!r}: '.' and '_' count as equal"
            )


def check_partition_count(count: int, count_max: int) -> None:
    """Raise InvalidPartitions unless a topic may have this many partitions."""
    if count < 1:
        raise InvalidPartitions(f"a topic needs at least one partition, not {count}")
    if count > count_max:
        raise InvalidPartitions(f"a topic can have at most {count_max} partitions, not {count}")


def check_replicas(replicas: Sequence[BrokerId], live: Collection[BrokerId]) -> None:
    """Raise InvalidReplicaAssignment unless a replica list names live brokers, each once."""
    if not replicas:
        raise InvalidReplicaAssignment("a replica list needs at least one broker")
    if len(dict.fromkeys(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"the replica list {list(replicas)} names a broker twice")
    for broker in replicas:
        if broker not in live:
            raise InvalidReplicaAssignment(f"there is no broker {broker}")


def decide_shape(
    partition_count: int,
    replication_factor: int,
    overrides: Mapping[str, str],
    defaults: TopicDefaults,
    bookie_count: int,
) -> TopicShape:
    """Fill in what the creator left to the broker, and check the result.

    `bookie_count` is how many bookies the cluster ever had: a factor beyond it can never be
    met. A default beyond it is lowered, so that a newcomer's single bookie works.
    Raises InvalidPartitions, InvalidReplicationFactor, InvalidTopicConfig.
    """
    if partition_count == BROKER_DECIDES:
        partition_count = defaults.partition_count
    check_partition_count(partition_count, defaults.partition_count_max)
    if replication_factor == BROKER_DECIDES:
        replication_factor = max(1, min(defaults.replication_factor, bookie_count))
    if replication_factor < 1:
        raise InvalidReplicationFactor(
            f"the replication factor must be positive, not {replication_factor}"
        )
    if replication_factor > bookie_count:
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} needs as many bookies; the cluster has"
            f" {bookie_count}"
        )
    complete = dict(overrides)
    if _MIN_INSYNC not in complete:
        quorum = min(defaults.min_insync_replicas, replication_factor)
        if quorum != min(TopicConfig().min_insync_replicas, replication_factor):
            complete[_MIN_INSYNC] = str(quorum)
    if _ENSEMBLE not in complete:
        size = min(defaults.ensemble_size, bookie_count)
        if size > replication_factor:
            complete[_ENSEMBLE] = str(size)
    config = TopicConfig.parse(complete)
    check_quorums(config, replication_factor, bookie_count)
    check_remote_storage(config, TopicConfig(), has_object_store=defaults.has_object_store)
    return TopicShape(partition_count, replication_factor, config)


def check_quorums(
    config: TopicConfig, replication_factor: int, bookie_count: int | None = None
) -> None:
    """Raise InvalidTopicConfig unless ack quorum <= write quorum <= ensemble <= bookies."""
    if _MIN_INSYNC in config.overrides and config.min_insync_replicas > replication_factor:
        raise InvalidTopicConfig(
            f"{_MIN_INSYNC} ({config.min_insync_replicas}) exceeds the replication factor"
            f" ({replication_factor})"
        )
    size = config.ensemble_size
    if 0 < size < replication_factor:
        raise InvalidTopicConfig(
            f"{_ENSEMBLE} ({size}) is below the replication factor ({replication_factor})"
        )
    if bookie_count is not None and size > bookie_count:
        raise InvalidTopicConfig(
            f"{_ENSEMBLE} is {size}, but the cluster has {bookie_count} bookies"
        )


def check_remote_storage(
    config: TopicConfig, before: TopicConfig, *, has_object_store: bool
) -> None:
    """Raise InvalidTopicConfig unless what a topic says of the object store fits together, and
    follows on what it said before. Source: Kafka 4.4, `LogConfig`."""
    remote = config.remote
    if not remote.is_on:
        if before.remote.is_on and not remote.deletes:
            raise InvalidTopicConfig(
                "remote.storage.enable=false needs remote.log.delete.on.disable=true, which deletes"
                " what is in the object store; to keep it and copy nothing more, set"
                " remote.log.copy.disable=true instead"
            )
        return
    if not has_object_store and not before.remote.is_on:
        raise InvalidTopicConfig(
            "remote.storage.enable=true: this broker has no object store; set offload.store_url in"
            " its settings"
        )
    if config.compacts:
        raise InvalidTopicConfig(
            "remote.storage.enable=true needs cleanup.policy=delete, or none: compacted topics stay"
            " on bookies"
        )
    for unit in ("ms", "bytes"):
        _check_retention(config, unit)


def _check_retention(config: TopicConfig, unit: str) -> None:
    """Check that local retention is at most retention, and the lag at most that."""
    whole, local = (
        int(config.value(f"{kind}.{unit}")) for kind in ("retention", "local.retention")
    )
    lag = int(config.value(f"remote.copy.lag.{unit}"))
    effective = whole if local == LOCAL_AS_RETENTION else local
    if whole != UNLIMITED and (effective == UNLIMITED or effective > whole):
        raise InvalidTopicConfig(
            f"local.retention.{unit} ({local}) exceeds retention.{unit} ({whole})"
        )
    if effective not in (UNLIMITED, whole) and not config.remote.copies:
        raise InvalidTopicConfig(
            f"remote.log.copy.disable=true needs local.retention.{unit} to be retention.{unit}, as"
            " nothing more is copied"
        )
    if effective != UNLIMITED and lag > effective:
        raise InvalidTopicConfig(
            f"remote.copy.lag.{unit} ({lag}) exceeds local.retention.{unit} ({effective})"
        )
