"""One add of a pipeline until all its bookies have answered: what is stored, and who said what.

What becomes of it is decided by `adds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from client.ids import EntryId
from client.wire.bookkeeper.messages import AddRequest, Buffer


class AddEntry:
    """What bookies are to store as one entry. The shell seals it when it is sent first."""

    __slots__ = (
        "entry_id",
        "is_pending",
        "lac",
        "length",
        "payload",
        "request",
        "size",
        "unanswered",
    )

    def __init__(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer], size: int
    ) -> None:
        self.entry_id = entry_id
        self.lac = lac
        """The last add confirmed that it carries."""
        self.length = length
        """Of the ledger, with this entry."""
        self.payload = payload
        self.size = size
        """Bytes of the payload."""
        self.request: AddRequest | None = None
        """Sent to every bookie, however often."""
        self.is_pending = True
        """Whether the pipeline may still send it."""
        self.unanswered = 0
        """Copies sent that are neither answered nor given up. The shell's business."""

    def on_sealed(self, request: AddRequest) -> None:
        """The shell made the request."""
        self.request = request
        self.payload = ()


class PendingAdd:
    """An add that is unconfirmed, or confirmed and not yet answered by all its bookies."""

    __slots__ = ("acked", "awaited", "entry", "growth", "missed", "sent_s", "size")

    def __init__(
        self, entry: AddEntry, growth: int, sent_s: float, awaited: int, missed: int
    ) -> None:
        self.entry = entry
        self.size = entry.size
        self.growth = growth
        """By how much it makes the ledger longer."""
        self.sent_s = sent_s
        # The write set is the union of the next three masks, which are disjoint.
        self.acked = 0
        """Indices whose current bookie stored it."""
        self.awaited = awaited
        """Indices it was sent to that have not answered."""
        self.missed = missed
        """Indices that failed it, or never got it."""
