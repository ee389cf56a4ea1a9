"""/groups: lists, members, lag over all leaders, resets, deletion."""

from __future__ import annotations

import asyncio
import struct
from types import MappingProxyType
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.coordinator.core.coordinator_types import LogRecord, TransactionalRecord
from broker.errors import BrokerError, LogReadFailed
from broker.groups.core.consumer_group_records import Partitions
from broker.groups.core.consumer_heartbeat import ConsumerHeartbeat
from broker.groups.core.group_types import Commit, CommittedOffset, Join, OffsetToCommit, Sync
from broker.groups.core.offset_records import offset_record
from client.ids import Offset, ProducerId
from client.wire.kafka.apis import ApiKey
from tests.fakes.admin import AdminCloud, until
from tests.fakes.brokers import batch, done
from tests.fakes.wire_client import WireClient

NOW_MS = 1_700_000_000_000


def fields(problem: Any) -> list[str]:
    return [fault["field"] for fault in problem["faults"]]


async def coordinator(cloud: AdminCloud, group: str) -> Any:
    """Return the coordinator of a group once it serves."""
    await cloud.brokers[1].groups.find(group)

    def find() -> Any:
        for broker in cloud.brokers.values():
            try:
                found = broker.groups.coordinator(group)
                found.view()
            except BrokerError:
                continue
            return found
        return None

    await until(lambda: find() is not None)
    return find()


async def commit(cloud: AdminCloud, group: str, **offsets: int) -> None:
    """Commit `p0=3`: offset 3 of partition 0 of topic t."""
    rows = [OffsetToCommit("t", int(name[1:]), value, -1, "") for name, value in offsets.items()]
    outcomes = await (await coordinator(cloud, group)).commit(Commit(group, "", None, -1), rows)
    assert outcomes == (None,) * len(rows) or list(outcomes) == [None] * len(rows)


async def fill(cloud: AdminCloud, index: int, *timestamps_ms: int) -> None:
    for broker in cloud.brokers.values():
        partition = broker.partitions.find("t", index)
        if partition is not None:
            for timestamp_ms in timestamps_ms:
                await done(partition.append(batch("v", timestamp_ms=timestamp_ms)))


async def topic(cloud: AdminCloud, partitions: int = 1) -> None:
    await cloud.send("PUT", "/topics/t", {"partition_count": partitions}, status=201)
    await cloud.led("t")


async def member(cloud: AdminCloud, group: str) -> str:
    """Let a consumer join and take partition 1 of topic t."""
    found = await coordinator(cloud, group)
    subscription = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1)
    join = Join(
        group, "", None, "client", "host", 10_000, 10_000, "consumer",
        (("range", subscription),), False, False,
    )  # fmt: skip
    joined = await found.join(join)
    assignment = struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">iii", 1, 1, -1)
    await found.sync(
        Sync(group, joined.member_id, None, joined.generation, "consumer", "range",
             ((joined.member_id, assignment),))
    )  # fmt: skip
    return str(joined.member_id)


async def heartbeat(
    cloud: AdminCloud,
    group: str,
    name: str,
    epoch: int,
    owned: Partitions | None = MappingProxyType({}),
) -> None:
    """Send a heartbeat of a consumer of topic t whose partitions the broker divides."""
    found = await coordinator(cloud, group)
    await found.heartbeat_consumer(
        ConsumerHeartbeat(
            group, name, epoch, None, None, "client", "host", 10_000, ("t",), None, None, owned,
            lambda _: True,
        )
    )  # fmt: skip


async def test_lag_counts_records_and_seconds_over_all_leaders() -> None:
    async with AdminCloud(2) as cloud:
        await topic(cloud, 3)
        await fill(cloud, 0, NOW_MS - 9_000, NOW_MS - 8_000, NOW_MS - 7_000)
        await fill(cloud, 1, NOW_MS - 60_000, NOW_MS - 50_000)
        await fill(cloud, 2, NOW_MS)
        await commit(cloud, "g", p0=1, p1=0, p2=1)
        for at in (1, 2):
            group = await cloud.get("/groups/g", at=at)
            rows = [
                (row["partition"], row["committed_offset"], row["high_watermark"],
                 row["lag_records"], row["lag_seconds"])
                for row in group["offsets"]
            ]  # fmt: skip
            assert rows == [(0, 1, 3, 2, 8.0), (1, 0, 2, 2, 60.0), (2, 1, 1, 0, 0.0)]
            assert (group["lag_records"], group["lag_seconds"]) == (4, 60.0)
            assert group["state"] == "Empty"


async def test_offsets_of_an_open_transaction_are_shown() -> None:
    async with AdminCloud(1) as cloud:
        await topic(cloud)
        await commit(cloud, "g", p0=3)
        found = await coordinator(cloud, "g")
        place = LogRecord(*offset_record("g", "t", 0, CommittedOffset(7, -1, "", NOW_MS, -1)))
        found._shard.replay(TransactionalRecord(place, ProducerId(9), 4, Offset(1)))
        about = await cloud.get("/groups/g")
        assert about["pending"] == [
            {
                "topic": "t", "partition": 0, "offset": 7, "committed_ms": NOW_MS,
                "producer_id": 9, "producer_epoch": 4,
            }
        ]  # fmt: skip
        assert [row["committed_offset"] for row in about["offsets"]] == [3]


@pytest.mark.parametrize("odd", [-1, -2, -(1 << 63), (1 << 63) - 1])
async def test_an_odd_commit_is_a_row_of_its_own(odd: int) -> None:
    """Kafka takes any offset, and so do we: below 0 it counts from the log start."""
    async with AdminCloud(2) as cloud:
        await topic(cloud, 2)
        await fill(cloud, 0, NOW_MS - 9_000, NOW_MS - 8_000)
        await fill(cloud, 1, NOW_MS - 9_000, NOW_MS - 8_000)
        await commit(cloud, "g", p0=1, p1=1)
        await commit(cloud, "odd", p0=odd, p1=odd)
        for at in (1, 2):
            group = await cloud.get("/groups/g", at=at)
            assert [row["lag_records"] for row in group["offsets"]] == [1, 1]
            group = await cloud.get("/groups/odd", at=at)
            assert [row["lag_records"] for row in group["offsets"]] == [2 * (odd < 0)] * 2
            assert [row["committed_offset"] for row in group["offsets"]] == [odd] * 2


async def test_lag_is_unknown_where_a_leader_cannot_be_asked() -> None:
    async with AdminCloud(2) as cloud:
        await topic(cloud, 2)
        await commit(cloud, "g", p0=0, p1=0)
        found = await coordinator(cloud, "g")
        home = next(
            n for n, broker in cloud.brokers.items() if found in broker.groups.coordinators()
        )
        await cloud.admins[3 - home].close()
        group = await cloud.get("/groups/g", at=home)
        known = [row["lag_records"] for row in group["offsets"]]
        assert sorted(known, key=str) == [0, None]
        assert group["lag_records"] == 0


async def test_an_age_that_cannot_be_read_is_left_out_and_read_once_when_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with AdminCloud() as cloud:
        await topic(cloud)
        await fill(cloud, 0, NOW_MS - 5_000)
        await commit(cloud, "g", p0=0)
        partition = cloud.brokers[1].partitions.find("t", 0)
        assert partition is not None
        reads = 0
        read = partition.reader.read

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads == 1:
                raise LogReadFailed("no bookie")
            return await read(*args, **options)

        monkeypatch.setattr(partition.reader, "read", counted)
        seconds = [(await cloud.get("/groups/g"))["lag_seconds"] for _ in range(3)]
        assert seconds == [0.0, 5.0, 5.0]
        assert reads == 2


async def test_members_and_what_they_read() -> None:
    async with AdminCloud() as cloud:
        await topic(cloud, 2)
        await commit(cloud, "g", p0=0, p1=0)
        name = await member(cloud, "g")
        group = await cloud.get("/groups/g")
        assert (group["state"], group["protocol"], group["protocol_type"]) == (
            "Stable", "range", "consumer",
        )  # fmt: skip
        (one,) = group["members"]
        assert one["member_id"] == name
        assert one["assignment"] == [{"topic": "t", "partitions": [1]}]
        assert [row["member_id"] for row in group["offsets"]] == [None, name]
        (row,) = (await cloud.get("/groups"))["items"]
        assert (row["group"], row["members"], row["state"]) == ("g", 1, "Stable")


async def test_members_that_the_broker_assigns_and_what_they_wait_for() -> None:
    async with AdminCloud(group_consumer_assignment_interval_ms=0) as cloud:
        await topic(cloud, 2)
        await commit(cloud, "g", p0=0, p1=0)
        await heartbeat(cloud, "g", "m", 0)
        await heartbeat(cloud, "g", "n", 0)
        group = await cloud.get("/groups/g")
        assert (group["state"], group["type"], group["protocol"]) == (
            "Reconciling", "consumer", "uniform",
        )  # fmt: skip
        first, second = group["members"]
        assert (first["epoch"], first["waits_for"]) == (1, "its next heartbeat")
        assert (second["epoch"], second["waits_for"]) == (2, "t 1 of m")
        await heartbeat(cloud, "g", "m", 1, owned=None)
        first, second = (await cloud.get("/groups/g"))["members"]
        assert (first["epoch"], first["waits_for"]) == (1, "itself, to give up t 1")
        assert first["assignment"] == [{"topic": "t", "partitions": [0]}]
        (row,) = (await cloud.get("/groups"))["items"]
        assert (row["group"], row["members"], row["type"]) == ("g", 2, "consumer")


async def test_a_share_group_with_what_its_members_read_and_where_it_is() -> None:
    async with AdminCloud() as cloud:
        await topic(cloud, 2)
        broker = cloud.brokers[1]
        await until(lambda: broker.services.features.finalized.levels.get("share.version") == 2)
        client = await WireClient.connect(broker.port)
        await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["s"])
        fields = {"group_id": "s", "member_id": "m"}
        while True:
            joined = await client.call(
                ApiKey.SHARE_GROUP_HEARTBEAT, 1, member_epoch=0, subscribed_topic_names=["t"],
                **fields,
            )  # fmt: skip
            if not joined.error_code.value:
                break
        topic_id = broker.cluster.topics["t"].topic_id
        await client.call(
            ApiKey.SHARE_FETCH, 2, **fields, share_session_epoch=0, max_wait=0, min_bytes=0,
            max_bytes=1_000, max_records=1, batch_size=1, forgotten_topics_data=[],
            topics=[{
                "topic_id": topic_id,
                "partitions": [{"partition_index": 1, "acknowledgement_batches": []}],
            }],
        )  # fmt: skip
        await fill(cloud, 1, NOW_MS)
        group = await cloud.get("/groups/s")
        assert (group["state"], group["type"], group["protocol"]) == ("Stable", "share", "simple")
        (one,) = group["members"]
        assert (one["epoch"], one["assignment"]) == (1, [{"topic": "t", "partitions": [0, 1]}])
        (row,) = group["offsets"]
        assert (row["partition"], row["committed_offset"], row["lag_records"]) == (1, 0, 1)
        (row,) = (await cloud.get("/groups"))["items"]
        assert (row["group"], row["type"]) == ("s", "share")
        await client.close()


async def test_groups_of_all_brokers_in_pages_with_recent_lag() -> None:
    async with AdminCloud(2, lag_interval_ms=10) as cloud:
        await topic(cloud)
        await fill(cloud, 0, NOW_MS - 3_000)
        names = [f"g{number}" for number in range(7)]
        for name in names:
            await commit(cloud, name, p0=0)
        await until(
            lambda: sum(len(admin._lags.latest) for admin in cloud.admins.values()) == len(names)
        )
        for at in (1, 2):
            seen: list[Any] = []
            after = ""
            while True:
                page = await cloud.get(f"/groups?limit=2{after}", at=at)
                seen += page["items"]
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            assert [row["group"] for row in seen] == names
            assert {row["coordinator"] for row in seen} == {1, 2}
            assert {(row["lag_records"], row["lag_seconds"]) for row in seen} == {(1, 3.0)}
        metrics = (await cloud.ask("GET", "/metrics")).body + (
            await cloud.ask("GET", "/metrics", at=2)
        ).body
        text = metrics.decode()
        values = {
            (sample.name, sample.labels.get("group")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for name in names:
            assert values["quire_group_lag_records", name] == 1.0
            assert values["quire_group_lag_seconds", name] == 3.0
        await cloud.admins[2].close()
        assert (await cloud.get("/groups"))["silent"] == [2]


async def test_groups_that_read_a_topic_with_their_lag_in_it() -> None:
    async with AdminCloud(2, lag_interval_ms=10) as cloud:
        await topic(cloud, 2)
        await fill(cloud, 0, NOW_MS, NOW_MS)
        await cloud.send("PUT", "/topics/other", {}, status=201)
        await cloud.led("other")
        await commit(cloud, "g", p0=1)
        await member(cloud, "m")
        for name, to in (("g", "earliest"), ("elsewhere", "latest")):
            await cloud.send("PUT", f"/groups/{name}/offsets", {"topic": "other", "to": to})
        await until(lambda: sum(len(admin._lags.latest) for admin in cloud.admins.values()) == 3)
        for at in (1, 2):
            rows = (await cloud.get("/groups?topic=t", at=at))["items"]
            assert [(row["group"], row["lag_records"]) for row in rows] == [("g", 1), ("m", None)]
            rows = (await cloud.get("/groups?topic=other", at=at))["items"]
            assert [(row["group"], row["lag_records"]) for row in rows] == [
                ("elsewhere", 0), ("g", 0),
            ]  # fmt: skip
        assert (await cloud.get("/groups?topic=nobody"))["items"] == []


async def test_metrics_keep_the_largest_lags_when_there_are_too_many() -> None:
    async with AdminCloud(lag_interval_ms=10, lag_series_max=2) as cloud:
        await topic(cloud, 4)
        for index in range(4):
            await fill(cloud, index, *[NOW_MS] * index)
        await commit(cloud, "g", p0=0, p1=0, p2=0, p3=0)
        await until(lambda: len(cloud.admins[1]._lags.latest) == 4)
        text = (await cloud.ask("GET", "/metrics")).body.decode()
        rows = [line for line in text.splitlines() if line.startswith("quire_group_lag_records{")]
        assert sorted(line.rpartition(" ")[2] for line in rows) == ["2.0", "3.0"]


async def test_looking_for_a_group_makes_nothing() -> None:
    async with AdminCloud() as cloud:
        problem = await cloud.get("/groups/nobody", status=404)
        assert problem["type"] == "urn:quire:problem:unknown-group"
        await cloud.send("DELETE", "/groups/nobody", status=404)
        assert (await cloud.get("/topics?internal=true"))["items"] == []
        await coordinator(cloud, "g")
        await cloud.get("/groups/nobody", status=404)


async def test_deleting() -> None:
    async with AdminCloud(2) as cloud:
        await topic(cloud, 2)
        name = "a/b c%2Fd"
        path = "/groups/a%2Fb%20c%252Fd"
        await commit(cloud, name, p0=0)
        await member(cloud, "busy")
        for at in (1, 2):
            assert (await cloud.get(path, at=at))["group"] == name
            problem = await cloud.send("DELETE", "/groups/busy", at=at, status=409)
            assert problem["type"] == "urn:quire:problem:group-has-members"
        await cloud.send("DELETE", path, status=204)
        await cloud.send("DELETE", path, at=2, status=404)


class TestReset:
    @pytest.mark.parametrize(
        ("to", "expected"),
        [
            ({"to": "earliest"}, [0, 0]),
            ({"to": "latest"}, [3, 1]),
            ({"to": "timestamp", "timestamp_ms": NOW_MS + 2}, [2, 1]),
            ({"to": "offset", "offset": 2}, [2, 1]),
            ({"to": "offset", "offset": 99}, [3, 1]),
        ],
    )
    async def test_places(self, to: dict[str, Any], expected: list[int]) -> None:
        async with AdminCloud(2) as cloud:
            await topic(cloud, 2)
            await fill(cloud, 0, NOW_MS, NOW_MS + 1, NOW_MS + 2)
            await fill(cloud, 1, NOW_MS)
            await commit(cloud, "g", p0=1)
            dry = await cloud.send(
                "PUT", "/groups/g/offsets", {"topic": "t", "dry_run": True, **to}
            )
            assert dry["is_done"] is False
            assert (await cloud.get("/groups/g"))["offsets"][0]["committed_offset"] == 1
            done_ = await cloud.send("PUT", "/groups/g/offsets", {"topic": "t", **to}, at=2)
            assert done_["is_done"] is True
            for answer in (dry, done_):
                assert [row["before"] for row in answer["offsets"]] == [1, None]
                assert [row["after"] for row in answer["offsets"]] == expected
            rows = (await cloud.get("/groups/g"))["offsets"]
            assert [row["committed_offset"] for row in rows] == expected

    async def test_a_group_may_be_made_for_some_partitions_only(self) -> None:
        async with AdminCloud() as cloud:
            await topic(cloud, 3)
            body = {"topic": "t", "partitions": [2, 0, 2], "to": "latest"}
            await coordinator(cloud, "new")
            made = await cloud.send("PUT", "/groups/new/offsets", body)
            assert [row["partition"] for row in made["offsets"]] == [0, 2]
            assert [row["partition"] for row in (await cloud.get("/groups/new"))["offsets"]] == [
                0, 2,
            ]  # fmt: skip

    async def test_a_group_with_members_is_left_alone(self) -> None:
        async with AdminCloud() as cloud:
            await topic(cloud, 2)
            await member(cloud, "g")
            body = {"topic": "t", "to": "latest"}
            problem = await cloud.send("PUT", "/groups/g/offsets", body, status=409)
            assert problem["hint"] == "Stop the group's consumers first."

    @pytest.mark.parametrize(
        ("body", "status", "field"),
        [
            ({"topic": "t", "to": "timestamp"}, 422, "timestamp_ms"),
            ({"topic": "t", "to": "latest", "timestamp_ms": 1}, 422, "timestamp_ms"),
            ({"topic": "t", "to": "offset"}, 422, "offset"),
            ({"topic": "t", "to": "latest", "partitions": [7]}, 422, "partitions"),
            ({"topic": "t", "to": "latest", "partitions": []}, 400, "partitions"),
            ({"topic": "t"}, 400, "to"),
        ],
    )
    async def test_what_makes_no_sense(self, body: dict[str, Any], status: int, field: str) -> None:
        async with AdminCloud() as cloud:
            await topic(cloud)
            await coordinator(cloud, "g")
            problem = await cloud.send("PUT", "/groups/g/offsets", body, status=status)
            assert fields(problem) == [field]

    async def test_a_coordinator_that_is_loading_is_asked_again_later(self) -> None:
        async with AdminCloud() as cloud:
            await topic(cloud)
            gate = cloud.cloud.ledgers.gate["create"] = asyncio.Event()
            body = {"topic": "t", "to": "latest"}
            problem = await cloud.send("PUT", "/groups/g/offsets", body, status=503)
            assert problem["type"] == "urn:quire:problem:group-unavailable"
            gate.set()


async def test_settings_of_a_group() -> None:
    async with AdminCloud(2) as cloud:
        path = "/groups/a%2Fb/config"
        session, level = "consumer.session.timeout.ms", "share.isolation.level"
        settings = {
            session: 60_000,
            level: "read_committed",
            "share.renew.acknowledge.enable": True,
        }
        await cloud.send("PATCH", path, {"settings": settings})
        for at in (1, 2):
            own = cloud.brokers[at].services.group_settings
            await until(lambda own=own: session in own.of("a/b"))
            rows = {row["name"]: row for row in (await cloud.get(path, at=at))["settings"]}
            assert len(rows) == 30
            assert rows[session] == {
                "name": session, "value": "60000", "source": "group", "default": "45000",
                "has_effect": True, "doc": rows[session]["doc"],
            }  # fmt: skip
            assert (rows[level]["value"], rows[level]["has_effect"]) == ("read_committed", True)
            assert not rows["share.session.timeout.ms"]["has_effect"]
            assert rows["consumer.heartbeat.interval.ms"]["source"] == "default"
        await cloud.send("PUT", "/topics/t", {}, status=201)
        await commit(cloud, "a/b", p0=1)
        about = await cloud.get("/groups/a%2Fb")
        assert [row["name"] for row in about["settings"]] == sorted(settings)
        await cloud.send("PATCH", path, {"settings": dict.fromkeys(settings)})
        rows = (await cloud.get(path))["settings"]
        assert {row["source"] for row in rows} == {"default"}
        for wrong, status in (({session: 1}, 422), ({"no.such": 1}, 400), ({session: "x"}, 422)):
            await cloud.send("PATCH", path, {"settings": wrong}, status=status)
