"""Connections of a bookie: bytes in, requests to the handlers, answers out in batches.

Both wire versions share the port. Answers made in one turn of the loop (a whole group commit,
say) leave with one write per connection. Bounds, each of which ends at the peer's socket:

- a malformed or oversized frame closes that connection, with one log line, and nothing else;
- a connection with too many unanswered requests, or that does not read its answers, is not read;
  beyond twice as many, if a few bytes bring so many, adds and reads are refused;
- while too much is accepted and not yet durable, no connection is read;
- beyond `connections_max`, new connections are closed;
- beyond so many adds or reads of all connections, further ones are refused (`core/traffic.py`).

This file is the only home of the bookie's sockets.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, NamedTuple, cast

from bookie.core.backlog import Backlog
from bookie.core.traffic import Traffic, TrafficLimits, Work, is_urgent, work_of
from bookie.handlers import Handlers, too_many
from bookie.metrics import BookieMetrics
from client.errors import RemoteProtocolError
from client.wire.bookkeeper.connection import Call, ServerConnection, encode_answer
from client.wire.bookkeeper.messages import AddRequest, Buffer, Response, Status

logger = logging.getLogger(__name__)


class ServerLimits(NamedTuple):
    """Bounds of a server; see the fields of the same names in `config.py`."""

    frame_bytes_max: int
    connections_max: int
    requests_in_flight_max: int
    unsent_bytes_max: int
    traffic: TrafficLimits


class BookieServer:
    """Accepts connections and serves them."""

    def __init__(
        self,
        handlers: Handlers,
        backlog: Backlog,
        limits: ServerLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
    ) -> None:
        self.handlers = handlers
        self.backlog = backlog
        self.limits = limits
        self.loop = loop
        self.metrics = metrics
        self.is_stopping = False
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}
        self.traffic = traffic = Traffic(limits.traffic)
        backlog.on_change = self._adjust_all
        gauges = metrics.gauges
        gauges["connections"] = lambda: len(self._connections)
        gauges["connections_waiting_for_disk"] = lambda: sum(
            not each.is_reading for each in self._connections if backlog.is_over
        )
        gauges["connections_waiting_for_peer"] = lambda: sum(
            not each.is_reading for each in self._connections if not backlog.is_over
        )
        gauges["adds_in_progress"] = lambda: traffic.adds
        gauges["reads_in_progress"] = lambda: traffic.reads

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port (a free one for 0). Raises OSError if it is taken."""
        self._server = await self.loop.create_server(lambda: _Connection(self), host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def stop_reading(self) -> None:
        """Accept nothing new: no connections, no requests. What is in flight is answered."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        self._adjust_all()

    def stop(self) -> None:
        """Close all connections once the answers made so far are written."""
        self.stop_reading()
        for connection in list(self._connections):
            connection.close()

    def add(self, connection: _Connection) -> bool:
        """Take note of a new connection; False if there are too many."""
        if len(self._connections) >= self.limits.connections_max:
            return False
        self._connections[connection] = None
        return True

    def remove(self, connection: _Connection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)

    def served(self, connection: _Connection) -> None:
        """A connection brought bytes: while they are more than enough, the others come first.

        Connections are read again in the order of this table, and the first one alone may bring
        enough for all of them to wait again.
        """
        if self.backlog.is_over and self._connections.pop(connection, self) is None:
            self._connections[connection] = None

    def _adjust_all(self) -> None:
        for connection in list(self._connections):
            connection.adjust_reading()


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: BookieServer) -> None:
        self._server = server
        self._wire = ServerConnection(frame_bytes_max=server.limits.frame_bytes_max)
        self._transport: Any = None
        self._peer: object = None
        self._out: list[Buffer] = []
        self._in_flight = 0
        self.is_reading = True
        self._is_unread = False
        """Whether the peer does not read its answers."""
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._peer = transport.get_extra_info("peername")
        self._transport.set_write_buffer_limits(high=self._server.limits.unsent_bytes_max)
        if self._server.add(self):
            # While the disk is behind a new client waits like the others. Not now: uvloop begins
            # to read after this call, whatever was said in it, and may read once before the next.
            self._server.loop.call_soon(self.adjust_reading)
        else:
            self._refuse("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._out = []
        self._server.remove(self)

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        try:
            calls = self._wire.receive_data(data)
        except RemoteProtocolError as error:
            self._refuse(str(error))
            return
        server = self._server
        handle, enter = server.handlers.handle, server.traffic.enter
        surplus_at = 2 * server.limits.requests_in_flight_max
        began_s = server.metrics.stopwatch()
        for call in calls:
            request = call.request
            work = work_of(request)
            self._in_flight += 1
            is_surplus = self._in_flight > surplus_at and work is not Work.OTHER
            if (is_surplus and not is_urgent(request)) or not enter(work, request):
                self._turn_away(call)
                continue
            handle(request, partial(self._answer, call, work, began_s))
        server.served(self)
        self.adjust_reading()

    def pause_writing(self) -> None:
        self._is_unread = True
        self.adjust_reading()

    def resume_writing(self) -> None:
        self._is_unread = False
        self.adjust_reading()

    def close(self) -> None:
        """Write what is answered, then close."""
        self._flush()
        self._is_closed = True
        self._transport.close()

    def adjust_reading(self) -> None:
        """Read from the peer, or let its bytes wait in the socket."""
        server = self._server
        may_read = not (
            self._is_unread
            or self._in_flight > server.limits.requests_in_flight_max
            or server.backlog.is_over
            or server.is_stopping
        )
        if may_read == self.is_reading or self._is_closed:
            return
        self.is_reading = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, reason: str) -> None:
        logger.warning("connection.refused peer=%s reason=%r", self._peer, reason)
        self._server.metrics.refused_connections += 1
        self._is_closed = True
        self._transport.abort()

    def _turn_away(self, call: Call) -> None:
        """Refuse an add or a read that is beyond a limit."""
        metrics = self._server.metrics
        metrics.refused_requests += 1
        metrics.refused_adds += isinstance(call.request, AddRequest)
        self._send(call, too_many(cast(Any, call.request)))

    def _answer(self, call: Call, work: Work, began_s: float, response: Response) -> None:
        server = self._server
        server.traffic.leave(work)
        if work is not Work.OTHER:
            metrics = server.metrics
            latency = metrics.add_seconds if work is Work.ADD else metrics.read_seconds
            is_success = cast(Any, response).status is Status.OK
            latency.observe(metrics.stopwatch() - began_s, is_success)
        self._send(call, response)

    def _send(self, call: Call, response: Response) -> None:
        self._in_flight -= 1
        if self._is_closed:
            return
        if not self._out:
            self._server.loop.call_soon(self._flush)
        self._out += encode_answer(call, response)

    def _flush(self) -> None:
        if self._out and not self._is_closed:
            out, self._out = self._out, []
            self._transport.writelines(out)
        if not self.is_reading:
            self.adjust_reading()
