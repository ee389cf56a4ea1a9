"""How far a ledger that somebody else writes may be read: its view without recovery.

Covers the `LedgerView` of a ledger opened without fencing. A closed ledger ends where its metadata
says. An open or recovering one is read up to a LAC: the one that a quorum LAC read of its last
ensemble found (READ_LAC: the explicit LAC or the one its last entry carries, whichever is higher),
or that a long poll brought since. The metadata is watched, so that ensemble changes and the
closing are seen without reading it for every refresh. The LAC never goes back (invariant R1: what
was readable once stays readable), and neither does the metadata (VIEW-NEWEST): an
end that was found is known before it is stored (`recoveries.py`).

Sources: `ReadLastConfirmedOp`, BookKeeper protocol text.

A follower waits for an open ledger to go on with long polls parked at its bookies; which bookie is
asked, and when, is decided by `core/reads.py` (rule TAIL-POLL). A bookie
answers a poll when it learns of a LAC above the one asked with: a later entry carries it, or the
writer tells it explicitly (rule EXPLICIT-LAC). A LAC is the writer's own word, so the first one
that tells of it is believed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from client import callbacks
from client.errors import (
    DigestMismatch,
    LedgerError,
    NoSuchEntry,
    NoSuchLedger,
    QuireError,
    ReadFailed,
)
from client.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from client.ledger.bookies.bookies import BookieSet
from client.ledger.context import LedgerContext
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata, newest
from client.ledger.core.reads import LacQuorum, LongPolls
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
)


class Follower:
    """The long polls of one reader."""

    def __init__(
        self,
        ledger_id: LedgerId,
        bookies: BookieSet,
        poll_s: float,
        on_lac: Callable[[EntryId], None],
    ) -> None:
        """`poll_s`: how long a bookie may hold a poll. `on_lac` is told what bookies know."""
        self._loop = asyncio.get_running_loop()
        self._ledger_id = ledger_id
        self._bookies = bookies
        self._poll_s = poll_s
        self._on_lac = on_lac
        self._polls = LongPolls()
        self._news: asyncio.Future[None] | None = None

    async def hear(self, ensemble: Sequence[BookieId], lac: EntryId) -> None:
        """Return after something was heard of the ledger, or somebody must be asked again."""
        self._news = self._loop.create_future()
        for bookie in self._polls.due(ensemble, self._loop.time()):
            self._ask(bookie, lac)
        due_s = self._polls.next_due_s(ensemble)
        timer = self._loop.call_at(due_s, self.wake) if due_s < math.inf else None
        try:
            await self._news
        finally:
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Let `hear` return."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _ask(self, bookie: BookieId, lac: EntryId) -> None:
        request = ReadRequest(
            self._ledger_id,
            LAST_ENTRY,
            previous_lac=lac,
            timeout_ms=round(self._poll_s * 1000),
            piggyback=True,
        )
        on_answer = partial(self._on_answer, bookie, lac, self._loop.time())
        self._bookies.bookie(bookie).request(request, on_answer)

    def _on_answer(
        self,
        bookie: BookieId,
        lac: EntryId,
        asked_s: float,
        _request: Request,
        answer: Response | LedgerError,
    ) -> None:
        now_s = self._loop.time()
        found = answer.max_lac if isinstance(answer, ReadResponse) else None
        try:
            if found is not None and found > lac:
                self._on_lac(found)
            waited = found is not None and now_s - asked_s >= self._poll_s / 2
            is_news = waited or (found is not None and found > lac)
            self._polls.on_answer(bookie, now_s, is_news=is_news)
            self.wake()
        except callbacks.RAISED as error:
            failure = ReadFailed(f"following could not go on: {error!r}")
            assert self._news is not None, "whoever asked has waited"
            callbacks.fail(callbacks.Kind.REQUEST, error, self._news, failure)


class TailView:
    """A ledger followed from outside."""

    def __init__(
        self,
        ledger_id: LedgerId,
        current: VersionedMetadata,
        codec: EntryCodec,
        context: LedgerContext,
    ) -> None:
        self._ledger_id = ledger_id
        self._current = current
        self._codec = codec
        self._nodes = context.nodes
        self._bookies = context.bookies
        self._stats = context.stats
        self._lac: EntryId = NO_ENTRY
        self._is_watched = False
        self._poll_s = context.config.poll_s()
        self._follower = Follower(ledger_id, context.bookies, self._poll_s, self._learn)

    @property
    def metadata(self) -> LedgerMetadata:
        return self._current.metadata

    @property
    def last_entry(self) -> EntryId:
        return self.metadata.last_entry if self.metadata.is_closed else self._lac

    @property
    def length(self) -> int:
        return self.metadata.length

    async def refresh(self) -> None:
        if not self.metadata.is_closed and not self._is_watched:
            await self.reload()
        if not self.metadata.is_closed:
            self._stats.lac_reads += 1
            self._learn(await read_lac(self.metadata, self._codec, self._bookies))

    async def reload(self) -> bool:
        before = self.metadata.fragments
        watcher = None if self.metadata.is_closed else self._on_change
        self._is_watched = True
        try:
            found = await self._nodes.read(self._ledger_id, watcher)
        except QuireError:
            self._is_watched = False
            raise
        self._current = newest(self._current, found)  # VIEW-NEWEST
        return self.metadata.fragments != before

    async def wait(self, above: EntryId) -> None:
        while self.last_entry <= above and not self.metadata.is_closed:
            if not self._is_watched:
                await self.reload()
            elif self._bookies.has_long_poll:
                await self._follower.hear(self.metadata.last_fragment.ensemble, self._lac)
            else:
                await asyncio.sleep(self._poll_s)
                await self.refresh()

    def _learn(self, lac: EntryId) -> None:
        self._lac = max(self._lac, lac)

    def _on_change(self) -> None:
        self._is_watched = False
        self._follower.wake()


async def read_lac(metadata: LedgerMetadata, codec: EntryCodec, bookies: BookieSet) -> EntryId:
    """Return the last add confirmed that a covering set of the last ensemble knows.

    Raises ReadFailed when too few bookies could say.
    """
    quorum = LacQuorum(metadata.schedule)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer(index: int, _request: Request, answer: Response | LedgerError) -> None:
        if done.done():
            return
        try:
            match answer:
                case ReadLacResponse():
                    quorum.on_known(index, _lac_in(answer, codec))
                case NoSuchEntry() | NoSuchLedger():
                    quorum.on_known(index)
                case LedgerError():
                    quorum.on_unknown(index, answer)
            if quorum.covered:
                done.set_result(None)
            elif quorum.failure is not None:
                done.set_exception(ReadFailed(f"too few bookies know the LAC: {quorum.failure}"))
        except callbacks.RAISED as error:
            failure = ReadFailed(f"the LAC could not be determined: {error!r}")
            callbacks.fail(callbacks.Kind.REQUEST, error, done, failure)

    for index, bookie in enumerate(metadata.last_fragment.ensemble):
        request = ReadLacRequest(codec.ledger_id)
        bookies.bookie(bookie).request(request, partial(on_answer, index))
    await done
    return quorum.lac


def _lac_in(answer: ReadLacResponse, codec: EntryCodec) -> EntryId:
    """Return the highest LAC in an answer; parts with a wrong digest count for nothing."""
    lac = NO_ENTRY
    try:
        if answer.lac_packet is not None:
            lac = codec.open_lac(answer.lac_packet)
    except DigestMismatch:
        lac = NO_ENTRY
    try:
        if answer.last_entry is not None:
            lac = max(lac, codec.open(answer.last_entry, None).lac)
    except DigestMismatch:
        return lac
    return lac
