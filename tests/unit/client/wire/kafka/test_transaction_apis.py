"""The APIs of transactions, against kafka-python's schemas and against bytes written by hand.

`test_codec.py` holds every version against kio and feeds it damage; kafka-python's schemas were
written by other people, so an error of kio's would show here.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from kafka.protocol.admin import transactions as admin
from kafka.protocol.metadata import (
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka.protocol.producer import transaction as producer

from client.wire.kafka import apis, codec, newer_schemas
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.encoder import encode
from tests.unit.client.wire.kafka.instances import instance

VERSIONS = {
    ApiKey.INIT_PRODUCER_ID: (0, 6),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.API_VERSIONS: (0, 5),
}

REQUESTS: Mapping[ApiKey, Any] = {
    ApiKey.INIT_PRODUCER_ID: producer.InitProducerIdRequest,
    ApiKey.ADD_PARTITIONS_TO_TXN: producer.AddPartitionsToTxnRequest,
    ApiKey.ADD_OFFSETS_TO_TXN: producer.AddOffsetsToTxnRequest,
    ApiKey.END_TXN: producer.EndTxnRequest,
    ApiKey.WRITE_TXN_MARKERS: producer.WriteTxnMarkersRequest,
    ApiKey.TXN_OFFSET_COMMIT: producer.TxnOffsetCommitRequest,
    ApiKey.DESCRIBE_PRODUCERS: admin.DescribeProducersRequest,
    ApiKey.DESCRIBE_TRANSACTIONS: admin.DescribeTransactionsRequest,
    ApiKey.LIST_TRANSACTIONS: admin.ListTransactionsRequest,
    ApiKey.FIND_COORDINATOR: FindCoordinatorRequest,
}

RESPONSES: Mapping[ApiKey, Any] = {
    ApiKey.INIT_PRODUCER_ID: producer.InitProducerIdResponse,
    ApiKey.ADD_PARTITIONS_TO_TXN: producer.AddPartitionsToTxnResponse,
    ApiKey.ADD_OFFSETS_TO_TXN: producer.AddOffsetsToTxnResponse,
    ApiKey.END_TXN: producer.EndTxnResponse,
    ApiKey.WRITE_TXN_MARKERS: producer.WriteTxnMarkersResponse,
    ApiKey.TXN_OFFSET_COMMIT: producer.TxnOffsetCommitResponse,
    ApiKey.DESCRIBE_PRODUCERS: admin.DescribeProducersResponse,
    ApiKey.DESCRIBE_TRANSACTIONS: admin.DescribeTransactionsResponse,
    ApiKey.LIST_TRANSACTIONS: admin.ListTransactionsResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
    ApiKey.API_VERSIONS: ApiVersionsResponse,
}

CASES = [
    (key, version, is_response)
    for key, (low, high) in VERSIONS.items()
    for version in range(low, high + 1)
    for is_response in (False, True)
    if key in (RESPONSES if is_response else REQUESTS)
    and (key, version) not in newer_schemas.REQUESTS  # kafka-python lacks them, too
]


def compare(theirs: Any, ours: Any) -> None:
    """Assert that kafka-python read what we wrote; its names say the unit of a duration."""
    if isinstance(ours, Mapping):
        for name, value in ours.items():
            other = getattr(theirs, name if hasattr(theirs, name) else f"{name}_ms")
            compare(other, value)
    elif isinstance(ours, list):
        assert len(theirs or ()) == len(ours)
        for one, other in zip(theirs or (), ours, strict=True):
            compare(one, other)
    else:
        assert theirs == ours


def test_the_versions_are_those_that_kafka_speaks() -> None:
    assert {key: apis.schema_versions(key) for key in VERSIONS} == VERSIONS


@pytest.mark.parametrize(("key", "version", "is_response"), CASES)
def test_kafka_python_reads_what_we_write_and_writes_the_same(
    key: ApiKey, version: int, is_response: bool
) -> None:
    rng = random.Random(f"{key}.{version}.{is_response}")
    entity = (apis.response_type if is_response else apis.request_type)(key, version)
    schema = (RESPONSES if is_response else REQUESTS)[key]
    for _ in range(12):
        _, plain = instance(entity, rng)
        if key is ApiKey.API_VERSIONS:
            plain["error_code"] = 0  # kafka-python reads an error in the layout of version 0
        body = encode(entity, plain)
        read = schema.decode(body, version=version)
        compare(read, plain)
        if key is not ApiKey.API_VERSIONS:  # whose tags it writes even with their defaults
            assert bytes(read.encode()) == body


def test_add_partitions_of_a_client_and_of_a_broker() -> None:
    topics = struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 7)
    body = struct.pack(">h2sqh", 2, b"tx", 9, 3) + topics
    request = codec.decode_request(ApiKey.ADD_PARTITIONS_TO_TXN, 0, memoryview(body))
    assert request.v3_and_below_transactional_id == "tx"
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == (9, 3)
    assert [(row.name, row.partitions) for row in request.v3_and_below_topics] == [("t", (0, 7))]
    topics = b"\x02\x02t\x03" + struct.pack(">ii", 0, 7) + b"\0"
    body = b"\x02\x03tx" + struct.pack(">qh?", 9, 3, True) + topics + b"\0\0"
    request = codec.decode_request(ApiKey.ADD_PARTITIONS_TO_TXN, 5, memoryview(body))
    (row,) = request.transactions
    assert (row.transactional_id, row.producer_id, row.producer_epoch) == ("tx", 9, 3)
    assert row.verify_only
    assert row.topics[0].partitions == (0, 7)


def test_end_txn_5_carries_the_next_producer() -> None:
    fields = {"error_code": 0, "producer_id": 11, "producer_epoch": 4}
    assert codec.encode_body(ApiKey.END_TXN, 5, fields) == struct.pack(">ihqhB", 0, 0, 11, 4, 0)
    assert codec.encode_body(ApiKey.END_TXN, 4, fields) == struct.pack(">ihB", 0, 0, 0)
    assert codec.encode_body(ApiKey.END_TXN, 5, {"error_code": 90}) == struct.pack(
        ">ihqhB", 0, 90, -1, -1, 0
    )


def test_markers_of_both_versions() -> None:
    topic = b"\x02\x02t\x02" + struct.pack(">i", 5) + b"\0"
    head = b"\x02" + struct.pack(">qh?", 9, 3, True) + topic + struct.pack(">i", 12)
    for version, tail, found in ((1, b"\0\0", None), (2, b"\x02\0\0", 2)):
        request = codec.decode_request(ApiKey.WRITE_TXN_MARKERS, version, memoryview(head + tail))
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (9, 3, 1)
        assert marker.topics[0].partition_indexes == (5,)
        assert marker.coordinator_epoch == 12
        assert codec.field(marker, "transaction_version") == found


def test_transactions_have_a_coordinator_of_type_1() -> None:
    request = codec.decode_request(
        ApiKey.FIND_COORDINATOR, 4, memoryview(b"\x01" + b"\x02" + b"\x03tx" + b"\0")
    )
    assert (request.key_type, request.coordinator_keys) == (1, ("tx",))


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_published_in_tags(version: int) -> None:
    fields = {
        "error_code": 0,
        "api_keys": [],
        "supported_features": [{"name": "transaction.version", "min_version": 0, "max_version": 2}],
        "finalized_features_epoch": 7,
        "finalized_features": [
            {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}
        ],
    }
    name = b"\x14transaction.version"
    tags = (
        b"\x03"
        + (b"\x00\x1a\x02" + name + struct.pack(">hhB", 0, 2, 0))
        + (b"\x01\x08" + struct.pack(">q", 7))
        + (b"\x02\x1a\x02" + name + struct.pack(">hhB", 2, 2, 0))
    )
    body = codec.encode_body(ApiKey.API_VERSIONS, version, fields)
    assert body == struct.pack(">hBi", 0, 1, 0) + tags
    answer = ApiVersionsResponse.decode(body, version=version)
    assert answer.finalized_features_epoch == 7
    assert [(row.name, row.max_version_level) for row in answer.finalized_features] == [
        ("transaction.version", 2)
    ]
    assert codec.encode_body(ApiKey.API_VERSIONS, 0, fields) == struct.pack(">hi", 0, 0)
