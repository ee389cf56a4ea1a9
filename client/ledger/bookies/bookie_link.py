"""One TCP connection to a bookie, from its opening to its loss: requests, answers, timeouts.

Rules, by the names that PROTOCOL.md and the tests use:

- LINK-ROOM   an add for which the connection has no room waits here and is sent when answers have
              made room: the adds of a ledger in order, and the ledgers that wait in turns. It does
              not fail, and its clock does not run: whoever adds has a limit of its own, so what
              waits is bounded by the number of writers.
- LINK-CLOCK, LINK-SILENT  when a request, or all of them, have waited too long for an answer is
              decided by `bookies/core/answer_clock.py`.
- LINK-OTHERS what one request's callback raises is reported (`client/callbacks.py`); the others
              get their answers, and the connection stays.

One timer per connection drives that clock. When the connection goes, everything under way fails,
oldest first, and what waited behind it.

Sources: Apache BookKeeper `PerChannelBookieClient`; status mapping of `BKException`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal, Protocol, cast

from client import callbacks
from client.errors import (
    BookieReadOnly,
    BookieTimeout,
    BookieUnavailable,
    DataUnknown,
    LedgerError,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
    RemoteProtocolError,
    TooManyRequests,
    UnauthorizedAccess,
    WriteFailed,
)
from client.ledger.bookies.core.answer_clock import AnswerClock
from client.ledger.bookies.core.waiting_adds import WaitingAdds
from client.ledger.config import LedgerClientConfig
from client.ledger.stats import BookieStats
from client.wire.bookkeeper.connection import ClientConnection, Key
from client.wire.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    Buffer,
    Request,
    Response,
    Status,
)

log = logging.getLogger(__name__)

OnAnswer = Callable[[Request, Response | LedgerError], None]
"""Called once per request with the request itself and its answer. What it raises is reported and
goes no further: an owner that waits catches it itself (`client/callbacks.py`)."""


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
