"""Planted defects of the bookie; see `table.py`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from bookie import bookie
from bookie.errors import DiskFailed, DiskFull, StorageError
from bookie.membership import cookie
from bookie.membership.cluster_ledgers import ClusterLedgers
from bookie.membership.registration import Registration
from bookie.storage import compactor, entry_reader, record_replay, replay, storage
from bookie.storage.core import append_log, group_commit, log_scan
from bookie.storage.core.append_log import Kind, ledger_of
from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import AddTurns, GroupCommit
from bookie.storage.entry_reader import EntryReader
from bookie.storage.index import indexer, level_db
from bookie.storage.index.indexer import Indexer
from bookie.storage.index.level_db import LevelDb
from bookie.storage.replay import init_log
from bookie.storage.storage import GroupWriter, Storage
from client.errors import MetadataError, NoNode
from client.ledger.core import metadata_codec
from client.metadata import paths
from client.wire.bookkeeper.messages import Status
from tests.simulation.machine.index import SimLevelFiles

if TYPE_CHECKING:
    from collections.abc import Callable


def ack_before_sync(patch: Any) -> None:
    """A group is answered when its write begins."""

    def start(self: GroupWriter) -> None:
        original(self)
        group = self.commit.in_flight
        if group is not None:
            waiters, group.waiters = group.waiters, []
            for on_done in waiters:
                on_done(Status.OK)

    original = patch(GroupWriter, "_start", start)


def ack_with_next_sync(patch: Any) -> None:
    """Adds that arrive while a group is being written are answered with it."""

    def synced(self: GroupCommit) -> Any:
        group = original(self)
        group.waiters += self.open.waiters
        self.open.waiters = []
        return group

    original = patch(GroupCommit, "synced", synced)


def groups_have_no_end(patch: Any) -> None:
    """Everything that arrives goes into the open group."""
    patch(AddTurns, "_fits", lambda self, size, group: True)
    patch(AddTurns, "room", lambda self, group: 1 << 40)


def little_waits_behind_much(patch: Any) -> None:
    """While a group is full all adds wait, one behind the other, whose ever they are."""

    def admits(self: AddTurns[Any], connection: Any, ledger_id: Any, size: int, group: Any) -> bool:
        del connection, ledger_id
        return not self.count and self._fits(size, group)

    def push(self: AddTurns[Any], connection: Any, ledger_id: Any, size: int, add: Any) -> None:
        del connection, ledger_id
        original(self, None, 0, size, add)

    patch(AddTurns, "admits", admits)
    original = patch(AddTurns, "push", push)


def sync_failure_ignored(patch: Any) -> None:
    """A failed sync is taken for a successful one."""

    class _Fine:
        def exception(self) -> None:
            return None

    def written(self: GroupWriter, write: Any, opened: float, started: float, done: Any) -> None:
        if isinstance(done.exception(), DiskFailed):
            done = _Fine()
        original(self, write, opened, started, done)

    original = patch(GroupWriter, "_written", written)


def fence_ignored(patch: Any) -> None:
    """A fenced ledger takes adds."""
    patch(storage, "may_add", lambda ledger, *, recovery: Status.OK)


def fence_in_memory(patch: Any) -> None:
    """A fence is not written to the log (500)."""

    def fence(self: Storage, ledger_id: Any, master_key: bytes, on_done: Any) -> None:
        ledger = self._admit_key(ledger_id, master_key, on_done)
        if ledger is not None:
            ledger.fenced = True
            on_done(Status.OK)

    patch(Storage, "fence", fence)


def fence_answered_early(patch: Any) -> None:
    """A fence is answered before its record is durable."""

    def fence(self: Storage, ledger_id: Any, master_key: bytes, on_done: Any) -> None:
        answers: list[Status] = []
        original(self, ledger_id, master_key, answers.append)
        on_done(answers[0] if answers else Status.OK)

    original = patch(Storage, "fence", fence)


def fence_without_key_lost(patch: Any) -> None:
    """A start skips the fence of a ledger that it knows nothing else of."""

    def apply(self: Any, number: int, record: Any) -> None:
        is_bare = record.kind is Kind.FENCE and self.ledgers.get(ledger_of(record.body)) is None
        if not is_bare:
            original(self, number, record)

    original = patch(record_replay.RecordReplay, "apply", apply)


def fence_not_indexed(patch: Any) -> None:
    """The index forgets that a ledger is fenced, and a checkpoint passes the record."""
    original = patch(indexer, "record_of", lambda ledger: original(ledger)._replace(fenced=False))


def torn_tail_accepted(patch: Any) -> None:
    """A start takes what a crash tore for records, without looking at the CRC."""

    def unpack(data: memoryview, seed: int, offset: int = 0) -> Any:
        del seed
        header = append_log.unpack_record_header(data, offset)
        if header is None:
            return None
        begin = offset + append_log.RECORD_HEADER_BYTES
        kind = append_log._KINDS[header.kind]
        body = data[begin : begin + header.size]
        return append_log.Record(kind, header.group, header.group_start, header.position, body)

    patch(log_scan, "unpack_record", unpack)
    patch(entry_reader, "unpack_record", unpack)


def damage_is_absence(patch: Any) -> None:
    """An entry that cannot be read is answered as "no such entry" (2908)."""

    def try_read(self: EntryReader, ledger_id: Any, entry_id: Any) -> Any:
        found = original(self, ledger_id, entry_id)
        return None if isinstance(found, StorageError) else found

    original = patch(EntryReader, "_try_read", try_read)


def damage_served(patch: Any) -> None:
    """Entries are served without looking at their CRC."""

    def verify(self: EntryReader, data: bytes, location: Any, ids: Any) -> memoryview:
        del self, ids
        return memoryview(data)[append_log.RECORD_HEADER_BYTES :][: location.size]

    patch(EntryReader, "_verify", verify)


def damage_cut_off(patch: Any) -> None:
    """A start takes damage for the torn end and cuts the log there."""
    patch(log_scan.LogScan, "_gap_at", lambda self, position: None)


def pending_invisible(patch: Any) -> None:
    """Entries that are accepted and not yet indexed are not found by reads."""
    patch(EntryCache, "put", lambda self, ledger_id, entry_id, location, entry: None)


def cache_dropped_early(patch: Any) -> None:
    """The cache drops entries that the index does not have yet."""

    def evict(self: EntryCache) -> None:
        while self.entry_bytes > self._bytes_max:
            key = next(iter(self._entries))
            self.entry_bytes -= len(self._entries.pop(key)[2])

    patch(EntryCache, "_evict", evict)


def checkpoint_without_flush(patch: Any) -> None:
    """A checkpoint is taken before the index is durable, and the index is trusted (1534)."""

    def save(disk: Any, index: Any, checkpoint: Any) -> None:
        del index
        disk.save(indexer.FILE_NAME, checkpoint.encode())

    def open_index(factory: Any, checkpoint: Any) -> Any:
        del checkpoint
        try:
            return factory(False)
        except StorageError:
            return None

    patch(indexer, "save_checkpoint", save)
    patch(replay, "_open_index", open_index)


def rebuild_from_checkpoint(patch: Any) -> None:
    """An index that was lost is rebuilt from the checkpoint on instead of from the start."""

    def open_index(factory: Any, checkpoint: Any) -> Any:
        del checkpoint
        try:
            return factory(False)
        except StorageError:
            return factory(True)

    patch(replay, "_open_index", open_index)


def lost_group_stays(patch: Any) -> None:
    """A group that found no space stays readable, and its fences count as recorded."""
    patch(EntryCache, "drop_lost", lambda self, added: None)
    patch(group_commit, "forget_lost_records", lambda ledger, group: None)


def lost_copy_hides_kept(patch: Any) -> None:
    """A copy that found no space takes along the durable one that the index lacks still."""

    def put(self: EntryCache, ledger_id: Any, entry_id: Any, location: Any, entry: Any) -> None:
        original(self, ledger_id, entry_id, location, entry)
        key = (ledger_id, entry_id)
        if key in self._entries:
            self._entries[key] = (*self._entries[key][:3], None)

    original = patch(EntryCache, "put", put)


def flush_believed(patch: Any) -> None:
    """A flush of the index syncs nothing: LevelDB will have done it."""
    patch(SimLevelFiles, "sync", lambda self, name: None)


def old_log_not_synced(patch: Any) -> None:
    """A flush of the index syncs the newest log, as if that took the older ones along."""

    def sync(self: SimLevelFiles, name: str) -> None:
        if name == self.logs()[-1]:
            original(self, name)

    original = patch(SimLevelFiles, "sync", sync)


def mark_is_not_durable(patch: Any) -> None:
    """The mark of a damaged index is made and not synced."""

    def save(self: SimLevelFiles, name: str, data: bytes) -> None:
        if name != level_db.MARK:
            original(self, name, data)
            return
        was_found_damaged = self._store.was_found_damaged
        self._store.volume.create(name).write(0, data)
        self._store.was_found_damaged = was_found_damaged

    original = patch(SimLevelFiles, "save", save)


def full_index_is_damaged(patch: Any) -> None:
    """An index that finds no space is taken for a damaged one, and made anew."""
    patch(level_db, "_is_no_space", lambda error: False)


def index_drops_what_finds_no_room(patch: Any) -> None:
    """Entries for which the index has no room are forgotten; the next ones are put in."""

    def run(self: Indexer, work: Any, *, is_batch: bool) -> Any:
        try:
            return original(self, work, is_batch=is_batch)
        except DiskFull:
            self._has_gap = False
            if is_batch:
                return None
            raise

    original = patch(Indexer, "_run", run)


def index_written_behind_half_a_record(patch: Any) -> None:
    """LevelDB is not opened anew when it found no space."""

    def come_unstuck(self: LevelDb) -> None:
        self._is_stuck = False

    patch(LevelDb, "_come_unstuck", come_unstuck)


def empty_disk_accepted(patch: Any) -> None:
    """A bookie that lost its disk comes back under its old name (2612)."""

    async def admit(store: Any, directories: Any, **options: Any) -> Any:
        if any(each.disk.load(cookie.FILE_NAME) is None for each in directories):
            for each in directories:
                init_log(each.disk, options["rng"])
            names = tuple(each.path for each in directories)
            return cookie.Cookie(options["bookie_id"], names, "unknown")
        return await original(store, directories, **options)

    original = patch(bookie.cookie, "admit", admit)


def never_registers_again(patch: Any) -> None:
    """A bookie whose session expired never registers again."""
    patch(Registration, "_on_session", lambda self, state: None)


def lost_removal_forgotten(patch: Any) -> None:
    """A registration whose removal got no answer is taken to be there still."""

    async def remove(self: Registration, read_only: bool) -> None:
        if self._nodes[read_only]:
            with contextlib.suppress(NoNode):
                await self._store.delete(self._paths[read_only])
        self._nodes[read_only] = False

    patch(Registration, "_remove", remove)


def gc_trusts_failures(patch: Any) -> None:
    """Garbage collection takes a directory that it could not list for an empty one."""

    async def absent_from(self: ClusterLedgers, directory: str, ledger_ids: Any) -> Any:
        try:
            names = set(await self._store.children(directory))
        except MetadataError:
            names = set()
        return [
            one
            for one in ledger_ids
            if paths.ledger(one, self._root).rpartition("/")[2] not in names
        ]

    patch(ClusterLedgers, "_absent_from", absent_from)


def gc_looks_at_last_fragment(patch: Any) -> None:
    """Garbage collection drops a ledger whose last fragment is elsewhere."""

    async def is_over_replicated(self: ClusterLedgers, ledger_id: Any) -> bool:
        try:
            node = await self._store.get(paths.ledger(ledger_id, self._root))
        except NoNode:
            return False
        metadata = metadata_codec.decode(node.data)
        return metadata.is_closed and self._bookie_id not in metadata.last_fragment.ensemble

    patch(ClusterLedgers, "is_over_replicated", is_over_replicated)


def gc_drops_living(patch: Any) -> None:
    """Log files of which little is alive are given back without copying that little."""

    def plan(files: Any, **limits: Any) -> Any:
        found = original(files, **limits)
        given = [file.number for group in found.rewrite for file in group]
        return found._replace(give_back=(*found.give_back, *given), rewrite=())

    original = patch(compactor, "plan", plan)


WORLD = "ledger"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
