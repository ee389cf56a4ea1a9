"""One TCP connection to a bookie, from its making to its loss: requests, answers, timeouts.

This file is the only home of the request time limit and of what a bookie's status means to the
client. The limit is kept by one coarse timer per connection: requests are stamped with a tick,
and eight ticks make a timeout. A connection on which nothing at all arrived since the expired
request was sent is cut, so that everything behind it fails now instead of one by one. When the
connection goes, everything under way fails, oldest first.

Sources: Apache BookKeeper `PerChannelBookieClient`; status mapping of `BKException`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal, Protocol, cast

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
from client.ledger.config import LedgerClientConfig
from client.ledger.stats import BookieStats
from client.wire.bookkeeper.connection import ClientConnection, Key
from client.wire.bookkeeper.messages import AddRequest, Buffer, Request, Response, Status

log = logging.getLogger(__name__)

OnAnswer = Callable[[Request, Response | LedgerError], None]
"""Called once per request with the request itself and its answer."""

_TICKS_PER_TIMEOUT: Final = 8


class InFlight:
    """A request on its way. It is what the matcher calls with the response."""

    __slots__ = ("key", "link", "on_answer", "request", "sent_s", "size", "tick")

    def __init__(self, request: Request, on_answer: OnAnswer, size: int) -> None:
        self.request = request
        self.on_answer = on_answer
        self.size = size
        self.link: Link
        self.key: Key
        self.tick = 0
        self.sent_s = 0.0

    def __call__(self, response: Response) -> None:
        self.link.on_response(self, response)


class Frames(Protocol):
    """Where answers are received: `FrameIntake`, or `FrameReceiver`."""

    def room(self) -> memoryview:
        """Return where the next bytes belong."""
        ...

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that so many bytes in the room complete."""
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
        self._tick_s = config.request_timeout_ms / 1000 / _TICKS_PER_TIMEOUT
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._records: dict[InFlight, None] = {}
        """Under way, oldest first."""
        self.in_flight_bytes = 0
        self._unsent: list[Buffer] = []
        """What leaves at the end of this turn of the loop, with one system call."""
        self._tick = 0
        """Coarse clock: counts while something is under way."""
        self._heard_tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lost = False

    @property
    def in_flight_count(self) -> int:
        """Requests under way."""
        return len(self._records)

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone, and everything sent on it failed."""
        return self._lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)

    def send(self, record: InFlight) -> None:
        """Send a request; after the loss of the connection its answer is an error.

        It leaves with all others of this turn of the loop: a system call costs as much as all the
        rest that is done for a small add.
        """
        record.link = self
        record.tick = self._tick
        record.sent_s = self._stats.now_s()
        sent = self.matcher.request(record.request, record)
        record.key = sent.key
        self._records[record] = None
        self.in_flight_bytes += record.size
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += sent.buffers
        if self._timer is None:
            self._arm()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not self._lost:
            self._transport.writelines(unsent)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_tick = self._tick
        try:
            answers = self.matcher.receive_frames(self._frames.received(nbytes))
        except RemoteProtocolError as error:
            log.warning("bookie.protocol_error error=%s", error)
            self.abort(f"protocol error: {error}")
            return
        for on_response, response in answers:
            on_response(response)

    def on_response(self, record: InFlight, response: Response) -> None:
        """The matcher found the answer to a request."""
        if record not in self._records:
            return
        del self._records[record]
        self.in_flight_bytes -= record.size
        self._stats.on_answer(record.request, self._stats.now_s() - record.sent_s)
        status = _status_of(response)
        record.on_answer(
            record.request,
            response if status is Status.OK else error_of(status, record.request),
        )

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
        self._on_lost(self)
        if self._timer is not None:
            self._timer.cancel()
        self.matcher.close()
        records, self._records, self.in_flight_bytes = self._records, {}, 0
        self._stats.errors += len(records)
        for record in records:
            record.on_answer(record.request, BookieUnavailable(reason))

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        self._tick += 1
        expired_tick = self._tick - _TICKS_PER_TIMEOUT
        expired: list[InFlight] = []
        for record in self._records:
            if record.tick >= expired_tick:
                break
            expired.append(record)
        if expired and self._heard_tick <= expired[0].tick:
            self.abort("no answer in time")
            return
        for record in expired:
            if record not in self._records:
                continue  # an earlier one's callback closed the connection
            del self._records[record]
            self.in_flight_bytes -= record.size
            self.matcher.forget(record.key, record)
            self._stats.errors += 1
            record.on_answer(record.request, BookieTimeout("no answer in time"))
        if self._records and not self._lost:
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


def _status_of(response: Response) -> Status:
    """Return a response's status; authentication answers have none and are always fine."""
    return getattr(response, "status", Status.OK)


def error_of(status: Status, request: Request) -> LedgerError:
    """Return what a status other than OK means to the client that asked; see `errors.py`."""
    fallback = WriteFailed if isinstance(request, AddRequest) else ReadFailed
    return _ERRORS.get(status, fallback)(f"the bookie answered {status.name}")
