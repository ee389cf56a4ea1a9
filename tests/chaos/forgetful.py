"""A file system that forgets what was not synced, and that can be full: FUSE, in its own process.

    python -m tests.chaos.forgetful BACKING MOUNT

Bytes written live in this process until fsync or fdatasync puts them into the folder BACKING, so
what is there is what a machine would find after a power loss. Names are durable at once; the
content behind a name is not. Writing to the file `.forget` drops everything that was not synced.
What is written to `.full` says which writes fail with ENOSPC, see `Fullness`; reading it says how
many have, of LevelDB's tables and of all other files.
"""

from __future__ import annotations

import enum
import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.cluster import ROOT

FORGET, FULL = ".forget", ".full"
BLOCK = 4096
_COUNTS_SIZE = 64
"""What `.full` shows, padded: a file of no size is not read."""


class Fullness(enum.StrEnum):
    """How full a file system is."""

    ROOM = "0"
    NO_TABLES = "t"
    """There is room for what is appended, but not for a table of LevelDB: it writes nothing larger
    at once, so on a disk that runs full it may be the first that does not fit."""
    FULL = "1"


class Refused(NamedTuple):
    """How many writes have failed with ENOSPC."""

    tables: int
    others: int


class Overlay:
    """What was written to a file and not synced: its size, and the blocks that changed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks: dict[int, bytearray] = {}


class ForgetfulFiles:
    """The operations of the file system. One thread, so every one of them is atomic."""

    def __init__(self, backing: str) -> None:
        self._backing = backing
        self._overlays: dict[str, Overlay] = {}
        self._fullness = Fullness.ROOM
        self._refused = Refused(0, 0)

    def _real(self, path: str) -> str:
        return self._backing + path

    def _size(self, path: str) -> int:
        overlay = self._overlays.get(path)
        return os.stat(self._real(path)).st_size if overlay is None else overlay.size

    def _overlay(self, path: str) -> Overlay:
        overlay = self._overlays.get(path)
        if overlay is None:
            overlay = self._overlays[path] = Overlay(os.stat(self._real(path)).st_size)
        return overlay

    def _block(self, path: str, overlay: Overlay, number: int) -> bytearray:
        block = overlay.blocks.get(number)
        if block is None:
            with open(self._real(path), "rb") as file:
                file.seek(number * BLOCK)
                block = bytearray(file.read(BLOCK))
            block.extend(bytes(BLOCK - len(block)))
            overlay.blocks[number] = block
        return block

    def _sync(self, path: str) -> None:
        overlay = self._overlays.pop(path, None)
        if overlay is None:
            return
        with open(self._real(path), "r+b") as file:
            for number, block in sorted(overlay.blocks.items()):
                file.seek(number * BLOCK)
                file.write(block)
            file.truncate(overlay.size)

    def init_with_config(self, connection: Any, config: Any) -> None:
        """Cache nothing that a power loss would take."""
        if config is not None:
            config.attr_timeout = config.entry_timeout = config.negative_timeout = 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if path in ("/" + FORGET, "/" + FULL):
            return {"st_mode": 0o100600, "st_nlink": 1, "st_size": _COUNTS_SIZE}
        found = os.lstat(self._real(path))
        about: dict[str, Any] = {
            name: getattr(found, name) for name in ("st_mode", "st_nlink", "st_uid", "st_gid")
        }
        for name in ("st_mtime", "st_ctime", "st_atime"):
            about[name] = getattr(found, name + "_ns")
        about["st_size"] = self._size(path) if os.path.isfile(self._real(path)) else found.st_size
        return about

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._real(path))]

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        if path == "/" + FULL:
            counts = "{} {}".format(*self._refused).encode()
            return counts.ljust(_COUNTS_SIZE)[offset : offset + size]
        overlay = self._overlays.get(path)
        with open(self._real(path), "rb") as file:
            file.seek(offset)
            data = bytearray(file.read(size))
        if overlay is None:
            return bytes(data)
        end = min(offset + size, overlay.size)
        if end <= offset:
            return b""
        data = data[: end - offset]
        data.extend(bytes(end - offset - len(data)))
        for number in range(offset // BLOCK, (end - 1) // BLOCK + 1):
            block = overlay.blocks.get(number)
            if block is not None:
                first, last = max(offset, number * BLOCK), min(end, (number + 1) * BLOCK)
                data[first - offset : last - offset] = block[
                    first - number * BLOCK : last - number * BLOCK
                ]
        return bytes(data)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if path == "/" + FORGET:
            self._overlays.clear()
            return len(data)
        if path == "/" + FULL:
            self._fullness = Fullness(data.decode())
            self._refused = Refused(0, 0)
            return len(data)
        self._check_room(path)
        overlay = self._overlay(path)
        position = offset
        while position < offset + len(data):
            number, within = divmod(position, BLOCK)
            part = data[position - offset : position - offset + BLOCK - within]
            self._block(path, overlay, number)[within : within + len(part)] = part
            position += len(part)
        overlay.size = max(overlay.size, offset + len(data))
        return len(data)

    def _check_room(self, path: str) -> None:
        """Raise OSError if a write to a file does not fit."""
        is_table = path.endswith((".ldb", ".sst"))
        if self._fullness is Fullness.ROOM or not (is_table or self._fullness is Fullness.FULL):
            return
        tables, others = self._refused
        self._refused = Refused(tables + is_table, others + (not is_table))
        raise OSError(errno.ENOSPC, "full")

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        os.close(os.open(self._real(path), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode))
        self._overlays.pop(path, None)
        return 0

    def open(self, path: str, flags: int) -> int:
        if path not in ("/" + FORGET, "/" + FULL):
            os.stat(self._real(path))
            if flags & os.O_TRUNC:
                self.truncate(path, 0)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        if path in ("/" + FORGET, "/" + FULL):
            return 0
        overlay = self._overlay(path)
        overlay.size = length
        for number in [n for n in overlay.blocks if n * BLOCK >= length]:
            del overlay.blocks[number]
        if length % BLOCK:
            block = self._block(path, overlay, length // BLOCK)
            block[length % BLOCK :] = bytes(BLOCK - length % BLOCK)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._sync(path)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        os.rename(self._real(old), self._real(new))
        self._overlays.pop(new, None)
        moved = self._overlays.pop(old, None)
        if moved is not None:
            self._overlays[new] = moved
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        self._overlays.pop(path, None)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._real(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return 0

    def chmod(self, path: str, mode: int, fh: int | None = None) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def utimens(self, path: str, times: Any = None, fh: int | None = None) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._backing)
        names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree")
        return {name: getattr(found, name) for name in names}


class ForgetfulDisks:
    """One such file system for each bookie. Raises Unmountable when there can be none."""

    def __init__(self, folder: Path, count: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._mounts = [folder / f"disk-{i}" for i in range(count)]
        log = (folder / "disks.log").open("ab")
        for i, mount in enumerate(self._mounts):
            backing = folder / f"backing-{i}"
            for path in (mount, backing):
                path.mkdir(parents=True)
            command = [sys.executable, "-m", "tests.chaos.forgetful", str(backing), str(mount)]
            self._processes.append(
                subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            )
        deadline_s = time.monotonic() + 10
        while not all(os.path.ismount(mount) for mount in self._mounts):
            if time.monotonic() > deadline_s or any(p.poll() is not None for p in self._processes):
                self.close()
                raise Unmountable((folder / "disks.log").read_text()[-500:])
            time.sleep(0.05)

    def path(self, index: int) -> Path:
        """Where bookie `index` keeps its data."""
        return self._mounts[index] / "data"

    def forget(self, index: int) -> None:
        """Drop what was not synced. No process may have files open there."""
        (self._mounts[index] / FORGET).write_bytes(b"1")

    def set_fullness(self, index: int, fullness: Fullness) -> None:
        """Let writes fail with ENOSPC, or not; count anew."""
        (self._mounts[index] / FULL).write_bytes(fullness.encode())

    def refused(self, index: int) -> Refused:
        """Return how many writes have failed since `set_fullness`."""
        return Refused(*map(int, (self._mounts[index] / FULL).read_text().split()))

    def close(self) -> None:
        """Unmount everything."""
        for mount, process in zip(self._mounts, self._processes, strict=False):
            unmount = shutil.which("fusermount3") or "umount"
            flags = ["-u", "-z"] if unmount.endswith("fusermount3") else ["-l"]
            subprocess.run([unmount, *flags, str(mount)], capture_output=True, check=False)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Unmountable(Exception):
    """This machine has no FUSE for us; the message says what it said."""


def main() -> None:
    """Serve until unmounted."""
    import mfusepy

    backing, mount = (os.path.realpath(path) for path in sys.argv[1:])

    class Operations(ForgetfulFiles, mfusepy.Operations):
        use_ns = True

    mfusepy.FUSE(Operations(backing), mount, foreground=True, nothreads=True, fsname="forgetful")


if __name__ == "__main__":
    main()
