"""Connections of a bookie: bytes in, requests to the handlers, answers out in batches.

Both wire versions share the port. Answers made in one turn of the loop (a whole group commit,
say) leave with one write per connection. Bounds, each of which ends at the peer's socket:

- a malformed or oversized frame closes that connection, with one log line, and nothing else;
- how many connections there may be, how long one may be silent and what it may make us hold is
  bounded as in every server of ours (`client/node/framed_server.py`);
- a connection with too many unanswered requests, or that does not read its answers, is not read;
  beyond twice as many, if a few bytes bring this many, further ones are refused;
- while too much is accepted and not yet durable, no connection is read; before that those of which
  much waits in line for a group (`bookie/storage/core/group_commit.py`) are not;
- of very many small requests that one read brought some are begun in each turn of the loop, in
  their order; nothing further is read meanwhile;
- beyond this many adds, reads or others of all connections, further ones are refused; so are long
  polls, of all or of one connection, and they end with their connection
  (`RequestLimiter`).

`RequestLimiter` bounds how many requests a bookie works on at a time, over all of its connections:

    adds, reads       counted; beyond a limit the next ones are refused: "too many requests"
    urgent ones       recovery adds, adds marked so, fencing reads: counted, never refused, because
                      an overloaded cluster must still be able to recover its ledgers
    long polls        counted, of a connection and of all: each is small, but waits for long
    anything else     explicit LACs, forces, lists of entries: counted; beyond a limit refused, too
    trifles           what is answered at once: not counted

A refused add is sent again after a pause (rule ADD-BUSY; Apache BookKeeper's writers replace the
bookie instead), a refused read makes its reader ask another one, so the limits are far above what a
busy bookie has in hand; what makes writers wait without a refusal is the backlog.

Sources: Apache BookKeeper `maxAddsInProgressLimit`, `maxPendingReadRequestsPerThread`.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from bookie.metrics import BookieMetrics
from bookie.server.guard import UNTRUSTED_FRAME_BYTES_MAX, Guard, auth_of, first_frame
from bookie.server.handlers import Handlers, refusal
from bookie.server.long_poll import LongPolls
from bookie.storage.core.group_commit import Backlog
from client.errors import RemoteProtocolError
from client.node.connection_limits import ConnectionLimits
from client.node.framed_server import OPEN, FramedConnection, FramedServer
from client.node.logs import AT_WILL, SECURITY
from client.node.tls.transport import TlsProtocol
from client.wire.bookkeeper.connection import Call, decode_call, encode_answer
from client.wire.bookkeeper.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    Buffer,
    ListEntriesRequest,
    ReadRequest,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
    UnknownRequest,
)
from client.wire.frames import LENGTH_BYTES, FrameIntake

_TRIFLES: Final = (AuthRequest, StartTlsRequest, UnknownRequest)


class RequestKind(enum.Enum):
    """What a request counts as."""

    ADD = "add"
    READ = "read"
    POLL = "poll"
    OTHER = "other"
    TRIFLE = "trifle"


class RequestLimits(NamedTuple):
    """Requests worked on at a time."""

    adds_max: int
    reads_max: int
    polls_max: int
    polls_per_connection_max: int
    others_max: int


def request_kind_of(request: Request) -> RequestKind:
    """Return what a request counts as."""
    if type(request) is AddRequest:
        return RequestKind.ADD
    if type(request) is ReadRequest:
        is_poll = request.previous_lac is not None and not request.fence
        return RequestKind.POLL if is_poll else RequestKind.READ
    if type(request) is BatchReadRequest:
        return RequestKind.READ
    return RequestKind.TRIFLE if isinstance(request, _TRIFLES) else RequestKind.OTHER


def is_urgent(request: Request) -> bool:
    """Whether a request is never refused."""
    if isinstance(request, AddRequest):
        return request.recovery or request.high_priority
    return isinstance(request, ReadRequest | BatchReadRequest) and request.fence


class RequestLimiter:
    """The count. Every request that entered leaves, once."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self.adds = 0
        self.reads = 0
        self.polls = 0
        self.others = 0

    @property
    def adds_left(self) -> int:
        """How many more adds may enter, whatever they are."""
        return self._limits.adds_max - self.adds

    def enter(self, work: RequestKind, request: Request) -> bool:
        """Count a request in; False if it is to be refused, and is not counted."""
        if work is RequestKind.ADD:
            if self.adds >= self._limits.adds_max and not is_urgent(request):
                return False
            self.adds += 1
        elif work is RequestKind.READ:
            if self.reads >= self._limits.reads_max and not is_urgent(request):
                return False
            self.reads += 1
        elif work is RequestKind.OTHER:
            if self.others >= self._limits.others_max:
                return False
            self.others += 1
        return True

    def enter_poll(self, of_connection: int) -> bool:
        """Count in a long poll of a connection that has this many; False if it is to be refused."""
        limits = self._limits
        if self.polls >= limits.polls_max or of_connection >= limits.polls_per_connection_max:
            return False
        self.polls += 1
        return True

    def enter_adds(self, count: int) -> None:
        """Count in adds that there is room for."""
        self.adds += count

    def leave(self, work: RequestKind, count: int = 1) -> None:
        """Requests are answered."""
        if work is RequestKind.ADD:
            self.adds -= count
        elif work is RequestKind.READ:
            self.reads -= count
        elif work is RequestKind.POLL:
            self.polls -= count
        elif work is RequestKind.OTHER:
            self.others -= count


logger = logging.getLogger(__name__)
_log = SECURITY

_REQUESTS_PER_TURN: Final = 500
"""Of one connection: a single read can bring some nine thousand of the smallest ones."""


_LAST: Final = (BatchReadRequest, ListEntriesRequest, StartTlsRequest)
"""Requests behind which none is begun in the same turn: one is enough, or all is different then."""


class ServerLimits(NamedTuple):
    """Bounds of a server; see the fields of the same names in `config.py`."""

    connections: ConnectionLimits
    frame_bytes_max: int
    requests_in_flight_max: int
    request_limiter: RequestLimits


class BookieServer(FramedServer["_Connection"]):
    """Accepts connections and serves them."""

    def __init__(
        self,
        handlers: Handlers,
        backlog: Backlog,
        limits: ServerLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
        guard: Guard | None = None,
    ) -> None:
        """`guard`: who may use it; None: everybody who reaches the port."""
        super().__init__(limits.connections, loop)
        self.handlers = handlers
        self.backlog = backlog
        self.limits = limits
        self.surplus_at = 2 * limits.requests_in_flight_max
        """Beyond this many unanswered requests of a connection further ones are refused."""
        self.metrics = metrics
        self.guard = guard
        self.is_stopping = False
        self.request_limiter = RequestLimiter(limits.request_limiter)
        backlog.on_change = self._adjust_all
        self._provide_gauges()

    def _provide_gauges(self) -> None:
        gauges, backlog, request_limiter = self.metrics.gauges, self.backlog, self.request_limiter
        gauges["connections"] = lambda: len(self._connections)
        gauges["connections_waiting_for_disk"] = lambda: sum(
            not each.is_reading for each in self._connections if backlog.is_over_for(each)
        )
        gauges["connections_waiting_for_peer"] = lambda: sum(
            not each.is_reading for each in self._connections if not backlog.is_over_for(each)
        )
        gauges["unfinished_bytes"] = lambda: self.unfinished.total_bytes
        gauges["strangers_bytes"] = lambda: self.strangers.total_bytes
        gauges["unread_bytes"] = lambda: self.unread.total_bytes
        gauges["unsent_bytes"] = lambda: self.unsent_bytes
        gauges["adds_in_progress"] = lambda: request_limiter.adds
        gauges["reads_in_progress"] = lambda: request_limiter.reads
        gauges["long_polls"] = lambda: request_limiter.polls
        gauges["other_requests"] = lambda: request_limiter.others

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port (a free one for 0). Raises OSError if it is taken."""
        return await self.listen(lambda: _Connection(self), host, port)

    def stop_reading(self) -> None:
        """Accept nothing new: no connections, no requests. What is in flight is answered."""
        self.is_stopping = True
        self.stop_listening()
        self._adjust_all()

    def stop(self) -> None:
        """Close all connections once the answers made so far are written."""
        self.stop_reading()
        self.close_all()

    def served(self, connection: _Connection) -> None:
        """A connection brought bytes: while they are more than enough, the others come first.

        Connections are read again in the order of this table, and the first one alone may bring
        enough for all of them to wait again.
        """
        if self.backlog.is_over and self._connections.pop(connection, self) is None:
            self._connections[connection] = None

    def on_refused(self, connection: _Connection, reason: str, *, is_logged: bool) -> None:
        """A connection is about to be closed because there are too many."""
        self.metrics.refused_connections += 1
        if is_logged:
            logger.warning("connection.refused peer=%s reason=%r", connection.host, reason)

    def on_cut_off(self, connection: _Connection, reason: str) -> None:
        """A connection is about to be closed at once: it holds what others need."""
        self.metrics.cut_off_connections += 1
        logger.warning(
            "connection.cut_off peer=%s reason=%r", connection.host, reason, extra=AT_WILL
        )

    def on_idle(self, connection: _Connection) -> None:
        """A silent connection is about to be closed."""
        logger.info("connection.idle peer=%s", connection.host, extra=AT_WILL)

    def _adjust_all(self) -> None:
        for connection in list(self._connections):
            connection.adjust_reading()


class _Connection(FramedConnection):
    """One client's connection."""

    _server: BookieServer

    def __init__(self, server: BookieServer) -> None:
        guard, frame_bytes_max = server.guard, server.limits.frame_bytes_max
        self._is_trusted = guard is None or guard.serves_plain
        """Whether the client may ask anything."""
        if not self._is_trusted:
            frame_bytes_max = min(frame_bytes_max, UNTRUSTED_FRAME_BYTES_MAX)
        super().__init__(
            server, FrameIntake(frame_bytes_max, server.window), is_stranger=not self._is_trusted
        )
        self.peer: object = None
        self._out: list[Buffer] = []
        self._in_flight = 0
        self._waiting: list[memoryview] = []
        """Requests that came together with very many others and are not begun yet."""
        self._arrived_s = 0.0
        """When requests came last, by the stopwatch. While some wait none are read."""
        self._is_turn_planned = False
        self._polls = LongPolls()
        self._poll_count = 0
        self._is_tls = False
        self._early_auth: Call | None = None
        """An AUTH that came before the handshake, to be answered behind it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.peer = transport.get_extra_info("peername")
        super().connection_made(transport)
        # While the disk is behind a new client waits like the others. Not now: uvloop begins to
        # read after this call, whatever was said in it, and may read once before the next.
        self._loop.call_soon(self.adjust_reading)
        guard = self._server.guard
        if guard is not None and not self._is_trusted:
            self._loop.call_later(guard.timeout_s, self._end_untrusted)

    def _end_untrusted(self) -> None:
        """Close the connection of a client that may still ask nothing."""
        if not self._is_trusted and self._closed_s == OPEN:
            self.fail("no TLS, or no allowed certificate, within tls_handshake_timeout_ms")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._out, self._waiting = [], []
        ended = self._polls.close()
        self._in_flight -= ended
        self._polls_left(ended)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.adjust_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.adjust_reading()

    @property
    def unanswered_count(self) -> int:
        """Requests whose answers are owed."""
        return self._in_flight

    def fail(self, reason: str) -> None:
        """Close the connection because of what the client sent."""
        self._server.metrics.refused_connections += 1
        logger.warning("connection.refused peer=%s reason=%r", self.host, reason, extra=AT_WILL)
        if self._is_tls:
            self.close()  # with TLS's own word of what is wrong
        else:
            self.abort()

    def _serve(self, frames: list[memoryview], _size: int) -> int:
        if frames:
            self._arrived_s = self._server.metrics.stopwatch()
            self._waiting += frames
            self._begin_some()
        return sum(map(len, self._waiting)) if self._waiting else 0

    def _drop_waiting(self) -> None:
        super()._drop_waiting()
        self._waiting = []

    def _begin_some(self) -> None:
        """Begin requests that wait, in their order, as many as a turn of the loop is for.

        Raises RemoteProtocolError.
        """
        server = self._server
        if server.is_stopping:
            self._waiting = []
        calls: list[Call] = []
        for frame in self._waiting:
            call = decode_call(frame)
            calls.append(call)
            if len(calls) == _REQUESTS_PER_TURN or type(call.request) in _LAST:
                break
        del self._waiting[: len(calls)]
        if self._is_trusted:
            self._begin_all(calls)
        else:
            for call in calls:
                self._begin_untrusted(call)
        server.served(self)
        if self._waiting and not self._is_turn_planned:
            self._is_turn_planned = True
            server.handlers.turns.on_turn(self._on_turn)
        self.adjust_reading()

    def _on_turn(self) -> None:
        self._is_turn_planned = False
        if self._waiting and self._closed_s == OPEN:
            try:
                self._begin_some()
            except RemoteProtocolError as error:
                self.fail(str(error))

    def _begin_all(self, calls: Sequence[Call]) -> None:
        began_s = self._arrived_s
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

    def _room_for_adds(self) -> int:
        """How many adds may be accepted without looking at each."""
        server = self._server
        return min(server.request_limiter.adds_left, server.surplus_at - self._in_flight)

    def _add_run(self, calls: list[Call], adds: list[AddRequest], began_s: float) -> None:
        """Serve adds that came together: with one answer, but for some that have to be judged."""
        server = self._server
        server.request_limiter.enter_adds(len(calls))
        self._in_flight += len(calls)
        while calls:
            count = server.handlers.add_run(adds, partial(self._added, calls, began_s))
            if count == len(calls):
                return
            rest = calls[count:]
            del calls[count:]  # it is answered as it is then
            server.handlers.add(adds[count], partial(self._added, rest[:1], began_s), self)
            calls, adds = rest[1:], adds[count + 1 :]

    def _begin(self, call: Call, began_s: float) -> None:
        """Serve one request."""
        server, request = self._server, call.request
        work = request_kind_of(request)
        self._in_flight += 1
        is_surplus = self._in_flight > server.surplus_at and work is not RequestKind.TRIFLE
        if work is RequestKind.POLL:
            self._begin_poll(call, is_surplus, began_s)
        elif type(request) is StartTlsRequest:
            self._start_tls(call)
        elif (is_surplus and not is_urgent(request)) or not server.request_limiter.enter(
            work, request
        ):
            self._turn_away(call)
        elif isinstance(request, AddRequest):
            server.handlers.add(request, partial(self._added, [call], began_s), self)
        else:
            server.handlers.handle(request, partial(self._answer, call, work, began_s))

    def _begin_untrusted(self, call: Call) -> None:
        """Serve what comes before TLS; refuse all else, and all that a stranger asks."""
        server, request = self._server, call.request
        self._in_flight += 1
        if type(request) is StartTlsRequest:
            self._start_tls(call)
        elif type(request) is AuthRequest:
            server.handlers.handle(request, partial(self._send, call))
        else:
            server.metrics.unauthorized_requests += 1
            self._send(call, refusal(request, Status.UNAUTHORIZED))

    def _start_tls(self, call: Call) -> None:
        """Answer in plain text; the next bytes are a handshake.

        Nothing may come together with it: plain text of somebody between us would count as the
        client's own. But for one AUTH, which is worth nothing here: Apache's client with a plugin
        sends that, too, before it has heard of TLS.
        """
        guard = self._server.guard
        if guard is None or self._is_tls:
            self._server.handlers.handle(call.request, partial(self._send, call))
            return
        self._in_flight -= 1
        socket = self._transport
        if socket is None or self._closed_s != OPEN:
            return
        if len(self._waiting) == 1 and self._is_early_auth(self._waiting[0]):
            self._waiting = []
        if self._in_flight or self._waiting or self._intake.buffered_bytes:
            self.fail("requests under way, or bytes behind StartTLS, when TLS begins")
            return
        if guard.gate.is_full:
            self.fail("tls_handshakes_max is reached")
            return
        self._flush()
        self._write(encode_answer(call, StartTlsResponse(Status.OK)))
        tls = TlsProtocol(guard.gate, guard.context(), self, self._on_secured)
        self._is_tls, self._is_trusted = True, False
        self._transport = tls.take_over(socket, is_reading=self.is_reading)
        tls.check_admitted()

    def take_plain(self, data: memoryview) -> int:
        """Take an AUTH that came behind StartTLS."""
        frame = first_frame(data)
        return LENGTH_BYTES + len(frame) if frame is not None and self._is_early_auth(frame) else 0

    def _is_early_auth(self, frame: memoryview) -> bool:
        """Say whether a request is an AUTH, and the first one; then keep it."""
        if self._early_auth is not None:
            return False
        self._early_auth = auth_of(frame)
        return self._early_auth is not None

    def _on_secured(self) -> None:
        """The handshake is done: the client may have said who it is."""
        server = self._server
        call, self._early_auth = self._early_auth, None
        if call is not None:
            self._in_flight += 1
            server.handlers.handle(call.request, partial(self._send, call))
        assert self._transport is not None and server.guard is not None, "it has shaken hands"
        reason = server.guard.refusal_of(self._transport.get_extra_info("peercert"))
        if reason is None:
            self._is_trusted = True
            self.welcome()
            self._intake.set_frame_bytes_max(server.limits.frame_bytes_max)
        else:  # it hears so from the answers to whatever it asks
            _log.warning("connection.stranger peer=%s reason=%r", self.peer, reason,
                           extra=AT_WILL)  # fmt: skip

    def _begin_poll(self, call: Call, is_surplus: bool, began_s: float) -> None:
        """Serve a long poll, of which only what is small is kept while it waits."""
        server = self._server
        request = cast("ReadRequest", call.request)._replace(master_key=None)
        if is_surplus or not server.request_limiter.enter_poll(self._poll_count):
            self._turn_away(call)
            return
        self._poll_count += 1
        call = call._replace(request=request)
        reply = partial(self._answer, call, RequestKind.POLL, began_s)
        server.handlers.poll(request, reply, self._polls)

    def _polls_left(self, count: int) -> None:
        """Long polls are over."""
        self._poll_count -= count
        self._server.request_limiter.leave(RequestKind.POLL, count)

    def adjust_reading(self) -> None:
        """Read from the peer, or let its bytes wait in the socket."""
        server = self._server
        may_read = not (
            self._is_unread
            or self._in_flight > server.limits.requests_in_flight_max
            or server.backlog.is_over_for(self)
            or server.is_stopping
            or self._waiting
        )
        if may_read != self.is_reading:
            self._set_reading(may_read)

    def _turn_away(self, call: Call) -> None:
        """Refuse a request that is beyond a limit."""
        metrics = self._server.metrics
        metrics.refused_requests += 1
        metrics.refused_adds += isinstance(call.request, AddRequest)
        self._send(call, refusal(call.request, Status.TOO_MANY_REQUESTS))

    def _added(self, calls: Sequence[Call], began_s: float, status: Status) -> None:
        """Answer adds that came together."""
        server, is_success = self._server, status is Status.OK
        server.request_limiter.leave(RequestKind.ADD, len(calls))
        metrics = server.metrics
        metrics.add_seconds.observe(metrics.stopwatch() - began_s, is_success, len(calls))
        ready = [call.added for call in calls if call.added is not None] if is_success else []
        if len(ready) < len(calls):
            for call in calls:
                request = cast("AddRequest", call.request)
                self._send(call, server.handlers.add_answer(request, status))
            return
        self._in_flight -= len(calls)
        if self._closed_s == OPEN:
            if not self._out:
                self._loop.call_soon(self._flush)
            self._out += ready

    def _answer(self, call: Call, work: RequestKind, began_s: float, response: Response) -> None:
        server = self._server
        if work is RequestKind.POLL:
            self._polls_left(1)
        else:
            server.request_limiter.leave(work)
        if work is RequestKind.READ:
            metrics = server.metrics
            is_success = cast("Any", response).status is Status.OK
            metrics.read_seconds.observe(metrics.stopwatch() - began_s, is_success)
        self._send(call, response)

    def _send(self, call: Call, response: Response) -> None:
        self._in_flight -= 1
        if self._closed_s != OPEN:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += encode_answer(call, response)

    def _flush(self) -> None:
        if self._out and self._transport is not None and self._closed_s == OPEN:
            out, self._out = self._out, []
            self._write(out)
        if not self.is_reading:
            self.adjust_reading()
