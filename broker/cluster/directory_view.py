"""A live copy of one directory of small metadata nodes.

There is one watch on the directory's children and one on each child. A watch only triggers a new
read; a single task reads, so values never go back in time. While the store is unreachable the view
keeps what it knows and retries.

Listing a large directory is expensive, and every child that is created or deleted triggers another
listing. So there is a pause between two listings, in proportion to their length; one listing covers
all changes since the last one.

A child that cannot be decoded is there all the same (UNREADABLE-STAYS, `client/metadata/
unreadable.py`): it is named in `unreadable`, and by default its last readable value stays in force.
Only a child that the store does not have leaves the view.

A broker that is cut off from the metadata store does not hear that a password or a right was taken
away. So it goes by what it knows of those for a bounded time only (`Freshness`). What it knows is
as of the last question that the store answered, counted from when the question left: the store
tells of every change that it had made before it answers. A change that we were told of and have not
read yet holds the time where it was before: at the last question that was answered before we were
told.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

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


class Freshness:
    """Of everything that decides who may come in, and do what."""

    def __init__(self, age_max_s: float = math.inf) -> None:
        """`age_max_s`: what is older does not count any more."""
        self._age_max_s = age_max_s
        self._asked_s = self._known_s = -math.inf
        self._unread: dict[str, float] = {}
        """What we were told of and have not read yet -> as of when we know all but that."""

    def answered(self, asked_s: float) -> None:
        """The store answered a question that left at `asked_s`."""
        self._asked_s = max(self._asked_s, asked_s)
        self._known_s = max(self._known_s, min((self._asked_s, *self._unread.values())))

    def told(self, node: str) -> None:
        """A node has changed."""
        self._unread.setdefault(node, self._asked_s)

    def found(self, node: str, directory: str) -> None:
        """A node is new in a directory whose list is being read."""
        self._unread.setdefault(node, self._unread.get(directory, self._asked_s))

    def read(self, node: str) -> None:
        """A node was read after it had changed, and what is in it holds from now on."""
        self._unread.pop(node, None)

    def is_fresh(self, now_s: float) -> bool:
        """Whether what is known still counts."""
        return math.isinf(self._age_max_s) or now_s < self._known_s + self._age_max_s

    def refusal(self, subject: str) -> str:
        """Say why nobody is let in, or served, by what is known of a subject."""
        return (
            f"this broker is cut off from the metadata store: what it knows of {subject} is older"
            f" than security.access_age_max_ms ({self._age_max_s * 1000:.0f}). Try again, or"
            " another broker"
        )


class DirectoryView(Generic[V]):
    """Child name -> decoded value, kept current by watches."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        decode: Callable[[str, bytes], V],
        on_change: Callable[[], None],
        freshness: Freshness | None = None,
        *,
        in_place: Callable[[str], V | None] | None = None,
    ) -> None:
        """`decode` may raise LogCorrupt or ValueError: such a node is named in `unreadable`.

        `freshness` is told of every change notification, and of when the change is visible here.
        `in_place` says what holds instead of such a node, None: it has no value; by default its
        last readable value stays in force, but that may grant what has been taken back since.
        """
        self.values: dict[str, V] = {}
        self.unreadable: dict[str, None] = {}
        """Names of the children whose bytes cannot be decoded. They are there, and `values` may
        have what they were before."""
        self.changed: tuple[str, ...] = ()
        """Names whose values have changed since the previous call of `on_change`: for its
        callee."""
        self._store = store
        self._path = path
        self._decode = decode
        self._on_change = on_change
        self._freshness = freshness or Freshness()
        self._in_place = in_place
        self._seen: dict[str, None] = {}
        """Paths that were read; they are reported as fresh once `on_change` was called."""
        self._watchers: dict[str, Callable[[], None]] = {}
        self._stale: dict[str, None] = {}
        self._listing_is_stale = True
        self._list_at_s = 0.0
        """Earliest time of the next listing, by the loop's clock."""
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read everything once, then follow changes. Raises MetadataError."""
        await self._refresh()
        self._task = background.run(self._follow(), f"view {self._path}")

    async def close(self) -> None:
        """Stop following."""
        await background.stop(self._task)

    async def look(self, name: str) -> V | None:
        """Read one child now and return it; None if it does not exist, or is unreadable and has no
        value that stays in force. Raises MetadataError."""
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

    async def catch_up(self) -> None:
        """Show what had been changed anywhere when this was called. Raises MetadataError."""
        await self._store.sync(self._path)
        # What has changed by then is known to be stale, or is being read right now.
        async with self._refreshing:
            self._list_at_s = 0.0
            await self._read_stale()

    async def _refresh(self) -> None:
        async with self._refreshing:
            await self._read_stale()

    async def _read_stale(self) -> None:
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
            self._store.unreadable.note(self._path_of(name), error, is_watched=True)
            if name not in self.unreadable:
                self.unreadable[name] = None
                self._changed[name] = None
            if self._in_place is not None:
                self._put(name, self._in_place(name))
            self._seen[self._path_of(name)] = None
        except BaseException:
            self._on_child(name)  # not read: retried even if the caller does not try again
            raise
        else:
            self._recovered(name)
            self._put(name, value)
            self._seen[self._path_of(name)] = None

    def _forget(self, name: str) -> None:
        self._watchers.pop(name, None)
        self._stale.pop(name, None)
        self._recovered(name)
        self._put(name, None)
        self._seen[self._path_of(name)] = None

    def _recovered(self, name: str) -> None:
        """A child can be read again, or is gone."""
        if name in self.unreadable:
            del self.unreadable[name]
            self._changed[name] = None
            self._store.unreadable.forget(self._path_of(name))

    def _put(self, name: str, value: V | None) -> None:
        """Have a child's value; None: it has none."""
        if self.values.get(name) != value:
            self._changed[name] = None
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

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
