"""What of a takeover comes with the claim: an id, and what recoveries of ledgers begin from."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.partition.core.takeover import RECOVER_LEDGERS
from broker.partition.ledgers import Ledgers
from broker.partition.segment_node import decoded
from client.errors import LedgerError, LogCorrupt, MetadataError
from client.ids import LedgerId
from client.ledger.joined_changes import RecoveryStart
from client.metadata.store import Versioned

_LOG = logging.getLogger(__name__)


class FirstSteps:
    """The first steps of all takeovers of a broker."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers

    async def starts(self, node: Versioned) -> Sequence[RecoveryStart]:
        """Read the metadata of a list's last ledgers together.

        None if that fails: the takeover then tries again, and knows what it means.
        """
        try:
            segments, _ = decoded(node)
            last = [segment.ledger_id for segment in segments.segments[-RECOVER_LEDGERS:]]
            if segments.deleted or not last:
                return ()
            return await self._ledgers.recoveries.starts(last)
        except (LogCorrupt, LedgerError, MetadataError) as error:
            _LOG.info("takeover.no_start error=%r", error)
            return ()

    async def take_id(self) -> LedgerId:
        """Take an id for a ledger. Raises MetadataError."""
        return await self._ledgers.take_id()
