"""How far a ledger that somebody else writes may be read: its view without recovery.

Covers the `LedgerView` of a ledger opened without fencing. A closed ledger ends where its metadata
says. An open or recovering one is read up to a LAC: the one that a quorum LAC read of its last
ensemble found (READ_LAC: the explicit LAC or the one its last entry carries, whichever is higher),
or that a long poll brought since. The metadata is watched, so that ensemble changes and the
closing are seen without reading it for every refresh. The LAC never goes back (invariant R1: what
was readable once stays readable).

Sources: `ReadLastConfirmedOp`, BookKeeper protocol text.
"""

from __future__ import annotations

import asyncio
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
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.ledger.bookies.bookies import BookieSet
from client.ledger.context import LedgerContext
from client.ledger.core.last_confirmed import LacQuorum
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.ledger.read.follow import Follower
from client.wire.bookkeeper.entry import EntryCodec
from client.wire.bookkeeper.messages import ReadLacRequest, ReadLacResponse, Request, Response


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
        self._metadata = current.metadata
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
        return self._metadata

    @property
    def last_entry(self) -> EntryId:
        return self._metadata.last_entry if self._metadata.is_closed else self._lac

    @property
    def length(self) -> int:
        return self._metadata.length

    async def refresh(self) -> None:
        if not self._metadata.is_closed and not self._is_watched:
            await self.reload()
        if not self._metadata.is_closed:
            self._stats.lac_reads += 1
            self._learn(await read_lac(self._metadata, self._codec, self._bookies))

    async def reload(self) -> bool:
        before = self._metadata.fragments
        watcher = None if self._metadata.is_closed else self._on_change
        self._is_watched = True
        try:
            self._metadata = (await self._nodes.read(self._ledger_id, watcher)).metadata
        except QuireError:
            self._is_watched = False
            raise
        return self._metadata.fragments != before

    async def wait(self, above: EntryId) -> None:
        while self.last_entry <= above and not self._metadata.is_closed:
            if not self._is_watched:
                await self.reload()
            elif self._bookies.has_long_poll:
                await self._follower.hear(self._metadata.last_fragment.ensemble, self._lac)
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
