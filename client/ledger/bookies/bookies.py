"""Connections to bookies: requests out, answers or errors back, always bounded, never stuck.

Covers how many connections there are, which request takes which, and when to try again; one TCP
connection's life is `bookie_link.py`'s business. Every request gets exactly one answer by its
callback, later on the loop and never inside the call that sent it: the response when its status is
OK, otherwise a `LedgerError`. A bookie has up to three connections, opened by need:

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

Limits: requests and payload bytes under way per connection, and the pace of reconnecting; time
limits are in `bookie_link.py`. Above them adds wait, in order (rule LINK-ROOM): busy is not
failed, and a writer has limits of its own. Anything else fails as if the bookie had shed it when
there are too many requests: a read then asks another bookie.

Sources: Apache BookKeeper `PerChannelBookieClient` and `BookieClientImpl`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

from client.errors import BookieUnavailable, LedgerError, MetadataError, TooManyRequests
from client.ids import BookieId
from client.ledger.bookies import start_tls
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookie_link import InFlight, Link, MakeFrames, OnAnswer
from client.ledger.bookies.core.racks import DEFAULT_RACK, RackRelation, relation
from client.ledger.config import LedgerClientConfig, parse_rack
from client.ledger.stats import BookieStats, LedgerStats
from client.node import background
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from client.security.tls_contexts import FreshContext
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    BatchReadRequest,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)
from client.wire.frames import FrameReceiver
from client.wire.intake import FrameIntake, make_window
from client.wire.reused_buffers import ReusedBuffers

log = logging.getLogger(__name__)


class Bookie(Protocol):
    """One bookie as the ledger protocol sees it; tests put scripted ones here."""

    @property
    def is_unreachable(self) -> bool:
        """Whether connecting failed a moment ago: ask somebody else first."""
        ...

    def request(self, request: Request, on_answer: OnAnswer, size: int = 0) -> None:
        """Send a request of `size` payload bytes. Its answer comes later, on the loop."""
        ...


class BookieSet(Protocol):
    """The bookies of a cluster."""

    @property
    def writable(self) -> tuple[BookieId, ...]:
        """Bookies that take new entries, sorted."""
        ...

    @property
    def readonly(self) -> tuple[BookieId, ...]:
        """Bookies that only serve reads, sorted."""
        ...

    def rack(self, bookie: BookieId) -> str:
        """Return the name of what fails together with a bookie."""
        ...

    @property
    def has_long_poll(self) -> bool:
        """Whether bookies can be asked to answer when something happens."""
        ...

    def bookie(self, bookie: BookieId) -> Bookie:
        """Return the one with this id, registered or not."""
        ...

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the list of bookies may have changed."""
        ...

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo `add_listener`."""
        ...

    async def start(self) -> None:
        """Learn who there is. Raises MetadataError."""
        ...

    def close(self) -> None:
        """Fail what is under way and close every connection."""
        ...


class Bookies:
    """The `BookieSet` of production: registrations from the metadata store, TCP connections."""

    def __init__(
        self,
        directory: BookieDirectory,
        config: LedgerClientConfig,
        stats: LedgerStats | None = None,
        security: ClusterSecurity = OPEN_CLUSTER,
    ) -> None:
        """Raises ConfigError if files of `security` cannot be read."""
        self._contexts = security.contexts() if security.bookie_tls else None
        self._stats = stats or LedgerStats()
        self._make_frames = partial(FrameIntake, window=make_window())
        buffers = ReusedBuffers(config.batch_buffers_max)
        self._stats.batch_buffer_bytes = lambda: buffers.kept_bytes
        self._stats.rack_relation = self._rack_relation
        self._make_bulk = partial(FrameReceiver, buffers=buffers)
        self._directory = directory
        self._config = config
        self._racks = dict(map(parse_rack, config.racks))
        self._bookies: dict[BookieId, _TcpBookie] = {}
        self.add_listener = directory.add_listener
        self.remove_listener = directory.remove_listener

    @property
    def writable(self) -> tuple[BookieId, ...]:
        return self._directory.writable

    @property
    def readonly(self) -> tuple[BookieId, ...]:
        return self._directory.readonly

    @property
    def has_long_poll(self) -> bool:
        return self._config.wire_version != "v2"

    def rack(self, bookie: BookieId) -> str:
        return self._racks.get(bookie) or self._directory.rack(bookie) or DEFAULT_RACK

    def _rack_relation(self, bookie: BookieId) -> RackRelation:
        known = self._racks.get(bookie) or self._directory.rack(bookie)
        return relation(self._config.local_rack, known)

    def bookie(self, bookie: BookieId) -> Bookie:
        found = self._bookies.get(bookie)
        if found is None:
            stats = self._stats.bookie(bookie)
            found = self._bookies[bookie] = _TcpBookie(
                partial(
                    _Connection, bookie, directory=self._directory, config=self._config,
                    stats=stats, contexts=self._contexts,
                ),
                self._config.wire_version, self._make_frames, self._make_bulk,
            )  # fmt: skip
        return found

    async def start(self) -> None:
        await self._directory.start()

    def close(self) -> None:
        self._directory.close()
        for bookie in self._bookies.values():
            bookie.close()


class _TcpBookie:
    """One bookie and its lazy connections."""

    def __init__(
        self,
        connect: Callable[..., _Connection],
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


def _read_lac_in_v2(connection: _Connection, request: ReadLacRequest, on_answer: OnAnswer) -> None:
    """Ask for the last entry; answer as READ_LAC would."""

    def on_last_entry(_request: Request, answer: Response | LedgerError) -> None:
        if isinstance(answer, ReadResponse):
            answer = ReadLacResponse(answer.status, request.ledger_id, None, answer.entry)
        on_answer(request, answer)

    connection.request(ReadRequest(request.ledger_id, LAST_ENTRY), on_last_entry, 0)


class _Connection:
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
                await start_tls.connect(link, host, port, self._contexts)
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
