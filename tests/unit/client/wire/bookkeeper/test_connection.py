"""Matching answers to requests, and telling v2 from v3 on one port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import LocalProtocolError, RemoteProtocolError
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.connection import (
    ClientConnection,
    encode_answer,
)
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Status,
)
from tests.fakes.intake import ServerConnection, serve
from tests.unit.client.wire.bookkeeper import vectors

LEDGER = LedgerId(7)
HELLO = AddRequest(LEDGER, EntryId(0), vectors.KEY_EMPTY, vectors.ENTRY_CRC32C)


class Waiter:
    """A callback with a name, to see who was answered."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, response) -> None:
        raise AssertionError("the connection never calls back by itself")


def test_answers_match_by_content_in_any_order() -> None:
    client = ClientConnection(2)
    first, second = Waiter("first"), Waiter("second")
    client.request(ReadRequest(LEDGER, EntryId(1)), first)
    client.request(ReadRequest(LEDGER, EntryId(2)), second)
    answers = [ReadResponse(Status.NO_ENTRY, LEDGER, EntryId(n)) for n in (2, 1)]
    data = b"".join(b"".join(v2.encode_response(answer)) for answer in answers)
    assert client.receive_data(data) == [(second, answers[0]), (first, answers[1])]
    assert client.outstanding_count == 0


def test_equal_v2_requests_are_answered_oldest_first() -> None:
    client = ClientConnection(2)
    waiters = [Waiter("a"), Waiter("b"), Waiter("c")]
    keys = [client.request(ReadRequest(LEDGER, LAST_ENTRY), waiter).key for waiter in waiters]
    assert client.forget(keys[1], waiters[1])
    assert not client.forget(keys[1], waiters[1])
    answer = ReadResponse(Status.NO_LEDGER, LEDGER, LAST_ENTRY)
    data = b"".join(v2.encode_response(answer))
    assert client.receive_data(data * 2) == [(waiters[0], answer), (waiters[2], answer)]
    assert not client.forget(keys[0], waiters[0])


def test_v3_answers_match_by_transaction_id() -> None:
    client = ClientConnection(3)
    first, second = Waiter("first"), Waiter("second")
    client.request(ReadLacRequest(LEDGER), first)
    client.request(ReadLacRequest(LEDGER), second)
    answer = ReadLacResponse(Status.NO_ENTRY, LEDGER)
    data = b"".join(v3.encode_response(answer, 1)) + b"".join(v3.encode_response(answer, 0))
    assert client.receive_data(data) == [(second, answer), (first, answer)]


@pytest.mark.parametrize("version", [2, 3])
def test_straggler_of_a_forgotten_request_is_dropped(version) -> None:
    client = ClientConnection(version)
    waiter = Waiter("late")
    sent = client.request(HELLO, waiter)
    assert client.forget(sent.key, waiter)
    [call] = serve(ServerConnection(), b"".join(sent.buffers))
    answer = encode_answer(call, AddResponse(Status.OK, LEDGER, EntryId(0)))
    assert client.receive_data(b"".join(answer)) == []
    assert client.outstanding_count == 0


def test_close_returns_everybody_who_waits() -> None:
    client = ClientConnection(2)
    waiters = [Waiter(str(n)) for n in range(3)]
    for n, waiter in enumerate(waiters):
        client.request(ReadRequest(LEDGER, EntryId(n)), waiter)
    assert client.close() == waiters
    assert client.outstanding_count == 0
    assert client.close() == []


def test_a_request_the_version_lacks_leaves_nothing_behind() -> None:
    client = ClientConnection(2)
    with pytest.raises(LocalProtocolError):
        client.request(ReadLacRequest(LEDGER), Waiter("x"))
    assert client.outstanding_count == 0


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (HELLO, AddResponse(Status.FENCED, LEDGER, EntryId(0))),
        (ReadRequest(LEDGER, EntryId(4)), ReadResponse(Status.OK, LEDGER, EntryId(4), b"e")),
        (
            BatchReadRequest(LEDGER, EntryId(0), 11, 3, 100),
            BatchReadResponse(Status.OK, LEDGER, EntryId(0), 11, (b"e", b"f")),
        ),
        (AuthRequest("p", b""), AuthResponse("AuthDisabledPlugin", b"")),
    ],
)
def test_whole_trip_over_v2(request_, response) -> None:
    client, server, waiter = ClientConnection(2), ServerConnection(), Waiter("w")
    [call] = serve(server, b"".join(client.request(request_, waiter).buffers))
    assert call.request == request_
    assert client.receive_data(b"".join(encode_answer(call, response))) == [(waiter, response)]


def test_versions_may_mix_on_one_server_connection() -> None:
    server = ServerConnection()
    calls = serve(server, vectors.V2_ADD + vectors.V3_ADD + vectors.V2_FENCING_READ_LAST)
    assert [(call.v2_version, call.txn_id) for call in calls] == [(2, 0), (None, 1), (2, 0)]
    ok = AddResponse(Status.OK, LEDGER, EntryId(0))
    assert b"".join(encode_answer(calls[0], ok)) == vectors.V2_ADD_OK
    assert b"".join(encode_answer(calls[1], ok)) == vectors.V3_ADD_OK


@given(st.lists(st.sampled_from([vectors.V2_ADD, vectors.V3_ADD]), max_size=4), st.data())
def test_whole_and_split_feeding_agree(frames: list[bytes], data) -> None:
    stream = b"".join(frames)
    cut = data.draw(st.integers(0, len(stream)))
    whole = serve(ServerConnection(), stream)
    split = ServerConnection()
    assert serve(split, stream[:cut]) + serve(split, stream[cut:]) == whole
    byte_wise = ServerConnection()
    pieces = [serve(byte_wise, stream[n : n + 1]) for n in range(len(stream))]
    assert [call for piece in pieces for call in piece] == whole


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(4),  # an empty frame
        b"\x00\x00\x00\x05GET /",
        b"\x00\x00\x00\x03\x0a\xff\xff",
        b"\x7f\xff\xff\xff",
    ],
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        serve(ServerConnection(), data)


def test_frame_limit_applies_to_both_sides() -> None:
    with pytest.raises(RemoteProtocolError):
        serve(ServerConnection(frame_bytes_max=10), vectors.V2_ADD)
    with pytest.raises(RemoteProtocolError):
        ClientConnection(frame_bytes_max=10).receive_data(vectors.V2_ADD)


def test_acknowledgements_at_a_glance_complete_what_frames_would() -> None:
    glance, frames = ClientConnection(2), ClientConnection(2)
    waiters = {entry_id: [Waiter(f"{entry_id}.{n}") for n in range(2)] for entry_id in (0, 1)}
    for client in (glance, frames):
        for entry_id in (0, 1, 1):
            add = HELLO._replace(entry_id=EntryId(entry_id))
            client.request(add, waiters[entry_id][entry_id])
    answers = b"".join(v2.encode_added(LEDGER, EntryId(entry_id)) for entry_id in (1, 0, 5, 1))
    found = glance.receive_added(memoryview(answers))
    assert found == frames.receive_data(answers)
    assert len(found) == 3
    assert glance.outstanding_count == frames.outstanding_count == 0
    assert ClientConnection(3).receive_added(memoryview(answers)) is None, "it has transaction ids"
