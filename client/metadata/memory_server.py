"""The server that one session of the in-memory store is connected to. Only `memory.py` uses it.

It shows the tree as it was after the last change that it has applied, and applies what was
committed in that order, each change after a while: a server that lags. Its watches fire as it
applies. A write is answered once it has applied that write, `sync` once it has applied all that
there was, a read once the session's own writes before it are applied.

A session that comes back after an interruption may find itself on a server that lacks more than
the last one did, but never what the session was shown already.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from client.metadata.tree import Readable, Touched, Tree

Action = Callable[[], None]


class Commit(NamedTuple):
    """A change that the leader has made."""

    zxid: int
    touched: Sequence[Touched]


class _Coming(NamedTuple):
    commit: Commit
    due_s: float
    then: list[Action]
    """What waits for it to be applied."""


class Server:
    """How far one session's server has come."""

    def __init__(
        self, tree: Tree, fire: Callable[[Sequence[Touched]], None], context: contextvars.Context
    ) -> None:
        """`fire`: calls the watches that a change which is applied concerns."""
        self._tree = tree
        self._fire = fire
        self._context = context
        self._applied = 0
        """Counts while there is something to apply."""
        self._coming: deque[_Coming] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_frozen = False

    @property
    def lags(self) -> bool:
        """Whether it may lack something."""
        return self._is_frozen or bool(self._coming)

    @property
    def applied(self) -> int:
        """Return the number of the last change that it shows."""
        return self._applied if self.lags else self._tree.zxid

    @property
    def tree(self) -> Readable:
        """Return what it shows."""
        return self._tree.as_of(self._applied) if self.lags else self._tree

    def freeze(self) -> None:
        """Apply nothing until `catch_up`."""
        if not self._is_frozen:
            self._applied = self.applied
            self._is_frozen = True
            self._cancel()

    @property
    def is_frozen(self) -> bool:
        """Whether it waits for `catch_up`."""
        return self._is_frozen

    def commit(self, commit: Commit, lag_s: float) -> bool:
        """Take a change that was just made; false: it is applied, and its watches are to fire."""
        if not self.lags:
            if lag_s <= 0:
                return False
            self._applied = commit.zxid - 1
        self._add(commit, lag_s)
        self._plan()
        return True

    def move(self, lacking: Sequence[Commit], lag_s: float) -> None:
        """Be another server, which lacks these changes, the newest ones, and applies them then.

        Nothing that waited at the last one is called.
        """
        self._cancel()
        self._coming.clear()
        if lacking:
            self._applied = lacking[0].zxid - 1
        for commit in lacking:
            self._add(commit, lag_s)
        self._plan()

    def catch_up(self) -> None:
        """Apply everything now."""
        self._is_frozen = False
        self._cancel()
        while self._coming:
            self._apply_next()

    def when_caught_up(self, action: Action) -> None:
        """Call `action` once it has applied all that is committed by now."""
        if self._coming:
            self._coming[-1].then.append(action)
        else:
            action()

    def in_order(self, action: Action) -> None:
        """Call `action` behind those that wait already, and without waiting itself."""
        for coming in reversed(self._coming):
            if coming.then:
                coming.then.append(action)
                return
        action()

    def _add(self, commit: Commit, lag_s: float) -> None:
        due_s = asyncio.get_running_loop().time() + lag_s
        if self._coming:
            due_s = max(due_s, self._coming[-1].due_s)
        self._coming.append(_Coming(commit, due_s, []))

    def _plan(self) -> None:
        """Wait for the next change that is to be applied."""
        if self._coming and not self._is_frozen and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(
                self._coming[0].due_s, self._on_due, context=self._context
            )

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_due(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        self._apply_next()
        while self._coming and self._coming[0].due_s <= now_s and not self._is_frozen:
            self._apply_next()
        self._plan()

    def _apply_next(self) -> None:
        coming = self._coming.popleft()
        self._applied = coming.commit.zxid
        self._fire(coming.commit.touched)
        for action in coming.then:
            action()
