"""Asking a bookie which entries of a ledger it has.

A bookie is asked for the list. Apache's with `DbLedgerStorage`, which is what
Pulsar runs, has no such list and does not even answer: it is asked for every entry it should have,
one by one, and not for a list again for a while (rule REPAIR-ASK). Apache's auto recovery asks for
first and last entries only, which would miss holes.

Sources: Apache BookKeeper `GetListOfEntriesOfLedgerProcessorV3`, `DbLedgerStorage`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from client.errors import (
    BookieTimeout,
    BookieUnavailable,
    DigestMismatch,
    LedgerError,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
    RemoteProtocolError,
)
from client.ids import BookieId, EntryId
from client.ledger.bookies.bookies import BookieSet
from client.ledger.read.range_read import open_entry
from client.wire.bookkeeper.availability import NOTHING, Holdings
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import (
    ListEntriesRequest,
    ListEntriesResponse,
    ReadRequest,
    Request,
    Response,
)

log = logging.getLogger(__name__)

_UNLISTED_S: Final = 600.0
"""How long a bookie that did not answer with a list is not asked for one."""
_ATTEMPTS: Final = 2
"""Times to ask for a list: a connection that was lost is no sign that there is none."""
_WINDOW_ENTRIES: Final = 16
_LACKING: Final = (NoSuchEntry, NoSuchLedger, DigestMismatch, ReadFailed)
"""Answers of a bookie that has no sound copy; all others say nothing about it."""


class Held(Protocol):
    """What a bookie has of a ledger."""

    def __contains__(self, entry_id: EntryId, /) -> bool: ...


class Census:
    """Asks the bookies of one client; remembers which of them cannot list."""

    def __init__(self, bookies: BookieSet) -> None:
        self.bookies = bookies
        self._unlisted_until_s: dict[BookieId, float] = {}

    async def holdings(
        self, bookie: BookieId, codec: EntryCodec, wanted: Iterable[EntryId]
    ) -> Held | None:
        """Return which of the `wanted` entries a bookie has, None if it cannot say."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._unlisted_until_s.get(bookie, now_s):
            for _ in range(_ATTEMPTS):
                answer = await ask(self.bookies, bookie, ListEntriesRequest(codec.ledger_id))
                if not isinstance(answer, BookieTimeout | BookieUnavailable):
                    return _decode(answer)
        found = await self._read_each(bookie, codec, wanted)
        if found is not None and bookie not in self._unlisted_until_s:
            log.info("autorecovery.bookie_cannot_list bookie=%s", bookie)
        if found is not None:
            self._unlisted_until_s[bookie] = now_s + _UNLISTED_S
        return found

    async def _read_each(
        self, bookie: BookieId, codec: EntryCodec, wanted: Iterable[EntryId]
    ) -> set[EntryId] | None:
        found: set[EntryId] = set()
        window: list[EntryId] = []
        for entry_id in wanted:
            window.append(entry_id)
            if len(window) == _WINDOW_ENTRIES:
                if not await self._read_some(bookie, codec, window, found):
                    return None
                window = []
        return found if await self._read_some(bookie, codec, window, found) else None

    async def _read_some(
        self, bookie: BookieId, codec: EntryCodec, window: list[EntryId], found: set[EntryId]
    ) -> bool:
        """Add those of a window that are there to `found`; return whether the bookie could say."""
        requests = [ReadRequest(codec.ledger_id, entry_id) for entry_id in window]
        answers = await asyncio.gather(*(ask(self.bookies, bookie, each) for each in requests))
        for entry_id, answer in zip(window, answers, strict=True):
            opened = open_entry(codec, entry_id, answer)
            if isinstance(opened, Entry):
                found.add(entry_id)
            elif not isinstance(opened, _LACKING):
                return False
        return True


def _decode(answer: Response | LedgerError) -> Held | None:
    if isinstance(answer, NoSuchLedger | NoSuchEntry):
        return NOTHING
    if isinstance(answer, ListEntriesResponse) and answer.availability is not None:
        try:
            return Holdings(answer.availability)
        except RemoteProtocolError:
            return None
    return None


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
