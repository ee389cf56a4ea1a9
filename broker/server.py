"""Connections: bytes from sockets to the dispatcher, answers back, and every limit between.

This file is the only home of admission: how many connections, how many bytes and requests each
may have unanswered, when a socket is not read, and when a silent one is closed. The bounds of
requests hold by back-pressure: what cannot start stays in the connection's backlog (at most what
one read brought), and a connection with a backlog is not read.

A connection that breaks the protocol is closed with one log line and takes nobody along. So is one
that does not finish its request, or does not read its answers, for too long, or while too much of
that kind is held for all of them (`client/wire/held.py`).

Callbacks run on the event loop; there is no task per connection or request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from broker.config import BrokerConfig
from broker.dispatch import Dispatcher
from broker.metrics import Metrics
from broker.services import Peer
from client.errors import RemoteProtocolError
from client.wire.held import Admission, Held
from client.wire.intake import make_window
from client.wire.kafka.codec import Buffer
from client.wire.kafka.connection import ServerConnection, Slot

log = logging.getLogger(__name__)

_SWEEP_S: Final = 15.0
_REPEAT_S: Final = 10.0
"""A flood of refused connections is logged once in so many seconds."""
_LISTEN_BACKLOG: Final = 1024


class Server:
    """The listener and its connections."""

    def __init__(self, config: BrokerConfig, dispatcher: Dispatcher, metrics: Metrics) -> None:
        self.config = config
        self.dispatcher = dispatcher
        self.metrics = metrics
        self.in_flight_bytes = 0
        self._connections: dict[Connection, None] = {}
        self._admission = Admission(config.connections_max, config.connections_per_host_max)
        self.unfinished: Held[Connection] = Held(
            config.unfinished_bytes_max, config.frame_timeout_ms / 1000
        )
        """Requests that are not complete, or could not start yet."""
        self.unread: Held[Connection] = Held(
            config.unread_bytes_max, config.connection_idle_ms / 1000
        )
        """Answers that their clients do not read."""
        self._starved: dict[Connection, None] = {}
        self.window = make_window()
        """Where connections receive."""
        self._listener: asyncio.AbstractServer | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._quiet_until_s = 0.0
        metrics.provide_one("quire_broker_connections", lambda: len(self._connections))
        metrics.provide_one("quire_broker_in_flight_bytes", lambda: self.in_flight_bytes)
        metrics.provide_one("quire_broker_unfinished_bytes", lambda: self.unfinished.total_bytes)
        metrics.provide_one("quire_broker_unread_bytes", lambda: self.unread.total_bytes)

    async def start(self) -> int:
        """Listen; return the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self),
            self.config.listen_host,
            self.config.port,
            backlog=_LISTEN_BACKLOG,
        )
        self._sweep()
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection; answers already given are still sent."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        await self.dispatcher.close()

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    def admit(self, connection: Connection) -> bool:
        """Take in a new connection unless a limit is reached."""
        reason = self._admission.enter(connection.peer.host)
        if reason is not None:
            self.metrics.connections_refused += 1
            self._log_refusal(connection.peer.host, reason)
            return False
        self._connections[connection] = None
        self.metrics.connections_opened += 1
        return True

    def _log_refusal(self, host: str, reason: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _REPEAT_S
            log.warning(
                "connection.refused peer=%s reason=%r open=%d so_far=%d",
                host, reason, len(self._connections), self.metrics.connections_refused,
            )  # fmt: skip

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is gone."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._starved.pop(connection, None)
        self.unfinished.forget(connection)
        self.unread.forget(connection)
        self._admission.leave(connection.peer.host)

    def make_room(self) -> None:
        """Cut off whoever holds longest while too much is held."""
        while (connection := self.unfinished.excess()) is not None:
            connection.cut_off("unfinished requests exceed unfinished_bytes_max")
        while (connection := self.unread.excess()) is not None:
            connection.cut_off("unread answers exceed unread_bytes_max")

    def may_start(self, connection: Connection) -> bool:
        """Say whether bytes are left for another request; if not, wake `connection` later."""
        if self.in_flight_bytes < self.config.in_flight_bytes_max:
            return True
        self._starved[connection] = None
        return False

    def release(self, size: int) -> None:
        """Give back request bytes; wake connections that waited for them."""
        self.in_flight_bytes -= size
        if self._starved and self.in_flight_bytes < self.config.in_flight_bytes_max:
            loop = asyncio.get_running_loop()
            for connection in self._starved:
                loop.call_soon(connection.proceed)
            self._starved = {}

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        idle_s = self.config.connection_idle_ms / 1000
        patience_s = self.config.frame_timeout_ms / 1000
        for connection in self.unfinished.overdue(now_s):
            if connection.is_read:
                connection.cut_off("unfinished request for longer than frame_timeout_ms")
        for connection in list(self._connections):
            connection.look_at_unread(now_s)
            if connection.is_idle(now_s - idle_s):
                log.info("connection.idle peer=%s", connection.peer.host)
                connection.close()
            elif connection.is_closing_since(now_s - patience_s):
                connection.abort()
        for connection in self.unread.overdue(now_s):
            connection.cut_off("unread answers for longer than connection_idle_ms")
        self._sweeper = loop.call_later(min(_SWEEP_S, idle_s / 2, patience_s / 2), self._sweep)


class Connection(asyncio.BufferedProtocol):
    """One client. Implements `broker.dispatch.Channel`."""

    def __init__(self, server: Server) -> None:
        self.peer = Peer("", 0, "", 0)
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._wire = ServerConnection(server.config.request_bytes_max, server.window)
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[memoryview] = deque()
        self._last_heard_s = self._loop.time()
        # By the stopwatch. With a backlog nothing is read: all of it came when bytes came last.
        self._arrived_s = 0.0
        self._started_s = 0.0
        """When the dispatcher got its last request."""
        self._closing_since_s: float | None = None
        self._lost_call: Callable[[], None] | None = None
        self._muted = False
        # Answers not handed to the transport yet: early ones wait for their turn.
        self._unsent_bytes = 0
        self._writing_paused = False
        self._reading_paused = False
        self._proceeding = False
        self._flush_planned = False

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take in the connection, or close it at once if there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = _peer(self._transport)
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._server.config.send_buffer_bytes_max)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Say where the next bytes belong."""
        return self._wire.intake.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Split into requests and start those that may start."""
        if self._transport is None or self._transport.is_closing():
            return
        self._last_heard_s = self._loop.time()
        self._arrived_s = self._server.metrics.now_s()
        self._server.metrics.received_bytes += nbytes
        try:
            frames = self._wire.intake.received(nbytes)
        except RemoteProtocolError as error:
            self.fail(str(error))
            return
        if frames:
            self._backlog += frames
            self.proceed()
        self._note_unfinished(is_new=bool(frames))

    def pause_writing(self) -> None:
        """Stop starting requests: the client does not read its answers."""
        self._writing_paused = True
        self.look_at_unread(self._loop.time())
        self._loop.call_soon(self._server.make_room)

    def resume_writing(self) -> None:
        """Go on."""
        self._writing_paused = False
        self._server.unread.forget(self)
        self.proceed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything; requests under way finish without anybody to tell."""
        self._transport = None
        self._backlog.clear()
        self._server.forget(self)
        self._server.release(self._wire.in_flight_bytes)
        self._wire = ServerConnection(0, self._server.window)
        if self._lost_call is not None:
            self._lost_call()

    # --- broker.dispatch.Channel

    def open(self, api_key: int, request_size: int) -> Slot:
        """Reserve the next place in the order of answers."""
        self._server.in_flight_bytes += request_size
        return self._wire.open(request_size, api_key, self._arrived_s, self._started_s)

    def answer(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        """Send buffers, or nothing if empty, once it is the slot's turn."""
        if self._transport is None:
            return
        self._unsent_bytes += sum(map(len, buffers))
        now_s = self._server.metrics.now_s()
        if self._wire.answer(slot, buffers, now_s) and not self._flush_planned:
            # Answers that become ready in one turn of the loop leave with one system call.
            self._flush_planned = True
            if not self._proceeding:
                self._loop.call_soon(self._on_flush)

    def mute(self) -> None:
        """Start no further request until `unmute`."""
        self._muted = True

    def unmute(self) -> None:
        """Go on with the next request."""
        self._muted = False
        if self._backlog:
            self.proceed()

    def on_lost(self, call: Callable[[], None] | None) -> None:
        """Call this once the connection is gone; None takes it back."""
        self._lost_call = call

    def fail(self, reason: str) -> None:
        """Close the connection because of what the client sent."""
        self._server.metrics.protocol_errors += 1
        log.warning("connection.failed peer=%s port=%d reason=%s", self.peer.host, self.peer.port,
                    reason)  # fmt: skip
        self.close()

    # --- the rest

    @property
    def is_read(self) -> bool:
        """Whether bytes of the client are taken now."""
        return not self._reading_paused

    def cut_off(self, reason: str) -> None:
        """Close the connection at once: it holds what others need."""
        self._server.metrics.connections_cut_off += 1
        log.warning("connection.cut_off peer=%s port=%d reason=%r", self.peer.host, self.peer.port,
                    reason)  # fmt: skip
        self.abort()

    def abort(self) -> None:
        """Close the connection without sending what is ready."""
        self._server.unfinished.forget(self)
        self._server.unread.forget(self)
        self._backlog.clear()
        if self._transport is not None:
            self._closing_since_s = self._loop.time()
            self._transport.abort()

    def look_at_unread(self, now_s: float) -> None:
        """Count the answers that the client does not read, if it is behind."""
        if self._writing_paused and self._transport is not None:
            self._server.unread.note(self, self._transport.get_write_buffer_size(), now_s)

    def is_closing_since(self, time_s: float) -> bool:
        """Say whether it was closed before then and the client still does not read."""
        return self._closing_since_s is not None and self._closing_since_s < time_s

    def _note_unfinished(self, *, is_new: bool) -> None:
        if self._closing_since_s is not None:
            return
        intake = self._wire.intake
        held = intake.buffered_bytes
        if self._backlog:
            held += sum(map(len, self._backlog))
        unfinished = self._server.unfinished
        if held:
            unfinished.note(
                self, held, self._loop.time(), is_new=is_new, reserved=intake.reserved_bytes
            )
            if unfinished.excess() is not None:
                self._server.make_room()
        elif is_new:
            unfinished.forget(self)

    def close(self) -> None:
        """Send what is ready, then close."""
        if self._transport is None or self._transport.is_closing():
            return
        self._backlog.clear()
        self._server.unfinished.forget(self)
        self._flush()
        self._closing_since_s = self._loop.time()
        self._transport.close()

    def is_idle(self, silent_since_s: float) -> bool:
        """Say whether nothing was heard since then and nothing is owed."""
        return self._last_heard_s < silent_since_s and not self._wire.open_slots

    def proceed(self) -> None:
        """Start waiting requests as far as the limits allow."""
        if self._proceeding or self._transport is None:
            return
        self._proceeding = True
        try:
            while self._backlog and self._may_start():
                self._started_s = self._server.metrics.now_s()
                self._server.dispatcher.dispatch(self._backlog.popleft(), self)
                if self._flush_planned and not (self._backlog and self._may_start()):
                    self._flush()  # which may let more of the backlog start
        except RemoteProtocolError as error:
            self.fail(str(error))
        except Exception:  # the outermost loop of a connection: it alone goes down
            log.exception("connection.broken peer=%s", self.peer.host)
            self.close()
        finally:
            self._proceeding = False
        self._set_reading()

    def _may_start(self) -> bool:
        config = self._server.config
        return (
            not self._muted
            and not self._writing_paused
            and self._unsent_bytes < config.send_buffer_bytes_max
            and self._wire.in_flight_bytes < config.connection_in_flight_bytes_max
            and self._wire.open_slots < config.connection_requests_max
            and self._server.may_start(self)
        )

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        blocked = bool(self._backlog)
        if blocked and not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()
        elif not blocked and self._reading_paused:
            self._reading_paused = False
            intake = self._wire.intake
            self._server.unfinished.note(
                self, intake.buffered_bytes, self._loop.time(), reserved=intake.reserved_bytes
            )
            self._server.unfinished.resume(self, self._loop.time())
            transport.resume_reading()

    def _on_flush(self) -> None:
        self._flush()
        if self._backlog:
            self.proceed()

    def _flush(self) -> None:
        self._flush_planned = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        before = self._wire.in_flight_bytes
        now_s = self._server.metrics.now_s()
        buffers: list[Buffer] = []
        for slot in self._wire.take():
            buffers += slot.answer
            self._server.metrics.on_answered(slot, now_s)
        self._server.release(before - self._wire.in_flight_bytes)
        if buffers:
            size = sum(map(len, buffers))
            self._unsent_bytes -= size
            self._server.metrics.sent_bytes += size
            transport.writelines(buffers)


def _peer(transport: asyncio.Transport) -> Peer:
    host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
    local_host, local_port = (transport.get_extra_info("sockname") or ("", 0))[:2]
    return Peer(host, port, local_host, local_port)
