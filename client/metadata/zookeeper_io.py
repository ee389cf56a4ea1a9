"""What kazoo's connection thread asks of the kernel: as little as can be.

Each system call of that thread gives the interpreter away, and while the event loop is busy it
has to wait to get it back: that, not ZooKeeper, bounds how fast a thousand partitions change
hands. So it makes few, each for all there is at that moment:

    wake-ups   one byte for all requests that came since the thread last looked (`Wake`)
    requests   gathered, and sent when the thread would wait (`BufferedSocket.flush`)
    answers    read ahead
    waiting    one `poll`, and none while there is something to do (`select_ready`)
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

_READ_AHEAD_BYTES: Final = 64 << 10
_GATHER_BYTES_MAX: Final = 64 << 10
"""Requests leave at the latest when there is so much of them."""


class BufferedSocket(socket.socket):
    """The connection: kazoo sends each request alone, and reads a length, then an answer."""

    def __init__(self, made: socket.socket) -> None:
        timeout_s = made.gettimeout()
        super().__init__(fileno=made.detach())
        self.settimeout(timeout_s)
        self._ahead = b""
        self._at = 0
        self._gathered = bytearray()

    def pending(self) -> int:
        """Return how many bytes can be had without waiting. kazoo looks for it by this name."""
        return len(self._ahead) - self._at

    @property
    def is_full(self) -> bool:
        """Whether what was gathered should leave."""
        return len(self._gathered) >= _GATHER_BYTES_MAX

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.pending():
            self._ahead, self._at = self._receive(max(size, _READ_AHEAD_BYTES), flags), 0
        begin = self._at
        self._at = min(begin + size, len(self._ahead))
        return self._ahead[begin : self._at]

    def _receive(self, size: int, flags: int) -> bytes:
        return super().recv(size, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        """Gather bytes for the next `flush`."""
        del flags
        self._gathered += data
        return len(data)

    def flush(self) -> bool:
        """Send what was gathered; false: the kernel takes no more now. Raises OSError."""
        while self._gathered:
            try:
                del self._gathered[: super().send(self._gathered)]
            except BlockingIOError:
                return False
        return True


class TlsSocket(BufferedSocket):
    """The same inside TLS: requests are encrypted as they leave, together."""

    def __init__(self, made: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Shake hands, within the time that the socket has. Raises OSError."""
        super().__init__(made)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._encrypted = bytearray()
        try:
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.sendall(self._outgoing.read())
                if not self._take():
                    raise ConnectionResetError("the server ended the handshake") from None
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.sendall(self._outgoing.read())  # the alert that tells the server
                raise
            else:
                self.sendall(self._outgoing.read())
                return

    def _take(self) -> bool:
        """Take encrypted bytes from the kernel; false at the end of them. Raises OSError."""
        data = socket.socket.recv(self, _READ_AHEAD_BYTES)
        self._incoming.write(data)
        return bool(data)

    def _receive(self, size: int, flags: int) -> bytes:
        """Decrypt all that is there, or nobody would be woken for the rest.

        Raises SSLWantReadError, for which kazoo looks, if that is a part of a record only.
        """
        found: list[bytes] = []
        try:
            if not self._take():
                return b""
            while data := self._tls.read(size):
                found.append(data)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        except ssl.SSLWantReadError:
            if not found:
                raise
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(found)

    def flush(self) -> bool:
        """Encrypt and send what was gathered. Raises OSError."""
        if self._gathered:
            self._tls.write(self._gathered)
            self._gathered.clear()
            self._encrypted += self._outgoing.read()
        while self._encrypted:
            try:
                del self._encrypted[: socket.socket.send(self, self._encrypted)]
            except BlockingIOError:
                return False
        return True


class Wake:
    """How other threads tell of requests, behind both ends of what kazoo takes for a socket pair.

    kazoo sends a byte for each request, and reads one when it has sent that. Here these bytes are
    counted, and the kernel gets one for all that come before the thread looks.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._untaken: deque[None] = deque()
        self._is_noticed = False
        """Whether a byte is on its way. Cleared before `_untaken` is looked at, set after it grew:
        so none is overlooked, without a lock."""

    def fileno(self) -> int:
        return self._reader.fileno()

    def pending(self) -> int:
        """Return how many requests there are to send."""
        return len(self._untaken)

    def send(self, data: bytes) -> int:
        """Tell of one request. Raises OSError once closed."""
        if self._writer.fileno() < 0:
            raise OSError("closed")
        self._untaken.append(None)
        if not self._is_noticed:
            self._is_noticed = True
            self._writer.send(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        """Take one request's byte. Without one it takes what the kernel has.

        kazoo drops requests when a connection ends, and their bytes later, when it was woken.
        Raises BlockingIOError if there is nothing.
        """
        if self._untaken:
            self._untaken.popleft()
            return bytes(size)
        self._is_noticed = False
        return self._reader.recv(size)

    def clear(self) -> None:
        """Take the kernel's byte, if there is one: from now on the next request sends another."""
        if self._is_noticed:
            self._is_noticed = False
            # Not there yet: a look in vain follows, see `recv`.
            with contextlib.suppress(BlockingIOError):
                self._reader.recv(_READ_AHEAD_BYTES)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


Readable = BufferedSocket | Wake


def select_ready(readers: Sequence[Readable], timeout_s: float | None) -> list[Readable]:
    """Return who has something to read; wait only if nobody has, and first send all requests.

    Raises OSError; TimeoutError when the server takes no requests for so long.
    """
    ready = [one for one in readers if one.pending()]
    for one in readers:
        if isinstance(one, Wake):
            if not ready:
                one.clear()
        elif one.is_full or not ready:
            _flush(one, timeout_s)
    return ready or [one for one in readers if one.pending()] or _wait(readers, timeout_s)


def _flush(connection: BufferedSocket, timeout_s: float | None) -> None:
    while not connection.flush():
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        if not poll.poll(_milliseconds(timeout_s)):
            raise TimeoutError("the server takes no requests")


def _wait(readers: Sequence[Readable], timeout_s: float | None) -> list[Readable]:
    poll = select.poll()
    for one in readers:
        poll.register(one, select.POLLIN)
    found = dict(poll.poll(_milliseconds(timeout_s)))
    return [one for one in readers if one.fileno() in found]


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)
