"""Requests and watches on their way to the in-memory metadata store. Only `memory.py` uses them."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from client.metadata.store import Watcher
from client.metadata.tree import Readable


class Kind(enum.Enum):
    NODE = "node"
    """Waits for a node's creation, new bytes or deletion."""
    DIRECTORY = "directory"
    """Waits for a change among a node's children, or for its deletion."""


class Watch(NamedTuple):
    store: Any
    """Whose it is, a `MemoryStore`."""
    kind: Kind
    path: str
    call: Watcher


class Request(NamedTuple):
    store: Any
    """Who asks, a `MemoryStore`."""
    name: str
    path: str
    apply: Callable[[Any, Readable], object]
    """Gets the `MemoryCluster`, and what reads of this session see."""
    answer: asyncio.Future[Any]
    watches: tuple[Watch, ...]
    """What it leaves if it is done; of a read of many nodes, one for each of them."""

    @property
    def is_read(self) -> bool:
        return self.name in ("get", "get_many", "exists", "children")

    def left_watches(self, outcome: object) -> Sequence[Watch]:
        """Return the watches that it leaves with this outcome."""
        if isinstance(outcome, Exception):
            return ()
        if self.watches and isinstance(outcome, list) and self.name == "get_many":
            found = zip(self.watches, outcome, strict=True)
            return [watch for watch, node in found if node is not None]
        return self.watches
