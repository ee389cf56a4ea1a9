"""The write side of the storage: add, fence, explicit LAC and force, in groups on the append log.

Everything here runs on the event loop, and between looking at a ledger and appending to the log
without suspension: that is what serialises fence and add. Results come through callbacks:

    add, write_lac checked, appended to the open group, readable at once; answered after the sync.
                   While that group is full an add waits, unlooked at, for its turn in a later one
    fence          in force at once; answered when its record is durable, in every case
    force          answered when everything accepted before it is durable
    delete         the ledger is gone at once; answered when log and index have forgotten it

`GroupWriter` writes the log group by group: one at a time, and the next as soon as that one is
durable. The open group is written when the turn of the loop that began it is over, so that what
arrives together is written together. `core/group_commit.py` says which requests a group answers;
here the disk is asked, and its answer carried on:

    synced         the group's waiters get OK, and it goes to the index
    disk full      it and what was accepted behind it are lost, the log stays as it was
    other error    what is durable is unknown: it ends the bookie

While the index has no room nothing is added. Reads are in `reads.py`, the index follows in
`index/indexer.py`.
Sources: Apache BookKeeper `BookieImpl`, `Journal`, `LedgerDescriptorImpl`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, NamedTuple

from bookie.errors import DiskFull
from bookie.metrics import BookieMetrics
from bookie.storage.cold_reads import ColdReads
from bookie.storage.core.append_log import (
    AppendLog,
    Deletion,
    Kind,
    LogPosition,
    LogWrite,
    pack_deletion,
    pack_ledger,
    seed_of,
)
from bookie.storage.core.disk_space import AcceptedAdds
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import (
    NOBODY,
    Backlog,
    Group,
    GroupCommit,
    OnDone,
    PendingAdds,
    forget_lost,
)
from bookie.storage.core.ledger_guard import (
    DURABLE,
    MASTER_KEY_BYTES_MAX,
    NOT_RECORDED,
    Ledger,
    may_add,
)
from bookie.storage.core.read_turns import ReadLimits
from bookie.storage.disk import Disk
from bookie.storage.entry_reader import EntryReader
from bookie.storage.index.indexer import (
    CheckpointLimits,
    Checkpoints,
    DeletedLedgers,
    Deletions,
    Indexer,
)
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

_FOR_GOOD: Final = float("inf")


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
            self._log, disk, loop=loop, metrics=metrics, on_open=self._take_turns,
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
            gather_s=limits.index_gather_s, full_retry_s=limits.disk_full_retry_s,
            is_pressed=lambda: backlog.is_over,
            on_indexed=self._indexed, on_room=self._index_has_room, on_failed=self._fail,
        )  # fmt: skip
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
        if self.is_failed or ledger.is_deleted or not self.indexer.has_room:
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
        """Forget ledgers that were fenced and deleted before a time. Raises StorageError, but not
        DiskFull: they are remembered for longer."""
        try:
            for ledger_id in self.ledgers.tombstones_before(before_ms):
                await self.indexer.job(partial(self._index.settle_deletion, ledger_id, None))
                self.ledgers.forget(ledger_id)
        except DiskFull as error:
            logger.warning("deletion.not_forgotten error=%s", error)

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
        if self.full_disk.refuses(is_urgent=is_urgent):
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
        pending, commit = self.pending, self.writer.commit
        while pending.turns.count and (waiting := pending.next(commit.open)) is not None:
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

    def _index_has_room(self, has_room: bool) -> None:
        """The index found no room for what is durable in the log, or has found some at last.

        Until then nothing is added, so what is held already must not keep sockets from being read.
        """
        if has_room:
            self.full_disk.lift()
            return
        self.full_disk.hold()
        self._take_turns()  # all are refused now
        self.pending.park()
        self._deleted_ledgers.give_up()
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


class GroupWriter:
    """Group commit on one log."""

    def __init__(
        self,
        log: AppendLog,
        disk: Disk,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
        on_open: Callable[[], None],
        on_durable: Callable[[Group, LogWrite], None],
        on_lost: Callable[[list[Group]], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_open` is called when a group is on its way and another one was opened, before any is
        durable: what waits may go into it. `on_durable` follows a group's answers; `on_lost` gets
        those that found no space, oldest first, and answers them.
        """
        self.commit = GroupCommit(log.group)
        self.began_s = float("-inf")
        """When the last group began to be written, by the metrics' stopwatch."""
        self.written_bytes = 0
        """Of all groups, durable or not."""
        self._log = log
        self._disk = disk
        self._loop = loop
        self._metrics = metrics
        self._on_open = on_open
        self._on_durable = on_durable
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._start_planned = False
        self._opened_at_s = 0.0
        self._idle: asyncio.Future[None] | None = None
        self._is_stopped = False

    def plan_start(self) -> None:
        """Write the open group when this turn of the loop is over, unless one is in flight."""
        if not self._start_planned and self.commit.in_flight is None:
            self._start_planned = True
            self._opened_at_s = self._metrics.stopwatch()
            self._loop.call_soon(self._begin)

    async def drain(self) -> None:
        """Wait until everything accepted is answered."""
        if not self._is_idle():
            self._idle = self._loop.create_future()
            await self._idle

    def stop(self) -> list[OnDone]:
        """Write nothing more; return who waits for an answer."""
        self._is_stopped = True
        in_flight = self.commit.in_flight
        waiters = [*(in_flight.waiters if in_flight else ()), *self.commit.open.waiters]
        self.commit.open.waiters.clear()
        self._tell_idle()
        return waiters

    def _begin(self) -> None:
        self._start()
        if self.commit.in_flight is not None:
            self._on_open()

    def _start(self) -> None:
        self._start_planned = False
        if self._is_stopped or self.commit.in_flight is not None or self._log.is_empty:
            return
        write = self._log.take()
        group = self.commit.start()
        assert group.number == write.group, "log and commit agree on the open group"
        done = self._disk.commit(write)
        self.began_s = now_s = self._metrics.stopwatch()
        self.written_bytes += write.size
        done.add_done_callback(partial(self._written, write, self._opened_at_s, now_s))
        self._opened_at_s = now_s

    def _written(
        self, write: LogWrite, opened_at_s: float, started_at_s: float, done: asyncio.Future[None]
    ) -> None:
        error = done.exception()
        if self._is_stopped:
            return
        if isinstance(error, DiskFull):
            self._give_up(write, error)
            return
        if error is not None:
            self._on_failed(error)
            return
        group = self.commit.synced()
        self._start()
        for on_done in group.waiters:
            on_done(Status.OK)
        self._metrics.group_written(group, write.size, opened_at_s, started_at_s)
        self._on_durable(group, write)
        self._tell_idle()

    def _give_up(self, write: LogWrite, error: DiskFull) -> None:
        """The disk is full: nothing that is not durable will be. The log stays as it was."""
        logger.error(
            "log.disk_full number=%d position=%d reason=%s", write.number, write.position, error
        )
        self._log.rewind(write)
        lost = self.commit.failed()
        self._metrics.lost_groups += len(lost)
        self._on_lost(lost)
        self._tell_idle()

    def _is_idle(self) -> bool:
        return self._is_stopped or (self.commit.in_flight is None and self._log.is_empty)

    def _tell_idle(self) -> None:
        if self._idle is not None and self._is_idle() and not self._idle.done():
            self._idle.set_result(None)


class FullDisk:
    """Remembers that a disk was found full: for a while adds are refused, then it is tried again.

    a group found no space    ordinary adds are refused for a while
    the index finds none      all adds are, until it has found some: they could not be put there,
                              and would have to stay in memory
    """

    def __init__(self, retry_s: float, now_s: Callable[[], float]) -> None:
        self._retry_s = retry_s
        self._now_s = now_s
        self.until_s = float("-inf")
        """Adds are refused until then; below zero if the disk never was full."""
        self.ran_full = False
        """Whether that happened since whoever watches the disk's space took note of it."""
        self.on_full: Callable[[], None] = lambda: None
        """Called when a group found no space."""

    def is_full(self) -> bool:
        """Whether the disk was full a moment ago; it is tried again after a while."""
        return self._now_s() < self.until_s

    def refuses(self, *, is_urgent: bool) -> bool:
        """Whether an add is refused now."""
        if is_urgent:
            return self.until_s == _FOR_GOOD
        return self.until_s > 0 and self.is_full()

    def refuse(self) -> None:
        """A group found no space: refuse adds for a while."""
        self.until_s = max(self.until_s, self._now_s() + self._retry_s)

    def hold(self) -> None:
        """Refuse all adds until `lift`: the index has no room."""
        self.until_s = _FOR_GOOD

    def lift(self) -> None:
        """The index has room again."""
        self.until_s = self._now_s()

    def tell(self) -> None:
        """Tell whoever watches the disk's space."""
        self.ran_full = True
        self.on_full()
