"""The cluster as this broker sees it: live brokers, topics, and who should lead what.

This file is the only home of that view and of its change notices. It is kept current by watches
and may lag behind; nothing that must be exact is decided by it alone (a takeover is decided by
compare-and-set, see `broker/TAKEOVER.md`). What this broker itself creates shows in its own view
before the call that made it returns.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from broker.config import BrokerConfig
from broker.core import topic_rules
from broker.core.assignment import planned_owners
from broker.core.topic_config import TopicConfig
from broker.core.topic_rules import BROKER_DECIDES, TopicDefaults
from broker.core.topology import BrokerInfo, TopicInfo
from broker.directory_view import DirectoryView
from broker.errors import UnknownTopicOrPartition
from broker.leader_epochs import LeaderEpochs
from broker.topic_changes import TopicChanges
from client.errors import NodeExists
from client.ids import BrokerId, Clock, Rng
from client.metadata import paths
from client.metadata.store import MetadataStore

__all__ = ["BrokerInfo", "Cluster", "TopicInfo"]

log = logging.getLogger(__name__)

_Wish = tuple[int, Mapping[int, BrokerId]]
"""What a plan was made for: number of partitions, and pins."""


class Cluster:
    """Brokers and topics, live."""

    def __init__(
        self, store: MetadataStore, config: BrokerConfig, *, clock: Clock, rng: Rng
    ) -> None:
        self.cluster_id = ""
        self.brokers: Mapping[BrokerId, BrokerInfo] = {}
        """Live brokers, in the order of their ids."""
        self.topics: Mapping[str, TopicInfo] = {}
        self.topic_by_id: Mapping[UUID, TopicInfo] = {}
        self.leader_epochs = LeaderEpochs(store)
        self._store = store
        self._config = config
        self._rng = rng
        self._changes = TopicChanges(store, clock, rng, config.ledger.ledgers_root)
        self._broker_view = DirectoryView(
            store, paths.BROKERS, _decode_broker, self._on_brokers_changed
        )
        self._topic_view = DirectoryView(
            store, paths.TOPICS, TopicInfo.decode, self._on_topics_changed
        )
        self._myself: BrokerInfo | None = None
        self._departed: dict[BrokerId, tuple[BrokerInfo, float]] = {}
        """Brokers that are gone, and until when clients are told of them."""
        self._owners: dict[UUID, tuple[_Wish, tuple[BrokerId, ...]]] = {}
        """Plans by topic, with what each was made for; none outlives a change of brokers."""
        self._listeners: list[Callable[[], None]] = []
        self._notice_planned = False

    async def start(self) -> None:
        """Make the tree if it is missing, read everything, follow changes. Raises MetadataError."""
        for path in (paths.BROKERS, paths.TOPICS, paths.PARTITIONS, paths.DELETED):
            try:
                await self._store.create(path, make_parents=True)
            except NodeExists:
                continue
        self.cluster_id = await self._settle_cluster_id()
        await self._broker_view.start()
        await self._topic_view.start()

    async def close(self) -> None:
        """Stop following changes."""
        await self._broker_view.close()
        await self._topic_view.close()
        await self.leader_epochs.close()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` soon after any change of brokers or topics, once per burst."""
        self._listeners.append(listener)

    def topic(self, name: str) -> TopicInfo:
        """Return a topic. Raises UnknownTopicOrPartition."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic {name!r}")
        return topic

    def wanted_owner(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return which live broker should lead a partition; None while no broker is live."""
        owners = self.wanted_owners(topic)
        return owners[index] if index < len(owners) else None

    def wanted_owners(self, topic: TopicInfo) -> tuple[BrokerId, ...]:
        """Return which live broker should lead each partition; empty while no broker is live."""
        planned_for, owners = self._owners.get(topic.topic_id, (None, ()))
        wish = (topic.partition_count, topic.pins)
        if planned_for != wish:
            owners = planned_owners(topic, self.brokers.values())
            self._owners[topic.topic_id] = wish, owners
        return owners

    def introduce(self, myself: BrokerInfo) -> None:
        """List this broker from now on, registered or not: who asks it can reach it."""
        self._myself = myself

    def listed_brokers(self) -> list[BrokerInfo]:
        """Return live brokers, for a session timeout those that were, and this one, by their ids.

        Clients give up on a broker whose answer lists nobody (aiokafka does), and it is asked
        before the view shows its registration.

        librdkafka (seen with 2.16) drops at once whatever it holds for a broker that an answer does
        not list any more, and looks a second later for leaders of the partitions that it took
        away from it, although the same answer named them. Kafka lists a dead broker as long.
        """
        now_s = asyncio.get_running_loop().time()
        listed = {b.id: b for b, until_s in self._departed.values() if now_s < until_s}
        if self._myself is not None:
            listed[self._myself.id] = self._myself
        return sorted((listed | dict(self.brokers)).values(), key=lambda broker: broker.id)

    def controller_id(self) -> BrokerId:
        """Return the broker that clients should send admin requests to; any would do."""
        return min(self.brokers, default=self._config.node_id)

    async def create_topic(
        self,
        name: str,
        partition_count: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        config: Mapping[str, str] | None = None,
        *,
        internal: bool = False,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Create a topic; -1 lets the broker decide. This broker shows it when this returns.

        Raises InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor,
        InvalidTopicConfig, MetadataError.
        """
        topic_rules.check_name(name)
        if not internal:
            topic_rules.check_not_internal(name)
        topic_rules.check_unused(name, self.topics)
        shape = topic_rules.decide_shape(
            partition_count,
            replication_factor,
            config or {},
            self._defaults(),
            await self._changes.bookie_count(),
        )
        if validate_only:
            return TopicInfo(
                name=name,
                topic_id=UUID(int=0),
                partition_count=shape.partition_count,
                replication_factor=shape.replication_factor,
                config=shape.config,
                internal=internal,
            )
        topic = await self._changes.create(name, shape, internal=internal)
        await self._topic_view.look(name)
        return topic

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises UnknownTopicOrPartition, MetadataError."""
        await self._changes.delete(self.topic(name))
        await self._topic_view.look(name)

    async def grow_topic(
        self, name: str, partition_count: int, *, validate_only: bool = False
    ) -> TopicInfo:
        """Raise a topic's number of partitions.

        Raises UnknownTopicOrPartition, InvalidPartitions, MetadataError.
        """
        count_max = self._config.topic_partitions_max
        topic = await self._changes.grow(name, partition_count, count_max, dry_run=validate_only)
        await self._topic_view.look(name)
        return topic

    async def configure_topic(
        self,
        name: str,
        change: Callable[[TopicConfig], TopicConfig],
        *,
        validate_only: bool = False,
    ) -> TopicInfo:
        """Replace a topic's settings by `change` of them; `change` may run more than once.

        Raises UnknownTopicOrPartition, InvalidTopicConfig, MetadataError.
        """
        topic = await self._changes.configure(name, change, dry_run=validate_only)
        await self._topic_view.look(name)
        return topic

    async def pin_partition(self, name: str, index: int, broker: BrokerId | None) -> TopicInfo:
        """Wish for a partition's leader, for as long as that broker lives; None: no wish.

        Raises UnknownTopicOrPartition, MetadataError.
        """
        topic = await self._changes.pin(name, index, broker)
        await self._topic_view.look(name)
        return topic

    async def look_for_topic(self, name: str) -> TopicInfo | None:
        """Ask the store for a topic that the view may not show yet. Raises MetadataError."""
        return await self._topic_view.look(name)

    def _defaults(self) -> TopicDefaults:
        config = self._config
        return TopicDefaults(
            partition_count=config.num_partitions,
            replication_factor=config.default_replication_factor,
            min_insync_replicas=config.default_min_insync_replicas,
            ensemble_size=config.default_ensemble_size,
            partition_count_max=config.topic_partitions_max,
        )

    async def _settle_cluster_id(self) -> str:
        raw = self._rng.getrandbits(128).to_bytes(16, "big")
        made = base64.urlsafe_b64encode(raw).rstrip(b"=")
        try:
            await self._store.create(paths.CLUSTER_ID, made)
        except NodeExists:
            return (await self._store.get(paths.CLUSTER_ID)).data.decode()
        return made.decode()

    def _on_brokers_changed(self) -> None:
        found = sorted(self._broker_view.values.values(), key=lambda broker: broker.id)
        until_s = asyncio.get_running_loop().time() + self._config.session_timeout_ms / 1000
        self._departed.update((info.id, (info, until_s)) for info in self.brokers.values())
        for info in found:
            self._departed.pop(info.id, None)
        self.brokers = {broker.id: broker for broker in found}
        self._owners.clear()
        log.info("cluster.brokers live=%s", ",".join(map(str, self.brokers)))
        self._plan_notice()

    def _on_topics_changed(self) -> None:
        self.topics = dict(sorted(self._topic_view.values.items()))
        self.topic_by_id = {topic.topic_id: topic for topic in self.topics.values()}
        self._owners = {
            topic_id: plan
            for topic_id, plan in self._owners.items()
            if topic_id in self.topic_by_id
        }
        self.leader_epochs.keep_only(self.topic_by_id)
        self._plan_notice()

    def _plan_notice(self) -> None:
        if not self._notice_planned:
            self._notice_planned = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._notice_planned = False
        for listener in self._listeners:
            listener()


def _decode_broker(name: str, data: bytes) -> BrokerInfo:
    return BrokerInfo.decode(BrokerId(int(name)), data)
