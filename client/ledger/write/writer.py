"""The writer of one ledger: the interface that applications use.

Covers what a writer offers: adding with a callback, by awaiting, or by sending now and asking
later; back-pressure; and the close (decided by `core/ensemble_change.py`, written by
`ledger_nodes.py`). How adds travel is `add_pipeline.py`'s business.

`on_done` runs later, on the loop, in entry order, never inside `add`; it may call `add` itself. A
writer whose ledger is fenced fails all pending adds with LedgerFenced, whose outcome is unknown:
some of them may survive recovery; every further `add` raises it. An `on_done` that raises fails the
writer with WriteFailed (`client/callbacks.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple

from client.errors import IncorrectParameter, LedgerClosed, LedgerError, LedgerFenced
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.context import LedgerContext
from client.ledger.core.ensemble_change import close_as_writer
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.ledger.read.reader import LedgerReader
from client.ledger.write.add_pipeline import AddPipeline
from client.ledger.write.add_reports import OnDone, unknown_once_sent
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import MASTER_KEY_BYTES, Buffer

log = logging.getLogger(__name__)

_FRAME_OVERHEAD: Final = 8 + MASTER_KEY_BYTES
"""Bytes of an add's frame besides the entry: length, header word, master key."""


class WriterProgress(NamedTuple):
    """How far a writer is. Sizes are payload bytes."""

    last_add_confirmed: EntryId
    """Last entry that is confirmed, with all before it; -1 if none is."""
    last_add_pushed: EntryId
    """Last entry that `add` took; -1 if none."""
    length: int
    """Of all entries pushed."""
    confirmed_length: int
    """Of all entries confirmed."""
    in_flight_bytes: int
    """Of what some bookie has still to answer."""
    is_settled: bool
    """Whether it has ended, with every answer that tells whether anybody lacks entries."""


class LedgerWriter:
    """The only writer of a ledger. Made by `LedgerClient.create`; must be closed or abandoned.

    As a context manager it closes the ledger at the end of the block; after an exception it
    leaves the ledger to whoever recovers it.
    """

    def __init__(
        self,
        codec: EntryCodec,
        master_key: bytes,
        current: VersionedMetadata,
        context: LedgerContext,
    ) -> None:
        self.ledger_id: LedgerId = codec.ledger_id
        self._codec = codec
        self._context = context
        self._pipeline = AddPipeline(codec, master_key, current, context)
        self._adds = self._pipeline.adds
        self.room = self._pipeline.room
        """Whether the next entry should be added now. `add` takes it anyhow; who ignores this holds
        memory without a bound, and makes what others add at the same bookies wait."""
        config = context.config
        self._entry_bytes_max = config.frame_bytes_max - codec.overhead - _FRAME_OVERHEAD
        self._close_task: asyncio.Task[None] | None = None
        self._is_closing = False

    async def __aenter__(self) -> LedgerWriter:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            await self.close()
        else:
            self.abandon()

    @property
    def progress(self) -> WriterProgress:
        """How far it is, now."""
        adds = self._adds
        return WriterProgress(
            adds.lac,
            adds.last_add_pushed,
            adds.length,
            adds.confirmed_length,
            adds.pending_bytes,
            adds.is_settled,
        )

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this writer last wrote or read it."""
        return self._pipeline.changes.current.metadata

    @property
    def is_ended(self) -> bool:
        """Whether the writer failed, was closed or abandoned: it takes no more adds."""
        return self._adds.error is not None

    @property
    def suspended(self) -> list[BookieId]:
        """Members of the ensemble that get no adds now, because nobody could replace them."""
        return self._adds.members.suspended

    @property
    def lost_members(self) -> list[BookieId]:
        """Members of the ensemble that are not registered: auto recovery will want to close the
        ledger if nobody replaces them."""
        bookies = self._context.bookies
        return [
            name
            for name in self._adds.members.ensemble
            if name not in bookies.writable and name not in bookies.readonly
        ]

    def add(
        self, payload: Sequence[Buffer], on_done: OnDone, *, entry_id: int | None = None
    ) -> EntryId:
        """Send an entry and return its id; `on_done` hears of it later.

        `entry_id`: any id that is still free, by default the next one. Entries are confirmed in
        the order of their ids, so a gap holds back what is behind it until it is filled. Raises
        LedgerFenced, LedgerClosed or what else ended the writer, IncorrectParameter for an
        entry larger than a frame, DuplicateEntryId; then nothing was sent and no id was used.
        """
        if self._is_closing:
            raise LedgerClosed(f"ledger {self.ledger_id} was closed by its writer")
        size = sum(map(len, payload))
        if size > self._entry_bytes_max:
            raise IncorrectParameter(f"an entry of {size} bytes does not fit in a frame")
        chosen = None if entry_id is None else EntryId(entry_id)
        return self._pipeline.add(payload, size, on_done, chosen)

    async def append(self, payload: Buffer, *, entry_id: int | None = None) -> EntryId:
        """Add one entry and return its id once it is confirmed; waits for room first.

        Raises as `add`, and what `on_done` would be told.
        """
        await self._room(entry_id)
        done: asyncio.Future[EntryId] = asyncio.get_running_loop().create_future()

        def on_done(entry_id: EntryId, error: LedgerError | None) -> None:
            if done.done():
                return  # the caller went away
            if error is None:
                done.set_result(entry_id)
            else:
                done.set_exception(error)

        self.add([payload], on_done, entry_id=entry_id)
        return await done

    async def submit(self, payload: Buffer, *, entry_id: int | None = None) -> EntryId:
        """Send one entry and return its id, as soon as there is room for it.

        Whether it was confirmed is what `flush` tells. Raises as `add`.
        """
        await self._room(entry_id)
        return self.add([payload], _leave_to_flush, entry_id=entry_id)

    async def flush(self) -> EntryId:
        """Wait until every entry sent before is confirmed; return the last one of them.

        Raises what ended the writer before that; entries above the last confirmed one have an
        unknown outcome then.
        """
        wanted = self._adds.last_add_pushed
        while self._adds.lac < wanted:
            if self._adds.error is not None:
                raise unknown_once_sent(self._adds.error)
            await self.room.changed()
        return wanted

    async def close(self) -> None:
        """Wait for pending adds, then close the ledger at its last confirmed entry.

        After a failure other than fencing the ledger is closed at what was confirmed before.
        May be called again. Raises LedgerFenced while somebody recovers the ledger,
        MetadataConflict when somebody closed it elsewhere, MetadataError (outcome unknown).
        """
        self._is_closing = True
        if self._close_task is None or _failed(self._close_task):
            self._close_task = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._close_task)

    def abandon(self) -> None:
        """Stop using the ledger without closing it; pending adds fail with LedgerClosed."""
        self._is_closing = True
        if self._close_task is not None:
            self._close_task.cancel()
        self._pipeline.abandon(LedgerClosed(f"ledger {self.ledger_id} was abandoned"))

    def reader(self) -> LedgerReader:
        """Return a reader of this ledger, up to this writer's last confirmed entry."""
        return LedgerReader(self.ledger_id, _OwnView(self), self._codec, self._context)

    async def _room(self, entry_id: int | None) -> None:
        """Wait for room; an entry that everything else waits for needs none."""
        adds = self._adds
        while not self.room.is_free and adds.error is None:
            if entry_id is not None and entry_id == adds.lac + 1:
                return
            await self.room.changed()

    async def _close(self) -> None:
        pipeline, adds = self._pipeline, self._adds
        while adds.is_waiting:
            await pipeline.room.changed()
        await pipeline.changes.settled()
        if isinstance(adds.error, LedgerFenced):
            raise LedgerFenced(str(adds.error))
        pipeline.fail(LedgerClosed(f"ledger {self.ledger_id} is closed"))
        last_entry, length = adds.lac, adds.confirmed_length
        pipeline.changes.current = await self._context.nodes.update(
            self.ledger_id,
            pipeline.changes.current,
            lambda metadata: close_as_writer(metadata, last_entry, length),
        )
        log.info("ledger.closed ledger=%d last_entry=%d", self.ledger_id, last_entry)


class _OwnView:
    """The writer's own view of its ledger: always fresh."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.metadata

    @property
    def last_entry(self) -> EntryId:
        return self._writer.progress.last_add_confirmed

    @property
    def length(self) -> int:
        return self._writer.progress.confirmed_length

    async def refresh(self) -> None:
        """Nothing to learn: what was confirmed, this writer confirmed."""

    async def reload(self) -> bool:
        """No: whoever changes the ensemble tells this writer's metadata."""
        return False

    async def wait(self, above: EntryId) -> None:
        """Wait for this writer to confirm an entry above, or to end."""
        writer = self._writer
        while writer.progress.last_add_confirmed <= above and not writer.is_ended:
            await writer.room.changed()


def _leave_to_flush(entry_id: EntryId, error: LedgerError | None) -> None:
    """What becomes of a submitted entry is asked by `flush`."""


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
