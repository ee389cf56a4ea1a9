"""The short cut for ordinary v3 adds: it means what the long way means, or it is not taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import RemoteProtocolError
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import protobuf, v3
from client.wire.bookkeeper.connection import Call, decode_call
from client.wire.bookkeeper.messages import AddRequest, AddResponse, Status
from client.wire.bookkeeper.v3 import decode_plain_add

KEY = bytes(range(20))

numbers = st.integers(0, 300) | st.integers(0, 2**56 - 1)
keys = st.binary(min_size=20, max_size=20)
entries = st.binary(max_size=300)


def frame_of(request: AddRequest, txn_id: int) -> bytes:
    (framed,) = v3.encode_request(request, txn_id)
    return bytes(framed)[4:]


def add(ledger_id: int, entry_id: int, key: bytes = KEY, entry: bytes = b"entry") -> AddRequest:
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, entry)


def test_the_bytes_of_a_java_writer() -> None:
    frame = bytes.fromhex(
        "0a06 0803 1002 182a"  # version 3, add, transaction 42
        "aa06 22 08ac02 1005 1a14" + KEY.hex() + "2205 656e747279"  # ledger 300, entry 5
    )
    answer = bytes.fromhex("00000014 0a06 0803 1002 182a 1000 aa06 07 0800 10ac02 1805")
    assert decode_plain_add(memoryview(frame)) == (42, add(300, 5), answer)


@given(numbers, numbers, numbers, keys, entries)
def test_it_means_what_the_long_way_means(
    txn_id: int, ledger_id: int, entry_id: int, key: bytes, entry: bytes
) -> None:
    request = add(ledger_id, entry_id, key, entry)
    frame = memoryview(frame_of(request, txn_id))
    (answer,) = v3.encode_response(
        AddResponse(Status.OK, request.ledger_id, request.entry_id), txn_id
    )
    assert decode_plain_add(frame) == (txn_id, request, answer)
    assert v3.decode_request(frame) == (txn_id, request)
    assert decode_call(frame) == Call(request, None, txn_id, bytes(answer))


@given(numbers, st.sampled_from([0, 1, 127, 128, 300]), st.data())
def test_damage_takes_the_long_way_or_means_the_same(
    number: int, size: int, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(add(number, number, entry=bytes(size)), number))
    at = data.draw(st.integers(0, min(len(frame), 60) - 1))
    frame[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame))) :]
    plain = decode_plain_add(memoryview(frame))
    try:
        long_way = v3.decode_request(memoryview(frame))
    except RemoteProtocolError:
        long_way = None
    if plain is not None:
        assert plain[:2] == long_way


@pytest.mark.parametrize(
    "request_",
    [
        add(-1, 0),
        add(0, -1),
        add(2**56, 0),
        add(7, 5, key=b"short"),
        add(7, 5)._replace(recovery=True),
        add(7, 5)._replace(high_priority=True),
        add(7, 5)._replace(deferred_sync=True),
    ],
    ids=["ledger", "entry", "large", "key", "recovery", "priority", "deferred"],
)
def test_what_is_not_ordinary_takes_the_long_way(request_: AddRequest) -> None:
    frame = memoryview(frame_of(request_, 42))
    assert decode_plain_add(frame) is None
    assert decode_call(frame) == Call(request_, None, 42, None)


def test_fields_in_another_order_take_the_long_way() -> None:
    whole = protobuf.Request()
    whole.ParseFromString(frame_of(add(7, 5), 42))
    body, header = protobuf.Request(), protobuf.Request()
    body.addRequest.CopyFrom(whole.addRequest)
    header.header.CopyFrom(whole.header)
    turned = body.SerializePartialToString() + header.SerializePartialToString()
    assert decode_plain_add(memoryview(turned)) is None
    with_context = protobuf.Request()
    with_context.CopyFrom(whole)
    context = with_context.requestContext.add()
    context.key, context.value = "trace", "1"
    frame = memoryview(with_context.SerializeToString())
    assert decode_plain_add(frame) is None
    assert decode_call(frame).request == add(7, 5)
