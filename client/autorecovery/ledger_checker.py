"""Comparing what a ledger's members should hold with what they do hold.

Covers whom to ask for what: each registered member says which entries of the ledger it has
(`census.py`), and reads its first and last one of every fragment, which finds damaged copies. What
follows from the answers is decided by `core/repair.py`.

Source: Apache BookKeeper `LedgerChecker`, `AuditorReplicasCheckTask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from client.autorecovery.census import Census, Held, ask
from client.autorecovery.core.repair import Extent, Loss, loss_of, settled_extents
from client.errors import BookieTimeout, BookieUnavailable, TooManyRequests
from client.ids import BookieId, EntryId
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.read.range_read import open_entry
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import ReadRequest

_ENTRIES_PER_TURN: Final = 1000
"""Entries looked at before others on the loop have a turn."""
_TRANSIENT: Final = (BookieUnavailable, BookieTimeout, TooManyRequests)


class Findings(NamedTuple):
    """What a ledger's settled fragments lack."""

    losses: tuple[Loss, ...]
    unclear: tuple[BookieId, ...]
    """Registered members that could not say what they have (rule REPAIR-UNCLEAR)."""

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Whose copies are missing."""
        found: dict[BookieId, None] = {}
        for loss in self.losses:
            members = [*loss.gone, *(m for hole in loss.holes.values() for m in hole)]
            found.update(dict.fromkeys(loss.extent.ensemble[member] for member in members))
        return tuple(found)


class LedgerChecker:
    """One look at one ledger."""

    def __init__(self, census: Census, codec: EntryCodec, metadata: LedgerMetadata) -> None:
        bookies = census.bookies
        self._census = census
        self._bookies = bookies
        self._codec = codec
        self._metadata = metadata
        self._writable = bookies.writable
        self._readonly = bookies.readonly
        self._holdings: dict[BookieId, Held] = {}
        self._unclear: dict[BookieId, None] = {}

    async def run(self) -> Findings:
        """Ask everybody and return what is missing."""
        extents = settled_extents(self._metadata)
        members = self._members(extents)
        await asyncio.gather(*(self._list(bookie, extents) for bookie in members))
        losses = []
        for extent in extents:
            lacking = await self._lacking(extent)
            loss = loss_of(
                extent,
                self._metadata.schedule,
                lacking,
                writable=self._writable,
                readonly=self._readonly,
            )
            if loss is not None:
                losses.append(loss)
        return Findings(tuple(losses), tuple(self._unclear))

    def _members(self, extents: Sequence[Extent]) -> list[BookieId]:
        """Return the registered members of fragments that hold entries."""
        members = dict.fromkeys(b for e in extents if e.last >= e.first for b in e.ensemble)
        return [b for b in members if b in self._writable or b in self._readonly]

    async def _list(self, bookie: BookieId, extents: Sequence[Extent]) -> None:
        schedule = self._metadata.schedule
        wanted = (
            entry_id
            for extent in extents
            if bookie in extent.ensemble
            for entry_id in extent.entries_of((extent.ensemble.index(bookie),), schedule)
        )
        found = await self._census.holdings(bookie, self._codec, wanted)
        if found is None:
            self._unclear[bookie] = None
        else:
            self._holdings[bookie] = found

    async def _lacking(self, extent: Extent) -> dict[BookieId, list[EntryId]]:
        """Return the entries that each registered member of an extent has not got."""
        found: dict[BookieId, list[EntryId]] = {}
        schedule = self._metadata.schedule
        samples: list[tuple[BookieId, EntryId]] = []
        for member, bookie in enumerate(extent.ensemble):
            holdings = self._holdings.get(bookie)
            if holdings is None:
                continue
            missing = found[bookie] = []
            ends: list[EntryId] = []
            for entry_id in extent.entries_of((member,), schedule):
                if entry_id % _ENTRIES_PER_TURN == 0:
                    await asyncio.sleep(0)
                if entry_id not in holdings:
                    missing.append(entry_id)
                ends = [*ends[:1], entry_id]
            samples += [(bookie, each) for each in dict.fromkeys(ends) if each in holdings]
        damaged = await asyncio.gather(*(self._is_damaged(*sample) for sample in samples))
        for (bookie, entry_id), is_damaged in zip(samples, damaged, strict=True):
            if is_damaged:
                found[bookie].append(entry_id)
        return found

    async def _is_damaged(self, bookie: BookieId, entry_id: EntryId) -> bool:
        request = ReadRequest(self._codec.ledger_id, entry_id)
        answer = await ask(self._bookies, bookie, request)
        if isinstance(answer, _TRANSIENT):
            self._unclear[bookie] = None
            return False
        return not isinstance(open_entry(self._codec, entry_id, answer), Entry)
