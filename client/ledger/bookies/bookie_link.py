"""The connections to one bookie: requests out, answers or errors back, never stuck.

`TcpBookie` has up to three of them, opened by need (`BookieConnection`), and chooses:

- v2 for plain adds and plain reads: a fixed header, the fast path. Its answers are matched by what
  they are about, which is good enough because equal plain requests are interchangeable.
- v2 for batch reads: their answers of a megabyte would make an add's acknowledgement wait behind
  them, and a bookie that does not know them breaks the connection. They are received in place.
- v3 for everything else. Fencing reads and recovery adds belong here although v2 has them: on v2
  the late answer to a plain read of the last entry would be taken for the fence's, and that of a
  writer's add for a recovery add's, when one process is both. v3 matches by transaction id.

The setting `wire_version` narrows that for bookies that speak only one of them. With v3 alone one
connection does. With v2 alone there are as many, so that the answers above cannot be mixed up;
READ_LAC, which v2 lacks, becomes a read of the last entry, which tells the same but for an
explicit LAC.

Limits: requests and payload bytes under way per connection, time, and the pace of reconnecting.
Above them adds wait, in order (rule LINK-ROOM): busy is not failed, and a writer has limits of its
own. Anything else fails as if the bookie had shed it when there are too many requests: a read then
asks another bookie.

`Link` is one TCP connection, from its opening to its loss. Rules, by the names that PROTOCOL.md and
the tests use:

- LINK-ROOM   an add for which the connection has no room waits here and is sent when answers have
              made room: the adds of a ledger in order, and the ledgers that wait in turns. It does
              not fail, and its clock does not run: whoever adds has a limit of its own, so what
              waits is bounded by the number of writers.
- LINK-CLOCK  a request is overdue when for the request timeout the bookie has answered neither it
              nor any request sent before it, nor taken any of the bytes that could not leave at
              once. A bookie works through what it was sent in about that order, so what was queued
              in front of a request does not count against the bookie. One that answers nothing is
              soon sent nothing more: then its time begins.
- LINK-SILENT a connection on which nothing at all arrived for the request timeout, although
              something is under way, is to be cut: everything on it fails now instead of one by
              one.
- LINK-OTHERS what one request's callback raises is reported (`client/callbacks.py`); the others
              get their answers, and the connection stays.

One timer per connection drives that clock. When the connection goes, everything under way fails,
oldest first, and what waited behind it.

`AnswerClock` measures those waits. Time is coarse: requests are stamped with a tick, and
`TICKS_PER_TIMEOUT` ticks make a timeout. The clock stands still while nothing is under way. What
happens once per request is a store into a field, by the connection: no call.

`WaitingAdds` keeps each ledger's adds in order and lets ledgers take turns. A ledger that adds much
fills the room and then the queue. With one queue for all, an entry of a ledger that adds one a
second would wait for everything before it.

BookKeeper's bookies have one port for plain text and TLS: the client sends StartTLS in version 3,
whatever it speaks afterwards, and once that is answered with OK the handshake begins.

Sources: Apache BookKeeper `BookieClientImpl`, `PerChannelBookieClient` and its `initiateTLS`;
status mapping of `BKException`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Literal, Protocol, TypeVar, cast

from client import callbacks
from client.errors import (
    BookieReadOnly,
    BookieTimeout,
    BookieUnavailable,
    DataUnknown,
    LedgerError,
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
    RemoteProtocolError,
    TooManyRequests,
    UnauthorizedAccess,
    WriteFailed,
)
from client.ids import BookieId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.config import LedgerClientConfig
from client.ledger.metrics import BookieStats
from client.node import background
from client.security.tls_contexts import FreshContext
from client.wire.bookkeeper.connection import ClientConnection, Key
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    BatchReadRequest,
    Buffer,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
)
from client.wire.frames import Chunk
from client.wire.tls_records import pieces

log = logging.getLogger(__name__)

TICKS_PER_TIMEOUT: Final = 8
NOTHING_ANSWERED: Final = 1 << 62
_HOW: Final = "cluster_security.bookie_tls is on"

OnAnswer = Callable[[Request, Response | LedgerError], None]
"""Called once per request with the request itself and its answer. What it raises is reported and
goes no further: an owner that waits catches it itself (`client/callbacks.py`)."""


class TcpBookie:
    """One bookie and its lazy connections."""

    def __init__(
        self,
        connect: Callable[..., BookieConnection],
        only: Literal["both", "v2", "v3"],
        make_frames: MakeFrames,
        make_bulk: MakeFrames,
    ) -> None:
        """`connect` makes a connection of a wire version; `only`: the setting `wire_version`."""
        self._is_v2_only = only == "v2"
        self._exact = connect(2 if only == "v2" else 3, make_frames=make_frames)
        self._plain = self._exact if only == "v3" else connect(2, make_frames=make_frames)
        self._bulk = self._exact if only == "v3" else connect(2, make_frames=make_bulk)

    @property
    def is_unreachable(self) -> bool:
        connections = self._plain, self._exact, self._bulk
        return any(connection.is_unreachable for connection in connections)

    def request(self, request: Request, on_answer: OnAnswer, size: int = 0) -> None:
        if type(request) is AddRequest:
            if request.recovery:
                connection = self._exact
            else:
                connection = self._plain
                link = connection.link
                if link is not None:  # nearly always
                    link.add(InFlight(request, on_answer, size))
                    return
        elif isinstance(request, ReadRequest):
            is_plain = not request.fence and request.previous_lac is None
            connection = self._plain if is_plain else self._exact
        elif isinstance(request, BatchReadRequest):
            connection = self._bulk
        elif isinstance(request, ReadLacRequest) and self._is_v2_only:
            _read_lac_in_v2(self._plain, request, on_answer)
            return
        else:
            connection = self._exact
        connection.request(request, on_answer, size)

    def close(self) -> None:
        for connection in (self._plain, self._exact, self._bulk):
            connection.close()


def _read_lac_in_v2(
    connection: BookieConnection, request: ReadLacRequest, on_answer: OnAnswer
) -> None:
    """Ask for the last entry; answer as READ_LAC would."""

    def on_last_entry(_request: Request, answer: Response | LedgerError) -> None:
        if isinstance(answer, ReadResponse):
            answer = ReadLacResponse(answer.status, request.ledger_id, None, answer.entry)
        on_answer(request, answer)

    connection.request(ReadRequest(request.ledger_id, LAST_ENTRY), on_last_entry, 0)


class BookieConnection:
    """A lazily opened, reopened connection to one bookie in one wire version."""

    def __init__(
        self,
        bookie: BookieId,
        version: Literal[2, 3],
        directory: BookieDirectory,
        config: LedgerClientConfig,
        stats: BookieStats,
        make_frames: MakeFrames,
        contexts: FreshContext[ssl.SSLContext] | None,
    ) -> None:
        """`contexts`: of TLS; None: plain text."""
        self._contexts = contexts
        self._stats = stats
        self._make_frames = make_frames
        self._bookie = bookie
        self._version: Literal[2, 3] = version
        self._directory = directory
        self._config = config
        self.link: Link | None = None
        """None while there is no connection."""
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[InFlight] = []
        """Requests made while there is no connection yet."""
        self._delay_s = 0.0
        self._retry_at_s = 0.0
        self._closed = False

    @property
    def is_unreachable(self) -> bool:
        return self.link is None and asyncio.get_running_loop().time() < self._retry_at_s

    def request(self, request: Request, on_answer: OnAnswer, size: int) -> None:
        record = InFlight(request, on_answer, size)
        link = self.link
        is_add = type(request) is AddRequest
        if link is not None and is_add:
            link.add(record)
            return
        count = len(self._waiting) if link is None else link.in_flight_count
        if not is_add and count >= self._config.bookie_in_flight_requests_max:
            self._refuse(record, TooManyRequests(f"{count} requests wait for {self._bookie}"))
        elif link is not None:
            link.send(record)
        else:
            self._connect_and_send(record)

    def _refuse(self, record: InFlight, error: LedgerError) -> None:
        self._stats.errors += 1
        asyncio.get_running_loop().call_soon(record.complete, error)

    def _connect_and_send(self, record: InFlight) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            self._refuse(record, BookieUnavailable("the ledger client is closed"))
        elif self._connecting is None and loop.time() < self._retry_at_s:
            self._refuse(record, BookieUnavailable(f"bookie {self._bookie} was unreachable"))
        else:
            self._waiting.append(record)
            if self._connecting is None:
                self._connecting = background.begin(self._connect(), f"connect {self._bookie}")

    async def _connect(self) -> None:
        config = self._config
        frames = self._make_frames(config.frame_bytes_max)
        link = Link(self._version, config, self._stats, self._on_link_lost, frames)
        try:
            async with asyncio.timeout(config.connect_timeout_ms / 1000):
                host, port = await self._directory.address(self._bookie)
                await connect(link, host, port, self._contexts)
        except (OSError, LedgerError, MetadataError, ValueError, OverflowError) as error:
            self._on_connect_failed(error)  # the last two: an address that cannot be one
            return
        if link.is_lost:
            self._on_connect_failed(ConnectionResetError("lost at once"))
            return
        self._connecting = None
        self._delay_s = 0.0
        self.link = link
        for record in self._take_waiting():
            if type(record.request) is AddRequest:
                link.add(record)
            else:
                link.send(record)

    def _on_connect_failed(self, error: Exception) -> None:
        self._connecting = None
        self._directory.doubt_address(self._bookie)
        least, most = self._config.reconnect_delay_min_ms, self._config.reconnect_delay_max_ms
        self._delay_s = min(max(self._delay_s * 2, least / 1000), most / 1000)
        self._retry_at_s = asyncio.get_running_loop().time() + self._delay_s
        log.info("bookie.unreachable bookie=%s error=%r", self._bookie, error)
        for record in self._take_waiting():
            self._stats.errors += 1
            record.complete(BookieUnavailable(f"bookie {self._bookie}: {error!r}"))

    def _take_waiting(self) -> list[InFlight]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _on_link_lost(self, link: Link) -> None:
        if self.link is link:
            self.link = None
            log.info("bookie.connection_lost bookie=%s version=%d", self._bookie, self._version)

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        for record in self._take_waiting():
            self._refuse(record, BookieUnavailable("the ledger client is closed"))
        if self.link is not None:
            self.link.abort("the ledger client is closed")


class AnswerClock:
    """The clock of one connection."""

    __slots__ = (
        "_answered_before",
        "_backlog",
        "answered",
        "heard_tick",
        "sent_bytes",
        "sent_count",
        "tick",
        "tick_s",
        "written_bytes",
    )

    def __init__(self, timeout_s: float) -> None:
        self.tick_s = timeout_s / TICKS_PER_TIMEOUT
        """How often to call `on_tick`."""
        self.tick = 0
        """The present one: what a request that is sent now is stamped with."""
        self.sent_count = 0
        """Requests sent so far: the number of the last one."""
        self.sent_bytes = 0
        """Payload bytes of these."""
        self.written_bytes = 0
        """Of those, what was handed to the transport."""
        self.heard_tick = 0
        """When anything arrived last."""
        self.answered = NOTHING_ANSWERED
        """Lowest number of a request that was answered in this tick."""
        self._answered_before: deque[int] = deque(maxlen=TICKS_PER_TIMEOUT)
        """The same of the ticks before, as many as make a timeout; 0 stands for all."""
        self._backlog = (0, 0)
        """At the last tick: bytes that the transport held, and bytes written until then."""

    def on_tick(self, held_bytes: int) -> None:
        """An eighth of the timeout is over; the transport holds this many bytes back."""
        self.tick += 1
        self._answered_before.append(0 if self._is_draining(held_bytes) else self.answered)
        self.answered = NOTHING_ANSWERED

    def is_overdue(self, number: int, tick: int) -> bool:
        """Whether a request, by its number and stamp, has waited too long; call after `on_tick`."""
        return tick < self.tick - TICKS_PER_TIMEOUT and number <= min(self._answered_before)

    @property
    def is_silent(self) -> bool:
        """Whether nothing has arrived for the whole timeout."""
        return self.heard_tick < self.tick - TICKS_PER_TIMEOUT

    def stop(self) -> None:
        """Nothing is under way: what was answered until now says nothing of what comes."""
        self._answered_before.clear()

    def _is_draining(self, held_bytes: int) -> bool:
        """Whether the bookie has taken bytes since the last tick that were held back before.

        Headers are not counted as written, so this errs on the side of "no".
        """
        held, written = self._backlog
        self._backlog = held_bytes, self.written_bytes
        return held > 0 and held + self.written_bytes - written > held_bytes


T = TypeVar("T")


class WaitingAdds(Generic[T]):
    """What waits, by ledger; the first ledger's turn is next."""

    __slots__ = ("_queues", "count")

    def __init__(self) -> None:
        self._queues: dict[int, deque[T]] = {}
        self.count = 0
        """How many wait. A field: every add and every answer asks."""

    def __iter__(self) -> Iterator[T]:
        for queue in self._queues.values():
            yield from queue

    def push(self, ledger_id: int, add: T) -> None:
        """Wait behind those of the same ledger."""
        self._queues.setdefault(ledger_id, deque()).append(add)
        self.count += 1

    @property
    def first(self) -> T:
        """Whose turn it is."""
        return next(iter(self._queues.values()))[0]

    def pop(self) -> T:
        """Return whose turn it is, who waits no longer; the next turn is another ledger's."""
        ledger_id, queue = next(iter(self._queues.items()))
        del self._queues[ledger_id]
        add = queue.popleft()
        if queue:
            self._queues[ledger_id] = queue
        self.count -= 1
        return add

    def clear(self) -> None:
        """Nobody waits any longer."""
        self._queues.clear()
        self.count = 0


class _StartTls(asyncio.Protocol):
    """Asks for TLS; nothing else is sent before it is there."""

    def __init__(self) -> None:
        self._matcher = ClientConnection(3)
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sent = self._matcher.request(StartTlsRequest(), self._on_answer)
        cast(asyncio.Transport, transport).write(b"".join(sent.buffers))

    def data_received(self, data: bytes) -> None:
        try:
            for on_response, response in self._matcher.receive_data(data):
                on_response(response)
        except RemoteProtocolError as error:
            self._fail(f"it answered StartTLS with something else: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("it closed the connection when asked for TLS")

    def _on_answer(self, response: Response) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def _fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(BookieUnavailable(reason))


class _Secured:
    """What a link writes to: small buffers share a TLS record, which the loop's TLS does not do."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.abort = transport.abort
        self.get_write_buffer_size = transport.get_write_buffer_size

    def writelines(self, list_of_data: Iterable[Chunk]) -> None:
        """Send buffers."""
        for piece in pieces(list_of_data):
            self._transport.write(piece)


async def connect(
    link: asyncio.BufferedProtocol,
    host: str,
    port: int,
    contexts: FreshContext[ssl.SSLContext] | None,
) -> None:
    """Connect a link. `contexts`: of TLS; None: plain text.

    Raises OSError, which TLS's errors are, and BookieUnavailable if the bookie speaks no TLS.
    """
    loop = asyncio.get_running_loop()
    if contexts is None:
        await loop.create_connection(lambda: link, host, port)
        return
    transport, asking = await loop.create_connection(_StartTls, host, port)
    try:
        answer = await asking.answer
        if not (isinstance(answer, StartTlsResponse) and answer.status is Status.OK):
            raise BookieUnavailable(f"it does not speak TLS, and {_HOW}")
        context = contexts.get()
        secured = await loop.start_tls(transport, link, context, server_hostname=host)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise ConnectionResetError("the connection was lost when TLS began")
    # Not a transport in all respects, but in all that a link does with one.
    link.connection_made(cast(asyncio.Transport, _Secured(secured)))


class InFlight:
    """A request on its way: who waits at the matcher."""

    __slots__ = ("key", "link", "number", "on_answer", "request", "sent_s", "size", "tick")

    def __init__(self, request: Request, on_answer: OnAnswer, size: int) -> None:
        self.request = request
        self.on_answer = on_answer
        self.size = size
        self.link: Link
        self.key: Key
        self.number = 0
        """Position in the order in which the requests of the connection were sent."""
        self.tick = 0
        self.sent_s = 0.0

    def __call__(self, response: Response) -> None:
        self.link.on_response(self, response)

    def complete(self, answer: Response | LedgerError) -> None:
        """Tell the owner, whose own matter it is what becomes of that."""
        try:
            self.on_answer(self.request, answer)
        except callbacks.RAISED as error:
            callbacks.failed(callbacks.Kind.REQUEST, error)


class Frames(Protocol):
    """Where answers are received: `FrameIntake`, or `FrameReceiver`."""

    def room(self) -> memoryview:
        """Return where the next bytes belong."""
        ...

    def fresh(self, count: int) -> memoryview | None:
        """Return this many bytes in the room if a frame begins with them; None: ask `received`."""
        ...

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that this many bytes in the room complete."""
        ...


MakeFrames = Callable[[int], Frames]
"""Makes those of one connection; takes `frame_bytes_max`."""


class Link(asyncio.BufferedProtocol):
    """One TCP connection from its making to its loss."""

    def __init__(
        self,
        version: Literal[2, 3],
        config: LedgerClientConfig,
        stats: BookieStats,
        on_lost: Callable[[Link], None],
        frames: Frames,
    ) -> None:
        self._frames = frames
        self._stats = stats
        self.matcher = ClientConnection(version)
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._bytes_max = config.bookie_in_flight_bytes_max
        self._requests_max = config.bookie_in_flight_requests_max
        self._records: dict[InFlight, None] = {}
        """Under way, oldest first."""
        self.in_flight_bytes = 0
        self._waiting: WaitingAdds[InFlight] = WaitingAdds()
        """Adds that there is no room for yet."""
        self._unsent: list[Buffer] = []
        """What leaves at the end of this turn of the loop, with one system call."""
        self._clock = AnswerClock(config.request_timeout_ms / 1000)
        self._timer: asyncio.TimerHandle | None = None
        self._lost = False

    @property
    def in_flight_count(self) -> int:
        """Requests under way."""
        return len(self._records)

    @property
    def waiting_count(self) -> int:
        """Adds that wait for room."""
        return self._waiting.count

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone, and everything sent on it failed."""
        return self._lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._stats.links[self] = lambda: self.in_flight_bytes

    def add(self, record: InFlight) -> None:
        """Send an add, or let it wait for room and its turn (rule LINK-ROOM)."""
        if (
            not self._waiting.count
            and self.in_flight_bytes + record.size <= self._bytes_max
            and len(self._records) < self._requests_max
        ):
            self.send(record)  # nearly always
        elif self._waiting.count or not self._has_room(record):
            request = record.request
            assert isinstance(request, AddRequest)
            self._waiting.push(request.ledger_id, record)
        else:
            self.send(record)

    def send(self, record: InFlight) -> None:
        """Send a request; after the loss of the connection its answer is an error.

        It leaves with all others of this turn of the loop: a system call costs as much as all the
        rest that is done for a small add.
        """
        clock = self._clock
        record.link = self
        record.number = clock.sent_count = clock.sent_count + 1
        record.tick = clock.tick
        record.sent_s = self._stats.now_s()
        record.key, buffers = self.matcher.request(record.request, record)
        self._records[record] = None
        self.in_flight_bytes += record.size
        clock.sent_bytes += record.size
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += buffers
        if self._timer is None:
            self._arm()

    def _has_room(self, record: InFlight) -> bool:
        """Whether an add may be sent now; one that is larger than the limit goes alone."""
        if not self._records:
            return True
        in_flight_bytes = self.in_flight_bytes
        fits = not in_flight_bytes or in_flight_bytes + record.size <= self._bytes_max
        return fits and len(self._records) < self._requests_max

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting.count and not self._lost and self._has_room(waiting.first):
            self.send(waiting.pop())

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self._lost:
            self._transport.writelines(unsent)
            self._clock.written_bytes = self._clock.sent_bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._clock.heard_tick = self._clock.tick
        matcher, frames = self.matcher, self._frames
        try:
            data = frames.fresh(nbytes)
            answers = None if data is None else matcher.receive_added(data)
            if answers is None:
                answers = matcher.receive_frames(frames.received(nbytes))
        except RemoteProtocolError as error:
            log.warning("bookie.protocol_error error=%s", error)
            self.abort(f"protocol error: {error}")
            return
        for record, response in answers:
            assert type(record) is InFlight, "nobody else asks here"
            self.on_response(record, response)
        if self._waiting.count:
            self._send_waiting()

    def on_response(self, record: InFlight, response: Response) -> None:
        """The matcher found the answer to a request."""
        if record not in self._records:
            return
        del self._records[record]
        self.in_flight_bytes -= record.size
        clock, stats, request = self._clock, self._stats, record.request
        if record.number < clock.answered:
            clock.answered = record.number
        seconds = stats.now_s() - record.sent_s
        answer: Response | LedgerError = response
        if type(response) is AddResponse:  # nearly all of them: without a call
            stats.adds.observe(seconds)
            status = response.status
        else:
            stats.on_answer(request, response, seconds)
            status = _status_of(response)
        if status is not Status.OK:
            answer = error_of(status, request)
        try:  # as in `InFlight.complete`, without the call: a record's path
            record.on_answer(request, answer)
        except callbacks.RAISED as error:
            callbacks.failed(callbacks.Kind.REQUEST, error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_all("connection lost")

    def abort(self, reason: str) -> None:
        """Cut the connection; everything under way fails now."""
        self._transport.abort()
        self._fail_all(reason)

    def _fail_all(self, reason: str) -> None:
        if self._lost:
            return
        self._lost = True
        self._stats.links.pop(self, None)
        self._on_lost(self)
        if self._timer is not None:
            self._timer.cancel()
        self.matcher.close()
        records = [*self._records, *self._waiting]
        self._records, self.in_flight_bytes = {}, 0
        self._waiting.clear()
        self._stats.errors += len(records)
        for record in records:
            record.complete(BookieUnavailable(reason))

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._clock.tick_s, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        clock = self._clock
        clock.on_tick(self._transport.get_write_buffer_size())
        expired: list[InFlight] = []
        for record in self._records:
            if not clock.is_overdue(record.number, record.tick):
                break  # those behind it have not waited any longer
            expired.append(record)
        if expired and clock.is_silent:
            self.abort("no answer in time")
            return
        for record in expired:
            if record not in self._records:
                continue  # an earlier one's callback closed the connection
            del self._records[record]
            self.in_flight_bytes -= record.size
            self.matcher.forget(record.key, record)
            self._stats.errors += 1
            record.complete(BookieTimeout("no answer in time"))
        if self._waiting.count:
            self._send_waiting()
        if not self._records:
            clock.stop()  # it stands still until something is sent
        elif not self._lost and self._timer is None:
            self._arm()


_ERRORS: Final[dict[Status, type[LedgerError]]] = {
    Status.NO_LEDGER: NoSuchLedger,
    Status.NO_ENTRY: NoSuchEntry,
    Status.UNAUTHORIZED: UnauthorizedAccess,
    Status.FENCED: LedgerFenced,
    Status.READ_ONLY: BookieReadOnly,
    Status.TOO_MANY_REQUESTS: TooManyRequests,
    Status.UNKNOWN_LEDGER_STATE: DataUnknown,
}

_HINT: Final = (
    ": the password of the ledger is another one, or the bookie wants TLS and a certificate that it"
    " knows (cluster_security), or an authentication plugin, of which there is none here"
)


def _status_of(response: Response) -> Status:
    """Return a response's status; authentication answers have none and are always fine."""
    return getattr(response, "status", Status.OK)


def error_of(status: Status, request: Request) -> LedgerError:
    """Return what a status other than OK means to the client that asked; see `errors.py`."""
    fallback = WriteFailed if isinstance(request, AddRequest) else ReadFailed
    hint = _HINT if status is Status.UNAUTHORIZED else ""
    return _ERRORS.get(status, fallback)(f"the bookie answered {status.name}{hint}")
