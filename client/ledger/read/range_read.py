"""Reading a run of entries: a window of them at a time, each from the replicas one by one.

Covers carrying out reads; which replica is next and what failures mean is decided by
`core/reads.py`. One timer per run looks after replicas that take long.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from client import callbacks
from client.errors import DigestMismatch, LedgerError, ReadFailed
from client.ids import BookieId, EntryId
from client.ledger.context import LedgerContext
from client.ledger.core.bookie_health import is_bad_read
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.core.reads import EntryRead, Rank, read_order
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import ReadRequest, ReadResponse, Request, Response

log = logging.getLogger(__name__)

_LOOKS: Final = 4
"""How often waiting replicas are looked at per first wait, once something waits that long."""


class RangeRead:
    """Some consecutive entries being read."""

    def __init__(
        self,
        first: EntryId,
        last: EntryId,
        metadata: LedgerMetadata,
        codec: EntryCodec,
        context: LedgerContext,
        window: int = 0,
    ) -> None:
        """`window`: how many of them to ask for at once; 0: as many as is configured."""
        self._window = window or context.config.read_window_entries
        self._first = first
        self._unasked = iter(range(first, last + 1))
        self._metadata = metadata
        self._schedule = metadata.schedule
        self._codec = codec
        self._context = context
        self._speculation = context.config.speculation()
        self._loop = asyncio.get_running_loop()
        self._ranks: dict[BookieId, Rank] = {}
        self._missing = last - first + 1
        self._entries: list[Entry | None] = [None] * self._missing
        self._active: dict[EntryId, EntryRead] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> list[Entry]:
        """Return the entries. Raises the verdict on the first one that nobody could serve."""
        stats = self._context.stats
        began_s = stats.now_s()
        for _ in range(min(self._window, self._missing)):
            self._read_next()
        if self._speculation.wait_s:
            self._timer = self._loop.call_later(self._speculation.wait_s, self._look)
        try:
            await self._done
        finally:
            if self._timer is not None:
                self._timer.cancel()
        stats.read_seconds.observe(stats.now_s() - began_s)
        stats.read_entries += len(self._entries)
        return [entry for entry in self._entries if entry is not None]

    def _read_next(self) -> None:
        """Ask for the next entry, if there is one."""
        following = next(self._unasked, None)
        if following is None:
            return
        entry_id = EntryId(following)
        ensemble = self._metadata.fragment_of(entry_id).ensemble
        order = read_order(ensemble, self._schedule.write_set(entry_id), self._rank)
        read = EntryRead(entry_id, order, self._speculation, self._loop.time())
        self._active[entry_id] = read
        self._ask(read, order[0])

    def _ask(self, read: EntryRead, bookie: BookieId) -> None:
        request = ReadRequest(self._codec.ledger_id, read.entry_id)
        on_answer = partial(self._on_answer, read, bookie)
        self._context.bookies.bookie(bookie).request(request, on_answer)

    def _on_answer(
        self, read: EntryRead, bookie: BookieId, _request: Request, answer: Response | LedgerError
    ) -> None:
        entry_id = read.entry_id
        if self._done.done() or entry_id not in self._active:
            return  # it failed, the caller went away, or another replica was faster
        try:
            outcome = open_entry(self._codec, entry_id, answer)
            if isinstance(outcome, Entry):
                self._on_entry(outcome)
            else:
                self._on_failed(read, bookie, outcome)
        except callbacks.RAISED as error:
            self._on_bug(error)

    def _on_failed(self, read: EntryRead, bookie: BookieId, outcome: LedgerError) -> None:
        now_s = self._loop.time()
        self._note_failure(bookie, outcome, now_s)
        following = read.on_failed(bookie, outcome, now_s)
        if following is not None:
            self._context.stats.read_retries += 1
            self._ask(read, following)
        elif read.has_failed:
            self._context.stats.read_failures += 1
            self._done.set_exception(read.verdict())

    def _on_entry(self, entry: Entry) -> None:
        del self._active[entry.entry_id]
        self._entries[entry.entry_id - self._first] = entry
        self._missing -= 1
        if self._missing == 0:
            self._done.set_result(None)
        else:
            self._read_next()

    def _look(self) -> None:
        """Ask a further replica where the ones asked take long."""
        try:
            self._ask_beside()
        except callbacks.RAISED as error:
            self._on_bug(error)
        self._timer = self._loop.call_later(self._speculation.wait_s / _LOOKS, self._look)

    def _ask_beside(self) -> None:
        now_s = self._loop.time()
        for read in list(self._active.values()):
            if read.due_s <= now_s:
                for bookie in read.silent:
                    self._note_slow(bookie, now_s)
                following = read.on_silence(now_s)
                if following is not None:
                    self._context.stats.speculative_reads += 1
                    self._ask(read, following)

    def _on_bug(self, error: BaseException) -> None:
        """Carrying the read on raised: it fails, and nobody else's does."""
        failure = ReadFailed(f"the read could not go on: {error!r}")
        callbacks.fail(callbacks.Kind.REQUEST, error, self._done, failure)

    def _note_failure(self, bookie: BookieId, error: LedgerError, now_s: float) -> None:
        note_failure(self._context, bookie, error, now_s)
        self._ranks.pop(bookie, None)

    def _note_slow(self, bookie: BookieId, now_s: float) -> None:
        self._context.health.on_slow(bookie, now_s)
        self._ranks.pop(bookie, None)

    def _rank(self, bookie: BookieId) -> Rank:
        """Return how readily to ask a bookie, as known when this run first asks."""
        rank = self._ranks.get(bookie)
        if rank is None:
            rank = self._ranks[bookie] = rank_of(self._context, bookie, self._loop.time())
        return rank


def rank_of(context: LedgerContext, bookie: BookieId, now_s: float) -> Rank:
    """Return how readily to ask a bookie, as known now."""
    bookies = context.bookies
    if bookies.bookie(bookie).is_unreachable:
        return Rank.UNREACHABLE
    is_writable = bookie in bookies.writable
    if not is_writable and bookie not in bookies.readonly:
        return Rank.UNREGISTERED
    if context.health.is_slow(bookie, now_s):
        return Rank.SLOW
    if not is_writable:
        return Rank.READ_ONLY
    is_local = bookies.rack(bookie) == context.config.local_rack
    return Rank.LOCAL if is_local else Rank.GOOD


def note_failure(
    context: LedgerContext, bookie: BookieId, error: LedgerError, now_s: float
) -> None:
    """Remember a failure that is the bookie's own: it is asked after others for a while."""
    if not is_bad_read(error):
        return
    context.health.on_slow(bookie, now_s)
    if context.health.on_error(bookie, error, now_s):
        context.stats.quarantines += 1
        log.warning("bookie.quarantined bookie=%s error=%r", bookie, error)


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
