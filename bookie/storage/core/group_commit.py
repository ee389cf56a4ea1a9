"""Which requests share one sync, when each may be answered, and which adds wait for a later one.

At most one group is being written. Everything accepted meanwhile collects in the open group; as
soon as the write and its sync return, that group follows. So an idle bookie syncs at once, and a
busy one shares each sync among as many requests as arrived during the last one: the batch adapts
to the device without a timer.

    open.wait, wait_for      join the open group, or the one that has what you wait for
    start                    the open group goes to the disk
    synced                   it is durable: its waiters may be answered
    failed                   neither it nor the open group happened: both are given up

A waiter is a callable that gets the status. Rule: answer after sync. Group numbers are those
of `append_log.py`.

A group that found no space on the disk is taken back (`forget_lost`). Its entries, keys and fences
were in memory before they were to be durable, and must not be taken for true now. The disk is as it
was, so what is known of the ledgers becomes what it was, or is looked up again; a fence alone stays
in force.

Rule LOOK-AGAIN: what was last in a ledger is then known from the index alone. A look into it that
is under way may have passed there before the entries of an earlier group came, which are out of the
cache by now. So its result counts for nothing (`Ledger.losses`), and `reads.py` looks again.

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

`Backlog` is how much a bookie holds that is not durable and indexed yet, which back-pressure is
made of: one counter over all directories. Above the limit no connection is read, from that very
moment, so writers feel a slow disk instead of the bookie's memory: what is accepted stays below the
limit plus the adds that one connection's last bytes completed, and the very first bytes of
connections made since.

Rule BACKLOG-SHARE: before that a connection of which more waits in line for a group than there is
room left is not read. So one that sends as fast as it goes has half of it, two have a third each,
and there is always room for one that sends little.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from bookie.storage.core.append_log import Deletion, Location
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.ledger_guard import Ledger, LedgerTable, forget_lost_records
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.messages import AddRequest, Status

OnDone = Callable[[Status], None]

Added = tuple[LedgerId, EntryId, Location]

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

NOBODY: Final = None
"""Whose an add is that came over no connection."""


class Group:
    """Requests that become durable together."""

    __slots__ = (
        "deferred",
        "deletions",
        "entries",
        "entry_bytes",
        "ledgers",
        "number",
        "requests",
        "waiters",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiters: list[OnDone] = []
        self.requests = 0
        """How many requests they stand for."""
        self.entries: list[Added] = []
        """What to put into the index, in log order."""
        self.ledgers: list[Ledger] = []
        """Ledgers whose key, fence or explicit LAC this group records."""
        self.deletions: list[tuple[LedgerId, Deletion]] = []
        """Ledgers that this group records the end of."""
        self.deferred: list[Ledger] = []
        """Ledgers with adds that were answered before this group is durable."""
        self.entry_bytes = 0

    def wait(self, on_done: OnDone, requests: int = 1) -> None:
        """Answer `on_done`, which stands for this many requests, when the group is durable."""
        self.waiters.append(on_done)
        self.requests += requests


class GroupCommit:
    """The open group, the one in flight, and how far the log is durable."""

    def __init__(self, first_group: int) -> None:
        self.settled_group = first_group - 1
        """Up to here groups are durable, or lost with nothing left that relies on them."""
        self.open = Group(first_group)
        self.in_flight: Group | None = None

    @property
    def pending_entries(self) -> int:
        """Entries accepted that are not durable yet."""
        in_flight = self.in_flight
        return len(self.open.entries) + (len(in_flight.entries) if in_flight is not None else 0)

    def wait_for(self, group: int, on_done: OnDone) -> bool:
        """Answer `on_done` when `group` is durable; False if it is already (nothing is kept)."""
        if group <= self.settled_group:
            return False
        in_flight = self.in_flight
        if in_flight is not None and group <= in_flight.number:
            in_flight.wait(on_done)
        else:
            self.open.wait(on_done)
        return True

    def start(self) -> Group:
        """Move the open group into flight. There is none in flight yet."""
        assert self.in_flight is None, "one group at a time"
        group = self.in_flight = self.open
        self.open = Group(group.number + 1)
        return group

    def synced(self) -> Group:
        """The group in flight is durable; return it, so that its waiters are answered."""
        group = self.in_flight
        assert group is not None, "no group in flight"
        self.in_flight = None
        self.settled_group = group.number
        return group

    def failed(self) -> list[Group]:
        """The group in flight did not happen; give up it and the open one, oldest first.

        The open group goes too, because its records stand behind bytes that are not there and
        may rely on a key or fence that the lost group recorded.
        """
        group = self.in_flight
        assert group is not None, "no group in flight"
        lost = [group, self.open]
        self.in_flight = None
        self.settled_group = self.open.number
        self.open = Group(self.open.number + 1)
        return lost


def forget_lost(group: Group, ledgers: LedgerTable, cache: EntryCache) -> None:
    """Make what is known of the ledgers in a lost group true again.

    The cache has forgotten the group already (`EntryCache.drop_lost`).
    """
    for ledger in group.ledgers:
        forget_lost_records(ledger, group.number)
    for ledger in group.deferred:
        ledger.lost_deferred = True
    for ledger_id, _ in group.deletions:
        kept = ledgers.get(ledger_id)
        assert kept is not None, "a ledger stays known until its deletion is durable"
        kept.is_deleted = False
    for ledger_id in dict.fromkeys(ledger_id for ledger_id, _, _ in group.entries):
        added_to = ledgers.get(ledger_id)
        assert added_to is not None, "an add made it"
        added_to.last_entry = max(cache.entry_ids(ledger_id), default=NO_ENTRY)
        added_to.is_loaded = False
        added_to.losses += 1


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
        self._parked = 0
        """Of entries that are not in the index, but do not count either."""
        self.turns: AddTurns[WaitingAdd] = AddTurns(group_bytes_max)

    def add(self, size: int) -> None:
        """The storage accepted this many bytes of entries."""
        self.bytes += size
        self._backlog.add(size)

    def remove(self, size: int) -> None:
        """So many of them are durable and indexed, or given up."""
        parked = min(size, self._parked)
        self._parked -= parked
        self.bytes -= size - parked
        self._backlog.remove(size - parked)

    def park(self) -> None:
        """Nothing more is accepted until all that is held is in the index: it does not count."""
        self._parked += self.bytes
        self._backlog.remove(self.bytes)
        self.bytes = 0

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
        self.remove(self.bytes + self._parked)
        return [waiting.on_done for waiting in in_line]
