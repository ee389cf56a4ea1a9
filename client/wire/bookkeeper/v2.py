"""BookKeeper wire version 2: fixed binary layouts, the fast path for add, read and fence.

    frame     length:int32 · word:int32 · body            (all integers big-endian)
    word      version << 24 | opcode << 16 | flags        version 0: the word is the opcode
    ADD       master key 20 · entry envelope              answer: rc 4 · ledger 8 · entry 8
    READ      ledger 8 · entry 8 [· master key 20]        answer: as ADD · envelope if rc = 0
    BATCH     ledger 8 · first 8 · request id 8 · count 4 · size 8 [· master key 20]
                          answer: rc 4 · ledger 8 · first 8 · request id 8 · {length 4 · envelope}*
    AUTH      protobuf AuthMessage                        answer: the same

The master key of a read is there only with FENCING set and version 2. An answer repeats the
version of its request. There is no transaction id: a client matches answers by operation, ledger
and entry, so a read of -1 is answered with entry id -1. Covers version 2 layouts and return
codes.

Sources: Apache BookKeeper `BookieProtocol`, `BookieProtoEncoding` (V2 encoders and decoders).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from client.errors import LocalProtocolError, RemoteProtocolError
from client.fast_tuple import new_tuple
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.entry import peek_ids
from client.wire.bookkeeper.messages import (
    ENTRY_HEADER_BYTES,
    MASTER_KEY_BYTES,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    Buffer,
    ErrorResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    UnknownRequest,
)

CURRENT_VERSION: Final = 2

_COPY_BELOW_BYTES: Final = 2 * 1024
"""Pieces of a batch that are smaller than this, on average, leave as one."""

ADD: Final = 1
READ: Final = 2
AUTH: Final = 3
BATCH_READ: Final = 7

FLAG_FENCING: Final = 0x0001
FLAG_RECOVERY_ADD: Final = 0x0002
FLAG_HIGH_PRIORITY: Final = 0x0004

_CODE_OF_STATUS: Final = {
    Status.OK: 0,
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    # Java clients have no mapping for 107 and drop the connection; 101 says the same to them.
    Status.UNKNOWN_LEDGER_STATE: 101,
}
_STATUS_OF_CODE: Final = {
    **{code: status for status, code in _CODE_OF_STATUS.items()},
    101: Status.IO_ERROR,
    107: Status.UNKNOWN_LEDGER_STATE,
}

_WORD: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")
_FRAME_WORD: Final = struct.Struct(">iI")
_IDS: Final = struct.Struct(">qq")
_FRAME_READ: Final = struct.Struct(">iIqq")
_BATCH: Final = struct.Struct(">qqqiq")
_ANSWER: Final = struct.Struct(">iqq")
_ADD_ANSWER: Final = struct.Struct(">Iiqq")
_FRAME_ANSWER: Final = struct.Struct(">iIiqq")
_PLAIN_ADD: Final = struct.Struct(f">I{MASTER_KEY_BYTES}sqq")
"""What nearly every request of a writer begins with: word, key, and its entry's ids."""
_ENTRY_AT: Final = _WORD.size + MASTER_KEY_BYTES
_PLAIN_ADD_BYTES_MIN: Final = _ENTRY_AT + ENTRY_HEADER_BYTES
_FRAME_BATCH_ANSWER: Final = struct.Struct(">iIiqqq")
_BATCH_ANSWER: Final = struct.Struct(">iqqq")


def _word(version: int, opcode: int, flags: int = 0) -> int:
    return opcode if version == 0 else version << 24 | opcode << 16 | flags


_PLAIN_ADD_WORD: Final = _word(CURRENT_VERSION, ADD)


def _split_word(frame: memoryview) -> tuple[int, int, int]:
    """Return (version, opcode, flags)."""
    if len(frame) < _WORD.size:
        raise RemoteProtocolError(f"v2 frame of {len(frame)} bytes has no header")
    word = _WORD.unpack_from(frame)[0]
    version = word >> 24
    if version == 0:
        return 0, word, 0
    return version, word >> 16 & 0xFF, word & 0xFFFF


def make_plain_add(
    ledger_id: LedgerId, entry_id: EntryId, master_key: bytes, envelope: Sequence[Buffer]
) -> AddRequest:
    """Return an ordinary add with its frame, which so is made once for all bookies.

    A small one is copied together, and leaves as one buffer; those of a large one are passed
    through. Raises LocalProtocolError for a master key of another size.
    """
    size = _ENTRY_AT + sum(map(len, envelope))
    head = _FRAME_WORD.pack(size, _PLAIN_ADD_WORD) + _checked_key(master_key)
    if size < _COPY_BELOW_BYTES:
        whole = b"".join((head, *envelope))
        entry: Buffer = memoryview(whole)[_LENGTH.size + _ENTRY_AT :]
        rest: tuple[Buffer, ...] = ()
        frame: tuple[Buffer, ...] = (whole,)
    else:
        entry, *others = envelope
        rest = tuple(others)
        frame = (b"".join((head, entry)), *rest)
    fields = (ledger_id, entry_id, master_key, entry, False, False, False, rest, frame)
    request: AddRequest = new_tuple(AddRequest, fields)
    return request


def encode_request(request: Request, txn_id: int = 0) -> Sequence[Buffer]:
    """Return one frame as buffers; entry and payload buffers are passed through uncopied.

    `txn_id` is accepted for symmetry with v3 and not sent.
    Raises LocalProtocolError for operations that version 2 lacks.
    """
    match request:
        case AddRequest():
            return _encode_add(request)
        case ReadRequest():
            return _encode_read(request)
        case BatchReadRequest():
            return _encode_batch_read(request)
        case AuthRequest():
            return _encode_auth(CURRENT_VERSION, request.plugin, request.payload)
        case _:
            raise LocalProtocolError(f"v2 cannot carry {type(request).__name__}")


def _encode_add(request: AddRequest) -> Sequence[Buffer]:
    if request.frame:
        return request.frame
    if request.deferred_sync:
        raise LocalProtocolError("v2 cannot carry a deferred sync add")
    flags = FLAG_RECOVERY_ADD if request.recovery else 0
    if request.high_priority:
        flags |= FLAG_HIGH_PRIORITY
    key = _checked_key(request.master_key)
    size = _WORD.size + MASTER_KEY_BYTES + len(request.entry) + sum(map(len, request.entry_rest))
    head = _FRAME_WORD.pack(size, _word(CURRENT_VERSION, ADD, flags)) + key
    return [head, request.entry, *request.entry_rest]


def _encode_read(request: ReadRequest) -> list[Buffer]:
    if request.previous_lac is not None:
        raise LocalProtocolError("v2 cannot carry a long poll")
    flags = FLAG_HIGH_PRIORITY if request.high_priority else 0
    key = b""
    if request.fence:
        flags |= FLAG_FENCING
        key = _checked_key(request.master_key)
    size = _WORD.size + _IDS.size + len(key)
    word = _word(CURRENT_VERSION, READ, flags)
    return [_FRAME_READ.pack(size, word, request.ledger_id, request.entry_id) + key]


def _encode_batch_read(request: BatchReadRequest) -> list[Buffer]:
    key = _checked_key(request.master_key) if request.fence else b""
    word = _word(CURRENT_VERSION, BATCH_READ, FLAG_FENCING if request.fence else 0)
    body = _BATCH.pack(
        request.ledger_id,
        request.first_entry_id,
        request.request_id,
        request.count_max,
        request.size_max,
    )
    return [_FRAME_WORD.pack(_WORD.size + len(body) + len(key), word) + body + key]


def _encode_auth(version: int, plugin: str, payload: bytes) -> list[Buffer]:
    body = protobuf.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return [_FRAME_WORD.pack(_WORD.size + len(body), _word(version, AUTH)), body]


def _checked_key(key: bytes | None) -> bytes:
    if key is None or len(key) != MASTER_KEY_BYTES:
        raise LocalProtocolError(f"a master key has {MASTER_KEY_BYTES} bytes")
    return key


def decode_request(frame: memoryview) -> tuple[int, Request]:
    """Return (version to answer with, request) of one frame without its length.

    An add's `entry` is a view into the frame. Raises RemoteProtocolError for an unknown opcode
    or a body of the wrong size: the connection must be closed.
    """
    if len(frame) >= _PLAIN_ADD_BYTES_MIN:
        word, key, ledger_id, entry_id = _PLAIN_ADD.unpack_from(frame)
        if word == _PLAIN_ADD_WORD:
            fields = (ledger_id, entry_id, key, frame[_ENTRY_AT:], False, False, False, (), ())
            return CURRENT_VERSION, new_tuple(AddRequest, fields)
    version, opcode, flags = _split_word(frame)
    decode = _REQUEST_DECODERS.get(opcode)
    if decode is None:
        raise RemoteProtocolError(f"v2 opcode {opcode} is unknown")
    request = decode(version, flags, frame)
    if version > CURRENT_VERSION:
        ids = _ids_of(request)
        return version, UnknownRequest(opcode, Status.BAD_VERSION, *ids)
    return version, request


def _ids_of(request: Request) -> tuple[LedgerId, EntryId]:
    match request:
        case AddRequest() | ReadRequest():
            return request.ledger_id, request.entry_id
        case _:
            return LedgerId(-1), EntryId(-1)


def _decode_add(_version: int, flags: int, frame: memoryview) -> Request:
    entry = frame[_WORD.size + MASTER_KEY_BYTES :]
    ledger_id, entry_id = peek_ids(entry)
    return AddRequest(
        ledger_id,
        entry_id,
        bytes(frame[_WORD.size : _WORD.size + MASTER_KEY_BYTES]),
        entry,
        bool(flags & FLAG_RECOVERY_ADD),
        bool(flags & FLAG_HIGH_PRIORITY),
    )


def _decode_read(version: int, flags: int, frame: memoryview) -> Request:
    fence = bool(flags & FLAG_FENCING)
    key = _decode_key(version, fence, frame, _WORD.size + _IDS.size)
    ledger_id, entry_id = _IDS.unpack_from(frame, _WORD.size)
    return ReadRequest(
        LedgerId(ledger_id), EntryId(entry_id), fence, key, bool(flags & FLAG_HIGH_PRIORITY)
    )


def _decode_batch_read(version: int, flags: int, frame: memoryview) -> Request:
    fence = bool(flags & FLAG_FENCING)
    key = _decode_key(version, fence, frame, _WORD.size + _BATCH.size)
    ledger_id, first, request_id, count_max, size_max = _BATCH.unpack_from(frame, _WORD.size)
    return BatchReadRequest(
        LedgerId(ledger_id), EntryId(first), request_id, count_max, size_max, fence, key
    )


def _decode_key(version: int, fence: bool, frame: memoryview, offset: int) -> bytes | None:
    """Return the master key at `offset`, None when the layout has none; checks the size."""
    keyed = fence and version >= CURRENT_VERSION
    if len(frame) < offset + (MASTER_KEY_BYTES if keyed else 0):
        raise RemoteProtocolError(f"v2 read of {len(frame)} bytes is truncated")
    return bytes(frame[offset : offset + MASTER_KEY_BYTES]) if keyed else None


def _decode_auth(_version: int, _flags: int, frame: memoryview) -> Request:
    return AuthRequest(*_decode_auth_message(frame))


def _decode_auth_message(frame: memoryview) -> tuple[str, bytes]:
    message = protobuf.AuthMessage()
    try:
        message.ParseFromString(bytes(frame[_WORD.size :]))
    except DecodeError as error:
        raise RemoteProtocolError("v2 AUTH body is malformed") from error
    if not message.IsInitialized():
        raise RemoteProtocolError("v2 AUTH body lacks a field")
    return message.authPluginName, message.payload


_REQUEST_DECODERS: Final[dict[int, Callable[[int, int, memoryview], Request]]] = {
    ADD: _decode_add,
    READ: _decode_read,
    AUTH: _decode_auth,
    BATCH_READ: _decode_batch_read,
}


def encode_response(response: Response, version: int = CURRENT_VERSION) -> list[Buffer]:
    """Return one answer frame as buffers, entries uncopied. `version` repeats the request's.

    Raises LocalProtocolError for operations that version 2 lacks.
    """
    match response:
        case AddResponse(status, ledger_id, entry_id):
            word = _word(version, ADD)
            code = _CODE_OF_STATUS[status]
            return [_FRAME_ANSWER.pack(24, word, code, ledger_id, entry_id)]
        case ReadResponse(status, ledger_id, entry_id, entry):
            word = _word(version, READ)
            code = _CODE_OF_STATUS[status]
            if status is not Status.OK or entry is None:
                return [_FRAME_ANSWER.pack(24, word, code, ledger_id, entry_id)]
            size = 24 + len(entry)
            return [_FRAME_ANSWER.pack(size, word, code, ledger_id, entry_id), entry]
        case BatchReadResponse():
            return _encode_batch_answer(response, version)
        case AuthResponse(plugin, payload):
            return _encode_auth(version, plugin, payload)
        case ErrorResponse(operation, status, ledger_id, entry_id):
            word = _word(version, operation)
            code = _CODE_OF_STATUS[status]
            return [_FRAME_ANSWER.pack(24, word, code, ledger_id, entry_id)]
        case _:
            raise LocalProtocolError(f"v2 cannot carry {type(response).__name__}")


def encode_added(ledger_id: LedgerId, entry_id: EntryId) -> bytes:
    """Return the answer to a plain add of the current version that is durable."""
    return _FRAME_ANSWER.pack(24, _PLAIN_ADD_WORD, 0, ledger_id, entry_id)


def _encode_batch_answer(response: BatchReadResponse, version: int) -> list[Buffer]:
    size = _WORD.size + _BATCH_ANSWER.size
    buffers: list[Buffer] = []
    for entry in response.entries:
        buffers += (_LENGTH.pack(len(entry)), entry)
        size += _LENGTH.size + len(entry)
    head = _FRAME_BATCH_ANSWER.pack(
        size,
        _word(version, BATCH_READ),
        _CODE_OF_STATUS[response.status],
        response.ledger_id,
        response.first_entry_id,
        response.request_id,
    )
    if size < _COPY_BELOW_BYTES * len(buffers):
        return [head, b"".join(buffers)]  # a copy costs less than handling every piece
    return [head, *buffers]


def decode_run_of_added(data: memoryview) -> list[AddResponse] | None:
    """Decode whole frames, lengths included, that all say of an ordinary add that it is stored.

    None if any of them says something else, or if they are none: `decode_response` takes those.
    """
    if len(data) % _FRAME_ANSWER.size:
        return None
    found: list[AddResponse] = []
    for length, word, code, ledger_id, entry_id in _FRAME_ANSWER.iter_unpack(data):
        if code or word != _PLAIN_ADD_WORD or length != _ADD_ANSWER.size:
            return None
        found.append(new_tuple(AddResponse, (Status.OK, ledger_id, entry_id)))
    return found


def decode_response(frame: memoryview) -> Response:
    """Return the response in one frame without its length; entries are views into it.

    Raises RemoteProtocolError for an unknown opcode, return code or a truncated body.
    """
    if len(frame) == _ADD_ANSWER.size:
        word, code, ledger_id, entry_id = _ADD_ANSWER.unpack_from(frame)
        if word == _PLAIN_ADD_WORD and not code:
            return AddResponse(Status.OK, ledger_id, entry_id)
    _, opcode, _ = _split_word(frame)
    decode = _RESPONSE_DECODERS.get(opcode)
    if decode is None:
        raise RemoteProtocolError(f"v2 opcode {opcode} is unknown in an answer")
    try:
        return decode(frame)
    except struct.error as error:
        raise RemoteProtocolError(f"v2 answer of {len(frame)} bytes is truncated") from error
    except KeyError as error:
        raise RemoteProtocolError(f"v2 return code {error} is unknown") from error


def _decode_add_answer(frame: memoryview) -> AddResponse:
    code, ledger_id, entry_id = _ANSWER.unpack_from(frame, _WORD.size)
    return AddResponse(_STATUS_OF_CODE[code], ledger_id, entry_id)


def _decode_read_answer(frame: memoryview) -> ReadResponse:
    code, ledger_id, entry_id = _ANSWER.unpack_from(frame, _WORD.size)
    entry = frame[_WORD.size + _ANSWER.size :] if code == 0 else None
    return ReadResponse(_STATUS_OF_CODE[code], ledger_id, entry_id, entry)


def _decode_batch_answer(frame: memoryview) -> BatchReadResponse:
    code, ledger_id, first, request_id = _BATCH_ANSWER.unpack_from(frame, _WORD.size)
    entries: list[Buffer] = []
    position = _WORD.size + _BATCH_ANSWER.size
    while position < len(frame):
        length = _LENGTH.unpack_from(frame, position)[0]
        position += _LENGTH.size
        if not 0 <= length <= len(frame) - position:
            raise RemoteProtocolError(f"v2 batch read holds an entry of {length} bytes")
        entries.append(frame[position : position + length])
        position += length
    return BatchReadResponse(
        _STATUS_OF_CODE[code], LedgerId(ledger_id), EntryId(first), request_id, tuple(entries)
    )


def _decode_auth_answer(frame: memoryview) -> AuthResponse:
    return AuthResponse(*_decode_auth_message(frame))


_RESPONSE_DECODERS: Final[dict[int, Callable[[memoryview], Response]]] = {
    ADD: _decode_add_answer,
    READ: _decode_read_answer,
    AUTH: _decode_auth_answer,
    BATCH_READ: _decode_batch_answer,
}
