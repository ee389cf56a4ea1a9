"""Which bookies there are and where they listen, kept up to date by watches.

Covers reading bookie registrations: the children of `available` are writable, those of
`available/readonly` still serve reads (a bookie in both counts as writable), and a registration's
data names its endpoints and, from our own bookies, its rack. The data of a bookie is read when it
appears in a list. The lists may be stale by a session timeout: they are for choosing, never for
deciding that a bookie is dead.

The node `disableHealthCheck` is the operator's switch that ends quarantines everywhere.

Sources: Apache BookKeeper `ZKRegistrationClient`, `BookieServiceInfoUtils`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from client import callbacks
from client.errors import BookieUnavailable, MetadataError, NoNode
from client.ids import BookieId
from client.ledger.core.bookie_health import BookieHealth
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background
from client.wire.bookkeeper import protobuf

log = logging.getLogger(__name__)

_BOOKIE_PROTOCOL: Final = "bookie-rpc"
_HTTP: Final = "http"
_HTTPS: Final = "https"
_READONLY: Final = "readonly"
_RACK: Final = "rack"
_RELIST_DELAY_S: Final = 0.5
"""Pause before listing again when the metadata store could not answer."""


class Address(NamedTuple):
    """Where a bookie listens."""

    host: str
    port: int


class ServiceInfo(NamedTuple):
    """What a registration says."""

    address: Address
    rack: str | None
    """What fails together with it; None: it does not say."""
    http: Address | None = None
    """Where its admin server listens; None: it has none."""
    http_scheme: str = "http"
    """How: http or https."""

    @property
    def admin_url(self) -> str | None:
        """Return how URLs of its admin server begin; None: it has none."""
        if self.http is None:
            return None
        host = f"[{self.http.host}]" if ":" in self.http.host else self.http.host
        return f"{self.http_scheme}://{host}:{self.http.port}"


class BookieDirectory:
    """The live list of bookies. `start` before use; listeners run on the loop."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        self._store = store
        self._root = root
        self.writable: tuple[BookieId, ...] = ()
        """Bookies that take new entries, sorted."""
        self.readonly: tuple[BookieId, ...] = ()
        """Bookies that only serve reads, sorted."""
        self._listeners: list[Callable[[], None]] = []
        self._infos: dict[BookieId, ServiceInfo] = {}
        """As last read; kept when a bookie goes, for it may still answer."""
        self._doubtful: dict[BookieId, None] = {}
        """Bookies whose address must be looked up again."""
        self._relisting: asyncio.Task[None] | None = None
        self._stale = False
        self._closed = False

    async def start(self) -> None:
        """List the bookies and watch for changes. Raises MetadataError."""
        await self._list()

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self._listeners.clear()
        if self._relisting is not None:
            self._relisting.cancel()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the lists may have changed."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo `add_listener`."""
        self._listeners.remove(listener)

    async def address(self, bookie: BookieId) -> Address:
        """Return where a bookie listens, the last place known if the store cannot say now.

        Raises BookieUnavailable, MetadataError.
        """
        known = self._infos.get(bookie)
        if known is None or bookie in self._doubtful:
            try:
                known = self._infos[bookie] = await self._resolve(bookie)
                self._doubtful.pop(bookie, None)
            except MetadataError:
                if known is None:
                    raise
        return known.address

    def rack(self, bookie: BookieId) -> str | None:
        """Return the rack a bookie published when it was last seen."""
        info = self._infos.get(bookie)
        return None if info is None else info.rack

    def doubt_address(self, bookie: BookieId) -> None:
        """Look the address up again next time: nobody answers there."""
        self._doubtful[bookie] = None

    async def _resolve(self, bookie: BookieId) -> ServiceInfo:
        for path in (
            paths.available_bookie(bookie, self._root),
            paths.readonly_bookie(bookie, self._root),
        ):
            try:
                node = await self._store.get(path)
            except NoNode:
                continue
            parse = partial(parse_service_info, bookie)
            return self._store.unreadable.decode(path, node.data, parse)
        return parse_service_info(bookie, b"")

    async def _list(self) -> None:
        writable = await self._children(paths.available(self._root))
        readonly = await self._children(paths.readonly(self._root))
        readonly = [name for name in readonly if name not in writable]
        known = [*self.writable, *self.readonly]
        listed = [BookieId(name) for name in (*writable, *readonly) if name != _READONLY]
        await asyncio.gather(*(self._learn(bookie) for bookie in listed if bookie not in known))
        self.writable = tuple(BookieId(name) for name in writable if name != _READONLY)
        self.readonly = tuple(map(BookieId, readonly))
        log.info("bookies.listed writable=%d readonly=%d", len(self.writable), len(self.readonly))

    async def _learn(self, bookie: BookieId) -> None:
        """Read what a bookie that has just appeared says of itself."""
        try:
            self._infos[bookie] = await self._resolve(bookie)
        except BookieUnavailable as error:
            log.warning("bookies.unreadable bookie=%s error=%s", bookie, error)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path, self._on_change)
        except NoNode:
            if await self._store.exists(path, self._on_change) is not None:
                return await self._children(path)
            return []

    def _on_change(self) -> None:
        self._stale = True
        if not self._closed and (self._relisting is None or self._relisting.done()):
            self._relisting = background.keep(self._relist, "bookies")

    async def _relist(self) -> None:
        while self._stale:
            self._stale = False
            try:
                await self._list()
            except MetadataError as error:
                log.warning("bookies.list_failed error=%s", error)
                self._stale = True
                await asyncio.sleep(_RELIST_DELAY_S)
                continue
            callbacks.each(callbacks.Kind.BOOKIES, list(self._listeners))


def parse_service_info(bookie: BookieId, data: bytes) -> ServiceInfo:
    """Return what a registration says; a bookie id is an address when its data has none.

    Raises BookieUnavailable when neither says where the bookie listens.
    """
    info = protobuf.BookieServiceInfoFormat()
    try:
        info.ParseFromString(data)
    except DecodeError as error:
        raise BookieUnavailable(f"registration of {bookie} is malformed") from error
    racks = [item.value for item in info.properties if item.key == _RACK]
    rack = racks[0] if racks else None
    by_protocol = {item.protocol: Address(item.host, item.port) for item in info.endpoints}
    scheme = _HTTPS if _HTTPS in by_protocol else _HTTP
    http = by_protocol.get(scheme)
    if _BOOKIE_PROTOCOL in by_protocol:
        return ServiceInfo(by_protocol[_BOOKIE_PROTOCOL], rack, http, scheme)
    host, _, port = bookie.rpartition(":")
    if not host or not port.isdigit():
        raise BookieUnavailable(f"the address of bookie {bookie} is unknown")
    return ServiceInfo(Address(host, int(port)), rack, http, scheme)


_RETRY_S: Final = 5.0


class HealthSwitch:
    """Tells `health` whether quarantines count."""

    def __init__(self, store: MetadataStore, root: str, health: BookieHealth) -> None:
        self._store = store
        self._path = paths.health_check_disabled(root)
        self._health = health
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look, and go on looking. Raises MetadataError."""
        await self._look()

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        is_disabled = await self._store.exists(self._path, self._on_change) is not None
        self._health.has_quarantine = not is_disabled

    def _on_change(self) -> None:
        if self._task is None or self._task.done():
            self._task = background.keep(self._look_again, "health-switch")

    async def _look_again(self) -> None:
        while True:
            try:
                return await self._look()
            except MetadataError as error:
                log.warning("health_switch.unknown error=%r", error)
                await asyncio.sleep(_RETRY_S)
