"""What the parts of one ledger client share: metadata, bookies, marks, settings, numbers."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from client.held_memory import HeldMemory
from client.ledger.bookies.bookie_choice import BookieChoice
from client.ledger.bookies.bookies import BookieSet
from client.ledger.config import LedgerClientConfig
from client.ledger.core.adds import AddRules
from client.ledger.core.bookie_health import BookieHealth
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.metrics import LedgerStats
from client.ledger.under_replication import HoleMarks
from client.ledger.write.writer_room import ActiveWriters

if TYPE_CHECKING:
    from client.ids import BookieId

LACKING_S: Final = 600.0
"""How long a bookie that cannot do batch reads is not asked for one."""


class BatchAbility:
    """Which bookies cannot do batch reads, and the request ids of those that can, for the life of a
    client. A bookie that cannot is asked again after a while: it may be another release by then."""

    __slots__ = ("_ids", "lacking")

    def __init__(self) -> None:
        self._ids = count(1)
        self.lacking: dict[BookieId, float] = {}
        """Bookie -> until when it is not asked, by the loop's clock."""

    def on_lack(self, bookie: BookieId, now_s: float) -> None:
        """A bookie has shown that it cannot do batch reads."""
        self.lacking[bookie] = now_s + LACKING_S

    def is_lacking(self, bookie: BookieId, now_s: float) -> bool:
        """Whether a bookie is not to be asked now."""
        return now_s < self.lacking.get(bookie, now_s)

    def next_id(self) -> int:
        """Return an id that no other batch read of the client has: answers are matched by it."""
        return next(self._ids)


class LedgerContext(NamedTuple):
    """One bundle for every writer, reader and recovery of a client."""

    nodes: LedgerNodes
    bookies: BookieSet
    choice: BookieChoice
    health: BookieHealth
    marks: HoleMarks
    config: LedgerClientConfig
    stats: LedgerStats
    batches: BatchAbility
    memory: HeldMemory
    """Where writers count what they hold."""
    add_rules: AddRules
    """Of all writers."""
    active_writers: ActiveWriters
    """Whether several of them write."""
