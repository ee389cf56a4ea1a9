"""LevelDB below a bookie's index, on a simulated volume: what it syncs, and what it leaves unsaid.

The production code that guards the index (`bookie/storage/index/level_db.py`) runs on it. It is
as treacherous as the real one (`tests/unit/bookie/storage/index/test_index.py` holds both to
one contract):

    log       a batch is appended to the newest log, never synced unless somebody asks
    table     when the memory table is full another log begins, and a table is made of the older
              one, some time: synced, then that log is removed
    failure   a table that cannot be written is not mentioned; every later write fails
    no room   half of a record may be in the log, and the next one would stand behind it
    opening   reads the logs up to what looks like the end, and makes a table of them; a record
              that is damaged in the middle is a complaint

A kill loses nothing. A power loss loses of each log what was not synced, as the volume sees fit,
and now and then the index cannot be opened at all afterwards.
"""

from __future__ import annotations

import bisect
import errno
import marshal
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookie.storage.index import level_db
from bookie.storage.index.index import Index
from bookie.storage.index.level_db import LevelDb, LevelFiles
from tests.simulation.machine.volume import Volume

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

_HEADER = struct.Struct(">II")
"""CRC and size of a record."""
_TABLE_LATER_P = 0.5
"""Probability that a table is not made before the next call."""

Changes = list[tuple[bytes, bytes | None]]
"""One batch: keys and values; None removes."""


class LevelError(OSError):
    """As LevelDB complains: a text, and no number."""


class _Beside(Volume):
    """The index's files, which share a disk with the log's, and steps, and failures of syncs."""

    def __init__(self, rng: random.Random, disk: Volume) -> None:
        self._disk = disk
        self.is_full = False
        """Nothing more fits here, while the log still finds room."""
        super().__init__(rng)

    @property
    def used_bytes(self) -> int:  # type: ignore[override]
        return self._disk.used_bytes

    @used_bytes.setter
    def used_bytes(self, size: int) -> None:
        self._disk.used_bytes = size

    @property
    def capacity_bytes(self) -> int:  # type: ignore[override]
        return self._disk.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, size: int) -> None:
        """It is the disk's."""

    def step(self) -> None:
        self._disk.step()

    def take_sync_failure(self) -> bool:
        return self._disk.take_sync_failure()

    def charge(self, size: int) -> None:
        if self.is_full and size > 0:
            raise OSError(errno.ENOSPC, "no space left on simulated device")
        super().charge(size)

    @property
    def free_bytes(self) -> int:
        return 0 if self.is_full else super().free_bytes

    def wipe(self) -> None:
        for name in list(self.files):
            self._remove(name)
        self._undo_names.clear()


class LevelStore:
    """What of one host's index survives its processes."""

    def __init__(
        self, rng: random.Random, disk: Volume, *, write_buffer_bytes: int = 1 << 20
    ) -> None:
        used = disk.used_bytes
        self.volume = _Beside(rng, disk)
        disk.used_bytes = used
        self.write_buffer_bytes = write_buffer_bytes
        self.rng = rng
        self.corrupt = False
        """The next attempt to open it fails."""
        self.fail_tables = 0
        """How many of the next tables cannot be written: EIO."""
        self.fails_in = -1
        """After how many calls one fails with EIO; -1 for never."""
        self.may_be_damaged = False
        """Something happened since the last flush that makes the index worth nothing."""
        self.was_found_damaged = False
        """Somebody got a complaint of the open database."""
        self.on_wrong: Callable[[str], None] = lambda text: None
        """Told what nobody may do to an index."""
        self.table: dict[bytes, bytes] = {}
        """What is in tables: synced, like the list of them."""
        self.table_bytes = 0
        self.oldest_log = 1
        """The first log that is not in a table."""
        self.next_number = 1

    def power_lost(self) -> None:
        """Lose what was not synced, and perhaps the ability to open at all."""
        self.volume.power_lost()
        self.may_be_damaged = True
        self.corrupt = self.corrupt or self.rng.random() < 0.1

    def wipe(self) -> None:
        """Begin with nothing."""
        if self.next_number > 1 and not (self.may_be_damaged or self.corrupt):
            self.on_wrong("the index was made anew, and nothing had damaged it")
        self.was_found_damaged = False
        self.may_be_damaged = True  # worth nothing before it is complete
        self.volume.wipe()
        self.volume.used_bytes -= self.table_bytes
        self.table, self.table_bytes = {}, 0
        self.oldest_log = self.next_number
        self.corrupt = False

    def call(self, *, in_use: bool = False) -> None:
        """Count a call. Raises LevelError when it is the one that fails.

        `in_use`: of an open database, so that who gets the complaint marks it.
        """
        self.volume.step()
        if self.fails_in >= 0:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.may_be_damaged = True
                self.was_found_damaged = self.was_found_damaged or in_use
                raise LevelError("IO error: Input/output error")

    def needed_logs(self) -> list[str]:
        """Return the names of the logs that are not in a table, oldest first."""
        return sorted(
            name
            for name in self.volume.files
            if name.endswith(".log") and int(name[:-4]) >= self.oldest_log
        )

    def make_table(self, changes: list[Changes], before: int) -> None:
        """Put changes into a table: those of all logs `before` a number, which go then.

        Raises LevelError: nothing happened.
        """
        self.call()
        size = sum(len(key) + len(value or b"") for batch in changes for key, value in batch)
        if self.fail_tables:
            self.fail_tables -= 1
            self.may_be_damaged = True
            raise LevelError("IO error: table: Input/output error")
        try:
            self.volume.charge(size)
        except OSError as error:
            raise LevelError(f"IO error: table: {os.strerror(error.errno or 0)}") from error
        for batch in changes:
            apply(self.table, batch)
        # What compactions save is saved at once.
        live = sum(len(key) + len(value) for key, value in self.table.items())
        self.volume.used_bytes -= self.table_bytes + size - live
        self.table_bytes = live
        gone = self.needed_logs()
        self.oldest_log = before
        self.volume.step()
        for name in gone:
            if int(name[:-4]) < before:
                self.volume.delete(name)
                self.volume.step()


class _Level:
    """The database as one process has it open; what plyvel's `DB` has, as far as it is used."""

    def __init__(self, store: LevelStore) -> None:
        self._store = store
        self.closed = False
        self._complaint = ""
        """Of a table: every write gets it from now on."""
        self._full: list[Changes] = []
        """Of the memory table that is full, in logs before `_log`; no table was made of it yet."""
        self._fresh: list[Changes] = []
        self._fresh_bytes = 0
        if store.corrupt:
            raise LevelError("Corruption: simulated damage")
        self._current = dict(store.table)
        found: list[Changes] = []
        for name in store.needed_logs():
            store.call()
            found += list(_records(bytes(store.volume.files[name].cached)))
        for changes in found:
            apply(self._current, changes)
        self._keys = sorted(self._current)
        self._begin_log()
        if found:
            store.make_table(found, self._log_number)
        for name in [name for name in store.volume.files if name.endswith(".log")]:
            if name not in store.needed_logs():  # a power loss brought it back
                store.volume.delete(name)

    # ---------------------------------------------------------------- reading

    def get(self, key: bytes, *, verify_checksums: bool = False) -> bytes | None:
        del verify_checksums
        # The count of flushes is asked for when it is opened: nobody marks it then.
        self._store.call(in_use=key != b"f")
        return self._current.get(key)

    def iterator(
        self,
        *,
        start: bytes,
        stop: bytes,
        include_value: bool = True,
        verify_checksums: bool = False,
    ) -> Iterator[Any]:
        del verify_checksums
        self._store.call()
        keys = self._keys[
            bisect.bisect_left(self._keys, start) : bisect.bisect_left(self._keys, stop)
        ]
        return iter([(key, self._current[key]) for key in keys] if include_value else keys)

    def raw_iterator(self, *, verify_checksums: bool = False) -> _Cursor:
        del verify_checksums
        self._store.call(in_use=True)
        return _Cursor(self._keys)

    def get_property(self, name: bytes) -> bytes:
        assert name == b"leveldb.approximate-memory-usage"
        return b"%d" % self._fresh_bytes

    def close(self) -> None:
        self.closed = True

    # ---------------------------------------------------------------- writing

    def write_batch(self) -> _Batch:
        return _Batch(self)

    def put(self, key: bytes, value: bytes, *, sync: bool = False) -> None:
        self.write([(key, value)])
        if sync:
            _sync(self._store, self._log_name)

    def write(self, changes: Changes) -> None:
        """Append a batch to the log, and apply it."""
        store = self._store
        store.call(in_use=True)
        if self._full and store.rng.random() >= _TABLE_LATER_P:
            self._make_table()
        if self._fresh_bytes > store.write_buffer_bytes and not self._complaint:
            if self._full:
                self._make_table()
            if not self._complaint:
                self._begin_log()
                self._full, self._fresh, self._fresh_bytes = self._fresh, [], 0
        if self._complaint:
            if os.strerror(errno.ENOSPC) not in self._complaint:
                store.may_be_damaged = store.was_found_damaged = True
            raise LevelError(self._complaint)
        self._append(changes)
        for key, value in changes:
            if (key in self._current) != (value is not None):
                at = bisect.bisect_left(self._keys, key)
                self._keys[at : at + (value is None)] = [] if value is None else [key]
        apply(self._current, changes)
        self._fresh.append(changes)
        self._fresh_bytes += sum(len(key) + len(value or b"") for key, value in changes)

    def _make_table(self) -> None:
        try:
            self._store.make_table(self._full, self._log_number)
        except LevelError as error:
            self._complaint = str(error)
        else:
            self._full = []

    def _begin_log(self) -> None:
        number = self._store.next_number
        self._store.next_number = number + 1
        self._store.volume.create(f"{number:06}.log")
        self._store.volume.step()
        self._log_number, self._log_name = number, f"{number:06}.log"

    def _append(self, changes: Changes) -> None:
        body = marshal.dumps(changes)
        record = _HEADER.pack(zlib.crc32(body), len(body)) + body
        volume = self._store.volume
        file = volume.files[self._log_name]
        end = len(file.cached)
        try:
            file.write(end, record)
        except OSError as error:
            if volume.free_bytes:
                file.write(end, record[: volume.free_bytes])
            raise LevelError(f"IO error: log: {os.strerror(error.errno or 0)}") from error


class _Batch:
    """Changes that happen together."""

    def __init__(self, db: _Level) -> None:
        self._db = db
        self._changes: Changes = []

    def put(self, key: bytes, value: bytes) -> None:
        self._changes.append((key, value))

    def delete(self, key: bytes) -> None:
        self._changes.append((key, None))

    def write(self) -> None:
        self._db.write(self._changes)


class _Cursor:
    """A place among the keys."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = keys
        self._at = 0

    def seek(self, key: bytes) -> None:
        self._at = bisect.bisect_left(self._keys, key)

    def seek_to_last(self) -> None:
        self._at = len(self._keys) - 1

    def prev(self) -> None:
        self._at -= 1

    def valid(self) -> bool:
        return 0 <= self._at < len(self._keys)

    def key(self) -> bytes:
        return self._keys[self._at]

    def close(self) -> None:
        """Nothing to release."""


def _records(data: bytes) -> Iterator[Changes]:
    """Yield the records of a log up to what looks like its end.

    Raises LevelError for damage before that. A record that seems longer than the log, and zeros,
    are taken for a write that a crash interrupted.
    """
    at = 0
    while at + _HEADER.size <= len(data):
        crc, size = _HEADER.unpack_from(data, at)
        body = data[at + _HEADER.size : at + _HEADER.size + size]
        if not size or len(body) < size:
            return
        if zlib.crc32(body) != crc:
            raise LevelError("Corruption: checksum mismatch")
        yield marshal.loads(body)
        at += _HEADER.size + size


def apply(content: dict[bytes, bytes], changes: Changes) -> None:
    """Apply a batch."""
    for key, value in changes:
        if value is None:
            content.pop(key, None)
        else:
            content[key] = value


def _sync(store: LevelStore, name: str) -> None:
    file = store.volume.files.get(name)
    if file is None:
        raise FileNotFoundError(2, "no such simulated file", name)
    in_use = not name.endswith(".new")
    store.call(in_use=in_use)
    if store.volume.take_sync_failure():
        file.sync_failed()
        store.may_be_damaged = True
        store.was_found_damaged = store.was_found_damaged or in_use
        raise OSError(5, "simulated sync failure")
    file.synced(len(file.dirty))


class SimLevelFiles(LevelFiles):
    """`LevelFiles` on a store."""

    def __init__(self, store: LevelStore) -> None:
        self._store = store
        self._is_in_use = False
        """This process has opened it; who goes on after a complaint may open it anew."""

    def open(self) -> _Level:
        if self._store.was_found_damaged and not self._is_in_use:
            self._store.on_wrong("an index that was found damaged was opened again")
        self._store.call()
        level = _Level(self._store)
        self._is_in_use = True
        return level

    def wipe(self) -> None:
        self._store.call()
        self._store.wipe()

    def logs(self) -> list[str]:
        return sorted(name for name in self._store.volume.files if name.endswith(".log"))

    def size(self, name: str) -> int:
        return len(self._store.volume.files[name].cached)

    def room(self) -> int:
        return self._store.volume.free_bytes

    def load(self, name: str) -> bytes | None:
        file = self._store.volume.files.get(name)
        return None if file is None else bytes(file.cached)

    def save(self, name: str, data: bytes) -> None:
        store, volume = self._store, self._store.volume
        was_found_damaged, store.was_found_damaged = store.was_found_damaged, False
        # Who ends in the middle of making the mark has made none.
        store.call()
        new = volume.create(name + ".new")
        volume.step()
        new.write(0, data)
        _sync(store, name + ".new")
        volume.step()
        volume.rename(name + ".new", name)
        volume.step()
        volume.sync_names()
        if level_db.MARK not in volume.files:
            store.may_be_damaged = False
        volume.step()
        store.was_found_damaged = was_found_damaged

    def sync(self, name: str) -> None:
        _sync(self._store, name)


class SimIndex(Index):
    """The index as one bookie process has it open."""

    def __init__(self, store: LevelStore, *, wipe: bool) -> None:
        super().__init__(
            LevelDb(
                Path("/simulated/index"),
                wipe=wipe,
                write_buffer_bytes=store.write_buffer_bytes,
                block_cache_bytes=0,
                files=SimLevelFiles(store),
            )
        )
