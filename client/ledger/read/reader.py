"""Reading entries of a ledger: ranges, pipelined, with fail-over to other replicas.

Covers what a reader offers. How far a ledger may be read is said by the `LedgerView` behind it: a
closed ledger to its end, an open one to a LAC learned from its bookies or its writer. How a range
is read is the business of `batch_read.py` and `range_read.py`.

A read that fails everywhere looks at the metadata once more: bookies may have been replaced
since (issue 4613).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

from client.errors import IncorrectParameter, LedgerError, MetadataError, ReadFailed
from client.ids import EntryId, LedgerId
from client.ledger.context import LedgerContext
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.read.batch_read import BatchReads
from client.ledger.read.range_read import RangeRead
from client.wire.bookkeeper.entry import Entry, EntryCodec

_BATCH_ENTRIES_MIN: Final = 4
"""Fewer entries are asked for one by one."""

_ENTRY_BYTES_GUESS: Final = 64 << 10

SOME_ENTRIES_MAX: Final = 8
"""How many entries `read_some` returns that come one by one."""


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

    async def wait(self, above: EntryId) -> None:
        """Return once `last_entry` is above, or nothing will be added any more.

        Raises LedgerError, MetadataError.
        """
        ...


class LedgerReader:
    """Reads one ledger. Made by `LedgerClient` and `LedgerWriter`."""

    __slots__ = ("_codec", "_context", "_view", "_window_bytes", "_window_entries", "ledger_id")

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
        self._context = context
        self._window_entries = context.config.read_window_entries
        self._window_bytes = context.config.read_window_bytes

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

    async def wait(self, above: int) -> EntryId:
        """Wait until there is an entry above `above`; return the last one that may be read.

        Returns also when the ledger was closed: then nothing may be above. Put a time limit around
        it (`asyncio.timeout`) if the writer may be silent. Raises NoSuchLedger when the ledger was
        deleted, MetadataError.
        """
        await self._view.wait(EntryId(above))
        return self._view.last_entry

    async def read(self, first: int, last: int) -> list[Entry]:
        """Return entries `first`..`last`, both included.

        Raises IncorrectParameter for a bad range, ReadFailed beyond `last_entry`, otherwise the
        verdict on the first entry that no replica could serve.
        """
        self._check_confirmed(last)
        return await self.read_unconfirmed(first, last)

    async def read_some(self, first: int, last: int) -> list[Entry]:
        """Return entries from `first` on, at least one, and none behind `last`.

        How many is decided by what they weigh: as many as one answer of `read_batch_bytes` brings,
        or `SOME_ENTRIES_MAX` where bookies give no such answers. So who reads a ledger of small
        entries asks for many at once, and of large ones never holds more than a few. Raises as
        `read`.
        """
        self._check_confirmed(last)
        context = self._context
        size_max = context.config.read_batch_bytes
        if size_max and 0 <= first < last:
            some = await BatchReads(context).read_some(
                EntryId(first), EntryId(last), self._view.metadata, self._codec, size_max
            )
            if some:
                return some
        return await self.read_unconfirmed(first, min(last, first + SOME_ENTRIES_MAX - 1))

    async def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """Like `read`, without the bound: what is above `last_entry` may never be confirmed."""
        if not 0 <= first <= last:
            raise IncorrectParameter(f"cannot read entries {first}..{last}")
        try:
            return await self._read_range(first, last)
        except LedgerError as verdict:
            if not await self._have_moved(verdict):
                raise
        return await self._read_range(first, last)

    async def _have_moved(self, verdict: LedgerError) -> bool:
        """Look at the metadata once more; return whether other bookies hold the ledger now.

        While the metadata store is away the verdict on the bookies that are known stands.
        """
        try:
            return await self._view.reload()
        except MetadataError:
            raise verdict from None

    async def entries(self, first: int = 0, last: int | None = None) -> AsyncIterator[Entry]:
        """Yield entries in order, up to `last` or else the `last_entry` of the time of the call.

        Raises as `read`.
        """
        end = self._view.last_entry if last is None else last
        while first <= end:
            stop = min(end, first + self._window_entries - 1)
            for entry in await self.read(first, stop):
                yield entry
            first = stop + 1

    async def tail(self, first: int = 0) -> AsyncIterator[Entry]:
        """Yield entries in order as they are confirmed, until the ledger is closed.

        Raises as `read` and `wait`.
        """
        while True:
            last = self._view.last_entry
            if first <= last:
                async for entry in self.entries(first, last):
                    yield entry
                first = last + 1
            elif await self.wait(first - 1) < first:
                return

    def _check_confirmed(self, last: int) -> None:
        if last > self._view.last_entry:
            raise ReadFailed(f"entry {last} is beyond the last one, {self._view.last_entry}")

    async def _read_range(self, first: int, last: int) -> list[Entry]:
        metadata = self._view.metadata
        codec, context = self._codec, self._context
        batches = BatchReads(context)
        slices = self._slices(first, last) if batches.is_whole(metadata) else ()
        if slices:
            return await batches.read_sliced(slices, metadata, codec)
        run = RangeRead(EntryId(first), EntryId(last), metadata, codec, context, self._window())
        return await run.run()

    def _slices(self, first: int, last: int) -> list[tuple[EntryId, EntryId]]:
        """Divide a range into batch reads; none if it is better read entry by entry."""
        step = self._context.config.read_batch_bytes // (self._average or _ENTRY_BYTES_GUESS)
        if min(step, last - first + 1) < _BATCH_ENTRIES_MIN:
            return []
        ends = range(first, last + 1, step)
        return [(EntryId(at), EntryId(min(last, at + step - 1))) for at in ends]

    def _window(self) -> int:
        """Return how many entries to ask for at once: more of them if they are known as small."""
        average = self._average
        return max(self._window_entries, self._window_bytes // average if average else 0)

    @property
    def _average(self) -> int:
        """Mean payload bytes of an entry; 0 while unknown."""
        count = self._view.last_entry + 1
        return self._view.length // count if count else 0
