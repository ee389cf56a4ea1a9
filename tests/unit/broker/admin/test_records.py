"""Records over HTTP: what is published is stored, what is stored can be looked at."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from client.wire.kafka.batches.records import Codec, Record, build_batch, pack_batch, parse_header
from client.wire.kafka.partitioner import partition_of
from tests.fakes.admin import AdminCloud
from tests.fakes.brokers import done

OCTETS = {"Content-Type": "application/octet-stream"}
T0 = "/topics/t/partitions/0/records"


async def make(cloud: AdminCloud, partitions: int = 1, **settings: str) -> None:
    wish = {"partition_count": partitions, "settings": settings}
    await cloud.send("PUT", "/topics/t", wish, status=201)
    await cloud.led("t")


def fields(problem: Any) -> list[str]:
    return [fault["field"] for fault in problem["faults"]]


async def test_json_goes_in_and_comes_out() -> None:
    async with AdminCloud() as cloud:
        await make(cloud)
        raw = base64.b64encode(b"\xff\x00").decode()
        rows = [
            {"value": "hé", "key": "k", "timestamp_ms": 5,
             "headers": [{"name": "h", "value": "v"}, {"name": "n", "value": None}]},
            {"value": raw, "value_encoding": "base64", "key": raw, "key_encoding": "base64"},
            {"value": None, "key": "k"},
            {"value": ""},
        ]  # fmt: skip
        stored = await cloud.send("POST", T0, {"records": rows})
        assert stored["records"] == [{"partition": 0, "offset": at} for at in range(4)]
        found = await cloud.get(T0)
        assert found["next_offset"] == found["high_watermark"] == 4
        first, second, third, fourth = found["records"]
        assert first == {
            "partition": 0, "offset": 0, "timestamp_ms": 5, "key": "k", "key_encoding": "text",
            "value": "hé", "value_encoding": "text", "value_size": 3, "is_truncated": False,
            "headers": [
                {"name": "h", "value": "v", "encoding": "text"},
                {"name": "n", "value": None, "encoding": "text"},
            ],
        }  # fmt: skip
        assert (second["value"], second["value_encoding"]) == (raw, "base64")
        assert (second["key"], second["key_encoding"]) == (raw, "base64")
        assert second["timestamp_ms"] == cloud.brokers[1].services.clock.now_ms()
        assert (third["value"], third["value_size"]) == (None, 0)
        assert fourth["value"] == ""


async def test_bytes_go_in_and_come_out() -> None:
    async with AdminCloud() as cloud:
        await make(cloud)
        path = "/admin/v1" + T0
        await cloud.ask(
            "POST", path, data=b"\xff\x00{}", params={"key": "k"}, headers=OCTETS, status=200
        )
        await cloud.ask("POST", path, data=b"", headers=OCTETS, status=200)
        await cloud.send("POST", T0, {"records": [{"value": None}]})
        wants = {"Accept": "application/octet-stream"}
        whole = await cloud.ask("GET", path + "/0", headers=wants, status=200)
        assert whole.body == b"\xff\x00{}"
        assert whole.headers["Content-Type"] == "application/octet-stream"
        assert whole.headers["Quire-Offset"] == "0"
        assert (await cloud.ask("GET", path + "/1", headers=wants, status=200)).body == b""
        assert (await cloud.ask("GET", path + "/2", headers=wants, status=204)).body == b""
        shown = await cloud.get(T0 + "/0")
        assert (shown["key"], shown["offset"], shown["value_encoding"]) == ("k", 0, "base64")
        assert fields(await cloud.get(T0 + "/3", status=404)) == ["offset"]
        assert fields(await cloud.get(T0 + "/4", status=422)) == ["offset"]


async def test_records_go_to_the_partitions_of_their_keys_wherever_they_are_led() -> None:
    async with AdminCloud(2) as cloud:
        await make(cloud, 4)
        rows: list[dict[str, Any]] = [{"key": f"k{n}", "value": str(n)} for n in range(12)]
        rows += [{"value": "a"}, {"value": "b"}]
        stored = (await cloud.send("POST", "/topics/t/records", {"records": rows}))["records"]
        for row, place in zip(rows[:12], stored, strict=False):
            assert place["partition"] == partition_of(row["key"].encode(), 4)
        assert stored[12]["partition"] == stored[13]["partition"]
        for at in (1, 2):
            for row, place in zip(rows, stored, strict=True):
                path = f"/topics/t/partitions/{place['partition']}/records/{place['offset']}"
                assert (await cloud.get(path, at=at))["value"] == row["value"]


async def test_a_publication_that_fails_in_part_says_so() -> None:
    async with AdminCloud(2) as cloud:
        await make(cloud, 2)
        keys = {partition_of(f"k{n}".encode(), 2): f"k{n}" for n in range(10)}
        mine = next(i for i in (0, 1) if cloud.brokers[1].partitions.find("t", i))
        await cloud.admins[2].close()
        rows = [{"key": keys[mine], "value": "1"}, {"key": keys[1 - mine], "value": "2"}]
        path = "/topics/t/records"
        problem = await cloud.send("POST", path, {"records": rows}, status=502)
        assert problem["type"] == "urn:quire:problem:published-in-part"
        assert problem["detail"].startswith("1 of 2 records were stored")
        assert (problem["may_have_happened"], problem["retriable"]) == (True, False)
        problem = await cloud.send("POST", path, {"records": rows[1:]}, status=502)
        assert problem["may_have_happened"] is False


@pytest.mark.parametrize(
    ("body", "field", "status"),
    [
        ({"records": []}, "records", 400),
        ({"records": [{"key": "k"}]}, "records[0].value", 400),
        ({"records": [{"value": "v"}, {"value": "%", "value_encoding": "base64"}]},
         "records[1].value", 422),
        ({"records": [{"value": "v", "headers": [{"name": "n", "value": "%",
                                                  "encoding": "base64"}]}]},
         "records[0].headers[0].value", 422),
        ({"records": [{"value": "v", "timestamp_ms": -1}]}, "records[0].timestamp_ms", 400),
        ({"records": [{"value": "\ud800"}]}, "records[0].value", 400),
    ],
)  # fmt: skip
async def test_records_that_are_none(body: dict[str, Any], field: str, status: int) -> None:
    async with AdminCloud() as cloud:
        await make(cloud)
        assert fields(await cloud.send("POST", T0, body, status=status)) == [field]
        assert (await cloud.get(T0))["high_watermark"] == 0


async def test_what_the_topic_refuses() -> None:
    async with AdminCloud() as cloud:
        await make(cloud, **{"cleanup.policy": "compact", "max.message.bytes": "1000"})
        problem = await cloud.send("POST", T0, {"records": [{"value": "v"}]}, status=422)
        assert problem["type"] == "urn:quire:problem:invalid-record"
        large = {"records": [{"key": "k", "value": "v" * 2000}]}
        problem = await cloud.send("POST", T0, large, status=413)
        assert "max.message.bytes" in problem["hint"]
        await cloud.brokers[1].groups.find("g")
        await cloud.led("__consumer_offsets")
        path = "/topics/__consumer_offsets/partitions/0/records"
        await cloud.send("POST", path, {"records": [{"value": "v"}]}, status=409)
        answer = await cloud.ask("POST", f"/admin/v1{T0}?key=k", json=large, status=422)
        assert fields(answer.body) == ["key"]


async def test_an_append_that_stays_unconfirmed_may_have_happened() -> None:
    async with AdminCloud(produce_timeout_max_ms=50) as cloud:
        await make(cloud)
        client = cloud.cloud.ledgers.clients[0]
        client.hold_answers = True
        problem = await cloud.send("POST", T0, {"records": [{"value": "v"}]}, status=504)
        assert problem["may_have_happened"] is True
        client.release()


async def test_the_same_is_known_of_an_append_at_another_broker() -> None:
    async with AdminCloud(2, produce_timeout_max_ms=50) as cloud:
        await make(cloud, 2)
        theirs = next(i for i in (0, 1) if cloud.brokers[2].partitions.find("t", i))
        key = next(f"k{n}" for n in range(10) if partition_of(f"k{n}".encode(), 2) == theirs)
        client = cloud.cloud.ledgers.clients[1]
        client.hold_answers = True
        body = {"records": [{"key": key, "value": "v"}]}
        problem = await cloud.send("POST", "/topics/t/records", body, status=504)
        assert problem["detail"].startswith("broker 2: ")
        assert (problem["may_have_happened"], problem["retriable"]) == (True, True)
        client.release()


async def test_what_is_published_counts_like_anything_else() -> None:
    async with AdminCloud() as cloud:
        await make(cloud)
        await cloud.send("POST", T0, {"records": [{"value": "v"}, {"value": "w"}]})
        metrics = (await cloud.ask("GET", "/metrics")).body.decode()
        assert "quire_broker_produced_records_total 2.0" in metrics
        assert 'quire_topic_produced_records_total{topic="t"} 2.0' in metrics


async def test_looking_at_a_part() -> None:
    async with AdminCloud() as cloud:
        await make(cloud)
        partition = cloud.brokers[1].partitions.find("t", 0)
        assert partition is not None
        for first in (0, 4, 8):
            batch = build_batch(
                [Record(None, f"v{first + n}".encode(), 7) for n in range(4)], codec=Codec.GZIP
            )
            await done(partition.append(batch))

        async def offsets(query: str) -> list[int]:
            return [row["offset"] for row in (await cloud.get(T0 + query))["records"]]

        assert await offsets("") == list(range(12))
        assert await offsets("?offset=3&limit=3") == [3, 4, 5]
        assert await offsets("?last=2") == [10, 11]
        assert await offsets("?last=1000") == list(range(12))
        assert await offsets("?offset=12") == []
        assert (await cloud.get(T0 + "?offset=3&limit=3"))["next_offset"] == 6
        assert fields(await cloud.get(T0 + "?offset=13", status=422)) == ["offset"]
        assert fields(await cloud.get(T0 + "?offset=1&last=1", status=422)) == ["last"]
        assert fields(await cloud.get(T0 + "?limit=0", status=400)) == ["limit"]


async def test_a_batch_that_cannot_be_read_hides_no_other() -> None:
    """As a version stored it that believed headers: whoever looks is told what to skip."""
    async with AdminCloud() as cloud:
        await make(cloud)
        partition = cloud.brokers[1].partitions.find("t", 0)
        assert partition is not None
        good = build_batch([Record(b"k", b"v", 5), Record(b"k", b"w", 6)])
        bad = pack_batch(parse_header(good)._replace(attributes=Codec.GZIP), b"no gzip at all")
        for data in (good, bad, good, bad, bad):
            await done(partition.append(data, from_client=False))
        found = await cloud.get(T0)
        assert [row["offset"] for row in found["records"]] == [0, 1, 4, 5]
        spans = [(row["offset"], row["next_offset"]) for row in found["unreadable"]]
        assert spans == [(2, 4), (6, 8), (8, 10)]
        assert "GZIP" in found["unreadable"][0]["reason"]
        assert found["next_offset"] == 10
        part = await cloud.get(f"{T0}?limit=3")
        assert [row["offset"] for row in part["records"]] == [0, 1]
        assert [row["offset"] for row in part["unreadable"]] == [2]
        assert part["next_offset"] == 4
        rest = await cloud.get(f"{T0}?offset=4&limit=1")
        assert ([row["offset"] for row in rest["records"]], rest["next_offset"]) == ([4], 5)
        problem = await cloud.get(f"{T0}/3", status=500)
        assert "offsets 2 to 3" in problem["detail"]
        assert (await cloud.get(f"{T0}/4"))["value"] == "v"


async def test_long_values_are_cut_between_characters() -> None:
    async with AdminCloud() as cloud:
        await make(cloud)
        await cloud.send("POST", T0, {"records": [{"value": "aé€𝄞z" * 10}]})
        texts = []
        for limit in range(12):
            (row,) = (await cloud.get(f"{T0}?value_bytes_max={limit}"))["records"]
            assert row["is_truncated"]
            assert row["value_encoding"] == "text"
            texts.append(row["value"])
        assert texts[:12] == [
            "", "a", "a", "aé", "aé", "aé", "aé€", "aé€", "aé€", "aé€", "aé€𝄞", "aé€𝄞z",
        ]  # fmt: skip
        assert (await cloud.get(T0 + "/0"))["value"] == "aé€𝄞z" * 10


async def test_a_partition_that_is_being_opened_is_asked_for_again_later() -> None:
    async with AdminCloud() as cloud:
        gate = cloud.cloud.ledgers.gate["create"] = asyncio.Event()
        await cloud.send("PUT", "/topics/t", {}, status=201)
        answer = await cloud.ask("GET", "/admin/v1" + T0, status=503)
        assert answer.headers["Retry-After"] == "1"
        assert answer.body["type"] == "urn:quire:problem:not-led-now"
        gate.set()
