"""Both ends of a BookKeeper connection without I/O: bytes in, matched messages out.

Client side: a connection speaks one wire version for its whole life, because a Java bookie that
has seen one v2 frame parses everything after it as v2. Answers come in any order. v3 answers
carry a transaction id; v2 answers are matched by what they are about, (operation, ledger,
entry), so equal requests in flight are a multimap and each answer completes the oldest. An
answer nobody waits for is a straggler of a forgotten request and is dropped.

Server side: the version is read off the first byte of each frame (0x0A is v3, anything else is
a v2 version byte) and every request is answered in the version it came in.

The caller calls the callbacks and writes the buffers; after any exception the connection must be
closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from client.errors import RemoteProtocolError
from client.fast_tuple import new_tuple
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.messages import (
    FRAME_BYTES_MAX,
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    Buffer,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)
from client.wire.bookkeeper.v3 import decode_plain_add
from client.wire.frames import FrameSplitter

OnResponse = Callable[[Response], None]

Key = tuple[int, int, int]
"""What a v2 answer is matched by (operation, ledger, entry or request id); v3: (-1, txn, 0)."""

_AUTH_KEY: Key = (v2.AUTH, 0, 0)


def _request_key(request: Request) -> Key:
    match request:
        case AddRequest():
            return (v2.ADD, request.ledger_id, request.entry_id)
        case ReadRequest():
            return (v2.READ, request.ledger_id, request.entry_id)
        case BatchReadRequest():
            return (v2.BATCH_READ, request.ledger_id, request.request_id)
        case _:
            return _AUTH_KEY


def _response_key(response: Response) -> Key:
    if type(response) is AddResponse:
        return (v2.ADD, response.ledger_id, response.entry_id)
    match response:
        case ReadResponse():
            return (v2.READ, response.ledger_id, response.entry_id)
        case BatchReadResponse():
            return (v2.BATCH_READ, response.ledger_id, response.request_id)
        case _:
            return _AUTH_KEY


class Sent(NamedTuple):
    """A request on its way: its key for `forget`, and the frame to write."""

    key: Key
    buffers: Sequence[Buffer]


class ClientConnection:
    """Outstanding requests of one connection to a bookie."""

    def __init__(
        self, version: Literal[2, 3] = 2, *, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self.version = version
        self._splitter = FrameSplitter(frame_bytes_max)
        # Oldest waiter first; a key is present only while its list is not empty.
        self._waiting: dict[Key, list[OnResponse]] = {}
        self._next_txn_id = 0
        self.outstanding_count = 0

    def request(self, request: Request, on_response: OnResponse) -> Sent:
        """Register a request and return its frame.

        Raises LocalProtocolError, with nothing registered, if this version cannot carry it.
        """
        key: Key
        buffers: Sequence[Buffer]
        if self.version == 2:
            if type(request) is AddRequest and request.frame:  # nearly all of them
                key = (v2.ADD, request.ledger_id, request.entry_id)
                buffers = request.frame
            else:
                key = _request_key(request)
                buffers = v2.encode_request(request)
        else:
            key = (-1, self._next_txn_id, 0)
            buffers = v3.encode_request(request, self._next_txn_id)
            self._next_txn_id += 1
        waiters = self._waiting.get(key)
        if waiters is None:
            self._waiting[key] = [on_response]
        else:
            waiters.append(on_response)
        self.outstanding_count += 1
        return new_tuple(Sent, (key, buffers))

    def receive_added(self, data: memoryview) -> list[tuple[OnResponse, Response]] | None:
        """The same, where nothing but ordinary adds that are stored is told of, in whole frames;
        None, with nothing done, for anything else."""
        if self.version != 2:
            return None
        added = v2.decode_run_of_added(data)
        if added is None:
            return None
        waiting = self._waiting
        matched: list[tuple[OnResponse, Response]] = []
        for response in added:
            key = (v2.ADD, response.ledger_id, response.entry_id)
            waiters = waiting.get(key)
            if waiters is None:
                continue
            matched.append((waiters.pop(0), response))
            if not waiters:
                del waiting[key]
            self.outstanding_count -= 1
        return matched

    def receive_data(self, data: bytes) -> list[tuple[OnResponse, Response]]:
        """Take received bytes; return who waited for each answer they completed, in order.

        Raises RemoteProtocolError.
        """
        return self.receive_frames(self._splitter.feed(data))

    def receive_frames(self, frames: Iterable[memoryview]) -> list[tuple[OnResponse, Response]]:
        """The same, of a caller who finds the frames himself."""
        matched: list[tuple[OnResponse, Response]] = []
        for frame in frames:
            if self.version == 2:
                response = v2.decode_response(frame)
                key = _response_key(response)
            else:
                txn_id, response = v3.decode_response(frame)
                key = (-1, txn_id, 0)
            on_response = self._take(key)
            if on_response is not None:
                matched.append((on_response, response))
        return matched

    def _take(self, key: Key) -> OnResponse | None:
        waiters = self._waiting.get(key)
        if waiters is None:
            return None
        on_response = waiters.pop(0)
        if not waiters:
            del self._waiting[key]
        self.outstanding_count -= 1
        return on_response

    def forget(self, key: Key, on_response: OnResponse) -> bool:
        """Stop waiting (a timeout); False if the answer was there already."""
        waiters = self._waiting.get(key)
        if waiters is None or on_response not in waiters:
            return False
        waiters.remove(on_response)
        if not waiters:
            del self._waiting[key]
        self.outstanding_count -= 1
        return True

    def close(self) -> list[OnResponse]:
        """Drop all outstanding requests and return who waited, oldest key first.

        Their outcome is unknown: the bookie may have acted on any of them.
        """
        waiting = [on_response for waiters in self._waiting.values() for on_response in waiters]
        self._waiting.clear()
        self.outstanding_count = 0
        return waiting


class Call(NamedTuple):
    """A request at the server, with what its answer must repeat."""

    request: Request
    v2_version: int | None = None
    """Version byte of a v2 frame; None for a v3 frame."""
    txn_id: int = 0
    """Transaction id of a v3 frame."""
    added: bytes | None = None
    """Of an ordinary add: the frame that says it is stored. Others are for `encode_answer`."""


def decode_call(frame: memoryview) -> Call:
    """Decode one request frame, version detected. Raises RemoteProtocolError."""
    if not frame:
        raise RemoteProtocolError("empty frame")
    if frame[0] == v3.FIRST_BYTE:
        plain = decode_plain_add(frame)
        if plain is not None:
            txn_id, add, added = plain
            return new_tuple(Call, (add, None, txn_id, added))
        txn_id, request = v3.decode_request(frame)
        return Call(request, None, txn_id)
    version, request = v2.decode_request(frame)
    if version == v2.CURRENT_VERSION and type(request) is AddRequest:
        added = v2.encode_added(request.ledger_id, request.entry_id)
        return new_tuple(Call, (request, version, 0, added))
    return Call(request, version)


def encode_answer(call: Call, response: Response) -> list[Buffer]:
    """Return the answer frame in the version the call came in."""
    if call.v2_version is None:
        return v3.encode_response(response, call.txn_id)
    return v2.encode_response(response, call.v2_version)
