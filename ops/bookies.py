"""The bookies of a cluster as ZooKeeper and they themselves tell.

Commands show every bookie that has a cookie, whether it is registered, and the space that it says
it has.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from client.autorecovery.census import ask
from client.errors import BookieUnavailable, NoNode, QuireError
from client.ids import BookieId
from client.ledger.bookies.bookie_directory import ServiceInfo, parse_service_info
from client.ledger.client import LedgerClient
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.wire.bookkeeper.messages import BookieInfoRequest, BookieInfoResponse

UP = "up"
READ_ONLY = "read-only"
DOWN = "down"


class BookieView(NamedTuple):
    """One bookie."""

    bookie_id: BookieId
    state: str
    info: ServiceInfo | None
    """What its registration says; None without one."""
    free_bytes: int | None = None
    total_bytes: int | None = None
    """Of its disks; None if it does not answer."""

    @property
    def address(self) -> str | None:
        """Where it listens."""
        return None if self.info is None else f"{self.info.address.host}:{self.info.address.port}"

    @property
    def admin_url(self) -> str | None:
        """Where its admin server listens."""
        return None if self.info is None else self.info.admin_url

    @property
    def rack(self) -> str | None:
        """What fails together with it."""
        return None if self.info is None else self.info.rack


async def all_bookies(
    store: MetadataStore, client: LedgerClient, root: str = paths.LEDGERS_ROOT
) -> list[BookieView]:
    """Return every bookie that ever was, by id. Raises MetadataError."""
    ever = await _children(store, paths.cookies(root))
    writable = await _children(store, paths.available(root))
    read_only = await _children(store, paths.readonly(root))
    shown = paths.readonly(root).rpartition("/")[2]
    found = [
        _look(store, client, BookieId(name), _state(name, writable, read_only), root)
        for name in sorted({*ever, *writable, *read_only}.difference({shown}))
    ]
    return list(await asyncio.gather(*found))


async def one_bookie(
    store: MetadataStore, client: LedgerClient, bookie_id: str, root: str = paths.LEDGERS_ROOT
) -> BookieView:
    """Return one bookie. Raises QuireError if there never was one of that id, MetadataError."""
    for view in await all_bookies(store, client, root):
        if view.bookie_id == bookie_id:
            return view
    raise QuireError(f"there is no bookie {bookie_id}: `quire bookie list` shows those there are")


def running(view: BookieView) -> ServiceInfo:
    """Return what a registered bookie says. Raises QuireError for one that is down."""
    if view.info is None:
        raise QuireError(f"bookie {view.bookie_id} is down")
    return view.info


def _state(name: str, writable: list[str], read_only: list[str]) -> str:
    return UP if name in writable else READ_ONLY if name in read_only else DOWN


async def _look(
    store: MetadataStore, client: LedgerClient, bookie_id: BookieId, state: str, root: str
) -> BookieView:
    info = await _service_info(store, bookie_id, state, root)
    if info is None:
        return BookieView(bookie_id, DOWN, None)
    request = BookieInfoRequest(total_capacity=True, free_space=True)
    answer = await ask(client.context.bookies, bookie_id, request)
    if not isinstance(answer, BookieInfoResponse):
        return BookieView(bookie_id, state, info)
    return BookieView(bookie_id, state, info, answer.free_space, answer.total_capacity)


async def _service_info(
    store: MetadataStore, bookie_id: BookieId, state: str, root: str
) -> ServiceInfo | None:
    if state == DOWN:
        return None
    path_of = paths.available_bookie if state == UP else paths.readonly_bookie
    try:
        return parse_service_info(bookie_id, (await store.get(path_of(bookie_id, root))).data)
    except (NoNode, BookieUnavailable):
        return None  # it went at this moment, or says nothing


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []
