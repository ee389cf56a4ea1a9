"""Versions that kio has no classes of, against bytes that kafka-clients 4.4.0 wrote."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.index import api_key_map, schema_name_map

from client.wire.kafka import apis
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.decoder import decode
from client.wire.kafka.encoder import encode
from client.wire.kafka.newer_schemas import REQUESTS, RESPONSES

TOPIC_ID = UUID(bytes=bytes(range(1, 17)))
PARTITION = {
    "partition_index": 3,
    "committed_offset": 50,
    "committed_leader_epoch": 6,
    "committed_metadata": "x",
}
COMMIT = {
    "transactional_id": "t",
    "group_id": "g",
    "producer_id": 9,
    "producer_epoch": 2,
    "generation_id_or_member_epoch": 4,
    "member_id": "m",
    "group_instance_id": None,
    "topics": [{"topic_id": TOPIC_ID, "partitions": [PARTITION]}],
}
SOFTWARE = {"client_software_name": "app", "client_software_version": "1.2"}
DELETED = [
    {"group_id": "g", "error_code": 68, "error_message": "busy"},
    {"group_id": "h", "error_code": 0, "error_message": None},
]
COMMITTED = [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 3, "error_code": 100}]}]

_TOPIC = "020102030405060708090a0b0c0d0e0f100200000003"

WRITTEN_BY_KAFKA: list[tuple[Any, dict[str, Any], str]] = [
    (
        apis.request_type(ApiKey.API_VERSIONS, 5),
        {**SOFTWARE, "cluster_id": "c", "node_id": 7},
        "0461707004312e3202630000000700",
    ),
    (apis.request_type(ApiKey.API_VERSIONS, 5), SOFTWARE, "0461707004312e3200ffffffff00"),
    (
        apis.request_type(ApiKey.TXN_OFFSET_COMMIT, 6),
        COMMIT,
        f"027402670000000000000009000200000004026d00{_TOPIC}0000000000000032000000060278000000",
    ),
    (
        apis.response_type(ApiKey.TXN_OFFSET_COMMIT, 6),
        {"throttle_time": 0, "topics": COMMITTED},
        f"00000000{_TOPIC}0064000000",
    ),
    (
        apis.request_type(ApiKey.DELETE_GROUPS, 3),
        {"groups_names": ["g", "h"]},
        "030267026800",
    ),
    (
        apis.response_type(ApiKey.DELETE_GROUPS, 3),
        {"throttle_time": 0, "results": DELETED},
        "00000000030267004405627573790002680000000000",
    ),
]


@pytest.mark.parametrize(("entity", "fields", "written"), WRITTEN_BY_KAFKA)
def test_kafka_writes_the_same_bytes(entity: Any, fields: dict[str, Any], written: str) -> None:
    body = encode(entity, fields)
    assert body.hex() == written
    assert encode(entity, fields) == body
    read = decode(entity, memoryview(body))
    for name, value in fields.items():
        if not isinstance(value, list) and name != "throttle_time":
            assert getattr(read, name) == value


def test_requests_and_responses_go_together() -> None:
    assert REQUESTS.keys() == RESPONSES.keys()
    for key, version in REQUESTS:
        assert apis.is_flexible(key, version)
        assert apis.schema_versions(key)[1] == version


def test_what_kio_has_by_now_goes_here() -> None:
    for key, version in REQUESTS:
        assert version not in schema_name_map[api_key_map[key]], "delete it from newer_schemas.py"
