"""The writer of one ledger: what applications use, and how adds travel.

`LedgerWriter` is what a writer offers: adding with a callback, by awaiting, or by sending now and
asking later; back-pressure (`writer_room.py`); and the close (decided by `core/ensemble_change.py`,
written by `ledger_nodes.py`).

`on_done` runs later, on the loop, in entry order, never inside `add`; it may call `add` itself. A
writer whose ledger is fenced fails all pending adds with LedgerFenced, whose outcome is unknown:
some of them may survive recovery; every further `add` raises it. An `on_done` that raises fails the
writer with WriteFailed (`client/callbacks.py`).

`AddPipeline` runs `core/adds.py` and carries its effects out: requests, reports, ensemble changes,
timers; who sits at which place of the ensemble and what becomes of each answer. How changes get
into the metadata is `ensemble_changes.py`'s business. `add` is synchronous and on the hot path: no
task, no future, no copy of the payload.

`AddReports` tells owners the outcome of their adds: in entry order, one at a time, each exactly
once. An `on_done` may add, close or abandon; what that makes due is told after what was due before.
A callback that raises is its owner's bug: everybody else is told as well, and the writer fails, for
its owner cannot take what becomes of its adds.

Rule EXPLICIT-LAC (`ExplicitLac`): bookies are told the last add confirmed when no further add
carries it. Every entry carries the LAC of its sending, so the confirmation of the last one before a
pause is known to nobody but the writer. With an interval set, the writer tells the write set of
that entry, once per interval at most and only if LAC has moved since. It is a service to readers
that follow an open ledger: nothing waits for it, and a bookie that does not take it changes
nothing.

Source: Apache BookKeeper `ExplicitLacUpdateFlow`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple

from client import callbacks
from client.errors import (
    IncorrectParameter,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    Outcome,
    TooManyRequests,
    WriteFailed,
)
from client.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from client.ledger.bookies.bookies import Bookie
from client.ledger.config import LedgerClientConfig
from client.ledger.context import LedgerContext
from client.ledger.core.adds import (
    BUSY_PAUSE_S,
    AddEffects,
    AddEntry,
    AddRules,
    Adds,
    ChangeEnsemble,
    Confirmed,
    Failed,
    PauseBusy,
    SendAdd,
    SlowLimits,
    UnderReplicated,
)
from client.ledger.core.ensemble_change import close_as_writer
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata, newest
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.metrics import LedgerStats
from client.ledger.read.reader import LedgerReader
from client.ledger.write.ensemble_changes import EnsembleChanges
from client.ledger.write.writer_room import WriterMemory, WriterRoom
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import (
    MASTER_KEY_BYTES,
    AddRequest,
    AddResponse,
    Buffer,
    Request,
    Response,
    WriteLacRequest,
)
from client.wire.bookkeeper.v2 import make_plain_add

log = logging.getLogger(__name__)

_FRAME_OVERHEAD: Final = 8 + MASTER_KEY_BYTES
"""Bytes of an add's frame besides the entry: length, header word, master key."""

_LOOKS: Final = 4
"""How often one looks at what may last, during the shortest time that is too long."""

OnDone = Callable[[EntryId, LedgerError | None], None]
"""Called with the entry id and None once confirmed, otherwise with what went wrong."""


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
    def current(self) -> VersionedMetadata:
        """The same, with the version of its node."""
        return self._pipeline.changes.current

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
        view = _OwnView(self, self._context.nodes)
        return LedgerReader(self.ledger_id, view, self._codec, self._context)

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
    """The writer's own view of its ledger.

    How far it may be read is what the writer has confirmed. Where its copies are is said by the
    newer of two metadata (VIEW-NEWEST): what the writer last wrote or read, and what was found
    when a read failed everywhere. Auto recovery moves the copies of closed ledgers, and of all
    fragments but the last of an open one, and does not tell the writer.
    """

    __slots__ = ("_found", "_nodes", "_writer")

    def __init__(self, writer: LedgerWriter, nodes: LedgerNodes) -> None:
        self._writer = writer
        self._nodes = nodes
        self._found = writer.current

    @property
    def metadata(self) -> LedgerMetadata:
        return newest(self._writer.current, self._found).metadata

    @property
    def last_entry(self) -> EntryId:
        return self._writer.progress.last_add_confirmed

    @property
    def length(self) -> int:
        return self._writer.progress.confirmed_length

    async def refresh(self) -> None:
        """Nothing to learn: what was confirmed, this writer confirmed."""

    async def reload(self) -> bool:
        before = self.metadata.fragments
        self._found = newest(self._found, await self._nodes.read(self._writer.ledger_id))
        return self.metadata.fragments != before

    async def wait(self, above: EntryId) -> None:
        """Wait for this writer to confirm an entry above, or to end."""
        writer = self._writer
        while writer.progress.last_add_confirmed <= above and not writer.is_ended:
            await writer.room.changed()


def _leave_to_flush(entry_id: EntryId, error: LedgerError | None) -> None:
    """What becomes of a submitted entry is asked by `flush`."""


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


class AddReports:
    """The callbacks of one writer's adds."""

    __slots__ = ("_callbacks", "_due", "_is_telling", "_on_raised", "_stats")

    def __init__(self, stats: LedgerStats, on_raised: Callable[[LedgerError], None]) -> None:
        """`on_raised`: ends the writer, with this error."""
        self._stats = stats
        self._on_raised = on_raised
        self._callbacks: dict[int, OnDone] = {}
        """By entry id; one per add that was not told yet."""
        self._due: list[tuple[Iterator[int], LedgerError | None]] = []
        """Runs of entries to tell, few; an iterator has moved on before each call."""
        self._is_telling = False

    def expect(self, entry_id: EntryId, on_done: OnDone) -> None:
        """Remember whom to tell about an add."""
        self._callbacks[entry_id] = on_done
        self._stats.sent_entries += 1

    def tell(self, outcome: Confirmed | Failed) -> None:
        """Tell a run of adds, after all runs before it."""
        if isinstance(outcome, Confirmed):
            ids: Sequence[int] = range(outcome.first, outcome.last + 1)
            self._due.append((iter(ids), None))
            self._stats.confirmed_entries += len(ids)
        else:
            # Chosen ids may leave gaps of any size, so look at what was added.
            ids = sorted(entry_id for entry_id in self._callbacks if entry_id >= outcome.first)
            self._due.append((iter(ids), unknown_once_sent(outcome.error)))
        self._stats.settled_entries += len(ids)
        if not self._is_telling:
            self._tell_due()

    def _tell_due(self) -> None:
        self._is_telling = True
        failure: LedgerError | None = None
        while self._due:
            ids, error = self._due[0]
            for entry_id in ids:
                try:
                    self._callbacks.pop(entry_id)(EntryId(entry_id), error)
                except callbacks.RAISED as raised:
                    callbacks.failed(callbacks.Kind.ADD_DONE, raised)
                    failure = failure or _untaken(entry_id, raised)
            del self._due[0]
        self._is_telling = False
        if failure is not None:
            self._on_raised(failure)


def _untaken(entry_id: int, raised: BaseException) -> LedgerError:
    failure = WriteFailed(f"the callback of entry {entry_id} failed: {raised!r}")
    failure.__cause__ = raised
    return failure


def unknown_once_sent(error: LedgerError) -> LedgerError:
    """Return what adds that were sent are told when `error` ends the writer.

    Whatever the reason, some bookies may have stored them, and recovery may keep them: their
    outcome is unknown, also where that of the failed step (no replacement found) is certain.
    """
    if error.outcome is Outcome.UNKNOWN:
        return error
    unknown = WriteFailed(f"the writer ended: {error!r}")
    unknown.__cause__ = error
    return unknown


class ExplicitLac:
    """The timer of one writer. It runs only after something was confirmed."""

    __slots__ = ("_interval_s", "_lac", "_loop", "_send", "_sent", "_timer")

    def __init__(
        self, interval_s: float, lac: Callable[[], EntryId], send: Callable[[EntryId], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval_s = interval_s
        self._lac = lac
        self._send = send
        self._sent: EntryId = NO_ENTRY
        self._timer: asyncio.TimerHandle | None = None

    def on_confirmed(self) -> None:
        """LAC moved: tell the bookies within an interval."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval_s, self._on_time)

    def close(self) -> None:
        """Tell nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        lac = self._lac()
        if lac > self._sent:
            self._sent = lac
            self._send(lac)


class AddPipeline:
    """The adds of one writer. `adds` is for reading; its inputs come from here only."""

    __slots__ = (
        "_codec",
        "_context",
        "_explicit_lac",
        "_is_listening",
        "_look_s",
        "_loop",
        "_master_key",
        "_members",
        "_memory",
        "_reports",
        "_timer",
        "adds",
        "changes",
        "ledger_id",
        "room",
    )

    def __init__(
        self,
        codec: EntryCodec,
        master_key: bytes,
        current: VersionedMetadata,
        context: LedgerContext,
    ) -> None:
        self.ledger_id: LedgerId = codec.ledger_id
        self._codec = codec
        self._master_key = master_key
        self._context = context
        self._loop = asyncio.get_running_loop()
        config = context.config
        metadata, rules = current.metadata, context.add_rules
        self._look_s = _look_s(rules)
        """How often to look whether something takes too long; 0: never."""
        self.adds = Adds(metadata.last_fragment.ensemble, metadata.schedule, rules=rules)
        self.room = WriterRoom(self.adds, config, context.active_writers, self.fail)
        self.changes = EnsembleChanges(
            self.ledger_id, current, self.adds, context, self._on_changed, self.fail
        )
        self._memory = WriterMemory(context.memory)
        self._members: list[_Member] = []
        self._set_members(metadata.last_fragment.ensemble)
        self._reports = AddReports(context.stats, self.fail)
        self._timer: asyncio.TimerHandle | None = None
        self._explicit_lac: ExplicitLac | None = None
        if config.explicit_lac_interval_ms:
            interval_s = config.explicit_lac_interval_ms / 1000
            self._explicit_lac = ExplicitLac(interval_s, lambda: self.adds.lac, self._write_lac)
        context.stats.writers += 1
        context.stats.unanswered[self] = lambda: self.adds.pending_bytes
        context.bookies.add_listener(self._on_bookies_changed)
        self._is_listening = True

    def add(
        self, payload: Sequence[Buffer], size: int, on_done: OnDone, entry_id: EntryId | None
    ) -> EntryId:
        """Send an entry of `size` bytes and return its id. Raises as `Adds.add`."""
        if entry_id is None:
            entry_id = EntryId(self.adds.last_add_pushed + 1)
        now_s = self._loop.time()
        effects = self.adds.add(payload, size, now_s, entry_id=entry_id)
        window = self.room.window
        if self._context.active_writers.current is not window:
            window.on_others(self.adds.length, now_s)
        if window.wants_time:
            window.begin(self.adds.length, now_s)
        self._reports.expect(entry_id, on_done)
        try:
            self._perform(effects)
        except callbacks.RAISED as error:  # it was taken: what becomes of it is told by `on_done`
            self._loop.call_soon(self._on_bug, error)
        if self._timer is None and self._look_s:
            self._watch()
        return entry_id

    def fail(self, error: LedgerError) -> None:
        """End the pipeline; pending adds fail."""
        self._perform(self.adds.fail(error))

    def abandon(self, error: LedgerError) -> None:
        """Like `fail`, giving up a running ensemble change; nobody is told before we return."""
        self._stop_listening()
        self.changes.cancel()
        effects = self.adds.fail(error)
        self._loop.call_soon(self._feed, lambda: effects)

    def _sealed(self, entry: AddEntry) -> AddRequest:
        """Make the request of an entry that is sent for the first time."""
        entry_id = entry.entry_id
        envelope = self._codec.seal(entry_id, entry.lac, entry.length, entry.payload)
        request = make_plain_add(self.ledger_id, entry_id, self._master_key, envelope)
        entry.on_sealed(request)
        return request

    def _set_members(self, ensemble: Sequence[BookieId]) -> None:
        """Give every place of the ensemble its member; unchanged places keep theirs."""
        seated = self._members
        self._members = [
            seated[index]
            if seated and seated[index].name == name
            else _Member(self, index, name, self._context.bookies.bookie(name))
            for index, name in enumerate(ensemble)
        ]

    def _feed(self, decide: Callable[[], AddEffects]) -> None:
        """Let a timer or a listener cause something: nobody above could take what is raised."""
        try:
            self._perform(decide())
        except callbacks.RAISED as error:
            self._on_bug(error)

    def _on_bug(self, error: BaseException) -> None:
        """Something raised that must not: this writer fails, what others do goes on."""
        callbacks.failed(callbacks.Kind.ADD_ANSWER, error)
        failure = WriteFailed(f"the writer cannot go on: {error!r}")
        failure.__cause__ = error
        self.fail(failure)

    def _perform(self, effects: AddEffects) -> None:
        for effect in effects:
            if type(effect) is SendAdd:  # a match on classes costs more, and this is for every add
                entry, indices = effect
                request = entry.request or self._sealed(entry)
                size = entry.size
                self._memory.on_sent(entry, len(indices))
                members = self._members
                for index in indices:
                    member = members[index]
                    member.bookie.request(request, member.on_answer, size)
                continue
            if type(effect) is Confirmed:
                self._on_confirmed(effect)
                continue
            match effect:
                case PauseBusy():
                    self._context.stats.busy_pauses += 1
                    self._loop.call_later(BUSY_PAUSE_S, self._send_again)
                case ChangeEnsemble():
                    self.changes.begin(effect).add_done_callback(self._on_change_done)
                case Failed():
                    self._on_failed(effect.error)
                    self._memory.look()
                    self.room.wake()
                    self._reports.tell(effect)
                case UnderReplicated(bookies):
                    self._context.stats.marks += 1
                    self._context.marks.want(self.ledger_id, bookies)

    def _on_confirmed(self, effect: Confirmed) -> None:
        room = self.room
        self._memory.on_confirmed(effect.first, effect.last)
        room.window.on_confirmed(self.adds.confirmed_length, self._loop.time())
        if self._explicit_lac is not None:
            self._explicit_lac.on_confirmed()
        if room.waiters:
            room.wake()
        self._reports.tell(effect)

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
        self._feed(self.adds.send_again)
        self._memory.look()

    def _on_changed(self, ensemble: Sequence[BookieId]) -> None:
        self._set_members(ensemble)
        self._perform(self.adds.on_ensemble(ensemble, self._loop.time()))
        self._memory.look()

    def _on_change_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_bug(error)

    def note_error(self, bookie: BookieId, error: LedgerError) -> None:
        """A bookie did not store an entry; too many of these make a quarantine."""
        if self._context.health.on_error(bookie, error, self._loop.time()):
            self._context.stats.quarantines += 1
            log.warning("bookie.quarantined bookie=%s error=%r", bookie, error)

    def _on_bookies_changed(self) -> None:
        if self.adds.members.suspended:
            self._feed(self.adds.replace_suspended)

    def _watch(self) -> None:
        self._timer = self._loop.call_later(self._look_s, self._look)

    def _look(self) -> None:
        """Look now and again, as long as adds are under way, whether something takes too long."""
        self._timer = None
        self._feed(lambda: self.adds.look(self._loop.time(), self._may_replace))
        if self.adds.error is None and (self.adds.is_waiting or self.adds.pending_bytes):
            self._watch()

    def _may_replace(self, bookie: BookieId) -> bool:
        """Whether a member that has not failed may go for being slow (rule CHANGE-SLOW)."""
        health, now_s = self._context.health, self._loop.time()
        if self.changes.are_used_up or not health.may_lose_places(bookie, now_s):
            return False
        log.warning("bookie.slow bookie=%s ledger=%d", bookie, self.ledger_id)
        return True

    def _write_lac(self, lac: EntryId) -> None:
        """Tell the write set of the last confirmed entry that it is (rule EXPLICIT-LAC)."""
        packet = self._codec.seal_lac(lac)
        self._context.stats.explicit_lacs += 1
        request = WriteLacRequest(self.ledger_id, lac, self._master_key, packet)
        for index in self.changes.current.metadata.schedule.write_set(lac):
            self._members[index].bookie.request(request, _ignore_answer, len(packet))

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._context.stats.writers -= 1
            del self._context.stats.unanswered[self]
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
        assert type(request) is AddRequest
        pipeline, entry_id = self._pipeline, request.entry_id
        adds = pipeline.adds
        try:
            if type(answer) is AddResponse:
                effects = adds.on_stored(entry_id, self._index, self.name)
            elif isinstance(answer, TooManyRequests):
                now_s = pipeline._loop.time()
                effects = adds.on_busy(entry_id, self._index, self.name, answer, now_s)
            else:
                assert isinstance(answer, LedgerError), "an add is answered, or it failed"
                pipeline.note_error(self.name, answer)
                effects = adds.on_failed(entry_id, self._index, self.name, answer)
            pipeline._memory.on_answer(entry_id)
            if effects:
                pipeline._perform(effects)
        except callbacks.RAISED as error:
            pipeline._on_bug(error)
        if pipeline.room.waiters:
            pipeline.room.wake()


def _ignore_answer(request: Request, answer: Response | LedgerError) -> None:
    """An explicit LAC is a hint: nobody waits for it."""


def add_rules(config: LedgerClientConfig) -> AddRules:
    """Return the rules that writers with these settings follow."""
    return AddRules(
        delay_change=config.delay_ensemble_change,
        quorum_timeout_s=config.add_quorum_timeout_ms / 1000 or None,
        busy_timeout_s=config.request_timeout_ms / 1000,
        slow=SlowLimits(
            lag_s=config.slow_bookie_lag_ms / 1000,
            patience_s=config.slow_bookie_replace_ms / 1000,
        ),
    )


def _look_s(rules: AddRules) -> float:
    waits_s = [rules.quorum_timeout_s or 0.0, rules.slow.lag_s if rules.replaces_slow else 0.0]
    return min((wait_s for wait_s in waits_s if wait_s), default=0.0) / _LOOKS
