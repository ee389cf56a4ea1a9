"""A transaction's coordinator is taken over, in each of its states: what was promised is kept.

Whole brokers over fake ledgers, and a client that behaves as clients do. Markers are held back by a
gate where a state needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.coordinator.core.routing import TRANSACTIONS_TOPIC, coordinator_partition
from broker.errors import BrokerError, PeerUnanswered
from broker.transactions.config import TransactionSettings
from broker.transactions.core.marker_queue import Marker, Outcome
from broker.transactions.core.transaction import TransactionState
from broker.transactions.marker_sender import CoordinatorTerm, MarkerLink, MarkerSessions
from client.ids import BrokerId
from client.wire.kafka.batches.records import headers, records
from tests.fakes.broker import FakeCloud, until
from tests.fakes.transactional_client import TransactionalClient

ID = "tx"
PARTITIONS = 3
SETTINGS = TransactionSettings(enabled=True, topic_partitions=3, timeout_interval_ms=100)


class Gate:
    """The way to other brokers, which can be closed: markers are not answered then."""

    def __init__(self, link: MarkerLink, world: World) -> None:
        self._link = link
        self._world = world

    def open(self, coordinator: CoordinatorTerm) -> MarkerSessions:
        return _Sessions(self._link.open(coordinator), self._world)


class _Sessions:
    def __init__(self, sessions: MarkerSessions, world: World) -> None:
        self._sessions = sessions
        self._world = world

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        if self._world.is_gate_closed:
            raise PeerUnanswered("the gate is closed")
        return await self._sessions.send(broker, markers)

    def close(self) -> None:
        self._sessions.close()


class World:
    """Three brokers, topic t, one transactional client."""

    def __init__(self, *, is_tv2: bool) -> None:
        self.cloud = FakeCloud()
        self.is_gate_closed = False
        self.is_tv2 = is_tv2
        self.client = TransactionalClient(self.cloud, ID, is_tv2=is_tv2)

    async def start(self) -> World:
        for number in (1, 2, 3):
            broker = await self.cloud.start_broker(number, transactions=SETTINGS)
            transactions = broker.transactions
            shared = transactions._shared
            transactions._shared = shared._replace(link=Gate(shared.link, self))
        await self.cloud.brokers[1].topics.create("t", PARTITIONS)
        await until(lambda: all(self.leader("t", index) for index in range(PARTITIONS)))
        return self

    async def close(self) -> None:
        await self.client.close()
        await self.cloud.close()

    def leader(self, topic: str, index: int) -> Broker | None:
        for broker in self.cloud.brokers.values():
            if broker.partitions.find(topic, index) is not None:
                return broker
        return None

    def coordinator(self) -> Broker | None:
        """The broker that coordinates the id, once it serves."""
        for broker in self.cloud.brokers.values():
            try:
                broker.transactions.coordinator(ID).view()
            except BrokerError:
                continue
            return broker
        return None

    def state(self) -> TransactionState | None:
        found = self.coordinator()
        if found is None:
            return None
        stored = found.transactions.coordinator(ID).view().describe(ID)
        return None if stored is None else stored.state

    async def becomes(self, state: TransactionState) -> None:
        await until(lambda: self.state() is state)

    async def depose_coordinator(self) -> None:
        """Its session ends: another broker takes over, and it learns of it later."""
        await self._depose(TRANSACTIONS_TOPIC, coordinator_partition(ID, SETTINGS.topic_partitions))

    async def depose_leader(self, index: int) -> None:
        """The same for a partition of t."""
        await self._depose("t", index)

    async def _depose(self, topic: str, index: int) -> None:
        leader = self.leader(topic, index)
        assert leader is not None
        led = leader.partitions.find(topic, index)
        assert led is not None
        self.cloud.tree.expire(self.cloud.stores[leader.config.node_id])

        def is_over() -> bool:
            found = self.leader(topic, index)
            partition = None if found is None else found.partitions.find(topic, index)
            return partition is not None and partition.leader_epoch > led.leader_epoch

        await until(is_over, 20)

    async def read(self) -> list[str]:
        """What readers of committed records see at last, in all partitions."""
        values: list[str] = []
        for index in range(PARTITIONS):
            await until(lambda index=index: self._is_stable(index), 20)
            values += await self._read(index)
        return sorted(values)

    async def _read(self, index: int) -> list[str]:
        """Read as consumers do: batches from an aborted transaction's first to its marker go."""
        found = self.leader("t", index)
        assert found is not None
        partition = found.partitions.find("t", index)
        assert partition is not None
        values: list[str] = []
        hidden: set[int] = set()
        offset = partition.log_start_offset
        while offset < partition.last_stable_offset:
            fetched = await partition.reader.read(
                offset, 1 << 20, at_least_one=True, read_committed=True
            )
            for buffer in fetched.buffers:
                view = memoryview(buffer)
                for at, header in headers(view):
                    hidden |= {
                        one.producer_id
                        for one in fetched.aborted
                        if one.first_offset <= header.base_offset <= one.last_offset
                    }
                    if header.is_control:
                        hidden.discard(header.producer_id)
                    elif header.producer_id not in hidden:
                        batch = records(view[at : at + header.size])
                        values += ((one.value or b"").decode() for one in batch)
            offset = fetched.next_offset
        return values

    def _is_stable(self, index: int) -> bool:
        found = self.leader("t", index)
        partition = None if found is None else found.partitions.find("t", index)
        return (
            partition is not None
            and partition.high_watermark == partition.log_end_offset
            and partition.last_stable_offset == partition.high_watermark
        )

    async def write(self, *values: str) -> None:
        """Add all partitions, and write a value to each."""
        assert await self.client.add("t", *range(PARTITIONS)) == {ErrorCode.none}
        for index, value in enumerate(values):
            assert await self.client.write("t", index, value) == ErrorCode.none


@pytest.fixture(params=[False, True], ids=["classic", "tv2"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = await World(is_tv2=request.param).start()
    yield made
    await made.close()


async def test_empty(world: World) -> None:
    await world.client.begin()
    await world.depose_coordinator()
    await world.write("a", "b", "c")
    assert await world.client.end(is_commit=True) == ErrorCode.none
    assert await world.read() == ["a", "b", "c"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_ongoing(world: World, is_commit: bool) -> None:
    await world.client.begin()
    await world.write("a", "b")
    await world.depose_coordinator()
    assert world.state() in (None, TransactionState.ONGOING)
    assert await world.client.write("t", 2, "c") == ErrorCode.none
    assert await world.client.end(is_commit=is_commit) == ErrorCode.none
    assert await world.read() == (["a", "b", "c"] if is_commit else [])


@pytest.mark.parametrize("is_commit", [True, False])
async def test_decided_without_a_marker(world: World, is_commit: bool) -> None:
    await world.client.begin()
    await world.write("a", "b", "c")
    world.is_gate_closed = True
    assert await world.client.end(is_commit=is_commit) == ErrorCode.none
    await world.depose_coordinator()
    world.is_gate_closed = False
    after = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    await world.becomes(after)
    assert await world.read() == (["a", "b", "c"] if is_commit else [])


async def test_decided_while_leaders_change(world: World) -> None:
    await world.client.begin()
    await world.write("a", "b", "c")
    world.is_gate_closed = True
    assert await world.client.end(is_commit=True) == ErrorCode.none
    for index in range(PARTITIONS):
        await world.depose_leader(index)
    world.is_gate_closed = False
    await world.becomes(TransactionState.COMPLETE_COMMIT)
    assert await world.read() == ["a", "b", "c"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_complete(world: World, is_commit: bool) -> None:
    await world.client.begin()
    await world.write("a", "b", "c")
    assert await world.client.end(is_commit=is_commit) == ErrorCode.none
    await world.becomes(
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    )
    await world.depose_coordinator()
    await world.write("d", "e", "f")
    assert await world.client.end(is_commit=True) == ErrorCode.none
    first = ["a", "b", "c"] if is_commit else []
    assert await world.read() == [*first, "d", "e", "f"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_lost_answer_is_asked_for_again(world: World, is_commit: bool) -> None:
    await world.client.begin()
    await world.write("a", "b", "c")
    world.client.lose_next_answer = True
    assert await world.client.end(is_commit=is_commit) == ErrorCode.none
    assert await world.read() == (["a", "b", "c"] if is_commit else [])


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_lost_answer_and_a_takeover(world: World, is_commit: bool) -> None:
    await world.client.begin()
    await world.write("a", "b", "c")
    world.client.lose_next_answer = True
    end = asyncio.ensure_future(world.client.end(is_commit=is_commit))
    await until(lambda: world.state() is not TransactionState.ONGOING)
    await world.depose_coordinator()
    assert await end == ErrorCode.none
    assert await world.read() == (["a", "b", "c"] if is_commit else [])


async def test_a_successor_at_another_coordinator(world: World) -> None:
    await world.client.begin()
    await world.write("a", "b", "c")
    await world.depose_coordinator()
    successor = TransactionalClient(world.cloud, ID, is_tv2=world.is_tv2)
    await successor.begin()
    assert successor.epoch > world.client.epoch
    assert await world.client.end(is_commit=True) == ErrorCode.producer_fenced
    assert await world.client.write("t", 0, "late") == ErrorCode.invalid_producer_epoch
    assert await world.read() == []
    await successor.close()
