"""Asks every bookie, once a schedule is healed, for all that it has promised.

Recovery and readers are content with one good copy and never look at the others; so a bookie
that lost its share, or forgot a fence, may hide behind its neighbours. Here each is asked alone:

    every entry that was sent to one of its ledgers, and the last one    what it has taken it reads
    an ordinary add to every ledger whose fence it has answered          it is refused, for ever

Answers are judged by the oracle as those of any other client are (R3, R4, R5); what this file
adds is that "I cannot say" is no answer of a healthy bookie, and that every one of them is
registered. One rotten byte may cost a bookie one entry.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.errors import NoSuchEntry, NoSuchLedger, QuireError
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookies import Bookies
from client.ledger.config import LedgerClientConfig
from client.metadata import paths
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import LAST_ENTRY, AddRequest, ReadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.ledger.bookies.bookies import Bookie
    from client.metadata.store import MetadataStore
    from client.wire.bookkeeper.messages import Request
    from tests.simulation.bookies.ledger_books import BookieBook
    from tests.simulation.bookies.machines import Machines

_PATIENCE_S = 8.0
"""An operator has restarted what a failed disk stopped by then."""
_PAUSE_S = 0.2
_AT_ONCE = 20
_AFTER_THE_FENCE = EntryId(1 << 40)
_PASSWORD = b"sesame"


class Inspection:
    """The inspection of one schedule's bookies."""

    def __init__(self, world: Machines, store: MetadataStore) -> None:
        self._world = world
        self._oracle = world.oracle
        self._store = store
        self._bookies = Bookies(
            BookieDirectory(store, paths.LEDGERS_ROOT), LedgerClientConfig(request_timeout_ms=1000)
        )

    async def run(self) -> None:
        """See that all is as promised. What is not ends the schedule as a violation."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PATIENCE_S
        await self._until(deadline_s, self._unregistered)
        while True:
            try:
                await self._bookies.start()
            except QuireError:
                await asyncio.sleep(_PAUSE_S)
            else:
                break
        for host in self._world.bookies:
            book = self._oracle.bookie(self._world.bookie_id(host))
            if not self._world.is_up(host):
                continue
            unread = self._promised(book)
            while len(unread := await self._unreadable(book, unread)) > book.rotten:
                if loop.time() > deadline_s:
                    self._oracle.fail("R5", f"{book.name} took {unread[:5]} and cannot read them")
                await asyncio.sleep(_PAUSE_S)
            await self._try_fences(book)
        self._bookies.close()

    async def _until(self, deadline_s: float, left: Callable[[], list[str]]) -> None:
        while missing := left():
            if asyncio.get_running_loop().time() > deadline_s:
                self._oracle.fail("L7", f"{missing} are well and not registered")
            await asyncio.sleep(_PAUSE_S)

    def _unregistered(self) -> list[str]:
        """Return the bookies that clients cannot find, though nothing is wrong with them."""
        tree = self._world.store.cluster.tree
        known = {*tree.children(paths.available()), *tree.children(paths.readonly())}
        names = {host: self._world.bookie_id(host) for host in self._world.bookies}
        return [
            name
            for host, name in names.items()
            if name not in known and (self._world.is_up(host) or self._must_be_up(name))
        ]

    def _must_be_up(self, name: str) -> bool:
        book = self._oracle.bookie(name)
        return not book.wiped and not book.rotten

    def _promised(self, book: BookieBook) -> list[tuple[int, int]]:
        """Return (ledger, entry) of all that is to be asked for."""
        return [
            (ledger_id, entry_id)
            for ledger_id in sorted({*book.stored, *book.fenced_at})
            for entry_id in (LAST_ENTRY, *range(len(self._oracle.ledger(ledger_id).sent)))
            if not self._oracle.may_have_dropped(book, ledger_id)
        ]

    async def _unreadable(
        self, book: BookieBook, wanted: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Ask for entries; return those that a healthy bookie would have answered for."""
        left: list[tuple[int, int]] = []
        for first in range(0, len(wanted), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
            answers = await asyncio.gather(
                *(self._ask(book, ReadRequest(LedgerId(led), EntryId(e))) for led, e in some)
            )
            left += [
                (ledger_id, entry_id)
                for (ledger_id, entry_id), answer in zip(some, answers, strict=True)
                if isinstance(answer, QuireError)
                and not isinstance(answer, NoSuchEntry | NoSuchLedger)
                and self._is_owed(book, ledger_id, entry_id)
            ]
        return left

    def _is_owed(self, book: BookieBook, ledger_id: int, entry_id: int) -> bool:
        if self._oracle.may_have_dropped(book, ledger_id):
            return False
        # The end of a ledger may be the one entry that rot has cost.
        return entry_id in book.stored.get(ledger_id, ()) or (entry_id < 0 and not book.rotten)

    async def _try_fences(self, book: BookieBook) -> None:
        """Add behind the end of every fenced ledger; the oracle looks at the answers."""
        for ledger_id in sorted(book.fenced_at):
            codec = EntryCodec(LedgerId(ledger_id), DigestType.CRC32C, _PASSWORD)
            entry = b"".join(codec.seal(_AFTER_THE_FENCE, EntryId(-1), 0, [b"too late"]))
            key = master_key(_PASSWORD)
            await self._ask(book, AddRequest(LedgerId(ledger_id), _AFTER_THE_FENCE, key, entry))

    async def _ask(self, book: BookieBook, request: Request) -> object:
        bookie: Bookie = self._bookies.bookie(BookieId(book.name))
        answered = asyncio.get_running_loop().create_future()
        bookie.request(request, lambda _, answer: answered.set_result(answer))
        return await answered
