"""v3 requests: between protobuf fields and the values of `messages.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from client.errors import LocalProtocolError
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.messages import (
    AddRequest,
    AuthRequest,
    BookieInfoRequest,
    Buffer,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    Status,
    UnknownRequest,
    WriteLacRequest,
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

_FLAG_FENCE_LEDGER: Final = 1
_FLAG_ENTRY_PIGGYBACK: Final = 2
_FLAG_RECOVERY_ADD: Final = 1
_WRITE_FLAG_DEFERRED_SYNC: Final = 1
_INFO_TOTAL_CAPACITY: Final = 1
_INFO_FREE_SPACE: Final = 2

_PRIORITY_HIGH: Final = 100
"""What Java clients send for recovery writes; any priority above 0 counts as high."""


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
