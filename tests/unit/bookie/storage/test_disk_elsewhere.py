"""The disk on systems that lack Linux's calls: what is durable must be so there, too."""

from __future__ import annotations

import errno
import fcntl
import os
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
)
from bookie.storage.disk import RealDisk, sync_data

FULL_SYNC = 51
"""F_FULLFSYNC on macOS."""


class Mac:
    """Counts the syncs of a system without fdatasync, on which fsync is not enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full_syncs = 0
        self.plain_syncs = 0
        self.error: int | None = None
        self._fcntl, self._fsync = fcntl.fcntl, os.fsync
        for call in ("fdatasync", "posix_fallocate", "posix_fadvise"):
            monkeypatch.delattr(os, call)
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", self._on_fcntl)
        monkeypatch.setattr(os, "fsync", self._on_fsync)

    def _on_fcntl(self, fd: int, command: int, argument: int = 0) -> int:
        if command != FULL_SYNC:
            return self._fcntl(fd, command, argument)
        if self.error is not None:
            raise OSError(self.error, "no")
        self.full_syncs += 1
        self._fsync(fd)
        return 0

    def _on_fsync(self, fd: int) -> None:
        self.plain_syncs += 1
        self._fsync(fd)


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Mac:
    return Mac(monkeypatch)


def open_disk(path: Path, *, free_bytes_min: int = 0) -> RealDisk:
    return RealDisk(
        path, preallocate_bytes=1 << 16, free_bytes_min=free_bytes_min, reader_threads=1
    )


def make_log() -> AppendLog:
    end = LogPosition(1, FILE_HEADER_BYTES)
    return AppendLog(end, group=1, salt=7, file_bytes_max=1 << 20, creates_after=0)


def group(log: AppendLog, body: bytes) -> LogWrite:
    log.append(Kind.ENTRY, body)
    return log.take()


async def test_every_sync_reaches_the_drive(mac: Mac, tmp_path: Path) -> None:
    disk, log = open_disk(tmp_path), make_log()
    await disk.commit(group(log, b"the first one makes the file"))
    before = mac.full_syncs
    await disk.commit(group(log, b"an entry"))
    assert mac.full_syncs == before + 1
    disk.save("CHECKPOINT", b"state")
    assert mac.full_syncs == before + 3, "the file, and the directory that names it"
    disk.write(file_name(9), 0, [b"copied"])
    disk.truncate(file_name(9), 3)
    assert mac.full_syncs == before + 6
    assert mac.plain_syncs == 0
    disk.close()


async def test_without_allocation_groups_are_written_all_the_same(mac: Mac, tmp_path: Path) -> None:
    disk, log = open_disk(tmp_path), make_log()
    writes = [group(log, bytes([i]) * 50_000) for i in range(4)]
    for write in writes:
        await disk.commit(write)
    name = file_name(1)
    assert disk.size(name) == writes[-1].end.position, "nothing is allocated ahead"
    for write in writes:
        assert disk.read(name, write.position, write.size) == b"".join(write.buffers)
    disk.uncache(name)
    disk.close()


async def test_the_reserve_is_kept_without_allocation(mac: Mac, tmp_path: Path) -> None:
    disk = open_disk(tmp_path, free_bytes_min=1 << 60)
    with pytest.raises(DiskFull):
        await disk.commit(group(make_log(), b"an entry"))
    disk.close()


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_the_call_gets_the_plain_one(
    mac: Mac, tmp_path: Path, number: int
) -> None:
    mac.error = number
    with (tmp_path / "file").open("wb") as file:
        sync_data(file.fileno())
    assert mac.plain_syncs == 1


async def test_a_device_that_fails_is_not_asked_in_a_weaker_way(mac: Mac, tmp_path: Path) -> None:
    disk, log = open_disk(tmp_path), make_log()
    await disk.commit(group(log, b"a"))
    mac.error = errno.EIO
    with pytest.raises(DiskFailed):
        await disk.commit(group(log, b"b"))
    assert mac.plain_syncs == 0
    mac.error = None
    with pytest.raises(DiskFailed):
        await disk.commit(group(log, b"c"))
    disk.close()


def test_where_there_is_neither_call_fsync_is_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    with (tmp_path / "file").open("wb") as file:
        sync_data(file.fileno())
        assert synced == [file.fileno()]
