"""A ledger's changes of metadata as somebody else makes them, in one transaction with his own.

A ledger client makes its changes by itself: it creates a ledger's node, marks the ledger as being
recovered, closes it at the end that was found. Who has a change of his own that must go with one of
these gets it from here instead, and either both happen or neither. A change that is refused was
overtaken: ask the ledger client again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from client.ids import LedgerId
from client.ledger.core.ledger_metadata import VersionedMetadata
from client.ledger.read.reader import LedgerReader
from client.ledger.write.writer import LedgerWriter
from client.metadata.store import Create, SetData


class RecoveryStart(NamedTuple):
    """What the recovery of a ledger begins from."""

    ledger_id: LedgerId
    current: VersionedMetadata
    """Its metadata, as read."""
    mark: SetData | None
    """Marks it as being recovered; None: it is, or it is closed."""
    marked: VersionedMetadata
    """Its metadata once `mark` was made."""

    def after_mark(self) -> RecoveryStart:
        """Return what recovery begins from now that `mark` was made."""
        return RecoveryStart(self.ledger_id, self.marked, None, self.marked)


class FoundEnd(NamedTuple):
    """A ledger that nobody can add to any more, and where it ends."""

    reader: LedgerReader
    """Of all of it, up to that end."""
    close: SetData | None
    """Closes it there; None: it is closed. Until then another recovery may find another end."""


class PlannedLedger(NamedTuple):
    """A ledger that is there as soon as its change was made."""

    ledger_id: LedgerId
    """Which nobody else has."""
    changes: tuple[Create, ...]
    created: Callable[[], LedgerWriter]
    """Returns its writer, once it is there."""
