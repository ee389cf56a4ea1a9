"""Caches the encoded topics of Metadata (3) answers for as long as they are up to date.

All clients of a broker ask for the same topics, again and again while leaders change, and a topic
may have thousands of partitions: an answer is put together from bytes that were encoded for the
first client that asked. Nothing notifies this cache of changes. It compares everything that an
answer depends on, which is cheap, and encodes again only what differs: a single partition if only
its leader epoch grew. A partition known to have had no leader yet is named none: its first leader
would refuse what comes before it has opened it.

Deviation from Kafka: `replicas` and `isr` are no bookies (`partition_rows.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.cluster.core.assignment import replica_lists
from broker.cluster.core.topology import TopicInfo
from broker.cluster.leader_changes import LeaderChangeTracker
from broker.faults import Code
from broker.front.partition_rows import PartitionState
from broker.security.rights import OPERATIONS_NOT_ASKED
from client.ids import BrokerId, LeaderEpoch
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import encode_part

_VERSIONS_KEPT: Final = 4
"""Of the answer, per topic: clients of one fleet ask in one version, or in a few."""
_TOPIC: Final = ("topics",)
_PARTITION: Final = ("topics", "partitions")


class _Leaders(NamedTuple):
    """What every partition's part of an answer depends on."""

    topic: TopicInfo
    planned: tuple[BrokerId, ...]
    live: tuple[BrokerId, ...]
    suspected: frozenset[BrokerId]
    """Brokers that may be gone."""


class _Kept:
    """A topic's part of the answer in one version, with what it was made from."""

    __slots__ = ("epochs", "leaders", "partitions", "replicas", "unled", "whole")

    def __init__(self, leaders: _Leaders) -> None:
        self.leaders = leaders
        self.replicas = replica_lists(leaders.topic, leaders.live, leaders.planned)
        self.epochs: tuple[LeaderEpoch, ...] = ()
        self.unled: frozenset[int] = frozenset()
        self.partitions: list[bytes] = []
        self.whole = b""


class TopicMetadataCache:
    """(topic, version of the API) -> its part of the answer."""

    def __init__(self, cluster: Cluster, leader_changes: LeaderChangeTracker) -> None:
        self._cluster = cluster
        self._leader_changes = leader_changes
        self._kept: dict[UUID, dict[int, _Kept]] = {}
        cluster.add_listener(self._forget)

    def get(self, topic: TopicInfo, version: int, operations: int = OPERATIONS_NOT_ASKED) -> bytes:
        """Return a topic as it is now: an item of the response's `topics`.

        `operations`: what whoever asks may do to it, as bits. An answer with those is put together
        again each time, of the partitions that were encoded for all.
        """
        cluster = self._cluster
        epochs = cluster.leader_epochs.of(topic)
        planned = cluster.preferred_leaders(topic)
        suspected = self._leader_changes.suspected(topic)
        leaders = _Leaders(topic, planned, tuple(cluster.brokers), suspected)
        versions = self._kept.setdefault(topic.topic_id, {})
        kept = versions.get(version)
        if kept is None or kept.leaders != leaders:
            versions.pop(version, None)
            if len(versions) == _VERSIONS_KEPT:
                del versions[next(iter(versions))]
            kept = versions[version] = _Kept(leaders)
        unled = cluster.leader_epochs.unled(topic)
        if kept.epochs != epochs or kept.unled != unled:
            _encode(kept, epochs, unled, version)
        if operations != OPERATIONS_NOT_ASKED:
            return _whole(kept, version, operations)
        return kept.whole

    def _forget(self) -> None:
        """Drop topics that are gone."""
        current = self._cluster.topic_by_id
        self._kept = {at: kept for at, kept in self._kept.items() if at in current}


def _encode(
    kept: _Kept, epochs: tuple[LeaderEpoch, ...], unled: frozenset[int], version: int
) -> None:
    """Encode the partitions whose epochs differ, or that had no leader yet, and the topic."""
    _, planned, live, suspected = kept.leaders
    before = kept.epochs or (None,) * len(epochs)
    kept.partitions = kept.partitions or [b""] * len(epochs)
    for index, (old, epoch) in enumerate(zip(before, epochs, strict=True)):
        if old != epoch or (index in unled) != (index in kept.unled):
            preferred = planned[index] if planned else None
            leader = None if preferred in suspected or index in unled else preferred
            fields = PartitionState(index, leader, epoch, kept.replicas[index], live).fields()
            kept.partitions[index] = encode_part(ApiKey.METADATA, version, _PARTITION, fields)
    kept.epochs, kept.unled = epochs, unled
    kept.whole = _whole(kept, version, OPERATIONS_NOT_ASKED)


def _whole(kept: _Kept, version: int, operations: int) -> bytes:
    topic = kept.leaders.topic
    fields = {
        "error_code": Code.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": kept.partitions,
        "topic_authorized_operations": operations,
    }
    return encode_part(ApiKey.METADATA, version, _TOPIC, fields)
