"""Which adds go into the open group, which wait for a later one, and whose turn it is then.

A group is written and synced as a whole, and an add waits for the group in flight and for its own.
If everything that arrives went into the open group, who adds a small entry now and then would wait
for all that somebody else sends as fast as it goes, twice.

    GROUP-ROOM   an add goes into the open group while its entries have at most `group_bytes_max`;
                 the first one goes, however large it is.
    GROUP-SHARE  in a group that is full there is still a sixteenth of it for each ledger of which
                 nothing waits, and a quarter for each connection: who adds little waits for
                 nobody in line. So a group has at most `group_bytes_max`, a quarter of that for
                 each connection that adds meanwhile, and one entry.
    GROUP-ALONE  while nobody was there of late who adds little beside others, a group has eight
                 times as much: nobody waits behind it but who sent it, and what a group costs is
                 paid less often. Who adds little is an add of at most a ledger's share, to a ledger
                 of which nothing was on its way, while more than a connection's share was of
                 others. It ends that for the groups that begin next.
    GROUP-CREDIT an add counts as little only while its ledger has credit, as much as it may add:
                 at most its share, which it has to earn: within eight groups from the first such
                 add on, and all that is added to it costs that. Of many ledgers that are equally
                 busy one or the other has nothing on its way at any moment, and none of them adds
                 little.
    GROUP-TURNS  all others wait in line, those of a ledger in order. When the next group is open
                 connections take turns by bytes, and so do the ledgers of a connection: of two that
                 have much in line neither gets more than the other, but for one entry.

What waits is bounded by `backlog.py`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from bookie.storage.core.group_commit import Group
from client.ids import LedgerId

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_LEDGER_PART: Final = 16
_CONNECTION_PART: Final = 4
"""So many shares of ledgers, of connections, are as much as a group."""

ALONE_GROUPS: Final = 8
"""So many groups are as much as one that nobody waits for who adds little."""
_SHARED_GROUPS: Final = 256
"""For this many groups it counts that somebody added little: a second of a fast disk, and more of a
slow one."""
_CREDIT_GROUPS: Final = 8
"""A ledger's credit comes back within so many groups (GROUP-CREDIT)."""
_DEBT_SHARES: Final = 16
"""It owes so many times its share at most: who was busy adds little again after that many times as
many groups."""
_CREDITS_MAX: Final = 16_384
"""Ledgers that are remembered; then those are forgotten that have all their credit."""


class _Line(Protocol):
    """What waits under one key, each with a size."""

    @property
    def first_size(self) -> int:
        """Size of the one whose turn is next."""
        ...

    def pop(self) -> Any:
        """Return the one whose turn is next: it waits no longer."""
        ...

    def __bool__(self) -> bool: ...

    def __iter__(self) -> Iterator[Any]: ...


L = TypeVar("L", bound=_Line)


class _Queue(Generic[T]):
    """In the order in which they came."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __iter__(self) -> Iterator[T]:
        return (each for _, each in self._queue)

    @property
    def first_size(self) -> int:
        return self._queue[0][0]

    def push(self, size: int, each: T) -> None:
        """Wait behind all others."""
        self._queue.append((size, each))

    def pop(self) -> T:
        return self._queue.popleft()[1]


class _Turns(Generic[K, L]):
    """Lines that take turns by bytes: next is the one that was served least.

    Each line has a mark, which grows by what is served of it; one that begins to wait starts at the
    mark that was served last, so that nobody saves turns up. Source: start-time fair queueing.
    """

    __slots__ = ("_order", "_served_mark", "_waits", "lines")

    def __init__(self) -> None:
        self.lines: dict[K, L] = {}
        """By key; none of them is empty."""
        self._order: list[tuple[int, int, K]] = []
        """(mark, number, key) of each, a heap; the number decides among equal marks."""
        self._served_mark = 0
        self._waits = 0

    def __bool__(self) -> bool:
        return bool(self._order)

    def __iter__(self) -> Iterator[Any]:
        for line in self.lines.values():
            yield from line

    def begin(self, key: K, line: L) -> None:
        """Something waits under a key under which nothing did."""
        self.lines[key] = line
        self._wait(self._served_mark, key)

    @property
    def first_size(self) -> int:
        return self.lines[self._order[0][2]].first_size

    def pop(self) -> Any:
        self._served_mark, _, key = heapq.heappop(self._order)
        line = self.lines[key]
        size = line.first_size
        each = line.pop()
        if line:
            self._wait(self._served_mark + size, key)
        else:
            del self.lines[key]
        return each

    def _wait(self, mark: int, key: K) -> None:
        self._waits += 1
        heapq.heappush(self._order, (mark, self._waits, key))


class _Credit(NamedTuple):
    """Of a ledger that may add little (GROUP-CREDIT)."""

    credit: int
    """What it may add and still adds little; negative: it owes that."""
    group: int
    """When that was so."""
    added_bytes: int
    """What had been added to it then."""


class AddTurns(Generic[T]):
    """The line in front of the open group. `T` stands for an add."""

    __slots__ = (
        "_connection_used",
        "_credits",
        "_group",
        "_group_bytes_max",
        "_ledger_used",
        "_shared_until",
        "_turns",
        "count",
    )

    def __init__(self, group_bytes_max: int) -> None:
        self._group_bytes_max = group_bytes_max
        self._turns: _Turns[Hashable, _Turns[LedgerId, _Queue[T]]] = _Turns()
        """Connections, and in each its ledgers."""
        self._group = 0
        """The last group of which shares were used (GROUP-SHARE), and how much of them."""
        self._ledger_used: dict[tuple[Hashable, LedgerId], int] = {}
        self._connection_used: dict[Hashable, int] = {}
        self._credits: dict[LedgerId, _Credit] = {}
        self._shared_until = 0
        """The last group for which it counts that somebody added little (GROUP-ALONE)."""
        self.count = 0
        """How many wait. A field: every add asks."""

    def __iter__(self) -> Iterator[T]:
        return iter(self._turns)

    def room(self, group: Group) -> int:
        """How many bytes of entries may go into the open group without a look at whose they are;
        into an empty one goes an entry of any size."""
        return 0 if self.count else self._most(group) - group.entry_bytes

    @property
    def little_bytes_max(self) -> int:
        """Size of an add by somebody who adds little, at most (GROUP-ALONE)."""
        return self._group_bytes_max // _LEDGER_PART

    def looks_for_little(self, group: Group, pending_bytes: int) -> bool:
        """Whether it counts, and is not known yet, that somebody adds little while `group` is open
        and this much is on its way."""
        return (
            pending_bytes * _CONNECTION_PART > self._group_bytes_max
            and self._shared_until < group.number + _SHARED_GROUPS
        )

    def on_little(
        self, connection: Hashable, ledger_id: LedgerId, size: int, added_bytes: int, group: Group
    ) -> None:
        """An add of so many bytes while `group` is open, which is little if its ledger has credit
        (GROUP-CREDIT); `added_bytes` were added to that before."""
        waiting = self._turns.lines.get(connection)
        if waiting is not None and ledger_id in waiting.lines:
            return
        known = self._credits.get(ledger_id)
        if known is None:
            if len(self._credits) >= _CREDITS_MAX:
                self._forget_creditors(group)
            self._credits[ledger_id] = _Credit(0, group.number, added_bytes)
            return
        most = self.little_bytes_max
        spent = max(0, added_bytes - known.added_bytes)
        credit = min(most, self._earned(known, group) - spent)
        if credit >= size:
            self._shared_until = group.number + _SHARED_GROUPS
        credit = max(credit, -_DEBT_SHARES * most)
        self._credits[ledger_id] = _Credit(credit, group.number, added_bytes)

    def _earned(self, known: _Credit, group: Group) -> int:
        """Return what a ledger may add by now if nothing was added meanwhile, without a limit."""
        groups = group.number - known.group
        return known.credit + groups * self.little_bytes_max // _CREDIT_GROUPS

    def _forget_creditors(self, group: Group) -> None:
        """Forget ledgers that have all their credit again; all, if too few have."""
        most = self.little_bytes_max
        self._credits = {
            ledger_id: known
            for ledger_id, known in self._credits.items()
            if self._earned(known, group) < most
        }
        if len(self._credits) > _CREDITS_MAX // 2:
            self._credits.clear()

    def admits(self, connection: Hashable, ledger_id: LedgerId, size: int, group: Group) -> bool:
        """Whether an add goes into the open group; otherwise it waits."""
        if not self.count and self._fits(size, group):
            return True
        waiting = self._turns.lines.get(connection)
        if waiting is not None and ledger_id in waiting.lines:
            return False
        of_ledger = of_connection = size
        if group.number == self._group:
            of_ledger += self._ledger_used.get((connection, ledger_id), 0)
            of_connection += self._connection_used.get(connection, 0)
        return (
            of_ledger * _LEDGER_PART <= self._group_bytes_max
            and of_connection * _CONNECTION_PART <= self._group_bytes_max
        )

    def on_added(self, connection: Hashable, ledger_id: LedgerId, size: int, group: Group) -> None:
        """An add that was admitted is in the group and counted there: if that was full, a share
        was used."""
        if not self.count and group.entry_bytes <= self._most(group):
            return
        if group.number != self._group:
            self._group = group.number
            self._ledger_used.clear()
            self._connection_used.clear()
        ledger = (connection, ledger_id)
        self._ledger_used[ledger] = self._ledger_used.get(ledger, 0) + size
        self._connection_used[connection] = self._connection_used.get(connection, 0) + size

    def push(self, connection: Hashable, ledger_id: LedgerId, size: int, add: T) -> None:
        """Wait for a turn."""
        ledgers = self._turns.lines.get(connection)
        queue = None if ledgers is None else ledgers.lines.get(ledger_id)
        if queue is None:
            queue = _Queue()
            queue.push(size, add)
            if ledgers is None:
                ledgers = _Turns()
                ledgers.begin(ledger_id, queue)
                self._turns.begin(connection, ledgers)
            else:
                ledgers.begin(ledger_id, queue)
        else:
            queue.push(size, add)
        self.count += 1

    def pop(self, group: Group) -> T | None:
        """Return the add that goes into the open group next, and waits no longer; None: none."""
        if not self.count or not self._fits(self._turns.first_size, group):
            return None
        self.count -= 1
        add: T = self._turns.pop()
        return add

    def clear(self) -> None:
        """Nobody waits any longer."""
        self._turns = _Turns()
        self.count = 0

    def _fits(self, size: int, group: Group) -> bool:
        return not group.entry_bytes or group.entry_bytes + size <= self._most(group)

    def _most(self, group: Group) -> int:
        """How many bytes of entries a group has, without shares."""
        is_shared = group.number <= self._shared_until
        return self._group_bytes_max if is_shared else self._group_bytes_max * ALONE_GROUPS
