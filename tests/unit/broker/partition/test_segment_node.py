"""Compare-and-set of the segment list with answers that get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.cluster.core.topology import TopicInfo
from broker.partition.segment_node import SegmentNode
from client.errors import NoNode, SessionExpired, VersionConflict
from client.ids import LedgerId, Offset
from client.log.segments import SegmentList
from client.metadata.memory import Fault
from client.node.grouped_requests import GroupedRequests
from tests.fakes.brokers import World
from tests.fakes.virtual_time import run

FIRST = SegmentList().opened(LedgerId(1), base_offset=Offset(0), created_ms=0, recovered={})
OTHER = SegmentList().opened(LedgerId(2), base_offset=Offset(0), created_ms=0, recovered={})


def with_node(
    scenario: Callable[[World, TopicInfo, SegmentNode], Awaitable[None]],
) -> None:
    async def whole() -> None:
        world = await World().start()
        topic = await world.topic()
        store = world.cluster.session()
        await scenario(world, topic, SegmentNode(GroupedRequests(store), topic, 0))

    run(whole())


def breaking(world: World, *faults: Fault | None, operation: str = "set") -> None:
    pending = list(faults)
    world.cluster.on_request = lambda request: (
        pending.pop(0) if pending and request.name == operation else None
    )


def test_a_new_node_is_an_empty_list() -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        assert await node.read() == (SegmentList(), 0)
        assert await node.change(FIRST, 0) == 1
        assert await node.read() == (FIRST, 1)

    with_node(scenario)


def test_a_missing_node_is_made_for_reading_and_missed_for_changing() -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        await world.admin.delete(node.path)
        with pytest.raises(VersionConflict):
            await node.change(FIRST, 0)
        with pytest.raises(NoNode):
            await node.read_back()
        breaking(world, Fault.LOSE_REPLY, operation="create")
        assert await node.read() == (SegmentList(), 0)

    with_node(scenario)


@pytest.mark.parametrize(
    "faults",
    [
        (Fault.LOSE_REPLY,),
        (Fault.LOSE_REQUEST,),
        (Fault.LOSE_REQUEST, Fault.LOSE_REQUEST, Fault.LOSE_REPLY),
    ],
)
def test_lost_answers_are_settled(faults: tuple[Fault, ...]) -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        breaking(world, *faults)
        assert await node.change(FIRST, 0) == 1
        assert world.segments(topic) == FIRST
        assert world.version(topic) == 1

    with_node(scenario)


@pytest.mark.parametrize("fault", [None, Fault.LOSE_REQUEST])
def test_somebody_else_was_faster(fault: Fault | None) -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        breaking(world, fault)
        if fault is None:
            world.cluster.tree.set(node.path, OTHER.encode(), 0)
            changing = asyncio.ensure_future(node.change(FIRST, 0))
        else:
            changing = asyncio.ensure_future(node.change(FIRST, 0))
            await asyncio.sleep(0.01)
            world.cluster.tree.set(node.path, OTHER.encode(), 0)
        with pytest.raises(VersionConflict):
            await changing
        assert world.segments(topic) == OTHER

    with_node(scenario)


def test_the_same_version_with_other_bytes_is_not_ours() -> None:
    """The answer was lost, and so was the request; the version grew by somebody else's hand."""

    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        world.cluster.reconnect_delay_s = 1.0
        breaking(world, Fault.LOSE_REQUEST)
        changing = asyncio.ensure_future(node.change(FIRST, 0))
        await asyncio.sleep(0.5)
        world.cluster.tree.set(node.path, OTHER.encode(), 0)
        with pytest.raises(VersionConflict):
            await changing

    with_node(scenario)


def test_ours_with_another_change_on_top_is_lost() -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        world.cluster.reconnect_delay_s = 1.0
        breaking(world, Fault.LOSE_REPLY)
        changing = asyncio.ensure_future(node.change(FIRST, 0))
        await asyncio.sleep(0.5)
        assert world.segments(topic) == FIRST
        world.cluster.tree.set(node.path, FIRST.encode(), 1)
        with pytest.raises(VersionConflict):
            await changing

    with_node(scenario)


def test_an_answer_lost_while_reading_back() -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        pending = {"set": [Fault.LOSE_REPLY], "get": [Fault.LOSE_REQUEST, Fault.LOSE_REPLY]}
        world.cluster.on_request = lambda request: (
            pending[request.name].pop(0) if pending.get(request.name) else None
        )
        assert await node.change(FIRST, 0) == 1

    with_node(scenario)


def test_the_end_of_the_session_leaves_it_open() -> None:
    async def scenario(world: World, topic: TopicInfo, node: SegmentNode) -> None:
        store = node._store
        world.cluster.suspend(store)
        changing = asyncio.ensure_future(node.change(FIRST, 0))
        await asyncio.sleep(0)
        world.cluster.expire(store)
        world.cluster.resume(store)
        with pytest.raises(SessionExpired):
            await changing

    with_node(scenario)
