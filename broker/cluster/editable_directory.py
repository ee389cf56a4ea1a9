"""A directory of small metadata nodes that every broker watches and any broker may change.

A change is a compare-and-set of one node, retried on conflicts. It is visible at once on the broker
that makes it, and shortly afterwards on all others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from broker.cluster.directory_view import DirectoryView
from broker.errors import RequestTimedOut
from broker.security.core.freshness import Freshness
from client.errors import ConnectionLoss, NodeExists, NoNode, VersionConflict
from client.metadata.store import MetadataStore

V = TypeVar("V")

_TRY_COUNT_MAX: Final = 10
_ABSENT: Final = -1

Change = Callable[[bytes | None], bytes | None]
"""Maps a node's content to its new content; None: the node does not exist. It may be called more
than once."""


class EditableDirectory(Generic[V]):
    """Child name -> decoded value, kept current by watches, and changed one node at a time."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        decode: Callable[[str, bytes], V],
        on_change: Callable[[], None],
        freshness: Freshness | None = None,
    ) -> None:
        """`decode`, `on_change` and `freshness` are those of `DirectoryView`."""
        self._store = store
        self._path = path
        self._view: DirectoryView[V] = DirectoryView(store, path, decode, on_change, freshness)
        self._lock = asyncio.Lock()
        self._is_started = False

    @property
    def values(self) -> dict[str, V]:
        """The values of all readable nodes, by name."""
        return self._view.values

    @property
    def changed(self) -> tuple[str, ...]:
        """Names whose values have changed, for `on_change`."""
        return self._view.changed

    async def start(self) -> None:
        """Read all nodes, then follow changes, unless already started. Raises MetadataError."""
        async with self._lock:
            if self._is_started:
                return
            with contextlib.suppress(NodeExists):
                await self._store.create(self._path, make_parents=True)
            await self._view.start()
            self._is_started = True

    async def close(self) -> None:
        """Stop following."""
        await self._view.close()

    async def edit(
        self, name: str, change: Change, *, subject: str, is_repeatable: bool = False
    ) -> None:
        """Replace a node's content by the result of `change`, and refresh the view.

        `subject` names the node in the error. `is_repeatable`: a change whose answer was lost may
        be applied a second time; otherwise a lost answer raises ConnectionLoss, and the change may
        have happened.

        Raises what `change` raises, MetadataError, RequestTimedOut (too many conflicts).
        """
        path = f"{self._path}/{name}"
        for _ in range(_TRY_COUNT_MAX):
            before, version = await self._read(path)
            after = change(before)
            try:
                if after != before:
                    await self._write(path, after, version)
            except (NodeExists, NoNode, VersionConflict):
                continue  # another broker was faster
            except ConnectionLoss:
                if not is_repeatable:
                    raise
                continue  # the outcome is unknown: read it again
            await self._view.look(name)
            return
        raise RequestTimedOut(f"{subject} could not be changed: too many conflicting changes")

    async def _read(self, path: str) -> tuple[bytes | None, int]:
        try:
            node = await self._store.get(path)
        except NoNode:
            return None, _ABSENT
        return node.data, node.version

    async def _write(self, path: str, data: bytes | None, version: int) -> None:
        if data is None:
            await self._store.delete(path, version)
        elif version == _ABSENT:
            await self._store.create(path, data, make_parents=True)
        else:
            await self._store.set(path, data, version)
