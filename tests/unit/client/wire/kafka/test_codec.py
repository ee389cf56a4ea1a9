"""The generic codec agrees with kio byte for byte, and refuses what the schema forbids."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
import struct
import uuid

import pytest
from kio.serial import entity_reader, entity_writer

from client.errors import LocalProtocolError, RemoteProtocolError
from client.wire.buffer import STRING_BYTES_MAX, uvarint_bytes
from client.wire.kafka import apis, codec
from client.wire.kafka.apis import ApiKey
from tests.unit.client.wire.kafka.instances import instance

ALL = [
    (key, version)
    for key in ApiKey
    for version in range(apis.schema_versions(key)[0], apis.schema_versions(key)[1] + 1)
]


@pytest.mark.parametrize(("key", "version"), ALL)
def test_responses_are_byte_identical_to_kio(key: ApiKey, version: int) -> None:
    rng = random.Random(f"{key}.{version}")
    entity = apis.response_type(key, version)
    write = entity_writer(entity)
    for _ in range(12):
        rich, plain = instance(entity, rng)
        expected = io.BytesIO()
        write(expected, rich)
        assert codec.encode_body(key, version, plain) == expected.getvalue()


@pytest.mark.parametrize(("key", "version"), ALL)
def test_requests_are_read_back_as_kio_wrote_them(key: ApiKey, version: int) -> None:
    rng = random.Random(f"{key}.{version}")
    entity = apis.request_type(key, version)
    write = entity_writer(entity)
    for _ in range(5):
        rich, _ = instance(entity, rng)
        encoded = io.BytesIO()
        write(encoded, rich)
        assert codec.decode_request(key, version, memoryview(encoded.getvalue())) == rich


@pytest.mark.parametrize(("key", "version"), ALL)
def test_an_error_answer_can_be_read_by_clients(key: ApiKey, version: int) -> None:
    buffers = codec.encode_error(key, version, 7, 42)
    entity = apis.response_type(key, version)
    if buffers is None:
        assert not hasattr(entity, "error_code")
        return
    frame = b"".join(buffers)
    length, correlation_id = struct.unpack_from(">ii", frame)
    assert (length, correlation_id) == (len(frame) - 4, 7)
    start = 8 + (apis.is_flexible(key, version) and key != ApiKey.API_VERSIONS)
    answer, size = entity_reader(entity)(frame[start:], 0)
    assert answer.error_code == 42
    assert start + size == len(frame)


def test_fields_of_other_versions_are_dropped_and_defaults_filled() -> None:
    fields = {"error_code": 0, "node_id": 3, "host": "h", "port": 1, "coordinators": []}
    old = codec.encode_body(ApiKey.FIND_COORDINATOR, 0, fields)
    assert old == struct.pack(">hih", 0, 3, 1) + b"h" + struct.pack(">i", 1)
    new = codec.encode_body(ApiKey.FIND_COORDINATOR, 4, fields)
    assert new == struct.pack(">i", 0) + b"\x01" + b"\x00"


def test_unknown_error_codes_pass() -> None:
    body = codec.encode_body(ApiKey.HEARTBEAT, 1, {"error_code": 31000})
    assert body == struct.pack(">ih", 0, 31000)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(LocalProtocolError, match=r"FindCoordinatorResponse v0.*'host'"):
        codec.encode_body(ApiKey.FIND_COORDINATOR, 0, {"error_code": 0, "node_id": 1, "port": 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": 70000, "node_id": 1, "host": "h", "port": 1},
        {"error_code": 0, "node_id": 1, "host": None, "port": 1},
        {"error_code": 0, "node_id": 1, "host": "x" * 40000, "port": 1},
        {"error_code": 0, "node_id": "one", "host": "h", "port": 1},
        {"error_code": 0, "node_id": 1, "host": 17, "port": 1},
    ],
)
def test_values_that_do_not_fit_are_our_bug(fields: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        codec.encode_body(ApiKey.FIND_COORDINATOR, 0, fields)


def test_a_null_array_where_none_is_allowed_is_our_bug() -> None:
    with pytest.raises(LocalProtocolError, match="groups"):
        codec.encode_body(ApiKey.LIST_GROUPS, 0, {"error_code": 0, "groups": None})


def test_api_versions_is_always_answered_with_header_v0() -> None:
    fields = {"error_code": 0, "api_keys": []}
    head, body = codec.encode_response(ApiKey.API_VERSIONS, 3, 9, fields)
    assert bytes(head) == struct.pack(">ii", 4 + len(body), 9)
    head, body = codec.encode_response(ApiKey.HEARTBEAT, 4, 9, {"error_code": 0})
    assert bytes(head) == struct.pack(">ii", 5 + len(body), 9) + b"\x00"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xf0",
        b"\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x01\x00\x02\xff\xff",
    ],
)
def test_broken_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(ApiKey.METADATA, 1, memoryview(body))


def test_field_reads_durations_as_ms_and_absent_fields_as_default() -> None:
    body = struct.pack(">h", 1) + b"g" + struct.pack(">i", 6000) + struct.pack(">h", 0) * 2
    request = codec.decode_request(ApiKey.JOIN_GROUP, 0, memoryview(body + bytes(4)))
    assert codec.field(request, "session_timeout") == 6000
    assert codec.field(request, "rebalance_timeout", -1) == -1


@pytest.mark.parametrize("ms", [-1, 0, 2**63 - 1, -(2**63)])
def test_durations_beyond_what_kio_reads_are_its_longest(ms: int) -> None:
    body = b"\x00\x01g" + struct.pack(">ihqi", -1, 0, ms, 0)
    request = codec.decode_request(ApiKey.OFFSET_COMMIT, 2, memoryview(body))
    longest = (2**63 - 1) // 1_000
    assert codec.field(request, "retention_time") == max(-longest, min(ms, longest))


def test_unknown_apis_and_versions_have_no_schema() -> None:
    for key, version in ((4000, 0), (ApiKey.METADATA, 99), (ApiKey.PRODUCE, 0)):
        with pytest.raises(LocalProtocolError):
            apis.request_type(key, version)
        with pytest.raises(LocalProtocolError):
            apis.response_type(key, version)


def test_uuids() -> None:
    topic_id = uuid.UUID(int=5)
    fields = {
        "responses": [{"name": "t", "topic_id": topic_id, "error_code": 0, "error_message": None}]
    }
    assert topic_id.bytes in codec.encode_body(ApiKey.DELETE_TOPICS, 6, fields)
    fields["responses"][0]["topic_id"] = None
    assert bytes(16) in codec.encode_body(ApiKey.DELETE_TOPICS, 6, fields)


def test_tags_of_the_future_are_passed_over() -> None:
    """KIP-482: unknown tagged fields are skipped, at every level; known ones are kept."""
    key, version = ApiKey.METADATA, 12
    unknown = b"\x02" + b"\x00\x01x" + b"\x63\x03abc"
    plain = b"\x02" + bytes(16) + b"\x02t" + b"%s" + b"\x01\x00" + b"%s"
    wanted = codec.decode_request(key, version, memoryview(plain % (b"\x00", b"\x00")))
    assert codec.decode_request(key, version, memoryview(plain % (unknown, unknown))) == wanted


def test_known_tags_are_kept_beside_unknown_ones() -> None:
    key, version = ApiKey.FETCH, 12
    entity = apis.request_type(key, version)
    rich, _ = instance(entity, random.Random(3))
    rich = dataclasses.replace(rich, cluster_id="here")
    encoded = io.BytesIO()
    entity_writer(entity)(encoded, rich)
    body = encoded.getvalue()
    tags = b"\x01\x00\x05\x05here"
    assert body.endswith(tags)
    with_more = body[: -len(tags)] + b"\x02" + tags[1:] + b"\x63\x01x"
    assert codec.decode_request(key, version, memoryview(with_more)) == rich


def test_a_tag_longer_than_the_message_is_refused() -> None:
    body = b"\x01\x00\x01\x63\x7fx"
    with pytest.raises(RemoteProtocolError):
        codec.decode_request(ApiKey.METADATA, 12, memoryview(body))


@pytest.mark.parametrize(("key", "version"), ALL)
def test_counts_and_lengths_beyond_the_bytes_are_refused(key: ApiKey, version: int) -> None:
    """kio's native reader would reserve memory for two billion items, and end the process."""
    entity = apis.request_type(key, version)
    rng = random.Random(f"{key}.{version}")
    encoded = io.BytesIO()
    entity_writer(entity)(encoded, instance(entity, rng)[0])
    body = encoded.getvalue()
    huge = b"\xff\xff\xff\xff\x07" if entity.__flexible__ else b"\x7f\xff\xff\xff"
    for at in range(min(len(body), 64)):
        spoilt = memoryview(body[:at] + huge + body[at + len(huge) :])
        with contextlib.suppress(RemoteProtocolError):
            codec.decode_request(key, version, spoilt)


def _requests_of_one_text() -> list[tuple[ApiKey, int, bytes, bytes]]:
    """Return requests of flexible versions, by what stands before and after a text."""
    return [
        (ApiKey.METADATA, 12, b"\x02" + bytes(16), b"\x00" * 4),
        (ApiKey.FIND_COORDINATOR, 4, b"\x00\x02", b"\x00"),
        (ApiKey.DESCRIBE_GROUPS, 5, b"\x02", b"\x00\x00"),
    ]


@pytest.mark.parametrize(("key", "version", "before", "after"), _requests_of_one_text())
def test_a_name_has_kafkas_length_at_most(
    key: ApiKey, version: int, before: bytes, after: bytes
) -> None:
    def request(size: int) -> memoryview:
        return memoryview(before + uvarint_bytes(size + 1) + b"x" * size + after)

    codec.decode_request(key, version, request(STRING_BYTES_MAX))
    with pytest.raises(RemoteProtocolError, match="at most 32767"):
        codec.decode_request(key, version, request(STRING_BYTES_MAX + 1))


def test_bytes_are_as_long_as_they_like() -> None:
    size = 3 * STRING_BYTES_MAX
    body = uvarint_bytes(size + 1) + bytes(size) + b"\x00"
    read = codec.decode_request(ApiKey.SASL_AUTHENTICATE, 2, memoryview(body))
    assert len(read.auth_bytes) == size
