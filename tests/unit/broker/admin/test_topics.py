"""/topics and /partitions: shapes, settings, leaders, moving, rolling, trimming, segments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.admin import AdminCloud, until
from tests.fakes.brokers import batch, done


def fields(problem: Any) -> list[str]:
    return [fault["field"] for fault in problem["faults"]]


async def fill(cloud: AdminCloud, topic: str, index: int, count: int) -> None:
    """Publish `count` records in batches of one."""
    for broker in cloud.brokers.values():
        partition = broker.partitions.find(topic, index)
        if partition is not None:
            for number in range(count):
                await done(partition.append(batch(f"v{number}", timestamp_ms=1_000 + number)))


class TestTopics:
    async def test_a_topic_is_made_once_however_often_it_is_asked_for(self) -> None:
        async with AdminCloud() as cloud:
            wish = {
                "partition_count": 2,
                "replication_factor": 3,
                "settings": {"retention.ms": 60_000, "cleanup.policy": "compact"},
            }
            made = await cloud.ask("PUT", "/admin/v1/topics/t", json=wish, status=201)
            assert made.headers["Location"] == "/admin/v1/topics/t"
            assert made.body["partition_count"] == 2
            again = await cloud.send("PUT", "/topics/t", wish)
            assert again["topic_id"] == made.body["topic_id"]
            assert (await cloud.send("PUT", "/topics/t", {}))["topic_id"] == again["topic_id"]

    async def test_the_same_name_with_another_shape_is_a_conflict(self) -> None:
        async with AdminCloud() as cloud:
            await cloud.send("PUT", "/topics/t", {"partition_count": 2}, status=201)
            wish = {
                "partition_count": 3,
                "replication_factor": 1,
                "settings": {"retention.ms": "1", "segment.ms": "604800000"},
            }
            problem = await cloud.send("PUT", "/topics/t", wish, status=409)
            assert fields(problem) == [
                "partition_count", "replication_factor", "settings.retention.ms",
            ]  # fmt: skip

    @pytest.mark.parametrize(
        ("wish", "field", "status"),
        [
            ({"settings": {"retention.ms": "soon"}}, "settings.retention.ms", 422),
            ({"settings": {"no.such": 1}}, "settings.no.such", 400),
            ({"settings": {"cleanup.policy": True}}, "settings.cleanup.policy", 422),
            ({"replication_factor": 9}, "replication_factor", 422),
            ({"partition_count": 1_000_000}, "partition_count", 422),
            ({"replication_factor": 1, "settings": {"min.insync.replicas": 2}}, "settings", 422),
        ],
    )
    async def test_what_cannot_be_is_refused_by_field(
        self, wish: dict[str, Any], field: str, status: int
    ) -> None:
        async with AdminCloud() as cloud:
            problem = await cloud.send("PUT", "/topics/t", wish, status=status)
            assert fields(problem) == [field]
            assert (await cloud.get("/topics"))["items"] == []

    async def test_lists_come_in_pages_with_totals_of_all_leaders(self) -> None:
        async with AdminCloud(2) as cloud:
            for number in range(5):
                await cloud.send("PUT", f"/topics/t{number}", {"partition_count": 4}, status=201)
                await cloud.led(f"t{number}")
            for index in range(4):
                await fill(cloud, "t3", index, 2)
            seen: list[str] = []
            after = ""
            while True:
                page = await cloud.get(f"/topics?limit=2{after}")
                seen += [row["topic"] for row in page["items"]]
                for row in page["items"]:
                    full = row["topic"] == "t3"
                    assert row["totals"]["partitions_led"] == 4
                    assert row["totals"]["records"] == (8 if full else 0)
                    assert (row["totals"]["bytes"] > 400) is full  # snapshots count too
                if page["next"] is None:
                    break
                after = f"&after={page['next']}"
            assert seen == ["t0", "t1", "t2", "t3", "t4"]
            found = await cloud.get("/topics?prefix=t3")
            assert [row["topic"] for row in found["items"]] == ["t3"]
            assert (await cloud.get("/topics/t3", at=2))["totals"]["produced"] == 8

    async def test_internal_topics_show_when_asked_for_and_stay(self) -> None:
        async with AdminCloud() as cloud:
            await cloud.brokers[1].groups.find("g")
            name = "__consumer_offsets"
            assert (await cloud.get("/topics"))["items"] == []
            found = await cloud.get("/topics?internal=true")
            assert [(row["topic"], row["is_internal"]) for row in found["items"]] == [(name, True)]
            problem = await cloud.send("DELETE", f"/topics/{name}", status=409)
            assert problem["type"] == "urn:quire:problem:not-allowed"

    async def test_settings_and_partitions_change(self) -> None:
        async with AdminCloud() as cloud:
            await cloud.send("PUT", "/topics/t", {"settings": {"segment.ms": 5}}, status=201)
            change = {
                "partition_count": 3,
                "settings": {"segment.ms": None, "retention.ms": 7, "preallocate": True},
            }
            for _ in range(2):  # the second time nothing is left to do
                changed = await cloud.send("PATCH", "/topics/t", change)
                assert changed["partition_count"] == 3
                config = await cloud.get("/topics/t/config")
                rows = {row["name"]: row for row in config["settings"]}
                assert (rows["retention.ms"]["value"], rows["retention.ms"]["source"]) == (
                    "7", "topic",
                )  # fmt: skip
                assert rows["preallocate"]["value"] == "true"
                assert rows["segment.ms"]["source"] == "default"
                assert rows["segment.ms"]["value"] == rows["segment.ms"]["default"]
            problem = await cloud.send("PATCH", "/topics/t", {"partition_count": 2}, status=422)
            assert fields(problem) == ["partition_count"]
            for wrong, status in (({"no.such": None}, 400), ({"retention.ms": "x"}, 422)):
                change = {"settings": wrong}
                problem = await cloud.send("PATCH", "/topics/t", change, status=status)
                assert fields(problem) == [f"settings.{next(iter(wrong))}"]

    async def test_deleting(self) -> None:
        async with AdminCloud() as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            await cloud.send("DELETE", "/topics/t", status=204)
            problem = await cloud.send("DELETE", "/topics/t", status=404)
            assert problem["type"] == "urn:quire:problem:unknown-topic-or-partition"
            await cloud.get("/topics/t", status=404)
            await cloud.send("PATCH", "/topics/t", {}, status=404)


class TestPartitions:
    async def test_any_broker_describes_all_of_them(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {"partition_count": 5}, status=201)
            await cloud.led("t")
            await fill(cloud, "t", 4, 3)
            for at in (1, 2):
                first = await cloud.get("/topics/t/partitions?limit=3", at=at)
                rest = await cloud.get(f"/topics/t/partitions?after={first['next']}", at=at)
                rows = first["items"] + rest["items"]
                assert [row["partition"] for row in rows] == [0, 1, 2, 3, 4]
                assert rest["next"] is None
                assert {row["state"] for row in rows} == {"led"}
                assert {row["leader"] for row in rows} == {1, 2}
                one = await cloud.get("/topics/t/partitions/4", at=at)
                assert one == rows[4]
                assert (one["high_watermark"], one["log_end_offset"]) == (3, 3)
                assert one["bytes"] > 0

    async def test_what_there_is_not(self) -> None:
        async with AdminCloud() as cloud:
            await cloud.send("PUT", "/topics/t", {"partition_count": 2}, status=201)
            for path in ("/topics/t/partitions/2", "/topics/x/partitions/0"):
                await cloud.get(path, status=404)
            for path in ("/topics/t/partitions/-1", "/topics/t/partitions/x"):
                assert fields(await cloud.get(path, status=400)) == ["partition"]
            assert fields(await cloud.get("/topics/t/partitions?after=x", status=422)) == ["after"]

    async def test_states_without_a_leader_that_answers(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {"partition_count": 2}, status=201)
            await cloud.led("t")
            other = next(i for i in (0, 1) if cloud.brokers[2].partitions.find("t", i))
            await cloud.admins[2].close()
            row = await cloud.get(f"/topics/t/partitions/{other}")
            assert (row["state"], row["leader"], row["high_watermark"]) == ("silent", 2, None)
            mine = cloud.brokers[1].partitions.find("t", 1 - other)
            assert mine is not None
            gate = cloud.cloud.ledgers.gate["create"] = asyncio.Event()
            mine.resign("a test")
            row = await cloud.get(f"/topics/t/partitions/{1 - other}")
            assert (row["state"], row["leader"]) == ("opening", 1)
            gate.set()

    async def test_moving_a_partition_and_leaving_it_to_the_brokers_again(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            await cloud.led("t")
            await fill(cloud, "t", 0, 2)
            home = (await cloud.get("/topics/t/partitions/0"))["leader"]
            away = 3 - home
            for _ in range(2):
                moved = await cloud.send(
                    "PUT", "/topics/t/partitions/0/leader", {"broker_id": away}, at=home
                )
                assert moved["pinned_to"] == away
                await until(lambda: cloud.brokers[away].partitions.find("t", 0) is not None)
            row = await cloud.get("/topics/t/partitions/0")
            assert (row["leader"], row["state"], row["high_watermark"]) == (away, "led", 2)
            for _ in range(2):
                back = await cloud.send("DELETE", "/topics/t/partitions/0/leader")
                assert back["pinned_to"] is None
                await until(lambda: cloud.brokers[home].partitions.find("t", 0) is not None)

    async def test_a_partition_goes_to_live_brokers_only(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            path = "/topics/t/partitions/0/leader"
            assert fields(await cloud.send("PUT", path, {"broker_id": 7}, status=404)) == [
                "broker_id"
            ]
            await cloud.send("PUT", "/brokers/2/unloaded")
            await until(lambda: cloud.brokers[1].cluster.brokers[2].unloaded)
            assert fields(await cloud.send("PUT", path, {"broker_id": 2}, status=422)) == [
                "broker_id"
            ]

    async def test_unloading_a_broker_gives_everything_away_until_it_is_loaded(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {"partition_count": 6}, status=201)
            await cloud.led("t")
            assert len(cloud.brokers[2].partitions) == 3
            for _ in range(2):
                shown = await cloud.send("PUT", "/brokers/2/unloaded", at=1)
                assert shown["broker_id"] == 2
            await until(lambda: len(cloud.brokers[1].partitions) == 6)
            cluster = await cloud.get("/cluster")
            assert cluster["brokers"]["unloaded"] == [2]
            assert cluster["partitions"] == {"count": 6, "led": 6}
            for _ in range(2):
                await cloud.send("DELETE", "/brokers/2/unloaded", at=1)
            await until(lambda: len(cloud.brokers[2].partitions) == 3)
            assert (await cloud.get("/brokers/2"))["is_unloaded"] is False


class TestSegments:
    async def test_rolling_and_trimming_show_in_the_chain_of_ledgers(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {"partition_count": 2}, status=201)
            await cloud.led("t")
            for round_ in range(3):
                await fill(cloud, "t", 0, 2)
                if round_ < 2:  # whoever is asked: one of them does not lead it
                    await cloud.send("POST", "/topics/t/partitions/0/roll", at=1 + round_)
            for at in (1, 2):
                rows = (await cloud.get("/topics/t/partitions/0/segments", at=at))["items"]
                shape = [(row["base_offset"], row["last_offset"], row["state"]) for row in rows]
                assert shape == [(0, 1, "closed"), (2, 3, "closed"), (4, 5, "open")]
                assert [row["is_sealed"] for row in rows] == [True, True, False]
                assert all(row["bytes"] > 0 for row in rows)
                assert rows[0]["max_timestamp_ms"] == 1_001
                assert rows[2]["fragments"][0]["last_entry"] is None
                assert len(rows[0]["fragments"][0]["bookies"]) == rows[0]["ensemble_size"] == 3
            trimmed = await cloud.send("POST", "/topics/t/partitions/0/trim", {"before_offset": 3})
            assert trimmed["log_start_offset"] == 3
            left = (await cloud.get("/topics/t/partitions/0/segments"))["items"]
            assert [row["base_offset"] for row in left] == [2, 4]
            again = await cloud.send("POST", "/topics/t/partitions/0/trim", {"before_offset": 3})
            assert again["log_start_offset"] == 3
            problem = await cloud.send(
                "POST", "/topics/t/partitions/0/trim", {"before_offset": 99}, status=422
            )
            assert fields(problem) == ["offset"]

    @pytest.mark.parametrize("entries", [2, 256])
    async def test_pages_go_both_ways_and_survive_a_trim(self, entries: int) -> None:
        async with AdminCloud(log_segment_page_entries=entries) as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            await cloud.led("t")
            for _ in range(4):
                await fill(cloud, "t", 0, 1)
                await cloud.send("POST", "/topics/t/partitions/0/roll")
            path = "/topics/t/partitions/0/segments?limit=2"

            async def walk(order: str) -> list[int]:
                seen: list[int] = []
                after = ""
                while True:
                    page = await cloud.get(f"{path}&order={order}{after}")
                    seen += [row["base_offset"] for row in page["items"]]
                    if page["next"] is None:
                        return seen
                    after = f"&after={page['next']}"

            assert await walk("oldest") == [0, 1, 2, 3, 4]
            assert await walk("newest") == [4, 3, 2, 1, 0]
            first = await cloud.get(path)
            newest = await cloud.get(f"{path}&order=newest&limit=4".replace("limit=2&", ""))
            await cloud.send("POST", "/topics/t/partitions/0/trim", {"before_offset": 3})
            for _ in range(500):  # page by page
                if len(await walk("oldest")) == 2:
                    break
                await asyncio.sleep(0.01)
            rest = await cloud.get(f"{path}&after={first['next']}")
            assert [row["base_offset"] for row in rest["items"]] == [3, 4]
            gone = await cloud.get(f"{path}&order=newest&after={newest['next']}")
            assert gone["items"] == []

    async def test_they_are_there_without_a_leader_and_missing_ledgers_show(self) -> None:
        async with AdminCloud(2) as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            await cloud.led("t")
            await fill(cloud, "t", 0, 1)
            await cloud.send("POST", "/topics/t/partitions/0/roll")
            leader = (await cloud.get("/topics/t/partitions/0"))["leader"]
            rows = (await cloud.get("/topics/t/partitions/0/segments"))["items"]
            del cloud.cloud.ledgers.ledgers[rows[0]["ledger_id"]]
            await cloud.admins[leader].close()
            left = await cloud.get("/topics/t/partitions/0/segments", at=3 - leader)
            assert [row["state"] for row in left["items"]] == ["missing", "open"]
            assert left["items"][1]["last_offset"] is None

    @pytest.mark.parametrize(
        ("query", "offset", "timestamp_ms"),
        [
            ("", 3, None),
            ("?at=latest", 3, None),
            ("?at=earliest", 0, None),
            ("?at=timestamp&timestamp_ms=1001", 1, 1001),
            ("?at=timestamp&timestamp_ms=5000", 3, None),
        ],
    )
    async def test_finding_offsets(self, query: str, offset: int, timestamp_ms: int | None) -> None:
        async with AdminCloud() as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            await cloud.led("t")
            await fill(cloud, "t", 0, 3)
            found = await cloud.get(f"/topics/t/partitions/0/offset{query}")
            assert found == {"offset": offset, "timestamp_ms": timestamp_ms}

    @pytest.mark.parametrize(
        ("query", "status"), [("?at=timestamp", 422), ("?timestamp_ms=1", 422), ("?at=never", 400)]
    )
    async def test_offsets_that_cannot_be_looked_for(self, query: str, status: int) -> None:
        async with AdminCloud() as cloud:
            await cloud.send("PUT", "/topics/t", {}, status=201)
            await cloud.led("t")
            await cloud.get(f"/topics/t/partitions/0/offset{query}", status=status)
