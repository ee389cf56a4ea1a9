"""Which requests share one sync, and when each may be answered.

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
"""

from __future__ import annotations

from collections.abc import Callable

from bookie.storage.core.ledger_guard import Ledger
from bookie.storage.core.log_format import Deletion, Location
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import Status

OnDone = Callable[[Status], None]

Added = tuple[LedgerId, EntryId, Location]


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
