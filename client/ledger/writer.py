"""The writer of one ledger: carries the add pipeline's effects out.

This file is the only home of a writer's life: its adds (decided by `core/adds.py`), its ensemble
changes and its close (decided by `core/ensemble_change.py`, written by `ledger_nodes.py`).

`add` is synchronous and on the hot path: no task, no future, no copy of the payload. `on_done`
runs later, on the loop, in entry order, never inside `add`; it may call `add` itself. A writer
whose ledger is fenced fails all pending adds with LedgerFenced, whose outcome is unknown: some of
them may survive recovery; every further `add` raises it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from client.errors import (
    IncorrectParameter,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    MetadataError,
    WriteFailed,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.add_reports import AddReports, OnDone
from client.ledger.bookie_choice import BookieChoice
from client.ledger.bookies import Bookie, BookieSet
from client.ledger.config import LedgerClientConfig
from client.ledger.core.adds import (
    AddEffects,
    Adds,
    ChangeEnsemble,
    Confirmed,
    Failed,
    SendAdd,
)
from client.ledger.core.ensemble_change import change_ensemble, close_as_writer
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.reader import LedgerReader
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import (
    MASTER_KEY_BYTES,
    AddRequest,
    Buffer,
    Request,
    Response,
)

log = logging.getLogger(__name__)

_FRAME_OVERHEAD: Final = 8 + MASTER_KEY_BYTES
"""Bytes of an add's frame besides the entry: length, header word, master key."""


class LedgerWriter:
    """The only writer of a ledger. Made by `LedgerClient.create`; must be closed or abandoned."""

    def __init__(
        self,
        codec: EntryCodec,
        master_key: bytes,
        current: VersionedMetadata,
        nodes: LedgerNodes,
        bookies: BookieSet,
        choice: BookieChoice,
        config: LedgerClientConfig,
    ) -> None:
        self.ledger_id: LedgerId = codec.ledger_id
        self._codec = codec
        self._master_key = master_key
        self._current = current
        self._nodes = nodes
        self._bookies = bookies
        self._choice = choice
        self._config = config
        self._loop = asyncio.get_running_loop()
        metadata = current.metadata
        self._adds = Adds(metadata.last_fragment.ensemble, metadata.schedule, self._seal)
        self._members: list[_Member] = []
        self._seat(metadata.last_fragment.ensemble)
        self._reports = AddReports(self._loop)
        self._waiters: deque[asyncio.Future[None]] = deque()
        """Calls of `append` that wait for room, and `close` that waits for the last add."""
        self._change_task: asyncio.Task[None] | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._is_closing = False
        bookies.add_listener(self._on_bookies_changed)
        self._is_listening = True

    @property
    def last_add_confirmed(self) -> EntryId:
        """Last entry that is confirmed, with all before it; -1 if none is."""
        return self._adds.lac

    @property
    def last_add_pushed(self) -> EntryId:
        """Last entry that `add` took; -1 if none."""
        return self._adds.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes of all entries pushed."""
        return self._adds.length

    @property
    def confirmed_length(self) -> int:
        """Payload bytes of all entries confirmed."""
        return self._adds.confirmed_length

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this writer last wrote or read it."""
        return self._current.metadata

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes that some bookie has still to answer; what back-pressure goes by."""
        return self._adds.pending_bytes

    @property
    def is_ended(self) -> bool:
        """Whether the writer failed, was closed or abandoned: it takes no more adds."""
        return self._adds.error is not None

    @property
    def suspended(self) -> list[BookieId]:
        """Members of the ensemble that get no adds now, because nobody could replace them."""
        return self._adds.suspended

    def add(self, payload: Sequence[Buffer], on_done: OnDone) -> EntryId:
        """Send the next entry and return its id; `on_done` hears of it later.

        Raises LedgerFenced, LedgerClosed or what else ended the writer, and IncorrectParameter
        for an entry larger than a frame; then nothing was sent and no id was used.
        """
        if self._is_closing:
            raise LedgerClosed(f"ledger {self.ledger_id} was closed by its writer")
        size = sum(map(len, payload))
        if size + self._codec.overhead + _FRAME_OVERHEAD > self._config.frame_bytes_max:
            raise IncorrectParameter(f"an entry of {size} bytes does not fit in a frame")
        effects = self._adds.add(payload, size, self._loop.time())
        self._reports.expect(on_done)
        entry_id = self._adds.last_add_pushed
        self._perform(effects)
        return entry_id

    async def append(self, payload: Buffer) -> EntryId:
        """Add one entry and return its id once it is confirmed; waits for room first.

        Raises as `add`, and what `on_done` would be told.
        """
        while self._adds.pending_bytes >= self._config.writer_in_flight_bytes_max:
            await self._wait()
        done: asyncio.Future[EntryId] = self._loop.create_future()

        def on_done(entry_id: EntryId, error: LedgerError | None) -> None:
            if done.done():
                return  # the caller went away
            if error is None:
                done.set_result(entry_id)
            else:
                done.set_exception(error)

        self.add([payload], on_done)
        return await done

    async def close(self) -> None:
        """Wait for pending adds, then close the ledger at its last confirmed entry.

        After a failure other than fencing the ledger is closed at what was confirmed before.
        May be called again. Raises LedgerFenced while somebody recovers the ledger,
        MetadataConflict when somebody closed it elsewhere, MetadataError (outcome unknown).
        """
        self._is_closing = True
        if self._close_task is None or _failed(self._close_task):
            self._close_task = self._loop.create_task(self._close())
        await asyncio.shield(self._close_task)

    def abandon(self) -> None:
        """Stop using the ledger without closing it; pending adds fail with LedgerClosed."""
        self._is_closing = True
        self._stop_listening()
        for task in (self._change_task, self._close_task):
            if task is not None:
                task.cancel()
        effects = self._adds.fail(LedgerClosed(f"ledger {self.ledger_id} was abandoned"))
        self._loop.call_soon(self._perform, effects)

    def reader(self) -> LedgerReader:
        """Return a reader of this ledger, up to this writer's last confirmed entry."""
        return LedgerReader(
            self.ledger_id,
            _OwnView(self),
            self._codec,
            self._bookies,
            window_entries=self._config.read_window_entries,
        )

    def _seal(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer]
    ) -> AddRequest:
        head, *rest = self._codec.seal(entry_id, lac, length, payload)
        return AddRequest(self.ledger_id, entry_id, self._master_key, head, entry_rest=tuple(rest))

    def _seat(self, ensemble: Sequence[BookieId]) -> None:
        """Give every place of the ensemble its member; unchanged places keep theirs."""
        seated = self._members
        self._members = [
            seated[index]
            if seated and seated[index].name == name
            else _Member(self, index, name, self._bookies.bookie(name))
            for index, name in enumerate(ensemble)
        ]

    def _perform(self, effects: AddEffects) -> None:
        for effect in effects:
            match effect:
                case SendAdd(request, size, indices):
                    for index in indices:
                        member = self._members[index]
                        member.bookie.request(request, member.on_answer, size)
                case Confirmed():
                    self._wake()
                    self._reports.tell(effect)
                case ChangeEnsemble(failed):
                    self._change_task = self._loop.create_task(self._change_ensemble(failed))
                    self._change_task.add_done_callback(_surface_bug)
                case Failed():
                    self._on_failed(effect.error)
                    self._wake()
                    self._reports.tell(effect)

    def _on_failed(self, error: LedgerError) -> None:
        self._stop_listening()
        level = logging.DEBUG if isinstance(error, LedgerClosed) else logging.WARNING
        log.log(
            level,
            "ledger.writer_failed ledger=%d lac=%d pushed=%d error=%r",
            self.ledger_id,
            self._adds.lac,
            self._adds.last_add_pushed,
            error,
        )

    async def _change_ensemble(self, failed: Mapping[int, BookieId]) -> None:
        """Replace failed members by compare-and-set; confirmations are held meanwhile.

        Rule CHANGE-CAS-FIRST: the pipeline learns of the new ensemble, and so sends to it, only
        after metadata names it (issue 1591).
        """
        first_entry = EntryId(self._adds.lac + 1)

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if self._adds.error is not None:
                raise self._adds.error
            return change_ensemble(metadata, failed, first_entry, choose)

        def choose(ensemble: Sequence[BookieId], indices: Sequence[int]) -> Mapping[int, BookieId]:
            return self._choice.replacements(ensemble, indices, failed.values())

        try:
            self._current = await self._nodes.update(self.ledger_id, self._current, transform)
        except LedgerError as error:
            self._perform(self._adds.fail(error))
            return
        except MetadataError as error:
            self._perform(self._adds.fail(WriteFailed(f"no ensemble change: {error!r}")))
            return
        ensemble = self._current.metadata.last_fragment.ensemble
        log.info(
            "ledger.ensemble_changed ledger=%d first_entry=%d failed=%s ensemble=%s",
            self.ledger_id,
            first_entry,
            ",".join(failed.values()),
            ",".join(ensemble),
        )
        self._seat(ensemble)
        self._perform(self._adds.on_ensemble(ensemble, self._loop.time()))

    def _on_bookies_changed(self) -> None:
        if self._adds.suspended:
            self._perform(self._adds.replace_suspended())

    async def _close(self) -> None:
        while self._adds.error is None and self._adds.lac < self._adds.last_add_pushed:
            await self._wait()
        while self._change_task is not None and not self._change_task.done():
            await asyncio.wait([self._change_task])
        error = self._adds.error
        if isinstance(error, LedgerFenced):
            raise LedgerFenced(str(error))
        self._perform(self._adds.fail(LedgerClosed(f"ledger {self.ledger_id} is closed")))
        last_entry, length = self._adds.lac, self._adds.confirmed_length
        self._current = await self._nodes.update(
            self.ledger_id,
            self._current,
            lambda metadata: close_as_writer(metadata, last_entry, length),
        )
        log.info("ledger.closed ledger=%d last_entry=%d", self.ledger_id, last_entry)

    async def _wait(self) -> None:
        """Return after something about the pending adds changed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._bookies.remove_listener(self._on_bookies_changed)


class _Member:
    """One place in the current ensemble: who sits there, and what becomes of its answers."""

    __slots__ = ("_index", "_writer", "bookie", "name")

    def __init__(self, writer: LedgerWriter, index: int, name: BookieId, bookie: Bookie) -> None:
        self._writer = writer
        self._index = index
        self.name = name
        self.bookie = bookie

    def on_answer(self, request: Request, answer: Response | LedgerError) -> None:
        assert isinstance(request, AddRequest)
        writer = self._writer
        adds = writer._adds
        if isinstance(answer, LedgerError):
            effects = adds.on_failed(request.entry_id, self._index, self.name, answer)
        else:
            effects = adds.on_stored(request.entry_id, self._index, self.name)
        if effects:
            writer._perform(effects)
        if writer._waiters:
            writer._wake()


class _OwnView:
    """The writer's own view of its ledger: always fresh."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._writer = writer

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.metadata

    @property
    def last_entry(self) -> EntryId:
        return self._writer.last_add_confirmed

    @property
    def length(self) -> int:
        return self._writer.confirmed_length

    async def refresh(self) -> None:
        """Nothing to learn: what was confirmed, this writer confirmed."""

    async def reload(self) -> bool:
        """No: whoever changes the ensemble tells this writer's metadata."""
        return False


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _surface_bug(task: asyncio.Task[None]) -> None:
    """Raise to the loop what a task should not have raised: else the writer just hangs."""
    if not task.cancelled():
        task.result()
