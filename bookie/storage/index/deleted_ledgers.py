"""The last steps of a deletion: entries out of the index, then the ledger out of the table.

    log        the record of the end, durable                        (storage.py)
    index      the ledger's record replaced by that of its deletion  (indexer.py)
    index      entries removed, a few at a time, behind other work   (here)
    index      the deletion kept as a tombstone if the ledger was fenced, else dropped
    table      the ledger is unknown

A start finishes what a crash interrupted, from the deletion in log or index. Few keys per job: the
index must not fall behind the log because a large ledger goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import OnDone
from bookie.storage.core.ledger_guard import LedgerTable
from bookie.storage.core.log_format import Deletion
from bookie.storage.index.checkpoints import Deletions
from bookie.storage.index.index import Index
from bookie.storage.index.indexer import Indexer
from client.ids import LedgerId
from client.wire.bookkeeper.messages import Status

_CLEARED_AT_ONCE: Final = 2000


class DeletedLedgers:
    """Deletions whose record is in the index."""

    def __init__(
        self, ledgers: LedgerTable, cache: EntryCache, index: Index, indexer: Indexer
    ) -> None:
        self._ledgers = ledgers
        self._cache = cache
        self._index = index
        self._indexer = indexer
        self._waiting: dict[LedgerId, OnDone] = {}
        self._settled: dict[LedgerId, Deletion] = {}
        """Gone from the index since this turn of the loop began."""
        self._is_stopped = False

    def expect(self, ledger_id: LedgerId, on_done: OnDone, status: Status) -> None:
        """The record of a deletion is durable, or lost: tell `on_done` when all is done."""
        if status is Status.OK:
            self._waiting[ledger_id] = on_done
        else:
            on_done(status)

    def begin(self, deletions: Deletions) -> None:
        """The index has the records of these deletions."""
        for ledger_id, deletion in deletions:
            self._clear(ledger_id, deletion)

    def stop(self) -> None:
        """Leave the rest to the next start."""
        self._is_stopped = True
        waiting, self._waiting = self._waiting, {}
        for on_done in waiting.values():
            on_done(Status.IO_ERROR)

    def _clear(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        job = self._indexer.job(partial(self._index.clear_entries, ledger_id, _CLEARED_AT_ONCE))

        def on_cleared(done: asyncio.Future[bool]) -> None:
            if done.exception() is None and done.result():
                self._unless_stopped(lambda: self._clear(ledger_id, deletion))
            elif done.exception() is None:
                self._unless_stopped(lambda: self._settle(ledger_id, deletion))

        job.add_done_callback(on_cleared)

    def _settle(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        kept = deletion if deletion.fenced else None
        job = self._indexer.job(partial(self._index.settle_deletion, ledger_id, kept))

        def on_settled(done: asyncio.Future[None]) -> None:
            if done.exception() is None:
                self._unless_stopped(lambda: self._forget_soon(ledger_id, deletion))

        job.add_done_callback(on_settled)

    def _unless_stopped(self, go_on: Callable[[], None]) -> None:
        if not self._is_stopped:
            go_on()

    def _forget_soon(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        if not self._settled:
            asyncio.get_running_loop().call_soon(self._forget)
        self._settled[ledger_id] = deletion

    def _forget(self) -> None:
        """Forget several at once: the cache is looked through as a whole."""
        settled, self._settled = self._settled, {}
        self._cache.forget_ledgers(settled)
        for ledger_id, deletion in settled.items():
            self._ledgers.bury(ledger_id, deletion)
        for ledger_id in settled:
            on_done = self._waiting.pop(ledger_id, None)
            if on_done is not None:
                on_done(Status.OK)
