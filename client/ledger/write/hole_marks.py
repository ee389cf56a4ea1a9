"""Tells auto recovery about holes in the background: no writer and no recovery waits for it.

Covers when such marks are written. One task writes them, one ledger after the other, for as long
as it takes: while the metadata store is away they wait. Marks that are wanted for the same ledger
meanwhile become one. `close` gives them a last chance; what is not written then is logged, and a
comparison of all replicas will find it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from client.errors import LedgerError, MetadataError, NoSuchLedger
from client.ids import BookieId, Clock, LedgerId
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.under_replication import mark_under_replicated
from client.metadata.store import MetadataStore
from client.node import background

log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0


class HoleMarks:
    """The marks that one client has still to write."""

    def __init__(
        self, store: MetadataStore, nodes: LedgerNodes, clock: Clock, *, root: str
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._clock = clock
        self._root = root
        self._wanted: dict[LedgerId, dict[BookieId, None]] = {}
        self._writing: tuple[LedgerId, dict[BookieId, None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, ledger_id: LedgerId, bookies: Sequence[BookieId]) -> None:
        """Mark a ledger soon: these bookies lack entries of it."""
        self._wanted.setdefault(ledger_id, {}).update(dict.fromkeys(bookies))
        if self._task is None or self._task.done():
            self._task = background.keep(self._write_all, "hole-marks")

    async def close(self, timeout_s: float) -> None:
        """Write what is wanted, unless that takes too long, and stop."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
            self._task.cancel()
        unwritten = list(self._wanted.items())
        if self._writing is not None:
            unwritten.append(self._writing)
        for ledger_id, bookies in unwritten:
            log.warning("ledger.not_marked ledger=%d lacking=%s", ledger_id, ",".join(bookies))

    async def _write_all(self) -> None:
        while self._wanted:
            ledger_id = next(iter(self._wanted))
            # What is wanted from now on needs a mark after this one, even for the same bookies.
            self._writing = ledger_id, self._wanted.pop(ledger_id)
            try:
                await self._write(ledger_id, list(self._writing[1]))
            except MetadataError as error:
                log.warning("ledger.mark_delayed ledger=%d error=%r", ledger_id, error)
                self._wanted.setdefault(ledger_id, {}).update(self._writing[1])
                await asyncio.sleep(_RETRY_S)
            except LedgerError as error:
                log.error("ledger.not_marked ledger=%d error=%r", ledger_id, error)
            self._writing = None

    async def _write(self, ledger_id: LedgerId, bookies: Sequence[BookieId]) -> None:
        try:
            await self._nodes.read(ledger_id)
        except NoSuchLedger:
            return  # deleted: nobody misses a copy
        now_ms = self._clock.now_ms()
        await self._nodes.retry(
            lambda: mark_under_replicated(
                self._store, ledger_id, bookies, now_ms=now_ms, root=self._root
            )
        )
        log.info("ledger.under_replicated ledger=%d lacking=%s", ledger_id, ",".join(bookies))
