"""The disk: file descriptors, and the threads that wait for the device.

`Disk` is the interface; the simulator and the crash tests put their own behind it. It is a
`DataDirectory`, plain synchronous calls for the start and for inside of jobs, with three kinds of
threads: the log thread writes and syncs groups, one at a time; the index thread runs index jobs in
order; the reader threads run cold reads. Results arrive on the loop (`WorkerThreads`).

Names are relative to the data directory: VERSION, CHECKPOINT, log/0000000001.log.

A failed write without a sync leaves the log where it was (DiskFull). After any other failure
nobody knows what is durable: every later commit is refused (DiskFailed) and the bookie stops.

Linux and macOS differ in a few calls (`sync_data` and what follows it). macOS is for trying things
out, and nobody has run a bookie there yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from bookie.errors import DiskFailed, DiskFull
from bookie.storage.core.append_log import LogWrite, file_name
from client.errors import ConfigError
from client.histogram import Histogram
from client.wire.bookkeeper.messages import Buffer

logger = logging.getLogger(__name__)
T = TypeVar("T")

_IOV_MAX: Final = 1024
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of errors that mean: the write did not happen, and may once there is room."""
_NO_SUCH_CALL: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Usage(NamedTuple):
    """Bytes of the file system the data directory is on."""

    total: int
    free: int


class DataDirectory(Protocol):
    """The files of one data directory. Every call blocks until the file system has done it.

    Missing files raise FileNotFoundError, other trouble OSError, where nothing else is said.
    """

    def names(self) -> list[str]:
        """Return the names of all files, sorted; those of the index excluded."""
        ...

    def size(self, name: str) -> int:
        """Return a file's size."""
        ...

    def read(self, name: str, position: int, size: int) -> bytes:
        """Read; fewer bytes than asked only at the end of the file."""
        ...

    def read_pieces(self, name: str, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several pieces of one file, (position, size) each, as `read` does, in order."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size`, durably, with all its content up to there."""
        ...

    def uncache(self, name: str) -> None:
        """Make later reads come from the device, as far as the kernel's pages are clean.

        After a failed sync the page cache can show bytes that were never written.
        """
        ...

    def load(self, name: str) -> bytes | None:
        """Return a small file's content, None if there is no such file."""
        ...

    def save(self, name: str, data: bytes) -> None:
        """Replace a small file in one step, durably. Raises DiskFull: it is what it was."""
        ...

    def write(self, name: str, position: int, buffers: list[Buffer]) -> None:
        """Write to a file other than the log's end, durably; at position 0 it may be a new one."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, durably; absent is fine."""
        ...

    def usage(self) -> Usage:
        """Return the space there is and the space left."""
        ...


class Disk(DataDirectory, Protocol):
    """A data directory in use by a bookie, with the threads that wait for the device."""

    reader_threads: int
    """Reader jobs that run at a time."""

    def commit(self, write: LogWrite) -> asyncio.Future[None]:
        """Write a group and sync it; done when it is durable. One at a time.

        Raises DiskFull (nothing happened) or DiskFailed (stop the bookie).
        """
        ...

    def index_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run `job` behind all earlier index jobs."""
        ...

    def reader_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run `job` on a reader thread."""
        ...

    def close(self) -> None:
        """Wait for the jobs on their way, then release everything."""
        ...


class Files:
    """What lies in a data directory, to be read only; nothing is locked or made."""

    def __init__(self, data_dir: Path) -> None:
        self._dir = data_dir

    def names(self) -> list[str]:
        files = [*self._dir.glob("*"), *self._dir.glob("log/*")]
        return sorted(str(file.relative_to(self._dir)) for file in files if file.is_file())

    def size(self, name: str) -> int:
        return (self._dir / name).stat().st_size

    def read(self, name: str, position: int, size: int) -> bytes:
        return self.read_pieces(name, [(position, size)])[0]

    def read_pieces(self, name: str, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        fd = os.open(f"{self._dir}/{name}", os.O_RDONLY)
        try:
            return [_read_all(fd, size, position) for position, size in pieces]
        finally:
            os.close(fd)

    def load(self, name: str) -> bytes | None:
        try:
            return (self._dir / name).read_bytes()
        except FileNotFoundError:
            return None


@contextmanager
def at_rest(data_dir: Path) -> Iterator[Files]:
    """Keep a data directory's bookie from starting while its files are looked at.

    Raises ConfigError if it is none, or in use.
    """
    try:
        lock_fd = os.open(data_dir / "LOCK", os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{data_dir} is not a bookie's data directory: no LOCK in it") from error
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield Files(data_dir)
    except BlockingIOError as error:
        raise ConfigError(f"{data_dir} is in use by a running bookie: stop it first") from error
    finally:
        os.close(lock_fd)


class RealDisk(Files):
    """`Disk` on a directory of a real file system, locked against a second bookie."""

    def __init__(
        self,
        data_dir: Path,
        *,
        preallocate_bytes: int,
        free_bytes_min: int,
        reader_threads: int,
        fsync_seconds: Histogram | None = None,
    ) -> None:
        """Create the directory if needed and lock it. Raises ConfigError if that is impossible.

        `fsync_seconds`: where to count how long the log's syncs take; the log thread alone does.
        """
        super().__init__(data_dir)
        self._fsync_seconds = fsync_seconds or Histogram()
        self._preallocate_bytes = preallocate_bytes
        self._free_bytes_min = free_bytes_min
        try:
            (data_dir / "log").mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(data_dir / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot use data directory {data_dir}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock_fd)
            raise ConfigError(f"{data_dir} is in use by another bookie") from error
        sync_dir(data_dir)
        # State of the log thread, touched only by its thread.
        self._fd = -1
        self._fd_number = 0
        self._allocated = 0
        self._failed = False
        self._log_lane = WorkerThread("log")
        self._index_lane = WorkerThread("index")
        self.reader_threads = reader_threads
        self._reader_lane = WorkerThreads("reader", reader_threads)

    def truncate(self, name: str, size: int) -> None:
        fd = os.open(self._dir / name, os.O_RDWR)
        try:
            if os.fstat(fd).st_size > size:
                os.ftruncate(fd, size)
            _sync_file(fd)
        finally:
            os.close(fd)

    def uncache(self, name: str) -> None:
        fd = os.open(self._dir / name, os.O_RDONLY)
        try:
            _forget_cached(fd)
        finally:
            os.close(fd)

    def save(self, name: str, data: bytes) -> None:
        path = self._dir / name
        try:
            replace_file(path, data)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull(f"no space for {name}") from error
            raise
        sync_dir(path.parent)

    def write(self, name: str, position: int, buffers: list[Buffer]) -> None:
        path = self._dir / name
        is_new = position == 0 and not path.exists()
        fd = os.open(path, os.O_RDWR | (os.O_CREAT if is_new else 0), 0o644)
        try:
            _write_all(fd, buffers, position)
            sync_data(fd)
        finally:
            os.close(fd)
        if is_new:
            sync_dir(path.parent)

    def remove(self, name: str) -> None:
        path = self._dir / name
        path.unlink(missing_ok=True)
        sync_dir(path.parent)

    def usage(self) -> Usage:
        stat = os.statvfs(self._dir)
        return Usage(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)

    def commit(self, write: LogWrite) -> asyncio.Future[None]:
        return self._log_lane.run(partial(self._commit, write))

    def index_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        return self._index_lane.run(job)

    def reader_job(self, job: Callable[[], T]) -> asyncio.Future[T]:
        return self._reader_lane.run(job)

    def close(self) -> None:
        self._log_lane.close()
        self._reader_lane.close()
        self._index_lane.close()
        if self._fd >= 0:
            os.close(self._fd)
        os.close(self._lock_fd)

    def _commit(self, write: LogWrite) -> None:
        """Runs on the log thread's thread."""
        if self._failed:
            raise DiskFailed("an earlier write failed")
        try:
            if write.number != self._fd_number or write.creates:
                self._open(write)
            self._reserve(write)
            _write_all(self._fd, write.buffers, write.position)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise self._fail("write", error) from error
            self._undo(write)
            raise DiskFull(f"no space for a group of {write.size} bytes") from error
        began_s = time.perf_counter()
        try:
            sync_data(self._fd)
        except OSError as error:
            raise self._fail("sync", error) from error
        self._fsync_seconds.observe(time.perf_counter() - began_s)

    def _fail(self, what: str, error: OSError) -> DiskFailed:
        self._failed = True
        return DiskFailed(f"{what} of the log failed: {error}")

    def _open(self, write: LogWrite) -> None:
        """Switch to the group's file; a file that is complete is cut to its size and synced."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._fd_number = -1, 0
        if write.sealed_size is not None:
            self.truncate(file_name(write.number - 1), write.sealed_size)
        flags = os.O_RDWR | (os.O_CREAT if write.creates else 0)
        self._fd = os.open(self._dir / file_name(write.number), flags, 0o644)
        self._fd_number = write.number
        if write.creates:
            os.ftruncate(self._fd, 0)
            sync_dir(self._dir / "log")
        self._allocated = os.fstat(self._fd).st_size

    def _reserve(self, write: LogWrite) -> None:
        """Allocate space ahead, so that a sync need not write the file's size each time.

        Raises OSError(ENOSPC), also when less than the reserve would remain for what is not an
        add: fences, and the index.
        """
        end = write.position + write.size
        if end <= self._allocated:
            return
        chunk = max(self._preallocate_bytes, end - self._allocated)
        free = self.usage().free
        if not write.may_use_reserve and free - chunk < self._free_bytes_min:
            raise OSError(errno.ENOSPC, "below the free space to keep")
        if write.may_use_reserve:
            chunk = end - self._allocated
        _allocate(self._fd, self._allocated, chunk)
        self._allocated += chunk

    def _undo(self, write: LogWrite) -> None:
        """Remove what a group left that found no space. Failing that, newer records beat it."""
        if self._fd_number != write.number:
            return
        try:
            os.ftruncate(self._fd, write.position)
            self._allocated = write.position
        except OSError as error:
            logger.warning("log.undo_failed number=%d error=%s", write.number, error)


def _read_all(fd: int, size: int, position: int) -> bytes:
    """Read `size` bytes from `position` on; fewer only at the end of the file."""
    data = os.pread(fd, size, position)
    while len(data) < size:
        more = os.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _write_all(fd: int, buffers: list[Buffer], position: int) -> None:
    """Write all buffers from `position` on, in as few calls as the system allows."""
    for first in range(0, len(buffers), _IOV_MAX):
        views = buffers[first : first + _IOV_MAX]
        expected = sum(map(len, views))
        written = os.pwritev(fd, views, position)
        position += written
        if written < expected:
            rest = memoryview(b"".join(views))[written:]
            while rest:
                written = os.pwrite(fd, rest, position)
                rest = rest[written:]
                position += written


def replace_file(path: Path, data: bytes) -> None:
    """Replace a small file in one step; a power loss leaves the old one or the new one.

    Raises OSError.
    """
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(fd, [data], 0)
        _sync_file(fd)
    finally:
        os.close(fd)
    os.replace(new, path)


def sync_dir(path: Path) -> None:
    """Return when the names in a directory are on stable storage. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync_file(fd)
    finally:
        os.close(fd)


def sync_data(fd: int) -> None:
    """Return when a file's bytes, and what it takes to read them, are on stable storage."""
    getattr(os, "fdatasync", _sync_file)(fd)


def _sync_file(fd: int) -> None:
    """The same for all that the system keeps about a file, its times included."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is None:
        os.fsync(fd)
        return
    # macOS: fsync there returns while the bytes are in the drive's own cache.
    try:
        fcntl.fcntl(fd, full_sync)
    except OSError as error:
        # Only a file system that has no such call gets the weaker one: after a failed write to
        # the device, a second try may well say that all is fine.
        if error.errno not in _NO_SUCH_CALL:
            raise
        os.fsync(fd)


def _allocate(fd: int, start: int, size: int) -> None:
    """Reserve a range of a file. Without such a call (macOS), writes allocate as they come."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)


def _forget_cached(fd: int) -> None:
    """Drop a file's clean pages from memory. Without such a call (macOS), they stay."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


class WorkerThreads:
    """Threads that do jobs for the event loop: one of them one after the other, or several.

    `ThreadPoolExecutor` does the same, with a future of its own behind each of the loop's and a
    lock around both; for the sync of a small group, of which there are thousands a second, for its
    place in the index, and for a read, that is a good part of what they cost.
    """

    def __init__(self, name: str, count: int) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{i}" if i else name, daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Begin `work` behind everything that was given before; its outcome arrives on the loop."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((loop, done, work))
        return done

    def close(self) -> None:
        """Wait until everything is done, and end the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, done, work = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # whoever gave the job gets it
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, done, result, error)
            del job, work, done, result, error  # the next one may be long in coming


class WorkerThread(WorkerThreads):
    """One of them: jobs are done in order."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 1)


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
