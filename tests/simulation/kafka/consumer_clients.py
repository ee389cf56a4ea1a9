"""A group of the consumer protocol (KIP-848) in whole-cluster schedules: members that come, go and
die, a topic that grows, and their judge (`consumer_book.py`)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from broker.errors import BrokerError
from client.errors import QuireError
from tests.simulation.clusters.consumer_load import CONSUMED, PARTITIONS_MAX
from tests.simulation.kafka.consumer_audit import ConsumerAudit
from tests.simulation.kafka.consumer_book import ConsumerBook, Place
from tests.simulation.kafka.consumer_member import ConsumerMember, watch

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from broker.app import Broker
    from broker.cluster.core.topology import TopicInfo
    from tests.simulation.clusters.consumer_load import ConsumerLoad
    from tests.simulation.clusters.world import ClusterWorld
    from tests.simulation.kafka.consumer_member import ConsumerOptions
    from tests.simulation.machine.hosts import Host

GROUP = "consumers"
_COMMITS_MIN = 3
"""Commits that are waited for in the end."""


class ConsumerClients:
    """All members of one schedule's group, and who makes them trouble."""

    def __init__(self, world: ClusterWorld, load: ConsumerLoad) -> None:
        self._world = world
        self._load = load
        self._hosts: list[Host] = []
        self._members: dict[str, ConsumerMember] = {}
        self.book = ConsumerBook(world.loop, self._count)
        self._audit = ConsumerAudit(world.loop, GROUP, self._brokers, self._count)

    def _count(self, name: str) -> None:
        self._world.oracle.count(f"consumers: {name}")

    def assign(self, host: Host) -> None:
        """Let a member of the group run on a host."""
        self._hosts.append(host)

    def runs_on(self, host: Host) -> bool:
        """Tell whether a host is one of a member."""
        return host in self._hosts

    # ---------------------------------------------------------------- processes

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a member's next process."""
        return self._run(host)

    def _options(self) -> ConsumerOptions:
        """Return how members behave now."""
        options = self._load.consumer
        return options.calm() if self._world.healed else options

    async def _run(self, host: Host) -> None:
        """Be one member after the other: one that has left comes back."""
        await self._world.work.topic_exists.wait()
        names = [broker.name for broker in self._world.brokers]
        rng = self._world.fork_rng(f"consumer {host.name} {host.starts}")
        if host is self._hosts[0]:
            self._world.loop.create_task(watch(names, GROUP, self.book, rng, self._by_topic))
        while True:
            member = ConsumerMember(
                host.name,
                GROUP,
                names,
                self.book,
                rng,
                self._options,
                self._topic_name,
                is_static=self._hosts.index(host) < self._load.statics,
            )
            self._members[host.name] = member
            await member.run()
            await asyncio.sleep(rng.expovariate(2.0))

    # ---------------------------------------------------------------- trouble

    def begin(self) -> None:
        """Let members leave, and the topic grow; and look at coordinators."""
        world = self._world
        self._tasks = [
            world.loop.create_task(main)
            for main in (
                self._audit.run(world.fork_rng("consumers audit")),
                self._let_leave(),
                self._let_grow(),
            )
        ]

    async def _let_leave(self) -> None:
        rng = self._world.fork_rng("consumers leave")
        while not self._world.healed:
            await asyncio.sleep(rng.expovariate(1 / self._load.leave_every_s))
            member = self._members.get(rng.choice(self._hosts).name)
            if member is not None and not self._world.healed:
                member.leave()

    async def _let_grow(self) -> None:
        rng = self._world.fork_rng("consumers grow")
        while not self._world.healed:
            await asyncio.sleep(rng.expovariate(1 / self._load.grow_every_s))
            host, broker = rng.choice(list(self._brokers()))
            topic = broker.cluster.topics.get(CONSUMED)
            process = host.process
            if topic is None or process is None or not process.alive or process.paused:
                continue
            count = min(PARTITIONS_MAX, topic.partition_count + 1)
            process.context.run(self._world.loop.create_task, self._grow(broker, count))

    async def _grow(self, broker: Broker, count: int) -> None:
        with contextlib.suppress(BrokerError, QuireError):
            await broker.topics.grow(CONSUMED, count)
            self._count("topic grown")

    # ---------------------------------------------------------------- what there is

    def _brokers(self) -> Iterator[tuple[Host, Broker]]:
        for host in self._world.brokers:
            broker = self._world.running(host.name)
            if broker is not None:
                yield host, broker

    def _topic(self) -> TopicInfo | None:
        """Return the topic as the broker sees it that has heard most of it."""
        found = [broker.cluster.topics.get(CONSUMED) for _, broker in self._brokers()]
        known = [topic for topic in found if topic is not None]
        return max(known, key=lambda topic: topic.partition_count, default=None)

    def _topic_name(self, topic_id: Any) -> str | None:
        topic = self._topic()
        return CONSUMED if topic is not None and topic.topic_id == topic_id else None

    def _places(self) -> list[Place]:
        topic = self._topic()
        if topic is None:
            return []
        return [Place(topic.topic_id, index) for index in range(topic.partition_count)]

    def _by_topic(self) -> dict[str, list[Place]]:
        places = self._places()
        return {CONSUMED: places} if places else {}

    # ---------------------------------------------------------------- the judge

    async def judge(self) -> None:
        """H3: see the group together, and going on."""
        world = self._world
        while missing := self.book.together(self._places(), len(self._hosts)):
            world.doing = f"waiting for the consumers: {missing}"
            await asyncio.sleep(0.1)
        counts, name = world.oracle.counts, "consumers: commits"
        before = counts.get(name, 0)
        world.doing = "waiting for commits of the consumers"
        while counts.get(name, 0) < before + _COMMITS_MIN:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
