"""Listens on a bookie's connections and tells the oracle what was asked and answered.

Version 2 is read from its fixed layouts by this file itself, so that it does not share a mistake
with the code under test; version 3 through the protobuf message classes alone. "Received" means
that the bookie's protocol object was given the bytes; "answered" that it wrote the answer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol

from client.wire.bookkeeper import protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

ADD, READ, BATCH_READ = 1, 2, 7
_REQUEST_ID_BYTES = 8
V3_READ, V3_ADD = 1, 2
FENCING, RECOVERY_ADD = 1, 2
OK, NO_LEDGER, NO_ENTRY, OTHER = 0, 1, 2, 3

_V3_FIRST_BYTE = 0x0A
_V3_CODES = {0: OK, 402: NO_LEDGER, 403: NO_ENTRY}
_REQUEST_ADD = struct.Struct(">I20xqqq")
_V2_ADD_BYTES = 24
"""In front of the entry."""
_IDS = struct.Struct(">qq")
_ANSWER = struct.Struct(">Iiqq")
_FRAME_BYTES_MAX = 64 << 20


class Pending:
    """A request that a bookie has received."""

    __slots__ = (
        "arrived",
        "denied",
        "entry",
        "fence",
        "groups_before",
        "is_alone",
        "lac",
        "ledger",
        "peer",
        "recovery",
        "size",
    )

    def __init__(self, ledger: int, entry: int, peer: str) -> None:
        self.ledger = ledger
        self.entry = entry
        self.peer = peer
        """Name of the process that asked."""
        self.lac = -1
        """Of an add: its LAC field. Of a read of the last entry: the highest entry that the
        bookie had taken by then."""
        self.recovery = False
        self.fence = False
        self.denied = False
        """A fencing read that came after this add was told that the entry is not there."""
        self.arrived = 0
        """Position of the request among everything this schedule's bookies received."""
        self.size = 0
        """Of an add: bytes of its entry."""
        self.is_alone = False
        """Whether it is an add over a connection that had no other unanswered one."""
        self.groups_before = 0
        """Groups that the bookie had begun to write when it came."""


class Listener(Protocol):
    """What a tap reports to."""

    def add_received(self, bookie: str, add: Pending) -> None: ...

    def add_answered(self, bookie: str, add: Pending, code: int) -> None: ...

    def read_received(self, bookie: str, read: Pending) -> None: ...

    def read_answered(self, bookie: str, read: Pending, code: int, entry: bytes) -> None: ...

    def fence_heard(self, bookie: str, read: Pending, code: int) -> None: ...


class BookieTap:
    """Follows one connection at the bookie's end."""

    __slots__ = (
        "_adds_asked",
        "_asked",
        "_bookie",
        "_fences",
        "_heard",
        "_in",
        "_listener",
        "_out",
        "_peer",
        "_transactions",
        "_v3",
    )

    def __init__(self, listener: Listener, bookie: str, peer: str) -> None:
        self._listener = listener
        self._bookie = bookie
        self._peer = peer
        self._in = bytearray()
        self._out = bytearray()
        self._v3: bool | None = None
        self._asked: dict[tuple[int, int, int], deque[Pending]] = {}
        self._transactions: dict[int, Pending] = {}
        self._adds_asked = 0
        """Adds that are not answered."""
        self._heard = bytearray()
        self._fences: dict[int, Pending] = {}
        """Version 3 fencing reads that were answered, until the client has heard it."""

    def received(self, data: bytes) -> None:
        """The bookie was given bytes."""
        self._in += data
        if self._v3 is None and len(self._in) > 4:
            self._v3 = self._in[4] == _V3_FIRST_BYTE
        self._split(self._in, self._request_v3 if self._v3 else self._request_v2)

    def written(self, data: bytes | bytearray | memoryview) -> None:
        """The bookie wrote bytes."""
        self._out += data
        self._split(self._out, self._answer_v3 if self._v3 else self._answer_v2)

    def heard(self, data: bytes) -> None:
        """The client was given bytes."""
        if self._v3:
            self._heard += data
            self._split(self._heard, self._hear_v3)

    def _split(self, buffer: bytearray, take: Callable[[bytes], None]) -> None:
        at, end = 0, len(buffer)
        while end - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if end - at - 4 < size or size > _FRAME_BYTES_MAX:
                break
            take(bytes(buffer[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            del buffer[:at]

    def _pending_add(self, ledger: int, entry: int, lac: int, recovery: bool, size: int) -> Pending:
        pending = Pending(ledger, entry, self._peer)
        pending.lac = lac
        pending.recovery = recovery
        pending.size = size
        pending.is_alone = not self._adds_asked
        self._adds_asked += 1
        self._listener.add_received(self._bookie, pending)
        return pending

    def _pending_read(self, ledger: int, entry: int, fence: bool) -> Pending:
        pending = Pending(ledger, entry, self._peer)
        pending.fence = fence
        self._listener.read_received(self._bookie, pending)
        return pending

    def _request_v2(self, frame: bytes) -> None:
        word = int.from_bytes(frame[:4], "big")
        opcode, flags = word >> 16 & 0xFF, word & 0xFFFF
        if opcode == ADD and len(frame) >= _REQUEST_ADD.size:
            _, ledger, entry, lac = _REQUEST_ADD.unpack_from(frame)
            recovery = bool(flags & RECOVERY_ADD)
            pending = self._pending_add(ledger, entry, lac, recovery, len(frame) - _V2_ADD_BYTES)
        elif opcode in (READ, BATCH_READ):
            ledger, entry = _IDS.unpack_from(frame, 4)
            pending = self._pending_read(ledger, entry, bool(flags & FENCING))
        else:
            return
        self._asked.setdefault((opcode, ledger, entry), deque()).append(pending)

    def _request_v3(self, frame: bytes) -> None:
        request = protobuf.Request.FromString(frame)
        operation = request.header.operation
        if operation == V3_ADD:
            add = request.addRequest
            lac = int.from_bytes(add.body[16:24], "big", signed=True)
            pending = self._pending_add(
                add.ledgerId, add.entryId, lac, add.flag == 1, len(add.body)
            )
        elif operation == V3_READ:
            read = request.readRequest
            pending = self._pending_read(read.ledgerId, read.entryId, read.flag == 1)
        else:
            return
        self._transactions[request.header.txnId] = pending

    def _answer_v2(self, frame: bytes) -> None:
        if len(frame) < _ANSWER.size:
            return
        word, code, ledger, entry = _ANSWER.unpack_from(frame)
        opcode = word >> 16 & 0xFF
        asked = self._asked.get((opcode, ledger, entry))
        if not asked:
            return
        pending = asked.popleft()
        if not asked:
            del self._asked[opcode, ledger, entry]
        if opcode == ADD:
            self._adds_asked -= 1
            self._listener.add_answered(self._bookie, pending, code)
        else:
            if opcode == BATCH_READ:
                self._answer_batch(pending, code, frame[_ANSWER.size + _REQUEST_ID_BYTES :])
            else:
                self._listener.read_answered(self._bookie, pending, code, frame[_ANSWER.size :])
            if pending.fence:
                self._listener.fence_heard(self._bookie, pending, code)

    def _answer_batch(self, first: Pending, code: int, body: bytes) -> None:
        """Tell of each entry of a batch as if it had been read alone; of none, of the first."""
        self._listener.read_answered(self._bookie, first, code, body[4 : 4 + _length(body)])
        entry_id = first.entry
        while body := body[4 + _length(body) :]:
            entry_id += 1
            one = Pending(first.ledger, entry_id, first.peer)
            self._listener.read_answered(self._bookie, one, code, body[4 : 4 + _length(body)])

    def _answer_v3(self, frame: bytes) -> None:
        response = protobuf.Response.FromString(frame)
        pending = self._transactions.pop(response.header.txnId, None)
        if pending is None:
            return
        code = _V3_CODES.get(response.status, OTHER)
        if response.header.operation == V3_ADD:
            self._adds_asked -= 1
            self._listener.add_answered(self._bookie, pending, code)
        else:
            if pending.fence:
                self._fences[response.header.txnId] = pending
            body = response.readResponse.body
            self._listener.read_answered(self._bookie, pending, code, body)

    def _hear_v3(self, frame: bytes) -> None:
        if not self._fences:
            return
        response = protobuf.Response.FromString(frame)
        fence = self._fences.pop(response.header.txnId, None)
        if fence is not None:
            code = _V3_CODES.get(response.status, OTHER)
            self._listener.fence_heard(self._bookie, fence, code)


def _length(body: bytes) -> int:
    return int.from_bytes(body[:4], "big")


class ClientTap:
    """The client's end of a tapped connection."""

    __slots__ = ("_tap",)

    def __init__(self, tap: BookieTap) -> None:
        self._tap = tap

    def received(self, data: bytes) -> None:
        """The client was given bytes."""
        self._tap.heard(data)

    def written(self, data: bytes | bytearray | memoryview) -> None:
        """What the client writes is seen when it arrives."""
