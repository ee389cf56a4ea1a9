"""TLS between a socket and a connection of a server, by the standard library's OpenSSL.

The event loop's own TLS hides a connection until its handshake is done, so nothing would count or
bound it before. Here the connection is admitted like any other; then a `TlsProtocol` takes the
socket's bytes, shakes hands, and passes on what it decrypts; what the connection writes goes
through `TlsTransport`. A handshake is bounded in time, in bytes, and in the number under way; its
steps, each some tenths of a millisecond of cryptography, are taken a few in a turn of the loop, so
that a thousand clients that connect at once keep others waiting for these, and not for all.

Reading and writing keep the connection's back-pressure: while it does not read, at most one
window's worth of the peer's bytes waits here; what it writes is encrypted at once and waits in the
socket's buffer, where it is counted. What a frame under way still lacks the kernel gathers first
(`read_mark.py`): whoever encrypts sends record by record. OpenSSL is handed bytes in slices: its
buffers never shrink, and would keep room for the most that they ever held. It is asked for whole
records alone (`client/wire/tls_records.py`).

Bytes that are no TLS end the connection with a reason that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from client.node.tls.read_mark import ReadMark
from client.node.turns import Turns
from client.wire.frames import Chunk, make_window
from client.wire.tls_records import RecordEdge, pieces

_HANDSHAKE_BYTES_MAX: Final = 128 << 10
"""Of one client: chains of certificates have a few KiB."""
HANDSHAKE_STEPS: Final = 8
"""Of all clients, in one turn of the loop: some three milliseconds."""
_HANDSHAKE_RECORD: Final = 0x16
IN_SLICE_BYTES: Final = 16 << 10
"""Of encrypted bytes, handed to OpenSSL at a time; with a piece of a record before them, it keeps
room for 44 KiB."""
OUT_SLICE_BYTES: Final = 32 << 10
"""Of plain bytes, encrypted at a time: OpenSSL keeps room for 44 KiB."""


class Secured(Protocol):
    """The connection behind: an `asyncio.BufferedProtocol` that can be told what is wrong."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take in the connection."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        ...

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes belong."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Take them."""
        ...

    @property
    def missing_bytes(self) -> int:
        """At least so many bytes come before it has anything to do with them."""
        ...

    def take_plain(self, data: memoryview) -> int:
        """Look at what came in plain text in the place of a handshake; return how many bytes of it
        were meant so. What follows these is the handshake."""
        ...

    def pause_writing(self) -> None:
        """The peer does not read."""
        ...

    def resume_writing(self) -> None:
        """The peer reads again."""
        ...

    def fail(self, reason: str) -> None:
        """Close the connection because of what the peer sent."""
        ...


class TlsGate:
    """What all TLS connections of a server share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        handshake_timeout_s: float,
        handshakes_max: int,
    ) -> None:
        self.loop = loop
        self.handshake_timeout_s = handshake_timeout_s
        self.handshakes_max = handshakes_max
        self.turns = Turns(HANDSHAKE_STEPS)
        """Of handshakes."""
        self.window = make_window()
        """Where encrypted bytes are received."""
        self.handshakes = 0
        """Handshakes under way."""
        self._of_host: dict[str, int] = {}
        self.failures = 0
        """Handshakes that failed, or were not begun."""

    def begin(self, host: str) -> bool:
        """Count a handshake; say whether it may go on. No host has more than half of them, or else
        it would keep out all others for as long as a handshake may take."""
        self.handshakes += 1
        count = self._of_host[host] = self._of_host.get(host, 0) + 1
        share = -(-self.handshakes_max // 2)
        return self.handshakes <= self.handshakes_max and count <= share

    def end(self, host: str) -> None:
        """It is over."""
        self.handshakes -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

    @property
    def is_full(self) -> bool:
        """Whether no further handshake may begin now."""
        return self.handshakes >= self.handshakes_max


class TlsProtocol(asyncio.BufferedProtocol):
    """The socket's side."""

    def __init__(
        self,
        gate: TlsGate,
        context: ssl.SSLContext,
        app: Secured,
        on_ready: Callable[[], None],
    ) -> None:
        """`on_ready` is called once the peer is known and before its first bytes are passed on."""
        self._gate = gate
        self._app = app
        self._on_ready: Callable[[], None] | None = on_ready
        """None: the handshake is over, one way or the other."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket: asyncio.Transport | None = None
        self._read_mark: ReadMark
        self._unread = memoryview(b"")
        """Of a window that was just received, what OpenSSL was not handed yet."""
        self._edge = RecordEdge()
        """Of what OpenSSL was handed since the handshake."""
        self._timer: asyncio.TimerHandle | None = None
        self._handshake_bytes = 0
        self._take_back: Callable[[], None] | None = None
        """Takes back the turn that the handshake waits for; None: it waits for none."""
        self._host = ""
        self._is_admitted = True
        self._is_reading = True

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Show the connection, then wait for the handshake."""
        secured, is_admitted = self._begin(cast("asyncio.Transport", transport))
        self._app.connection_made(secured)
        if not is_admitted and self._socket is not None and not self._socket.is_closing():
            self._fail("tls_handshakes_max is reached")

    def take_over(self, socket: asyncio.Transport, *, is_reading: bool) -> TlsTransport:
        """Go between an open connection and its socket: what comes next is a handshake.

        `is_reading`: whether the connection takes bytes now. Returns its transport from now on.
        """
        self._is_reading = is_reading
        socket.set_protocol(self)
        transport, self._is_admitted = self._begin(socket)
        return transport

    def check_admitted(self) -> None:
        """Close the connection if too many handshakes are under way, or half of them are of its
        host; for who took over a socket, once its transport is in place."""
        if not self._is_admitted:
            self._fail("tls_handshakes_max is reached")

    def _begin(self, socket: asyncio.Transport) -> tuple[TlsTransport, bool]:
        """Return the connection's transport, and whether its handshake may go on."""
        gate = self._gate
        self._socket = socket
        self._read_mark = ReadMark(socket)
        peer = socket.get_extra_info("peername")
        self._host = str(peer[0]) if peer else ""
        is_admitted = gate.begin(self._host)
        self._timer = gate.loop.call_later(gate.handshake_timeout_s, self._on_timeout)
        return TlsTransport(self, socket, self._tls), is_admitted

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        if self._on_ready is not None:
            self._gate.failures += 1
            self._end_handshake()
        self._socket = None
        self._app.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._app.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._app.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next encrypted bytes belong."""
        return self._gate.window

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt, or go on with the handshake."""
        if self._socket is None or self._socket.is_closing():
            return
        begin = 0
        if self._on_ready is not None:
            begin = self._plain_bytes(nbytes)
            if begin == nbytes or not self._is_begun_well(begin, nbytes):
                return
        if self._on_ready is None:
            self._unread = self._gate.window[:nbytes]
            self.decrypt()
            if self._unread:  # the connection does not read; the window is every connection's
                self._hand_over(self._unread)
                self._unread = memoryview(b"")
            return
        self._incoming.write(self._gate.window[begin:nbytes])
        if self._take_back is None:
            self._socket.pause_reading()  # what the client sends meanwhile waits in its socket
            self._take_back = self._gate.turns.on_turn(self._on_turn)

    # --- the handshake

    def _plain_bytes(self, nbytes: int) -> int:
        window = self._gate.window
        is_plain = not self._handshake_bytes and window[0] != _HANDSHAKE_RECORD
        return self._app.take_plain(window[:nbytes]) if is_plain else 0

    def _is_begun_well(self, begin: int, end: int) -> bool:
        if not self._handshake_bytes and self._gate.window[begin] != _HANDSHAKE_RECORD:
            self._fail("not TLS: the client speaks plain text to a listener with TLS")
            return False
        self._handshake_bytes += end - begin
        if self._handshake_bytes > _HANDSHAKE_BYTES_MAX:
            self._fail("the TLS handshake is too long")
            return False
        return True

    def _on_turn(self) -> None:
        """Take a step of the handshake, and then what came behind it."""
        self._take_back = None
        socket = self._socket
        if socket is None or socket.is_closing():
            return
        if self._is_reading:
            socket.resume_reading()
        if self._shake_hands():
            self.decrypt()

    def _shake_hands(self) -> bool:
        """Go on; return whether it is done."""
        on_ready = self._on_ready
        assert on_ready is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ValueError) as error:
            self._flush()  # the alert that tells the client
            self._fail(f"TLS handshake: {_reason(error)}")
            return False
        self._flush()
        self._end_handshake()
        if self._incoming.pending:  # the last record of the handshake was whole
            self._hand_over(memoryview(self._incoming.read()))
        on_ready()
        return self._socket is not None and not self._socket.is_closing()

    def _end_handshake(self) -> None:
        self._on_ready = None
        self._gate.end(self._host)
        if self._timer is not None:
            self._timer.cancel()
        if self._take_back is not None:
            self._take_back()
            self._take_back = None

    def _on_timeout(self) -> None:
        if self._on_ready is not None:
            self._fail("the TLS handshake took longer than tls_handshake_timeout_ms")

    def _fail(self, reason: str) -> None:
        if self._on_ready is not None:
            self._gate.failures += 1
            self._end_handshake()
        self._app.fail(reason)

    # --- what `TlsTransport` needs

    @property
    def is_open(self) -> bool:
        """Whether bytes can be encrypted: the handshake is done, the socket there."""
        return self._on_ready is None and self._socket is not None

    def set_reading(self, is_reading: bool) -> None:
        """Pass bytes on, or let them wait: one window here, the rest in the socket."""
        socket = self._socket
        if socket is None or socket.is_closing() or is_reading == self._is_reading:
            return
        self._is_reading = is_reading
        if not is_reading:
            socket.pause_reading()
            return
        if self._take_back is None:
            socket.resume_reading()
        # Not at once: whoever resumes is in the middle of something.
        self._gate.loop.call_soon(self.decrypt)

    def decrypt(self) -> None:
        """Pass on what is there, as far as the connection reads."""
        app = self._app
        while self._may_pass_on():
            buffer = app.get_buffer(-1)
            count, is_end = self._fill(buffer)
            if count:
                app.buffer_updated(count)
            if is_end:
                break
            if count < len(buffer):
                self._await_more()
                break
        self._flush()

    def _may_pass_on(self) -> bool:
        return self._is_reading and self._socket is not None and not self._socket.is_closing()

    def _await_more(self) -> None:
        """Everything is decrypted that can be: say how much more is worth a call."""
        if self._may_pass_on():
            self._read_mark.await_bytes(self._app.missing_bytes - self._edge.partial_bytes)

    def _fill(self, buffer: memoryview) -> tuple[int, bool]:
        """Decrypt into a buffer; return how much, and whether the peer is done."""
        if self._on_ready is not None:
            return 0, False
        try:
            count, is_end = self._read(buffer)
            while self._unread and count < len(buffer) and not is_end:
                self._hand_over(self._unread[:IN_SLICE_BYTES])
                self._unread = self._unread[IN_SLICE_BYTES:]
                found, is_end = self._read(buffer[count:])
                count += found
        except (ssl.SSLError, ValueError) as error:
            self._app.fail(f"TLS: {_reason(error)}")
            return 0, True
        return count, is_end

    def _hand_over(self, data: memoryview) -> None:
        """Give encrypted bytes to OpenSSL."""
        self._edge.take(data)
        self._incoming.write(data)

    def _read(self, buffer: memoryview) -> tuple[int, bool]:
        """Decrypt what OpenSSL was handed; return how much, and whether the peer is done. Raises
        ssl.SSLError and ValueError for what is not TLS."""
        count, size, is_end = 0, len(buffer), False
        # The type is a string: to make one of `Callable` costs as much as to decrypt a record.
        read = cast("Callable[[int, memoryview], int]", self._tls.read)
        # Reading when no whole record is there would raise, which costs more than to look.
        incoming, partial_bytes = self._incoming, self._edge.partial_bytes
        try:
            is_more = incoming.pending > partial_bytes or self._tls.pending() > 0
            while is_more and count < size:
                found = read(size - count, buffer[count:] if count else buffer)
                if not found:
                    is_end = True
                    break
                count += found
                is_more = incoming.pending > partial_bytes
        except ssl.SSLWantReadError:  # it was a record without content
            pass
        except ssl.SSLZeroReturnError:
            is_end = True
        if is_end:
            self._close_socket()
        return count, is_end

    def encrypt(self, buffers: Iterable[Chunk]) -> None:
        """Send buffers; small ones share a TLS record."""
        for piece in pieces(buffers):
            self._encrypt(piece)
        self._flush()

    def say_goodbye(self) -> None:
        """Tell the peer that nothing follows."""
        if self.is_open:
            # The peer's own goodbye is not waited for.
            with contextlib.suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
        self._flush()

    def _encrypt(self, buffer: Chunk) -> None:
        view = memoryview(buffer)
        while view:
            view = view[self._tls.write(view[:OUT_SLICE_BYTES]) :]
            if self._outgoing.pending >= OUT_SLICE_BYTES:
                self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._socket is not None and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()


class TlsTransport(asyncio.Transport):
    """The connection's side."""

    def __init__(
        self, protocol: TlsProtocol, socket: asyncio.Transport, tls: ssl.SSLObject
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._socket = socket
        self._tls = tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `peercert` (None without one), `cipher` and `sslcontext` of TLS, the rest of the
        socket."""
        if name == "peercert":
            return self._tls.getpeercert() or None
        if name == "cipher":
            return self._tls.cipher()
        if name == "sslcontext":
            return self._tls.context
        return self._socket.get_extra_info(name, default)

    def write(self, data: Chunk) -> None:
        """Send bytes."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Chunk]) -> None:
        """Send buffers. Nobody is answered before the handshake: then there is nothing to send."""
        if self._protocol.is_open and not self._socket.is_closing():
            self._protocol.encrypt(list_of_data)

    def pause_reading(self) -> None:
        """Let the peer's bytes wait."""
        self._protocol.set_reading(False)

    def resume_reading(self) -> None:
        """Go on."""
        self._protocol.set_reading(True)

    def get_write_buffer_size(self) -> int:
        """Return the encrypted bytes that wait."""
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say from how many on the connection is told to pause."""
        self._socket.set_write_buffer_limits(high=high, low=low)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._socket.is_closing()

    def close(self) -> None:
        """Send what waits, then close."""
        if not self._socket.is_closing():
            self._protocol.say_goodbye()
            self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._socket.abort()


def _reason(error: Exception) -> str:
    """Say what went wrong, without OpenSSL's file names and line numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"client certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or repr(error)
