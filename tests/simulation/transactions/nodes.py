"""The brokers of transaction schedules: coordinators, partitions and links of one, in one loop.

Everything that decides about transactions is the production code: partitions, transactional ids'
and groups' coordinators, markers, questions and their sessions. What is scripted is what they know
of each other, and how long messages take: a broker may lead no more and not know it, may believe in
a leader of yesterday, and a message may arrive long after whoever sent it has given it up, as it
can where a proxy or a full socket lies between.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.coordinators import accepted_before
from broker.coordinator.core.connection_order import CommitOrder
from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.coordinator.runtime import Phase
from broker.errors import NotCoordinator, NotLeader, PeerUnanswered, PeerUnavailable
from broker.groups.coordinator import Coordinator as GroupCoordinator
from broker.groups.core.group_offsets import TopicPartition
from broker.groups.core.group_types import GroupConfig
from broker.transactions.core.marker_queue import Leader, MarkerQueueConfig, Unled
from broker.transactions.marker_sender import LinkedMarkers
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.transactions import Surroundings, TransactionCoordinator
from broker.transactions.verifier import Questions, Verifier
from client.errors import MetadataError, QuireError
from client.ids import BrokerId, ConnectionId
from tests.fakes.brokers import Broker
from tests.fakes.group_topics import FakeTopics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from uuid import UUID

    from broker.cluster.core.topology import TopicInfo
    from broker.link.core.link_api import LinkApi
    from broker.partition.core.held_batches import VerificationRequest
    from broker.partition.partition import Partition
    from broker.transactions.core.transaction import TransactionPartition
    from client.wire.kafka.batches.control_batch import Marker
    from tests.simulation.transactions.world import TransactionWorld

Place = tuple[str, int]

_ANSWER_S_MAX = 0.4
"""How long a broker waits for the answer of another."""
_LEASE_S = 2.0


class Lane:
    """One connection between two brokers: requests arrive in order, perhaps late."""

    def __init__(self, target: Node, delay_s: float) -> None:
        self.target = target
        self.life = target.life
        self.delay_s = delay_s
        self.arrival_s = 0.0
        """When the last request arrives."""


class NodeLinks:
    """The links of one broker. Stands for `broker.link.links.Links`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._served: dict[int, Callable[[BrokerId, Any], Awaitable[Any]]] = {}
        self._lanes: dict[tuple[BrokerId, str], Lane] = {}

    def serve(self, api: LinkApi[Any, Any], answer: Callable[..., Awaitable[Any]]) -> None:
        """Answer requests of a kind."""
        self._served[api.kind] = answer

    async def ask(
        self, broker: BrokerId, api: LinkApi[Any, Any], request: Any, lane: str = ""
    ) -> Any:
        """Return a broker's answer. Raises PeerError."""
        world = self._node.world
        if broker == self._node.id:
            return await self._served[api.kind](broker, request)
        target = world.nodes[broker]
        if world.is_cut(self._node.id, broker):
            raise PeerUnavailable(f"broker {broker} cannot be reached")
        way = self._lanes.get((broker, lane))
        if way is None or way.life != target.life:
            way = self._lanes[broker, lane] = Lane(target, world.lane_delay_s())
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._send(way, api, api.encode_request(request), answer)
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                body = await answer
        except TimeoutError:
            if self._lanes.get((broker, lane)) is way:
                del self._lanes[broker, lane]
            raise PeerUnanswered(f"broker {broker} has not answered") from None
        return api.decode_answer(memoryview(body))

    def _send(
        self, way: Lane, api: LinkApi[Any, Any], body: bytes, answer: asyncio.Future[bytes]
    ) -> None:
        world, loop, sender = self._node.world, asyncio.get_running_loop(), self._node.id
        held_s = world.held_s(api.name)
        way.arrival_s = max(way.arrival_s, loop.time() + way.delay_s + held_s)

        async def arrive() -> None:
            target = way.target
            if target.life != way.life:
                return
            serve = target.links._served[api.kind]
            try:
                found = await serve(sender, api.decode_request(memoryview(body)))
            except QuireError:
                return  # who asked waits in vain
            if target.life == way.life:
                back = api.encode_answer(found)
                loop.call_later(way.delay_s + world.held_s(f"answers to {api.name}"), told, back)

        def told(back: bytes) -> None:
            if not answer.done():
                answer.set_result(back)

        loop.call_at(way.arrival_s, world.start, arrive)


class NodeView:
    """What one broker believes of topics and leaders."""

    def __init__(self, world: TransactionWorld) -> None:
        self._world = world
        self.leaders: dict[Place, Leader] = {}

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """Topics by name."""
        return self._world.topics

    @property
    def topic_by_id(self) -> Mapping[UUID, TopicInfo]:
        """Topics by id."""
        return self._world.topic_by_id

    def preferred_leader(self, topic: TopicInfo, index: int) -> BrokerId | None:
        """Return who leads a partition, as far as this broker has heard."""
        found = self.leaders.get((topic.name, index))
        return None if found is None else found.broker


class Fetched(NamedTuple):
    """A group's offset, as OffsetFetch shows it."""

    offset: int
    is_stable: bool


class Node:
    """One broker: what it leads, what it coordinates, whom it asks."""

    def __init__(self, world: TransactionWorld, number: int) -> None:
        self.world = world
        self.id = BrokerId(number)
        self.life = 0
        """How often its process has begun."""
        self.led: dict[Place, Partition] = {}
        self.view = NodeView(world)
        self.links = NodeLinks(self)
        self.states: TransactionCoordinator | None = None
        self.offsets: GroupCoordinator | None = None
        self._numbers = itertools.count(1)
        self.last_connection = ConnectionId(0)
        self.broker: Broker

    async def start(self) -> None:
        """Begin a process."""
        world = self.world
        self.life += 1
        self.led = {}
        self.broker = Broker(world.base, self.id)
        await self.broker.start(owning=False)
        services = self.broker.services
        self.links = NodeLinks(self)
        services.coordinators.verifier = _Watched(self, Verifier(self.view, self.links))  # type: ignore[arg-type]
        Questions(self).serve(self.links)  # type: ignore[arg-type]
        writer = MarkerWriter(
            self.view,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            {OFFSETS_TOPIC: self._write_into_offsets},
            markers_per_turn=1,
        )
        writer.serve(self.links)  # type: ignore[arg-type]
        self.sessions = LinkedMarkers(self.links)  # type: ignore[arg-type]
        world.start(lambda: self._keep_lease(self.broker))

    def stop(self) -> None:
        """kill -9."""
        self.life += 1
        self.broker.kill()
        for place, partition in list(self.led.items()):
            self.closed(place, partition)
            partition.resign("killed")

    async def _keep_lease(self, broker: Broker) -> None:
        while not broker.dead:
            try:
                await broker.services.lease.ask(broker.store)
            except MetadataError:
                return
            await asyncio.sleep(_LEASE_S)

    # ---------------------------------------------------------------- leadership

    def opened(self, place: Place, partition: Partition) -> None:
        """This broker leads a partition now."""
        self.led[place] = partition
        partition.on_ended = lambda: self.closed(place, partition)
        if place[0] == TRANSACTIONS_TOPIC:
            self.states = self._coordinate(partition)
            self.states.start()
        elif place[0] == OFFSETS_TOPIC:
            self.offsets = GroupCoordinator(
                partition,
                GroupConfig(),
                clock=self.world.base.clock,
                new_member_id=lambda name: name,
                topics=FakeTopics(),
                copy_bytes_min=self.world.plan.log_copy_bytes,
                order=CommitOrder(accepted_before(partition, lambda: self.last_connection)),
            )
            self.offsets.start()

    def closed(self, place: Place, partition: Partition) -> None:
        """This broker leads a partition no longer, and knows it."""
        if self.led.get(place) is not partition:
            return
        del self.led[place]
        if place[0] == TRANSACTIONS_TOPIC and self.states is not None:
            self.states.close()
            self.states = None
        elif place[0] == OFFSETS_TOPIC and self.offsets is not None:
            self.offsets.close()
            self.offsets = None

    def _coordinate(self, partition: Partition) -> TransactionCoordinator:
        world = self.world
        shared = Surroundings(
            world.base.clock,
            world.take_producer_id,
            self,
            self.sessions,
            world.plan.coordination(),
            MarkerQueueConfig(request_markers_max=2, retry_ms_max=100),
            world.plan.log_copy_bytes,
            lambda event: world.count(event.name),
        )
        return TransactionCoordinator(
            partition, shared, accepted_before(partition, lambda: self.last_connection)
        )

    def heard(self, place: Place, leader: Leader) -> None:
        """This broker hears who leads a partition."""
        known = self.view.leaders.get(place)
        if known is not None and known.epoch >= leader.epoch:
            return
        self.view.leaders[place] = leader
        if self.states is not None:
            self.states.on_leaders_changed()

    # ---------------------------------------------------------------- what its parts ask it

    def leader(self, *where: Any) -> Any:
        """Stand for `Leaders` (one argument) and `Partitions` (topic and index)."""
        if len(where) == 2:
            return self.leading((where[0], where[1]))
        (one,) = where
        by_id = one.topic_id is not None
        topic = (self.world.topic_by_id if by_id else self.world.topics).get(
            one.topic_id if by_id else one.topic
        )
        if topic is None:
            return Unled.DELETED
        place = topic.name, one.partition
        led = self.led.get(place)
        if led is not None and led.is_open:
            return Leader(self.id, led.leader_epoch)
        return self.view.leaders.get(place, Unled.UNKNOWN)

    def leading(self, place: Place) -> Partition:
        """Return a partition that this broker leads, or thinks so. Raises NotLeader."""
        found = self.led.get(place)
        if found is None or not found.is_open:
            raise NotLeader(f"broker {self.id} does not lead {place}")
        return found

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this broker leads it."""
        found = self.led.get((topic, index))
        return found if found is not None and found.is_open else None

    def coordinator(self, _: str) -> TransactionCoordinator:
        """Return the coordinator of all transactional ids. Raises NotCoordinator."""
        if self.states is None:
            raise NotCoordinator(f"broker {self.id} coordinates nothing")
        return self.states

    async def check_seen(self, partitions: Sequence[TransactionPartition]) -> None:
        """All brokers see all topics."""

    def groups(self) -> GroupCoordinator:
        """Return the coordinator of all groups. Raises NotCoordinator."""
        if self.offsets is None:
            raise NotCoordinator(f"broker {self.id} coordinates no groups")
        return self.offsets

    async def _write_into_offsets(
        self, partition: Partition, marker: Marker, *, is_tv2: bool, leader_epoch: Any
    ) -> None:
        coordinator = self.groups()
        if coordinator.partition is not partition:
            raise NotLeader("another coordinator serves the log")
        await coordinator.write_marker(marker, is_tv2=is_tv2, leader_epoch=leader_epoch)

    # ---------------------------------------------------------------- what clients ask it

    def accept(self) -> ConnectionId:
        """A client connects."""
        self.last_connection = ConnectionId(next(self._numbers))
        return self.last_connection

    def is_serving(self, topic: str) -> bool:
        """Whether the coordinator of a topic is here, and active."""
        found = self.states if topic == TRANSACTIONS_TOPIC else self.offsets
        return found is not None and found.phase is Phase.ACTIVE

    def fetch_offset(self, group: str, topic: str, index: int) -> Fetched:
        """Return a group's offset as OffsetFetch answers a client that wants stable ones.

        Raises BrokerError.
        """
        view = self.groups().view()
        key = TopicPartition(topic, index)
        committed = view.committed(group).get(*key)
        offset = -1 if committed is None else committed.offset
        return Fetched(offset, key not in view.unstable(group))


class _Watched:
    """A verifier that is watched: nobody asks about an epoch that his log knows to be fenced."""

    def __init__(self, node: Node, verifier: Verifier) -> None:
        self._node = node
        self._verifier = verifier

    async def verify(self, request: VerificationRequest) -> int:
        """See `TransactionVerifier`."""
        partition = self._node.led.get((request.topic, request.partition))
        if partition is not None:
            known = partition._leader.log.producers.epoch(request.producer_id)
            if request.producer_epoch < known:
                self._node.world.fail(
                    "X7", f"{request} is asked, and epoch {known} is in the log there"
                )
        return await self._verifier.verify(request)
