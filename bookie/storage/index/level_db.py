"""LevelDB as the key-value store below the index: the only importer of plyvel.

Writes are not synced; `flush` is what makes them survive a power loss: it syncs LevelDB's own log.
A table is written only when the memory table is full: each one is merged with all tables whose keys
lie between its own, and those of one checkpoint lie in as many places as there are ledgers that
grow. LevelDB takes a log whose end is damaged for one that was being written, and opens without it:
so flushes are counted in the log, and the file FLUSHES has the count too.

Any complaint of LevelDB is a CorruptIndex: the index is a cache of the log and can be made again. A
complaint about an open database also leaves the file DAMAGED beside its tables, and such a
directory does not open any more: the next start makes the index anew, instead of failing the same
reads again.

plyvel is published ready-made for Python 3.11 and 3.12 on Linux with x86-64 only. Elsewhere it
has to be compiled, so it may be missing where everything else is there: `check_level_db` says it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from bookie.errors import CorruptIndex
from bookie.storage.disk import replace_file
from client.errors import ConfigError

_missing: ImportError | None = None
try:
    import plyvel
except ImportError as error:  # also when it was compiled for a LevelDB that is gone
    _missing = error

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
            " install leveldb`), then `pip install 'quire[bookie]'`, which compiles it, or take"
            " Python 3.11 or 3.12 on Linux with x86-64, where it need not be compiled"
        ) from _missing


class _Complaints:
    """Turns LevelDB's complaints into CorruptIndex, and marks the directory they are about."""

    def __init__(self, path: Path) -> None:
        self._mark = path / MARK

    @contextmanager
    def heard(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (plyvel.Error, OSError) as error:
            with suppress(OSError):
                self._mark.touch()
            raise CorruptIndex(f"cannot {doing}: {error}") from error


class LevelBatch:
    """Changes that happen together or not at all."""

    def __init__(self, db: plyvel.DB, complaints: _Complaints) -> None:
        self._batch = db.write_batch()
        self._complaints = complaints
        self.put = self._batch.put
        self.delete = self._batch.delete

    def write(self) -> None:
        """Apply the changes. Raises CorruptIndex."""
        with self._complaints.heard("write"):
            self._batch.write()


class LevelDb:
    """`bookie.storage.index.key_values.KeyValues` in a directory of LevelDB files."""

    def __init__(
        self, path: Path, *, wipe: bool, write_buffer_bytes: int, block_cache_bytes: int
    ) -> None:
        """Open or create. Raises CorruptIndex, or ConfigError when plyvel is missing."""
        check_level_db()
        if wipe and path.exists():
            shutil.rmtree(path)
        if (path / MARK).exists():
            raise CorruptIndex(f"{path} was found damaged when it was last in use")
        self._path = path
        self._complaints = _Complaints(path)
        try:
            self._db = plyvel.DB(
                str(path),
                create_if_missing=True,
                paranoid_checks=True,  # a log with holes must fail, not be skipped over
                write_buffer_size=write_buffer_bytes,
                lru_cache_size=block_cache_bytes,
                bloom_filter_bits=10,
                compression=None,  # with it, a table is half as large and takes twice the CPU
            )
        except (plyvel.Error, OSError) as error:
            # Not marked: it may be open in another process.
            raise CorruptIndex(f"cannot open {path}: {error}") from error
        try:
            self._flushes = self._count_flushes()
        except CorruptIndex:
            self.close()
            raise

    def get(self, key: bytes) -> bytes | None:
        with self._complaints.heard("read"):
            value: bytes | None = self._db.get(key, verify_checksums=True)
        return value

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._complaints.heard("read"):
            yield from self._db.iterator(start=start, stop=stop, verify_checksums=True)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        with self._complaints.heard("read"):
            yield from self._db.iterator(
                start=start, stop=stop, include_value=False, verify_checksums=True
            )

    def last_key(self, start: bytes, stop: bytes) -> bytes | None:
        # By hand: plyvel's reverse iterator loses an only key that equals its start.
        with (
            self._complaints.heard("read"),
            closing(self._db.raw_iterator(verify_checksums=True)) as cursor,
        ):
            cursor.seek(stop)
            if cursor.valid():
                cursor.prev()
            else:
                cursor.seek_to_last()
            key: bytes | None = cursor.key() if cursor.valid() else None
        return key if key is not None and key >= start else None

    def batch(self) -> LevelBatch:
        return LevelBatch(self._db, self._complaints)

    def flush(self) -> None:
        # LevelDB's log has its records in order, so the newest one syncs all before it. An older
        # log is removed only when its records are in a synced table: until then it may not have
        # been synced itself, and compacting a range without keys waits for that table.
        flushes = str(self._flushes + 1).encode()
        with self._complaints.heard("flush"):
            self._db.put(_FLUSHES_KEY, flushes, sync=True)
            if len(list(self._path.glob("*.log"))) > 1:
                self._db.compact_range(start=b"\xff", stop=b"\xff\xff")
            replace_file(self._path / FLUSHES, flushes)
        self._flushes += 1

    def memory_bytes(self) -> int:
        try:
            return int(self._db.get_property(b"leveldb.approximate-memory-usage") or 0)
        except (plyvel.Error, RuntimeError):  # closed: a scrape may come at any time
            return 0

    def close(self) -> None:
        self._db.close()

    def _count_flushes(self) -> int:
        """Return how many flushes the index has. Raises CorruptIndex: fewer than there were."""
        file = self._path / FLUSHES
        try:
            at_least = int(file.read_bytes()) if file.exists() else 0
            flushes = int(self.get(_FLUSHES_KEY) or 0)
        except (OSError, ValueError) as error:
            raise CorruptIndex(f"cannot read {file}: {error}") from error
        if flushes < at_least:
            raise CorruptIndex(f"{self._path} has {flushes} flushes of {at_least}: it lost its end")
        return flushes
