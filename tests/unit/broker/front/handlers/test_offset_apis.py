"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

from __future__ import annotations

import uuid

import pytest

from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.front.handlers import offset_commit, offset_delete, offset_fetch
from client.errors import RemoteProtocolError
from tests.fakes.group_bench import GroupBench
from tests.fakes.virtual_time import run


@pytest.mark.parametrize("version", range(2, 10))
def test_commit(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        assert await bench.commit(7, version) == "none"
        committed = bench.groups.coordinator("g").view().committed("g").get("t", 0)
        assert committed is not None
        assert (committed.offset, committed.metadata) == (7, "m")
        assert committed.leader_epoch == (3 if version >= 6 else -1)

    run(scenario())


@pytest.mark.parametrize("version", [2, 9])
def test_commit_refusals(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        unknown = "unknown_topic_or_partition"
        assert await bench.commit(7, version, topic="nope") == unknown
        assert await bench.commit(7, version, partition_index=3) == unknown
        assert await bench.commit(7, version, partition_index=-1) == unknown
        name = await bench.commit(7, version, committed_metadata="x" * 4097)
        assert name == "offset_metadata_too_large"
        name = await bench.commit(7, version, generation_id_or_member_epoch=5, member_id="m")
        assert name == ("group_id_not_found" if version >= 9 else "illegal_generation")
        joined = await bench.join()
        assert await bench.commit(7, version) == "unknown_member_id"
        name = await bench.commit(
            7, version, generation_id_or_member_epoch=9, member_id=joined.member_id
        )
        assert name == "illegal_generation"
        with pytest.raises(RemoteProtocolError, match="at most 32767"):
            await bench.commit(7, 9, group_id="x" * 40_000)

    run(scenario())


def test_good_partitions_are_stored_beside_bad_ones() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        rows = [
            {"partition_index": index, "committed_offset": index, "committed_leader_epoch": -1,
             "committed_metadata": None}
            for index in (0, 9, 2)
        ]  # fmt: skip
        reply = await bench.call(
            offset_commit, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None,
            topics=[{"name": "nope", "partitions": rows[:1]}, {"name": "t", "partitions": rows}],
        )  # fmt: skip
        assert [one.name for one in reply.topics] == ["nope", "t"]
        codes = [one.error_code.name for topic in reply.topics for one in topic.partitions]
        unknown = "unknown_topic_or_partition"
        assert codes == [unknown, "none", unknown, "none"]
        assert await bench.fetch(index=2) == 2

    run(scenario())


def test_topics_by_id() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        known, unknown = bench.cluster.topics["t"].topic_id, uuid.UUID(int=77)
        rows = [
            {"partition_index": index, "committed_offset": 7, "committed_leader_epoch": 3,
             "committed_metadata": "m"}
            for index in (0, 9)
        ]  # fmt: skip
        reply = await bench.call(
            offset_commit, 10, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None,
            topics=[
                {"topic_id": known, "partitions": rows},
                {"topic_id": unknown, "partitions": rows[:1]},
            ],
        )  # fmt: skip
        assert [one.topic_id for one in reply.topics] == [known, unknown]
        codes = [one.error_code.name for topic in reply.topics for one in topic.partitions]
        assert codes == ["none", "unknown_topic_or_partition", "unknown_topic_id"]
        wanted = [
            {"topic_id": known, "partition_indexes": [0, 1]},
            {"topic_id": unknown, "partition_indexes": [0]},
        ]
        reply = await bench.call(
            offset_fetch, 10,
            groups=[{"group_id": "g", "topics": wanted}, {"group_id": "h", "topics": None}],
        )  # fmt: skip
        shown = [
            (topic.topic_id, row.partition_index, row.committed_offset, row.error_code.name)
            for topic in reply.groups[0].topics
            for row in topic.partitions
        ]
        assert shown == [
            (known, 0, 7, "none"), (known, 1, -1, "none"), (unknown, 0, -1, "unknown_topic_id")
        ]  # fmt: skip
        reply = await bench.call(offset_fetch, 10, groups=[{"group_id": "g", "topics": None}])
        assert [topic.topic_id for topic in reply.groups[0].topics] == [known]

    run(scenario())


def test_an_empty_commit() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        reply = await bench.call(
            offset_commit, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=[],
        )  # fmt: skip
        assert reply.topics == ()

    run(scenario())


def test_an_old_client_may_set_its_own_retention() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        assert await bench.commit(7, 2, retention_time=5_000) == "none"
        committed = bench.groups.coordinator("g").view().committed("g").get("t", 0)
        assert committed is not None
        assert committed.expire_ms == committed.commit_ms + 5_000

    run(scenario())


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_one_group(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.commit(7)
        reply = await bench.call(
            offset_fetch, version, group_id="g", require_stable=True,
            topics=[{"name": "t", "partition_indexes": [0, 1]}],
        )  # fmt: skip
        first, second = reply.topics[0].partitions
        assert (first.committed_offset, first.metadata) == (7, "m")
        assert (second.committed_offset, second.metadata) == (-1, "")
        assert first.error_code.name == second.error_code.name == "none"
        if version >= 5:
            assert (first.committed_leader_epoch, second.committed_leader_epoch) == (3, -1)
        if version >= 2:
            everything = await bench.call(offset_fetch, version, group_id="g", topics=None)
            ((topic,)) = everything.topics
            assert (topic.name, [one.committed_offset for one in topic.partitions]) == ("t", [7])

    run(scenario())


@pytest.mark.parametrize("version", range(1, 8))
def test_an_unknown_group_has_no_offsets_and_no_error(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        reply = await bench.call(
            offset_fetch, version, group_id="none",
            topics=[{"name": "t", "partition_indexes": [0]}],
        )  # fmt: skip
        (row,) = reply.topics[0].partitions
        assert (row.committed_offset, row.metadata, row.error_code.name) == (-1, "", "none")
        if version >= 2:
            assert reply.error_code.name == "none"

    run(scenario())


@pytest.mark.parametrize("version", [8, 9])
def test_fetch_several_groups(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.commit(1, group_id="a")
        await bench.commit(2, group_id="b")
        wanted = {"name": "t", "partition_indexes": [0]}
        reply = await bench.call(
            offset_fetch, version,
            groups=[
                {"group_id": "a", "topics": [wanted]},
                {"group_id": "b", "topics": None},
                {"group_id": "c", "topics": [wanted]},
            ],
        )  # fmt: skip
        assert [one.group_id for one in reply.groups] == ["a", "b", "c"]
        rows = [one.topics[0].partitions[0].committed_offset for one in reply.groups]
        assert rows == [1, 2, -1]
        assert {one.error_code.name for one in reply.groups} == {"none"}

    run(scenario())


def test_fetch_errors_go_where_the_version_has_a_place_for_them() -> None:
    async def scenario() -> None:
        bench = GroupBench()
        bench.opens_by_itself = False
        await bench.start()
        await bench.topics.create(OFFSETS_TOPIC, 4, internal=True)
        wanted = [{"name": "t", "partition_indexes": [0]}]
        loading = "coordinator_load_in_progress"
        reply = await bench.call(offset_fetch, 1, group_id="g", topics=wanted)
        assert reply.topics[0].partitions[0].error_code.name == loading
        reply = await bench.call(offset_fetch, 2, group_id="g", topics=wanted)
        assert reply.error_code.name == loading
        reply = await bench.call(
            offset_fetch, 8, groups=[{"group_id": "g", "topics": wanted}], require_stable=False
        )
        assert reply.groups[0].error_code.name == loading
        assert await bench.commit(1) == loading

    run(scenario())


def test_delete_offsets() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.topics.create("u", 1)
        await bench.commit(1, topic="t")
        await bench.commit(2, topic="u")
        await bench.join()  # subscribes to t

        async def delete(group_id: str = "g") -> tuple[str, list[str]]:
            reply = await bench.call(
                offset_delete, 0, group_id=group_id,
                topics=[
                    {"name": "t", "partitions": [{"partition_index": 0}]},
                    {"name": "u", "partitions": [{"partition_index": 0}]},
                    {"name": "nope", "partitions": [{"partition_index": 0}]},
                ],
            )  # fmt: skip
            rows = [one.error_code.name for topic in reply.topics for one in topic.partitions]
            return str(reply.error_code.name), rows

        code, rows = await delete()
        assert code == "none"
        assert rows == ["group_subscribed_to_topic", "none", "unknown_topic_or_partition"]
        assert await bench.fetch(topic="t") == 1
        assert await bench.fetch(topic="u") == -1
        assert await delete("none") == ("group_id_not_found", [])
        assert await delete("") == ("invalid_group_id", [])

    run(scenario())


def test_a_topic_that_the_view_does_not_show_yet() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.topics.create("new", 1)
        bench.cluster._topic_view.values.pop("new")
        bench.cluster._on_topics_changed()
        assert "new" not in bench.cluster.topics
        assert await bench.commit(1, topic="new") == "none"

    run(scenario())
