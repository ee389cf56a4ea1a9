"""Listens on a bookie's connections and tells the oracle what was asked and answered.

It reads the fixed layouts of wire version 2 by itself, so that it does not share a mistake with
the code under test. Version 3 conversations pass unseen. "Received" means that the bookie's
protocol object was given the bytes; "answered" that it wrote the answer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Protocol

ADD, READ, BATCH_READ = 1, 2, 7
FENCING, RECOVERY_ADD = 1, 2
OK, NO_LEDGER, NO_ENTRY = 0, 1, 2

_V3_FIRST_BYTE = 0x0A
_REQUEST_ADD = struct.Struct(">I20xqqq")
_IDS = struct.Struct(">qq")
_ANSWER = struct.Struct(">Iiqq")
_PEER_BYTES_MAX = 64 << 20


class Pending:
    """A request that a bookie has received."""

    __slots__ = ("arrived", "denied", "entry", "fence", "lac", "ledger", "peer", "recovery")

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


class Listener(Protocol):
    """What a tap reports to."""

    def add_received(self, bookie: str, add: Pending) -> None: ...

    def add_answered(self, bookie: str, add: Pending, code: int) -> None: ...

    def read_received(self, bookie: str, read: Pending) -> None: ...

    def read_answered(
        self, bookie: str, read: Pending, code: int, entry: bytes | memoryview
    ) -> None: ...


class BookieTap:
    """Follows one connection at the bookie's end."""

    __slots__ = ("_asked", "_bookie", "_in", "_listener", "_out", "_peer", "_v3")

    def __init__(self, listener: Listener, bookie: str, peer: str) -> None:
        self._listener = listener
        self._bookie = bookie
        self._peer = peer
        self._in = bytearray()
        self._out = bytearray()
        self._v3 = False
        self._asked: dict[tuple[int, int, int], deque[Pending]] = {}

    def received(self, data: bytes) -> None:
        """The bookie was given bytes."""
        if not self._v3:
            self._in += data
            if len(self._in) > 4 and self._in[4] == _V3_FIRST_BYTE:
                self._v3 = True
                return
            self._split(self._in, self._request)

    def written(self, data: bytes | bytearray | memoryview) -> None:
        """The bookie wrote bytes."""
        if not self._v3:
            self._out += data
            self._split(self._out, self._answer)

    def _split(self, buffer: bytearray, take: object) -> None:
        at, end = 0, len(buffer)
        while end - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if end - at - 4 < size or size > _PEER_BYTES_MAX:
                break
            take(buffer, at + 4, at + 4 + size)  # type: ignore[operator]
            at += 4 + size
        if at:
            del buffer[:at]

    def _request(self, buffer: bytearray, at: int, end: int) -> None:
        word = int.from_bytes(buffer[at : at + 4], "big")
        opcode, flags = word >> 16 & 0xFF, word & 0xFFFF
        if opcode == ADD:
            if end - at < _REQUEST_ADD.size:
                return
            _, ledger, entry, lac = _REQUEST_ADD.unpack_from(buffer, at)
            pending = Pending(ledger, entry, self._peer)
            pending.lac = lac
            pending.recovery = bool(flags & RECOVERY_ADD)
        elif opcode in (READ, BATCH_READ):
            ledger, entry = _IDS.unpack_from(buffer, at + 4)
            pending = Pending(ledger, entry, self._peer)
            pending.fence = bool(flags & FENCING)
        else:
            return
        self._asked.setdefault((opcode, ledger, entry), deque()).append(pending)
        if opcode == ADD:
            self._listener.add_received(self._bookie, pending)
        else:
            self._listener.read_received(self._bookie, pending)

    def _answer(self, buffer: bytearray, at: int, end: int) -> None:
        if end - at < _ANSWER.size:
            return
        word, code, ledger, entry = _ANSWER.unpack_from(buffer, at)
        opcode = word >> 16 & 0xFF
        asked = self._asked.get((opcode, ledger, entry))
        if not asked:
            return
        pending = asked.popleft()
        if not asked:
            del self._asked[opcode, ledger, entry]
        if opcode == ADD:
            self._listener.add_answered(self._bookie, pending, code)
        else:
            skip = 12 if opcode == BATCH_READ else 0
            body = bytes(buffer[at + _ANSWER.size + skip : end])
            self._listener.read_answered(self._bookie, pending, code, body)
