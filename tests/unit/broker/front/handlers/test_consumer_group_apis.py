"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version, and what other APIs say of
groups of the consumer protocol."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.cluster.core.features import NOTHING, Finalized
from broker.front.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    list_groups,
    offset_fetch,
)
from tests.fakes.group_bench import GroupBench
from tests.fakes.virtual_time import run

CLASSIC, CONSUMER = "classic", "consumer"


async def heartbeat(bench: GroupBench, version: int = 1, **fields: Any) -> Any:
    request = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **fields,
    }
    return await bench.call(consumer_group_heartbeat, version, **request)


async def describe(bench: GroupBench, *group_ids: str, version: int = 1) -> Any:
    reply = await bench.call(
        consumer_group_describe, version, group_ids=group_ids, include_authorized_operations=True
    )
    return reply.groups


def shown(assignment: Any) -> dict[Any, tuple[int, ...]]:
    return {one.topic_id: one.partitions for one in assignment.topic_partitions}


def test_join_be_there_and_leave() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        topic_id = bench.cluster.topics["t"].topic_id
        reply = await heartbeat(bench)
        assert (reply.error_code.name, reply.error_message) == ("none", None)
        assert (reply.member_id, reply.member_epoch) == ("m", 1)
        assert reply.heartbeat_interval.total_seconds() == 5
        assert shown(reply.assignment) == {topic_id: (0, 1, 2)}
        reply = await heartbeat(
            bench, member_epoch=1, subscribed_topic_names=None, topic_partitions=None,
            rebalance_timeout=-1,
        )  # fmt: skip
        assert (reply.error_code.name, reply.assignment) == ("none", None)
        reply = await heartbeat(bench, member_epoch=-1)
        assert (reply.error_code.name, reply.member_epoch) == ("none", -1)

    run(scenario())


def test_version_0_makes_the_member_id_and_1_does_not() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        reply = await heartbeat(bench, 0, member_id="")
        assert reply.error_code.name == "none"
        assert len(reply.member_id) == 36
        reply = await heartbeat(bench, 1, member_id="")
        assert (reply.error_code.name, reply.error_message) == (
            "invalid_request", "MemberId can't be empty.",
        )  # fmt: skip

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, "invalid_request"),
        ({"member_epoch": 7}, "unknown_member_id"),
        ({"server_assignor": "mine"}, "unsupported_assignor"),
        ({"subscribed_topic_regex": "("}, "invalid_regular_expression"),
        ({"rebalance_timeout": -1}, "invalid_request"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], code: str) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        reply = await heartbeat(bench, **fields)
        assert reply.error_code.name == code
        assert reply.error_message
        assert (reply.member_epoch, reply.assignment) == (0, None)

    run(scenario())


def test_the_cluster_has_to_allow_the_protocol() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        bench.features.finalized = Finalized(3, {}, frozenset(("group.version",)))
        reply = await heartbeat(bench)
        assert reply.error_code.name == "unsupported_version"
        assert "kafka-features upgrade --feature group.version=1" in reply.error_message
        bench.features.finalized = NOTHING
        info = bench.cluster.brokers[bench.config.node_id]
        bench.cluster.brokers = {info.id: dataclasses.replace(info, features={"group.version": 1})}
        reply = await heartbeat(bench)
        assert reply.error_code.name == "coordinator_not_available", "to be asked again"

    run(scenario())


@pytest.mark.parametrize("version", [0, 1])
def test_describe(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        topic_id = bench.cluster.topics["t"].topic_id
        await heartbeat(
            bench, instance_id="i", rack_id="r", server_assignor="range",
            subscribed_topic_regex="t.*",
        )  # fmt: skip
        found, absent = await describe(bench, "g", "none", "g", version=version)
        assert (found.error_code.name, found.group_id, found.group_state) == ("none", "g", "Stable")
        assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (1, 1, "range")
        assert found.authorized_operations != -(1 << 31)
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
        assert (member.member_epoch, member.client_id) == (1, "client")
        assert member.client_host == "/10.0.0.9"
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("t",), "t.*")
        assert shown(member.assignment) == shown(member.target_assignment) == {topic_id: (0, 1, 2)}
        assert member.assignment.topic_partitions[0].topic_name == "t"
        if version >= 1:
            assert member.member_type == 1
        assert (absent.error_code.name, absent.group_state) == ("group_id_not_found", "")
        assert absent.error_message == "Group none not found."

    run(scenario())


def test_each_kind_of_group_is_described_by_its_own_api() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.join(group_id="old")
        await heartbeat(bench, group_id="new")
        (found,) = await describe(bench, "old")
        assert found.error_code.name == "group_id_not_found"
        assert found.error_message == "Group old is not a consumer group."
        reply = await bench.call(
            describe_groups, 6, groups=["new"], include_authorized_operations=False
        )
        assert reply.groups[0].error_code.name == "group_id_not_found"
        reply = await bench.call(
            describe_groups, 5, groups=["new"], include_authorized_operations=False
        )
        assert (reply.groups[0].error_code.name, reply.groups[0].group_state) == ("none", "Dead")

    run(scenario())


def test_lists_name_the_type_and_filter_by_it() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.join(group_id="old")
        await heartbeat(bench, group_id="new")

        async def listed(version: int, **filters: Any) -> set[tuple[str, str]]:
            reply = await bench.call(list_groups, version, **filters)
            return {(one.group_id, getattr(one, "group_type", "")) for one in reply.groups}

        assert await listed(5) == {("old", CLASSIC), ("new", CONSUMER)}
        assert await listed(5, types_filter=["Consumer"]) == {("new", CONSUMER)}
        assert await listed(5, types_filter=["classic"]) == {("old", CLASSIC)}
        assert await listed(4) == {("old", ""), ("new", "")}

    run(scenario())


def test_commits_and_fetches_know_the_members_epoch() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await heartbeat(bench)
        member = {"member_id": "m", "generation_id_or_member_epoch": 1}
        assert await bench.commit(5, 9, **member) == "none"
        assert await bench.commit(5, 8, **member) == "unsupported_version"
        stale = {**member, "generation_id_or_member_epoch": 2}
        assert await bench.commit(6, 9, **stale) == "stale_member_epoch"
        assert await bench.commit(6, 9) == "unknown_member_id"

        async def fetched(member_id: str | None, epoch: int) -> tuple[str, int | None]:
            group = {
                "group_id": "g", "member_id": member_id, "member_epoch": epoch,
                "topics": [{"name": "t", "partition_indexes": [0]}],
            }  # fmt: skip
            reply = await bench.call(offset_fetch, 9, groups=[group])
            (found,) = reply.groups
            if found.error_code.name != "none":
                return found.error_code.name, None
            return "none", found.topics[0].partitions[0].committed_offset

        assert await fetched("m", 1) == ("none", 5)
        assert await fetched(None, -1) == ("none", 5)
        assert await fetched("m", 2) == ("stale_member_epoch", None)
        assert await fetched("x", 1) == ("unknown_member_id", None)

    run(scenario())


def test_a_group_with_members_is_not_deleted_and_an_empty_one_is() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await heartbeat(bench)
        reply = await bench.call(delete_groups, 2, groups_names=["g"])
        assert reply.results[0].error_code.name == "non_empty_group"
        await heartbeat(bench, member_epoch=-1)
        reply = await bench.call(delete_groups, 2, groups_names=["g"])
        assert reply.results[0].error_code.name == "none"
        (found,) = await describe(bench, "g")
        assert found.error_message == "Group g not found."

    run(scenario())


def test_a_member_that_gives_too_much_along_is_refused() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench(group_members_bytes_max=1_024).start()).serving()
        await heartbeat(bench)
        reply = await heartbeat(bench, member_id="n", subscribed_topic_names=["t" * 2_000])
        assert reply.error_code.name == "coordinator_not_available"

    run(scenario())
