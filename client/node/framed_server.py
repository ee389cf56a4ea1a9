"""A server whose peers send length-framed requests: its listener, its connections, their limits.

Broker and bookie are made of it. It knows frames and no protocol: `FramedServer` listens, lets
connections in and looks after them now and then; a `FramedConnection` receives frames for its
subclass, which serves them and writes the answers. Limits that hold for both:

- beyond `connections_max`, or `connections_per_host_max` of one host, new connections are closed;
  so are those of strangers while half of all are theirs, and a part is for the cluster's own nodes;
- a connection that is silent for long and is owed no answer is closed;
- one that does not finish its request, or does not read its answers, is cut off when that takes too
  long, or while too much of that kind is held for all of them (`connection_limits.py`);
- answers count as unread beyond a mark, which is lower the more connections there are, so that what
  is not counted has a limit, too.

What is said and counted of it differs: see the methods of `FramedServer` that begin with `on_`.
Callbacks run on the event loop; there is no task per connection.
"""

from __future__ import annotations

import abc
import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from client.errors import RemoteProtocolError
from client.node.connection_limits import ConnectionLimits, ConnectionQuotas, HeldBytes
from client.wire.frames import Chunk, FrameIntake, make_window

_SWEEP_S: Final = 15.0
_REPEAT_S: Final = 10.0
"""A flood of refused connections is logged once in so many seconds."""

OPEN: Final = math.inf
"""When a connection that is open was closed: never so far."""

C = TypeVar("C", bound="FramedConnection")


class FramedServer(abc.ABC, Generic[C]):
    """The listener and its connections."""

    def __init__(self, limits: ConnectionLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.connection_limits = limits
        self.loop = loop
        self.window = make_window()
        """Where connections receive."""
        self.unfinished: HeldBytes[C] = HeldBytes(
            limits.unfinished_bytes_max, limits.frame_timeout_s
        )
        """Requests that are not complete, or could not start yet."""
        self.strangers: HeldBytes[C] = HeldBytes(limits.strangers_bytes_max, limits.frame_timeout_s)
        """The same of peers that have not said who they are: what they hold cuts off none but
        them."""
        self.unread: HeldBytes[C] = HeldBytes(limits.unread_bytes_max, limits.connection_idle_s)
        """Answers that their clients do not read."""
        self.unsent_mark = limits.unsent_mark(0)
        """Answers that a peer has not taken count as unread from here on."""
        self._connections: dict[C, None] = {}
        self._quotas = ConnectionQuotas(
            limits.connections_max, limits.connections_per_host_max,
            reserved_max=limits.reserved_max,
        )  # fmt: skip
        self._listeners: list[asyncio.AbstractServer] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._quiet_until_s = 0.0

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of all answers that peers have not taken, whether they are behind or not."""
        return sum(connection._unsent_bytes_now() for connection in self._connections)

    def limit_connections(self, total_max: int, per_host_max: int) -> None:
        """Change how many connections are let in from now on; those that are open stay."""
        self._quotas.limit(total_max, per_host_max)

    async def listen(
        self, make: Callable[[], asyncio.BaseProtocol], host: str | None, port: int, **options: Any
    ) -> int:
        """Accept connections and return the port (a free one for 0); may be called for several
        addresses. Raises OSError.

        `make` returns a connection, or what stands between it and the socket.
        """
        listener = await self.loop.create_server(make, host, port, **options)
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweep()
        return int(listener.sockets[0].getsockname()[1])

    def stop_listening(self) -> None:
        """Accept no more connections."""
        for listener in self._listeners:
            listener.close()

    def close_all(self) -> None:
        """Stop listening and close every connection; answers already given are still sent."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.stop_listening()
        for connection in list(self._connections):
            connection.close()

    def admit(self, connection: C) -> bool:
        """Take in a new connection unless a limit is reached."""
        reason = self._quotas.add(
            connection.host, is_own=connection.is_own, is_stranger=connection.is_stranger
        )
        if reason is None:
            self._connections[connection] = None
            mark = self.connection_limits.unsent_mark(len(self._connections))
            if mark < self.unsent_mark:
                self._set_unsent_mark(mark)
            return True
        now_s = self.loop.time()
        is_quiet = now_s < self._quiet_until_s
        if not is_quiet:
            self._quiet_until_s = now_s + _REPEAT_S
        self.on_refused(connection, reason, is_logged=not is_quiet)
        return False

    def forget(self, connection: C) -> None:
        """Drop a connection that is gone."""
        if connection in self._connections:
            del self._connections[connection]
            self._quotas.remove(
                connection.host, is_own=connection.is_own, is_stranger=connection.is_stranger
            )
            # Not before half of the crowd is gone, or one that comes and goes would cost us much.
            mark = self.connection_limits.unsent_mark(2 * len(self._connections))
            if mark > self.unsent_mark:
                self._set_unsent_mark(mark)
        connection.unfinished.forget(connection)
        self.unread.forget(connection)

    def welcome(self, connection: C) -> None:
        """A connection has said who it is."""
        if connection in self._connections:
            self._quotas.welcome()

    def make_room(self) -> None:
        """Cut off whoever holds longest while too much is held."""
        while (connection := self.unfinished.excess()) is not None:
            connection.cut_off("unfinished requests exceed unfinished_bytes_max")
        while (connection := self.strangers.excess()) is not None:
            connection.cut_off("unfinished requests of strangers exceed their limit")
        while (connection := self.unread.excess()) is not None:
            connection.cut_off("unread answers exceed unread_bytes_max")

    def _set_unsent_mark(self, mark: int) -> None:
        self.unsent_mark = mark
        for connection in list(self._connections):
            connection._adjust_unsent_mark()

    @abc.abstractmethod
    def on_refused(self, connection: C, reason: str, *, is_logged: bool) -> None:
        """A connection is about to be closed because there are too many."""

    @abc.abstractmethod
    def on_cut_off(self, connection: C, reason: str) -> None:
        """A connection is about to be closed at once: it holds what others need."""

    @abc.abstractmethod
    def on_idle(self, connection: C) -> None:
        """A silent connection is about to be closed."""

    def _sweep(self) -> None:
        limits, now_s = self.connection_limits, self.loop.time()
        for connection in (*self.unfinished.overdue(now_s), *self.strangers.overdue(now_s)):
            if connection.is_reading:
                connection.cut_off("unfinished request for longer than frame_timeout_ms")
        for connection in list(self._connections):
            connection.sweep(now_s)
        for connection in self.unread.overdue(now_s):
            connection.cut_off("unread answers for longer than connection_idle_ms")
        wait_s = min(_SWEEP_S, limits.connection_idle_s / 2, limits.frame_timeout_s / 2)
        self._sweeper = self.loop.call_later(wait_s, self._sweep)


class FramedConnection(asyncio.BufferedProtocol, abc.ABC):
    """One peer: its bytes become frames, and what it makes us hold is counted."""

    def __init__(
        self,
        server: FramedServer[Any],
        intake: FrameIntake,
        *,
        is_stranger: bool = False,
        is_own: bool = False,
    ) -> None:
        """`is_stranger`: whether the peer has to say who it is; `welcome` ends that. `is_own`:
        whether it came where the cluster's own nodes do, and nobody else."""
        self.is_own = is_own
        self.host = ""
        self.is_stranger = is_stranger
        self.unfinished = server.strangers if is_stranger else server.unfinished
        """Where what it has begun to send is counted."""
        self.is_reading = True
        """Whether bytes of the peer are taken now; otherwise they wait in the socket."""
        self._server = server
        self._loop = server.loop
        self._intake = intake
        self._transport: asyncio.Transport | None = None
        """None before the connection is there, and once it is gone."""
        self._last_heard_s = self._loop.time()
        self._closed_s = OPEN
        """When it was closed, by us or by the peer: whatever comes later is dropped."""
        self._is_unread = False
        """Whether the peer does not read its answers."""

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take in the connection, or close it at once if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        if self._server.admit(self):
            self._adjust_unsent_mark()
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it; requests under way finish without anybody to tell."""
        self._transport = None
        if self._closed_s == OPEN:
            self._closed_s = self._loop.time()
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where the next bytes belong."""
        return self._intake.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Split into frames, let them be served and count what stays."""
        if self._closed_s != OPEN:
            return
        server, intake = self._server, self._intake
        self._last_heard_s = self._loop.time()
        try:
            frames = intake.received(nbytes)
            held_bytes = self._serve(frames, nbytes)
        except RemoteProtocolError as error:
            self.fail(str(error))
            return
        if self._closed_s != OPEN:
            return
        held_bytes += intake.buffered_bytes
        unfinished = self.unfinished
        if held_bytes:
            unfinished.note(
                self,
                held_bytes,
                self._loop.time(),
                is_new=bool(frames),
                reserved=intake.reserved_bytes,
            )
            if unfinished.is_over:
                server.make_room()
        elif frames and unfinished.total_bytes:  # mostly nothing is held of anybody
            unfinished.forget(self)

    @property
    def missing_bytes(self) -> int:
        """At least so many bytes come before there is anything to serve."""
        return self._intake.missing_bytes

    def take_plain(self, data: memoryview) -> int:
        """Take what comes in plain text before TLS: nothing."""
        del data
        return 0

    def pause_writing(self) -> None:
        """The peer does not read its answers."""
        self._is_unread = True
        self._count_unread()

    def resume_writing(self) -> None:
        """The peer reads its answers again."""
        self._is_unread = False
        self._server.unread.forget(self)

    # --- what a protocol adds

    @property
    @abc.abstractmethod
    def unanswered_count(self) -> int:
        """Requests whose answers are owed."""

    @abc.abstractmethod
    def fail(self, reason: str) -> None:
        """Close the connection because of what the peer sent."""

    @abc.abstractmethod
    def _serve(self, frames: list[memoryview], size: int) -> int:
        """Begin the requests that just came; return the bytes of all those that have to wait.

        `size`: of what was received. It may have completed no frame: then there are none.
        Raises RemoteProtocolError.
        """

    @abc.abstractmethod
    def _flush(self) -> None:
        """Write the answers that may leave."""

    def _drop_waiting(self) -> None:
        """Forget what came and did not begin."""
        self.unfinished.forget(self)

    def welcome(self) -> None:
        """The peer has said who it is."""
        if self.is_stranger:
            self.is_stranger = False
            self.unfinished.forget(self)
            self.unfinished = self._server.unfinished
            self._server.welcome(self)

    # --- the end of it

    def close(self) -> None:
        """Write what is answered, then close."""
        if self._transport is None or self._closed_s != OPEN:
            return
        self._drop_waiting()
        self._flush()
        self._closed_s = self._loop.time()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection without writing what is answered."""
        self._drop_waiting()
        self._server.unread.forget(self)
        if self._transport is not None:
            self._closed_s = self._loop.time()
            self._transport.abort()

    def cut_off(self, reason: str) -> None:
        """Close the connection at once: it holds what others need."""
        self._server.on_cut_off(self, reason)
        self.abort()

    def sweep(self, now_s: float) -> None:
        """Do what is due now and then: an idle connection is closed, a closed one has to go."""
        limits = self._server.connection_limits
        self._note_unread(now_s)
        if self._closed_s != OPEN:
            if self._closed_s < now_s - limits.frame_timeout_s:
                self.abort()  # its last answers are not read
        elif self._last_heard_s < now_s - limits.connection_idle_s and not self.unanswered_count:
            self._server.on_idle(self)
            self.close()

    # --- writing

    def _unsent_bytes_now(self) -> int:
        """Return the bytes of answers that the peer has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _adjust_unsent_mark(self) -> None:
        """Count answers as unread from another size on: the server's `unsent_mark`."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.set_write_buffer_limits(high=self._server.unsent_mark)

    def _write(self, buffers: Sequence[Chunk]) -> None:
        """Send, and count it at once if the peer is behind already."""
        if self._transport is not None:
            self._transport.writelines(buffers)
            if self._is_unread:
                self._count_unread()

    def _count_unread(self) -> None:
        """Count what is not sent; soon cut somebody off if that is too much for the server."""
        server = self._server
        server.unread.note(self, self._unsent_bytes_now(), self._loop.time())
        if server.unread.is_over:
            self._loop.call_soon(server.make_room)

    def _note_unread(self, now_s: float) -> None:
        """Count the answers that the peer does not read, if it is behind."""
        if self._is_unread and self._transport is not None:
            self._server.unread.note(self, self._unsent_bytes_now(), now_s)

    # --- reading

    def _set_reading(self, is_reading: bool) -> None:
        """Read from the peer, or let its bytes wait in the socket."""
        transport = self._transport
        if transport is None or transport.is_closing() or is_reading == self.is_reading:
            return
        self.is_reading = is_reading
        if not is_reading:
            transport.pause_reading()
            return
        intake, unfinished, now_s = self._intake, self.unfinished, self._loop.time()
        unfinished.note(self, intake.buffered_bytes, now_s, reserved=intake.reserved_bytes)
        unfinished.resume(self, now_s)
        transport.resume_reading()
