"""Says who leads each partition of a topic, in the fields of Kafka's answers about metadata.

Deviation from Kafka: `replica_nodes` are brokers that should lead the partition, the preferred one
first, and `isr_nodes` those of them that are live, because clients and tools expect broker ids
there; the copies really are on bookies.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from broker.cluster.cluster import Cluster
from broker.cluster.core.assignment import replica_lists
from broker.cluster.core.topology import TopicInfo
from broker.cluster.leader_changes import LeaderChangeTracker
from broker.faults import Code
from client.ids import BrokerId, LeaderEpoch

_NO_LEADER: Final = -1


class PartitionState(NamedTuple):
    """Who leads a partition, and who could. `leader` None: nobody, or nobody to be named yet."""

    number: int
    leader: BrokerId | None
    epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    live: tuple[BrokerId, ...]

    def fields(self) -> dict[str, Any]:
        """Return the fields that Metadata (3) and DescribeTopicPartitions (75) share."""
        return {
            "error_code": Code.none if self.leader is not None else Code.leader_not_available,
            "partition_index": self.number,
            "leader_id": _NO_LEADER if self.leader is None else self.leader,
            "leader_epoch": self.epoch,
            "replica_nodes": self.replicas,
            "isr_nodes": [broker for broker in self.replicas if broker in self.live],
            "offline_replicas": [broker for broker in self.replicas if broker not in self.live],
        }


def partition_states(
    cluster: Cluster, leader_changes: LeaderChangeTracker, topic: TopicInfo
) -> list[PartitionState]:
    """Return the partitions of a topic as they are now, in order."""
    planned = cluster.preferred_leaders(topic)
    live = tuple(cluster.brokers)
    suspected = leader_changes.suspected(topic)
    unled = cluster.leader_epochs.unled(topic)
    lists = replica_lists(topic, live, planned)
    states = []
    for index, epoch in enumerate(cluster.leader_epochs.of(topic)):
        preferred = planned[index] if planned else None
        leader = None if preferred in suspected or index in unled else preferred
        states.append(PartitionState(index, leader, epoch, lists[index], live))
    return states
