"""Carries the add pipeline's effects out: requests, reports, ensemble changes, timers.

Covers running `core/adds.py` for a writer: who sits at which place of the ensemble, what becomes
of each answer, and how a change of the ensemble gets into the metadata (decided by
`core/ensemble_change.py`, written by `ledger_nodes.py`). `add` is synchronous and on the hot path:
no task, no future, no copy of the payload.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from client.errors import (
    LedgerClosed,
    LedgerError,
    MetadataError,
    TooManyRequests,
    WriteFailed,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookies import Bookie
from client.ledger.context import LedgerContext
from client.ledger.core.adds import (
    AddEffects,
    Adds,
    ChangeEnsemble,
    Confirmed,
    Failed,
    PauseBusy,
    SendAdd,
    UnderReplicated,
)
from client.ledger.core.ensemble_change import change_ensemble
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.ledger.core.pending_add import AddEntry
from client.ledger.core.shed_adds import BUSY_PAUSE_S
from client.ledger.write.add_reports import AddReports, OnDone
from client.ledger.write.explicit_lac import ExplicitLac
from client.ledger.write.writer_room import WriterRoom
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import (
    AddRequest,
    Buffer,
    Request,
    Response,
    WriteLacRequest,
)

log = logging.getLogger(__name__)

_QUORUM_CHECKS: Final = 4
"""How often the quorum timeout is looked at while it lasts."""


class AddPipeline:
    """The adds of one writer. `adds` is for reading; its inputs come from here only."""

    def __init__(
        self,
        codec: EntryCodec,
        master_key: bytes,
        current: VersionedMetadata,
        context: LedgerContext,
    ) -> None:
        self.ledger_id: LedgerId = codec.ledger_id
        self.current = current
        """Metadata as last written or read."""
        self._codec = codec
        self._master_key = master_key
        self._context = context
        self._loop = asyncio.get_running_loop()
        config = context.config
        self._quorum_timeout_s = config.add_quorum_timeout_ms / 1000 or None
        metadata = current.metadata
        self.adds = Adds(
            metadata.last_fragment.ensemble,
            metadata.schedule,
            delay_change=config.delay_ensemble_change,
            quorum_timeout_s=self._quorum_timeout_s,
            busy_timeout_s=config.request_timeout_ms / 1000,
        )
        self._room = WriterRoom(self.adds, config, context.memory, context.company)
        self._members: list[_Member] = []
        self._seat(metadata.last_fragment.ensemble)
        self._reports = AddReports(self._loop, context.stats)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._change_task: asyncio.Task[None] | None = None
        self._change_count = 0
        self._quorum_timer: asyncio.TimerHandle | None = None
        self._explicit_lac: ExplicitLac | None = None
        if config.explicit_lac_interval_ms:
            interval_s = config.explicit_lac_interval_ms / 1000
            self._explicit_lac = ExplicitLac(interval_s, lambda: self.adds.lac, self._write_lac)
        context.stats.writers += 1
        context.bookies.add_listener(self._on_bookies_changed)
        self._is_listening = True

    def add(
        self, payload: Sequence[Buffer], size: int, on_done: OnDone, entry_id: EntryId | None
    ) -> EntryId:
        """Send an entry of `size` bytes and return its id. Raises as `Adds.add`."""
        if entry_id is None:
            entry_id = EntryId(self.adds.last_add_pushed + 1)
        effects = self.adds.add(payload, size, self._loop.time(), entry_id=entry_id)
        self._reports.expect(entry_id, on_done)
        self._perform(effects)
        if self._quorum_timeout_s is not None and self._quorum_timer is None:
            self._watch_quorum(self._quorum_timeout_s)
        return entry_id

    def fail(self, error: LedgerError) -> None:
        """End the pipeline; pending adds fail."""
        self._perform(self.adds.fail(error))

    def abandon(self, error: LedgerError) -> None:
        """Like `fail`, giving up a running ensemble change; nobody is told before we return."""
        self._stop_listening()
        if self._change_task is not None:
            self._change_task.cancel()
        self._loop.call_soon(self._perform, self.adds.fail(error))

    @property
    def has_room(self) -> bool:
        """Whether the next entry may be sent; one that is larger than the limits goes alone."""
        return self._room.is_free

    def on_room(self, call: Callable[[], None]) -> None:
        """Call once, later on the loop, when there is room again or the pipeline has ended."""

        def look(_waiter: asyncio.Future[None]) -> None:
            if self.has_room or self.adds.error is not None:
                call()
            else:
                self.on_room(call)

        waiter: asyncio.Future[None] = self._loop.create_future()
        waiter.add_done_callback(look)
        self._waiters.append(waiter)

    async def changed(self) -> None:
        """Return after something about the pending adds changed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def unchanging(self) -> None:
        """Return when no ensemble change is running."""
        while self._change_task is not None and not self._change_task.done():
            await asyncio.wait([self._change_task])

    def _seal(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer]
    ) -> AddRequest:
        head, *rest = self._codec.seal(entry_id, lac, length, payload)
        return AddRequest(self.ledger_id, entry_id, self._master_key, head, entry_rest=tuple(rest))

    def _sealed(self, entry: AddEntry) -> AddRequest:
        """Make the request of an entry that is sent for the first time."""
        request = self._seal(entry.entry_id, entry.lac, entry.length, entry.payload)
        entry.on_sealed(request)
        return request

    def _seat(self, ensemble: Sequence[BookieId]) -> None:
        """Give every place of the ensemble its member; unchanged places keep theirs."""
        seated = self._members
        self._members = [
            seated[index]
            if seated and seated[index].name == name
            else _Member(self, index, name, self._context.bookies.bookie(name))
            for index, name in enumerate(ensemble)
        ]

    def _perform(self, effects: AddEffects) -> None:
        for effect in effects:
            match effect:
                case SendAdd(entry, indices):
                    request = entry.request or self._sealed(entry)
                    size = entry.size
                    self._room.on_sent(entry, len(indices))
                    for index in indices:
                        member = self._members[index]
                        member.bookie.request(request, member.on_answer, size)
                case Confirmed():
                    self._room.on_confirmed(effect.first, effect.last)
                    if self._explicit_lac is not None:
                        self._explicit_lac.on_confirmed()
                    self._wake()
                    self._reports.tell(effect)
                case PauseBusy():
                    self._context.stats.busy_pauses += 1
                    self._loop.call_later(BUSY_PAUSE_S, self._send_again)
                case ChangeEnsemble(failed):
                    self._change_task = self._loop.create_task(self._change_ensemble(failed))
                    self._change_task.add_done_callback(_surface_bug)
                case Failed():
                    self._on_failed(effect.error)
                    self._room.look()
                    self._wake()
                    self._reports.tell(effect)
                case UnderReplicated(bookies):
                    self._context.stats.marks += 1
                    self._context.marks.want(self.ledger_id, bookies)

    def _on_failed(self, error: LedgerError) -> None:
        self._stop_listening()
        is_closed = isinstance(error, LedgerClosed)
        self._context.stats.writer_failures += not is_closed
        level = logging.DEBUG if is_closed else logging.WARNING
        log.log(
            level,
            "ledger.writer_failed ledger=%d lac=%d pushed=%d error=%r",
            self.ledger_id,
            self.adds.lac,
            self.adds.last_add_pushed,
            error,
        )

    def _send_again(self) -> None:
        self._perform(self.adds.send_again())
        self._room.look()

    async def _change_ensemble(self, failed: Mapping[int, BookieId]) -> None:
        """Replace failed members by compare-and-set; confirmations are held meanwhile.

        Rule CHANGE-CAS-FIRST: the pipeline learns of the new ensemble, and so sends to it, only
        after metadata names it (issue 1591).
        """
        first_entry = EntryId(self.adds.lac + 1)

        def transform(metadata: LedgerMetadata) -> LedgerMetadata | None:
            if self.adds.error is not None:
                raise self.adds.error
            return change_ensemble(metadata, failed, first_entry, choose)

        def choose(ensemble: Sequence[BookieId], indices: Sequence[int]) -> Mapping[int, BookieId]:
            limit = self._context.config.ensemble_changes_max
            if limit and self._change_count >= limit:
                raise WriteFailed(f"the ensemble has changed {limit} times already")
            write_quorum = self.current.metadata.write_quorum
            return self._context.choice.replacements(
                ensemble, indices, write_quorum, failed.values()
            )

        nodes = self._context.nodes
        try:
            self.current = await nodes.update(self.ledger_id, self.current, transform)
        except LedgerError as error:
            self._perform(self.adds.fail(error))
            return
        except MetadataError as error:
            self._perform(self.adds.fail(WriteFailed(f"no ensemble change: {error!r}")))
            return
        ensemble = self.current.metadata.last_fragment.ensemble
        self._change_count += ensemble != self.adds.ensemble
        self._context.stats.ensemble_changes += ensemble != self.adds.ensemble
        log.info(
            "ledger.ensemble_changed ledger=%d first_entry=%d failed=%s ensemble=%s",
            self.ledger_id,
            first_entry,
            ",".join(failed.values()),
            ",".join(ensemble),
        )
        self._seat(ensemble)
        self._perform(self.adds.on_ensemble(ensemble, self._loop.time()))
        self._room.look()

    def note_error(self, bookie: BookieId, error: LedgerError) -> None:
        """A bookie did not store an entry; too many of these make a quarantine."""
        if self._context.health.on_error(bookie, error, self._loop.time()):
            self._context.stats.quarantines += 1
            log.warning("bookie.quarantined bookie=%s error=%r", bookie, error)

    def _on_bookies_changed(self) -> None:
        if self.adds.suspended:
            self._perform(self.adds.replace_suspended())

    def _watch_quorum(self, timeout_s: float) -> None:
        """Look now and again, as long as adds are under way, whether one takes too long."""
        self._quorum_timer = None
        self._perform(self.adds.expire(self._loop.time()))
        if self.adds.is_waiting:
            self._quorum_timer = self._loop.call_later(
                timeout_s / _QUORUM_CHECKS, self._watch_quorum, timeout_s
            )

    def _write_lac(self, lac: EntryId) -> None:
        """Tell the write set of the last confirmed entry that it is (rule EXPLICIT-LAC)."""
        packet = self._codec.seal_lac(lac)
        self._context.stats.explicit_lacs += 1
        request = WriteLacRequest(self.ledger_id, lac, self._master_key, packet)
        for index in self.current.metadata.schedule.write_set(lac):
            self._members[index].bookie.request(request, _ignore_answer, len(packet))

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._context.stats.writers -= 1
            self._context.bookies.remove_listener(self._on_bookies_changed)
            if self._explicit_lac is not None:
                self._explicit_lac.close()


class _Member:
    """One place in the current ensemble: who sits there, and what becomes of its answers."""

    __slots__ = ("_index", "_pipeline", "bookie", "name")

    def __init__(self, pipeline: AddPipeline, index: int, name: BookieId, bookie: Bookie) -> None:
        self._pipeline = pipeline
        self._index = index
        self.name = name
        self.bookie = bookie

    def on_answer(self, request: Request, answer: Response | LedgerError) -> None:
        assert isinstance(request, AddRequest)
        pipeline = self._pipeline
        adds = pipeline.adds
        if isinstance(answer, TooManyRequests):
            now_s = pipeline._loop.time()
            effects = adds.on_busy(request.entry_id, self._index, self.name, answer, now_s)
        elif isinstance(answer, LedgerError):
            pipeline.note_error(self.name, answer)
            effects = adds.on_failed(request.entry_id, self._index, self.name, answer)
        else:
            effects = adds.on_stored(request.entry_id, self._index, self.name)
        pipeline._room.on_answer(request.entry_id)
        if effects:
            pipeline._perform(effects)
        if pipeline._waiters:
            pipeline._wake()


def _ignore_answer(request: Request, answer: Response | LedgerError) -> None:
    """An explicit LAC is a hint: nobody waits for it."""


def _surface_bug(task: asyncio.Task[None]) -> None:
    """Raise to the loop what a task should not have raised: else the writer just hangs."""
    if not task.cancelled():
        task.result()
