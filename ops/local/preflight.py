"""What must hold before a cluster starts on this machine, each failure one clear sentence."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from client.errors import QuireError
from ops import ports

FREE_BYTES_MIN: Final = 512 * 1024 * 1024


class CannotStart(QuireError):
    """Something on this machine stands in the way; the text says what to change."""


class PortUse(NamedTuple):
    """A port that somebody of ours will listen on, and the flag that moves it."""

    port: int
    purpose: str
    flag: str


class DataLock:
    """The claim of one `quire up` on its data directory; the kernel drops it at any death."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: TextIO | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def acquire(self) -> None:
        """Create the directory if needed and claim it. Raises CannotStart."""
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._file = (self._data_dir / "lock").open("a+")
        except OSError as error:
            raise CannotStart(
                f"cannot write to the data directory {self._data_dir}: {error.strerror};"
                " choose another with --data"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            owner = self._file.read().strip()
            self.release()
            raise CannotStart(
                f"{self._data_dir} is in use by another `quire up`"
                f"{f' (pid {owner})' if owner else ''}: stop that one, or choose another"
                " directory with --data"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Give the directory back."""
        if self._file is not None:
            self._file.close()
            self._file = None


def check_disk(data_dir: Path) -> None:
    """Raise CannotStart when the disk below `data_dir` is nearly full."""
    free = shutil.disk_usage(data_dir).free
    if free < FREE_BYTES_MIN:
        mib = 1024 * 1024
        raise CannotStart(
            f"the disk of {data_dir} has only {free // mib} MiB free and Quire needs"
            f" {FREE_BYTES_MIN // mib}: make room, or choose another directory with --data"
        )


def check_ports(uses: Sequence[PortUse]) -> None:
    """Raise CannotStart when a port is out of range, wanted twice or taken."""
    wanted: dict[int, PortUse] = {}
    for use in uses:
        if not 1 <= use.port <= 65535:
            raise CannotStart(f"port {use.port} for {use.purpose} is out of range: see {use.flag}")
        other = wanted.setdefault(use.port, use)
        if other is not use:
            raise CannotStart(
                f"port {use.port} is needed twice, for {other.purpose} and for {use.purpose}:"
                f" move one with {other.flag} or {use.flag}"
            )
    for use in uses:
        if not ports.is_free(use.port):
            owner = ports.listener(use.port)
            raise CannotStart(
                f"port {use.port} for {use.purpose} is taken"
                f"{f' by {owner}' if owner else ''}: stop that program or choose another port"
                f" with {use.flag}"
            )
