"""What is known about one ledger and about one bookie of a simulated cluster, by the oracle."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from client.ledger.core.ledger_metadata import LedgerMetadata, LedgerState

if TYPE_CHECKING:
    from client.errors import LedgerError
    from client.ids import EntryId
    from tests.simulation.bookies.wiretap import Pending

_LEDGER_PATH = re.compile(r"^/ledgers/(\d\d)/(\d{4})/L(\d{4})$")


class LedgerBook:
    """All that is known about one ledger."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.metadata: LedgerMetadata | None = None
        self.deleted = False
        self.sent: list[bytes] = []
        self.acked = -1
        """Highest entry whose add was reported as done."""
        self.failed_at: int | None = None
        """Entry id of the first add reported as failed."""
        self.definite: dict[int, LedgerError] = {}
        """Adds reported as certainly not applied."""
        self.lac_sent = -1
        """Highest LAC field that the writer's own adds brought to any bookie."""
        self.fenced_for: dict[str, set[str]] = {}
        """Bookies whose answer to a fencing LAC read was heard, by the process that asked."""
        self.seen_max = -1
        """Highest entry that any reader was given."""

    @property
    def closed_at(self) -> int | None:
        """Last entry once CLOSED."""
        if self.metadata is None or self.metadata.state is not LedgerState.CLOSED:
            return None
        return self.metadata.last_entry


class BookieBook:
    """All that is known about one bookie; survives its restarts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.durable: set[tuple[int, int]] = set()
        self.awaited: dict[tuple[int, int], bytes] = {}
        """Entries that arrived and are not durable, and what their bytes on the disk hold."""
        self.stored: dict[int, dict[int, int]] = {}
        """Entries whose add was answered OK, by ledger, and when (in received requests)."""
        self.fenced_at: dict[int, int] = {}
        """When a fence was first answered, by ledger (position among received requests)."""
        self.pending: dict[tuple[int, int], list[Pending]] = {}
        self.fences: set[int] = set()
        """Ledgers whose fence is on the disk."""
        self.wiped = False
        self.is_nobody = False
        """Its disk is gone and with it what it promised: it must not answer under its name."""
        self.rotten = False
        """A byte of its log rotted: what it calls the last entry may be an earlier one. That is
        harmless, recovery then asks for more; a denial would not be."""

    def wipe(self) -> None:
        """The disk is gone and with it all promises."""
        self.is_nobody = self.is_nobody or bool(self.stored or self.fenced_at)
        self.durable.clear()
        self.fences.clear()
        self.stored.clear()
        self.fenced_at.clear()
        self.wiped = True


def is_member(bookie: str, metadata: LedgerMetadata) -> bool:
    """Return whether a ledger's metadata names a bookie."""
    return any(bookie in fragment.ensemble for fragment in metadata.fragments)


def holders(metadata: LedgerMetadata, entry_id: EntryId) -> set[str]:
    """Return the bookies that should have an entry."""
    ensemble = metadata.fragment_of(entry_id).ensemble
    return {ensemble[index] for index in metadata.schedule.write_set(entry_id)}


def ledger_of(path: str) -> int | None:
    """Return the ledger id that a znode path of the hierarchical layout stands for."""
    match = _LEDGER_PATH.match(path)
    return int(match[1] + match[2] + match[3]) if match else None
