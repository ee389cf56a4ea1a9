"""Recovers ledgers: fences their writers, finds their ends, closes them, or lets others close them.

The order of the steps is PROTOCOL.md's ("Recover"). `RecoveryRun` carries out the effects of
`core/recovery.py`: requests to bookies, replacements, the result. Reads fence and adds are recovery
adds with high priority, so they also reach bookies that are fenced or nearly full.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial

from client import callbacks
from client.errors import LedgerError, MetadataError, RecoveryInconclusive, UnauthorizedAccess
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_link import OnAnswer
from client.ledger.context import LedgerContext
from client.ledger.core.adds import AddEntry, ChangeEnsemble, SendAdd, UnderReplicated
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.ledger.core.recovery import (
    FenceRead,
    Recovered,
    Recovery,
    RecoveryEffect,
    RecoveryEffects,
    RecoveryFailed,
    RecoveryRead,
    close_recovered,
    mark_in_recovery,
)
from client.ledger.joined_changes import FoundEnd, RecoveryStart
from client.ledger.read.range_read import open_entry
from client.ledger.read.reader import LedgerReader
from client.ledger.read.tail import TailView
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
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


log = logging.getLogger(__name__)


class Recoveries:
    """The recoveries of one client."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context
        self._nodes = context.nodes
        self._stats = context.stats

    async def recover(
        self,
        ledger_id: LedgerId,
        start: RecoveryStart | None = None,
        *,
        password: bytes | None = b"",
    ) -> LedgerReader:
        """Fence a ledger's writer, find its end and close it; return a reader of all of it.

        `start`: if it was read. Raises NoSuchLedger, UnauthorizedAccess, RecoveryInconclusive (try
        again later).
        """
        current = start.current if start is not None else await self._nodes.read(ledger_id)
        codec, key = unlock(ledger_id, current.metadata, password)
        while not current.metadata.is_closed:
            current = await self._nodes.update(ledger_id, current, mark_in_recovery)
            if current.metadata.is_closed:
                break
            current = await self._recover_once(ledger_id, current, codec, key)
        return reader_of(ledger_id, current, password, self._context)

    async def starts(self, ledger_ids: Sequence[LedgerId]) -> list[RecoveryStart]:
        """Read what recoveries of ledgers begin from, together. Raises NoSuchLedger."""
        found = await asyncio.gather(*map(self._nodes.read, ledger_ids))
        return [
            self._start(ledger_id, current)
            for ledger_id, current in zip(ledger_ids, found, strict=True)
        ]

    async def find_end(
        self,
        ledger_id: LedgerId,
        start: RecoveryStart | None = None,
        *,
        password: bytes | None = b"",
    ) -> FoundEnd:
        """Do what `recover` does, but leave the closing to somebody else's transaction.

        If that is refused, somebody else has changed the ledger: what was found here may not be its
        end then. Raises what `recover` raises.
        """
        current = start.current if start is not None else await self._nodes.read(ledger_id)
        codec, key = unlock(ledger_id, current.metadata, password)
        current = await self._nodes.update(ledger_id, current, mark_in_recovery)
        if current.metadata.is_closed:
            return FoundEnd(reader_of(ledger_id, current, password, self._context), None)
        snapshot, version = current
        end = await self._run_recovery(ledger_id, snapshot, codec, key)
        _log(ledger_id, snapshot, end)
        closed = close_recovered(snapshot, snapshot, end)
        assert closed is not None
        change = self._nodes.change(ledger_id, closed, version)
        stands = VersionedMetadata(closed, version + 1)
        reader = reader_of(ledger_id, stands, password, self._context)
        return FoundEnd(reader, change)

    async def _recover_once(
        self, ledger_id: LedgerId, current: VersionedMetadata, codec: EntryCodec, key: bytes
    ) -> VersionedMetadata:
        """Run recovery from metadata that is IN_RECOVERY; return what stands afterwards."""
        snapshot = current.metadata
        end = await self._run_recovery(ledger_id, snapshot, codec, key)
        try:
            current = await self._nodes.update(
                ledger_id, current, lambda metadata: close_recovered(metadata, snapshot, end)
            )
        except (LedgerError, MetadataError):
            self._stats.recovery_failures += 1
            raise
        _log(ledger_id, current.metadata, end)
        return current

    async def _run_recovery(
        self, ledger_id: LedgerId, snapshot: LedgerMetadata, codec: EntryCodec, key: bytes
    ) -> Recovered:
        """Find out where a ledger ends that is IN_RECOVERY."""
        log.info("ledger.recovering ledger=%d", ledger_id)
        self._stats.recovered += 1
        began_s = self._stats.now_s()
        try:
            end = await RecoveryRun(snapshot, codec, key, self._context).run()
        except (LedgerError, MetadataError):
            self._stats.recovery_failures += 1
            raise
        self._stats.recovery_seconds.observe(self._stats.now_s() - began_s)
        return end

    def _start(self, ledger_id: LedgerId, current: VersionedMetadata) -> RecoveryStart:
        wanted = mark_in_recovery(current.metadata)
        if wanted is None:
            return RecoveryStart(ledger_id, current, None, current)
        mark = self._nodes.change(ledger_id, wanted, current.version)
        return RecoveryStart(
            ledger_id, current, mark, VersionedMetadata(wanted, current.version + 1)
        )


def _log(ledger_id: LedgerId, metadata: LedgerMetadata, end: Recovered) -> None:
    log.info(
        "ledger.recovered ledger=%d state=%s last_entry=%d found=%d",
        ledger_id,
        metadata.state.name,
        metadata.last_entry,
        end.last_entry,
    )


def reader_of(
    ledger_id: LedgerId,
    current: VersionedMetadata,
    password: bytes | None,
    context: LedgerContext,
) -> LedgerReader:
    """Return a reader of a ledger. Raises UnauthorizedAccess for a wrong password."""
    codec, _ = unlock(ledger_id, current.metadata, password)
    view = TailView(ledger_id, current, codec, context)
    return LedgerReader(ledger_id, view, codec, context)


def unlock(
    ledger_id: LedgerId, metadata: LedgerMetadata, password: bytes | None
) -> tuple[EntryCodec, bytes]:
    """Return codec and master key of a ledger. Raises UnauthorizedAccess for a wrong password.

    Very old ledgers store neither password nor digest type: CRC32 was the usual one then.
    """
    known = metadata.password
    if password is None:
        password = known or b""
    elif known is not None and known != password:
        raise UnauthorizedAccess(f"wrong password for ledger {ledger_id}")
    digest_type = metadata.digest_type or DigestType.CRC32
    return EntryCodec(ledger_id, digest_type, password), master_key(password)
