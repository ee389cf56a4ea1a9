"""Memory as a server has it that has run for a day: full of pages of files, nothing free.

What a system writes goes through the page cache, and where its pages come from decides what that
costs: on a virtual machine whose free memory is given back to the host (free page reporting), the
first touch of a free page waits for the host to bring and to clear another. A write into such
pages took 2.3 s of CPU per GB, and 0.2 s into pages that had been a file's before. So whoever had
its turn behind a system that left much free memory was ten times slower. Before each load free
memory is filled with pages of a file that is a hole: they cost no disk, and the kernel takes them
for whatever needs memory next. Once a turn is not enough where the kernel lets go of what was not
read for a while (DAMON): within two minutes 8 GB were free again beside a system that wrote
slowly, and a quarter of that beside a fast one.

Tried instead: free memory in pieces of 1 MiB, which no host wants (one page of each held in a
pipe). None was given back, but the page cache had no large pages any more, which cost a bookie a
third of its speed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ops.bench.machine import memory_bytes

_FREE_BYTES_MAX: Final = 512 << 20
"""So little is left free; the kernel itself keeps some of it."""
_STEP_BYTES: Final = 4 << 20
_PASSES_MAX: Final = 2
"""No more is read than the machine's memory, this many times: something may free memory as fast."""


def _meminfo() -> str:
    return Path("/proc/meminfo").read_text()


class PageCache:
    """Fills the page cache. Closed at the end, which frees what is left of the pages."""

    def __init__(self, folder: Path | None, meminfo: Callable[[], str] = _meminfo) -> None:
        """The file lies in `folder` and has no name; None: memory stays as it is."""
        self._folder = folder
        self._meminfo = meminfo
        self._descriptor = -1
        self._end = 0
        self._lock = threading.Lock()

    def fill(self) -> int:
        """Fill what is free, on every core, within seconds; return the bytes read for it."""
        if self._folder is None:
            return 0
        if self._descriptor < 0:
            self._descriptor = os.open(self._folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        first = self._end
        bound = first + _PASSES_MAX * memory_bytes(self._meminfo(), "MemTotal")
        threads = [
            threading.Thread(target=self._read_until, args=(bound,))
            for _ in range(os.cpu_count() or 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._end - first

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_until(self, bound: int) -> None:
        buffer = bytearray(_STEP_BYTES)
        while memory_bytes(self._meminfo(), "MemFree") > _FREE_BYTES_MAX:
            with self._lock:
                position, self._end = self._end, self._end + _STEP_BYTES
                if self._end > bound:
                    self._end = position
                    return
                os.ftruncate(self._descriptor, self._end)
            os.preadv(self._descriptor, [buffer], position)
