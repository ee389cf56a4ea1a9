"""LevelDB as the key-value store below the index: the only importer of plyvel.

Writes are not synced; `flush` is what makes them survive a power loss: it syncs LevelDB's own logs.
A table is written only when the memory table is full: each one is merged with all tables whose keys
lie between its own, and those of one checkpoint lie in as many places as there are ledgers that
grow. LevelDB takes a log whose end is damaged for one that was being written, and opens without it:
so flushes are counted in the log, and the file FLUSHES has the count too.

Rule SYNC-BY-PATH: what LevelDB says about its files is not believed. It begins another log when the
memory table is full, and removes the older one when a table has its records. If that table cannot
be written, nobody says so before the next write, and the older log was never synced. So a flush
itself syncs every log that is there, and the directory that has their names.

Rule FULL-IS-NOT-DAMAGED: where LevelDB found no space, the index is what it was, and DiskFull says
so. After that nothing is written to it as it is: LevelDB refuses every write after a table that
failed, and would put the next record behind the half of one. It is opened anew first, as soon as
there is room for what that takes; until then it goes on answering reads.

Any other complaint of LevelDB, and a sync that failed, is a CorruptIndex: the index is a cache of
the log and can be made again. A complaint about an open database also leaves the file DAMAGED
beside its tables, durably, and such a directory does not open any more: the next start makes the
index anew, instead of failing the same reads again.

plyvel is published ready-made for Python 3.11 and 3.12 on Linux with x86-64 only. Elsewhere it
has to be compiled, so it may be missing where everything else is there: `check_level_db` says it.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bookie.errors import CorruptIndex, DiskFull
from bookie.storage.disk import NO_SPACE, replace_file, sync_data, sync_dir
from client.errors import ConfigError

_missing: ImportError | None = None
try:
    import plyvel
except ImportError as error:  # also when it was compiled for a LevelDB that is gone
    _missing = error
_COMPLAINTS: tuple[type[Exception], ...] = (OSError,)
if _missing is None:
    _COMPLAINTS += (plyvel.Error,)
_UNREADABLE: tuple[type[Exception], ...] = (*_COMPLAINTS, ValueError)

logger = logging.getLogger(__name__)

MARK: Final = "DAMAGED"
FLUSHES: Final = "FLUSHES"
_FLUSHES_KEY: Final = b"f"


def check_level_db() -> None:
    """Raise ConfigError, saying what to install, when plyvel cannot be imported."""
    if _missing is not None:
        version = ".".join(map(str, sys.version_info[:2]))
        raise ConfigError(
            f"a bookie needs LevelDB's package plyvel, which Python {version} here does not have"
            f" ({_missing}): run `apt-get install g++ python3-dev libleveldb-dev` (macOS: `brew"
            " install leveldb`), then `pip install plyvel`, which compiles it, or take"
            " Python 3.11 or 3.12 on Linux with x86-64, where it need not be compiled"
        ) from _missing


class LevelFiles:
    """LevelDB and the directory of its files, as the machine has them.

    All methods raise OSError, `open` LevelDB's own errors as well.
    """

    def __init__(self, path: Path, write_buffer_bytes: int, block_cache_bytes: int) -> None:
        self._path = path
        self._write_buffer_bytes = write_buffer_bytes
        self._block_cache_bytes = block_cache_bytes

    def open(self) -> Any:
        """Return the database, made if there is none."""
        return plyvel.DB(
            str(self._path),
            create_if_missing=True,
            paranoid_checks=True,  # a log with holes must fail, not be skipped over
            write_buffer_size=self._write_buffer_bytes,
            lru_cache_size=self._block_cache_bytes,
            bloom_filter_bits=10,
            compression=None,  # with it, a table is half as large and takes twice the CPU
        )

    def wipe(self) -> None:
        """Remove everything."""
        if self._path.exists():
            shutil.rmtree(self._path)

    def logs(self) -> list[str]:
        """Return the names of LevelDB's logs, oldest first."""
        return sorted(log.name for log in self._path.glob("*.log"))

    def load(self, name: str) -> bytes | None:
        """Return a small file's content, None if there is no such file."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def save(self, name: str, data: bytes) -> None:
        """Replace a small file in one step, durably, with all names of the directory."""
        replace_file(self._path / name, data)
        sync_dir(self._path)

    def size(self, name: str) -> int:
        """Return a file's size."""
        return (self._path / name).stat().st_size

    def room(self) -> int:
        """Return the bytes that are free."""
        stat = os.statvfs(self._path)
        return stat.f_bavail * stat.f_frsize

    def sync(self, name: str) -> None:
        """Return when what was written to a file is on stable storage."""
        fd = os.open(self._path / name, os.O_RDONLY)
        try:
            sync_data(fd)
        finally:
            os.close(fd)


class _Turnstile:
    """Many threads read a database at a time; who closes it has it alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._is_taken = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._is_taken = True
            self._changed.wait_for(lambda: not self._readers)
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()


class LevelBatch:
    """Changes that happen together or not at all."""

    def __init__(self, store: LevelDb, batch: Any) -> None:
        self._store = store
        self._batch = batch
        self.put = batch.put
        self.delete = batch.delete

    def write(self) -> None:
        """Apply the changes. Raises CorruptIndex, or DiskFull: nothing was applied."""
        with self._store.writing("write"):
            self._batch.write()


class LevelDb:
    """`bookie.storage.index.index.KeyValues` in a directory of LevelDB files."""

    def __init__(
        self,
        path: Path,
        *,
        wipe: bool,
        write_buffer_bytes: int,
        block_cache_bytes: int,
        files: LevelFiles | None = None,
    ) -> None:
        """Open or create. Raises CorruptIndex, DiskFull, or ConfigError when plyvel is missing.

        `files`: the simulator's, which need no plyvel.
        """
        if files is None:
            check_level_db()
        self._path = path
        self._files = files or LevelFiles(path, write_buffer_bytes, block_cache_bytes)
        self._room_bytes = write_buffer_bytes
        """What is to be free, beside a table for the logs there are, when it is opened anew."""
        self._turnstile = _Turnstile()
        self._db: Any = None
        """None while it could not be opened anew."""
        self._is_stuck = False
        """LevelDB found no space: nothing is written before it was opened anew. Known to the
        thread that writes."""
        if wipe:
            self._files.wipe()
        try:
            if self._files.load(MARK) is not None:
                raise CorruptIndex(f"{path} was found damaged when it was last in use")
        except OSError as error:
            raise CorruptIndex(f"cannot read {path}: {error}") from error
        self._open()

    def _open(self) -> None:
        """Open it, and look whether all that was flushed is there."""
        try:
            self._db = self._files.open()
        except _COMPLAINTS as error:
            if _is_no_space(error):
                raise DiskFull(f"no space to open {self._path}: {error}") from error
            # Not marked: it may be open in another process.
            raise CorruptIndex(f"cannot open {self._path}: {error}") from error
        try:
            self._flushes = self._count_flushes()
        except CorruptIndex:
            self._db.close()
            self._db = None
            raise

    @contextmanager
    def _used(self, doing: str) -> Iterator[Any]:
        """Yield the database to somebody who reads. Raises CorruptIndex, DiskFull."""
        with self._turnstile.shared():
            if self._db is None:
                raise DiskFull("the index found no space yet to be opened anew")
            try:
                yield self._db
            except _COMPLAINTS as error:
                raise self._damaged(doing, error) from error

    @contextmanager
    def writing(self, doing: str) -> Iterator[None]:
        """Tell a full disk from damage when LevelDB cannot write."""
        try:
            yield
        except _COMPLAINTS as error:
            if not _is_no_space(error):
                raise self._damaged(doing, error) from error
            self._is_stuck = True
            raise DiskFull(f"no space to {doing} in {self._path}: {error}") from error

    def _damaged(self, doing: str, error: Exception) -> CorruptIndex:
        """Mark the directory, and return what to raise."""
        try:
            self._files.save(MARK, b"")
        except OSError as unmarked:
            # A start will find the same damage as late as this one did, and never less.
            logger.error("index.not_marked error=%s", unmarked)
        return CorruptIndex(f"cannot {doing}: {error}")

    def _come_unstuck(self) -> None:
        """Open LevelDB anew if it found no space. Raises DiskFull, CorruptIndex."""
        if not self._is_stuck:
            return
        try:
            needed = sum(self._files.size(log) for log in self._files.logs()) + self._room_bytes
            room = self._files.room()
        except OSError as error:
            raise self._damaged("look at its files", error) from error
        if room < needed:
            raise DiskFull(f"no space for the index: it needs {needed} bytes, there are {room}")
        with self._turnstile.alone():
            if self._db is not None:
                self._db.close()
                self._db = None
            self._open()
        self._is_stuck = False
        logger.info("index.opened_anew path=%s", self._path)

    def get(self, key: bytes) -> bytes | None:
        with self._used("read") as db:
            value: bytes | None = db.get(key, verify_checksums=True)
        return value

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._used("read") as db:
            yield from db.iterator(start=start, stop=stop, verify_checksums=True)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        with self._used("read") as db:
            yield from db.iterator(
                start=start, stop=stop, include_value=False, verify_checksums=True
            )

    def last_key(self, start: bytes, stop: bytes) -> bytes | None:
        # By hand: plyvel's reverse iterator loses an only key that equals its start.
        with (
            self._used("read") as db,
            closing(db.raw_iterator(verify_checksums=True)) as cursor,
        ):
            cursor.seek(stop)
            if cursor.valid():
                cursor.prev()
            else:
                cursor.seek_to_last()
            key: bytes | None = cursor.key() if cursor.valid() else None
        return key if key is not None and key >= start else None

    def batch(self) -> LevelBatch:
        self._come_unstuck()
        return LevelBatch(self, self._db.write_batch())

    def flush(self) -> None:
        self._come_unstuck()
        flushes = str(self._flushes + 1).encode()
        with self.writing("flush"):
            self._db.put(_FLUSHES_KEY, flushes)
        # Rule SYNC-BY-PATH. An older log may go meanwhile: then a synced table has its records.
        try:
            for log in self._files.logs():
                with suppress(FileNotFoundError):
                    self._files.sync(log)
        except OSError as error:
            raise self._damaged("flush", error) from error
        try:
            self._files.save(FLUSHES, flushes)
        except OSError as error:
            if _is_no_space(error):
                raise DiskFull(f"no space for {self._path / FLUSHES}") from error
            raise self._damaged("flush", error) from error
        self._flushes += 1

    def memory_bytes(self) -> int:
        with self._turnstile.shared():
            if self._db is None or self._db.closed:  # a scrape may come at any time
                return 0
            return int(self._db.get_property(b"leveldb.approximate-memory-usage") or 0)

    def close(self) -> None:
        with self._turnstile.alone():
            if self._db is not None:
                self._db.close()

    def _count_flushes(self) -> int:
        """Return how many flushes the index has. Raises CorruptIndex: fewer than there were."""
        try:
            at_least = int(self._files.load(FLUSHES) or 0)
            flushes = int(self._db.get(_FLUSHES_KEY, verify_checksums=True) or 0)
        except _UNREADABLE as error:
            raise CorruptIndex(f"cannot read {self._path / FLUSHES}: {error}") from error
        if flushes < at_least:
            raise CorruptIndex(f"{self._path} has {flushes} flushes of {at_least}: it lost its end")
        return flushes


def _is_no_space(error: Exception) -> bool:
    """Whether there was no space. LevelDB's errors have no number, only the system's text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in NO_SPACE
    return any(os.strerror(number) in str(error) for number in NO_SPACE)
