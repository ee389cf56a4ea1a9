"""Follower fetching (KIP-392): the partitions led elsewhere that this broker serves to consumers in
its rack, and the preferred read replicas of the partitions that it leads itself.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.config import BrokerConfig
from broker.errors import NotLeader
from broker.leadership.follower import Follower, choose_replica, redirect_offset_max, stable_end
from broker.metrics import Metrics
from broker.partition.log_services import LogServices
from broker.partition.partition import Partition
from client.ids import BrokerId, Offset

SENT_MAX: Final = 10_000
_IDLE_S: Final = 60.0
"""A partition that has not been read for this long is dropped."""


class Consumer(NamedTuple):
    """A consumer that another broker may be able to serve."""

    rack: str
    """Its `client.rack`."""
    listener: str
    """Name of the listener that it connected to."""
    host: str
    client_id: str | None
    """With the host, this identifies the client: connections come and go."""
    committed: bool
    """Whether it reads committed records only."""


class Followers:
    """The followed partitions of a broker, shared by all its requests."""

    def __init__(self, services: LogServices, cluster: Cluster, config: BrokerConfig) -> None:
        self._services = services
        self._cluster = cluster
        self._settings = config.follower
        self._node_id = config.node_id
        self._rack = config.rack
        self._served: dict[tuple[UUID, int], Follower] = {}
        """Least recently used first."""
        self._sent: dict[tuple[str, str | None, UUID, int], Offset] = {}
        """Offset at which a client was last sent to another broker, by host, client id and
        partition; oldest first."""
        self.redirects = 0
        """Answers that named a preferred read replica."""
        self.is_on = config.follower.is_rack_aware
        """Whether consumers are sent to, and served by, brokers in their rack."""
        self._provide(services.metrics)

    def _provide(self, metrics: Metrics) -> None:
        metrics.provide_one("quire_broker_follower_partitions", lambda: len(self._served))
        metrics.provide_one("quire_broker_follower_redirects", lambda: self.redirects)

    def serves(self, rack: str) -> bool:
        """Whether a consumer is in our rack, and so may read partitions here that others lead."""
        return rack == self._rack

    def find(self, topic: str, index: int, refusal: NotLeader) -> Follower:
        """Return the follower of a partition that we do not lead. `refusal` names its leader.

        Raises UnknownTopicOrPartition.
        """
        info = self._cluster.topic(topic)
        key = info.topic_id, index
        found = self._served.pop(key, None)
        if found is None:
            found = Follower(self._services, info, index, self._settings)
        found.leader, found.used_s = refusal.leader, self._now_s()
        self._served[key] = found
        self._drop_idle()
        return found

    def preferred_read_replica(
        self, partition: Partition, consumer: Consumer, offset: Offset
    ) -> BrokerId | None:
        """Return the broker that a consumer should fetch a partition from that we lead; None: us.

        A consumer is redirected only once from each offset. If it comes back without having made
        progress, for whatever reason, it gets its records here.
        """
        rack = consumer.rack
        if rack == self._rack or not self._may_redirect(
            partition, offset, committed=consumer.committed
        ):
            return None
        near = (
            one
            for one in self._cluster.brokers.values()
            if one.id != self._node_id and not one.unloaded and consumer.listener in one.endpoints
        )
        chosen = choose_replica(rack, near, partition.topic.topic_id, partition.index)
        if chosen is None:
            return None
        key = consumer.host, consumer.client_id, partition.topic.topic_id, partition.index
        if self._sent.pop(key, None) == offset:
            return None
        self._sent[key] = offset
        if len(self._sent) > SENT_MAX:
            del self._sent[next(iter(self._sent))]
        self.redirects += 1
        return chosen

    def _may_redirect(self, partition: Partition, offset: Offset, *, committed: bool) -> bool:
        listed = partition.usage.listed
        if not listed.segments:
            return False
        active = listed.segments[-1].base_offset
        if active is not None and offset >= active:  # at the tail, as most consumers are
            return False
        if (
            not partition.log_start_offset
            <= offset
            <= redirect_offset_max(listed, self._settings.behind_bytes_min)
        ):
            return False
        return not committed or offset < stable_end(listed)

    def _drop_idle(self) -> None:
        """Drop partitions that are no longer read."""
        idle_s = self._now_s() - _IDLE_S
        for key, one in list(self._served.items())[:-1]:  # the last one is about to be read
            is_over = len(self._served) > self._settings.partitions_max
            if not is_over and one.used_s > idle_s:
                return
            if not one.reads:
                del self._served[key]
                one.close()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
