"""The hand-written Fetch codec agrees with kio and survives hostile bytes."""

from __future__ import annotations

import datetime
import importlib
import io
import random
import struct
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from client.errors import LocalProtocolError, RemoteProtocolError
from client.wire.kafka import apis, fetch
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.fetch import PartitionData
from client.wire.kafka.produce import NodeEndpoint
from tests.unit.client.wire.kafka.instances import instance

VERSIONS = range(fetch.VERSION_MIN, fetch.VERSION_MAX + 1)


def kio_request(version: int, rng: random.Random) -> tuple[Any, bytes]:
    entity = apis.request_type(ApiKey.FETCH, version)
    rich, _ = instance(entity, rng)
    encoded = io.BytesIO()
    entity_writer(entity)(encoded, rich)
    return rich, encoded.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_mean_what_kio_says(version: int) -> None:
    rng = random.Random(version)
    for _ in range(30):
        rich, encoded = kio_request(version, rng)
        request = fetch.parse_request(version, memoryview(encoded))
        assert datetime.timedelta(milliseconds=request.wait_ms_max) == rich.max_wait
        assert (request.bytes_min, request.bytes_max) == (rich.min_bytes, rich.max_bytes)
        assert request.isolation == rich.isolation_level
        assert request.session_id == getattr(rich, "session_id", 0)
        assert request.session_epoch == getattr(rich, "session_epoch", -1)
        assert request.rack == getattr(rich, "rack_id", "")
        assert [topic.topic for topic in request.topics] == [_named(one) for one in rich.topics]
        assert request.forgotten == [
            (_named(topic), index)
            for topic in getattr(rich, "forgotten_topics_data", ())
            for index in topic.partitions
        ]
        for topic, expected in zip(request.topics, rich.topics, strict=True):
            assert topic.partitions == [
                (
                    p.partition,
                    p.fetch_offset,
                    p.partition_max_bytes,
                    getattr(p, "current_leader_epoch", -1),
                )
                for p in expected.partitions
            ]


def _named(topic: Any) -> str | uuid.UUID:
    if hasattr(topic, "topic"):
        return str(topic.topic)
    return topic.topic_id or uuid.UUID(int=0)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_request_is_refused(version: int) -> None:
    rng = random.Random(version)
    encoded = b""
    while len(encoded) < 60:
        _, encoded = kio_request(version, rng)
    for end in range(min(len(encoded), 400)):
        with pytest.raises(RemoteProtocolError):
            fetch.parse_request(version, memoryview(encoded[:end]))


@pytest.mark.parametrize("version", [4, 7, 12, 18])
def test_random_bytes_never_raise_anything_else(version: int) -> None:
    rng = random.Random(version)
    _, encoded = kio_request(version, rng)
    for _ in range(2000):
        broken = bytearray(encoded)
        for _ in range(rng.choice((1, 2, 8))):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            fetch.parse_request(version, memoryview(bytes(broken)))
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("count", [1 << 20, 0x7FFF_FFFF, -2])
def test_counts_are_checked_before_looping(count: int) -> None:
    head = struct.pack(">iiiib", -1, 0, 1, 1, 0)
    with pytest.raises(RemoteProtocolError, match="array"):
        fetch.parse_request(4, memoryview(head + struct.pack(">i", count) + bytes(64)))
    topic = struct.pack(">ih1si", 1, 1, b"t", count)
    with pytest.raises(RemoteProtocolError, match="array"):
        fetch.parse_request(4, memoryview(head + topic + bytes(64)))


BATCHES: list[list[bytes]] = [[], [b"x" * 100, memoryview(b"y" * 200)], [b"z"]]
TOPICS = [
    ("one", [PartitionData(0, 0, 10, 9, 2, BATCHES[1], 300)]),
    (
        "two" * 60,
        [
            PartitionData(3, 6, -1, -1, -1, BATCHES[0], 0, None, (4, 11)),
            PartitionData(4, 0, 7, 7, 0, BATCHES[2], 1, [(5, 1), (6, 3)]),
            PartitionData(5, 0, 7, 7, 0, BATCHES[0], 0, []),
        ],
    ),
    ("none", []),
]
ENDPOINTS = [NodeEndpoint(4, "broker-4", 9095, None), NodeEndpoint(5, "h" * 130, 1, "rack")]


def topics_for(version: int) -> list[tuple[str | uuid.UUID, list[PartitionData]]]:
    if version < fetch.TOPIC_IDS_FROM:
        return [(name, datas) for name, datas in TOPICS]
    return [(uuid.UUID(int=at + 5), datas) for at, (_, datas) in enumerate(TOPICS)]


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_byte_identical_to_kio(version: int) -> None:
    entity = apis.response_type(ApiKey.FETCH, version)
    expected = io.BytesIO()
    entity_writer(entity)(expected, _rich(entity, version))
    buffers, size = fetch.build_response(
        version, topics_for(version), ENDPOINTS, error_code=70, session_id=9, throttle_ms=5
    )
    joined = b"".join(buffers)
    assert joined == expected.getvalue()
    assert size == len(joined)


def test_record_buffers_are_passed_on_uncopied() -> None:
    buffers, _ = fetch.build_response(11, TOPICS)
    assert any(buffer is BATCHES[1][0] for buffer in buffers)
    assert any(buffer is BATCHES[1][1] for buffer in buffers)
    assert len(buffers) == 6


def _rich(entity: Any, version: int) -> Any:
    module = importlib.import_module(entity.__module__)

    def partition(data: PartitionData) -> Any:
        aborted = data.aborted
        fields: dict[str, Any] = {
            "partition_index": data.partition,
            "error_code": ErrorCode(data.error_code),
            "high_watermark": data.high_watermark,
            "last_stable_offset": data.last_stable_offset,
            "aborted_transactions": None
            if aborted is None
            else tuple(
                module.AbortedTransaction(producer_id=pid, first_offset=first)
                for pid, first in aborted
            ),
            "records": b"".join(data.records),
        }
        if version >= 5:
            fields["log_start_offset"] = data.log_start_offset
        if version >= 11:
            fields["preferred_read_replica"] = -1
        if version >= 12 and data.leader:
            leader, epoch = data.leader
            fields["current_leader"] = module.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return module.PartitionData(**fields)

    fields: dict[str, Any] = {
        "throttle_time": datetime.timedelta(milliseconds=5),
        "responses": tuple(
            module.FetchableTopicResponse(
                **{"topic_id" if isinstance(topic, uuid.UUID) else "topic": topic},
                partitions=tuple(map(partition, datas)),
            )
            for topic, datas in topics_for(version)
        ),
    }
    if version >= 7:
        fields |= {"error_code": ErrorCode(70), "session_id": 9}
    if version >= 16:
        fields["node_endpoints"] = tuple(
            module.NodeEndpoint(node_id=e.node_id, host=e.host, port=e.port, rack=e.rack)
            for e in ENDPOINTS
        )
    return entity(**fields)


def test_versions_without_layout_are_our_bug() -> None:
    for version in (3, 19):
        with pytest.raises(LocalProtocolError):
            fetch.build_response(version, [])
