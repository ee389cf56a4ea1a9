"""Connections of a bookie: bytes in, requests to the handlers, answers out in batches.

Both wire versions share the port. Answers made in one turn of the loop (a whole group commit,
say) leave with one write per connection. Bounds, each of which ends at the peer's socket:

- a malformed or oversized frame closes that connection, with one log line, and nothing else;
- a connection with too many unanswered requests, or that does not read its answers, is not read;
  beyond twice as many, if a few bytes bring so many, adds and reads are refused;
- while too much is accepted and not yet durable, no connection is read;
- beyond `connections_max`, or `connections_per_host_max` of one host, new connections are closed;
- a connection that is silent for long, does not finish its request or does not read its answers is
  closed, or while too much of that kind is held for all of them (`client/wire/held.py`);
- beyond so many adds or reads of all connections, further ones are refused (`core/traffic.py`).

This file is the only home of the bookie's sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from bookie.core.backlog import Backlog
from bookie.core.traffic import Traffic, TrafficLimits, Work, is_urgent, work_of
from bookie.handlers import Handlers, too_many
from bookie.metrics import BookieMetrics
from client.errors import RemoteProtocolError
from client.wire.bookkeeper.connection import Call, ServerConnection, encode_answer
from client.wire.bookkeeper.messages import AddRequest, Buffer, Response, Status
from client.wire.held import Admission, Held
from client.wire.intake import make_window

logger = logging.getLogger(__name__)

_SWEEP_S: Final = 15.0
_REPEAT_S: Final = 10.0
"""A flood of connections beyond the limits is logged once in so many seconds."""


class ServerLimits(NamedTuple):
    """Bounds of a server; see the fields of the same names in `config.py`."""

    frame_bytes_max: int
    connections_max: int
    connections_per_host_max: int
    connection_idle_s: float
    frame_timeout_s: float
    unfinished_bytes_max: int
    unread_bytes_max: int
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
        self.surplus_at = 2 * limits.requests_in_flight_max
        """Beyond so many unanswered requests of a connection adds and reads are refused."""
        self.loop = loop
        self.metrics = metrics
        self.window = make_window()
        """Where connections receive."""
        self.is_stopping = False
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, None] = {}
        self._admission = Admission(limits.connections_max, limits.connections_per_host_max)
        self.unfinished: Held[_Connection] = Held(
            limits.unfinished_bytes_max, limits.frame_timeout_s
        )
        self.unread: Held[_Connection] = Held(limits.unread_bytes_max, limits.connection_idle_s)
        self._sweeper: asyncio.TimerHandle | None = None
        self._quiet_until_s = 0.0
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
        gauges["unfinished_bytes"] = lambda: self.unfinished.total_bytes
        gauges["unread_bytes"] = lambda: self.unread.total_bytes
        gauges["adds_in_progress"] = lambda: traffic.adds
        gauges["reads_in_progress"] = lambda: traffic.reads

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port (a free one for 0). Raises OSError if it is taken."""
        self._server = await self.loop.create_server(lambda: _Connection(self), host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        self._sweep()
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
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close()

    def add(self, connection: _Connection) -> str | None:
        """Take note of a new connection, or return why there may not be another one."""
        reason = self._admission.enter(connection.host)
        if reason is None:
            self._connections[connection] = None
        return reason

    def is_quiet(self) -> bool:
        """Say whether a refusal was logged just now; the caller logs one otherwise."""
        now_s = self.loop.time()
        if now_s < self._quiet_until_s:
            return True
        self._quiet_until_s = now_s + _REPEAT_S
        return False

    def remove(self, connection: _Connection) -> None:
        """A connection is gone."""
        if connection in self._connections:
            del self._connections[connection]
            self._admission.leave(connection.host)
        self.unfinished.forget(connection)
        self.unread.forget(connection)

    def make_room(self) -> None:
        """Cut off whoever holds longest while too much is held."""
        while (connection := self.unfinished.excess()) is not None:
            connection.cut_off("unfinished requests exceed unfinished_bytes_max")
        while (connection := self.unread.excess()) is not None:
            connection.cut_off("unread answers exceed unread_bytes_max")

    def _sweep(self) -> None:
        limits, now_s = self.limits, self.loop.time()
        for connection in self.unfinished.overdue(now_s):
            if connection.is_reading:
                connection.cut_off("unfinished request for longer than frame_timeout_ms")
        for connection in list(self._connections):
            connection.look_at_unread()
            if connection.is_idle(now_s - limits.connection_idle_s):
                logger.info("connection.idle peer=%s", connection.host)
                connection.abort()
        for connection in self.unread.overdue(now_s):
            connection.cut_off("unread answers for longer than connection_idle_ms")
        wait_s = min(_SWEEP_S, limits.connection_idle_s / 2, limits.frame_timeout_s / 2)
        self._sweeper = self.loop.call_later(wait_s, self._sweep)

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


class _Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, server: BookieServer) -> None:
        self._server = server
        self._wire = ServerConnection(
            frame_bytes_max=server.limits.frame_bytes_max, window=server.window
        )
        self._transport: Any = None
        self._peer: object = None
        self.host = ""
        self._last_heard_s = server.loop.time()
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
        self.host = str((self._peer or ("",))[0])  # type: ignore[index]
        reason = self._server.add(self)
        if reason is None:
            # While the disk is behind a new client waits like the others. Not now: uvloop begins
            # to read after this call, whatever was said in it, and may read once before the next.
            self._server.loop.call_soon(self.adjust_reading)
        elif self._server.is_quiet():
            self._shut()
        else:
            self._refuse(reason)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._out = []
        self._server.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.intake.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closed:
            return
        server = self._server
        self._last_heard_s = server.loop.time()
        try:
            calls = self._wire.received(nbytes)
        except RemoteProtocolError as error:
            self._refuse(str(error))
            return
        if not calls:
            self._note_unfinished(is_new=False)
            return
        began_s = server.metrics.stopwatch()
        run: list[Call] = []
        adds: list[AddRequest] = []
        room = self._room_for_adds()
        for call in calls:
            request = call.request
            if call.added is not None and len(run) < room and type(request) is AddRequest:
                run.append(call)
                adds.append(request)
                continue
            if run:
                self._add_run(run, adds, began_s)
                run, adds = [], []
            self._begin(call, began_s)
            room = self._room_for_adds()
        if run:
            self._add_run(run, adds, began_s)
        self._note_unfinished(is_new=True)
        server.served(self)
        self.adjust_reading()

    def _room_for_adds(self) -> int:
        """How many adds may be accepted without looking at each."""
        server = self._server
        return min(server.traffic.adds_left, server.surplus_at - self._in_flight)

    def _add_run(self, calls: list[Call], adds: list[AddRequest], began_s: float) -> None:
        """Serve adds that came together: with one answer, but for some that have to be judged."""
        server = self._server
        server.traffic.enter_adds(len(calls))
        self._in_flight += len(calls)
        while calls:
            count = server.handlers.add_run(adds, partial(self._added, calls, began_s))
            if count == len(calls):
                return
            rest = calls[count:]
            del calls[count:]  # it is answered as it is then
            server.handlers.add(adds[count], partial(self._added, rest[:1], began_s))
            calls, adds = rest[1:], adds[count + 1 :]

    def _begin(self, call: Call, began_s: float) -> None:
        """Serve one request."""
        server, request = self._server, call.request
        work = work_of(request)
        self._in_flight += 1
        is_surplus = self._in_flight > server.surplus_at and work is not Work.OTHER
        if (is_surplus and not is_urgent(request)) or not server.traffic.enter(work, request):
            self._turn_away(call)
        elif isinstance(request, AddRequest):
            server.handlers.add(request, partial(self._added, [call], began_s))
        else:
            server.handlers.handle(request, partial(self._answer, call, work, began_s))

    def pause_writing(self) -> None:
        self._is_unread = True
        self.look_at_unread()
        self._server.loop.call_soon(self._server.make_room)
        self.adjust_reading()

    def resume_writing(self) -> None:
        self._is_unread = False
        self._server.unread.forget(self)
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
            server.unfinished.resume(self, server.loop.time())
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def is_idle(self, silent_since_s: float) -> bool:
        """Say whether nothing was heard since then and no answer is owed."""
        return self._last_heard_s < silent_since_s and not self._in_flight

    def look_at_unread(self) -> None:
        """Count the answers that the peer does not read, if it is behind."""
        if self._is_unread and not self._is_closed:
            server = self._server
            size = self._transport.get_write_buffer_size()
            server.unread.note(self, size, server.loop.time())

    def cut_off(self, reason: str) -> None:
        """Close the connection at once: it holds what others need."""
        logger.warning("connection.cut_off peer=%s reason=%r", self._peer, reason)
        self._server.metrics.cut_off_connections += 1
        self.abort()

    def abort(self) -> None:
        """Close the connection without writing what is answered."""
        self._is_closed = True
        self._server.unfinished.forget(self)
        self._server.unread.forget(self)
        self._transport.abort()

    def _note_unfinished(self, *, is_new: bool) -> None:
        server = self._server
        intake = self._wire.intake
        held = intake.buffered_bytes
        if held or is_new:
            server.unfinished.note(
                self, held, server.loop.time(), is_new=is_new, reserved=intake.reserved_bytes
            )
            if server.unfinished.excess() is not None:
                server.make_room()

    def _refuse(self, reason: str) -> None:
        logger.warning("connection.refused peer=%s reason=%r", self._peer, reason)
        self._shut()

    def _shut(self) -> None:
        self._server.metrics.refused_connections += 1
        self.abort()

    def _turn_away(self, call: Call) -> None:
        """Refuse an add or a read that is beyond a limit."""
        metrics = self._server.metrics
        metrics.refused_requests += 1
        metrics.refused_adds += isinstance(call.request, AddRequest)
        self._send(call, too_many(cast(Any, call.request)))

    def _added(self, calls: Sequence[Call], began_s: float, status: Status) -> None:
        """Answer adds that came together."""
        server, is_success = self._server, status is Status.OK
        server.traffic.leave(Work.ADD, len(calls))
        metrics = server.metrics
        metrics.add_seconds.observe(metrics.stopwatch() - began_s, is_success, len(calls))
        ready = [call.added for call in calls if call.added is not None] if is_success else []
        if len(ready) < len(calls):
            for call in calls:
                request = cast(AddRequest, call.request)
                self._send(call, server.handlers.add_answer(request, status))
            return
        self._in_flight -= len(calls)
        if not self._is_closed:
            if not self._out:
                server.loop.call_soon(self._flush)
            self._out += ready

    def _answer(self, call: Call, work: Work, began_s: float, response: Response) -> None:
        server = self._server
        server.traffic.leave(work)
        if work is not Work.OTHER:
            metrics = server.metrics
            is_success = cast(Any, response).status is Status.OK
            metrics.read_seconds.observe(metrics.stopwatch() - began_s, is_success)
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
