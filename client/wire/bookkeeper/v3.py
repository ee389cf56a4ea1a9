"""BookKeeper wire version 3: protobuf envelopes matched by transaction id.

A frame holds one `Request` or `Response` of `protobuf.py`. The header comes first on the wire, so a
v3 frame begins with 0x0A. Requests and responses are here in both directions, between protobuf
fields and the values of `messages.py`. Outer and inner status of a response are always equal: Java
clients look at the outer one first.

The frame of an ordinary add is read and answered without protobuf objects (`decode_plain_add`):

    frame   0A n {08 03 10 02 18 txn} AA06 n {08 ledger 10 entry 1A 14 master key 20 22 n body}
    answer  0A n {08 03 10 02 18 txn} 10 00 AA06 n {08 00 10 ledger 18 entry}

Nearly all that Java writers send looks like this, byte for byte: fields in the order of their
numbers, a key of 20 bytes, no flags and no priority. The answer repeats the request's header, and
its ids as they were written. Whatever looks different is decoded by `decode_request`, which means
the same by it.

Sources: Apache BookKeeper `BookkeeperProtocol.proto`, `PacketProcessorBaseV3`; protobuf's encoding
of messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from client.errors import LocalProtocolError, RemoteProtocolError
from client.fast_tuple import new_tuple
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.messages import (
    MASTER_KEY_BYTES,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    Buffer,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
    UnknownRequest,
    WriteLacRequest,
    WriteLacResponse,
)

VERSION: Final = 3
FIRST_BYTE: Final = 0x0A
"""Tag of the header, field 1 with a length: what every v3 frame begins with."""

READ_ENTRY: Final = 1
ADD_ENTRY: Final = 2
AUTH: Final = 5
WRITE_LAC: Final = 6
READ_LAC: Final = 7
GET_BOOKIE_INFO: Final = 8
START_TLS: Final = 9
FORCE_LEDGER: Final = 10
GET_LIST_OF_ENTRIES: Final = 11

_FLAG_FENCE_LEDGER: Final = 1
_FLAG_ENTRY_PIGGYBACK: Final = 2
_FLAG_RECOVERY_ADD: Final = 1
_WRITE_FLAG_DEFERRED_SYNC: Final = 1
_INFO_TOTAL_CAPACITY: Final = 1
_INFO_FREE_SPACE: Final = 2

_PRIORITY_HIGH: Final = 100
"""What Java clients send for recovery writes; any priority above 0 counts as high."""

_NUMBER: Final = rb"([\x80-\xff]{0,7}[\x00-\x7f])"
"""A varint of 56 bits at most, which no size and no counter exceeds."""
_PLAIN_ADD: Final = re.compile(
    rb"(\x0a(.)\x08\x03\x10\x02\x18%(number)b)\xaa\x06%(number)b"
    rb"\x08%(number)b\x10%(number)b\x1a\x%(key_bytes)02x(.{%(key_bytes)d})\x22%(number)b"
    % {b"number": _NUMBER, b"key_bytes": MASTER_KEY_BYTES},
    re.DOTALL,
)
_ADD_BYTES: Final = 4
"""Which group of the pattern: behind it the `AddRequest` begins."""
_FIELDS_AT: Final = 2
"""Where a header's fields begin: behind its tag and its length."""
_SIZES_MAX: Final = 4096


def frame_of(message: Any) -> list[Buffer]:
    """Return a protobuf message as a frame."""
    body: bytes = message.SerializeToString()
    return [len(body).to_bytes(4, "big") + body]


def parse(message_class: Any, frame: memoryview) -> Any:
    """Parse one frame without its length. Raises RemoteProtocolError."""
    message = message_class()
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        raise RemoteProtocolError("v3 frame is not a protobuf message") from error
    if not message.IsInitialized():
        raise RemoteProtocolError("v3 frame lacks a required field")
    return message


def encode_request(request: Request, txn_id: int) -> list[Buffer]:
    """Return one frame as buffers. Raises LocalProtocolError for what version 3 cannot carry."""
    message = protobuf.Request()
    message.header.version = VERSION
    message.header.txnId = txn_id
    fill = _REQUEST_ENCODERS.get(type(request))
    if fill is None:
        raise LocalProtocolError(f"v3 cannot carry {type(request).__name__}")
    fill(message, request)
    return frame_of(message)


def _encode_add(message: Any, request: AddRequest) -> None:
    message.header.operation = ADD_ENTRY
    if request.high_priority:
        message.header.priority = _PRIORITY_HIGH
    add = message.addRequest
    add.ledgerId = request.ledger_id
    add.entryId = request.entry_id
    add.masterKey = request.master_key
    add.body = b"".join((request.entry, *request.entry_rest))
    if request.recovery:
        add.flag = _FLAG_RECOVERY_ADD
    if request.deferred_sync:
        add.writeFlags = _WRITE_FLAG_DEFERRED_SYNC


def _encode_read(message: Any, request: ReadRequest) -> None:
    message.header.operation = READ_ENTRY
    if request.high_priority:
        message.header.priority = _PRIORITY_HIGH
    read = message.readRequest
    read.ledgerId = request.ledger_id
    read.entryId = request.entry_id
    if request.fence:
        read.flag = _FLAG_FENCE_LEDGER
    elif request.piggyback:
        read.flag = _FLAG_ENTRY_PIGGYBACK
    if request.master_key is not None:
        read.masterKey = request.master_key
    if request.previous_lac is not None:
        read.previousLAC = request.previous_lac
    if request.timeout_ms is not None:
        read.timeOut = request.timeout_ms


def _encode_read_lac(message: Any, request: ReadLacRequest) -> None:
    message.header.operation = READ_LAC
    message.readLacRequest.ledgerId = request.ledger_id


def _encode_write_lac(message: Any, request: WriteLacRequest) -> None:
    message.header.operation = WRITE_LAC
    write = message.writeLacRequest
    write.ledgerId = request.ledger_id
    write.lac = request.lac
    write.masterKey = request.master_key
    write.body = bytes(request.packet)


def _encode_force(message: Any, request: ForceLedgerRequest) -> None:
    message.header.operation = FORCE_LEDGER
    message.forceLedgerRequest.ledgerId = request.ledger_id


def _encode_bookie_info(message: Any, request: BookieInfoRequest) -> None:
    message.header.operation = GET_BOOKIE_INFO
    message.getBookieInfoRequest.requested = (
        _INFO_TOTAL_CAPACITY if request.total_capacity else 0
    ) | (_INFO_FREE_SPACE if request.free_space else 0)


def _encode_list_entries(message: Any, request: ListEntriesRequest) -> None:
    message.header.operation = GET_LIST_OF_ENTRIES
    message.getListOfEntriesOfLedgerRequest.ledgerId = request.ledger_id


def _encode_auth(message: Any, request: AuthRequest) -> None:
    message.header.operation = AUTH
    message.authRequest.authPluginName = request.plugin
    message.authRequest.payload = request.payload


def _encode_start_tls(message: Any, _request: StartTlsRequest) -> None:
    message.header.operation = START_TLS
    message.startTLSRequest.SetInParent()


_REQUEST_ENCODERS: Final[dict[type, Callable[[Any, Any], None]]] = {
    AddRequest: _encode_add,
    ReadRequest: _encode_read,
    ReadLacRequest: _encode_read_lac,
    WriteLacRequest: _encode_write_lac,
    ForceLedgerRequest: _encode_force,
    BookieInfoRequest: _encode_bookie_info,
    ListEntriesRequest: _encode_list_entries,
    AuthRequest: _encode_auth,
    StartTlsRequest: _encode_start_tls,
}


def decode_request(frame: memoryview) -> tuple[int, Request]:
    """Return (transaction id, request) of one frame without its length.

    Another header version, an unknown operation and an absent body become `UnknownRequest`
    with the status to answer. Raises RemoteProtocolError when the bytes are no `Request`.
    """
    message = parse(protobuf.Request, frame)
    header = message.header
    if header.version != VERSION:
        return header.txnId, UnknownRequest(header.operation, Status.BAD_VERSION)
    decode = _REQUEST_DECODERS.get(header.operation)
    request = decode(message) if decode else None
    if request is None:
        return header.txnId, UnknownRequest(header.operation, Status.BAD_REQUEST)
    return header.txnId, request


def _decode_add(message: Any) -> Request | None:
    if not message.HasField("addRequest"):
        return None
    add = message.addRequest
    return AddRequest(
        add.ledgerId,
        add.entryId,
        add.masterKey,
        add.body,
        add.flag == _FLAG_RECOVERY_ADD,
        message.header.priority > 0,
        bool(add.writeFlags & _WRITE_FLAG_DEFERRED_SYNC),
    )


def _decode_read(message: Any) -> Request | None:
    if not message.HasField("readRequest"):
        return None
    read = message.readRequest
    return ReadRequest(
        read.ledgerId,
        read.entryId,
        fence=read.flag == _FLAG_FENCE_LEDGER,
        master_key=read.masterKey if read.HasField("masterKey") else None,
        high_priority=message.header.priority > 0,
        previous_lac=read.previousLAC if read.HasField("previousLAC") else None,
        timeout_ms=read.timeOut if read.HasField("timeOut") else None,
        piggyback=read.flag == _FLAG_ENTRY_PIGGYBACK,
    )


def _decode_read_lac(message: Any) -> Request | None:
    if not message.HasField("readLacRequest"):
        return None
    return ReadLacRequest(message.readLacRequest.ledgerId)


def _decode_write_lac(message: Any) -> Request | None:
    if not message.HasField("writeLacRequest"):
        return None
    write = message.writeLacRequest
    return WriteLacRequest(write.ledgerId, write.lac, write.masterKey, write.body)


def _decode_force(message: Any) -> Request | None:
    if not message.HasField("forceLedgerRequest"):
        return None
    return ForceLedgerRequest(message.forceLedgerRequest.ledgerId)


def _decode_bookie_info(message: Any) -> Request | None:
    if not message.HasField("getBookieInfoRequest"):
        return None
    requested = message.getBookieInfoRequest.requested
    return BookieInfoRequest(
        bool(requested & _INFO_TOTAL_CAPACITY), bool(requested & _INFO_FREE_SPACE)
    )


def _decode_list_entries(message: Any) -> Request | None:
    if not message.HasField("getListOfEntriesOfLedgerRequest"):
        return None
    return ListEntriesRequest(message.getListOfEntriesOfLedgerRequest.ledgerId)


def _decode_auth(message: Any) -> Request | None:
    if not message.HasField("authRequest"):
        return None
    return AuthRequest(message.authRequest.authPluginName, message.authRequest.payload)


def _decode_start_tls(_message: Any) -> Request | None:
    return StartTlsRequest()


_REQUEST_DECODERS: Final[dict[int, Callable[[Any], Request | None]]] = {
    READ_ENTRY: _decode_read,
    ADD_ENTRY: _decode_add,
    AUTH: _decode_auth,
    WRITE_LAC: _decode_write_lac,
    READ_LAC: _decode_read_lac,
    GET_BOOKIE_INFO: _decode_bookie_info,
    START_TLS: _decode_start_tls,
    FORCE_LEDGER: _decode_force,
    GET_LIST_OF_ENTRIES: _decode_list_entries,
}


def encode_response(response: Response, txn_id: int) -> list[Buffer]:
    """Return one answer frame as buffers; `txn_id` repeats the request's.

    Raises LocalProtocolError for a batch read, which version 3 lacks.
    """
    message = protobuf.Response()
    message.header.version = VERSION
    message.header.txnId = txn_id
    fill = _RESPONSE_ENCODERS.get(type(response))
    if fill is None:
        raise LocalProtocolError(f"v3 cannot carry {type(response).__name__}")
    fill(message, response)
    return frame_of(message)


def _answer_ledger(message: Any, inner: Any, operation: int, response: Any) -> None:
    """Fill what all answers about a ledger share."""
    message.header.operation = operation
    message.status = inner.status = response.status
    inner.ledgerId = response.ledger_id


def _answer_add(message: Any, response: AddResponse) -> None:
    _answer_ledger(message, message.addResponse, ADD_ENTRY, response)
    message.addResponse.entryId = response.entry_id


def _answer_read(message: Any, response: ReadResponse) -> None:
    read = message.readResponse
    _answer_ledger(message, read, READ_ENTRY, response)
    read.entryId = response.entry_id
    if response.entry is not None:
        read.body = bytes(response.entry)
    if response.max_lac is not None:
        read.maxLAC = response.max_lac
    if response.lac_update_ms is not None:
        read.lacUpdateTimestamp = response.lac_update_ms


def _answer_read_lac(message: Any, response: ReadLacResponse) -> None:
    _answer_ledger(message, message.readLacResponse, READ_LAC, response)
    if response.lac_packet is not None:
        message.readLacResponse.lacBody = bytes(response.lac_packet)
    if response.last_entry is not None:
        message.readLacResponse.lastEntryBody = bytes(response.last_entry)


def _answer_write_lac(message: Any, response: WriteLacResponse) -> None:
    _answer_ledger(message, message.writeLacResponse, WRITE_LAC, response)


def _answer_force(message: Any, response: ForceLedgerResponse) -> None:
    _answer_ledger(message, message.forceLedgerResponse, FORCE_LEDGER, response)


def _answer_bookie_info(message: Any, response: BookieInfoResponse) -> None:
    message.header.operation = GET_BOOKIE_INFO
    info = message.getBookieInfoResponse
    message.status = info.status = response.status
    if response.total_capacity is not None:
        info.totalDiskCapacity = response.total_capacity
    if response.free_space is not None:
        info.freeDiskSpace = response.free_space


def _answer_list_entries(message: Any, response: ListEntriesResponse) -> None:
    entries = message.getListOfEntriesOfLedgerResponse
    _answer_ledger(message, entries, GET_LIST_OF_ENTRIES, response)
    if response.availability is not None:
        entries.availabilityOfEntriesOfLedger = response.availability


def _answer_auth(message: Any, response: AuthResponse) -> None:
    message.header.operation = AUTH
    message.status = Status.OK
    message.authResponse.authPluginName = response.plugin
    message.authResponse.payload = response.payload


def _answer_start_tls(message: Any, response: StartTlsResponse) -> None:
    message.header.operation = START_TLS
    message.status = response.status
    message.startTLSResponse.SetInParent()


def _answer_error(message: Any, response: ErrorResponse) -> None:
    message.header.operation = response.operation
    message.status = response.status


_RESPONSE_ENCODERS: Final[dict[type, Callable[[Any, Any], None]]] = {
    AddResponse: _answer_add,
    ReadResponse: _answer_read,
    ReadLacResponse: _answer_read_lac,
    WriteLacResponse: _answer_write_lac,
    ForceLedgerResponse: _answer_force,
    BookieInfoResponse: _answer_bookie_info,
    ListEntriesResponse: _answer_list_entries,
    AuthResponse: _answer_auth,
    StartTlsResponse: _answer_start_tls,
    ErrorResponse: _answer_error,
}


def decode_response(frame: memoryview) -> tuple[int, Response]:
    """Return (transaction id, response) of one frame without its length.

    A response without its inner message becomes `ErrorResponse`, whatever the status says.
    Raises RemoteProtocolError for bytes that are no `Response` or an unknown status.
    """
    message = parse(protobuf.Response, frame)
    try:
        status = Status(message.status)
    except ValueError as error:
        raise RemoteProtocolError(f"v3 status {message.status} is unknown") from error
    decode = _RESPONSE_DECODERS.get(message.header.operation)
    response = decode(message, status) if decode else None
    if response is None:
        # An OK without a body would be a lie; to the caller it is a refusal like any other.
        refusal = Status.BAD_REQUEST if status is Status.OK else status
        response = ErrorResponse(message.header.operation, refusal)
    return message.header.txnId, response


def _read_add(message: Any, status: Status) -> Response | None:
    if not message.HasField("addResponse"):
        return None
    return AddResponse(status, message.addResponse.ledgerId, message.addResponse.entryId)


def _read_read(message: Any, status: Status) -> Response | None:
    if not message.HasField("readResponse"):
        return None
    read = message.readResponse
    return ReadResponse(
        status,
        LedgerId(read.ledgerId),
        EntryId(read.entryId),
        read.body if read.HasField("body") else None,
        EntryId(read.maxLAC) if read.HasField("maxLAC") else None,
        read.lacUpdateTimestamp if read.HasField("lacUpdateTimestamp") else None,
    )


def _read_read_lac(message: Any, status: Status) -> Response | None:
    if not message.HasField("readLacResponse"):
        return None
    read = message.readLacResponse
    return ReadLacResponse(
        status,
        LedgerId(read.ledgerId),
        read.lacBody if read.HasField("lacBody") else None,
        read.lastEntryBody if read.HasField("lastEntryBody") else None,
    )


def _read_write_lac(message: Any, status: Status) -> Response | None:
    if not message.HasField("writeLacResponse"):
        return None
    return WriteLacResponse(status, message.writeLacResponse.ledgerId)


def _read_force(message: Any, status: Status) -> Response | None:
    if not message.HasField("forceLedgerResponse"):
        return None
    return ForceLedgerResponse(status, message.forceLedgerResponse.ledgerId)


def _read_bookie_info(message: Any, status: Status) -> Response | None:
    if not message.HasField("getBookieInfoResponse"):
        return None
    info = message.getBookieInfoResponse
    return BookieInfoResponse(
        status,
        info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None,
        info.freeDiskSpace if info.HasField("freeDiskSpace") else None,
    )


def _read_list_entries(message: Any, status: Status) -> Response | None:
    if not message.HasField("getListOfEntriesOfLedgerResponse"):
        return None
    entries = message.getListOfEntriesOfLedgerResponse
    availability = (
        entries.availabilityOfEntriesOfLedger
        if entries.HasField("availabilityOfEntriesOfLedger")
        else None
    )
    return ListEntriesResponse(status, entries.ledgerId, availability)


def _read_auth(message: Any, _status: Status) -> Response | None:
    if not message.HasField("authResponse"):
        return None
    return AuthResponse(message.authResponse.authPluginName, message.authResponse.payload)


def _read_start_tls(message: Any, status: Status) -> Response | None:
    return StartTlsResponse(status) if message.HasField("startTLSResponse") else None


_RESPONSE_DECODERS: Final[dict[int, Callable[[Any, Status], Response | None]]] = {
    READ_ENTRY: _read_read,
    ADD_ENTRY: _read_add,
    AUTH: _read_auth,
    START_TLS: _read_start_tls,
    WRITE_LAC: _read_write_lac,
    READ_LAC: _read_read_lac,
    GET_BOOKIE_INFO: _read_bookie_info,
    FORCE_LEDGER: _read_force,
    GET_LIST_OF_ENTRIES: _read_list_entries,
}


def decode_plain_add(frame: memoryview) -> tuple[int, AddRequest, bytes] | None:
    """Return (transaction id, request, the frame that says it is stored); None: looks different.

    The entry is a view into the frame.
    """
    found = _PLAIN_ADD.match(frame)
    if found is None:
        return None
    header, header_size, txn_id, add_size, ledger_id, entry_id, key, size = found.groups()
    entry = frame[found.end() :]
    if (
        header_size[0] != len(header) - _FIELDS_AT
        or _repeated(add_size) != len(frame) - found.end(_ADD_BYTES)
        or _repeated(size) != len(entry)
    ):
        return None
    request = new_tuple(
        AddRequest,
        (_repeated(ledger_id), _number(entry_id), key, entry, False, False, False, (), ()),
    )
    ids = b"\x08\x00\x10%b\x18%b" % (ledger_id, entry_id)
    answer = b"%b\x10\x00\xaa\x06%c%b" % (header, len(ids), ids)
    return _number(txn_id), request, len(answer).to_bytes(4, "big") + answer


def _number(varint: bytes) -> int:
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 0x7F
    return value


_repeated: Final = lru_cache(_SIZES_MAX)(_number)
"""The same, of a number that is likely to come again."""
