"""Large messages in steps: the same as at once, bounded in items, and many pauses."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from kio.serial import entity_writer

from client.errors import LocalProtocolError, RemoteProtocolError, TooManyItems
from client.wire.kafka import apis, codec, decoder, encoder, fetch, produce
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.requests import encode_request_body
from client.wire.kafka.shapes import shapes_of
from client.wire.steps import STEP_ITEMS, Steps, finish
from tests.unit.client.wire.kafka.instances import instance

ALL = [
    (key, version)
    for key in ApiKey
    for version in range(apis.schema_versions(key)[0], apis.schema_versions(key)[1] + 1)
]
UNLIMITED = 1 << 30


def pauses(steps: Steps[Any]) -> int:
    return sum(1 for _ in steps)


@pytest.mark.parametrize(("key", "version"), ALL)
def test_requests_are_decoded_alike(
    key: ApiKey, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "AT_ONCE_BYTES", -1)
    rng = random.Random(f"{key}.{version}")
    entity = apis.request_type(key, version)
    for _ in range(5):
        rich, _ = instance(entity, rng)
        encoded = io.BytesIO()
        entity_writer(entity)(encoded, rich)
        body = memoryview(encoded.getvalue())
        assert finish(codec.request_steps(key, version, body, UNLIMITED)) == rich
        for end in range(0, len(body), 7):
            with pytest.raises(RemoteProtocolError):
                finish(codec.request_steps(key, version, body[:end], UNLIMITED))


@pytest.mark.parametrize(("key", "version"), ALL)
def test_responses_are_encoded_alike(
    key: ApiKey, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{key}.{version}")
    for _ in range(5):
        _, plain = instance(apis.response_type(key, version), rng)
        expected = codec.encode_response(key, version, 7, plain)
        with monkeypatch.context() as patch:
            patch.setattr(encoder, "STEP_ITEMS", -1)
            assert finish(codec.response_steps(key, version, 7, plain)) == expected


def test_lists_of_structs_are_never_in_tags() -> None:
    """They would be decoded at once."""
    for key, version in ALL:
        entities = [apis.request_type(key, version)]
        while entities:
            for shape in shapes_of(entities.pop()):
                if shape.nested is not None:
                    assert shape.tag is None or not shape.is_array, (key, version, shape.name)
                    entities.append(shape.nested)


def list_offsets(version: int, topics: int, partitions: int) -> memoryview:
    asked = [
        {"partition_index": at, "current_leader_epoch": -1, "timestamp": -1}
        for at in range(partitions)
    ]
    rows = [{"name": f"t{at}", "partitions": asked} for at in range(topics)]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": rows}
    return memoryview(encode_request_body(ApiKey.LIST_OFFSETS, version, fields))


@pytest.mark.parametrize("version", [5, 8])
@pytest.mark.parametrize(("topics", "partitions"), [(1, 5_000), (5_000, 1), (70, 70)])
def test_a_large_request_is_decoded_with_many_pauses(
    version: int, topics: int, partitions: int
) -> None:
    body = list_offsets(version, topics, partitions)
    count = topics + topics * partitions
    steps = codec.request_steps(ApiKey.LIST_OFFSETS, version, body, count)
    assert pauses(steps) >= count // STEP_ITEMS - 1
    with pytest.raises(TooManyItems, match=f"{count - 1} are allowed"):
        finish(codec.request_steps(ApiKey.LIST_OFFSETS, version, body, count - 1))


def test_items_are_refused_before_they_are_decoded() -> None:
    body = list_offsets(8, 1, 5_000)
    with pytest.raises(TooManyItems):
        next(codec.request_steps(ApiKey.LIST_OFFSETS, 8, body, 4_000))


def test_small_requests_are_bounded_too() -> None:
    body = list_offsets(8, 2, 3)
    assert pauses(codec.request_steps(ApiKey.LIST_OFFSETS, 8, body, 8)) == 0
    with pytest.raises(TooManyItems):
        finish(codec.request_steps(ApiKey.LIST_OFFSETS, 8, body, 7))
    with pytest.raises(TooManyItems):
        codec.decode_request(ApiKey.LIST_OFFSETS, 8, body, 7)


def test_a_large_answer_is_encoded_with_many_pauses() -> None:
    row = {"partition_index": 1, "error_code": 0}
    one = {"topics": [{"name": "t", "partitions": [row] * 5_000}]}
    assert pauses(codec.response_steps(ApiKey.OFFSET_COMMIT, 8, 1, one)) == 5_001 // STEP_ITEMS
    small = {"topics": [{"name": "t", "partitions": [row] * 100}]}
    assert pauses(codec.response_steps(ApiKey.OFFSET_COMMIT, 8, 1, small)) == 0
    with pytest.raises(LocalProtocolError, match="partition_index"):
        wrong = {"topics": [{"name": "t", "partitions": [{"error_code": 0}] * 5_000}]}
        finish(codec.response_steps(ApiKey.OFFSET_COMMIT, 8, 1, wrong))


def fetch_body(version: int, partitions: int) -> memoryview:
    asked = [
        {
            "partition": at, "current_leader_epoch": -1, "fetch_offset": 0,
            "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1,
        }
        for at in range(partitions)
    ]  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": "t", "partitions": asked}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    return memoryview(encode_request_body(ApiKey.FETCH, version, fields))


@pytest.mark.parametrize("version", [4, 11, 12])
def test_fetch_is_read_and_answered_with_many_pauses(version: int) -> None:
    body = fetch_body(version, 5_000)
    assert pauses(fetch.request_steps(version, body, 5_001)) == 5_001 // STEP_ITEMS
    with pytest.raises(TooManyItems):
        next(fetch.request_steps(version, body, 5_000))
    found = [fetch.PartitionData(at, 3, -1, -1, -1, (), 0) for at in range(5_000)]
    assert pauses(fetch.response_steps(version, [("t", found)])) == 5_001 // STEP_ITEMS


@pytest.mark.parametrize("version", [3, 11])
def test_produce_is_read_and_answered_with_many_pauses(version: int) -> None:
    rows = [{"index": at, "records": b""} for at in range(5_000)]
    fields = {
        "transactional_id": None, "acks": 1, "timeout": 1,
        "topic_data": [{"name": "t", "partition_data": rows}],
    }  # fmt: skip
    body = memoryview(encode_request_body(ApiKey.PRODUCE, version, fields))
    assert pauses(produce.request_steps(version, body, 5_001)) == 5_001 // STEP_ITEMS
    with pytest.raises(TooManyItems):
        next(produce.request_steps(version, body, 5_000))
    found = [produce.PartitionResult(at, 3) for at in range(5_000)]
    assert pauses(produce.response_steps(version, [("t", found)])) == 5_001 // STEP_ITEMS


def test_unknown_tags_count_too() -> None:
    plain = bytes(list_offsets(8, 1, 1))
    assert plain.endswith(b"\x00")
    tags = b"\x90\x03" + b"".join(
        bytes([number & 0x7F | 0x80, number >> 7, 0]) for number in range(1000, 1400)
    )
    body = memoryview(plain[:-1] + tags)
    assert codec.decode_request(ApiKey.LIST_OFFSETS, 8, body, 402)
    with pytest.raises(TooManyItems):
        codec.decode_request(ApiKey.LIST_OFFSETS, 8, body, 401)
