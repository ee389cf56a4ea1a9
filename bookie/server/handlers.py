"""What each BookKeeper operation means: request in, exactly one reply out, perhaps later.

Covers the order of checks and which status answers what; whether and when something is durable is
the storage's business. Replies are made by callbacks, no task per request. See the reference
tables in README.md.

    ADD          checks, log, answer after the sync
    READ         with FENCING first fences, durably, whatever the read then finds
    READ_LAC     explicit LAC packet and last entry, each if there is one
    batch read   consecutive entries until one is missing or a limit is reached
    long poll    waits for the last add confirmed to pass, then reads

Deviations from Apache BookKeeper, all on the safe side: a fencing read waits for the fence's
record also when the entry or the ledger is absent; READ_LAC with an explicit LAC and no entry
answers OK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from bookie.metrics import BookieMetrics
from bookie.server.long_poll import LongPoll, LongPolls
from bookie.storage.core.ledger_guard import Ledger
from bookie.storage.disk import Usage
from bookie.storage.ledger_directories import LedgerDirectories
from bookie.storage.reads import Reads
from client.ids import NO_ENTRY, Clock, EntryId, LedgerId
from client.node.turns import Turns
from client.wire.bookkeeper import v3
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    BookieInfoResponse,
    Buffer,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    Status,
    UnknownRequest,
    WriteLacRequest,
    WriteLacResponse,
)

Reply = Callable[[Response], None]

_AUTH_DISABLED: Final = "AuthDisabledPlugin"
_BATCH_HEADER_BYTES: Final = 24 + 8 + 4
_LENGTH_BYTES: Final = 4

_LONG_POLL_MS_MAX: Final = 60_000


class BatchLimits(NamedTuple):
    """What batch reads are answered at most; who asks for more gets the beginning of it."""

    bytes_max: int
    """Of one answer."""
    entries_max: int
    """In one answer, so that a batch of the smallest ones keeps nobody waiting."""
    bytes_of_all_max: int
    """Of the entries that all batch reads have while they wait for more."""


class Handlers:
    """All operations over the ledger directories of a bookie."""

    def __init__(
        self,
        ledger_directories: LedgerDirectories,
        *,
        batch_limits: BatchLimits,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        metrics: BookieMetrics,
    ) -> None:
        self._directories = ledger_directories
        self.add = ledger_directories.add
        """Serve an add: its status comes by the callback, for whoever makes the answer himself
        (`add_answer` makes any of them)."""
        self.add_run = ledger_directories.add_run
        """Serve adds that came together, up to one that `add` must judge."""
        self._batch_limits = batch_limits
        self._gathered = _Gathered(batch_limits.bytes_of_all_max)
        self.turns = Turns()
        """Where work waits that is more than one turn of the loop is for."""
        metrics.gauges["batch_read_bytes"] = lambda: self._gathered.bytes
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._looking: set[asyncio.Task[Usage]] = set()
        self._table: dict[type, Callable[[Any, Reply], None]] = {
            AddRequest: self._add,
            ReadRequest: self._read,
            BatchReadRequest: self._batch_read,
            ReadLacRequest: self._read_lac,
            WriteLacRequest: self._write_lac,
            ForceLedgerRequest: self._force,
            BookieInfoRequest: self._bookie_info,
            ListEntriesRequest: self._list_entries,
            AuthRequest: self._auth,
            StartTlsRequest: self._start_tls,
            UnknownRequest: self._unknown,
        }

    def handle(self, request: Request, reply: Reply) -> None:
        """Serve one request; `reply` is called once, now or later."""
        self._table[type(request)](request, reply)

    def poll(self, request: ReadRequest, reply: Reply, polls: LongPolls) -> None:
        """Serve a long poll; no reply comes if it waits when `polls` are closed."""
        if request.piggyback and request.entry_id != LAST_ENTRY:
            reply(_refused(request, Status.BAD_REQUEST))
        else:
            on_ledger = partial(self._poll, request, reply, polls)
            self._reads_of(request.ledger_id).with_ledger(request.ledger_id, on_ledger)

    def add_answer(self, request: AddRequest, status: Status) -> AddResponse:
        """Return the answer to an add; a refusal is counted."""
        self._metrics.refused_adds += status is not Status.OK
        return AddResponse(status, request.ledger_id, request.entry_id)

    def _reads_of(self, ledger_id: LedgerId) -> Reads:
        return self._directories.storage_of(ledger_id).reads

    def _add(self, request: AddRequest, reply: Reply) -> None:
        self.add(request, lambda status: reply(self.add_answer(request, status)))

    def _read(self, request: ReadRequest, reply: Reply) -> None:
        if request.fence:
            self._fence(request, partial(self._read_fenced, request, reply))
        elif request.previous_lac is not None:
            self.poll(request, reply, LongPolls())
        elif request.piggyback:
            reply(_refused(request, Status.BAD_REQUEST))
        else:
            self._read_with_lac(request, reply, None)

    def _fence(
        self, request: ReadRequest | BatchReadRequest, on_done: Callable[[Status], None]
    ) -> None:
        self._metrics.fences += 1
        if request.master_key is None:
            on_done(Status.UNAUTHORIZED)
        else:
            storage = self._directories.storage_of(request.ledger_id)
            storage.fence(request.ledger_id, request.master_key, on_done)

    def _read_fenced(self, request: ReadRequest, reply: Reply, status: Status) -> None:
        """The fence is durable, or was refused."""
        if status is not Status.OK:
            reply(_refused(request, status))
            return

        def on_read(status: Status, entry: Buffer | None) -> None:
            reply(ReadResponse(status, request.ledger_id, request.entry_id, entry))

        self._reads_of(request.ledger_id).read(
            request.ledger_id, request.entry_id, on_read, is_urgent=True
        )

    def _read_with_lac(self, request: ReadRequest, reply: Reply, lac_update_ms: int | None) -> None:
        """Plain read; an answer with an entry also tells the last add confirmed known here."""

        def on_read(status: Status, entry: Buffer | None) -> None:
            if status is not Status.OK:
                reply(_refused(request, status))
                return
            self._reads_of(request.ledger_id).with_ledger(
                request.ledger_id, partial(on_ledger, entry)
            )

        def on_ledger(entry: Buffer | None, _status: Status, ledger: Ledger | None) -> None:
            # An unreadable end of the ledger does not spoil an entry that was read.
            lac = ledger.lac if ledger is not None else None
            reply(
                ReadResponse(
                    Status.OK, request.ledger_id, request.entry_id, entry, lac, lac_update_ms
                )
            )

        self._reads_of(request.ledger_id).read(request.ledger_id, request.entry_id, on_read)

    def _poll(
        self,
        request: ReadRequest,
        reply: Reply,
        polls: LongPolls,
        status: Status,
        ledger: Ledger | None,
    ) -> None:
        if ledger is None or polls.is_closed:
            reply(_refused(request, status))
            return
        assert request.previous_lac is not None, "checked by the caller"
        on_done = partial(self._polled, request, reply, ledger)
        if request.timeout_ms is None or ledger.lac > request.previous_lac or ledger.fenced:
            on_done(False)
            return
        timeout_ms = min(max(request.timeout_ms, 0), _LONG_POLL_MS_MAX)
        LongPoll(ledger, request.previous_lac, timeout_ms / 1000, on_done, self._loop, polls)

    def _polled(self, request: ReadRequest, reply: Reply, ledger: Ledger, woken: bool) -> None:
        """The wait is over; `woken` if a new last add confirmed ended it."""
        assert request.previous_lac is not None, "a long poll has it"
        lac_update_ms = self._clock.now_ms() if woken else None
        if not request.piggyback:
            self._read_with_lac(request, reply, lac_update_ms)
            return
        following = EntryId(request.previous_lac + 1)

        def on_read(status: Status, entry: Buffer | None) -> None:
            entry_id = following if status is Status.OK else NO_ENTRY
            reply(
                ReadResponse(
                    Status.OK, request.ledger_id, entry_id, entry, ledger.lac, lac_update_ms
                )
            )

        if ledger.lac > request.previous_lac:
            self._reads_of(request.ledger_id).read(request.ledger_id, following, on_read)
        else:
            on_read(Status.NO_ENTRY, None)

    def _batch_read(self, request: BatchReadRequest, reply: Reply) -> None:
        if request.fence:
            self._fence(request, partial(self._batch_read_fenced, request, reply))
        else:
            self._batch_read_fenced(request, reply, Status.OK)

    def _batch_read_fenced(self, request: BatchReadRequest, reply: Reply, status: Status) -> None:
        if status is Status.OK:
            reads = self._reads_of(request.ledger_id)
            _BatchRead(request, reply, reads, self._batch_limits, self._gathered, self.turns).next()
        else:
            reply(_batch(request, status, []))

    def _read_lac(self, request: ReadLacRequest, reply: Reply) -> None:
        def on_ledger(status: Status, ledger: Ledger | None) -> None:
            if ledger is None:
                reply(ReadLacResponse(status, request.ledger_id))
            else:
                self._reads_of(request.ledger_id).read(
                    request.ledger_id, LAST_ENTRY, partial(on_read, ledger)
                )

        def on_read(ledger: Ledger, status: Status, entry: Buffer | None) -> None:
            packet = ledger.explicit_lac
            if status is Status.NO_ENTRY and packet is not None:
                status = Status.OK
            kept = packet if status is Status.OK else None
            reply(ReadLacResponse(status, request.ledger_id, kept, entry))

        self._reads_of(request.ledger_id).with_ledger(request.ledger_id, on_ledger)

    def _write_lac(self, request: WriteLacRequest, reply: Reply) -> None:
        self._directories.storage_of(request.ledger_id).write_lac(
            request, lambda status: reply(WriteLacResponse(status, request.ledger_id))
        )

    def _force(self, request: ForceLedgerRequest, reply: Reply) -> None:
        self._directories.storage_of(request.ledger_id).force(
            request.ledger_id,
            lambda status: reply(ForceLedgerResponse(status, request.ledger_id)),
        )

    def _bookie_info(self, request: BookieInfoRequest, reply: Reply) -> None:
        def on_done(done: asyncio.Task[Usage]) -> None:
            self._looking.discard(done)
            if done.cancelled() or done.exception() is not None:
                reply(BookieInfoResponse(Status.IO_ERROR))
                return
            total, free = done.result()
            reply(
                BookieInfoResponse(
                    Status.OK,
                    total if request.total_capacity else None,
                    free if request.free_space else None,
                )
            )

        looking = self._loop.create_task(self._directories.usage())
        self._looking.add(looking)
        looking.add_done_callback(on_done)

    def _list_entries(self, request: ListEntriesRequest, reply: Reply) -> None:
        def on_read(status: Status, availability: bytes | None) -> None:
            reply(ListEntriesResponse(status, request.ledger_id, availability))

        self._reads_of(request.ledger_id).availability(request.ledger_id, on_read)

    def _auth(self, _request: AuthRequest, reply: Reply) -> None:
        reply(AuthResponse(_AUTH_DISABLED, b""))

    def _start_tls(self, _request: StartTlsRequest, reply: Reply) -> None:
        reply(ErrorResponse(v3.START_TLS, Status.BAD_REQUEST))

    def _unknown(self, request: UnknownRequest, reply: Reply) -> None:
        reply(ErrorResponse(*request))


def refusal(request: Request, status: Status) -> Response:
    """Return the answer to a request that nobody looks at any further."""
    match request:
        case AddRequest():
            return AddResponse(status, request.ledger_id, request.entry_id)
        case ReadRequest():
            return _refused(request, status)
        case BatchReadRequest():
            return _batch(request, status, [])
        case ReadLacRequest():
            return ReadLacResponse(status, request.ledger_id)
        case WriteLacRequest():
            return WriteLacResponse(status, request.ledger_id)
        case ForceLedgerRequest():
            return ForceLedgerResponse(status, request.ledger_id)
        case ListEntriesRequest():
            return ListEntriesResponse(status, request.ledger_id)
        case BookieInfoRequest():
            return BookieInfoResponse(status)
        case UnknownRequest():
            return ErrorResponse(*request)
    raise AssertionError("what is answered at once is never refused")


def _refused(request: ReadRequest, status: Status) -> ReadResponse:
    return ReadResponse(status, request.ledger_id, request.entry_id)


def _batch(request: BatchReadRequest, status: Status, entries: list[Buffer]) -> BatchReadResponse:
    return BatchReadResponse(
        status, request.ledger_id, request.first_entry_id, request.request_id, tuple(entries)
    )


class _Gathered:
    """Bytes of the entries that all batch reads under way have so far."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max


class _BatchRead:
    """One batch read on its way, a run of entries after the other, each in a turn of the loop: a
    cold one is a reader job."""

    def __init__(
        self,
        request: BatchReadRequest,
        reply: Reply,
        reads: Reads,
        limits: BatchLimits,
        gathered: _Gathered,
        turns: Turns,
    ) -> None:
        self._request = request
        self._reply = reply
        self._reads = reads
        self._room = min(request.size_max, limits.bytes_max) - _BATCH_HEADER_BYTES
        self._count_max = limits.entries_max
        if request.count_max > 0:
            self._count_max = min(request.count_max, limits.entries_max)
        self._entries: list[Buffer] = []
        self._gathered = gathered
        self._turns = turns

    def next(self) -> None:
        """Read the next run."""
        count = len(self._entries)
        first = EntryId(self._request.first_entry_id + count)
        self._reads.read_run(
            self._request.ledger_id,
            first,
            self._count_max - count,
            self._room,
            self._on_run,
            is_urgent=self._request.fence,
        )

    def _on_run(self, status: Status, entries: Sequence[Buffer]) -> None:
        if not entries:
            # A later entry that is absent or unreadable only ends the batch.
            self._finish(Status.OK if self._entries else status)
            return
        gathered = self._gathered
        for entry in entries:
            self._room -= len(entry) + _LENGTH_BYTES
            if self._entries and self._room < 0:
                break
            self._entries.append(entry)
            gathered.bytes += len(entry)
        is_full = self._room <= 0 or len(self._entries) == self._count_max
        if is_full or gathered.bytes > gathered.bytes_max:
            self._finish(Status.OK)
        else:
            self._turns.on_turn(self.next)

    def _finish(self, status: Status) -> None:
        self._gathered.bytes -= sum(map(len, self._entries))
        self._reply(_batch(self._request, status, self._entries))
