"""What an HTTP server of ours bears of strangers before a request is complete.

aiohttp bounds the size of a request's head and body and forgets how long either takes: a thousand
connections that send a header a minute are a thousand open files for ever. Here each connection has
a door in front of aiohttp's protocol: so many in total, and so long without a request under way.
`watch` is the middleware that tells the doors when one is; it also gives a body its time.

Bodies are held in memory until their requests end, so all of them together have a limit, too:
beyond it a request is told to come again. Brokers and bookies share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CONNECTIONS_MAX: Final = 500
PATIENCE_S: Final = 30.0
"""For a request's head, for its body, and between two requests."""
BODIES_BYTES_MAX: Final = 64 << 20
"""Of the requests under way, all together; one that says no length counts as the largest."""
_SWEEP_S: Final = 5.0


class HttpConnections:
    """The connections of one HTTP server."""

    def __init__(
        self, connections_max: int = CONNECTIONS_MAX, patience_s: float = PATIENCE_S
    ) -> None:
        self._connections_max = connections_max
        self._patience_s = patience_s
        self._doors: dict[object, _HttpConnection] = {}
        """aiohttp's protocol -> the door in front of it."""
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.refused_count = 0
        self.bodies_bytes = 0
        """Of the requests under way."""

    async def listen(self, runner: web.AppRunner, host: str, port: int, **options: Any) -> int:
        """Serve what `runner`, which is set up, has; return the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        make = cast(Callable[[], asyncio.Protocol], runner.server)
        self._listener = await loop.create_server(
            lambda: _HttpConnection(self, make()), host, port, **options
        )
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
        """Read a request's body.

        Raises web.HTTPRequestTimeout if that takes too long, web.HTTPServiceUnavailable if too
        many are held already.
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
                return await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body took too long\n") from None

    def enter(self, door: _HttpConnection) -> bool:
        """Take in a connection unless there are too many."""
        if len(self._doors) >= self._connections_max:
            self.refused_count += 1
            return False
        self._doors[door.inner] = door
        return True

    def leave(self, door: _HttpConnection) -> None:
        """A connection is gone."""
        self._doors.pop(door.inner, None)

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
        self._doors = doors
        self._is_in = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
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
