"""What Metadata (3) answers say of topics, encoded, and kept for as long as it stays true.

This file is the only home of that. Every client of a broker asks for the same topics, again and
again while leaders change, and a topic may have thousands of partitions: an answer is put
together from bytes that were made for the first who asked. Nothing tells this cache of changes.
It compares all that an answer depends on, which is cheap, and encodes anew what differs: one
partition when only its leader epoch grew.

Deviation from Kafka: `replicas` and `isr` name the leader and further live brokers, as many as
the replication factor and the cluster allow, because clients and tools expect broker ids there;
the copies really are on bookies.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from broker.cluster import Cluster
from broker.core.topology import TopicInfo
from broker.faults import Code
from broker.successions import Successions
from client.ids import BrokerId, LeaderEpoch
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import encode_part

_VERSIONS_KEPT: Final = 4
"""Of the answer, per topic: clients of one fleet ask in one version, or in a few."""
_NO_LEADER: Final = -1
_TOPIC: Final = ("topics",)
_PARTITION: Final = ("topics", "partitions")

_Leaders = tuple[TopicInfo, tuple[BrokerId, ...], tuple[BrokerId, ...], frozenset[BrokerId]]
"""What every partition depends on: the topic, its planned leaders, live brokers, those in doubt."""


class _Kept:
    """A topic's part of the answer in one version, with what it was made from."""

    __slots__ = ("epochs", "leaders", "partitions", "whole")

    def __init__(self, leaders: _Leaders) -> None:
        self.leaders = leaders
        self.epochs: tuple[LeaderEpoch, ...] = ()
        self.partitions: list[bytes] = []
        self.whole = b""


class TopicAnswers:
    """(topic, version of the API) -> its part of the answer."""

    def __init__(self, cluster: Cluster, successions: Successions) -> None:
        self._cluster = cluster
        self._successions = successions
        self._kept: dict[UUID, dict[int, _Kept]] = {}
        cluster.add_listener(self._forget)

    def get(self, topic: TopicInfo, version: int) -> bytes:
        """Return a topic as it is now: an item of the response's `topics`."""
        cluster = self._cluster
        epochs = cluster.leader_epochs.of(topic)
        planned = cluster.wanted_owners(topic)
        leaders = (topic, planned, tuple(cluster.brokers), self._successions.doubted(topic))
        versions = self._kept.setdefault(topic.topic_id, {})
        kept = versions.get(version)
        if kept is None or kept.leaders != leaders:
            versions.pop(version, None)
            if len(versions) == _VERSIONS_KEPT:
                del versions[next(iter(versions))]
            kept = versions[version] = _Kept(leaders)
        if kept.epochs != epochs:
            _encode(kept, epochs, version)
        return kept.whole

    def _forget(self) -> None:
        """Drop topics that are gone."""
        current = self._cluster.topic_by_id
        self._kept = {at: kept for at, kept in self._kept.items() if at in current}


def _encode(kept: _Kept, epochs: tuple[LeaderEpoch, ...], version: int) -> None:
    """Encode the partitions whose epochs differ, and the topic."""
    topic, planned, live, doubted = kept.leaders
    before = kept.epochs or (None,) * len(epochs)
    kept.partitions = kept.partitions or [b""] * len(epochs)
    replicas = {leader: _replicas(live, leader, topic.replication_factor) for leader in planned}
    for index, (old, epoch) in enumerate(zip(before, epochs, strict=True)):
        if old != epoch:
            wanted = planned[index] if planned else None
            leader = None if wanted in doubted else wanted
            fields = _partition(index, leader, epoch, [] if wanted is None else replicas[wanted])
            kept.partitions[index] = encode_part(ApiKey.METADATA, version, _PARTITION, fields)
    kept.epochs = epochs
    fields = {
        "error_code": Code.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": kept.partitions,
    }
    kept.whole = encode_part(ApiKey.METADATA, version, _TOPIC, fields)


def _partition(
    index: int, leader: BrokerId | None, epoch: LeaderEpoch, replicas: list[BrokerId]
) -> dict[str, Any]:
    return {
        "error_code": Code.none if leader is not None else Code.leader_not_available,
        "partition_index": index,
        "leader_id": _NO_LEADER if leader is None else leader,
        "leader_epoch": epoch,
        "replica_nodes": replicas,
        "isr_nodes": replicas,
        "offline_replicas": [],
    }


def _replicas(live: tuple[BrokerId, ...], leader: BrokerId, count: int) -> list[BrokerId]:
    """Return the leader and the brokers after it, in a circle."""
    at = live.index(leader)
    return [*live[at:], *live[:at]][:count]
