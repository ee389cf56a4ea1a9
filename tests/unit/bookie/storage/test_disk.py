"""The real disk: durable groups, preallocation, full disk, failing syncs, locking."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookie.errors import DiskFailed, DiskFull
from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    AppendLog,
    Kind,
    LogPosition,
    LogWrite,
    file_name,
    seed_of,
    unpack_record,
)
from bookie.storage.disk import RealDisk
from client.errors import ConfigError

PREALLOCATE = 1 << 16


def open_disk(path: Path, *, free_bytes_min: int = 0) -> RealDisk:
    return RealDisk(
        path, preallocate_bytes=PREALLOCATE, free_bytes_min=free_bytes_min, reader_threads=2
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    disk = open_disk(tmp_path)
    yield disk
    disk.close()


def make_log(file_bytes_max: int = 1 << 20) -> AppendLog:
    end = LogPosition(1, FILE_HEADER_BYTES)
    return AppendLog(end, group=1, salt=7, file_bytes_max=file_bytes_max, creates_after=0)


def group(log: AppendLog, *bodies: bytes, kind: Kind = Kind.ENTRY) -> LogWrite:
    for body in bodies:
        log.append(kind, body)
    return log.take()


def content(path: Path, write: LogWrite) -> bytes:
    data = (path / file_name(write.number)).read_bytes()
    return data[write.position : write.position + write.size]


async def test_groups_are_written_where_they_belong(disk: RealDisk, tmp_path: Path) -> None:
    log = make_log()
    for bodies in ([b"a"], [b"b" * 100, b"c"], [bytes(PREALLOCATE * 2)], [b"d"] * 1500):
        write = group(log, *bodies)
        await disk.commit(write)
        assert content(tmp_path, write) == b"".join(write.buffers)
    name = file_name(1)
    assert disk.names() == ["LOCK", name]
    assert disk.size(name) >= write.end.position
    record = unpack_record(memoryview(disk.read(name, FILE_HEADER_BYTES, 1000)), seed_of(7))
    assert record is not None
    assert record.body == b"a"


async def test_every_commit_is_synced(disk: RealDisk, monkeypatch) -> None:
    synced: list[str] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        synced.append(threading.current_thread().name)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    log = make_log()
    await disk.commit(group(log, b"a"))
    await disk.commit(group(log, b"b"))
    assert len(synced) == 2
    assert all(name.startswith("log") for name in synced)


async def test_short_writes_are_continued(disk: RealDisk, tmp_path: Path, monkeypatch) -> None:
    def pwritev(fd: int, buffers, position: int) -> int:
        return os.pwrite(fd, b"".join(buffers)[:5], position)

    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", pwritev)
    write = group(make_log(), b"hello", b"world")
    await disk.commit(write)
    assert content(tmp_path, write) == b"".join(write.buffers)
    assert os.pwrite is real_pwrite


async def test_a_complete_file_is_cut_to_its_size(disk: RealDisk) -> None:
    log = make_log(file_bytes_max=500)
    first = group(log, bytes(600))
    await disk.commit(first)
    assert disk.size(file_name(1)) > first.end.position
    await disk.commit(group(log, b"next file"))
    assert disk.size(file_name(1)) == first.end.position
    assert disk.names() == ["LOCK", file_name(1), file_name(2)]


async def test_an_existing_file_is_continued(disk: RealDisk, tmp_path: Path) -> None:
    log = make_log()
    await disk.commit(group(log, b"a"))
    disk.close()
    again = open_disk(tmp_path)
    end = LogPosition(log.number, log.position)
    resumed = AppendLog(end, group=9, salt=7, file_bytes_max=1 << 20)
    write = group(resumed, b"b")
    await again.commit(write)
    assert content(tmp_path, write) == b"".join(write.buffers)
    again.close()
    disk.__init__(  # the fixture closes it once more
        tmp_path, preallocate_bytes=0, free_bytes_min=0, reader_threads=1
    )


@pytest.mark.parametrize("call", ["posix_fallocate", "pwritev"])
async def test_no_space_leaves_the_log_as_it_was(
    disk: RealDisk, tmp_path: Path, monkeypatch, call: str
) -> None:
    log = make_log()
    first = group(log, b"kept")
    await disk.commit(first)
    failed = group(log, bytes(PREALLOCATE))

    def no_space(*args: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_space)
        with pytest.raises(DiskFull):
            await disk.commit(failed)
    assert disk.size(file_name(1)) == first.end.position
    log.rewind(failed)
    retried = group(log, b"second try")
    await disk.commit(retried)
    assert retried.position == first.end.position
    assert content(tmp_path, first) == b"".join(first.buffers)
    assert content(tmp_path, retried) == b"".join(retried.buffers)


async def test_no_space_for_a_new_file_can_be_tried_again(disk: RealDisk, monkeypatch) -> None:
    log = make_log()
    failed = group(log, b"a")

    def no_space(*args: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_space)
        with pytest.raises(DiskFull):
            await disk.commit(failed)
    log.rewind(failed)
    await disk.commit(group(log, b"a"))


async def test_the_reserve_is_for_fences(tmp_path: Path) -> None:
    disk = open_disk(tmp_path, free_bytes_min=1 << 60)
    log = make_log()
    refused = group(log, b"an entry")
    with pytest.raises(DiskFull):
        await disk.commit(refused)
    log.rewind(refused)
    await disk.commit(group(log, b"a fence", kind=Kind.FENCE))
    disk.close()


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
async def test_after_any_other_failure_nothing_is_written_again(
    disk: RealDisk, monkeypatch, call: str
) -> None:
    log = make_log()
    await disk.commit(group(log, b"a"))

    def broken(*args: object) -> int:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(DiskFailed):
            await disk.commit(group(log, b"b"))
    with pytest.raises(DiskFailed):
        await disk.commit(group(log, b"c"))


async def test_no_space_during_a_sync_is_a_failure(disk: RealDisk, monkeypatch) -> None:
    def no_space(fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fdatasync", no_space)
    with pytest.raises(DiskFailed):
        await disk.commit(group(make_log(), b"a"))


def test_small_files_are_replaced_in_one_step(disk: RealDisk, tmp_path: Path) -> None:
    assert disk.load("CHECKPOINT") is None
    disk.save("CHECKPOINT", b"one")
    disk.save("CHECKPOINT", b"two")
    assert disk.load("CHECKPOINT") == b"two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CHECKPOINT", "LOCK", "log"]


def test_other_files_are_written_in_pieces_and_removed(disk: RealDisk, tmp_path: Path) -> None:
    name = file_name(2**31)
    disk.write(name, 0, [bytes(4), b"first "])
    disk.write(name, 10, [b"second"])
    disk.write(name, 0, [b"head"])
    assert (tmp_path / name).read_bytes() == b"headfirst second"
    with pytest.raises(FileNotFoundError):
        disk.write(file_name(3), 10, [b"in the middle of nothing"])
    disk.remove(name)
    disk.remove(name)
    assert disk.names() == ["LOCK"]


def test_no_space_for_a_small_file_leaves_the_old_one(disk: RealDisk, monkeypatch) -> None:
    disk.save("CHECKPOINT", b"old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull):
            disk.save("CHECKPOINT", b"new")
    assert disk.load("CHECKPOINT") == b"old"


def test_truncate_uncache_and_reads_at_the_end(disk: RealDisk, tmp_path: Path) -> None:
    name = file_name(1)
    (tmp_path / name).write_bytes(b"0123456789")
    disk.truncate(name, 20)
    assert disk.size(name) == 10
    disk.truncate(name, 6)
    disk.uncache(name)
    assert disk.read(name, 4, 10) == b"45"
    assert disk.read(name, 9, 10) == b""
    with pytest.raises(FileNotFoundError):
        disk.read(file_name(2), 0, 1)
    with pytest.raises(FileNotFoundError):
        disk.read_pieces(file_name(2), [(0, 1)])


def test_pieces_of_a_file_are_read_with_one_opening(
    disk: RealDisk, tmp_path: Path, monkeypatch
) -> None:
    name = file_name(1)
    (tmp_path / name).write_bytes(b"0123456789")
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda *args: (opened.append(args), real(*args))[1])
    assert disk.read_pieces(name, [(4, 2), (0, 3), (8, 5), (10, 1)]) == [b"45", b"012", b"89", b""]
    assert len(opened) == 1


def test_short_reads_are_continued(disk: RealDisk, tmp_path: Path, monkeypatch) -> None:
    name = file_name(1)
    (tmp_path / name).write_bytes(b"0123456789")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))
    assert disk.read(name, 1, 8) == b"12345678"
    assert disk.read(name, 5, 80) == b"56789"


async def test_jobs_run_off_the_loop(disk: RealDisk) -> None:
    assert (await disk.index_job(threading.current_thread)).name.startswith("index")
    assert (await disk.reader_job(threading.current_thread)).name.startswith("reader")
    usage = await disk.reader_job(disk.usage)
    assert 0 < usage.free < usage.total


def test_a_directory_serves_one_bookie(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another bookie"):
        open_disk(tmp_path)


def test_an_impossible_directory_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use"):
        open_disk(tmp_path / "file")
