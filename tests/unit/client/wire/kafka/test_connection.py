"""Answers leave in request order, whatever order they are given in; headers of requests."""

from __future__ import annotations

import itertools
import struct

import pytest

from client.errors import RemoteProtocolError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.connection import ServerConnection, read_header
from tests.fakes.intake import pour


def test_answers_leave_in_request_order() -> None:
    for order in itertools.permutations(range(4)):
        connection = ServerConnection(100)
        slots = [connection.open(10, 0, 0.0, 0.0) for _ in range(4)]
        sent: list[bytes] = []
        for index in order:
            if connection.answer(slots[index], [b"%d" % index], 0.0):
                sent += [part for slot in connection.take() for part in slot.answer]
        assert sent == [b"0", b"1", b"2", b"3"]
        assert connection.open_slots == 0
        assert connection.in_flight_bytes == 0


def test_an_empty_answer_only_gives_way() -> None:
    connection = ServerConnection(100)
    first, second = connection.open(1, 0, 0.0, 0.0), connection.open(2, 0, 0.0, 0.0)
    assert not connection.answer(second, [b"second"], 0.0)
    assert connection.take() == []
    assert connection.in_flight_bytes == 3
    assert connection.answer(first, (), 0.0)
    assert [slot.answer for slot in connection.take()] == [(), [b"second"]]


def test_a_slot_is_answered_once() -> None:
    connection = ServerConnection(100)
    slot = connection.open(1, 0, 0.0, 0.0)
    connection.answer(slot, (), 0.0)
    with pytest.raises(AssertionError):
        connection.answer(slot, (), 0.0)


def test_frames_come_out_whole() -> None:
    connection = ServerConnection(100)
    data = struct.pack(">i", 3) + b"abc" + struct.pack(">i", 2) + b"de"
    frames = [bytes(f) for byte in data for f in pour(connection.intake, bytes((byte,)))]
    assert frames == [b"abc", b"de"]
    pour(connection.intake, struct.pack(">i", 50) + b"x")
    assert connection.intake.buffered_bytes == 5


@pytest.mark.parametrize(
    "data", [struct.pack(">i", 101), struct.pack(">i", -1), b"GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_kafka_request_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        pour(ServerConnection(100).intake, data)


def test_both_request_headers() -> None:
    classic = struct.pack(">hhih", ApiKey.METADATA, 1, 5, 2) + b"me" + b"body"
    assert read_header(memoryview(classic)) == (ApiKey.METADATA, 1, 5, "me", b"body")
    # Client id stays classic in the flexible header; an unknown tag is passed over.
    tags = b"\x01\x09\x03abc"
    flexible = struct.pack(">hhih", ApiKey.METADATA, 9, 5, -1) + tags + b"body"
    assert read_header(memoryview(flexible)) == (ApiKey.METADATA, 9, 5, None, b"body")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03\x00\x01\x00\x00",
        struct.pack(">hhih", 3, 1, 5, 200) + b"short",
        struct.pack(">hhih", 3, 1, 5, -2),
        struct.pack(">hhih", 3, 1, 5, 2) + b"\xff\xff",
        struct.pack(">hhih", 3, 9, 5, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_broken_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_header(memoryview(frame))
