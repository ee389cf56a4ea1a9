"""What an owner node says while brokers die, restart, stall and lose their sessions."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.owner_node import Owner, OwnerNode
from broker.errors import LeadershipLost, NotLeader
from client.ids import BrokerId, Offset
from client.metadata import paths
from client.metadata.memory import Fault, MemoryStore
from client.metadata.store import SessionState
from client.node import background
from client.node.grouped_requests import GroupedRequests
from tests.fakes.bad_nodes import HUGE_JSON, NEWER_FORMAT, NO_JSON
from tests.fakes.brokers import (
    ClientBackend,
    FakeBackend,
    World,
    batch,
    done,
    in_world,
    read_all,
    until,
)
from tests.fakes.owners import STEPS, leader_of, other, owner

both = pytest.mark.parametrize("backend", [FakeBackend, ClientBackend])


def test_the_owner_node_of_a_process_that_is_gone_is_broken_at_once() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        await world.broker(1)
        await world.broker(2)
        old = await leader_of(world, topic)
        await done(old.partitions.leader("t", 0).append(batch("a")))
        old.kill()
        new = other(world, old)
        # A peer has noticed: the registration is gone, the owner node is still there.
        await world.admin.delete(paths.broker(old.id))
        started = asyncio.get_running_loop().time()
        partition = await new.leads(topic)
        assert asyncio.get_running_loop().time() - started < 0.5
        assert owner(world, topic) == Owner(new.id, new.info.incarnation)
        assert await read_all(partition) == [(0, "a")]

    in_world(scenario)


def test_without_a_notice_the_session_timeout_decides() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        await world.broker(1)
        await world.broker(2)
        old = await leader_of(world, topic)
        old.kill()
        started = asyncio.get_running_loop().time()
        await other(world, old).leads(topic)
        assert 9 < asyncio.get_running_loop().time() - started < 11

    in_world(scenario)


def test_an_owner_node_is_let_go_even_if_the_answer_gets_lost() -> None:
    """A live broker that keeps the node of a partition it does not want blocks it for ever."""

    async def scenario(world: World) -> None:
        topic = await world.topic(partition_count=2)
        first = await world.broker(1)
        await until(lambda: len(first.partitions) == 2)
        lost = [Fault.LOSE_REPLY, Fault.LOSE_REQUEST]
        world.cluster.on_request = lambda operation: (
            lost.pop() if lost and operation.name == "delete" else None
        )
        second = await world.broker(2)
        await until(lambda: len(second.partitions) == 1)
        assert lost == []
        assert topic.partition_count == 2

    in_world(scenario)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("is_stale", [False, True])
@pytest.mark.parametrize("operation", ["get_many", "multi"])
def test_a_claim_whose_answers_get_lost(operation: str, is_stale: bool, fault: Fault) -> None:
    """A stale node is broken, and the next one made, in one transaction."""

    async def scenario(world: World) -> None:
        topic = await world.topic()
        path, gone = paths.partition_owner(topic.id_text, 0), Owner(BrokerId(9), "gone")
        if is_stale:
            await world.admin.create(path, gone.encode(), make_parents=True)
        is_done_once = operation == "multi" and fault is not Fault.LOSE_REQUEST
        lost = [fault] * (1 if is_done_once else 2)
        world.cluster.on_request = lambda request: (
            lost.pop() if lost and request.name == operation and request.path == path else None
        )
        broker = await world.broker(1)
        await broker.leads(topic)
        assert owner(world, topic) == Owner(broker.id, broker.info.incarnation)
        assert lost == []

    in_world(scenario)


async def _stays_with(world: World, holder: MemoryStore, owner_bytes: bytes) -> None:
    """What a living session holds is not taken from it, and is as soon as the session ends."""
    topic = await world.topic()
    path = paths.partition_owner(topic.id_text, 0)
    await holder.create(path, owner_bytes, ephemeral=True, make_parents=True)
    broker = await world.broker(1)
    await asyncio.sleep(60)
    assert broker.cluster.preferred_leader(topic, 0) == broker.id
    assert broker.partitions.find(topic.name, 0) is None
    assert (await world.admin.get(path)).data == owner_bytes, "it was not touched"
    assert broker.store.unreadable.all()
    await holder.close()
    await broker.leads(topic)
    await asyncio.sleep(1)
    assert not broker.store.unreadable.all()


@pytest.mark.parametrize("bad", [b"", NO_JSON, NEWER_FORMAT, HUGE_JSON])
def test_a_broker_whose_registration_cannot_be_read_is_alive(bad: bytes) -> None:
    async def scenario(world: World) -> None:
        newer = world.cluster.session()
        await newer.create(paths.broker(BrokerId(2)), bad, ephemeral=True, make_parents=True)
        await _stays_with(world, newer, Owner(BrokerId(2), "x").encode())

    in_world(scenario)


def test_a_registration_that_becomes_unreadable_ends_nobody() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        await world.broker(1)
        await world.broker(2)
        leading = await leader_of(world, topic)
        rival = other(world, leading)
        # As if the leader were of a newer release, which writes this and reads it itself.
        await background.stop(leading.registration._task)
        view = leading.cluster._broker_view
        decode = view._decode
        view._decode = lambda name, data: (
            leading.info if data == NEWER_FORMAT else decode(name, data)
        )
        await world.admin.set(paths.broker(leading.id), NEWER_FORMAT)
        await asyncio.sleep(30)
        assert leading.id not in rival.cluster.brokers
        assert rival.cluster.unreadable_brokers == [leading.id]
        assert rival.partitions.find(topic.name, 0) is None
        assert leading.partitions.find(topic.name, 0) is not None, "it goes on"

    in_world(scenario)


@pytest.mark.parametrize("bad", [b"", NO_JSON, NEWER_FORMAT, HUGE_JSON])
def test_an_owner_node_of_a_living_session_that_nobody_can_read_stays(bad: bytes) -> None:
    in_world(lambda world: _stays_with(world, world.cluster.session(), bad))


def test_a_leader_whose_owner_node_was_spoiled_goes_on() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        await world.admin.set(paths.partition_owner(topic.id_text, 0), NO_JSON)
        await asyncio.sleep(30)
        assert broker.partitions.find(topic.name, 0) is partition
        await done(partition.append(batch("a")))
        await broker.stop()
        assert await world.admin.exists(paths.partition_owner(topic.id_text, 0)) is None

    in_world(scenario)


def test_an_owner_node_that_no_session_holds_and_nobody_can_read_is_stale() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        await world.admin.create(paths.partition_owner(topic.id_text, 0), b"?", make_parents=True)
        await (await world.broker(1)).leads(topic)

    in_world(scenario)


def test_a_restarted_broker_breaks_the_node_of_its_former_self() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        old = await world.broker(1)
        await done((await old.leads(topic)).append(batch("a")))
        old.kill()
        await world.admin.delete(paths.broker(BrokerId(1)))
        again = await world.broker(1)
        partition = await again.leads(topic)
        assert partition.leader_epoch == 1
        assert await read_all(partition) == [(0, "a")]

    in_world(scenario)


def test_a_live_owner_is_waited_for() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        first = await world.broker(1)
        await first.leads(topic)
        foreign = await world.broker(2)
        # Whatever the plan says, broker 1 stays registered and keeps its node.
        first.ownership._follow_plan = lambda: None  # type: ignore[method-assign]
        first.cluster._listeners.clear()
        wanting = other(world, first)
        wanting.cluster.preferred_leader = lambda topic, index: BrokerId(2)  # type: ignore[method-assign]
        wanting.ownership._follow_plan()
        await asyncio.sleep(60)
        assert foreign.partitions.find("t", 0) is None
        assert world.segments(topic).leader_epoch == 0
        await world.admin.delete(paths.partition_owner(topic.id_text, 0))
        await foreign.leads(topic)

    in_world(scenario)


def test_a_leader_whose_owner_node_was_broken_notices_without_a_single_append() -> None:
    """A broker with a stale view breaks the node of a leader that lives, and has no appends."""

    async def scenario(world: World) -> None:
        topic = await world.topic()
        leader = await world.broker(1)
        partition = await leader.leads(topic)
        await done(partition.append(batch("a")))
        leader.cluster.preferred_leader = lambda topic, index: leader.id  # type: ignore[method-assign]
        # One that is not registered: nobody waits for it.
        node = OwnerNode(GroupedRequests(world.admin), topic, 0, Owner(BrokerId(9), "gone"))
        assert await node.claim(lambda: None, lambda owner: False, "/gone", STEPS)
        await until(lambda: not partition.is_open)
        again = await leader.leads(topic)
        assert again.leader_epoch == 1
        assert await read_all(again) == [(0, "a")]

    in_world(scenario)


@both
def test_an_expired_session_ends_leadership_and_is_recovered_from(backend: type) -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        await done(partition.append(batch("a")))
        if backend is FakeBackend:
            broker.ledgers.hold_answers = True
            append = partition.append(batch("b", pid=1))
            world.cluster.expire(broker.store)
            expired_s = asyncio.get_running_loop().time()
            with pytest.raises(LeadershipLost):
                await done(append)
            assert asyncio.get_running_loop().time() - expired_s < 0.5, "at once"
            broker.ledgers.release()
        else:
            world.cluster.expire(broker.store)
        await until(lambda: not partition.is_open)
        with pytest.raises(NotLeader):
            partition.reader.read_cached(Offset(0), 9, at_least_one=True, read_committed=False)
        again = await broker.leads(topic)
        assert again is not partition
        assert again.leader_epoch == 1
        assert (await read_all(again))[0] == (0, "a")
        assert broker.opened == [partition, again]
        assert broker.closed == [partition]

    in_world(scenario, backend)


def test_a_suspended_session_answers_no_reads_until_it_is_back() -> None:
    async def scenario(world: World) -> None:
        topic = await world.topic()
        broker = await world.broker(1)
        partition = await broker.leads(topic)
        await done(partition.append(batch("a")))
        world.cluster.suspend(broker.store)
        await asyncio.sleep(8)
        assert broker.store.state is SessionState.SUSPENDED
        with pytest.raises(NotLeader):
            partition.reader.read_cached(Offset(0), 9, at_least_one=True, read_committed=False)
        assert await done(partition.append(batch("b"))) == 1, "fencing protects appends, not time"
        world.cluster.resume(broker.store)
        await asyncio.sleep(2)
        assert partition.is_open
        assert await read_all(partition) == [(0, "a"), (1, "b")]

    in_world(scenario)
