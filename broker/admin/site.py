"""What an admin handler may use: the broker it runs in, and the way to the other ones.

This file is the only home of that bundle, and of the answers to "which broker must answer this?"
(`Where` in `operation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.admin.operation import Ask
from broker.admin.problems import Problem
from broker.config import BrokerConfig
from broker.core.group_routing import OFFSETS_TOPIC
from broker.core.topology import BrokerInfo, TopicInfo
from broker.errors import GroupIdNotFound, LeaderNotAvailable, UnknownTopicOrPartition
from client.ids import BrokerId

if TYPE_CHECKING:
    from broker.admin.lags import Lags
    from broker.admin.neighbours import Neighbours
    from broker.admin.pulse import Pulse
    from broker.app import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One broker's admin API."""

    config: BrokerConfig
    sources: Mapping[str, str]
    """Setting -> where its value came from."""
    broker: Broker
    neighbours: Neighbours
    lags: Lags
    pulse: Pulse

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

    async def partition(self, ask: Ask) -> tuple[TopicInfo, int]:
        """Return the topic and index that a path names. Raises UnknownTopicOrPartition."""
        topic, index = await self.topic(ask.path["topic"]), int(ask.path["partition"])
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
        """Return who should lead a partition. Raises LeaderNotAvailable."""
        cluster = self.broker.cluster
        owner = cluster.wanted_owner(topic, index)
        broker = None if owner is None else cluster.brokers.get(owner)
        if broker is None:
            raise LeaderNotAvailable(f"nobody leads {topic.name}-{index} now")
        return broker


async def at_broker(site: Site, ask: Ask) -> BrokerInfo | None:
    """The broker that the path names."""
    return site.live_broker(ask.path["broker_id"])


async def at_leader(site: Site, ask: Ask) -> BrokerInfo | None:
    """The leader of the partition that the path names."""
    topic, index = await site.partition(ask)
    if site.broker.partitions.find(topic.name, index) is not None:
        return None
    return site.leader_of(topic, index)


async def at_coordinator(site: Site, ask: Ask) -> BrokerInfo | None:
    """The coordinator of the group that the path names; looking for it makes nothing."""
    if await site.broker.cluster.look_for_topic(OFFSETS_TOPIC) is None:
        raise GroupIdNotFound(f"there is no group {ask.path['group']!r}")
    return await at_new_coordinator(site, ask)


async def at_new_coordinator(site: Site, ask: Ask) -> BrokerInfo | None:
    """The same for a group that may be new."""
    return await site.broker.groups.find(ask.path["group"])
