"""Wire version 3: vectors, round trips of every message, refusal of malformed frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import LocalProtocolError, RemoteProtocolError
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import protobuf, v3
from client.wire.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    StartTlsRequest,
    Status,
    UnknownRequest,
    WriteLacRequest,
    WriteLacResponse,
)
from tests.unit.client.wire.bookkeeper import vectors

KEY = vectors.KEY_EMPTY
HELLO = AddRequest(LedgerId(7), EntryId(0), KEY, vectors.ENTRY_CRC32C)

int64 = st.integers(-(2**63), 2**63 - 1)
blobs = st.binary(max_size=40)
optional = st.none() | int64
flags = st.booleans()
statuses = st.sampled_from(list(Status))


def build(kind, *args, **kwargs):
    """Like `st.builds`, but a field that is not given keeps its default."""
    return st.builds(lambda *a, **k: kind(*a, **k), *args, **kwargs)


requests = st.one_of(
    build(AddRequest, int64, int64, blobs, blobs, flags, flags, flags),
    build(
        ReadRequest,
        int64,
        int64,
        fence=flags,
        master_key=st.none() | blobs,
        high_priority=flags,
        previous_lac=optional,
        timeout_ms=optional,
    ),
    build(ReadRequest, int64, int64, previous_lac=int64, piggyback=st.just(True)),
    build(ReadLacRequest, int64),
    build(WriteLacRequest, int64, int64, blobs, blobs),
    build(ForceLedgerRequest, int64),
    build(BookieInfoRequest, flags, flags),
    build(ListEntriesRequest, int64),
    build(AuthRequest, st.text(max_size=9), blobs),
    st.just(StartTlsRequest()),
)
responses = st.one_of(
    build(AddResponse, statuses, int64, int64),
    build(ReadResponse, statuses, int64, int64, st.none() | blobs, optional, optional),
    build(ReadLacResponse, statuses, int64, st.none() | blobs, st.none() | blobs),
    build(WriteLacResponse, statuses, int64),
    build(ForceLedgerResponse, statuses, int64),
    build(BookieInfoResponse, statuses, optional, optional),
    build(ListEntriesResponse, statuses, int64, st.none() | blobs),
    build(AuthResponse, st.text(max_size=9), blobs),
    build(ErrorResponse, st.just(77), st.just(Status.BAD_REQUEST)),
)


def body(buffers) -> memoryview:
    data = b"".join(buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return memoryview(data)[4:]


def test_vectors() -> None:
    assert b"".join(v3.encode_request(HELLO, 1)) == vectors.V3_ADD
    assert v3.decode_request(memoryview(vectors.V3_ADD)[4:]) == (1, HELLO)
    ok = AddResponse(Status.OK, LedgerId(7), EntryId(0))
    assert b"".join(v3.encode_response(ok, 1)) == vectors.V3_ADD_OK
    assert v3.decode_response(memoryview(vectors.V3_ADD_OK)[4:]) == (1, ok)


@given(requests, st.integers(0, 2**64 - 1))
def test_request_round_trip(request, txn_id: int) -> None:
    frame = body(v3.encode_request(request, txn_id))
    assert frame[0] == v3.FIRST_BYTE
    assert v3.decode_request(frame) == (txn_id, request)


@given(responses, st.integers(0, 2**64 - 1))
def test_response_round_trip(response, txn_id: int) -> None:
    assert v3.decode_response(body(v3.encode_response(response, txn_id))) == (txn_id, response)


def test_entry_in_several_buffers_becomes_one_body() -> None:
    parted = HELLO._replace(entry=vectors.ENTRY_CRC32C[:36], entry_rest=(b"hello",))
    assert b"".join(v3.encode_request(parted, 1)) == vectors.V3_ADD


def test_other_header_version_is_answered() -> None:
    message = protobuf.Request()
    message.header.version, message.header.operation, message.header.txnId = 2, v3.READ_LAC, 9
    expected = (9, UnknownRequest(v3.READ_LAC, Status.BAD_VERSION))
    assert v3.decode_request(memoryview(message.SerializeToString())) == expected


@pytest.mark.parametrize("operation", [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 99])
def test_unknown_operation_or_absent_body_is_answered(operation: int) -> None:
    message = protobuf.Request()
    message.header.version, message.header.operation, message.header.txnId = 3, operation, 5
    expected = (5, UnknownRequest(operation, Status.BAD_REQUEST))
    assert v3.decode_request(memoryview(message.SerializeToString())) == expected


@pytest.mark.parametrize("operation", [1, 2, 5, 6, 7, 8, 10, 11, 12])
@pytest.mark.parametrize(
    ("sent", "seen"),
    [(Status.FENCED, Status.FENCED), (Status.OK, Status.BAD_REQUEST)],
)
def test_answer_without_its_message_is_an_error(operation: int, sent, seen) -> None:
    message = protobuf.Response(status=sent)
    message.header.version, message.header.operation, message.header.txnId = 3, operation, 5
    frame = memoryview(message.SerializeToString())
    assert v3.decode_response(frame) == (5, ErrorResponse(operation, seen))


def test_unknown_status_is_refused() -> None:
    message = protobuf.Response(status=999)
    message.header.version, message.header.operation, message.header.txnId = 3, 2, 5
    with pytest.raises(RemoteProtocolError, match="999"):
        v3.decode_response(memoryview(message.SerializeToString()))


@pytest.mark.parametrize(
    "frame", [b"", b"\x0a", b"\x0a\x02\x08\x03", vectors.V3_ADD[4:40], b"GET / HTTP/1.1"]
)
def test_malformed_frames_are_refused(frame: bytes) -> None:
    for decode in (v3.decode_request, v3.decode_response):
        with pytest.raises(RemoteProtocolError):
            decode(memoryview(frame))


@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (v3.decode_request, v3.decode_response):
        try:
            decode(memoryview(data))
        except RemoteProtocolError:
            continue


def test_batch_read_does_not_exist_in_v3() -> None:
    with pytest.raises(LocalProtocolError):
        v3.encode_request(BatchReadRequest(LedgerId(1), EntryId(0), 1, 1, 1), 1)
    with pytest.raises(LocalProtocolError):
        v3.encode_response(BatchReadResponse(Status.OK, LedgerId(1), EntryId(0), 1), 1)
