"""Carries the effects of one ledger recovery out: requests to bookies, replacements, the result.

Covers running `core/recovery.py`. Reads fence and adds are recovery adds with high priority, so
they also reach bookies that are fenced or nearly full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from client import callbacks
from client.errors import LedgerError, RecoveryInconclusive
from client.ids import BookieId, EntryId
from client.ledger.bookies.bookie_link import OnAnswer
from client.ledger.context import LedgerContext
from client.ledger.core.adds import ChangeEnsemble, SendAdd, UnderReplicated
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.core.pending_add import AddEntry
from client.ledger.core.recovery import (
    FenceRead,
    Recovered,
    Recovery,
    RecoveryEffect,
    RecoveryEffects,
    RecoveryFailed,
    RecoveryRead,
)
from client.ledger.read.range_read import open_entry
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    Buffer,
    ReadRequest,
    Request,
    Response,
)


class RecoveryRun:
    """One attempt to find the end of a ledger."""

    def __init__(
        self,
        snapshot: LedgerMetadata,
        codec: EntryCodec,
        master_key: bytes,
        context: LedgerContext,
    ) -> None:
        """`snapshot`: metadata as read back IN_RECOVERY."""
        self._codec = codec
        self._master_key = master_key
        self._context = context
        self._bookies = context.bookies
        self._write_quorum = snapshot.write_quorum
        window = context.config.recovery_window_entries
        self._recovery = Recovery(snapshot, window=window)
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Recovered] = self._loop.create_future()
        self._queue: deque[RecoveryEffect] = deque()
        self._is_performing = False

    async def run(self) -> Recovered:
        """Return where the ledger ends. Raises LedgerError: it stays IN_RECOVERY."""
        self._perform(self._recovery.start())
        return await self._end

    def _seal(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer]
    ) -> AddRequest:
        head, *rest = self._codec.seal(entry_id, lac, length, payload)
        return AddRequest(
            self._codec.ledger_id,
            entry_id,
            self._master_key,
            head,
            recovery=True,
            high_priority=True,
            entry_rest=tuple(rest),
        )

    def _sealed(self, entry: AddEntry) -> AddRequest:
        """Make the request of an entry that is sent for the first time."""
        request = self._seal(entry.entry_id, entry.lac, entry.length, entry.payload)
        entry.on_sealed(request)
        return request

    def _perform(self, effects: RecoveryEffects) -> None:
        """Carry effects out in order; an effect's own effects come after those before it."""
        self._queue.extend(effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._queue:
                self._perform_one(self._queue.popleft())
        finally:
            self._is_performing = False

    def _perform_one(self, effect: RecoveryEffect) -> None:
        match effect:
            case FenceRead(member, bookie):
                self._read(bookie, LAST_ENTRY, partial(self._on_fence_answer, member))
            case RecoveryRead(entry_id, _, bookie):
                self._read(bookie, entry_id, self._on_read_answer)
            case SendAdd(entry, indices):
                request = entry.request or self._sealed(entry)
                for index in indices:
                    name = self._recovery.ensemble[index]
                    on_answer = partial(self._on_add_answer, index, name)
                    self._bookies.bookie(name).request(request, on_answer, entry.size)
            case ChangeEnsemble(failed):
                ensemble = list(self._recovery.ensemble)
                chosen = self._context.choice.replacements(
                    ensemble, sorted(failed), self._write_quorum, failed.values()
                )
                for index, bookie in chosen.items():
                    ensemble[index] = bookie
                self._perform(self._recovery.on_ensemble(ensemble, self._loop.time()))
            case Recovered():
                if not self._end.done():
                    self._end.set_result(effect)
            case UnderReplicated(bookies):
                # Perhaps after the end: as late as the last bookie answers.
                self._context.stats.marks += 1
                self._context.marks.want(self._codec.ledger_id, bookies)
            case RecoveryFailed(error):
                if not self._end.done():
                    self._end.set_exception(error)

    def _read(self, bookie: BookieId, entry_id: EntryId, on_answer: OnAnswer) -> None:
        request = ReadRequest(
            self._codec.ledger_id,
            entry_id,
            fence=True,
            master_key=self._master_key,
            high_priority=True,
        )
        self._bookies.bookie(bookie).request(request, on_answer)

    def _on_fence_answer(
        self, member: int, _request: Request, answer: Response | LedgerError
    ) -> None:
        try:
            outcome = open_entry(self._codec, None, answer)
            self._perform(self._recovery.on_fence_answer(member, outcome, self._loop.time()))
        except callbacks.RAISED as error:
            self._on_bug(error)

    def _on_read_answer(self, request: Request, answer: Response | LedgerError) -> None:
        assert isinstance(request, ReadRequest)
        if self._end.done():
            return
        try:
            entry_id = request.entry_id
            outcome = open_entry(self._codec, entry_id, answer)
            self._perform(self._recovery.on_read_answer(entry_id, outcome, self._loop.time()))
        except callbacks.RAISED as error:
            self._on_bug(error)

    def _on_add_answer(
        self, index: int, bookie: BookieId, request: Request, answer: Response | LedgerError
    ) -> None:
        assert isinstance(request, AddRequest)
        try:
            if isinstance(answer, LedgerError):
                effects = self._recovery.on_failed(request.entry_id, index, bookie, answer)
            else:
                effects = self._recovery.on_stored(request.entry_id, index, bookie)
            self._perform(effects)
        except callbacks.RAISED as error:
            self._on_bug(error)

    def _on_bug(self, error: BaseException) -> None:
        """Carrying the recovery on raised: the ledger stays IN_RECOVERY, for another attempt."""
        self._queue.clear()
        failure = RecoveryInconclusive(f"recovery could not go on: {error!r}")
        callbacks.fail(callbacks.Kind.REQUEST, error, self._end, failure)
