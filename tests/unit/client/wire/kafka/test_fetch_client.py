"""A client's Fetch by hand, byte for byte what kio's schemas say; and its other requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import LocalProtocolError, RemoteProtocolError
from client.wire.kafka.apis import ApiKey, request_type
from client.wire.kafka.codec import decode_request, encode_response
from client.wire.kafka.connection import read_header
from client.wire.kafka.encoder import encode
from client.wire.kafka.fetch import PartitionData, build_response, parse_request
from client.wire.kafka.fetch_client import VERSION, decode_fetch, encode_fetch
from client.wire.kafka.requests import (
    decode_response_body,
    encode_request_body,
    request_frame,
    split_response,
)


def answer(*partitions: PartitionData, topics: int = 1, error_code: int = 0) -> memoryview:
    rows = [("t", partitions)] * topics
    buffers, _ = build_response(VERSION, rows, error_code=error_code, throttle_ms=7)
    return memoryview(b"".join(map(bytes, buffers)))


@given(
    topic=st.text(min_size=1, max_size=20),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    epoch=st.integers(-1, 2**31 - 1),
    committed=st.booleans(),
)
def test_a_request_is_what_the_schema_says(
    topic: str, partition: int, offset: int, epoch: int, committed: bool
) -> None:
    body = encode_fetch(
        topic, partition, offset,
        leader_epoch=epoch, wait_ms_max=500, bytes_max=4096, read_committed=committed,
    )  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 4096,
        "isolation_level": int(committed), "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [{
            "partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset,
            "log_start_offset": -1, "partition_max_bytes": 4096,
        }]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    assert body == encode(request_type(ApiKey.FETCH, VERSION), fields)
    asked = parse_request(VERSION, memoryview(body))
    assert asked.topics[0].partitions[0].offset == offset


def test_an_answer() -> None:
    records = b"some record batches"
    data = PartitionData(3, 0, 90, 80, 10, [records], len(records), [(7, 20), (8, 30)])
    found = decode_fetch(answer(data))
    assert bytes(found.records) == records
    assert found.aborted == [(7, 20), (8, 30)]
    assert found[1:4] == (90, 80, 10)
    assert (found.error_code, found.throttle_ms) == (0, 7)


def test_errors_of_the_partition_and_of_the_request() -> None:
    assert decode_fetch(answer(PartitionData(3, 6, -1, -1, -1, [], 0))).error_code == 6
    assert decode_fetch(answer(error_code=71)).error_code == 71


def test_a_throttled_client_gets_no_partition() -> None:
    assert not decode_fetch(answer(topics=0)).records
    assert not decode_fetch(answer()).records


def test_answers_to_another_question() -> None:
    data = PartitionData(3, 0, 90, 80, 10, [], 0)
    for wrong in (answer(data, data), answer(data, topics=2)):
        with pytest.raises(RemoteProtocolError, match="more than the one partition"):
            decode_fetch(wrong)


@given(cut=st.integers(0, 90))
def test_an_answer_that_is_cut_off(cut: int) -> None:
    whole = answer(PartitionData(3, 0, 90, 80, 10, [b"x" * 20], 20, [(7, 20)]))
    assert cut < len(whole)
    with pytest.raises(RemoteProtocolError):
        decode_fetch(whole[:cut])


@pytest.mark.parametrize("version", [0, 4, 9, 12])
def test_other_requests_arrive_and_their_answers_come_back(version: int) -> None:
    fields = {
        "topics": [{"topic_id": None, "name": "t"}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    body = encode_request_body(ApiKey.METADATA, version, fields)
    frame = request_frame(ApiKey.METADATA, version, 77, "me", body)
    header = read_header(memoryview(frame)[4:])
    assert (header.correlation_id, header.client_id) == (77, "me")
    request = decode_request(header.api_key, header.version, header.body)
    assert request.topics[0].name == "t"
    sent = {"brokers": [], "cluster_id": "c", "controller_id": 5, "topics": []}
    buffers = encode_response(ApiKey.METADATA, version, 77, sent)
    reply = memoryview(b"".join(map(bytes, buffers)))[4:]
    correlation_id, answered = split_response(ApiKey.METADATA, version, reply)
    assert correlation_id == 77
    entity = decode_response_body(ApiKey.METADATA, version, answered)
    assert tuple(entity.topics) == ()
    with pytest.raises(RemoteProtocolError):
        decode_response_body(ApiKey.METADATA, version, answered[:3])


def test_a_request_with_a_missing_field_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="is missing"):
        encode_request_body(ApiKey.METADATA, 12, {"topics": None})
