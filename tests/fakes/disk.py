"""A disk for bookie tests: files that forget what was not synced, and commits a test can hold.

The content model is the simulator's `Volume`. Lanes run on the next turn of the loop; with
`hold` set, groups stay in flight until the test lets them go, so that a test can look at a bookie
between accepting and syncing, or kill it there.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from bookie.errors import DiskFailed, DiskFull
from bookie.storage.core.append_log import LogWrite, file_name
from bookie.storage.disk import Usage
from client.wire.bookkeeper.messages import Buffer
from tests.simulation.machine.volume import SimFile, Volume

T = TypeVar("T")


class CrashDisk:
    """`bookie.storage.disk.Disk` over a volume that outlives it."""

    reader_threads = 4

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.hold = False
        """Keep groups in flight until `release`."""
        self.flying: list[tuple[LogWrite, asyncio.Future[None]]] = []
        self._is_dead = False
        self._has_failed = False

    def kill(self) -> None:
        """The process is gone: nothing of it touches the volume any more."""
        self._is_dead = True

    def names(self) -> list[str]:
        return sorted(self.volume.files)

    def size(self, name: str) -> int:
        return len(self._file(name).cached)

    def read(self, name: str, position: int, size: int) -> bytes:
        return self._file(name).read(position, size)

    def read_pieces(self, name: str, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(name, position, size) for position, size in pieces]

    def truncate(self, name: str, size: int) -> None:
        file = self._file(name)
        if len(file.cached) > size:
            file.truncate(size)
        file.synced(len(file.dirty))

    def uncache(self, name: str) -> None:
        self._file(name).uncache()

    def load(self, name: str) -> bytes | None:
        file = self.volume.files.get(name)
        return None if file is None else bytes(file.cached)

    def save(self, name: str, data: bytes) -> None:
        new = self.volume.create(name + ".new")
        try:
            new.write(0, data)
        except OSError as error:
            raise DiskFull(f"no space for {name}") from error
        new.synced(len(new.dirty))
        self.volume.rename(name + ".new", name)
        self.volume.sync_names()

    def write(self, name: str, position: int, buffers: list[Buffer]) -> None:
        if position == 0 and name not in self.volume.files:
            self.volume.create(name)
        file = self._file(name)
        for buffer in buffers:
            file.write(position, bytes(buffer))
            position += len(buffer)
        file.synced(len(file.dirty))
        self.volume.sync_names("log")

    def remove(self, name: str) -> None:
        if name in self.volume.files:
            self.volume.delete(name)
        self.volume.sync_names("log")

    def usage(self) -> Usage:
        return Usage(self.volume.capacity_bytes, self.volume.free_bytes)

    def close(self) -> None:
        self.kill()

    def commit(self, write: LogWrite) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flying.append((write, future))
        if not self.hold:
            asyncio.get_running_loop().call_soon(self.release)
        return future

    def write_without_sync(self) -> None:
        """Let the group in flight reach the kernel, but not the device."""
        self._write(self.flying[0][0])

    def release(self) -> None:
        """Write and sync the group in flight."""
        if self._is_dead or not self.flying:
            return
        write, future = self.flying.pop(0)
        try:
            if self._has_failed:
                raise DiskFailed("an earlier sync failed")
            file = self._write(write)
            if self.volume.take_sync_failure():
                file.sync_failed()
                self._has_failed = True
                raise DiskFailed("sync failed")
            file.synced(len(file.dirty))
        except (DiskFull, DiskFailed) as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    def index_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        return self._soon(job)

    def reader_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        return self._soon(job)

    def _soon(self, job: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            if self._is_dead or future.done():
                return
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)

        asyncio.get_running_loop().call_soon(run)
        return future

    def _write(self, write: LogWrite) -> SimFile:
        name = file_name(write.number)
        if write.creates:
            if write.sealed_size is not None:
                self.truncate(file_name(write.number - 1), write.sealed_size)
            self.volume.create(name)
            self.volume.sync_names("log")
        file = self._file(name)
        position = write.position
        try:
            for buffer in write.buffers:
                file.write(position, bytes(buffer))
                position += len(buffer)
        except OSError as error:
            file.truncate(min(write.position, len(file.cached)))
            raise DiskFull(f"no space for {write.size} bytes") from error
        return file

    def _file(self, name: str) -> SimFile:
        try:
            return self.volume.files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None
