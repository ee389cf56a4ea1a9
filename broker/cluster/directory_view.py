"""A live copy of one directory of small metadata nodes.

There is one watch on the directory's children and one on each child. A watch only triggers a new
read; a single task reads, so values never go back in time. While the store is unreachable the view
keeps what it knows and retries.

Listing a large directory is expensive, and every child that is created or deleted triggers another
listing. So there is a pause between two listings, in proportion to their length; one listing covers
all changes since the last one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from broker.security.core.freshness import Freshness
from client.errors import LogCorrupt, MetadataError, NoNode
from client.metadata.store import MetadataStore
from client.node import background

log = logging.getLogger(__name__)

V = TypeVar("V")

_READS_AT_ONCE: Final = 64
_RETRY_S: Final = 0.5
_LISTED_PER_S: Final = 20_000
"""Pauses limit the listings of a large directory to this many names per second."""
_LARGE: Final = 500
"""Number of names from which on a directory is large."""
_PAUSE_MAX_S: Final = 0.5


class DirectoryView(Generic[V]):
    """Child name -> decoded value, kept current by watches."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        decode: Callable[[str, bytes], V],
        on_change: Callable[[], None],
        freshness: Freshness | None = None,
    ) -> None:
        """`decode` may raise LogCorrupt or ValueError: such a node is logged and left out.

        `freshness` is told of every change notification, and of when the change is visible here.
        """
        self.values: dict[str, V] = {}
        self.changed: tuple[str, ...] = ()
        """Names whose values have changed since the previous call of `on_change`: for its
        callee."""
        self._store = store
        self._path = path
        self._decode = decode
        self._on_change = on_change
        self._freshness = freshness or Freshness()
        self._seen: dict[str, None] = {}
        """Paths that were read; they are reported as fresh once `on_change` was called."""
        self._watchers: dict[str, Callable[[], None]] = {}
        self._stale: dict[str, None] = {}
        self._listing_is_stale = True
        self._list_at_s = 0.0
        """Earliest time of the next listing, by the loop's clock."""
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read everything once, then follow changes. Raises MetadataError."""
        await self._refresh()
        self._task = background.run(self._follow(), f"view {self._path}")

    async def close(self) -> None:
        """Stop following."""
        await background.stop(self._task)

    async def look(self, name: str) -> V | None:
        """Read one child now and return it; None if it does not exist. Raises MetadataError."""
        await self._read(name)
        self._report()
        return self.values.get(name)

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._refresh()
            except MetadataError as error:
                log.warning("view.stale path=%s error=%r", self._path, error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _refresh(self) -> None:
        try:
            if self._listing_is_stale:
                loop = asyncio.get_running_loop()
                if loop.time() < self._list_at_s:
                    loop.call_at(self._list_at_s, self._wake.set)
                else:
                    await self._list()
            while self._stale:
                await self._read_some()
        finally:
            self._report()

    async def _list(self) -> None:
        self._listing_is_stale = False
        try:
            names = await self._store.children(self._path, self._on_listing)
        except MetadataError:
            self._listing_is_stale = True
            raise
        if len(names) >= _LARGE:
            pause_s = min(_PAUSE_MAX_S, len(names) / _LISTED_PER_S)
            self._list_at_s = asyncio.get_running_loop().time() + pause_s
        present = dict.fromkeys(names)
        new = [name for name in names if name not in self._watchers]
        for name in new:
            self._freshness.found(self._path_of(name), self._path)
        self._seen[self._path] = None
        for name in [name for name in self._watchers if name not in present]:
            self._forget(name)
        self._stale.update((name, None) for name in new)

    async def _read_some(self) -> None:
        batch = list(self._stale)[:_READS_AT_ONCE]
        results = await asyncio.gather(
            *(self._read(name) for name in batch), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            self._stale.update((name, None) for name in batch)
            raise failures[0]

    async def _read(self, name: str) -> None:
        self._stale.pop(name, None)
        watcher = self._watchers.setdefault(name, partial(self._on_child, name))
        try:
            node = await self._store.get(self._path_of(name), watcher)
            value = self._decode(name, node.data)
        except NoNode:
            self._forget(name)
        except (LogCorrupt, ValueError) as error:
            log.error("view.unreadable path=%s/%s error=%r", self._path, name, error)
            self._drop(name)
            self._seen[self._path_of(name)] = None
        except BaseException:
            self._on_child(name)  # not read: retried even if the caller does not try again
            raise
        else:
            if self.values.get(name) != value:
                self._changed[name] = None
            self.values[name] = value
            self._seen[self._path_of(name)] = None

    def _forget(self, name: str) -> None:
        self._watchers.pop(name, None)
        self._stale.pop(name, None)
        self._drop(name)
        self._seen[self._path_of(name)] = None

    def _drop(self, name: str) -> None:
        if self.values.pop(name, None) is not None:
            self._changed[name] = None

    def _report(self) -> None:
        if self._changed:
            self.changed, self._changed = tuple(self._changed), {}
            self._on_change()
        seen, self._seen = self._seen, {}
        for path in seen:
            if not self._is_outdated(path):
                self._freshness.read(path)

    def _is_outdated(self, path: str) -> bool:
        """Whether a node has changed since it was read."""
        if path == self._path:
            return self._listing_is_stale
        return path.rpartition("/")[2] in self._stale

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _on_listing(self) -> None:
        self._listing_is_stale = True
        self._freshness.told(self._path)
        self._wake.set()

    def _on_child(self, name: str) -> None:
        if name in self._watchers:
            self._stale[name] = None
            self._freshness.told(self._path_of(name))
            self._wake.set()
