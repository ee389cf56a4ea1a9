"""Who waits for the proof that this broker leads a partition still.

A leader that was taken over does not know it, and its log looks as if a transaction were decided,
or had never been there, while its successor has the data. So "there is nothing to write" is said
after an entry was confirmed that was handed to the ledger later than the question came (PROVEN);
an entry that was under way before may have been stored before the ledger was fenced.

If no entry is going to be sent anyhow, somebody has to add one. Those who ask while one is under
way for others share the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from broker.partition.core.append_queue import Append
from client.ids import Offset


class LeadProofs:
    """The questions of one partition; each is an append of nothing, settled when it is proven."""

    __slots__ = ("_confirmed", "_waiting")

    def __init__(self) -> None:
        self._confirmed = 0
        """Entries that were confirmed while somebody waited."""
        self._waiting: deque[tuple[int, Append]] = deque()
        """How many entries have to be confirmed, and who waits for that."""

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, log_end: Offset, sent_count: int) -> Append:
        """Wait for the proof. `sent_count`: entries that were sent and are not confirmed."""
        proof = Append(log_end, log_end, (), 0)
        self._waiting.append((self._confirmed + sent_count + 1, proof))
        return proof

    def needs_entry(self, sent_count: int, unsent_count: int) -> bool:
        """Whether an entry has to be added for those that wait, now: none of what is under way, or
        will be sent anyhow, proves anything to any of them."""
        if not self._waiting:
            return False
        first = self._waiting[0][0]
        return first > self._confirmed + sent_count and not unsent_count

    def on_confirmed(self) -> Sequence[Append]:
        """The oldest entry was confirmed: return those to whom that is the proof. To be called for
        every entry while somebody waits."""
        self._confirmed += 1
        proven: list[Append] = []
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            proven.append(self._waiting.popleft()[1])
        return proven

    def drain(self) -> Sequence[Append]:
        """Leadership is over: remove and return all that wait."""
        waiting = [proof for _, proof in self._waiting]
        self._waiting.clear()
        return waiting
