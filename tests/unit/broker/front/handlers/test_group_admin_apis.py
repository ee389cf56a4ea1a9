"""FindCoordinator, DescribeGroups, ListGroups and DeleteGroups in every version."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.front.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    list_groups,
    sync_group,
)
from client.metadata import paths
from tests.fakes.group_bench import GroupBench
from tests.fakes.virtual_time import run

SHARE = 2


@pytest.mark.parametrize("version", range(4))
def test_find_one(version: int) -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        reply = await bench.call(find_coordinator, version, key="g", key_type=0)
        assert reply.error_code.name == "none"
        # Not an advertised address: the one that this client reached us at.
        assert (reply.node_id, reply.host, reply.port) == (1, "10.0.0.1", 9092)

    run(scenario())


@pytest.mark.parametrize("version", range(4, 7))
def test_find_several(version: int) -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        reply = await bench.call(find_coordinator, version, coordinator_keys=["g", ""], key_type=0)
        assert [one.key for one in reply.coordinators] == ["g", ""]
        assert {one.node_id for one in reply.coordinators} == {1}

    run(scenario())


@pytest.mark.parametrize("version", [1, 6])
def test_share_groups_are_refused_clearly(version: int) -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        reply = await bench.call(
            find_coordinator, version, key="t", coordinator_keys=["t"], key_type=SHARE
        )
        answer = reply if version < 4 else reply.coordinators[0]
        assert answer.error_code.name == "invalid_request"
        assert answer.error_message == "this broker does not serve share groups"
        assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)

    run(scenario())


def test_the_internal_topic_is_made_once_with_its_settings() -> None:
    async def scenario() -> None:
        bench = await GroupBench(offsets_topic_partitions=7).start()
        replies = await asyncio.gather(
            *(bench.call(find_coordinator, 0, key=str(number)) for number in range(10))
        )
        assert {reply.error_code.name for reply in replies} == {"none"}
        topic = bench.cluster.topics[OFFSETS_TOPIC]
        assert topic.internal
        assert topic.partition_count == 7
        assert topic.config.cleanup_policy == ("compact",)

    run(scenario())


def test_another_broker_made_it_meanwhile() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        await bench.topics.create(OFFSETS_TOPIC, 3, internal=True)
        bench.cluster._topic_view.values.pop(OFFSETS_TOPIC)
        bench.cluster._on_topics_changed()
        reply = await bench.call(find_coordinator, 0, key="g")
        assert reply.error_code.name == "none"
        assert bench.cluster.topics[OFFSETS_TOPIC].partition_count == 3

    run(scenario())


def test_nobody_to_coordinate() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        await bench.store.delete(f"{paths.BROKERS}/1")
        await bench.settle(lambda: not bench.cluster.brokers)
        reply = await bench.call(find_coordinator, 1, key="g", key_type=0)
        assert reply.error_code.name == "coordinator_not_available"

    run(scenario())


def test_a_store_that_does_not_answer() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        bench.tree.suspend(bench.store)
        reply = await bench.call(find_coordinator, 1, key="g", key_type=0)
        assert reply.error_code.name == "coordinator_not_available"

    run(scenario())


async def _stable(bench: GroupBench) -> str:
    joined = await bench.join()
    await bench.call(
        sync_group, 5, group_id="g", generation_id=1, member_id=joined.member_id,
        group_instance_id=None, protocol_type=None, protocol_name=None,
        assignments=[{"member_id": joined.member_id, "assignment": b"assignment"}],
    )  # fmt: skip
    return str(joined.member_id)


@pytest.mark.parametrize("version", range(7))
def test_describe(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        member_id = await _stable(bench)
        reply = await bench.call(
            describe_groups, version, groups=["g", "none"], include_authorized_operations=False
        )
        group, missing = reply.groups
        assert (group.error_code.name, group.group_id, group.group_state) == ("none", "g", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id) == (member_id, "client")
        assert (member.client_host, member.member_assignment) == ("/10.0.0.9", b"assignment")
        assert missing.group_state == "Dead"
        assert missing.members == ()
        expected = "group_id_not_found" if version >= 6 else "none"
        assert missing.error_code.name == expected

    run(scenario())


def test_describe_where_it_is_not_coordinated() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        reply = await bench.call(
            describe_groups, 6, groups=["g"], include_authorized_operations=False
        )
        assert reply.groups[0].error_code.name == "not_coordinator"
        assert reply.groups[0].group_state == ""

    run(scenario())


@pytest.mark.parametrize("version", range(6))
def test_list(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await _stable(bench)
        for name in ("a", "b", "c"):
            await bench.commit(1, group_id=name)

        async def names(**filters: list[str]) -> list[str]:
            reply = await bench.call(list_groups, version, **filters)
            assert reply.error_code.name == "none"
            return sorted(one.group_id for one in reply.groups)

        assert await names() == ["a", "b", "c", "g"]
        if version >= 4:
            assert await names(states_filter=["stable"]) == ["g"]
            assert await names(states_filter=["Empty", "Dead"]) == ["a", "b", "c"]
        if version >= 5:
            assert await names(types_filter=["Classic"]) == ["a", "b", "c", "g"]
            assert await names(types_filter=["consumer"]) == []
            reply = await bench.call(list_groups, version, states_filter=["Stable"])
            (group,) = reply.groups
            assert (group.protocol_type, group.group_state, group.group_type) == (
                "consumer",
                "Stable",
                "classic",
            )

    run(scenario())


def test_list_while_one_coordinator_loads_or_doubts() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        bench.partitions[1].in_doubt = True
        reply = await bench.call(list_groups, 5)
        assert reply.error_code.name == "none"
        bench.close(0)
        bench.open(0)
        reply = await bench.call(list_groups, 5)
        assert reply.error_code.name == "coordinator_load_in_progress"

    run(scenario())


@pytest.mark.parametrize("version", range(4))
def test_delete(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        for name in map(str, range(8)):
            await bench.commit(1, group_id=name)
        await _stable(bench)
        wanted = [*map(str, range(8)), "g", "none"]
        reply = await bench.call(delete_groups, version, groups_names=wanted)
        codes = {one.group_id: one.error_code.name for one in reply.results}
        assert codes == {
            **dict.fromkeys(map(str, range(8)), "none"),
            "g": "non_empty_group",
            "none": "group_id_not_found",
        }
        assert await bench.fetch("0") == -1
        if version >= 3:
            said = {one.group_id: one.error_message for one in reply.results}
            assert said["0"] is None
            assert said["g"] and said["none"]

    run(scenario())


def test_delete_where_it_is_not_coordinated() -> None:
    async def scenario() -> None:
        bench = await GroupBench().start()
        reply = await bench.call(delete_groups, 2, groups_names=["g"])
        assert reply.results[0].error_code.name == "not_coordinator"
        await bench.serving()
        bench.partitions[next(iter(bench.partitions))].refuse = None
        for partition in bench.partitions.values():
            partition.manual = True
        commit = asyncio.ensure_future(bench.commit(1))
        await asyncio.sleep(0.01)
        for index in list(bench.partitions):
            bench.close(index)
        assert await commit == "not_coordinator"

    run(scenario())
