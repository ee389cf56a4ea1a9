"""How many bytes wait in a socket before the loop is told of them.

A frame that is under way is of no use before its last byte is there, and each time that the loop is
told of some more of them costs a process tens of microseconds: it wakes up, reads, decrypts. A
client in plain text hands a request to its kernel in one piece; one that encrypts does so for every
TLS record, so it is mostly records by themselves that come. Once the length of a frame is known, so
is how much must come before its end can be there: the kernel is told to wait for that
(`SO_RCVLOWAT`). It never waits for more, so nothing is late, and it says at once that a connection
has ended.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol

MARK_BYTES_MIN: Final = 32 << 10
"""Less comes with a few calls of the loop, which cost no more than to set the mark and set it back:
requests of 16 KiB in small records took 12.7 to 13.9 CPU s per GB either way."""
MARK_BYTES_MAX: Final = 128 << 10
"""Of a larger frame so much at a time: decrypting goes on while the rest is on its way, and the
kernel, which makes room for twice that, holds no more for a frame that never ends."""


class _Socket(Protocol):
    def setsockopt(self, level: int, optname: int, value: int) -> None: ...


class ReadMark:
    """The mark of one socket."""

    __slots__ = ("_mark", "_socket")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._socket: _Socket | None = transport.get_extra_info("socket")
        """None: there is none, and bytes come as they do."""
        self._mark = 1

    def await_bytes(self, count: int) -> None:
        """At least so many bytes are still to come before there is anything to do.

        Raises OSError if the socket is not open.
        """
        mark = min(count, MARK_BYTES_MAX) if count >= MARK_BYTES_MIN else 1
        if mark != self._mark and self._socket is not None:
            self._mark = mark
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
