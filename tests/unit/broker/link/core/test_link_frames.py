"""The link's frames, there and back, and what is refused."""

from __future__ import annotations

import struct

import pytest

from broker.link.core.link_frames import (
    HELLO_KIND,
    Hello,
    answer_frame,
    decode_hello,
    encode_hello,
    read_count,
    refusal_frame,
    request_frame,
    split_answer,
    split_request,
)
from client.errors import RemoteProtocolError
from client.ids import BrokerId
from client.wire.buffer import Reader
from client.wire.kafka.apis import LINK_API_KEY
from client.wire.kafka.connection import read_header

HELLO = Hello("cluster", BrokerId(1), "run a", BrokerId(2), "läuft b")


def test_a_request_has_kafkas_classic_header() -> None:
    frame = request_frame(7, 3, b"body")
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header = read_header(memoryview(frame)[4:])
    assert (header.api_key, header.version, header.correlation_id) == (LINK_API_KEY, 1, 3)
    assert header.client_id is None
    kind, rest = split_request(header.body)
    assert (kind, bytes(rest)) == (7, b"body")


def test_a_hello_there_and_back() -> None:
    assert decode_hello(memoryview(encode_hello(HELLO))) == HELLO
    kind, rest = split_request(read_header(memoryview(request_frame(HELLO_KIND, 0, b""))[4:]).body)
    assert (kind, len(rest)) == (HELLO_KIND, 0)


def test_answers_and_refusals() -> None:
    answer = split_answer(memoryview(b"".join(answer_frame(9, b"yes")))[4:])
    assert (answer.correlation_id, bytes(answer.body), answer.refusal) == (9, b"yes", None)
    refusal = split_answer(memoryview(b"".join(refusal_frame(9, "no " * 1_000)))[4:])
    assert refusal.correlation_id == 9
    assert refusal.refusal is not None
    assert len(refusal.refusal) == 1_000


@pytest.mark.parametrize("size", range(len(encode_hello(HELLO))))
def test_a_hello_that_is_cut(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_hello(memoryview(encode_hello(HELLO)[:size]))


def test_what_makes_no_sense() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_hello(memoryview(encode_hello(HELLO) + b"x"))
    with pytest.raises(RemoteProtocolError):
        decode_hello(memoryview(encode_hello(HELLO).replace(b"cluster", b"\xff" * 7)))
    with pytest.raises(RemoteProtocolError):
        split_request(memoryview(b""))
    with pytest.raises(RemoteProtocolError):
        split_answer(memoryview(struct.pack(">ib", 1, 9)))
    for count in (-1, 3, 1 << 30):
        with pytest.raises(RemoteProtocolError):
            read_count(Reader(memoryview(struct.pack(">i", count) + bytes(8))), 4)
    with pytest.raises(RemoteProtocolError):
        read_count(Reader(memoryview(struct.pack(">i", 10_001) + bytes(20_000))), 1)
