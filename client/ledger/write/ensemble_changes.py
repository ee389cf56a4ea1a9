"""Gets a writer's changes of its ensemble into the ledger's metadata, one at a time.

Covers the compare-and-set of a change; what may be written is decided by `core/ensemble_change.py`,
when by `core/adds.py`, and `ledger_nodes.py` writes. Confirmations are held meanwhile.

Rule CHANGE-CAS-FIRST: the writer learns of the new ensemble, and so sends to it, only after
metadata names it (issue 1591).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from client.errors import LedgerError, MetadataError, WriteFailed
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.context import LedgerContext
from client.ledger.core.adds import Adds, ChangeEnsemble
from client.ledger.core.ensemble_change import change_ensemble
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata

log = logging.getLogger(__name__)


class EnsembleChanges:
    """The changes of one writer."""

    __slots__ = (
        "_adds",
        "_context",
        "_count",
        "_ledger_id",
        "_on_changed",
        "_on_failed",
        "_task",
        "current",
    )

    def __init__(
        self,
        ledger_id: LedgerId,
        current: VersionedMetadata,
        adds: Adds,
        context: LedgerContext,
        on_changed: Callable[[Sequence[BookieId]], None],
        on_failed: Callable[[LedgerError], None],
    ) -> None:
        """`on_changed` gets the ensemble that metadata names after a change, `on_failed` why the
        writer cannot go on."""
        self._ledger_id = ledger_id
        self.current = current
        """Metadata as last written or read."""
        self._adds = adds
        self._context = context
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self, change: ChangeEnsemble) -> asyncio.Task[None]:
        """Replace members from LAC + 1 on, as far as there are replacements."""
        self._task = asyncio.get_running_loop().create_task(self._change(change))
        return self._task

    def cancel(self) -> None:
        """Give a running change up: it may have been written, and may not."""
        if self._task is not None:
            self._task.cancel()

    async def settled(self) -> None:
        """Return when no change is running."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    @property
    def are_used_up(self) -> bool:
        """Whether the ensemble has changed as often as it may (rule CHANGE-MAX)."""
        limit = self._context.config.ensemble_changes_max
        return 0 < limit <= self._count

    async def _change(self, change: ChangeEnsemble) -> None:
        first_entry = EntryId(self._adds.lac + 1)
        failed = change.failed

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if self._adds.error is not None:
                raise self._adds.error
            return change_ensemble(metadata, failed, first_entry, choose)

        def choose(ensemble: Sequence[BookieId], indices: Sequence[int]) -> Mapping[int, BookieId]:
            if self.are_used_up:
                raise WriteFailed(f"the ensemble has already changed {self._count} times")
            write_quorum = self.current.metadata.write_quorum
            return self._context.choice.replacements(
                ensemble, indices, write_quorum, failed.values()
            )

        nodes, before = self._context.nodes, self._adds.members.ensemble
        try:
            self.current = await nodes.update(self._ledger_id, self.current, transform)
        except LedgerError as error:
            self._on_failed(error)
            return
        except MetadataError as error:
            self._on_failed(WriteFailed(f"no ensemble change: {error!r}"))
            return
        ensemble = self.current.metadata.last_fragment.ensemble
        has_changed = ensemble != before
        self._count += has_changed
        self._context.stats.ensemble_changes += has_changed
        self._context.stats.slow_replacements += has_changed and change.is_planned
        log.info(
            "ledger.ensemble_changed ledger=%d first_entry=%d failed=%s ensemble=%s",
            self._ledger_id,
            first_entry,
            ",".join(failed.values()),
            ",".join(ensemble),
        )
        self._on_changed(ensemble)
