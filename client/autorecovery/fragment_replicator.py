"""Repairing one ledger: copy what is missing, then say so in its metadata.

Covers the order of a repair. Copies come first, the metadata that names their holders second: a
repair that is cut short has changed nothing that anybody relies on. Entries travel as they were
stored, last add confirmed included, which stays true for ever; they are recovery adds, which
fenced bookies take (issues 3783, 4163). An entry that nobody can serve fails its fragment, never
the others, and is never skipped.

Sources: Apache BookKeeper `ReplicationWorker`, `LedgerFragmentReplicator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from client.autorecovery.census import Census, ask
from client.autorecovery.core.repair import (
    Loss,
    ReplicationResult,
    still_in_use,
    with_replacements,
    writer_left,
)
from client.autorecovery.ledger_checker import LedgerChecker
from client.autorecovery.metrics import RecoveryStats
from client.errors import LedgerError, NoSuchLedger, NotEnoughBookies
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.core.ledger_metadata import VersionedMetadata
from client.ledger.read.range_read import RangeRead
from client.ledger.recoveries import unlock
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import AddRequest

log = logging.getLogger(__name__)

_ENTRIES_PER_TURN: Final = 1000
"""Entries looked at before others on the loop have a turn."""


class FragmentReplicator:
    """Repairs ledgers, one at a time."""

    def __init__(
        self, client: LedgerClient, *, batch_entries: int, stats: RecoveryStats | None = None
    ) -> None:
        """`stats`: where to count."""
        self._stats = stats or RecoveryStats()
        self._client = client
        self._context = client.context
        self._census = Census(client.context.bookies)
        self._batch_entries = batch_entries

    async def replicate(
        self, ledger_id: LedgerId, marked: Sequence[BookieId] = ()
    ) -> ReplicationResult:
        """Repair what can be repaired without stopping a writer; say what is left.

        `marked`: whose copies somebody said are missing. A ledger that is gone is WHOLE. Raises
        MetadataError, MetadataCorrupt.
        """
        try:
            await self._replicate_once(ledger_id)
            return await self._judge(ledger_id, marked)
        except NoSuchLedger:
            return ReplicationResult.WHOLE

    async def close(self, ledger_id: LedgerId) -> None:
        """Recover a ledger whose writer left, which fences it. Raises LedgerError."""
        log.info("autorecovery.closing ledger=%d", ledger_id)
        await self._client.recover(ledger_id, password=None)

    async def _replicate_once(self, ledger_id: LedgerId) -> None:
        current = await self._context.nodes.read(ledger_id)
        codec, key = unlock(ledger_id, current.metadata, None)
        found = await LedgerChecker(self._census, codec, current.metadata).run()
        for loss in found.losses:
            try:
                await self._replicate_extent(current, codec, key, loss)
            except NoSuchLedger:
                raise
            except LedgerError as error:
                log.warning(
                    "autorecovery.fragment_failed ledger=%d first_entry=%d error=%r",
                    ledger_id,
                    loss.extent.first,
                    error,
                )

    async def _judge(self, ledger_id: LedgerId, marked: Sequence[BookieId]) -> ReplicationResult:
        """Look again: only what is there now counts."""
        metadata = (await self._context.nodes.read(ledger_id)).metadata
        codec, _ = unlock(ledger_id, metadata, None)
        bookies = self._context.bookies
        found = await LedgerChecker(self._census, codec, metadata).run()
        if writer_left(metadata, [*bookies.writable, *bookies.readonly]):
            return ReplicationResult.WRITER_LEFT
        if found.losses or found.unclear:
            return ReplicationResult.LACKING
        return (
            ReplicationResult.IN_USE if still_in_use(metadata, marked) else ReplicationResult.WHOLE
        )

    async def _replicate_extent(
        self, current: VersionedMetadata, codec: EntryCodec, key: bytes, loss: Loss
    ) -> None:
        extent, metadata = loss.extent, current.metadata
        chosen: Mapping[int, BookieId] = {}
        if loss.gone:
            chosen = self._context.choice.replacements(
                extent.ensemble,
                loss.gone,
                metadata.write_quorum,
                [extent.ensemble[member] for member in loss.gone],
            )
        copied = await self._copy_all(current, codec, key, loss, chosen)
        log.info(
            "autorecovery.copied ledger=%d first_entry=%d entries=%d replaced=%d",
            codec.ledger_id,
            extent.first,
            copied,
            len(chosen),
        )
        if chosen:
            await self._context.nodes.update(
                codec.ledger_id, current, lambda known: with_replacements(known, extent, chosen)
            )
        if len(chosen) < len(loss.gone):
            raise NotEnoughBookies(f"no bookie is left to replace {len(loss.gone)} members")

    async def _copy_all(
        self,
        current: VersionedMetadata,
        codec: EntryCodec,
        key: bytes,
        loss: Loss,
        chosen: Mapping[int, BookieId],
    ) -> int:
        """Copy what members of an extent lack, a batch at a time; return how many entries."""
        ensemble, schedule = loss.extent.ensemble, current.metadata.schedule
        every_member = range(schedule.ensemble_size)
        batch: dict[EntryId, list[BookieId]] = {}
        count = 0
        for entry_id in loss.extent.entries_of(every_member, schedule):
            if entry_id % _ENTRIES_PER_TURN == 0:
                await asyncio.sleep(0)
            targets = [ensemble[member] for member in loss.holes.get(entry_id, ())]
            targets += [chosen[m] for m in schedule.write_set(entry_id) if m in chosen]
            if targets:
                batch[entry_id] = targets
            if len(batch) == self._batch_entries or (batch and entry_id == loss.extent.last):
                await asyncio.gather(
                    *(self._copy(current, codec, key, each, to) for each, to in batch.items())
                )
                count += len(batch)
                batch.clear()
        return count

    async def _copy(
        self,
        current: VersionedMetadata,
        codec: EntryCodec,
        key: bytes,
        entry_id: EntryId,
        targets: Sequence[BookieId],
    ) -> None:
        """Copy one entry from whoever has it. Raises LedgerError."""
        read = RangeRead(entry_id, entry_id, current.metadata, codec, self._context)
        (entry,) = await read.run()
        self._stats.read_entries += 1
        self._stats.read_bytes += len(entry.payload)
        await asyncio.gather(*(self._add(codec, key, entry, bookie) for bookie in targets))
        self._stats.copied_entries += len(targets)
        self._stats.copied_bytes += len(targets) * len(entry.payload)

    async def _add(self, codec: EntryCodec, key: bytes, entry: Entry, bookie: BookieId) -> None:
        first, *rest = codec.seal(entry.entry_id, entry.lac, entry.length, [entry.payload])
        request = AddRequest(
            codec.ledger_id,
            entry.entry_id,
            key,
            first,
            recovery=True,
            high_priority=True,
            entry_rest=tuple(rest),
        )
        answer = await ask(self._context.bookies, bookie, request, len(entry.payload))
        if isinstance(answer, LedgerError):
            raise answer
