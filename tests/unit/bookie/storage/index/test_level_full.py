"""The real LevelDB on a full disk: it complains, loses nothing, and goes on when there is room.

Two things stand in for a full disk, without a mount: tables that are links to /dev/full, and the
kernel's limit on the size of files, which a log meets in the middle of a record.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookie.errors import CorruptIndex, DiskFull
from bookie.storage.index import level_db

BUFFER_BYTES = 1 << 16


def opened(folder: Path) -> level_db.LevelDb:
    return level_db.LevelDb(
        folder, wipe=False, write_buffer_bytes=BUFFER_BYTES, block_cache_bytes=0
    )


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let every write fail that would make a file longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def put(store: level_db.LevelDb, number: int, size: int = 500) -> None:
    batch = store.batch()
    batch.put(b"e%08d" % number, bytes(size))
    batch.write()


def numbers(store: level_db.LevelDb) -> list[int]:
    return [int(key[1:]) for key in store.keys(b"e", b"f")]


def fail_a_table(store: level_db.LevelDb, folder: Path, target: str) -> int:
    """Write until a table failed, and a write said so; return how many were written."""
    count = 0
    newest = max(int(name[:6]) for name in store._files.logs())
    tables = [folder / f"{newest + more:06}.ldb" for more in range(1, 40)]
    for table in tables:
        table.symlink_to(target)
    try:
        while True:
            put(store, count)
            count += 1
    except DiskFull:
        return count
    finally:
        for table in tables:
            table.unlink(missing_ok=True)


def test_a_table_that_finds_no_space_is_no_damage(tmp_path: Path) -> None:
    store = opened(tmp_path)
    count = fail_a_table(store, tmp_path, "/dev/full")
    assert numbers(store) == list(range(count)), "it goes on answering"
    assert not (tmp_path / level_db.MARK).exists()
    put(store, count)
    store.flush()
    assert numbers(store) == list(range(count + 1)), "and takes more when there is room"
    store.close()
    store = opened(tmp_path)
    assert numbers(store) == list(range(count + 1))
    store.close()


def test_a_table_that_fails_for_another_reason_is_damage(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(CorruptIndex, match="Is a directory"):
        fail_a_table(store, tmp_path, "/")
    store.close()
    with pytest.raises(CorruptIndex, match="found damaged"):
        opened(tmp_path)


@pytest.mark.parametrize("left", [0, 1, 6, 7, 8, 100, 499, 519, 600])
@pytest.mark.parametrize("size", [500, 70_000], ids=["one block", "blocks"])
def test_a_record_that_fits_by_half_is_not_followed_by_another(
    tmp_path: Path, left: int, size: int
) -> None:
    """Behind half of a record LevelDB would find nothing, or damage."""
    store = opened(tmp_path)
    for number in range(5):
        put(store, number)
    store.flush()
    (log,) = store._files.logs()
    with no_file_beyond(store._files.size(log) + left):
        with pytest.raises(DiskFull):
            for number in range(5, 8):
                put(store, number, size)
        had = numbers(store)
    put(store, 100)
    put(store, 101)
    store.flush()
    assert numbers(store) == [*had, 100, 101]
    store.close()
    store = opened(tmp_path)
    assert numbers(store) == [*had, 100, 101]
    store.close()


def test_a_flush_that_finds_no_space_counts_for_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 0)
    with no_file_beyond(0), pytest.raises(DiskFull):
        store.flush()
    store.flush()
    assert (tmp_path / level_db.FLUSHES).read_bytes() == b"1"
    store.close()
    opened(tmp_path).close()


def test_no_space_for_the_count_of_flushes_is_no_damage(tmp_path: Path, monkeypatch) -> None:
    store = opened(tmp_path)
    save = level_db.LevelFiles.save

    def fail(files: level_db.LevelFiles, name: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(level_db.LevelFiles, "save", fail)
    with pytest.raises(DiskFull):
        store.flush()
    monkeypatch.setattr(level_db.LevelFiles, "save", save)
    store.flush()
    store.close()
    opened(tmp_path).close()


def test_a_sync_that_finds_no_space_is_damage(tmp_path: Path, monkeypatch) -> None:
    """The kernel may have dropped what it could not write: who tries again believes too much."""
    store = opened(tmp_path)

    def fail(files: level_db.LevelFiles, name: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(level_db.LevelFiles, "sync", fail)
    with pytest.raises(CorruptIndex):
        store.flush()
    store.close()


def test_no_space_to_open_it_is_no_damage(tmp_path: Path) -> None:
    """A start would make the index anew, on a full disk."""
    store = opened(tmp_path)
    for number in range(20):
        put(store, number)
    store.close()
    with no_file_beyond(100), pytest.raises(DiskFull):
        opened(tmp_path)
    store = opened(tmp_path)
    assert numbers(store) == list(range(20))
    store.close()


def test_it_waits_for_the_room_that_opening_it_anew_takes(tmp_path: Path, monkeypatch) -> None:
    store = opened(tmp_path)
    count = fail_a_table(store, tmp_path, "/dev/full")
    room = sum(map(store._files.size, store._files.logs())) + BUFFER_BYTES
    with monkeypatch.context() as patch:
        patch.setattr(store._files, "room", lambda: room - 1)
        with pytest.raises(DiskFull, match="there are"):
            store.batch()
        assert numbers(store) == list(range(count)), "it is open still"
        patch.setattr(store._files, "room", lambda: room)
        put(store, count)
    assert numbers(store) == list(range(count + 1))
    store.close()


def test_while_it_cannot_be_opened_anew_nothing_is_said_to_be_absent(tmp_path: Path) -> None:
    store = opened(tmp_path)
    count = fail_a_table(store, tmp_path, "/dev/full")
    with no_file_beyond(100), pytest.raises(DiskFull, match="no space to open"):
        store.batch()
    for ask in (
        lambda: store.get(b"e"),
        lambda: list(store.scan(b"e", b"f")),
        lambda: list(store.keys(b"e", b"f")),
        lambda: store.last_key(b"e", b"f"),
    ):
        with pytest.raises(DiskFull):
            ask()
    assert store.memory_bytes() == 0
    put(store, count)
    assert numbers(store) == list(range(count + 1))
    store.close()


def test_nobody_reads_from_what_is_being_closed(tmp_path: Path) -> None:
    """A read on another thread, in the middle of a list, is waited for."""
    store = opened(tmp_path)
    count = fail_a_table(store, tmp_path, "/dev/full")
    reading = store.keys(b"e", b"f")
    assert next(reading) == b"e%08d" % 0
    opening = threading.Thread(target=put, args=(store, count))
    opening.start()
    while not store._turnstile._is_taken:
        pass
    found = [int(key[1:]) for key in reading]
    assert found == list(range(1, count))
    opening.join()
    assert numbers(store) == list(range(count + 1))
    store.close()
