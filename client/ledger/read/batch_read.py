"""Reading a run of entries with few requests: as many entries as fit into one answer.

Covers the client's batch reads (BATCH_READ_ENTRY, BP-62, wire version 2). They are a short cut for
readers of long ranges, to whom a request per entry costs more than the entries, and nothing else:
whatever a batch did not bring is read entry by entry (`range_read.py`), whose rules alone say
which failure is the verdict.

- BATCH-SLICE   a range is divided into answers of `read_batch_bytes`, `read_batches_max` of which
                are under way, from one replica after the other.
- BATCH-WHOLE   a bookie is asked only where it has every entry: where the ensemble is no larger
                than the write quorum.
- BATCH-TURN    runs begin with one replica after the other, so that readers share the copies;
                bookies in poor health come last, as in READ-ORDER.
- BATCH-DIGEST  every entry is verified. What stands before a wrong one is kept, the rest is asked
                of the next replica.
- BATCH-BESIDE  silence for a while: the next replica is asked beside it, as in READ-SPECULATE.
- BATCH-SHORT   an answer may have fewer entries than fit, and is never taken for the end: Apache's
                bookies of 4.18 take the first entry's size for that of all.
- BATCH-LACKING a bookie that broke the connection on a batch, or called it a bad request, is not
                asked for another for ten minutes: those before Apache BookKeeper 4.17 do not know
                it. Silence, "no such entry", "too busy" and an address where nobody is say nothing
                of that kind.

Sources: `BatchedReadOp`, `PerChannelBookieClient` of Apache BookKeeper 4.17.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from client import callbacks
from client.errors import BookieUnavailable, LedgerError, ReadFailed
from client.ids import BookieId, EntryId
from client.ledger.context import LedgerContext
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.core.reads import read_order
from client.ledger.read.range_read import RangeRead, note_failure, rank_of
from client.wire.bookkeeper.entry import Entry, EntryCodec
from client.wire.bookkeeper.messages import (
    FRAME_BYTES_MAX,
    BatchReadRequest,
    BatchReadResponse,
    Request,
    Response,
)

log = logging.getLogger(__name__)

Answers = asyncio.Queue[tuple[BookieId, Response | LedgerError]]


class BatchReads:
    """Batch reads of one client."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    async def read(
        self,
        first: EntryId,
        last: EntryId,
        metadata: LedgerMetadata,
        codec: EntryCodec,
        size_max: int,
    ) -> list[Entry]:
        """Return entries `first`..`last`, asked for in answers of up to `size_max` bytes.

        Raises what `RangeRead.run` does.
        """
        entries: list[Entry] = []
        turn = EntryId(first // (last - first + 1))
        while len(entries) <= last - first:
            following = EntryId(first + len(entries))
            until = min(last, _last_of_fragment(metadata, following, last))
            some = await self._batch(following, until, turn, metadata, codec, size_max)
            if not some:
                rest = RangeRead(following, last, metadata, codec, self._context)
                return entries + await rest.run()
            entries += some
        return entries

    async def read_some(
        self,
        first: EntryId,
        last: EntryId,
        metadata: LedgerMetadata,
        codec: EntryCodec,
        size_max: int,
    ) -> list[Entry]:
        """Return entries from `first` on, up to `last`, as many as one answer of `size_max` bytes
        brings; none: nobody gave any.

        A ledger that is read so to its end is read from one replica, another ledger from another.
        """
        until = min(last, _last_of_fragment(metadata, first, last))
        turn = EntryId(codec.ledger_id)
        return await self._batch(first, until, turn, metadata, codec, size_max)

    def is_whole(self, metadata: LedgerMetadata) -> bool:
        """Whether bookies can be asked for batches of a ledger at all (BATCH-WHOLE)."""
        is_spoken = self._context.config.wire_version != "v3"
        return is_spoken and metadata.ensemble_size <= metadata.write_quorum

    async def read_sliced(
        self,
        slices: Sequence[tuple[EntryId, EntryId]],
        metadata: LedgerMetadata,
        codec: EntryCodec,
    ) -> list[Entry]:
        """Return the entries of ranges that follow each other, some of which are read at once.

        Each is one answer, if its entries are about as large as others of the ledger. Raises what
        `RangeRead.run` does: the verdict on the first range that failed.
        """
        context = self._context
        began_s = context.stats.now_s()
        size_max = _roomy(context.config.read_batch_bytes)
        under_way = asyncio.Semaphore(context.config.read_batches_max)

        async def one(first: EntryId, last: EntryId) -> list[Entry]:
            async with under_way:
                return await self.read(first, last, metadata, codec, size_max)

        tasks = [asyncio.create_task(one(*some)) for some in slices]
        try:
            entries = [entry for task in tasks for entry in await task]
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        context.stats.read_seconds.observe(context.stats.now_s() - began_s)
        return entries

    async def _batch(
        self,
        first: EntryId,
        last: EntryId,
        turn: EntryId,
        metadata: LedgerMetadata,
        codec: EntryCodec,
        size_max: int,
    ) -> list[Entry]:
        """Return some entries from `first` on; none: nobody gave any."""
        context = self._context
        loop = asyncio.get_running_loop()
        speculation = context.config.speculation()
        answers: Answers = asyncio.Queue()
        silent: dict[BookieId, None] = {}
        asked = BatchReadRequest(codec.ledger_id, first, 0, last - first + 1, size_max)
        wait_s = speculation.wait_s
        order = self._order(metadata, first, turn)
        while order or silent:
            if order:
                bookie = order.pop(0)
                request = asked._replace(request_id=context.batches.next_id())
                context.bookies.bookie(bookie).request(
                    request, partial(self._on_answer, answers, bookie)
                )
                silent[bookie] = None
            try:
                async with asyncio.timeout(wait_s if order and wait_s else None):
                    bookie, answer = await answers.get()
            except TimeoutError:
                for bookie in silent:
                    context.health.on_slow(bookie, loop.time())
                wait_s = min(2 * wait_s, speculation.wait_s_max)
                context.stats.speculative_reads += 1
                continue
            del silent[bookie]
            some, error = _opened(codec, first, last, answer)
            if error is not None:
                context.stats.read_retries += 1
                note_failure(context, bookie, error, loop.time())
            if some:
                context.stats.read_entries += len(some)
                return some
        return []

    def _on_answer(
        self, answers: Answers, bookie: BookieId, _request: Request, answer: Response | LedgerError
    ) -> None:
        """Also hears those whose answer nobody waits for any more."""
        try:
            if isinstance(answer, LedgerError) and self._tells_of_lack(bookie, answer):
                log.info("bookie.without_batch_reads bookie=%s error=%r", bookie, answer)
                self._context.batches.on_lack(bookie, asyncio.get_running_loop().time())
        except callbacks.RAISED as error:
            callbacks.failed(callbacks.Kind.REQUEST, error)
        answers.put_nowait((bookie, answer))

    def _tells_of_lack(self, bookie: BookieId, error: LedgerError) -> bool:
        if isinstance(error, BookieUnavailable):
            return not self._context.bookies.bookie(bookie).is_unreachable
        return isinstance(error, ReadFailed)

    def _order(self, metadata: LedgerMetadata, first: EntryId, turn: EntryId) -> list[BookieId]:
        """Return the bookies to ask for a batch, one after the other."""
        ensemble = metadata.fragment_of(first).ensemble
        if not self.is_whole(metadata):
            return []
        now_s = asyncio.get_running_loop().time()
        ordered = read_order(
            ensemble,
            metadata.schedule.write_set(turn),
            lambda bookie: rank_of(self._context, bookie, now_s),
        )
        batches = self._context.batches
        return [bookie for bookie in ordered if not batches.is_lacking(bookie, now_s)]


def _roomy(size: int) -> int:
    """Return how large an answer may be that should weigh `size`: one entry that does not fit
    costs a request of its own."""
    return min(size + size // 4, FRAME_BYTES_MAX)


def _last_of_fragment(metadata: LedgerMetadata, entry_id: EntryId, last: EntryId) -> EntryId:
    """Return the last entry, up to `last`, that has the same bookies as `entry_id`."""
    begins = [one.first_entry for one in metadata.fragments if one.first_entry > entry_id]
    return EntryId(min(begins) - 1) if begins else last


def _opened(
    codec: EntryCodec, first: EntryId, last: EntryId, answer: Response | LedgerError
) -> tuple[list[Entry], LedgerError | None]:
    """Return the verified entries at the beginning of an answer, and what is wrong behind them."""
    if isinstance(answer, LedgerError):
        return [], answer
    assert isinstance(answer, BatchReadResponse)
    entries: list[Entry] = []
    for at, raw in zip(range(first, last + 1), answer.entries, strict=False):
        try:
            entries.append(codec.open(raw, EntryId(at)))
        except LedgerError as error:
            return entries, error
    return entries, None
