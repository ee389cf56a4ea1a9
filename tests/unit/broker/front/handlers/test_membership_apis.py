"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every version."""

from __future__ import annotations

import asyncio

import pytest

from broker.coordinator.core.routing import OFFSETS_TOPIC, coordinator_partition
from broker.front.handlers import heartbeat, join_group, leave_group, sync_group
from client.errors import RemoteProtocolError
from tests.fakes.group_bench import GroupBench
from tests.fakes.virtual_time import run

BLOB = bytes(range(256))


async def stable(bench: GroupBench, **join: object) -> str:
    """A group of one with an assignment; returns the member id."""
    joined = await bench.join(**join)
    reply = await bench.call(
        sync_group, 5, group_id="g", generation_id=joined.generation_id,
        member_id=joined.member_id, group_instance_id=join.get("group_instance_id"),
        protocol_type=None, protocol_name=None,
        assignments=[{"member_id": joined.member_id, "assignment": BLOB}],
    )  # fmt: skip
    assert reply.error_code.name == "none"
    return str(joined.member_id)


@pytest.mark.parametrize("version", range(10))
def test_join(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        reply = await bench.join(version)
        assert reply.error_code.name == "none"
        assert reply.generation_id == 1
        assert reply.protocol_name == "range"
        assert reply.leader == reply.member_id
        assert reply.member_id.startswith("client-")
        assert [one.member_id for one in reply.members] == [reply.member_id]
        group = bench.groups.coordinator("g").view().describe("g")
        assert group is not None
        assert group.members[0].client_host == "/10.0.0.9"

    run(scenario())


@pytest.mark.parametrize("version", range(10))
def test_join_refused(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        reply = await bench.join(version, session_timeout=1)
        assert reply.error_code.name == "invalid_session_timeout"
        assert (reply.generation_id, reply.leader, reply.members) == (-1, "", ())
        assert reply.protocol_name == (None if version >= 7 else "")
        unknown = await bench.join(version, "nobody")
        assert unknown.error_code.name == "unknown_member_id"
        assert unknown.member_id == "nobody"
        empty = await bench.join(version, group_id="")
        assert empty.error_code.name == "invalid_group_id"

    run(scenario())


def test_v4_learns_its_id_first_and_v3_does_not() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        fields = {
            "group_id": "g", "session_timeout": 10_000, "member_id": "",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        told = await bench.call(join_group, 4, **fields)
        assert told.error_code.name == "member_id_required"
        assert told.member_id.startswith("client-")
        assert (await bench.call(join_group, 3, **fields)).error_code.name == "none"

    run(scenario())


def test_v0_uses_the_session_timeout_for_both() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.join(0, session_timeout=12_345)
        (member,) = bench.groups.coordinator("g")._shard._table.get_or_create("g").members
        assert member.rebalance_timeout_ms == 12_345

    run(scenario())


@pytest.mark.parametrize("name", ["group_id", "protocol_type", "group_instance_id"])
def test_names_that_no_record_holds_are_not_even_read(name: str) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        with pytest.raises(RemoteProtocolError, match="at most 32767"):
            await bench.join(9, **{name: "x" * 40_000})

    run(scenario())


@pytest.mark.parametrize("version", range(6))
def test_sync(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        member_id = await stable(bench)
        reply = await bench.call(
            sync_group, version, group_id="g", generation_id=1, member_id=member_id,
            group_instance_id=None, protocol_type="consumer", protocol_name="range",
            assignments=[],
        )  # fmt: skip
        assert reply.error_code.name == "none"
        assert reply.assignment == BLOB
        if version >= 5:
            assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
        reply = await bench.call(
            sync_group, version, group_id="g", generation_id=9, member_id=member_id,
            assignments=[],
        )  # fmt: skip
        assert (reply.error_code.name, reply.assignment) == ("illegal_generation", b"")
        reply = await bench.call(
            sync_group, version, group_id="", generation_id=1, member_id="", assignments=[]
        )
        assert reply.error_code.name == "invalid_group_id"

    run(scenario())


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        member_id = await stable(bench)

        async def beat(generation: int, group_id: str = "g") -> str:
            reply = await bench.call(
                heartbeat, version, group_id=group_id, generation_id=generation,
                member_id=member_id, group_instance_id=None,
            )  # fmt: skip
            return str(reply.error_code.name)

        assert await beat(1) == "none"
        assert await beat(2) == "illegal_generation"
        assert await beat(1, "other") == "unknown_member_id"
        assert await beat(1, "") == "invalid_group_id"
        rejoin = asyncio.ensure_future(bench.join(3))
        await bench.settle(lambda: rejoin.done() or _rebalancing(bench))
        assert await beat(1) == "rebalance_in_progress"
        rejoin.cancel()

    run(scenario())


def _rebalancing(bench: GroupBench) -> bool:
    group = bench.groups.coordinator("g").view().describe("g")
    return group is not None and group.state.value == "PreparingRebalance"


@pytest.mark.parametrize("version", range(3))
def test_leave_one(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        member_id = await stable(bench)
        reply = await bench.call(leave_group, version, group_id="g", member_id="nobody")
        assert reply.error_code.name == "unknown_member_id"
        reply = await bench.call(leave_group, version, group_id="g", member_id=member_id)
        assert reply.error_code.name == "none"
        reply = await bench.call(leave_group, version, group_id="", member_id=member_id)
        assert reply.error_code.name == "invalid_group_id"

    run(scenario())


@pytest.mark.parametrize("version", range(3, 6))
def test_leave_several(version: int) -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await stable(bench, group_instance_id="i")
        reply = await bench.call(
            leave_group, version, group_id="g",
            members=[
                {"member_id": "", "group_instance_id": "i", "reason": "r"},
                {"member_id": "nobody", "group_instance_id": None, "reason": None},
            ],
        )  # fmt: skip
        assert reply.error_code.name == "none"
        assert [one.error_code.name for one in reply.members] == ["none", "unknown_member_id"]
        assert reply.members[0].group_instance_id == "i"

    run(scenario())


def test_while_the_coordinator_loads() -> None:
    async def scenario() -> None:
        bench = GroupBench()
        bench.opens_by_itself = False
        await bench.start()
        await bench.topics.create(OFFSETS_TOPIC, 4, internal=True)
        who = {"group_id": "g", "member_id": "m", "generation_id": 1}
        reply = await bench.call(heartbeat, 4, **who)
        assert reply.error_code.name == "none"
        reply = await bench.call(sync_group, 5, **who, assignments=[])
        assert reply.error_code.name == "rebalance_in_progress"
        reply = await bench.join()
        assert reply.error_code.name == "coordinator_load_in_progress"
        reply = await bench.call(leave_group, 5, group_id="g", members=[])
        assert reply.error_code.name == "coordinator_load_in_progress"

    run(scenario())


def test_at_the_wrong_broker() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await bench.register(0)
        await bench.register(2)
        topic = bench.cluster.topics[OFFSETS_TOPIC]
        elsewhere = next(
            index for index in range(4) if bench.cluster.preferred_leader(topic, index) != 1
        )
        bench.close(elsewhere)
        name = next(
            name for name in map(str, range(99)) if coordinator_partition(name, 4) == elsewhere
        )
        reply = await bench.join(9, group_id=name)
        assert reply.error_code.name == "not_coordinator"
        reply = await bench.call(
            heartbeat, 4, group_id=name, member_id="m", generation_id=1, group_instance_id=None
        )
        assert reply.error_code.name == "not_coordinator"

    run(scenario())


def test_a_static_leader_that_restarts_skips_the_assignment() -> None:
    async def scenario() -> None:
        bench = await (await GroupBench().start()).serving()
        await stable(bench, group_instance_id="i")
        reply = await bench.join(9, group_instance_id="i")
        assert reply.skip_assignment
        assert reply.leader == reply.member_id
        old = await bench.join(8, group_instance_id="i")
        assert old.leader != old.member_id

    run(scenario())
