"""`bookie.storage.disk.Disk` over a simulated volume: the same lanes, on virtual time, no threads.

Like the real one it writes and syncs groups on a lane of its own, one at a time, runs index jobs
in order and cold reads in parallel; each job is one atomic step at a random moment. What the
volume then does at a kill, a power loss or a failed sync is the business of `volume.py`.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from bookie.errors import DiskFailed, DiskFull
from bookie.storage.core.append_log import file_name
from bookie.storage.disk import Usage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from bookie.storage.core.append_log import LogWrite
    from client.wire.bookkeeper.messages import Buffer
    from tests.simulation.bookies.swarm import DiskOptions
    from tests.simulation.machine.volume import SimFile, Volume

from tests.simulation.machine.volume import directory_of

T = TypeVar("T")

_LONGEST_S = 3.0
"""No operation takes longer, so that a healed disk is soon a quick one."""


class DiskTimes:
    """Delays of one host's disk; `factor` slows everything down."""

    def __init__(self, rng: random.Random, options: DiskOptions) -> None:
        self._random = rng.random
        self.options = options
        self.factor = 1.0

    def draw_s(self, mean_s: float) -> float:
        """Draw how long an operation takes."""
        options = self.options
        delay = -mean_s * math.log(1.0 - self._random())
        if options.tail_p and self._random() < options.tail_p:
            delay -= options.tail_s * math.log(1.0 - self._random())
        return min(delay * self.factor, _LONGEST_S)


class SimDisk:
    """The data directory of one bookie process.

    Every elementary operation counts as a step, after which the power may fail: that finds the
    moments in the middle of a job that a loop of callbacks never stops at.
    """

    reader_threads = 4

    def __init__(
        self,
        volume: Volume,
        times: DiskTimes,
        *,
        free_bytes_min: int = 0,
        preallocate_bytes: int = 0,
    ) -> None:
        """`free_bytes_min`, `preallocate_bytes`: see `bookie.config`."""
        self._preallocate_bytes = preallocate_bytes
        self._volume = volume
        self._free_bytes_min = free_bytes_min
        self._step = volume.step
        self._is_reading_cold = False
        self._times = times
        self._failed = False
        self._log_lane = _Lane()
        self._index_lane = _Lane()

    # ---------------------------------------------------------------- at start, and inside jobs

    def names(self) -> list[str]:
        return sorted(self._volume.files)

    def size(self, name: str) -> int:
        return len(self._file(name).cached)

    def read(self, name: str, position: int, size: int) -> bytes:
        data = self._file(name).read(position, size)
        return self._volume.damaged(data) if self._is_reading_cold else data

    def read_pieces(self, name: str, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(name, position, size) for position, size in pieces]

    def truncate(self, name: str, size: int) -> None:
        file = self._file(name)
        if len(file.cached) > size:
            self._step()
            file.truncate(size)
        self._sync_now(file)

    def uncache(self, name: str) -> None:
        self._file(name).uncache()

    def load(self, name: str) -> bytes | None:
        file = self._volume.files.get(name)
        return None if file is None else bytes(file.cached)

    def save(self, name: str, data: bytes) -> None:
        self._step()
        new = self._volume.create(name + ".new")
        self._step()
        try:
            new.write(0, data)
        except OSError as error:
            raise DiskFull(f"no space for {name}") from error
        self._sync_now(new)
        self._step()
        self._volume.rename(name + ".new", name)
        self._step()
        self._volume.sync_names(directory_of(name))
        self._step()

    def write(self, name: str, position: int, buffers: list[Buffer]) -> None:
        volume = self._volume
        self._step()
        if position == 0 and name not in volume.files:
            volume.create(name)
        file = self._file(name)
        for buffer in buffers:
            self._step()
            file.write(position, bytes(buffer))
            position += len(buffer)
        self._sync_now(file)
        volume.sync_names(directory_of(name))
        self._step()

    def remove(self, name: str) -> None:
        self._step()
        if name in self._volume.files:
            self._volume.delete(name)
            self._step()
        self._volume.sync_names(directory_of(name))
        self._step()

    def usage(self) -> Usage:
        return Usage(self._volume.capacity_bytes, self._volume.free_bytes)

    def close(self) -> None:
        """Nothing to release."""

    def _file(self, name: str) -> SimFile:
        try:
            return self._volume.files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such simulated file", name) from None

    def _sync_now(self, file: SimFile) -> None:
        self._step()
        if self._volume.take_sync_failure():
            file.sync_failed()
            raise OSError(errno.EIO, "simulated sync failure")
        file.synced(len(file.dirty))

    # ---------------------------------------------------------------- lanes

    def index_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        return self._index_lane.run(self._times.draw_s(self._times.options.index_s), job)

    def reader_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        def cold() -> T:
            self._is_reading_cold = True
            try:
                return job()
            finally:
                self._is_reading_cold = False

        return _Lane().run(self._times.draw_s(self._times.options.read_s), cold)

    def commit(self, write: LogWrite) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        options = self._times.options
        self._volume.on_group(write.size)

        def done(error: BaseException | None) -> None:
            self._log_lane.finish()
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        def write_now() -> None:
            try:
                file = self._write(write)
            except (DiskFull, DiskFailed) as error:
                done(error)
                return
            count = len(file.dirty)
            delay = self._times.draw_s(options.sync_s)
            asyncio.get_running_loop().call_later(delay, sync_now, file, count)

        def sync_now(file: SimFile, count: int) -> None:
            self._step()
            if self._volume.take_sync_failure():
                file.sync_failed()
                self._failed = True
                done(DiskFailed("simulated sync failure"))
                return
            file.synced(count)
            done(None)

        self._log_lane.start(self._times.draw_s(options.write_s), write_now)
        return future

    def _write(self, write: LogWrite) -> SimFile:
        """Do what the real disk does before it syncs a group."""
        if self._failed:
            raise DiskFailed("an earlier write failed")
        volume, name = self._volume, file_name(write.number)
        try:
            self._step()
            if write.creates:
                if write.sealed_size is not None:
                    self.truncate(file_name(write.number - 1), write.sealed_size)
                if name in volume.files:
                    volume.files[name].truncate(0)
                else:
                    volume.create(name)
                self._step()
                volume.sync_names(directory_of(name))
        except OSError as error:
            self._failed = True
            raise DiskFailed(str(error)) from error
        file = volume.files[name]
        position = write.position
        if not write.may_use_reserve and volume.free_bytes - write.size < self._free_bytes_min:
            raise DiskFull("below the free space to keep")
        end = position + write.size
        try:
            if end > len(file.cached) and self._preallocate_bytes:
                spare = 0 if write.may_use_reserve else self._preallocate_bytes
                file.truncate(min(end + spare, len(file.cached) + volume.free_bytes))
            for buffer in write.buffers:
                self._step()
                file.write(position, bytes(buffer))
                position += len(buffer)
        except OSError as error:
            file.truncate(min(write.position, len(file.cached)))
            raise DiskFull(f"no space for a group of {write.size} bytes") from error
        return file


class _Lane:
    """Runs jobs one behind the other, each after its delay."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._busy = False

    def start(self, delay_s: float, step: Callable[[], None]) -> None:
        """Run `step` when everything before it has called `finish`."""
        self._waiting.append((delay_s, step))
        if not self._busy:
            self._next()

    def finish(self) -> None:
        """The running job is over."""
        self._busy = False
        if self._waiting:
            self._next()

    def _next(self) -> None:
        self._busy = True
        delay_s, step = self._waiting.popleft()
        asyncio.get_running_loop().call_later(delay_s, step)

    def run(self, delay_s: float, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run `job` in its turn; its result arrives on the loop."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def step() -> None:
            try:
                result = job()
            except Exception as error:
                self.finish()
                if not future.done():
                    future.set_exception(error)
                return
            self.finish()
            if not future.done():
                future.set_result(result)

        self.start(delay_s, step)
        return future
