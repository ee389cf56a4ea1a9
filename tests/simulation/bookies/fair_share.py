"""Holds what an add waits for at a bookie against what it may wait for.

    B5 an add over a connection that has no other one there waits for two groups at most: the one
       in flight and its own, whatever others have sent before
    B6 a group is no larger than its limit and the shares of connections make it: the limit for
       when nobody adds little, which is eight times the other one (GROUP-ALONE)

So what somebody waits for who adds little is bounded by what is in two groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie.storage.core.group_commit import ALONE_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.bookies.wiretap import Pending

SHARES = 16
"""So many entries are as much as a group, when each is as large as a ledger's share of one."""
_GROUPS_MAX = 3
"""Of those that begin after an add came, the two included that may begin while its answer is on its
way through a busy loop."""
_OTHERS_BYTES = 8192
"""More than a group's records have that are no entries, but for keys of ledgers."""
_KEY_BYTES = 200


class FairShare:
    """What is known of the bookies of one schedule."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self.group_bytes_max = 0
        """Limit of each bookie; 0: nothing is checked."""
        self.directories = 1
        self.is_busy_otherwise = False
        """Whether bookies do so much besides that an answer may be ready for several groups before
        it leaves: nothing can be told from answers then (seen in whole clusters)."""
        self._groups: dict[str, int] = {}
        self._peers: dict[str, set[str]] = {}
        self._ledgers: set[int] = set()
        self._largest = 0
        self.judged = 0
        """Adds that B5 was asked for."""

    def add_received(self, bookie: str, add: Pending) -> None:
        """A bookie was given an add."""
        add.groups_before = self._groups.get(bookie, 0)
        self._peers.setdefault(bookie, set()).add(add.peer)
        self._ledgers.add(add.ledger)
        self._largest = max(self._largest, add.size)

    def group_written(self, bookie: str, size: int) -> None:
        """A bookie begins to write a group."""
        self._groups[bookie] = self._groups.get(bookie, 0) + 1
        # Two connections of each client, and a record's header is smaller than its entry.
        shares = 1 + len(self._peers.get(bookie, ())) / 2
        most = 2 * (self.group_bytes_max * (ALONE_GROUPS - 1 + shares) + self._largest)
        if self.group_bytes_max and size > most + _OTHERS_BYTES + _KEY_BYTES * len(self._ledgers):
            self._fail(
                "B6",
                f"{bookie} writes a group of {size} bytes, the limit is {self.group_bytes_max}",
            )

    def add_answered(self, bookie: str, add: Pending) -> None:
        """A bookie has taken an add."""
        if self.is_busy_otherwise or not add.is_alone or self.directories > 1:
            return
        if add.size * SHARES > self.group_bytes_max:
            return
        self.judged += 1
        groups = self._groups.get(bookie, 0) - add.groups_before
        if groups > _GROUPS_MAX:
            self._fail(
                "B5",
                f"add {add.ledger}/{add.entry} waited for {groups - 1} groups of {bookie},"
                f" though nothing else of {add.peer} was there",
            )
