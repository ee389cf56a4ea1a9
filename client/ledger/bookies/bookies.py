"""The bookies of a cluster: which there are, where they stand, and how they are asked.

Every request gets exactly one answer by its callback, later on the loop and never inside the call
that sent it: the response when its status is OK, otherwise a `LedgerError`. How it gets there and
back, always bounded, never stuck, is `bookie_link.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from client.ids import BookieId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookie_link import BookieConnection, OnAnswer, TcpBookie
from client.ledger.config import LedgerClientConfig, parse_rack
from client.ledger.core.placement import DEFAULT_RACK, RackRelation, relation
from client.ledger.metrics import LedgerStats
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from client.wire.bookkeeper.messages import Request
from client.wire.frames import FrameIntake, FrameReceiver, ReusedBuffers, make_window


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
        self._bookies: dict[BookieId, TcpBookie] = {}
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
            found = self._bookies[bookie] = TcpBookie(
                partial(
                    BookieConnection, bookie, directory=self._directory, config=self._config,
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
