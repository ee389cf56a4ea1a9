"""The hand-written Produce codec agrees with kio and survives hostile bytes."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import random
import struct
from typing import Any
from uuid import UUID, uuid5

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from client.errors import LocalProtocolError, RemoteProtocolError
from client.wire.buffer import Reader
from client.wire.kafka import apis, produce
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.produce import (
    NodeEndpoint,
    PartitionResult,
    count_bytes,
    endpoint_tags,
    topic_bytes,
)
from client.wire.steps import finish
from tests.unit.client.wire.kafka.instances import instance

VERSIONS = range(produce.VERSION_MIN, produce.VERSION_MAX + 1)


def kio_request(version: int, rng: random.Random) -> tuple[Any, bytes]:
    entity = apis.request_type(ApiKey.PRODUCE, version)
    rich, _ = instance(entity, rng)
    encoded = io.BytesIO()
    entity_writer(entity)(encoded, rich)
    return rich, encoded.getvalue()


def named(version: int, topic: Any) -> str | UUID:
    """Return what names a topic in a version; kio has None for an id of zeros."""
    return topic.name if version < produce.IDS_FROM else topic.topic_id or UUID(int=0)


def topic_of(version: int, name: str) -> str | UUID:
    return name if version < produce.IDS_FROM else uuid5(UUID(int=1), name)


def field_of(version: int, name: str) -> dict[str, Any]:
    return {"name" if version < produce.IDS_FROM else "topic_id": topic_of(version, name)}


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_mean_what_kio_says(version: int) -> None:
    rng = random.Random(version)
    for _ in range(30):
        rich, encoded = kio_request(version, rng)
        request = produce.parse_request(version, memoryview(encoded))
        assert request.transactional_id == rich.transactional_id
        assert request.acks == rich.acks
        assert datetime.timedelta(milliseconds=request.timeout_ms) == rich.timeout
        assert [t.topic for t in request.topics] == [named(version, t) for t in rich.topic_data]
        for topic, expected in zip(request.topics, rich.topic_data, strict=True):
            assert topic.partitions == [(p.index, p.records) for p in expected.partition_data]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 200, 16_382, 16_383, 20_000])
@pytest.mark.parametrize("name", ["t", "t\u00e9", "n" * 126, "n" * 127, "n" * 200])
def test_small_requests_are_decoded_alike_by_the_short_way(
    version: int, size: int, name: str
) -> None:
    rng = random.Random(size)
    entity = apis.request_type(ApiKey.PRODUCE, version)
    rich, _ = instance(entity, rng)
    topic_type = importlib.import_module(entity.__module__).TopicProduceData
    partition_type = importlib.import_module(entity.__module__).PartitionProduceData
    single = dataclasses.replace(
        rich,
        transactional_id=None,
        topic_data=(
            topic_type(
                **field_of(version, name),
                partition_data=(partition_type(index=7, records=rng.randbytes(size)),),
            ),
        ),
    )
    encoded = io.BytesIO()
    entity_writer(entity)(encoded, single)
    body = memoryview(encoded.getvalue())
    expected = finish(produce.request_steps(version, body, 10))
    assert produce.parse_request(version, body) == expected
    is_named_short = version >= produce.IDS_FROM or len(name.encode()) < 127
    is_short = version < 9 or (127 <= size <= 16_382 and is_named_short)
    assert (produce.parse_single(version, body) is not None) == is_short
    for at in range(min(len(body), 60)):
        for value in (0, 1, 127, 128, 255):
            broken = bytearray(body)
            broken[at] = value
            found = produce.parse_single(version, memoryview(broken))
            if found is not None:
                assert found == finish(produce.request_steps(version, memoryview(broken), 10))


def request_of(version: int, rng: random.Random, topics: dict[str, list[int]]) -> bytes:
    """Encode a request with batches of these sizes, by topic, in no transaction."""
    entity = apis.request_type(ApiKey.PRODUCE, version)
    rich, _ = instance(entity, rng)
    module = importlib.import_module(entity.__module__)
    data = tuple(
        module.TopicProduceData(
            **field_of(version, name),
            partition_data=tuple(
                module.PartitionProduceData(index=index, records=rng.randbytes(size))
                for index, size in enumerate(sizes)
            ),
        )
        for name, sizes in topics.items()
    )
    encoded = io.BytesIO()
    entity_writer(entity)(
        encoded, dataclasses.replace(rich, transactional_id=None, topic_data=data)
    )
    return encoded.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("topics", "is_short"),
    [
        ({"t": [200, 16_382, 16_383, 20_000]}, True),
        ({"t": [300], "t\u00e9": [400] * 3, "n" * 126: [500]}, True),
        ({"n" * 127: [300]}, False),
        ({"t": [300] * 127}, False),
        ({"t": [300, 3_000_000]}, False),
        ({}, True),
    ],
)
def test_few_partitions_mean_the_same_by_the_short_way(
    version: int, topics: dict[str, list[int]], is_short: bool
) -> None:
    """Whatever the bytes are: it says the same as the general way, or leaves them to it."""
    rng = random.Random(version)
    is_short = is_short or (version >= produce.IDS_FROM and "n" * 127 in topics)
    body = memoryview(request_of(version, rng, topics))
    expected = finish(produce.request_steps(version, body, 1_000))
    found = produce.parse_few(version, body, 1_000)
    assert found in (None, expected)
    if version >= produce.FLEXIBLE_FROM or is_short:
        assert (found is not None) == is_short
    items = len(topics) + sum(map(len, topics.values()))
    assert produce.parse_few(version, body, items - 1) is None
    for at in range(min(len(body), 40)):
        for value in (0, 1, 127, 128, 255):
            broken = bytearray(body)
            broken[at] = value
            guess = produce.parse_few(version, memoryview(broken), 1_000)
            if guess is not None:
                assert guess == finish(produce.request_steps(version, memoryview(broken), 1_000))


def test_many_partitions_are_left_to_those_who_take_turns() -> None:
    body = memoryview(request_of(8, random.Random(1), {str(n): [100] * 100 for n in range(5)}))
    assert produce.parse_few(8, body, 10_000) is None


def test_records_are_views_of_the_frame() -> None:
    body = memoryview(
        struct.pack(">hhii", -1, -1, 1000, 1)
        + struct.pack(">h1si", 1, b"t", 1)
        + struct.pack(">ii", 0, 5)
        + b"batch"
    )
    ((_, records),) = produce.parse_request(3, body).topics[0].partitions
    assert isinstance(records, memoryview)
    assert records.obj is body.obj


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_request_is_refused(version: int) -> None:
    rng = random.Random(version)
    _, encoded = kio_request(version, rng)
    while len(encoded) < 60:
        _, encoded = kio_request(version, rng)
    for end in range(min(len(encoded), 400)):
        with pytest.raises(RemoteProtocolError):
            produce.parse_request(version, memoryview(encoded[:end]))


@pytest.mark.parametrize("version", [3, 9])
def test_random_bytes_never_raise_anything_else(version: int) -> None:
    rng = random.Random(version)
    _, encoded = kio_request(version, rng)
    for _ in range(2000):
        broken = bytearray(encoded or b"\x00")
        for _ in range(rng.choice((1, 2, 8))):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            produce.parse_request(version, memoryview(bytes(broken)))
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("count", [1 << 20, 0x7FFF_FFFF, -2])
def test_counts_are_checked_before_looping(count: int) -> None:
    topics = struct.pack(">hhii", -1, 1, 1, count) + bytes(64)
    with pytest.raises(RemoteProtocolError, match="array"):
        produce.parse_request(3, memoryview(topics))
    partitions = struct.pack(">hhii", -1, 1, 1, 1) + struct.pack(">h1si", 1, b"t", count)
    with pytest.raises(RemoteProtocolError, match="array"):
        produce.parse_request(3, memoryview(partitions + bytes(64)))


RESULTS = [
    ("one", [PartitionResult(0, 0, 55, -1, 7)]),
    (
        "two" * 60,
        [
            PartitionResult(3, 6, -1, -1, 9, None, (4, 11)),
            PartitionResult(4, 87, -1, 1_700_000_000_000, 2, "bad batch: " + "x" * 200),
            PartitionResult(5, 87, -1, -1, 2, "two are bad", None, (0, 70_000)),
        ],
    ),
    ("none", []),
]
ENDPOINTS = [NodeEndpoint(4, "broker-4", 9095, None), NodeEndpoint(5, "h" * 130, 1, "rack")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("endpoints", [[], ENDPOINTS])
def test_responses_are_byte_identical_to_kio(version: int, endpoints: list[NodeEndpoint]) -> None:
    entity = apis.response_type(ApiKey.PRODUCE, version)
    expected = io.BytesIO()
    entity_writer(entity)(expected, _rich(entity, version, endpoints))
    results = [(topic_of(version, name), rows) for name, rows in RESULTS]
    assert produce.build_response(version, results, endpoints, 5) == expected.getvalue()


def _rich(entity: Any, version: int, endpoints: list[NodeEndpoint]) -> Any:
    module = importlib.import_module(entity.__module__)

    def partition(result: PartitionResult) -> Any:
        fields: dict[str, Any] = {
            "index": result.partition,
            "error_code": ErrorCode(result.error_code),
            "base_offset": result.base_offset,
        }
        if result.log_append_time_ms >= 0:
            fields["log_append_time"] = datetime.datetime.fromtimestamp(
                result.log_append_time_ms / 1000, datetime.UTC
            )
        if version >= 5:
            fields["log_start_offset"] = result.log_start_offset
        if version >= 8:
            fields["error_message"] = result.error_message
            fields["record_errors"] = tuple(
                module.BatchIndexAndErrorMessage(
                    batch_index=index, batch_index_error_message=result.error_message
                )
                for index in result.record_errors
            )
        if version >= 10 and result.leader:
            leader, epoch = result.leader
            fields["current_leader"] = module.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return module.PartitionProduceResponse(**fields)

    fields: dict[str, Any] = {
        "responses": tuple(
            module.TopicProduceResponse(
                **field_of(version, name),
                partition_responses=tuple(partition(result) for result in results),
            )
            for name, results in RESULTS
        ),
        "throttle_time": datetime.timedelta(milliseconds=5),
    }
    if version >= 10:
        fields["node_endpoints"] = tuple(
            module.NodeEndpoint(node_id=e.node_id, host=e.host, port=e.port, rack=e.rack)
            for e in endpoints
        )
    return entity(**fields)


def test_versions_without_layout_are_our_bug() -> None:
    for version in (2, 14):
        with pytest.raises(LocalProtocolError):
            produce.build_response(version, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["t", "t\u00e9", "n" * 126, "n" * 127, "n" * 249])
def test_a_stored_batch_is_answered_alike_by_the_short_way(version: int, name: str) -> None:
    result = PartitionResult(7, 0, 1 << 40, 1_700_000_000_000, 12)
    topic = topic_of(version, name)
    expected = produce.build_response(version, [(topic, [result])])
    assert produce.stored_response(version, topic, *result[:1], *result[2:5]) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [{}, {"t": 2}, {"t\u00e9": 1, "n" * 130: 140}])
def test_stored_batches_are_answered_alike_by_the_short_way(
    version: int, topics: dict[str, int]
) -> None:
    results = [
        (
            topic_of(version, name),
            [PartitionResult(n, 0, 1 << 40, 1_700_000_000_000, n) for n in range(count)],
        )
        for name, count in topics.items()
    ]
    short = [(name, [(one[0], *one[2:5]) for one in found]) for name, found in results]
    assert produce.all_stored_response(version, short) == produce.build_response(version, results)


@pytest.mark.parametrize("count", [0, 1, 126, 127, 20_000])
def test_a_count_is_read_back_in_both_kinds_of_versions(count: int) -> None:
    assert Reader(memoryview(count_bytes(count, flexible=False))).int32() == count
    assert Reader(memoryview(count_bytes(count, flexible=True))).uvarint() == count + 1


def test_a_topic_is_its_name_in_either_layout_or_its_id() -> None:
    assert topic_bytes("té", flexible=False) == b"\x00\x03t\xc3\xa9"
    assert topic_bytes("té", flexible=True) == b"\x04t\xc3\xa9"
    assert topic_bytes(UUID(int=7), flexible=True) == b"\x00" * 15 + b"\x07"


def test_the_section_is_one_tag_that_says_its_length() -> None:
    tags = endpoint_tags([NodeEndpoint(4, "broker-4", 9095, None), NodeEndpoint(5, "h", 1, "r")])
    reader = Reader(memoryview(tags))
    assert reader.count_tags() == 1
    assert reader.uvarint() == 0
    assert reader.uvarint() == len(tags) - reader.position


def test_nobody_is_a_list_of_none() -> None:
    assert endpoint_tags([]) == b"\x01\x00\x01\x01"
