"""Comparing what a ledger's members should hold with what they do hold.

This file is the only home of asking bookies for that: each registered member lists its entries
of the ledger, and reads its first and last entry of every fragment, which finds damaged copies.
What follows from the answers is decided by `core/repair.py`.

Source: Apache BookKeeper `LedgerChecker`, `AuditorReplicasCheckTask`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from client.errors import (
    BookieTimeout,
    BookieUnavailable,
    LedgerError,
    NoSuchEntry,
    NoSuchLedger,
    RemoteProtocolError,
    TooManyRequests,
)
from client.ids import BookieId, EntryId
from client.ledger.bookies import BookieSet
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.core.repair import Extent, Loss, loss_of, settled_extents
from client.ledger.range_read import open_entry
from client.wire.bookkeeper.availability import NOTHING, Holdings
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import (
    ListEntriesRequest,
    ListEntriesResponse,
    ReadRequest,
    Request,
    Response,
)

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


class Inspection:
    """One look at one ledger."""

    def __init__(self, bookies: BookieSet, codec: EntryCodec, metadata: LedgerMetadata) -> None:
        self._bookies = bookies
        self._codec = codec
        self._metadata = metadata
        self._writable = bookies.writable
        self._readonly = bookies.readonly
        self._holdings: dict[BookieId, Holdings] = {}
        self._unclear: dict[BookieId, None] = {}

    async def run(self) -> Findings:
        """Ask everybody and return what is missing."""
        extents = settled_extents(self._metadata)
        await asyncio.gather(*(self._list(bookie) for bookie in self._members(extents)))
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

    async def _list(self, bookie: BookieId) -> None:
        request = ListEntriesRequest(self._codec.ledger_id)
        answer = await ask(self._bookies, bookie, request)
        if isinstance(answer, NoSuchLedger | NoSuchEntry):
            self._holdings[bookie] = NOTHING
        elif isinstance(answer, ListEntriesResponse) and answer.availability is not None:
            try:
                self._holdings[bookie] = Holdings(answer.availability)
            except RemoteProtocolError:
                self._unclear[bookie] = None
        else:
            self._unclear[bookie] = None

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


async def ask(
    bookies: BookieSet, bookie: BookieId, request: Request, size: int = 0
) -> Response | LedgerError:
    """Send one request and return its answer."""
    done: asyncio.Future[Response | LedgerError] = asyncio.get_running_loop().create_future()

    def on_answer(_request: Request, answer: Response | LedgerError) -> None:
        if not done.done():
            done.set_result(answer)

    bookies.bookie(bookie).request(request, on_answer, size)
    return await done
