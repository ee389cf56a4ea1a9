"""The cluster as this broker sees it: live brokers, topics, and each partition's preferred leader.

Watches keep the view current. It may lag behind, so it alone decides nothing that must be exact
(a compare-and-set decides takeovers, see `broker/TAKEOVER.md`). Topics are changed by
`broker/topics/topics.py`, which refreshes this view before it returns.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from broker.cluster.core.assignment import planned_leaders
from broker.cluster.core.topic_config import NO_DEFAULTS, TOPIC_KEYS
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.cluster.directory_view import DirectoryView
from broker.cluster.leader_epochs import LeaderEpochs
from broker.config import BrokerConfig
from broker.errors import UnknownTopicOrPartition
from client.errors import LogCorrupt, NodeExists, NoNode
from client.ids import BrokerId, Rng
from client.metadata import paths
from client.metadata.store import MetadataStore

__all__ = ["BrokerInfo", "Cluster", "TopicInfo"]

log = logging.getLogger(__name__)

_PlanInput = tuple[int, Mapping[int, tuple[BrokerId, ...]]]
"""What a topic's leaders were planned from: number of partitions, and replica lists."""

_NAMES_MAX: Final = 10
_NAME_CHARS_MAX: Final = 100
"""Of what one line of the log names."""


class Cluster:
    """Brokers and topics, live."""

    def __init__(self, store: MetadataStore, config: BrokerConfig, *, rng: Rng) -> None:
        self.cluster_id = ""
        self.brokers: Mapping[BrokerId, BrokerInfo] = {}
        """Live brokers, in the order of their ids."""
        self.topics: Mapping[str, TopicInfo] = {}
        self.topic_by_id: Mapping[UUID, TopicInfo] = {}
        self.leader_epochs = LeaderEpochs(store)
        self._store = store
        self._config = config
        self._rng = rng
        self._broker_view = DirectoryView(
            store, paths.BROKERS, _decode_broker, self._on_brokers_changed, in_place=lambda _: None
        )
        self._topic_view = TopicView(store, self._on_topics_changed)
        self._myself: BrokerInfo | None = None
        self._unregistered: dict[BrokerId, tuple[BrokerInfo, float]] = {}
        """Brokers that are no longer registered, and until when clients still see them listed."""
        self._plans: dict[UUID, tuple[_PlanInput, tuple[BrokerId, ...]]] = {}
        """Preferred leaders by topic, with what they were planned from. Cleared when the set of
        live brokers changes."""
        self._listeners: list[Callable[[], None]] = []
        self._notice_planned = False

    async def start(self) -> None:
        """Create missing parent nodes, read everything, then follow changes.

        Raises MetadataError.
        """
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

    @property
    def unreadable_brokers(self) -> list[BrokerId]:
        """Live brokers whose registration this one cannot decode, sorted.

        They are in no plan, because nobody here knows whether they may lead; but what they lead is
        not taken from them (UNREADABLE-STAYS).
        """
        return sorted(BrokerId(int(name)) for name in self._broker_view.unreadable if _is_id(name))

    def is_registered(self, broker: BrokerId, incarnation: str) -> bool:
        """Return whether that run of a broker's process may be alive: it is registered, or a
        registration of that broker says nothing that we can read."""
        # `brokers` follows a little later: till then, one that is readable again would be nowhere.
        info = self._broker_view.values.get(str(broker))
        if info is not None:
            return info.incarnation == incarnation
        return str(broker) in self._broker_view.unreadable

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` soon after any change of brokers or topics, once for changes that come
        together."""
        self._listeners.append(listener)

    def set_topic_defaults(self, defaults: Mapping[str, str]) -> None:
        """Change the defaults of all topics' settings: key -> value."""
        if self._topic_view.set_defaults(defaults):
            self._on_topics_changed()

    def topic(self, name: str) -> TopicInfo:
        """Return a topic. Raises UnknownTopicOrPartition."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"no topic {name!r}")
        return topic

    def preferred_leader(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return which live broker should lead a partition; None while no broker is live."""
        leaders = self.preferred_leaders(topic)
        return leaders[index] if index < len(leaders) else None

    def preferred_leaders(self, topic: TopicInfo) -> tuple[BrokerId, ...]:
        """Return which live broker should lead each partition; empty while no broker is live."""
        planned_from, leaders = self._plans.get(topic.topic_id, (None, ()))
        plan_input = (topic.partition_count, topic.assignments)
        if planned_from != plan_input:
            leaders = planned_leaders(topic, self.brokers.values())
            self._plans[topic.topic_id] = plan_input, leaders
        return leaders

    def introduce(self, myself: BrokerInfo) -> None:
        """List this broker from now on, registered or not: clients that ask it can reach it."""
        self._myself = myself

    def listed_brokers(self) -> list[BrokerInfo]:
        """Return this broker, live ones, and those gone less than a session timeout ago, by id.

        This one is always listed: clients may ask before the view shows its registration, and some
        (aiokafka) give up on a broker whose answer lists no broker.

        librdkafka (seen with 2.16) drops its queue for a broker as soon as an answer no longer
        lists it, and looks for new leaders of its partitions only a second later, although the same
        answer named them. Kafka keeps a dead broker listed for as long.
        """
        now_s = asyncio.get_running_loop().time()
        listed = {b.id: b for b, until_s in self._unregistered.values() if now_s < until_s}
        if self._myself is not None:
            listed[self._myself.id] = self._myself
        return sorted((listed | dict(self.brokers)).values(), key=lambda broker: broker.id)

    def controller_id(self) -> BrokerId:
        """Return the broker that clients should send admin requests to; any broker accepts them."""
        return min(self.brokers, default=self._config.node_id)

    async def look_for_topic(self, name: str) -> TopicInfo | None:
        """Read a topic from the store that the view may not show yet. Raises MetadataError."""
        return await self._topic_view.look(name)

    async def is_deleted(self, name: str, topic_id: UUID | None) -> bool:
        """Return whether the store has no topic of that name, or only one with another id.

        For topics that are known to have existed: one that is not created yet looks the same. A
        topic whose node is unreadable is not deleted. Raises MetadataError.
        """
        path = paths.topic(name)
        await self._store.sync(path)
        try:
            node = await self._store.get(path)
            found = TopicInfo.decode(name, node.data)
        except NoNode:
            return True
        except LogCorrupt:
            return False
        return topic_id is not None and found.topic_id != topic_id

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
        self._unregistered.update((info.id, (info, until_s)) for info in self.brokers.values())
        for info in found:
            self._unregistered.pop(info.id, None)
        self.brokers = {broker.id: broker for broker in found}
        self._plans.clear()
        log.info("cluster.brokers live=%s", ",".join(map(str, self.brokers)))
        self._plan_notice()

    def _on_topics_changed(self) -> None:
        self.topics = dict(sorted(self._topic_view.values.items()))
        self.topic_by_id = {topic.topic_id: topic for topic in self.topics.values()}
        self._plans = {
            topic_id: plan for topic_id, plan in self._plans.items() if topic_id in self.topic_by_id
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


def _is_id(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _decode_broker(name: str, data: bytes) -> BrokerInfo:
    return BrokerInfo.decode(BrokerId(int(name)), data)


class TopicView(DirectoryView[TopicInfo]):
    """Name -> topic, kept current by watches."""

    def __init__(self, store: MetadataStore, on_change: Callable[[], None]) -> None:
        super().__init__(store, paths.TOPICS, self._decode_topic, on_change)
        self._defaults: Mapping[str, str] = NO_DEFAULTS

    def set_defaults(self, defaults: Mapping[str, str]) -> bool:
        """Apply other defaults to all topics: key -> value. Return whether that changes any."""
        if defaults == self._defaults:
            return False
        self._defaults = defaults
        self.values = {name: one.with_defaults(defaults) for name, one in self.values.items()}
        return True

    def _decode_topic(self, name: str, data: bytes) -> TopicInfo:
        topic = TopicInfo.decode(name, data)
        known = self.values.get(name)
        if topic.config.carried and (known is None or known.config.carried != topic.config.carried):
            _say_what_holds(topic)
        return topic.with_defaults(self._defaults) if self._defaults else topic


def _say_what_holds(topic: TopicInfo) -> None:
    """Log which stored settings are not understood here, and what holds instead."""
    config = topic.config
    shown = [
        f"{name[:_NAME_CHARS_MAX]}={config.value(name) if name in TOPIC_KEYS else '(unknown)'}"
        for name in list(config.carried)[:_NAMES_MAX]
    ]
    log.warning(
        "topic.settings_carried topic=%s count=%d settings=%r",
        topic.name,
        len(config.carried),
        ", ".join(shown),
    )
