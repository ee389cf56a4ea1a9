"""The read side of the storage: cache first, then index and log on reader threads.

A hot read is answered within the call. Cold reads that arrive in one turn of the loop share
reader jobs. What a ledger's end is (last entry, last add confirmed) is known in memory for
ledgers born since the start, and looked up once for older ones. Looking into the cache before
the index misses nothing that was there: an entry leaves the cache only after the index has it. What
came while the index was looked into may have left the cache before the answer counts: then the
index is asked again.

Covers the answers NO_LEDGER and NO_ENTRY. They are claims: with damage in the log, or an
unreadable byte on the way, the answer is IO_ERROR instead, because a false "no such entry" makes a
recovery cut off acknowledged entries (Apache BookKeeper issue 2908).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from typing import Any, Final, TypeVar

from bookie.errors import StorageError
from bookie.metrics import BookieMetrics
from bookie.storage.cold_reads import ColdReads
from bookie.storage.core.availability import encode_availability
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.ledger_guard import Ledger, LedgerTable
from bookie.storage.disk import Disk
from bookie.storage.entry_reader import EntryReader, Found, Tail
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import peek_lac_packet
from client.wire.bookkeeper.messages import LAST_ENTRY, Buffer, Status

logger = logging.getLogger(__name__)
T = TypeVar("T")

OnRead = Callable[[Status, Buffer | None], None]
OnRun = Callable[[Status, Sequence[Buffer]], None]
OnLedger = Callable[[Status, Ledger | None], None]
OnAvailability = Callable[[Status, bytes | None], None]

_Single = tuple[EntryId, OnRead]
"""An entry that is asked for by itself."""

_READS_PER_JOB: Final = 32
_JOB_BYTES_MAX: Final = 256 * 1024
"""Of more than one entry: what one turn of the loop sends."""

_RUN_ENTRIES_MAX: Final = 256
"""Entries of a run: what one reader job brings, or one turn of the loop."""

Submit = Callable[[Callable[[], Any]], asyncio.Future[Any]]


class Reads:
    """Reads entries and ledger ends."""

    def __init__(
        self,
        ledgers: LedgerTable,
        cache: EntryCache,
        reader: EntryReader,
        disk: Disk,
        *,
        cold_reads: ColdReads,
        has_damage: bool,
        metrics: BookieMetrics,
    ) -> None:
        """`reader` reads from `disk`, on its reader threads, in turns that `cold_reads` has."""
        self._ledgers = ledgers
        self._cache = cache
        self._disk = disk
        self._reader = reader
        self._has_damage = has_damage
        self._metrics = metrics
        self._cold: dict[tuple[LedgerId, bool], list[_Single]] = {}
        """What was asked for in this turn of the loop, by ledger and whether it is urgent."""
        self._loading: dict[LedgerId, list[OnLedger]] = {}
        self._from_disk = cold_reads
        self._lists = FewJobs(self._submit, at_once=1)
        self._jobs: dict[asyncio.Future[Any], None] = {}

    @property
    def waiting(self) -> int:
        """Jobs that wait for the disk, or give way to adds."""
        return self._from_disk.waiting

    def read(
        self,
        ledger_id: LedgerId,
        entry_id: EntryId,
        on_read: OnRead,
        *,
        is_urgent: bool = False,
    ) -> None:
        """Read one entry, or the last one (`LAST_ENTRY`), also if it is not durable yet.

        `on_read` gets OK and the entry, NO_LEDGER or NO_ENTRY when that is certain, or IO_ERROR.
        `is_urgent`: a recovery needs it, see `core/read_turns.py`.
        """
        ledger = self._ledger(ledger_id)
        if ledger is None:
            on_read(self._absent(Status.NO_LEDGER), None)
        elif entry_id == LAST_ENTRY:
            self.with_ledger(ledger_id, partial(self._read_last, on_read, is_urgent))
        else:
            self._read(ledger, entry_id, on_read, is_urgent)

    def read_run(
        self,
        ledger_id: LedgerId,
        first: EntryId,
        count_max: int,
        bytes_max: int,
        on_run: OnRun,
        *,
        is_urgent: bool = False,
    ) -> None:
        """Read entries that follow each other from `first` on, perhaps fewer than there are.

        At most `count_max`, and no more than fit into `bytes_max`, but the first one whatever its
        size. `on_run` gets OK and some entries, or none and what `read` says of the first one.
        """
        ledger = self._ledger(ledger_id)
        if ledger is None or first == LAST_ENTRY:
            self.read(ledger_id, first, partial(_run_of_one, on_run), is_urgent=is_urgent)
            return
        count_max = min(count_max, _RUN_ENTRIES_MAX)
        hot = self._hot_run(ledger_id, first, count_max, bytes_max)
        if hot:
            self._metrics.cache_hits += len(hot)
            self._give(hot, on_run)
        elif ledger.is_loaded and first > ledger.last_entry:
            on_run(self._absent(Status.NO_ENTRY), [])
        else:
            read = partial(self._reader.read_run, ledger_id, first, count_max, bytes_max)
            again = partial(
                self.read_run, ledger_id, first, count_max, bytes_max, on_run, is_urgent=is_urgent
            )
            since = self._cache.look_for(ledger_id, first)
            on_done = partial(self._cold_run_read, ledger_id, first, on_run, again, since)
            self._from_disk.add(ledger_id, read, on_done, is_urgent=is_urgent)

    def with_ledger(self, ledger_id: LedgerId, on_ledger: OnLedger) -> None:
        """Call `on_ledger` with OK and the ledger, its `last_entry` and `lac` being known."""
        ledger = self._ledger(ledger_id)
        if ledger is None:
            on_ledger(self._absent(Status.NO_LEDGER), None)
        elif ledger.is_loaded:
            on_ledger(Status.OK, ledger)
        elif ledger_id in self._loading:
            self._loading[ledger_id].append(on_ledger)
        else:
            self._loading[ledger_id] = [on_ledger]
            job = self._submit(partial(self._reader.tail, ledger_id))
            job.add_done_callback(partial(self._loaded, ledger, ledger.losses))

    def availability(self, ledger_id: LedgerId, on_read: OnAvailability) -> None:
        """Say which entries of a ledger are here, as `availability.py` encodes it.

        A ledger may have millions: all that is done for each of them is a reader's job.
        """
        if self._ledger(ledger_id) is None:
            on_read(self._absent(Status.NO_LEDGER), None)
            return

        def look() -> bytes:
            # The cache before the index, as always. A copy of all keys is made in one step.
            keys = self._cache.all_keys()
            recent = sorted(entry for ledger, entry in keys if ledger == ledger_id)
            listed = self._reader.entry_ids(ledger_id)
            return encode_availability(_without_repeats(merge(listed, recent)))

        def on_done(done: asyncio.Future[bytes]) -> None:
            error = done.exception()
            if error is not None or self._has_damage:
                logger.error("ledger.unreadable ledger=%d error=%s", ledger_id, error)
                on_read(Status.IO_ERROR, None)
            else:
                on_read(Status.OK, done.result())

        self._lists.add(look, on_done)

    async def drain(self) -> None:
        """Wait until no reader job is on its way, and none waits."""
        await self._from_disk.drain()
        while self._jobs:
            await asyncio.wait(list(self._jobs))
            await self._from_disk.drain()

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        future = self._disk.reader_job(job)
        self._jobs[future] = None
        future.add_done_callback(self._jobs.pop)
        return future

    def _ledger(self, ledger_id: LedgerId) -> Ledger | None:
        ledger = self._ledgers.get(ledger_id)
        return None if ledger is not None and ledger.is_deleted else ledger

    def _absent(self, status: Status) -> Status:
        return Status.IO_ERROR if self._has_damage else status

    def _read(self, ledger: Ledger, entry_id: EntryId, on_read: OnRead, is_urgent: bool) -> None:
        entry = self._cache.get(ledger.ledger_id, entry_id)
        if entry is not None:
            self._metrics.reads += 1
            self._metrics.cache_hits += 1
            self._metrics.read_bytes += len(entry)
            on_read(Status.OK, entry)
        elif ledger.is_loaded and entry_id > ledger.last_entry:
            on_read(self._absent(Status.NO_ENTRY), None)
        else:
            if not self._cold:
                asyncio.get_running_loop().call_soon(self._read_cold)
            self._cold.setdefault((ledger.ledger_id, is_urgent), []).append((entry_id, on_read))

    def _read_last(
        self, on_read: OnRead, is_urgent: bool, status: Status, ledger: Ledger | None
    ) -> None:
        if ledger is None:
            on_read(status, None)
        elif ledger.last_entry == NO_ENTRY:
            on_read(self._absent(Status.NO_ENTRY), None)
        else:
            on_last = partial(self._last_read, ledger, ledger.last_entry, on_read, is_urgent)
            self._read(ledger, ledger.last_entry, on_last, is_urgent)

    def _last_read(
        self,
        ledger: Ledger,
        asked: EntryId,
        on_read: OnRead,
        is_urgent: bool,
        status: Status,
        entry: Buffer | None,
    ) -> None:
        """Answer, unless the last entry is another one by now: a read from disk takes time.

        Version 2 of the protocol tells equal requests apart by nothing. A late answer to an early
        one completes a later one, to which it must not be old.
        """
        if ledger.last_entry == asked:
            on_read(status, entry)
        else:
            self.read(ledger.ledger_id, LAST_ENTRY, on_read, is_urgent=is_urgent)

    def _read_cold(self) -> None:
        """Send the reads collected in this turn of the loop to the reader threads."""
        cold, self._cold = self._cold, {}
        for (ledger_id, is_urgent), singles in cold.items():
            self._metrics.cold_reads += len(singles)
            for first in range(0, len(singles), _READS_PER_JOB):
                some = singles[first : first + _READS_PER_JOB]
                self._read_singles(ledger_id, some, is_urgent=is_urgent)

    def _read_singles(
        self,
        ledger_id: LedgerId,
        some: Sequence[_Single],
        *,
        is_urgent: bool,
        is_rest: bool = False,
    ) -> None:
        wanted = [(ledger_id, entry_id) for entry_id, _ in some]
        read = partial(self._reader.read_many, wanted, _JOB_BYTES_MAX)
        since = [self._cache.look_for(ledger_id, entry_id) for entry_id, _ in some]
        on_done = partial(self._singles_read, ledger_id, some, since, is_urgent)
        self._from_disk.add(ledger_id, read, on_done, is_urgent=is_urgent, is_rest=is_rest)

    def _singles_read(
        self,
        ledger_id: LedgerId,
        some: Sequence[_Single],
        since: Sequence[int],
        is_urgent: bool,
        job: asyncio.Future[list[Found]],
    ) -> None:
        looked_up = job.result()
        have_left = [
            self._cache.stop_looking(ledger_id, entry_id, begun)
            for (entry_id, _), begun in zip(some, since, strict=True)
        ]
        if len(looked_up) < len(some):
            rest = some[len(looked_up) :]
            self._read_singles(ledger_id, rest, is_urgent=is_urgent, is_rest=True)
        again: list[_Single] = []
        for single, has_left, found in zip(some, have_left, looked_up, strict=False):
            if found is None and has_left:
                again.append(single)
            else:
                self._single_read(ledger_id, *single, found)
        if again:
            self._read_singles(ledger_id, again, is_urgent=is_urgent)

    def _single_read(
        self, ledger_id: LedgerId, entry_id: EntryId, on_read: OnRead, looked_up: Found
    ) -> None:
        found: Buffer | StorageError | None = looked_up
        if found is None:  # it may have come meanwhile; see `_last_read` for why that counts
            found = self._cache.get(ledger_id, entry_id)
        if isinstance(found, StorageError):
            self._unreadable(ledger_id, entry_id, found)
            on_read(Status.IO_ERROR, None)
        elif found is None:
            on_read(self._absent(Status.NO_ENTRY), None)
        else:
            self._metrics.reads += 1
            self._metrics.read_bytes += len(found)
            on_read(Status.OK, found)

    def _hot_run(
        self, ledger_id: LedgerId, first: EntryId, count_max: int, bytes_max: int
    ) -> list[Buffer]:
        hot: list[Buffer] = []
        while len(hot) < count_max:
            entry = self._cache.get(ledger_id, EntryId(first + len(hot)))
            if entry is None:
                break
            bytes_max -= len(entry)
            if hot and bytes_max < 0:
                break
            hot.append(entry)
        return hot

    def _cold_run_read(
        self,
        ledger_id: LedgerId,
        first: EntryId,
        on_run: OnRun,
        again: Callable[[], None],
        since: int,
        job: asyncio.Future[list[memoryview]],
    ) -> None:
        has_left = self._cache.stop_looking(ledger_id, first, since)
        error = job.exception()
        if error is not None:
            self._metrics.cold_reads += 1
            self._unreadable(ledger_id, first, error)
            on_run(Status.IO_ERROR, [])
            return
        if not job.result() and (has_left or self._cache.get(ledger_id, first) is not None):
            again()  # it has come meanwhile
            return
        # As for single reads, the cache comes first: it has those that were written again since.
        found = [
            self._cache.get(ledger_id, EntryId(at)) or entry
            for at, entry in enumerate(job.result(), first)
        ]
        self._metrics.cold_reads += max(1, len(found))
        if found:
            self._give(found, on_run)
        else:
            on_run(self._absent(Status.NO_ENTRY), [])

    def _give(self, entries: Sequence[Buffer], on_run: OnRun) -> None:
        self._metrics.reads += len(entries)
        self._metrics.read_bytes += sum(map(len, entries))
        on_run(Status.OK, entries)

    def _unreadable(self, ledger_id: LedgerId, entry_id: EntryId, error: BaseException) -> None:
        logger.error("entry.unreadable ledger=%d entry=%d reason=%s", ledger_id, entry_id, error)
        self._metrics.unreadable_entries += 1

    def _loaded(self, ledger: Ledger, losses: int, job: asyncio.Future[Tail]) -> None:
        """The end of a ledger was found; `losses`: its losses when somebody began to look.

        Rule LOOK-AGAIN (`core/group_commit.py`), also when the ledger was deleted and begun anew.
        """
        waiting = self._loading.pop(ledger.ledger_id)
        if ledger.losses != losses or self._ledgers.get(ledger.ledger_id) is not ledger:
            for on_ledger in waiting:
                self.with_ledger(ledger.ledger_id, on_ledger)
            return
        error = job.exception()
        if error is not None:
            logger.error("ledger.unreadable ledger=%d error=%s", ledger.ledger_id, error)
            for on_ledger in waiting:
                on_ledger(Status.IO_ERROR, None)
            return
        tail = job.result()
        explicit = ledger.explicit_lac
        ledger.last_entry = max(ledger.last_entry, tail.last_entry)
        ledger.lac = max(ledger.lac, tail.lac, peek_lac_packet(explicit) if explicit else NO_ENTRY)
        ledger.is_loaded = True
        for on_ledger in waiting:
            on_ledger(Status.OK, ledger)


def _without_repeats(ascending: Iterable[EntryId]) -> Iterator[EntryId]:
    last = NO_ENTRY
    for entry_id in ascending:
        if entry_id != last:
            last = entry_id
            yield entry_id


def _run_of_one(on_run: OnRun, status: Status, entry: Buffer | None) -> None:
    on_run(status, [] if entry is None else [entry])


class FewJobs:
    """Reader jobs of one kind, of which a few are under way at a time; the others wait in their
    order.

    Whoever asks for very much, or very often, shall not have all reader threads, nor all of a turn
    of the event loop for what they bring.
    """

    def __init__(self, submit: Submit, *, at_once: int) -> None:
        """`submit` hands a job to the reader threads."""
        self._submit = submit
        self._free = at_once
        self._waiting: deque[tuple[Callable[[], Any], Callable[[asyncio.Future[Any]], None]]]
        self._waiting = deque()

    def add(self, job: Callable[[], T], on_done: Callable[[asyncio.Future[T]], None]) -> None:
        """Run a job when its turn has come, and call `on_done` with it."""
        self._waiting.append((job, on_done))
        self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            job, on_done = self._waiting.popleft()
            self._free -= 1
            self._submit(job).add_done_callback(partial(self._over, on_done))

    def _over(
        self, on_done: Callable[[asyncio.Future[Any]], None], done: asyncio.Future[Any]
    ) -> None:
        self._free += 1
        self._start()
        on_done(done)
