"""Connections: bytes from sockets to the dispatcher, answers back, and all limits in between.

Listening, admitting connections and closing idle ones is the same for all our servers
(`client/node/framed_server.py`). What is specific to Kafka is here: answers leave in the order of
requests, and each connection, and all of them together, may have only so many unanswered bytes and
requests. Back-pressure enforces these limits: requests that cannot start stay in the connection's
backlog (at most what one read returned), and a connection with a backlog is not read. If the
backlog has very many small requests, each turn of the loop starts only some of them.

A connection that violates the protocol is closed with one log line; no other one is affected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from broker.config import BrokerConfig
from broker.front.dispatch import Dispatcher
from broker.front.endpoints import listeners_of
from broker.front.pause import Pause
from broker.front.services import REQUEST_BYTES, Peer, Services
from broker.front.shares.share_requests import release
from broker.security.core.listeners import Listener
from broker.security.listener_security import ListenerSecurity
from client.errors import RemoteProtocolError
from client.held_memory import HeldMemory
from client.ids import ConnectionId
from client.node.connection_limits import RESERVED_PARTS, ConnectionLimits
from client.node.framed_server import FramedConnection, FramedServer
from client.node.logs import AT_WILL
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.connection import Buffer, ServerConnection, Slot

log = logging.getLogger(__name__)

_LISTEN_BACKLOG: Final = 1024
_REQUESTS_PER_TURN: Final = 200
"""Requests of one connection: a single read can return many thousands of the smallest ones."""

DECODED_TIMES: Final = 16
"""A decoded request takes up to this many times its encoded size: measured with a list of names of
one letter. Produce requests do not grow."""
LOGIN_DECODED_TIMES: Final = 4
"""The same of a request that may come before a login: none has lists, but copies are made of its
token, and a text takes up to four times its size."""


class RequestRoom:
    """What the requests of many connections may hold, and who waits for a part of it."""

    def __init__(
        self, memory: HeldMemory, bytes_max: Callable[[], int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.memory = memory
        self._bytes_max = bytes_max
        self._loop = loop
        self.starved: dict[Connection, None] = {}
        """Connections that wait for in-flight bytes, in the order of their turns."""
        self.turn: Connection | None = None
        """The connection that may start one request before those that wait."""
        self._is_planned = False

    def may_start(self, connection: Connection) -> bool:
        """Return whether there are in-flight bytes left for another request, and no connection
        waits for them; if not, this connection gets its turn later."""
        if self.turn is connection or (not self.starved and self._has_room()):
            return True
        self.starved[connection] = None
        self._note_starved()
        return False

    def forget(self, connection: Connection) -> None:
        """A connection waits no longer."""
        self.starved.pop(connection, None)
        self._note_starved()

    def _note_starved(self) -> None:
        """Have released bytes reported only while a connection waits for them."""
        self.memory.on_given = self._on_given if self.starved else None

    def _has_room(self) -> bool:
        return self.memory.size < self._bytes_max()

    def _on_given(self) -> None:
        """Bytes were released: waiting connections get their turns."""
        if not self._is_planned and self._has_room():
            self._is_planned = True
            self._loop.call_soon(self._give_turns)

    def _give_turns(self) -> None:
        """Let waiting connections start one request each, in turns, as long as there is room, so
        that a busy one does not take the room of all others."""
        self._is_planned = False
        while self.starved and self._has_room():
            connection = next(iter(self.starved))
            del self.starved[connection]
            self.turn = connection
            connection.proceed()
            self.turn = None
        self._note_starved()


class Server(FramedServer["Connection"]):
    """The listener and its connections."""

    def __init__(
        self,
        services: Services,
        dispatcher: Dispatcher,
        memory: HeldMemory,
        security: ListenerSecurity,
    ) -> None:
        """`memory`: where all holders of request bytes count them."""
        config, metrics = services.config, services.metrics
        self.inter_broker_name = config.security.inter_broker_name
        self.are_brokers_apart = len(config.security.listeners) > 1
        """Whether brokers have a listener of their own."""
        super().__init__(_connection_limits(config), asyncio.get_running_loop())
        self.security = security
        self.config = config
        self.dispatcher = dispatcher
        self.metrics = metrics
        self.memory = memory
        self.connections_that_fit: Callable[[int], int] = lambda wanted: wanted
        """Limits a number of connections to what the process has file descriptors for."""
        self._quotas_of_hosts = services.quotas
        self._services = services
        self.room = RequestRoom(memory, lambda: self.config.in_flight_bytes_max, self.loop)
        self.login_room = RequestRoom(
            HeldMemory(), lambda: self.config.security.sasl_logins_bytes_max, self.loop
        )
        """Of clients that have not logged in: what they do takes nothing of what others have."""
        self.last_connection = ConnectionId(0)
        """Number of the newest connection."""
        metrics.provide_one("quire_broker_connections", lambda: len(self._connections))
        metrics.provide_one("quire_broker_in_flight_bytes", lambda: self.in_flight_bytes)
        metrics.provide_one(
            "quire_broker_login_bytes",
            lambda: self.login_room.memory.size + self.strangers.total_bytes,
        )
        metrics.provide_one("quire_broker_unfinished_bytes", lambda: self.unfinished.total_bytes)
        metrics.provide_one("quire_broker_unread_bytes", lambda: self.unread.total_bytes)
        metrics.provide_one("quire_broker_unsent_bytes", lambda: self.unsent_bytes)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of requests that are held: unanswered, or not stored by all their bookies yet."""
        return self.memory.size

    async def start(self) -> Mapping[str, int]:
        """Listen; return the port of each listener by name.

        Raises OSError, ConfigError, MetadataError.
        """
        listeners = listeners_of(self.config)
        await self.security.prepare(listeners)
        ports: dict[str, int] = {}
        for listener in listeners:
            host, port = listener.bind
            ports[listener.name] = await self.listen(
                partial(self._connection, listener), host or None, port, backlog=_LISTEN_BACKLOG
            )
        return ports

    def _connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return self.security.protocol_for(listener, Connection(self, listener))

    def configure(self, config: BrokerConfig) -> None:
        """Apply the connection limits of the current configuration."""
        if config.connections_max != self.config.connections_max:
            fitting = self.connections_that_fit(config.connections_max)
        else:
            fitting = config.connections_max
        self.limit_connections(fitting, config.connections_per_host_max)

    async def close(self) -> None:
        """Stop listening and close every connection; answers that are ready are still sent."""
        self.close_all()
        await self.dispatcher.close()
        self.security.close()

    def admit(self, connection: Connection) -> bool:
        """Accept a new connection unless a limit is reached."""
        if not self._quotas_of_hosts.admits(connection.host):
            self.on_refused(connection, "connection_creation_rate", is_logged=False)
            return False
        is_admitted = super().admit(connection)
        self.metrics.connections_opened += is_admitted
        return is_admitted

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        super().forget(connection)
        connection.room.forget(connection)
        for session in self._services.shares.sessions.on_connection_lost(connection.number):
            release(self._services, session)

    def on_refused(self, connection: Connection, reason: str, *, is_logged: bool) -> None:
        """A connection is about to be closed because of a limit."""
        self.metrics.connections_refused += 1
        if is_logged:
            log.warning(
                "connection.refused peer=%s reason=%r open=%d so_far=%d", connection.peer.host,
                reason, len(self._connections), self.metrics.connections_refused,
            )  # fmt: skip

    def on_cut_off(self, connection: Connection, reason: str) -> None:
        """A connection is about to be closed at once: it holds memory that others need."""
        self.metrics.connections_cut_off += 1
        peer = connection.peer
        log.warning("connection.cut_off peer=%s port=%d reason=%r", peer.host, peer.port, reason)

    def on_idle(self, connection: Connection) -> None:
        """An idle connection is about to be closed."""
        log.info("connection.idle peer=%s", connection.peer.host, extra=AT_WILL)


class Connection(FramedConnection):
    """One client. Implements `broker.front.dispatch.Channel`."""

    _server: Server

    def __init__(self, server: Server, listener: Listener) -> None:
        self.peer = Peer("", 0, "", 0, listener.name)
        # Connections are created in the order in which they are accepted.
        server.last_connection = self.number = ConnectionId(server.last_connection + 1)
        self.login = server.security.login_of(listener, self._on_user, self.fail, self._let_go)
        config = server.config
        frame_bytes_max = config.request_bytes_max
        self.room = server.room
        if self.login is not None:
            frame_bytes_max = config.security.sasl_login_bytes_max
            self.room = server.login_room
        self._wire = ServerConnection(frame_bytes_max, server.window, self.room.memory)
        super().__init__(
            server,
            self._wire.intake,
            is_stranger=self.login is not None or listener.protocol.is_tls,
            is_own=server.are_brokers_apart and listener.name == server.inter_broker_name,
        )
        self._backlog: deque[memoryview] = deque()
        # By the stopwatch. With a backlog nothing is read: all of it arrived with the last read.
        self._arrived_s = 0.0
        self._started_s = 0.0
        """When the last request was dispatched."""
        self._lost_call: Callable[[], None] | None = None
        self.pause = Pause(server.loop, self._go_on)
        # Answers not handed to the transport yet: those that are ready early wait for their turn.
        self._unsent_bytes = 0
        self._is_behind = False
        """Whether these are so many that they count as unread."""
        self._proceeding = False
        self._flush_planned = False
        self._is_turn_planned = False

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it at once if there are too many."""
        self.peer = _peer(transport, self.peer.listener)
        super().connection_made(transport)

    def on_secured(self) -> None:
        """The TLS handshake is done: the client may have authenticated by its certificate."""
        assert self._transport is not None, "the handshake was on this transport"
        if self.login is not None:
            return
        user = self._server.security.user_of(self._transport)
        if user is None:
            self.fail(
                "the client's certificate names nobody by tls_principal_rules, or a"
                " user that no certificate may name"
            )
        else:
            self.peer = self.peer._replace(user=user)
            self.welcome()

    def _on_user(self, user: str) -> None:
        """The client has logged in: its requests may be large now, and count with all others."""
        self.peer = self.peer._replace(user=user)
        self._intake.set_frame_bytes_max(self._server.config.request_bytes_max)
        self.room.forget(self)
        self.room = self._server.room
        self._wire.count_in(self.room.memory)
        self.welcome()

    def _let_go(self) -> None:
        """Nothing of the requests under way is held any more, though they are not answered."""
        for slot in self._wire.slots:
            slot.hand_over()

    def resume_writing(self) -> None:
        """The transport accepts data again."""
        super().resume_writing()
        if self._is_behind:
            self._count_unread()
        self.proceed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything. Requests in progress finish without an answer, and the memory that
        they hold stays counted until then."""
        super().connection_lost(exc)
        self._backlog.clear()
        self.pause.close()
        if self.login is not None:
            self.login.close()
        for slot in self._wire.close():
            slot.release()
        self._wire = ServerConnection(0, self._server.window, self._server.memory)
        self._intake = self._wire.intake
        if self._lost_call is not None:
            self._lost_call()

    # --- broker.dispatch.Channel

    def open(self, api_key: int, request_size: int) -> Slot:
        """Reserve the next place in the order of answers.

        Until it is answered, the request counts with its size in memory, not its encoded size.
        """
        if self.room is self._server.login_room:
            times = LOGIN_DECODED_TIMES
        else:
            times = 1 if api_key == ApiKey.PRODUCE else DECODED_TIMES
        held_bytes = REQUEST_BYTES + times * request_size
        return self._wire.open(held_bytes, api_key, self._arrived_s, self._started_s)

    def answer(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        """Send the buffers, if any, when it is the slot's turn."""
        if self._transport is None:
            slot.release()
            return
        self._unsent_bytes += sum(map(len, buffers))
        if slot.throttle_ms or self.pause.is_throttled:
            self.pause.on_answer(slot)
        now_s = self._server.metrics.now_s()
        if self._wire.answer(slot, buffers, now_s) and not self._flush_planned:
            # Answers that become ready in one turn of the loop leave with one system call.
            self._flush_planned = True
            if not self._proceeding:
                self._loop.call_soon(self._on_flush)
        elif self._unsent_bytes > self._server.unsent_mark and not self._flush_planned:
            self._is_behind = True  # it waits for earlier requests of the same connection
            self._count_unread()
        if self.login is not None and self.login.failure:
            self._loop.call_soon(self.fail, self.login.failure)

    def mute(self) -> None:
        """Start no further request until `unmute`."""
        self.pause.is_muted = True

    def unmute(self) -> None:
        """Go on with the next request."""
        self.pause.is_muted = False
        self._go_on()

    def on_lost(self, call: Callable[[], None] | None) -> None:
        """Call `call` when the connection is lost; None cancels that."""
        self._lost_call = call

    def fail(self, reason: str, *, is_replaced: bool = False) -> None:
        """Close the connection because the client violated the protocol, or has opened another
        connection that replaces it."""
        host, port = self.peer[:2]
        if is_replaced:
            log.info("connection.replaced peer=%s port=%d reason=%r", host, port, reason,
                     extra=AT_WILL)  # fmt: skip
        else:
            self._server.metrics.protocol_errors += 1
            log.warning("connection.failed peer=%s port=%d reason=%s", host, port, reason,
                        extra=AT_WILL)  # fmt: skip
        self.close()

    # --- client.node.framed_server.FramedConnection

    @property
    def unanswered_count(self) -> int:
        """Requests whose answers are owed."""
        return self._wire.open_slots

    def _serve(self, frames: list[memoryview], size: int) -> int:
        metrics = self._server.metrics
        metrics.received_bytes += size
        if frames:
            self._arrived_s = metrics.now_s()
            self._backlog += frames
            self.proceed()
        return sum(map(len, self._backlog)) if self._backlog else 0

    def _drop_waiting(self) -> None:
        super()._drop_waiting()
        self._backlog.clear()

    def _unsent_bytes_now(self) -> int:
        """Unsent bytes, including answers that wait for their turn."""
        return super()._unsent_bytes_now() + self._unsent_bytes

    # --- the rest

    def proceed(self) -> None:
        """Start waiting requests as far as the limits allow."""
        if self._proceeding or self._transport is None:
            return
        self._proceeding = True
        server, count = self._server, 0
        try:
            while self._backlog and self._may_start():
                if count == _REQUESTS_PER_TURN:
                    self._plan_turn()
                    break
                count += 1
                self._started_s = server.metrics.now_s()
                self._wire.newest = None
                self.room.turn = None
                server.dispatcher.dispatch(self._backlog.popleft(), self)
                if self._flush_planned and not (self._backlog and self._may_start()):
                    self._flush()  # which may let more of the backlog start
        except RemoteProtocolError as error:
            self._forget_opened()
            self.fail(str(error))
        except Exception:  # the outermost loop of a connection: only this one is closed
            log.exception("connection.broken peer=%s", self.peer.host)
            self._forget_opened()
            self.close()
        finally:
            self._proceeding = False
        if self.is_reading == bool(self._backlog):
            self._set_reading(not self._backlog)

    def _forget_opened(self) -> None:
        """Release the slot of the request that could not be started: it will not be answered."""
        if self._wire.newest is not None:
            self._wire.newest.release()

    def _plan_turn(self) -> None:
        """Continue in another turn of the loop."""
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self._server.dispatcher.turns.on_turn(self._on_turn)

    def _on_turn(self) -> None:
        self._is_turn_planned = False
        self.proceed()

    def _may_start(self) -> bool:
        config, pause = self._server.config, self.pause
        return (
            not pause.is_muted
            and not pause.is_throttled
            and not self._is_unread
            and self._unsent_bytes < self._server.unsent_mark
            and self._wire.in_flight_bytes < config.connection_in_flight_bytes_max
            and len(self._wire.slots) < config.connection_requests_max
            and self.room.may_start(self)
        )

    def _on_flush(self) -> None:
        self._flush()
        if self._backlog:
            self.proceed()

    def _go_on(self) -> None:
        if self._backlog:
            self.proceed()

    def _flush(self) -> None:
        self._flush_planned = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        now_s = self._server.metrics.now_s()
        buffers: list[Buffer] = []
        for slot in self._wire.take():
            buffers += slot.answer
            slot.release()
            self._server.metrics.on_answered(slot, now_s)
        if buffers:
            size = sum(map(len, buffers))
            self._unsent_bytes -= size
            self._server.metrics.sent_bytes += size
            self._write(buffers)
            if self._is_behind and not self._is_unread:
                self._is_behind = False
                self._server.unread.forget(self)


def _connection_limits(config: BrokerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        connections_max=config.connections_max,
        connections_per_host_max=config.connections_per_host_max,
        reserved_max=(
            config.connections_max // RESERVED_PARTS if len(config.security.listeners) > 1 else 0
        ),
        connection_idle_s=config.connection_idle_ms / 1000,
        frame_timeout_s=config.frame_timeout_ms / 1000,
        unfinished_bytes_max=config.unfinished_bytes_max,
        unread_bytes_max=config.unread_bytes_max,
        strangers_bytes_max=config.security.sasl_logins_bytes_max,
        unsent_bytes_max=config.send_buffer_bytes_max,
    )


def _peer(transport: asyncio.BaseTransport, listener: str) -> Peer:
    host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
    local_host, local_port = (transport.get_extra_info("sockname") or ("", 0))[:2]
    return Peer(host, port, local_host, local_port, listener)
