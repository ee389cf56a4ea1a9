"""What the parts of one ledger client share: metadata, bookies, marks, settings, numbers."""

from __future__ import annotations

from typing import NamedTuple

from client.held_memory import HeldMemory
from client.ledger.bookies.bookie_choice import BookieChoice
from client.ledger.bookies.bookies import BookieSet
from client.ledger.bookies.core.bookie_health import BookieHealth
from client.ledger.config import LedgerClientConfig
from client.ledger.core.adds import AddRules
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.read.batch_ability import BatchAbility
from client.ledger.stats import LedgerStats
from client.ledger.write.core.writer_window import ActiveWriters
from client.ledger.write.hole_marks import HoleMarks


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
