"""A directory of small metadata nodes that every broker watches and any broker may change.

A change is visible at once on the broker that makes it, and shortly afterwards on all others. A
node of which nothing is left is deleted, and may be made again under its path. So each change is
bound to the directory (`bound_changes.py` has the rules): that node stays, and every change of a
child sets it. Otherwise an edit that began before a deletion could bring back a right that was
revoked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from broker.cluster.bound_changes import BoundChanges
from broker.cluster.directory_view import DirectoryView, Freshness
from client.errors import NodeExists
from client.metadata.store import Change as NodeChange
from client.metadata.store import Create, Delete, MetadataStore, SetData, Versioned

V = TypeVar("V")

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
        *,
        in_place: Callable[[str], V | None] | None = None,
    ) -> None:
        """`decode`, `on_change`, `freshness` and `in_place` are those of `DirectoryView`."""
        self._store = store
        self._path = path
        self._view: DirectoryView[V] = DirectoryView(
            store, path, decode, on_change, freshness, in_place=in_place
        )
        self._bound = BoundChanges(store)
        self._edits = asyncio.Lock()
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

    async def edit(self, name: str, change: Change, *, subject: str) -> None:
        """Replace a node's content by the result of `change`, and refresh the view.

        `change` gets the newest content, and its result is applied once, also if an answer was
        lost. `subject` names the node in an error.

        Raises what `change` raises (nothing has happened), RequestTimedOut and MetadataError (it
        may have happened).
        """
        path = f"{self._path}/{name}"

        async def plan(node: Versioned | None) -> Sequence[NodeChange]:
            before = None if node is None else node.data
            after = change(before)
            if after == before:
                return []
            if node is None:
                assert after is not None
                return [Create(path, after)]
            if after is None:
                return [Delete(path, node.version)]
            return [SetData(path, after, node.version)]

        async with self._edits:  # otherwise they would keep each other from the anchor
            await self._bound.make(self._path, path, plan, subject=subject)
        await self._view.look(name)

    async def catch_up(self) -> None:
        """Show what had been changed anywhere when this was called. Raises MetadataError."""
        await self._view.catch_up()
