"""Keeps account of the nodes of the metadata store that this process cannot decode.

A node may hold bytes that are no JSON, that a newer release wrote in a format of its own, or that
somebody edited by hand. The rule is the same for every kind of node (UNREADABLE-STAYS):

- Unreadable is not absent. Nothing is deleted because of it, neither the node nor what belongs to
  what it describes, and nobody writes over it.
- Absent is not dead, and what cannot be read is alive: a registration whose bytes say nothing
  still is the ephemeral of a living session.
- Where the last readable value is a safe answer it stays in force; else the node counts as one
  that exists and says nothing.
- Everything else goes on. The node is named with its path, here, for the log, the metric, `quire
  doctor` and the admin API.
- What is readable but not known, a setting or a field that a newer release wrote, is carried along
  unchanged by whoever writes the node (`json_node.unknown_fields`).

So a release that wants older ones to go on working with a node adds fields and keeps the format
number; it raises the number only if the older ones must not touch the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from client.errors import QuireError

log = logging.getLogger(__name__)

V = TypeVar("V")

ADVICE: Final = (
    "upgrade this node if a newer release wrote it; otherwise correct it, or put back its bytes of"
    " a backup. Until then it stays as it is, and nothing that belongs to it is deleted"
)
_LOG_AGAIN_S: Final = 600.0
_FORGET_S: Final = 900.0
"""Longer than any task waits before it reads a node again."""
_NODES_MAX: Final = 1_000
"""Nodes that are named; of more only the log speaks. A store that is damaged as a whole has
millions."""
_WHY_CHARS_MAX: Final = 300


class _Found(NamedTuple):
    why: str
    logged_s: float
    until_s: float
    """When it is no longer counted unless it is found again."""


class UnreadableNodes:
    """Path -> why it cannot be read, as last seen by this process. There is one for each store."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}

    def decode(self, path: str, data: bytes, decode: Callable[[bytes], V]) -> V:
        """Return what `decode` makes of a node's bytes, and note whether it could.

        Raises what `decode` raises.
        """
        try:
            value = decode(data)
        except (QuireError, ValueError) as error:
            self.note(path, error)
            raise
        self.forget(path)
        return value

    def note(self, path: str, error: Exception, *, is_watched: bool = False) -> None:
        """Name a node that could not be decoded; the log hears of it once in ten minutes.

        `is_watched`: whoever calls says so when it can be read again, or is gone (`forget`).
        """
        now_s = asyncio.get_running_loop().time()
        why = str(error)[:_WHY_CHARS_MAX] or type(error).__name__
        known = self._found.get(path)
        logged_s = now_s if known is None else known.logged_s
        if known is None or known.why != why or now_s >= known.logged_s + _LOG_AGAIN_S:
            log.error("metadata.unreadable path=%s error=%r advice=%r", path, why, ADVICE)
            logged_s = now_s
        if known is not None or len(self._found) < _NODES_MAX:
            until_s = float("inf") if is_watched else now_s + _FORGET_S
            self._found[path] = _Found(why, logged_s, until_s)

    def forget(self, path: str) -> None:
        """A node can be read, or is gone."""
        if self._found.pop(path, None) is not None:
            log.info("metadata.readable path=%s", path)

    def all(self) -> dict[str, str]:
        """Return path -> why, sorted by path."""
        if not self._found:
            return {}
        now_s = asyncio.get_running_loop().time()
        self._found = {path: one for path, one in self._found.items() if now_s < one.until_s}
        return {path: self._found[path].why for path in sorted(self._found)}

    def __len__(self) -> int:
        return len(self.all())
