"""The group APIs of one broker, from request bytes to response bytes, without network or bookies.

Requests are written and responses read by kio, the handlers' own codec does the other halves;
the cluster view is the real one on the in-memory metadata store; partitions are fakes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import inspect
import io
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from kio.serial import entity_reader, entity_writer

from broker.cluster.cluster import Cluster
from broker.cluster.core.features import GROUP_VERSION, SHARE_VERSION, Finalized
from broker.cluster.core.topology import BrokerInfo
from broker.cluster.features import Features
from broker.cluster.leader_changes import LeaderChangeTracker
from broker.config import BrokerConfig
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.front.handlers import find_coordinator, join_group, offset_commit, offset_fetch
from broker.front.services import Call, Peer, Services
from broker.groups.groups import Groups
from broker.leadership.awaited_partitions import AwaitedPartitions
from broker.leadership.partitions import Partitions
from broker.metrics import Metrics
from broker.security.quotas import Quotas
from broker.security.rights import Rights
from broker.topics.topic_changes import TopicChanges
from broker.topics.topics import Topics
from client.ids import BookieId, BrokerId, ConnectionId
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.node.turns import Turns
from client.wire.kafka import codec
from client.wire.kafka.apis import request_type, response_type
from client.wire.kafka.connection import response_head
from tests.fakes.clock import rng
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import VirtualClock

PEER = Peer("10.0.0.9", 5555, "10.0.0.1", 9092)
ME = BrokerId(1)


def build(entity: Any, fields: dict[str, Any]) -> Any:
    """Make one of kio's entities out of plain values; fields it lacks are dropped."""
    hints = typing.get_type_hints(entity)
    values = {
        one.name: _convert(hints[one.name], fields[one.name])
        for one in dataclasses.fields(entity)
        if one.name in fields
    }
    return entity(**values)


def _convert(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, one) for one in value)
    if dataclasses.is_dataclass(hint):
        return build(hint, value)
    if isinstance(hint, type) and issubclass(hint, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    return value


class _NoPeers:
    """There is one broker, and it is there."""

    async def ask(self, brokers: Iterable[BrokerId]) -> None:
        """Nobody has to be asked."""

    def is_suspected(self, broker: BrokerId) -> bool:
        return False


class GroupBench:
    """One broker's group services; `start` first."""

    def __init__(self, **config: Any) -> None:
        config.setdefault("group_initial_rebalance_delay_ms", 0)
        config.setdefault("offsets_topic_partitions", 4)
        config.setdefault("node_id", ME)
        self.config = BrokerConfig(**config)
        self.tree = MemoryCluster()
        self.logs: dict[int, FakeLog] = {}
        self.partitions: dict[int, FakePartition] = {}
        self.awaited = AwaitedPartitions(hold_s=1.0)
        """What requests wait for; nobody begins a takeover here but tests."""
        self.hold_s = 0.0
        """How long FindCoordinator waits for a leader."""
        self.manual = False
        self.opens_by_itself = True

    async def start(self) -> GroupBench:
        """Register one broker, create topic `t` with 3 partitions."""
        self.store = self.tree.session()
        for number in range(3):
            await self.store.create(paths.cookie(BookieId(f"b{number}")), make_parents=True)
        random = rng(1)
        self.cluster = Cluster(self.store, self.config, rng=random)
        changes = TopicChanges(self.store, VirtualClock(), random)
        self.topics = Topics(self.cluster, changes, self.config)
        await self.cluster.start()
        await self.register(ME)
        self.groups = Groups(
            self.cluster,
            self.topics,
            Partitions(self.cluster, self.awaited),
            self.config,
            clock=VirtualClock(),
            rng=rng(2),
        )
        self.groups.start()
        self.cluster.add_listener(self._on_change)
        self.features = Features(self.store, self.cluster, ME)
        self.features.finalized = Finalized(0, {GROUP_VERSION: 1, SHARE_VERSION: 1})
        self.services = Services(
            config=self.config,
            settings=None,
            cluster=self.cluster,
            topics=self.topics,
            features=self.features,
            leader_changes=LeaderChangeTracker(self.cluster, _NoPeers(), self.hold_s),
            topic_metadata_cache=None,
            followers=None,  # nobody reads here
            partitions=None,
            groups=self.groups,
            transactions=None,
            link=None,
            markers=None,
            producer_ids=None,
            users=None,
            rights=Rights(self.config.security, self.store, Metrics()),
            metrics=None,
            deadlines=None,
            reading=None,
            fetch_sessions=None,
            shares=None,
            telemetry=None,
            subscriptions=None,
            group_settings=None,
            codecs=None,
            turns=Turns(),
            quotas=Quotas(self.config.security, self.store, Metrics()),
            clock=VirtualClock(),
            rng=rng(3),
            served={},
        )  # type: ignore[arg-type]
        await self.topics.create("t", 3)
        return self

    async def register(self, broker_id: int, port: int = 9092) -> None:
        """Make a broker live."""
        info = BrokerInfo(
            id=BrokerId(broker_id), incarnation="i", host="h", port=port, advertised=False
        )
        await self.store.create(f"{paths.BROKERS}/{broker_id}", info.encode())
        await self.settle(lambda: broker_id in self.cluster.brokers)

    async def settle(self, done: Callable[[], bool]) -> None:
        """Let the loop run until something is true."""
        for _ in range(2000):
            if done():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it never came true")

    async def settle_for(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        await asyncio.sleep(0.01)

    async def serving(self) -> GroupBench:
        """Create the internal topic and wait for all of its coordinators."""
        await self.call(find_coordinator, 0, key="g")
        await self.settle(
            lambda: (
                len(self.groups.coordinators()) == self.config.offsets_topic_partitions
                and all(one.phase.value == "active" for one in self.groups.coordinators())
            )
        )
        return self

    def open(self, index: int) -> FakePartition:
        """Lead a partition of the internal topic (again)."""
        log = self.logs.get(index)
        if log is None:
            log = self.logs[index] = FakeLog(OFFSETS_TOPIC, index)
        partition = self.partitions[index] = FakePartition(log, manual=self.manual)
        self.groups.on_opened(partition)  # type: ignore[arg-type]
        return partition

    def close(self, index: int) -> None:
        """Lead it no longer."""
        partition = self.partitions.pop(index)
        partition.lose()
        self.groups.on_closed(partition)  # type: ignore[arg-type]

    def _on_change(self) -> None:
        topic = self.cluster.topics.get(OFFSETS_TOPIC)
        if topic is not None and self.opens_by_itself:
            for index in range(topic.partition_count):
                if index not in self.partitions:
                    self.open(index)

    async def call(self, module: Any, version: int, *, connection: int = 0, **fields: Any) -> Any:
        """Send a request through bytes; returns kio's response entity."""
        key = int(module.KEY)
        buffer = io.BytesIO()
        kind = request_type(key, version)
        entity_writer(kind)(buffer, build(kind, fields))
        request = codec.decode_request(key, version, memoryview(buffer.getvalue()))
        call = Call(key, version, 7, "client", PEER, ConnectionId(connection))
        answer = module.handle(self.services, call, request)
        if inspect.isawaitable(answer):
            answer = await answer
        frame = b"".join(codec.encode_response(key, version, 7, answer))
        head = len(response_head(key, version, 7, 0))
        entity, size = entity_reader(response_type(key, version))(frame, head)
        assert head + size == len(frame)
        return entity

    async def join(self, version: int = 9, member_id: str = "", **fields: Any) -> Any:
        """JoinGroup with sensible defaults; a new member of v4+ goes round twice."""
        request = {
            "group_id": "g",
            "session_timeout": 10_000,
            "rebalance_timeout": 60_000,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
            **fields,
        }
        reply = await self.call(join_group, version, member_id=member_id, **request)
        if reply.error_code.name == "member_id_required":
            return await self.call(join_group, version, member_id=reply.member_id, **request)
        return reply

    async def commit(self, offset: int, version: int = 9, **fields: Any) -> str:
        """OffsetCommit of partition 0 of topic `t`; returns the name of the error code."""
        request = {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topic": "t",
            "partition_index": 0,
            "committed_metadata": "m",
            **fields,
        }
        partition = {
            "partition_index": request["partition_index"],
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": request["committed_metadata"],
        }
        topics = [{"name": request["topic"], "partitions": [partition]}]
        reply = await self.call(offset_commit, version, topics=topics, **request)
        return str(reply.topics[0].partitions[0].error_code.name)

    async def fetch(self, group_id: str = "g", topic: str = "t", index: int = 0) -> int:
        """OffsetFetch of one partition."""
        topics = [{"name": topic, "partition_indexes": [index]}]
        reply = await self.call(offset_fetch, 7, group_id=group_id, topics=topics)
        assert reply.error_code.name == "none"
        return int(reply.topics[0].partitions[0].committed_offset)
