"""Reading entries of a ledger: ranges, pipelined, with fail-over to other replicas.

This file is the only home of carrying out reads; which replica is next and what failures mean
is decided by `core/reads.py`, how far a ledger may be read by the `LedgerView` behind the reader:
a closed ledger to its end, an open one to a LAC learned from its bookies or its writer.

A read that fails everywhere looks at the metadata once more: bookies may have been replaced
since (issue 4613).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from client.errors import DigestMismatch, IncorrectParameter, LedgerError, ReadFailed
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies import BookieSet
from client.ledger.context import LedgerContext
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.core.reads import EntryRead, read_order
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import ReadRequest, ReadResponse, Request, Response

FIRST_ENTRY: Final = EntryId(0)


class LedgerView(Protocol):
    """What is known of a ledger, and how to learn more."""

    @property
    def metadata(self) -> LedgerMetadata:
        """Metadata as last seen."""
        ...

    @property
    def last_entry(self) -> EntryId:
        """Last entry that may be read, -1 for none; never goes back."""
        ...

    @property
    def length(self) -> int:
        """Payload bytes up to `last_entry`, as far as known."""
        ...

    async def refresh(self) -> None:
        """Learn how far the ledger may be read now. Raises LedgerError."""
        ...

    async def reload(self) -> bool:
        """Read the metadata again; return whether other bookies hold the ledger now."""
        ...


class LedgerReader:
    """Reads one ledger. Made by `LedgerClient` and `LedgerWriter`."""

    def __init__(
        self,
        ledger_id: LedgerId,
        view: LedgerView,
        codec: EntryCodec,
        context: LedgerContext,
    ) -> None:
        self.ledger_id = ledger_id
        self._view = view
        self._codec = codec
        self._bookies = context.bookies
        self._window_entries = context.config.read_window_entries

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as last seen."""
        return self._view.metadata

    @property
    def last_entry(self) -> EntryId:
        """Last entry that may be read (LAC of an open ledger); -1 if there is none."""
        return self._view.last_entry

    @property
    def length(self) -> int:
        """Payload bytes up to `last_entry`; 0 while unknown (open ledger of another client)."""
        return self._view.length

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, so that `last_entry` is final."""
        return self._view.metadata.is_closed

    async def refresh(self) -> EntryId:
        """Find out how far the ledger may be read now, and return that. Raises LedgerError."""
        await self._view.refresh()
        return self._view.last_entry

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        """Return entries `first`..`last`, both included.

        Raises IncorrectParameter for a bad range, ReadFailed beyond `last_entry`, otherwise the
        verdict on the first entry that no replica could serve.
        """
        if last > self._view.last_entry:
            raise ReadFailed(f"entry {last} is beyond the last one, {self._view.last_entry}")
        return await self.read_unconfirmed(first, last)

    async def read_unconfirmed(self, first: EntryId, last: EntryId) -> list[Entry]:
        """Like `read`, without the bound: what is above `last_entry` may never be confirmed."""
        if not 0 <= first <= last:
            raise IncorrectParameter(f"cannot read entries {first}..{last}")
        try:
            return await self._read_range(first, last)
        except LedgerError:
            if not await self._view.reload():
                raise
        return await self._read_range(first, last)

    async def entries(
        self, first: EntryId = FIRST_ENTRY, last: EntryId | None = None
    ) -> AsyncIterator[Entry]:
        """Yield entries in order, up to `last` or else the `last_entry` of the time of the call.

        Raises as `read`.
        """
        end = self._view.last_entry if last is None else last
        while first <= end:
            stop = EntryId(min(end, first + self._window_entries - 1))
            for entry in await self.read(first, stop):
                yield entry
            first = EntryId(stop + 1)

    async def _read_range(self, first: EntryId, last: EntryId) -> list[Entry]:
        run = _RangeRead(first, last, self._view.metadata, self._codec, self._bookies)
        return await run.start(self._window_entries)


class _RangeRead:
    """Some consecutive entries being read, a window of them at a time."""

    def __init__(
        self,
        first: EntryId,
        last: EntryId,
        metadata: LedgerMetadata,
        codec: EntryCodec,
        bookies: BookieSet,
    ) -> None:
        self._first = first
        self._last = last
        self._metadata = metadata
        self._schedule = metadata.schedule
        self._codec = codec
        self._bookies = bookies
        self._next = first
        self._missing = last - first + 1
        self._entries: list[Entry | None] = [None] * self._missing
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self, window_entries: int) -> list[Entry]:
        for _ in range(min(window_entries, self._missing)):
            self._read_next()
        await self._done
        return [entry for entry in self._entries if entry is not None]

    def _read_next(self) -> None:
        entry_id = self._next
        self._next = EntryId(entry_id + 1)
        ensemble = self._metadata.fragment_of(entry_id).ensemble
        order = read_order(ensemble, self._schedule.write_set(entry_id), self._is_unreachable)
        _OneRead(EntryRead(entry_id, order), self._codec, self._bookies, self._on_read).ask(
            order[0]
        )

    def _is_unreachable(self, bookie: BookieId) -> bool:
        return self._bookies.bookie(bookie).is_unreachable

    def _on_read(self, entry_id: EntryId, outcome: Entry | LedgerError) -> None:
        if self._done.done():
            return  # failed, or the caller went away
        if isinstance(outcome, LedgerError):
            self._done.set_exception(outcome)
            return
        self._entries[entry_id - self._first] = outcome
        self._missing -= 1
        if self._next <= self._last:
            self._read_next()
        elif self._missing == 0:
            self._done.set_result(None)


class _OneRead:
    """One entry being read: carries `EntryRead`'s decisions out."""

    __slots__ = ("_bookies", "_codec", "_on_read", "_read")

    def __init__(
        self,
        read: EntryRead,
        codec: EntryCodec,
        bookies: BookieSet,
        on_read: Callable[[EntryId, Entry | LedgerError], None],
    ) -> None:
        self._read = read
        self._codec = codec
        self._bookies = bookies
        self._on_read = on_read

    def ask(self, bookie: BookieId) -> None:
        request = ReadRequest(self._codec.ledger_id, self._read.entry_id)
        self._bookies.bookie(bookie).request(request, self._on_answer)

    def _on_answer(self, request: Request, answer: Response | LedgerError) -> None:
        outcome = open_entry(self._codec, self._read.entry_id, answer)
        if isinstance(outcome, Entry):
            self._on_read(self._read.entry_id, outcome)
            return
        following = self._read.on_failed(outcome)
        if following is not None:
            self.ask(following)
        else:
            self._on_read(self._read.entry_id, self._read.verdict())


def open_entry(
    codec: EntryCodec, entry_id: EntryId | None, answer: Response | LedgerError
) -> Entry | LedgerError:
    """Return the verified entry in a bookie's answer to a read, or why there is none.

    `entry_id` None takes any entry of the ledger.
    """
    if isinstance(answer, LedgerError):
        return answer
    assert isinstance(answer, ReadResponse)
    if answer.entry is None:
        return DigestMismatch("the answer holds no entry")
    try:
        return codec.open(answer.entry, entry_id)
    except DigestMismatch as error:
        return error
