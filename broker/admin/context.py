"""What an admin handler may use: its own broker, and access to the other ones.

The functions at the end answer which broker must handle a request (`Where` in `operation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.admin.audit_trail import AuditTrail
from broker.admin.lags import Lags
from broker.admin.peer_client import PeerClient
from broker.admin.problems import Problem
from broker.admin.request import AdminRequest
from broker.admin.sampler import Sampler
from broker.app import Broker
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.config import BrokerConfig
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.errors import GroupIdNotFound, LeaderNotAvailable, UnknownTopicOrPartition
from client.ids import BrokerId
from client.security.admin_access import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    """One broker's admin API."""

    config: BrokerConfig
    sources: Mapping[str, str]
    """Setting -> where its value came from."""
    broker: Broker
    peer_client: PeerClient
    lags: Lags
    sampler: Sampler
    audit_trail: AuditTrail
    operation_roles: Mapping[str, Role]
    """Name of each operation -> the role it needs."""

    @property
    def me(self) -> BrokerId:
        """This broker's id."""
        return self.config.node_id

    async def topic(self, name: str) -> TopicInfo:
        """Return a topic, also one that our view does not show yet.

        Raises UnknownTopicOrPartition, MetadataError.
        """
        cluster = self.broker.cluster
        topic = cluster.topics.get(name) or await cluster.look_for_topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    async def partition(self, request: AdminRequest) -> tuple[TopicInfo, int]:
        """Return the topic and index that a path names. Raises UnknownTopicOrPartition."""
        topic, index = await self.topic(request.path["topic"]), int(request.path["partition"])
        if index >= topic.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {topic.name!r} has no partition {index}, only {topic.partition_count}"
            )
        return topic, index

    def live_broker(self, broker_id: int) -> BrokerInfo:
        """Return a live broker. Raises Problem."""
        broker = self.broker.cluster.brokers.get(BrokerId(broker_id))
        if broker is None:
            live = ", ".join(map(str, self.broker.cluster.brokers)) or "none"
            raise Problem(
                404, "unknown-broker", f"there is no live broker {broker_id}; live: {live}",
                "GET /admin/v1/brokers lists the live brokers.", field="broker_id",
            )  # fmt: skip
        return broker

    def leader_of(self, topic: TopicInfo, index: int) -> BrokerInfo:
        """Return the broker that should lead a partition. Raises LeaderNotAvailable."""
        cluster = self.broker.cluster
        owner = cluster.preferred_leader(topic, index)
        broker = None if owner is None else cluster.brokers.get(owner)
        if broker is None:
            raise LeaderNotAvailable(f"no broker leads {topic.name}-{index} at the moment")
        return broker


async def at_broker(context: AdminContext, request: AdminRequest) -> BrokerInfo | None:
    """The broker that the path names."""
    return context.live_broker(request.path["broker_id"])


async def at_leader(context: AdminContext, request: AdminRequest) -> BrokerInfo | None:
    """The leader of the partition that the path names."""
    topic, index = await context.partition(request)
    if context.broker.partitions.find(topic.name, index) is not None:
        return None
    return context.leader_of(topic, index)


async def at_coordinator(context: AdminContext, request: AdminRequest) -> BrokerInfo | None:
    """The coordinator of the group that the path names; creates no internal topic."""
    if await context.broker.cluster.look_for_topic(OFFSETS_TOPIC) is None:
        raise GroupIdNotFound(f"there is no group {request.path['group']!r}")
    return await at_new_coordinator(context, request)


async def at_new_coordinator(context: AdminContext, request: AdminRequest) -> BrokerInfo | None:
    """The same for a group that may be new."""
    return await context.broker.groups.find(request.path["group"])
