"""Limits what strangers take of our HTTP servers before a request is complete.

aiohttp bounds the size of a request's head and body and forgets how long either takes: a thousand
connections that send a header a minute are a thousand open files for ever. Here each connection has
a door in front of aiohttp's protocol, which limits how many there are in total, and how long one
may be without a request under way. One address has a part of the places only, and some are kept
for this machine: whoever opens connections until there are no more keeps neither the probes of an
orchestrator out nor the operator at the machine.
`watch` is the middleware that tells the doors when one is; it also gives a body its time.

Bodies are held in memory until their requests end, so all of them together have a limit, too:
beyond it a request is told to come again.

With TLS a door is there from the first byte on (`tls/transport.py`), so a handshake counts as a
connection, and is bounded as those of other ports are. Each connection gets the context of the
moment: a certificate that has changed is shown to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

from client.node.http_bodies import read_body
from client.node.logs import AT_WILL
from client.node.tls.transport import TlsGate, TlsProtocol
from client.security.admin_access import is_loopback
from client.security.networks import network_of
from client.wire.frames import make_window

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CONNECTIONS_MAX: Final = 500
RESERVED_PARTS: Final = 10
"""One of so many places is for connections from this machine."""
PER_HOST_PARTS: Final = 4
"""One of so many places, at most, is for one other address."""
PATIENCE_S: Final = 30.0
"""For a request's head, for its body, and between two requests."""
BODIES_BYTES_MAX: Final = 64 << 20
"""Of the requests under way, all together; one that says no length counts as the largest."""
CLOSE_S: Final = 1.0
"""How long requests under way may take when the port closes, before they are cancelled."""
_SWEEP_S: Final = 5.0
_HANDSHAKE_TIMEOUT_S: Final = 10.0
_HANDSHAKES_MAX: Final = 100


class HttpConnections:
    """The connections of one HTTP server."""

    def __init__(
        self, connections_max: int = CONNECTIONS_MAX, patience_s: float = PATIENCE_S
    ) -> None:
        self._connections_max = connections_max
        self._strangers_max = connections_max - connections_max // RESERVED_PARTS
        self._per_host_max = max(1, connections_max // PER_HOST_PARTS)
        self._per_host: Counter[str] = Counter()
        """By network, of other machines."""
        self._patience_s = patience_s
        self._doors: dict[object, _HttpConnection] = {}
        """aiohttp's protocol -> the door in front of it."""
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._gate: TlsGate | None = None
        self.refused_count = 0
        self.bodies_bytes = 0
        """Of the requests under way."""

    async def listen(
        self,
        runner: web.AppRunner,
        host: str,
        port: int,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> int:
        """Serve what `runner`, which is set up, has; return the port. Raises OSError.

        `tls`: returns the context of the next connection; None: it speaks plain text.
        """
        loop = asyncio.get_running_loop()
        inner = cast("Callable[[], asyncio.Protocol]", runner.server)

        def make_plain() -> asyncio.BaseProtocol:
            return _HttpConnection(self, inner())

        def make_secured() -> asyncio.BaseProtocol:
            context = tls()
            assert context is not None, "a port that speaks TLS goes on to"
            return TlsProtocol(gate, context, _TlsHttpConnection(self, inner(), window), _nothing)

        make = make_plain
        if tls() is not None:
            gate = self._gate = TlsGate(
                loop, handshake_timeout_s=_HANDSHAKE_TIMEOUT_S, handshakes_max=_HANDSHAKES_MAX
            )
            window = make_window()
            make = make_secured

        self._listener = await loop.create_server(make, host, port)
        self._sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening. Open connections are `runner`'s to end."""
        if self._listener is not None:
            self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Run a request; its connection is not idle meanwhile."""
        door = self._doors.get(request.protocol)
        if door is not None:
            door.is_busy = True
        try:
            return await handler(request)
        finally:
            if door is not None:
                door.is_busy = False
                self.bodies_bytes -= door.body_bytes
                door.body_bytes = 0
                door.since_s = asyncio.get_running_loop().time()

    @web.middleware
    async def whole(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Read a request's body before it is looked at; for servers whose bodies are small."""
        if request.can_read_body:
            await self.body(request)
        return await handler(request)

    async def body(self, request: web.Request) -> bytes:
        """Read a request's body, as `read_body` does.

        Raises also web.HTTPRequestTimeout if that takes too long, web.HTTPServiceUnavailable if
        too many are held already.
        """
        size = request.content_length
        if size is None or size > request.client_max_size:
            size = request.client_max_size
        if self.bodies_bytes and self.bodies_bytes + size > BODIES_BYTES_MAX:
            raise web.HTTPServiceUnavailable(text="too many large requests at once: try again\n")
        door = self._doors.get(request.protocol)
        if door is not None:  # gone already: nothing comes
            door.body_bytes = size
            self.bodies_bytes += size
        try:
            async with asyncio.timeout(self._patience_s):
                return await read_body(request)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body took too long\n") from None

    def enter(self, door: _HttpConnection) -> bool:
        """Take in a connection unless there are too many, of all or from its address."""
        is_here = is_loopback(door.host)
        places = self._connections_max if is_here else self._strangers_max
        key = network_of(door.host)
        if len(self._doors) >= places or self._per_host[key] >= self._per_host_max:
            self.refused_count += 1
            return False
        self._doors[door.inner] = door
        if not is_here:
            self._per_host[key] += 1
        return True

    @property
    def handshakes_failed(self) -> int:
        """TLS handshakes that failed, or were not begun."""
        return 0 if self._gate is None else self._gate.failures

    def leave(self, door: _HttpConnection) -> None:
        """A connection is gone."""
        del self._doors[door.inner]
        if is_loopback(door.host):
            return
        key = network_of(door.host)
        self._per_host[key] -= 1
        if not self._per_host[key]:
            del self._per_host[key]

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        since_s = loop.time() - self._patience_s
        for door in list(self._doors.values()):
            if not door.is_busy and door.since_s < since_s:
                door.transport.abort()
        self._sweeper = loop.call_later(min(_SWEEP_S, self._patience_s / 2), self._sweep)


class _HttpConnection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, if it may come in."""

    def __init__(self, doors: HttpConnections, inner: asyncio.Protocol) -> None:
        self.inner = inner
        self.is_busy = False
        self.body_bytes = 0
        """What the body of the request under way counts for."""
        self.since_s = asyncio.get_running_loop().time()
        self.transport: asyncio.Transport
        self.host = ""
        self._doors = doors
        self._is_in = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.host = (transport.get_extra_info("peername") or ("",))[0]
        self._is_in = self._doors.enter(self)
        if self._is_in:
            self.inner.connection_made(transport)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_in:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received() if self._is_in else None

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_in:
            self._doors.leave(self)
            self.inner.connection_lost(exc)


class _TlsHttpConnection(_HttpConnection):
    """The same behind TLS, which hands over bytes by a buffer."""

    def __init__(self, doors: HttpConnections, inner: asyncio.Protocol, window: memoryview) -> None:
        """`window`: shared by all, as bytes stay there for a moment only."""
        super().__init__(doors, inner)
        self._window = window

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes belong."""
        return self._window

    def buffer_updated(self, nbytes: int) -> None:
        """Take them."""
        self.data_received(bytes(self._window[:nbytes]))

    missing_bytes = 1
    """Of which only aiohttp knows."""

    def take_plain(self, data: memoryview) -> int:
        """Take what comes in plain text before TLS: nothing."""
        del data
        return 0

    def fail(self, reason: str) -> None:
        """Close the connection because of what the peer sent."""
        log.warning("admin.connection_failed peer=%s reason=%r", self.host, reason, extra=AT_WILL)
        self.transport.close()


def _nothing() -> None:
    """What happens when a handshake is done: requests say who is there."""
