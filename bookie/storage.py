"""The write side of the storage: add, fence, explicit LAC and force over the append log.

Everything here runs on the event loop, and between looking at a ledger and appending to the log
without suspension: that is what serialises fence and add. Results come through callbacks:

    add, write_lac checked, appended to the open group, readable at once; answered after the sync
    fence          in force at once; answered when its record is durable, in every case
    force          answered when everything accepted before it is durable
    delete         the ledger is gone at once; answered when log and index have forgotten it

One group is written at a time. A full disk fails it and whatever was accepted behind it; any other
failure ends the bookie. Reads are in `reads.py`, the index follows in `indexer.py`.
Sources: Apache BookKeeper `BookieImpl`, `Journal`, `LedgerDescriptorImpl`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from bookie.burials import Burials
from bookie.core.accept import Accept
from bookie.core.append_log import LogPosition, LogWrite
from bookie.core.backlog import Backlog
from bookie.core.entry_cache import EntryCache
from bookie.core.group_commit import Group, GroupCommit, OnDone
from bookie.core.ledger_guard import MASTER_KEY_BYTES_MAX, NOT_RECORDED, Ledger, may_add
from bookie.core.log_format import Deletion, Kind, pack_deletion, pack_ledger, seed_of
from bookie.core.lost_group import forget_lost
from bookie.disk import Disk
from bookie.errors import DiskFull
from bookie.indexer import Deletions, Indexer
from bookie.metrics import BookieMetrics
from bookie.reads import Reads
from bookie.replay import Replayed
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.entry import peek_lac_packet
from client.wire.bookkeeper.messages import (
    ENTRY_HEADER_BYTES,
    AddRequest,
    Buffer,
    Status,
    WriteLacRequest,
)

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">qqq")
_ID: Final = struct.Struct(">q")
_LAC_PACKET_BYTES_MIN: Final = 16


class StorageLimits(NamedTuple):
    """Bounds of a storage; see the fields of the same names in `config.py`."""

    cache_bytes_max: int
    checkpoint_bytes: int
    checkpoint_records: int
    checkpoint_interval_s: float
    index_gather_s: float
    disk_full_retry_s: float


class Storage:
    """Ledgers on one disk."""

    def __init__(
        self,
        replayed: Replayed,
        disk: Disk,
        limits: StorageLimits,
        *,
        backlog: Backlog,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._log = replayed.log
        self._index = replayed.index
        self._ledgers = replayed.ledgers
        self._disk = disk
        self._limits = limits
        self._loop = loop
        self._metrics = metrics
        self._on_failed = on_failed
        self._backlog = backlog
        self.on_full: Callable[[], None] = lambda: None
        """Called when a group found no space."""
        self.ran_full = False
        """Whether that happened since whoever watches the disk's space took note of it."""
        self.damaged_ranges = len(replayed.checkpoint.damage)
        self.has_damage = bool(replayed.checkpoint.damage)
        """Records were lost that nobody can name: no ordinary adds, no negative answers."""
        self.accept = Accept.PRIORITY if self.has_damage else Accept.ALL
        """Which adds are taken now; whoever watches the disk's space may change it."""
        self.is_failed = False
        """The disk failed: nothing is accepted any more."""
        self.commit = GroupCommit(self._log.group)
        self._cache = EntryCache(limits.cache_bytes_max, replayed.checkpoint.start)
        self.reads = Reads(
            self._ledgers, self._cache, disk, self._index, seed=seed_of(self._log.salt),
            has_damage=self.has_damage, loop=loop, metrics=metrics,
        )  # fmt: skip
        self.indexer = Indexer(
            disk,
            self._index,
            replayed.checkpoint,
            replayed.tally,
            checkpoint_bytes=limits.checkpoint_bytes,
            checkpoint_records=limits.checkpoint_records,
            checkpoint_interval_s=limits.checkpoint_interval_s,
            gather_s=limits.index_gather_s,
            is_pressed=lambda: backlog.is_over,
            now_s=loop.time(),
            on_indexed=self._indexed,
            on_failed=self._fail,
        )
        self._burials = Burials(self._ledgers, self._cache, self._index, self.indexer)
        self._start_planned = False
        self._opened_at_s = 0.0
        self._pending_bytes = 0
        self._full_until_s = float("-inf")
        self._idle: asyncio.Future[None] | None = None

    @property
    def ledger_count(self) -> int:
        """How many ledgers are here."""
        return len(self._ledgers)

    @property
    def ledger_ids(self) -> list[LedgerId]:
        """Ids of all ledgers, ascending."""
        return self._ledgers.ids()

    @property
    def cache(self) -> EntryCache:
        """Entries in memory."""
        return self._cache

    @property
    def newest_group(self) -> int:
        """Number of the open group."""
        return self._log.group

    def has(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is here, or was until a while ago."""
        return self._ledgers.get(ledger_id) is not None or self._ledgers.is_buried(ledger_id)

    def is_quiet(self, ledger_id: LedgerId, since_group: int) -> bool:
        """Whether nothing was added to the ledger since a group was open."""
        ledger = self._ledgers.get(ledger_id)
        return ledger is None or ledger.newest_group < since_group

    @property
    def is_full(self) -> bool:
        """Whether the disk was full a moment ago; it is tried again after a while."""
        return self._loop.time() < self._full_until_s

    def add(self, request: AddRequest, on_done: OnDone) -> None:
        """Store an entry; `on_done` gets OK once it is durable (at once with deferred sync)."""
        if self.add_run((request,), on_done):
            return
        entry = request.entry
        if len(entry) < ENTRY_HEADER_BYTES:
            on_done(Status.BAD_REQUEST)
            return
        ledger_id, entry_id, lac = _HEAD.unpack_from(entry)
        if ledger_id != request.ledger_id or entry_id != request.entry_id or entry_id < 0:
            on_done(Status.BAD_REQUEST)
            return
        if (ledger := self._admit_add(request, on_done)) is None:
            return
        group = self.commit.open
        self._append(group, ledger, entry_id, lac, entry)
        self._accepted(group, len(entry))
        if request.deferred_sync:
            group.deferred.append(ledger)
            on_done(Status.OK)
        else:
            group.wait(on_done)

    def add_run(self, requests: Sequence[AddRequest], on_done: OnDone) -> int:
        """Store entries that came together, with one answer; return how many of the first ones.

        `on_done` gets OK once they are durable, or why they are lost; not before this returns. The
        one behind them is for `add` to judge: something stands against it, or its ledger begins.
        """
        if self.is_failed or self.accept is not Accept.ALL or self._full_until_s > 0:
            return 0
        group, writable = self.commit.open, self._ledgers.writable
        count = size = 0
        for request in requests:
            entry = request.entry
            if len(entry) < ENTRY_HEADER_BYTES or request.deferred_sync:
                break
            ledger_id, entry_id, lac = _HEAD.unpack_from(entry)
            if ledger_id != request.ledger_id or entry_id != request.entry_id or entry_id < 0:
                break
            ledger = writable(ledger_id, request.master_key)
            if ledger is None:
                break
            self._append(group, ledger, entry_id, lac, entry)
            count += 1
            size += len(entry)
        if count:
            group.wait(on_done, count)
            self._accepted(group, size)
        return count

    def _append(
        self, group: Group, ledger: Ledger, entry_id: EntryId, lac: EntryId, entry: Buffer
    ) -> None:
        """Put an entry into the open group. Whoever calls says how much of it, once."""
        ledger_id = ledger.ledger_id
        location = self._log.append(Kind.ENTRY, entry)
        group.entries.append((ledger_id, entry_id, location))
        ledger.newest_group = group.number
        self._cache.put(ledger_id, entry_id, location, entry)
        if entry_id > ledger.last_entry:
            ledger.last_entry = entry_id
        if lac > ledger.lac:
            ledger.lac = lac
            ledger.wake()

    def _accepted(self, group: Group, size: int) -> None:
        """So many bytes of entries were put into the open group."""
        group.entry_bytes += size
        self._pending_bytes += size
        self._backlog.add(size)
        self._plan_start()

    def fence(self, ledger_id: LedgerId, master_key: bytes, on_done: OnDone) -> None:
        """Stop ordinary adds; `on_done` gets OK once that survives a crash.

        A ledger this bookie never heard of is fenced all the same.
        """
        if self.is_failed:
            on_done(Status.IO_ERROR)
            return
        ledger = self._admit_key(ledger_id, master_key, on_done)
        if ledger is None:
            return
        if ledger.is_deleted:
            on_done(Status.IO_ERROR)
            return
        if not ledger.fenced:
            ledger.fenced = True
            logger.info("ledger.fenced ledger=%d", ledger_id)
            ledger.wake()
        if ledger.fence_group == NOT_RECORDED:
            # The record holds the key too, so it stands for the ledger's key record.
            self._log.append(Kind.FENCE, pack_ledger(ledger_id, ledger.master_key))
            ledger.fence_group = self._log.group
            if ledger.key_group == NOT_RECORDED:
                ledger.key_group = self._log.group
            self.commit.open.ledgers.append(ledger)
            self._plan_start()
        if not self.commit.wait_for(ledger.fence_group, on_done):
            on_done(Status.OK)

    def write_lac(self, request: WriteLacRequest, on_done: OnDone) -> None:
        """Keep an explicit LAC packet; `on_done` gets OK once it is durable."""
        packet = bytes(request.packet)
        if len(packet) < _LAC_PACKET_BYTES_MIN or _ID.unpack_from(packet)[0] != request.ledger_id:
            on_done(Status.BAD_REQUEST)
            return
        ledger = self._admit(
            request.ledger_id, request.master_key, on_done, Status.NO_LEDGER, is_urgent=False
        )
        if ledger is None:
            return
        if ledger.is_deleted:
            on_done(Status.NO_LEDGER)
            return
        known = ledger.explicit_lac
        if known is not None and peek_lac_packet(known) > peek_lac_packet(packet):
            packet = known
        self._record_key(ledger)
        self._log.append(Kind.EXPLICIT_LAC, packet)
        ledger.explicit_lac = packet
        group = self.commit.open
        group.ledgers.append(ledger)
        group.wait(on_done)
        self._plan_start()
        lac = peek_lac_packet(packet)
        if lac > ledger.lac:
            ledger.lac = lac
            ledger.wake()

    def force(self, ledger_id: LedgerId, on_done: OnDone) -> None:
        """Answer once everything accepted for the ledger before this is durable."""
        ledger = self._ledgers.get(ledger_id)
        if self.is_failed or (ledger is not None and ledger.lost_deferred):
            on_done(Status.IO_ERROR)
            return
        newest = self._log.group - 1 if self._log.is_empty else self._log.group
        if not self.commit.wait_for(newest, on_done):
            on_done(Status.OK)

    def delete(self, ledger_id: LedgerId, time_ms: int, on_done: OnDone) -> None:
        """Delete a ledger with all it has; unknown is fine.

        `on_done` gets OK when nothing of it is left in the index and the log says so durably.
        `time_ms` is written down: a fenced ledger is remembered from then on.
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            on_done(Status.OK)
            return
        if self.is_failed or ledger.is_deleted:
            on_done(Status.IO_ERROR)
            return
        ledger.is_deleted = True
        deletion = Deletion(ledger.fenced, time_ms)
        logger.info("ledger.deleted ledger=%d fenced=%s", ledger_id, ledger.fenced)
        self._log.append(Kind.DELETE, pack_deletion(ledger_id, deletion))
        group = self.commit.open
        group.deletions.append((ledger_id, deletion))
        group.wait(partial(self._burials.expect, ledger_id, on_done))
        ledger.wake()
        self._plan_start()

    async def forget_deletions(self, before_ms: int) -> None:
        """Forget ledgers that were fenced and deleted before a time. Raises StorageError."""
        for ledger_id in self._ledgers.graves_before(before_ms):
            await self.indexer.job(partial(self._index.settle_deletion, ledger_id, None))
            self._ledgers.forget(ledger_id)

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        if not self.is_failed and (self.commit.in_flight or not self._log.is_empty):
            self._idle = self._loop.create_future()
            await self._idle
        await self.reads.drain()

    async def close(self) -> None:
        """Wait until everything accepted is durable and indexed, then close the index."""
        await self.drain()
        self._burials.stop()
        await self.indexer.close()
        await self._disk.index_job(self._index.close)

    def _admit_add(self, request: AddRequest, on_done: OnDone) -> Ledger | None:
        """Every check of an add, and its ledger's key in front of it; None: `on_done` knows why."""
        ledger_id, key, recovery = request.ledger_id, request.master_key, request.recovery
        gone, is_urgent = None if recovery else Status.FENCED, recovery or request.high_priority
        ledger = self._admit(ledger_id, key, on_done, gone, is_urgent=is_urgent)
        if ledger is None:
            return None
        if (status := may_add(ledger, recovery=recovery)) is not Status.OK:
            on_done(status)
            return None
        self._record_key(ledger)
        return ledger

    def _admit(
        self,
        ledger_id: LedgerId,
        master_key: bytes,
        on_done: OnDone,
        gone: Status | None,
        *,
        is_urgent: bool,
    ) -> Ledger | None:
        """Return the ledger if a write to it may go on; otherwise `on_done` got the reason.

        `gone` answers if the ledger was fenced and deleted; None for recovery, which may write
        it again.
        """
        if self.is_failed:
            on_done(Status.IO_ERROR)
            return None
        if not self.accept.takes(is_urgent=is_urgent):
            on_done(Status.READ_ONLY)
            return None
        if self._full_until_s > 0 and not is_urgent and self.is_full:
            on_done(Status.READ_ONLY)
            return None
        if gone is not None and self._ledgers.is_buried(ledger_id):
            on_done(gone)
            return None
        return self._admit_key(ledger_id, master_key, on_done)

    def _admit_key(self, ledger_id: LedgerId, master_key: bytes, on_done: OnDone) -> Ledger | None:
        if ledger_id < 0 or not 0 < len(master_key) <= MASTER_KEY_BYTES_MAX:
            on_done(Status.BAD_REQUEST)
            return None
        ledger = self._ledgers.admit(ledger_id, master_key)
        if ledger is None:
            on_done(Status.UNAUTHORIZED)
        return ledger

    def _record_key(self, ledger: Ledger) -> None:
        """Put the ledger's key into the log in front of whatever needs it."""
        if ledger.key_group == NOT_RECORDED:
            kind = Kind.FENCE if ledger.fenced else Kind.LEDGER
            self._log.append(kind, pack_ledger(ledger.ledger_id, ledger.master_key))
            ledger.key_group = self._log.group
            if ledger.fenced:
                ledger.fence_group = self._log.group
            self.commit.open.ledgers.append(ledger)

    def _plan_start(self) -> None:
        """Write the open group when this turn of the loop is over, unless one is in flight."""
        if not self._start_planned and self.commit.in_flight is None:
            self._start_planned = True
            self._opened_at_s = self._metrics.stopwatch()
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._start_planned = False
        if self.is_failed or self.commit.in_flight is not None or self._log.is_empty:
            return
        write = self._log.take()
        group = self.commit.start()
        assert group.number == write.group, "log and commit agree on the open group"
        done = self._disk.commit(write)
        now_s = self._metrics.stopwatch()
        done.add_done_callback(partial(self._written, write, self._opened_at_s, now_s))
        self._opened_at_s = now_s

    def _written(
        self, write: LogWrite, opened_at_s: float, started_at_s: float, done: asyncio.Future[None]
    ) -> None:
        error = done.exception()
        if self.is_failed:
            return
        if isinstance(error, DiskFull):
            self._give_up(write, error)
            return
        if error is not None:
            self._fail(error)
            return
        group = self.commit.synced()
        self._start()
        for on_done in group.waiters:
            on_done(Status.OK)
        self._metrics.group_written(group, write.size, opened_at_s, started_at_s)
        self.indexer.put(group, write)
        self._tell_idle()

    def _give_up(self, write: LogWrite, error: DiskFull) -> None:
        """The disk is full: nothing that is not durable will be. The log stays as it was."""
        logger.error(
            "log.disk_full number=%d position=%d reason=%s", write.number, write.position, error
        )
        self._full_until_s = self._loop.time() + self._limits.disk_full_retry_s
        self._log.rewind(write)
        lost = self.commit.failed()
        for group in reversed(lost):
            self._cache.drop_lost(group.entries)
        for group in lost:
            self._metrics.lost_groups += 1
            self._no_longer_pending(group.entry_bytes)
            forget_lost(group, self._ledgers, self._cache)
        for group in lost:
            for on_done in group.waiters:
                on_done(Status.IO_ERROR)
        self._tell_idle()
        self.ran_full = True
        self.on_full()

    def _fail(self, error: BaseException) -> None:
        """The disk or the index failed: what is durable is unknown. Nothing goes on."""
        if self.is_failed:
            return
        logger.error("storage.failed error=%r", error)
        self.is_failed = True
        self._no_longer_pending(self._pending_bytes)
        in_flight = self.commit.in_flight
        waiters = [*(in_flight.waiters if in_flight else ()), *self.commit.open.waiters]
        self.commit.open.waiters.clear()
        for on_done in waiters:
            on_done(Status.IO_ERROR)
        self._tell_idle()
        self._on_failed(error)

    def _indexed(self, end: LogPosition, entry_bytes: int, deletions: Deletions) -> None:
        self._cache.indexed_to(end)
        self._burials.begin(deletions)
        if not self.is_failed:
            self._no_longer_pending(entry_bytes)

    def _no_longer_pending(self, size: int) -> None:
        self._pending_bytes -= size
        self._backlog.remove(size)

    def _tell_idle(self) -> None:
        is_idle = self.is_failed or (self.commit.in_flight is None and self._log.is_empty)
        if self._idle is not None and is_idle and not self._idle.done():
            self._idle.set_result(None)
