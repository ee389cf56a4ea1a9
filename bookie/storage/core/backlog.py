"""How much a bookie holds that is not durable and indexed yet: what back-pressure is made of.

One counter over all directories. Above the limit no connection is read, from that very moment, so
writers feel a slow disk instead of the bookie's memory: what is accepted stays below the limit
plus the adds that one connection's last bytes completed, and the very first bytes of connections
made since.

Rule BACKLOG-SHARE: before that a connection of which more waits in line for a group than there is
room left is not read. So one that sends as fast as it goes has half of it, two have a third each,
and there is always room for one that sends little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from bookie.storage.core.add_turns import AddTurns
from bookie.storage.core.group_commit import Group, OnDone
from client.wire.bookkeeper.messages import AddRequest

NOBODY: Final = None
"""Whose an add is that came over no connection."""


class Backlog:
    """Bytes of accepted entries, with a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self.waiting: dict[Hashable, int] = {}
        """Connection -> bytes of its adds that wait in line; those that have none are not here."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when `is_over` has changed."""

    @property
    def is_over(self) -> bool:
        """Whether more adds should stay in the sockets."""
        return self.bytes > self._bytes_max

    def is_over_for(self, connection: Hashable) -> bool:
        """Whether more adds of a connection should stay in its socket."""
        free = self._bytes_max - self.bytes
        return free < 0 or (bool(self.waiting) and self.waiting.get(connection, 0) > free)

    def add(self, size: int) -> None:
        """So many bytes of entries were accepted."""
        before = self.bytes
        after = self.bytes = before + size
        if before <= self._bytes_max < after:
            self.on_change()

    def remove(self, size: int) -> None:
        """So many are durable and indexed, or given up."""
        before = self.bytes
        after = self.bytes = before - size
        if after <= self._bytes_max < before:
            self.on_change()

    def wait(self, connection: Hashable, size: int) -> None:
        """So many bytes of a connection's wait in line from now on."""
        self.waiting[connection] = self.waiting.get(connection, 0) + size

    def wait_no_longer(self, connection: Hashable, size: int) -> None:
        """So many bytes of a connection's do not wait any more."""
        left = self.waiting[connection] - size
        if left:
            self.waiting[connection] = left
        else:
            del self.waiting[connection]


class WaitingAdd(NamedTuple):
    """An add in line."""

    connection: Hashable
    request: AddRequest
    on_done: OnDone
    since_s: float


class PendingAdds:
    """What one storage holds of the backlog: adds in groups, and those in line for one."""

    def __init__(
        self,
        backlog: Backlog,
        group_bytes_max: int,
        stopwatch: Callable[[], float],
        on_turn: Callable[[float], None],
    ) -> None:
        """`on_turn` gets the seconds that an add waited for its turn."""
        self._backlog = backlog
        self._stopwatch = stopwatch
        self._on_turn = on_turn
        self.bytes = 0
        """Of entries that are not durable and indexed yet. A field: every run of adds asks."""
        self.turns: AddTurns[WaitingAdd] = AddTurns(group_bytes_max)

    def add(self, size: int) -> None:
        """The storage accepted this many bytes of entries."""
        self.bytes += size
        self._backlog.add(size)

    def remove(self, size: int) -> None:
        """So many of them are durable and indexed, or given up."""
        self.bytes -= size
        self._backlog.remove(size)

    def wait(self, connection: Hashable, request: AddRequest, on_done: OnDone) -> None:
        """Let an add wait for its turn."""
        size = len(request.entry)
        waiting = WaitingAdd(connection, request, on_done, self._stopwatch())
        self.turns.push(connection, request.ledger_id, size, waiting)
        self._backlog.wait(connection, size)
        self.add(size)

    def next(self, group: Group) -> WaitingAdd | None:
        """Return the add that goes into the open group next; its bytes stay counted. None: none."""
        waiting = self.turns.pop(group)
        if waiting is not None:
            self._on_turn(self._stopwatch() - waiting.since_s)
            self._backlog.wait_no_longer(waiting.connection, len(waiting.request.entry))
        return waiting

    def give_up(self) -> list[OnDone]:
        """The storage gives up all it holds; return who waits in line for an answer."""
        in_line = list(self.turns)
        self.turns.clear()
        for waiting in in_line:
            self._backlog.wait_no_longer(waiting.connection, len(waiting.request.entry))
        self.remove(self.bytes)
        return [waiting.on_done for waiting in in_line]
