"""The write side of the storage: add, fence, explicit LAC and force over the append log.

Everything here runs on the event loop, and between looking at a ledger and appending to the log
without suspension: that is what serialises fence and add. Results come through callbacks:

    add, write_lac checked, appended to the open group, readable at once; answered after the sync.
                   While that group is full an add waits, unlooked at, for its turn in a later one
    fence          in force at once; answered when its record is durable, in every case
    force          answered when everything accepted before it is durable
    delete         the ledger is gone at once; answered when log and index have forgotten it

`group_writer.py` writes one group at a time. A full disk fails it and whatever was accepted behind
it; any other failure ends the bookie. Reads are in `reads.py`, the index follows in `indexer.py`.
Sources: Apache BookKeeper `BookieImpl`, `Journal`, `LedgerDescriptorImpl`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, NamedTuple

from bookie.metrics import BookieMetrics
from bookie.storage.cold_reads import ColdReads
from bookie.storage.core.accepted_adds import AcceptedAdds
from bookie.storage.core.append_log import LogPosition, LogWrite
from bookie.storage.core.backlog import NOBODY, Backlog, PendingAdds
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import Group, OnDone
from bookie.storage.core.ledger_guard import (
    DURABLE,
    MASTER_KEY_BYTES_MAX,
    NOT_RECORDED,
    Ledger,
    may_add,
)
from bookie.storage.core.log_format import Deletion, Kind, pack_deletion, pack_ledger, seed_of
from bookie.storage.core.lost_group import forget_lost
from bookie.storage.core.read_turns import ReadLimits
from bookie.storage.disk import Disk
from bookie.storage.entry_reader import EntryReader
from bookie.storage.full_disk import FullDisk
from bookie.storage.group_writer import GroupWriter
from bookie.storage.index.checkpoints import CheckpointLimits, Checkpoints, Deletions
from bookie.storage.index.deleted_ledgers import DeletedLedgers
from bookie.storage.index.indexer import Indexer
from bookie.storage.reads import Reads
from bookie.storage.replay import Replayed
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

    group_bytes_max: int
    cache_bytes_max: int
    reads: ReadLimits
    checkpoint: CheckpointLimits
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
        self.ledgers = replayed.ledgers
        self._log = replayed.log
        self._index = replayed.index
        self._disk = disk
        self._on_failed = on_failed
        self.pending = PendingAdds(
            backlog, limits.group_bytes_max, metrics.stopwatch, metrics.turn_wait_seconds.observe
        )
        """What is accepted, but not in the index."""
        self.full_disk = FullDisk(limits.disk_full_retry_s, loop.time)
        self.has_damage = bool(replayed.checkpoint.damage)
        """Records were lost that nobody can name: no ordinary adds, no negative answers."""
        self.accept = AcceptedAdds.PRIORITY if self.has_damage else AcceptedAdds.ALL
        """Which adds are taken now; whoever watches the disk's space may change it."""
        self.is_failed = False
        """The disk failed: nothing is accepted any more."""
        self.cache = EntryCache(limits.cache_bytes_max, replayed.checkpoint.start)
        reader = EntryReader(disk, self._index.places, seed_of(self._log.salt))
        self.writer = GroupWriter(
            self._log, disk, loop=loop, metrics=metrics,
            on_durable=self._durable, on_lost=self._give_up, on_failed=self._fail,
        )  # fmt: skip
        cold_reads = ColdReads(disk, limits.reads, now_s=metrics.stopwatch, adds=self.writer)
        self.reads = Reads(
            self.ledgers, self.cache, reader, disk, cold_reads=cold_reads,
            has_damage=self.has_damage, metrics=metrics,
        )  # fmt: skip
        checkpoints = Checkpoints(
            disk, self._index, replayed.checkpoint, replayed.tally, limits.checkpoint,
            now_s=loop.time(),
        )  # fmt: skip
        self.indexer = Indexer(
            disk, self._index, checkpoints,
            gather_s=limits.index_gather_s, is_pressed=lambda: backlog.is_over,
            on_indexed=self._indexed, on_failed=self._fail,
        )  # fmt: skip
        self.writer.on_open = self._take_turns
        self._deleted_ledgers = DeletedLedgers(self.ledgers, self.cache, self._index, self.indexer)

    @property
    def newest_group(self) -> int:
        """Number of the open group."""
        return self._log.group

    def has(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is here, or was until a while ago."""
        return self.ledgers.get(ledger_id) is not None or self.ledgers.is_deleted(ledger_id)

    def is_quiet(self, ledger_id: LedgerId, since_group: int) -> bool:
        """Whether nothing was added to the ledger since a group was open."""
        ledger = self.ledgers.get(ledger_id)
        return ledger is None or ledger.newest_group < since_group

    def add(self, request: AddRequest, on_done: OnDone, connection: Hashable = NOBODY) -> None:
        """Store an entry; `on_done` gets OK once it is durable (at once with deferred sync).

        `connection`: whose it is, of those that take turns while groups are full.
        """
        if self.add_run((request,), on_done):
            return
        entry = request.entry
        if len(entry) < ENTRY_HEADER_BYTES:
            on_done(Status.BAD_REQUEST)
            return
        ledger_id, entry_id, _ = _HEAD.unpack_from(entry)
        if ledger_id != request.ledger_id or entry_id != request.entry_id or entry_id < 0:
            on_done(Status.BAD_REQUEST)
            return
        group, turns = self.writer.commit.open, self.pending.turns
        if turns.looks_for_little(group, self.pending.bytes):
            self._look_whether_little(request, connection)
        if not self.is_failed and not turns.admits(connection, ledger_id, len(entry), group):
            self.pending.wait(connection, request, on_done)
        elif self._store(request, on_done):
            self.pending.add(len(entry))
            self.pending.turns.on_added(connection, ledger_id, len(entry), group)

    def _store(self, request: AddRequest, on_done: OnDone) -> bool:
        """Put an entry that is well-formed into the open group; False if it is refused."""
        if (ledger := self._admit_add(request, on_done)) is None:
            return False
        group, entry = self.writer.commit.open, request.entry
        self._append(group, ledger, request.entry_id, EntryId(_HEAD.unpack_from(entry)[2]), entry)
        group.entry_bytes += len(entry)
        self.writer.plan_start()
        if request.deferred_sync:
            group.deferred.append(ledger)
            on_done(Status.OK)
        else:
            group.wait(on_done)
        return True

    def _look_whether_little(self, request: AddRequest, connection: Hashable) -> None:
        """Tell the turns of an add before which nothing of its ledger is on its way.

        A ledger's very first entry does not count: who rolls a ledger is not somebody else.
        """
        turns, commit = self.pending.turns, self.writer.commit
        if len(request.entry) <= turns.little_bytes_max:
            ledger = self.ledgers.get(request.ledger_id)
            if ledger is not None and DURABLE < ledger.newest_group <= commit.settled_group:
                turns.on_little(
                    connection, ledger.ledger_id, len(request.entry), ledger.added_bytes,
                    commit.open,
                )  # fmt: skip

    def add_run(self, requests: Sequence[AddRequest], on_done: OnDone) -> int:
        """Store entries that came together, with one answer; return how many of the first ones.

        `on_done` gets OK once they are durable, or why they are lost; not before this returns. The
        one behind them is for `add` to judge: something stands against it, its ledger begins, or
        the open group is full.
        """
        if self.is_failed or self.accept is not AcceptedAdds.ALL or self.full_disk.until_s > 0:
            return 0
        group, writable = self.writer.commit.open, self.ledgers.writable
        turns = self.pending.turns
        if turns.looks_for_little(group, self.pending.bytes) and not turns.count:
            for request in requests:
                self._look_whether_little(request, NOBODY)
        room = turns.room(group)
        count = size = taken = 0
        for request in requests:
            entry = request.entry
            size += len(entry)
            if size > room or len(entry) < ENTRY_HEADER_BYTES or request.deferred_sync:
                break
            ledger_id, entry_id, lac = _HEAD.unpack_from(entry)
            if ledger_id != request.ledger_id or entry_id != request.entry_id or entry_id < 0:
                break
            ledger = writable(ledger_id, request.master_key)
            if ledger is None:
                break
            self._append(group, ledger, entry_id, lac, entry)
            count += 1
            taken = size
        if count:
            group.wait(on_done, count)
            group.entry_bytes += taken
            self.pending.add(taken)
            self.writer.plan_start()
        return count

    def _append(
        self, group: Group, ledger: Ledger, entry_id: EntryId, lac: EntryId, entry: Buffer
    ) -> None:
        """Put an entry into the open group. Whoever calls says how much of it, once."""
        ledger_id = ledger.ledger_id
        location = self._log.append(Kind.ENTRY, entry)
        group.entries.append((ledger_id, entry_id, location))
        ledger.newest_group = group.number
        ledger.added_bytes += len(entry)
        self.cache.put(ledger_id, entry_id, location, entry)
        if entry_id > ledger.last_entry:
            ledger.last_entry = entry_id
        if lac > ledger.lac:
            ledger.lac = lac
            ledger.wake()

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
            self.writer.commit.open.ledgers.append(ledger)
            self.writer.plan_start()
        if not self.writer.commit.wait_for(ledger.fence_group, on_done):
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
        group = self.writer.commit.open
        group.ledgers.append(ledger)
        group.wait(on_done)
        self.writer.plan_start()
        lac = peek_lac_packet(packet)
        if lac > ledger.lac:
            ledger.lac = lac
            ledger.wake()

    def force(self, ledger_id: LedgerId, on_done: OnDone) -> None:
        """Answer once everything accepted for the ledger before this is durable."""
        ledger = self.ledgers.get(ledger_id)
        if self.is_failed or (ledger is not None and ledger.lost_deferred):
            on_done(Status.IO_ERROR)
            return
        newest = self._log.group - 1 if self._log.is_empty else self._log.group
        if not self.writer.commit.wait_for(newest, on_done):
            on_done(Status.OK)

    def delete(self, ledger_id: LedgerId, time_ms: int, on_done: OnDone) -> None:
        """Delete a ledger with all it has; unknown is fine.

        `on_done` gets OK when nothing of it is left in the index and the log says so durably.
        `time_ms` is written down: a fenced ledger is remembered from then on.
        """
        ledger = self.ledgers.get(ledger_id)
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
        group = self.writer.commit.open
        group.deletions.append((ledger_id, deletion))
        group.wait(partial(self._deleted_ledgers.expect, ledger_id, on_done))
        ledger.wake()
        self.writer.plan_start()

    async def forget_deletions(self, before_ms: int) -> None:
        """Forget ledgers that were fenced and deleted before a time. Raises StorageError."""
        for ledger_id in self.ledgers.tombstones_before(before_ms):
            await self.indexer.job(partial(self._index.settle_deletion, ledger_id, None))
            self.ledgers.forget(ledger_id)

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        await self.writer.drain()
        await self.reads.drain()

    async def close(self) -> None:
        """Wait until everything accepted is durable and indexed, then close the index."""
        await self.drain()
        self._deleted_ledgers.stop()
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
        if self.full_disk.until_s > 0 and not is_urgent and self.full_disk.is_full():
            on_done(Status.READ_ONLY)
            return None
        if gone is not None and self.ledgers.is_deleted(ledger_id):
            on_done(gone)
            return None
        return self._admit_key(ledger_id, master_key, on_done)

    def _admit_key(self, ledger_id: LedgerId, master_key: bytes, on_done: OnDone) -> Ledger | None:
        if ledger_id < 0 or not 0 < len(master_key) <= MASTER_KEY_BYTES_MAX:
            on_done(Status.BAD_REQUEST)
            return None
        ledger = self.ledgers.admit(ledger_id, master_key)
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
            self.writer.commit.open.ledgers.append(ledger)

    def _durable(self, group: Group, write: LogWrite) -> None:
        """A group is answered: another one is open, and takes whose turn it is."""
        self._take_turns()
        self.indexer.put(group, write)

    def _take_turns(self) -> None:
        """Put adds that wait into the open group, which was begun just now: while the disk writes
        the one before."""
        pending = self.pending
        while (waiting := pending.next(self.writer.commit.open)) is not None:
            if not self._store(waiting.request, waiting.on_done):
                pending.remove(len(waiting.request.entry))

    def _give_up(self, lost: list[Group]) -> None:
        """The disk is full: these groups will never be durable, oldest first."""
        self.full_disk.refuse()
        for group in reversed(lost):
            self.cache.drop_lost(group.entries)
        for group in lost:
            self.pending.remove(group.entry_bytes)
            forget_lost(group, self.ledgers, self.cache)
        for group in lost:
            for on_done in group.waiters:
                on_done(Status.IO_ERROR)
        self._take_turns()  # most are refused now
        self.full_disk.tell()

    def _fail(self, error: BaseException) -> None:
        """The disk or the index failed: what is durable is unknown. Nothing goes on."""
        if self.is_failed:
            return
        logger.error("storage.failed error=%r", error)
        self.is_failed = True
        for on_done in (*self.writer.stop(), *self.pending.give_up()):
            on_done(Status.IO_ERROR)
        self._on_failed(error)

    def _indexed(self, end: LogPosition, entry_bytes: int, deletions: Deletions) -> None:
        self.cache.indexed_to(end)
        self._deleted_ledgers.begin(deletions)
        if not self.is_failed:
            self.pending.remove(entry_bytes)
