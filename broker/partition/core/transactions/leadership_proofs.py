"""Waits for the proof that this broker still leads a partition.

A leader that was replaced may not know it yet. In its log a transaction may look decided, or look
as if it never existed, while its successor has the data. So the answer that there is nothing to
write is given only after the confirmation of an entry that was sent to the ledger after the request
arrived (PROVEN). An entry that was already in flight may have been stored before the ledger was
fenced.

If no such entry is going to be sent anyway, one has to be added. Requests that arrive while it is
in flight share the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

from broker.partition.core.append_queue import Append
from client.ids import Offset


class LeadershipProofs:
    """The waits of one partition: each is an empty append, completed when leadership is proven."""

    __slots__ = ("_confirmed", "_waiting")

    def __init__(self) -> None:
        self._confirmed = 0
        """Number of entries confirmed while there were waits."""
        self._waiting: list[tuple[int, Append]] = []
        """Value of `_confirmed` that proves leadership, and the append that waits for it."""

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, log_end: Offset, sent_count: int) -> Append:
        """Add a wait for the proof. `sent_count`: entries that were sent and are not confirmed."""
        proof = Append(log_end, log_end, (), 0)
        self._waiting.append((self._confirmed + sent_count + 1, proof))
        return proof

    def needs_entry(self, sent_count: int, unsent_count: int) -> bool:
        """Whether an entry must be added now: no entry that is in flight, or will be sent anyway,
        ends any of the waits."""
        if not self._waiting:
            return False
        first = self._waiting[0][0]
        return first > self._confirmed + sent_count and not unsent_count

    def on_confirmed(self) -> Sequence[Append]:
        """The oldest entry was confirmed: return the waits that it ends. Must be called for every
        entry while there are waits."""
        self._confirmed += 1
        waiting = self._waiting
        count = bisect_right(waiting, self._confirmed, key=itemgetter(0))
        proven = [proof for _, proof in waiting[:count]]
        del waiting[:count]
        return proven

    def drain(self) -> Sequence[Append]:
        """The leadership has ended: remove and return all waits."""
        waiting = [proof for _, proof in self._waiting]
        self._waiting.clear()
        return waiting
