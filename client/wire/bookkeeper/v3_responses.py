"""v3 responses: between protobuf fields and the values of `messages.py`.

Outer and inner status are always equal: Java clients look at the outer one first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from client.errors import LocalProtocolError, RemoteProtocolError
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.messages import (
    AddResponse,
    AuthResponse,
    BookieInfoResponse,
    Buffer,
    ErrorResponse,
    ForceLedgerResponse,
    ListEntriesResponse,
    ReadLacResponse,
    ReadResponse,
    Response,
    StartTlsResponse,
    Status,
    WriteLacResponse,
)
from client.wire.bookkeeper.v3_envelope import (
    ADD_ENTRY,
    AUTH,
    FORCE_LEDGER,
    GET_BOOKIE_INFO,
    GET_LIST_OF_ENTRIES,
    READ_ENTRY,
    READ_LAC,
    START_TLS,
    VERSION,
    WRITE_LAC,
    frame_of,
    parse,
)


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
