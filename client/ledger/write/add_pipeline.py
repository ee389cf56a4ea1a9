"""Carries the add pipeline's effects out: requests, reports, ensemble changes, timers.

Covers running `core/adds.py` for a writer: who sits at which place of the ensemble and what becomes
of each answer. How changes get into the metadata is `ensemble_changes.py`'s business. `add` is
synchronous and on the hot path: no task, no future, no copy of the payload.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from client import callbacks
from client.errors import (
    LedgerClosed,
    LedgerError,
    TooManyRequests,
    WriteFailed,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookies import Bookie
from client.ledger.config import LedgerClientConfig
from client.ledger.context import LedgerContext
from client.ledger.core.adds import (
    AddEffects,
    AddRules,
    Adds,
    ChangeEnsemble,
    Confirmed,
    Failed,
    PauseBusy,
    SendAdd,
    UnderReplicated,
)
from client.ledger.core.ledger_metadata import VersionedMetadata
from client.ledger.core.pending_add import AddEntry
from client.ledger.core.shed_adds import BUSY_PAUSE_S
from client.ledger.core.slow_members import SlowLimits
from client.ledger.write.add_reports import AddReports, OnDone
from client.ledger.write.ensemble_changes import EnsembleChanges
from client.ledger.write.explicit_lac import ExplicitLac
from client.ledger.write.writer_memory import WriterMemory
from client.ledger.write.writer_room import WriterRoom
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    Buffer,
    Request,
    Response,
    WriteLacRequest,
)
from client.wire.bookkeeper.v2 import make_plain_add

log = logging.getLogger(__name__)

_LOOKS: Final = 4
"""How often one looks at what may last, during the shortest time that is too long."""


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
