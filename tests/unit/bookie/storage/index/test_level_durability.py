"""What a flush of LevelDB promises, on real files: tables that cannot be written, and a power loss.

Files are cut to what was synced, and names that no sync of their directory covered are gone: that
is what a power loss leaves at the worst.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie.errors import CorruptIndex
from bookie.storage import replay
from bookie.storage.core.append_log import Location, LogPosition
from bookie.storage.index import level_db
from bookie.storage.index.index import Index, Tally
from bookie.storage.index.indexer import Checkpoint, LogFile
from client.ids import EntryId, LedgerId

BUFFER_BYTES = 1 << 16
LEDGER = LedgerId(7)


class Platter:
    """What of a folder would survive a power loss."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sizes: dict[str, int] = {}
        self.names: set[str] = set()

    def file_synced(self, name: str) -> None:
        self.sizes[name] = (self.folder / name).stat().st_size

    def names_synced(self) -> None:
        self.names = set(os.listdir(self.folder))

    def after_a_power_loss(self, copy: Path) -> Path:
        """Return a folder with what is left."""
        copy.mkdir()
        for file in self.folder.iterdir():
            # LevelDB syncs its tables, and what it knows of them, by itself.
            if file.suffix == ".log":
                if file.name in self.names:
                    (copy / file.name).write_bytes(
                        file.read_bytes()[: self.sizes.get(file.name, 0)]
                    )
            elif file.name != "LOCK" and not file.is_symlink():
                shutil.copy(file, copy)
        return copy


@pytest.fixture
def platter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platter]:
    platter = Platter(tmp_path / "index")
    sync, sync_dir = level_db.LevelFiles.sync, level_db.sync_dir

    def note_sync(files: level_db.LevelFiles, name: str) -> None:
        sync(files, name)
        platter.file_synced(name)

    def note_names(folder: Path) -> None:
        sync_dir(folder)
        platter.names_synced()

    monkeypatch.setattr(level_db.LevelFiles, "sync", note_sync)
    monkeypatch.setattr(level_db, "sync_dir", note_names)
    yield platter


def opened(folder: Path) -> level_db.LevelDb:
    return level_db.LevelDb(
        folder, wipe=False, write_buffer_bytes=BUFFER_BYTES, block_cache_bytes=0
    )


def fill(store: level_db.LevelDb, begin: int) -> int:
    """Write until the next write needs another log; return the next number."""
    number = begin
    while store.memory_bytes() <= BUFFER_BYTES:
        batch = store.batch()
        batch.put(b"e%08d" % number, bytes(500))
        batch.write()
        number += 1
    return number


def let_tables_fail(folder: Path, target: str | Path) -> None:
    """No table can be written any more; with /dev/full because there is no space, and with a pipe
    not before somebody opens it."""
    newest = max(int(file.stem) for file in folder.glob("*.log"))
    for number in range(newest + 1, newest + 20):
        (folder / f"{number:06}.ldb").symlink_to(target)


def wait_for_the_failure(folder: Path) -> None:
    """Return when LevelDB has noted that a table failed; it says so nowhere else."""
    while b"ldb: " not in (folder / "LOG").read_bytes():
        pass


@pytest.mark.parametrize("target", ["/dev/full", "/"], ids=["full", "broken"])
def test_a_flush_syncs_the_log_whose_table_could_not_be_written(
    tmp_path: Path, platter: Platter, target: str
) -> None:
    """LevelDB needs that log still, never synced it, and says nothing before the next write."""
    store = opened(platter.folder)
    store.flush()
    count = fill(store, 0)
    let_tables_fail(platter.folder, target)
    store.flush()
    wait_for_the_failure(platter.folder)
    assert len(list(platter.folder.glob("*.log"))) == 2
    again = opened(platter.after_a_power_loss(tmp_path / "copy"))
    assert len(list(again.keys(b"e", b"f"))) == count
    again.close()
    store.close()


def test_an_index_that_a_checkpoint_relies_on_has_every_entry(
    tmp_path: Path, platter: Platter
) -> None:
    """In the order of the index jobs: many groups, then the one that takes a checkpoint."""
    store = opened(platter.folder)
    index = Index(store)
    index.flush()
    count = 0

    def write() -> LogPosition:
        nonlocal count
        places = [(LEDGER, EntryId(n), Location(1, n, 10)) for n in range(count, count + 100)]
        count += 100
        index.write(places, [], LogPosition(1, count))
        return LogPosition(1, count)

    while store.memory_bytes() <= BUFFER_BYTES:
        write()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    let_tables_fail(platter.folder, pipe)
    end = write()
    index.set_tallies([(1, Tally())])
    index.flush()
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    wait_for_the_failure(platter.folder)
    checkpoint = Checkpoint(1, end, 9, (LogFile(1, 0),))
    copy = platter.after_a_power_loss(tmp_path / "copy")
    accepted = replay._open_index(lambda wipe: Index(opened(copy)), checkpoint)
    assert accepted is not None
    assert accepted.places.entry_ids(LEDGER) == list(range(count))
    accepted.close()
    index.close()


def test_every_flush_syncs_the_names_of_new_logs(tmp_path: Path, platter: Platter) -> None:
    store = opened(platter.folder)
    for n in range(5):
        fill(store, 1000 * n)
        batch = store.batch()
        batch.put(b"e-last%d" % n, b"")
        batch.write()
        store.flush()
        assert set(store._files.logs()) <= platter.names
        while len(store._files.logs()) > 1:
            pass  # a table is being made of the older one: nothing to copy before that is over
        copy = platter.after_a_power_loss(tmp_path / f"copy{n}")
        again = opened(copy)
        assert again.get(b"e-last%d" % n) == b""
        again.close()
    store.close()


def test_a_log_that_went_meanwhile_needs_no_sync(platter: Platter, monkeypatch) -> None:
    """Its table is synced, else LevelDB would have kept it."""
    store = opened(platter.folder)
    logs = store._files.logs
    monkeypatch.setattr(store._files, "logs", lambda: ["000001.log", *logs()])
    store.flush()
    store.close()


def test_a_log_that_cannot_be_synced_is_damage(platter: Platter, monkeypatch) -> None:
    """After a failed sync nobody knows what is durable, whatever later syncs say."""
    store = opened(platter.folder)
    store.flush()

    def fail(files: level_db.LevelFiles, name: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(level_db.LevelFiles, "sync", fail)
    with pytest.raises(CorruptIndex, match="cannot flush"):
        store.flush()
    store.close()
    assert level_db.MARK in platter.names, "the mark survives a power loss"
    with pytest.raises(CorruptIndex, match="found damaged"):
        opened(platter.folder)


def test_a_mark_that_cannot_be_made_hides_no_damage(
    platter: Platter, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(platter.folder)

    def fail(files: level_db.LevelFiles, name: str, data: bytes = b"") -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(level_db.LevelFiles, "sync", fail)
    monkeypatch.setattr(level_db.LevelFiles, "save", fail)
    with pytest.raises(CorruptIndex, match="cannot flush"):
        store.flush()
    assert "index.not_marked" in caplog.text
    store.close()
