"""Changes nodes that can be deleted and made again under the same path, each at most once.

ZooKeeper counts the versions of a node that is made again from 0. So "version 0 of the topic that
was deleted" and "version 0 of its namesake" are the same to a compare-and-set, and a broker that
read the first, from a server that lags or before it lost its connection, would change or delete the
second. The rules:

- BOUND: a version is not an identity. Every change is one transaction with a set of the node's
  *anchor*, at the version that was read: a node that is never made again under its path, and that
  every creation, change and deletion of the node sets. So a change succeeds only if the node is
  still the one that was read.
- ANCHOR-FIRST: the anchor is read before the node, in one request. In the other order a deletion
  between the two reads would go unnoticed.
- SYNC: what is decided is decided on what was read after a sync: "there is nothing left to do", "it
  is taken" and "it is not there" are answers, too.
- ONCE: a transaction whose answer was lost may have happened. So each carries a token, which the
  anchor keeps with those of the changes before it. Whoever finds its own token after a sync has
  succeeded, whatever happened to the node since; whoever does not may try again, because both
  attempts expect the same version of the anchor, or the first one can never succeed.

Earlier releases set no anchors: while one of their brokers changes the same node, only its version
protects it. An anchor that has never been set is empty, and has the version 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from broker.errors import RequestTimedOut
from client.errors import ConnectionLoss, NodeExists, NoNode, SessionExpired, VersionConflict
from client.metadata.store import Change, Create, MetadataStore, SetData, Versioned

Plan = Callable[[Versioned | None], Awaitable[Sequence[Change]]]
"""Node as read, None: it does not exist -> changes to make, none: there is nothing to do. It is
called again when others were faster, and may raise."""

_TRY_COUNT_MAX: Final = 64
_LOST_COUNT_MAX: Final = 8
"""Attempts without an answer, each of which may have taken a session timeout."""
_TOKENS_MAX: Final = 32
"""An attempt is recognised unless more changes than these came after it."""

_COUNTS: Final[WeakKeyDictionary[MetadataStore, itertools.count[int]]] = WeakKeyDictionary()
"""Changes made through a store, by all who share it: a token is a session and a number in it."""


class BoundChanges:
    """The changes that one broker makes."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._count = _COUNTS.setdefault(store, itertools.count(1))

    async def make(
        self, anchor: str, path: str, plan: Plan, *, subject: str, is_first: bool = False
    ) -> None:
        """Change a node by what `plan` makes of it, together with its anchor.

        `subject` names the node in an error. A missing anchor is made together with the change.
        `is_first`: the caller has made the anchor, and this is its first change; NoNode if somebody
        else has set or deleted it (then nothing has happened, unless an answer was lost).

        Raises what `plan` raises (nothing has happened), RequestTimedOut (others were always
        faster, or an answer was lost each time: it may have happened), MetadataError (the same).
        """
        token, lost_count = "", 0
        for _ in range(_TRY_COUNT_MAX):
            try:
                await self._store.sync(path)
                holder, node = await self._store.get_many([anchor, path])
                tokens = [] if holder is None else _tokens(holder.data)
                if token in tokens:
                    return
                if is_first and (holder is None or holder.version > 0):
                    raise NoNode(anchor)
                changes = await plan(node)
            except (ConnectionLoss, SessionExpired):
                lost_count += lost_count > 0
                if not 0 < lost_count < _LOST_COUNT_MAX:
                    raise  # nothing was sent, or there is no use in asking on
                continue
            if not changes:
                return
            token = token or self._next_token()
            if not token:
                continue  # the session has just ended; the next read waits for another
            data = _encode([token, *tokens])
            try:
                if holder is None:
                    await self._store.multi([Create(anchor, data), *changes])
                else:
                    await self._store.multi([SetData(anchor, data, holder.version), *changes])
                return
            except (VersionConflict, NodeExists, NoNode):
                continue  # somebody was faster, or an earlier attempt came through after all
            except (ConnectionLoss, SessionExpired):
                lost_count += 1
                if lost_count == _LOST_COUNT_MAX:
                    break
        raise RequestTimedOut(
            f"{subject} could not be changed: others were always faster, or answers were lost"
        )

    def _next_token(self) -> str:
        """Return what no other change of any broker has; empty: there is no session now."""
        session_id = self._store.session_id
        return f"{session_id & (1 << 64) - 1:x}-{next(self._count):x}" if session_id else ""


def _tokens(data: bytes) -> list[str]:
    return data.decode("ascii", "replace").split()


def _encode(tokens: Sequence[str]) -> bytes:
    return " ".join(tokens[:_TOKENS_MAX]).encode()
