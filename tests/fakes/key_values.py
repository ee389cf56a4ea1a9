"""Key-value stores in memory, for the index: what was written newest is lost with the power.

`Contents` is what survives a process; `MemoryKeyValues` is one process's view of it. The contract
suite in `tests/unit/bookie/storage/index/test_index.py` runs on this and on LevelDB.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator

from bookie.errors import CorruptIndex

Changes = list[tuple[bytes, bytes | None]]
"""One batch: keys and values; None removes."""


class Contents:
    """What of a store survives."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._durable: dict[bytes, bytes] = {}
        self.batches: list[Changes] = []
        """Those that no flush made durable yet, oldest first."""
        self.current: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        """Those of `current`, ascending."""
        self.corrupt = False
        """The next attempt to open it fails."""
        self.broken = False
        """Writes fail."""

    def apply(self, changes: Changes) -> None:
        """Apply a batch; it is not durable yet."""
        for key, value in changes:
            if (key in self.current) != (value is not None):
                at = bisect.bisect_left(self.keys, key)
                self.keys[at : at + (value is None)] = [] if value is None else [key]
            _apply(self.current, [(key, value)])
        self.batches.append(changes)

    def flush(self) -> None:
        """Make everything written so far durable."""
        for changes in self.batches:
            _apply(self._durable, changes)
        self.batches.clear()

    def power_lost(self) -> None:
        """Keep what was flushed and some of what followed."""
        keep = self._rng.randrange(len(self.batches) + 1)
        for changes in self.batches[:keep]:
            _apply(self._durable, changes)
        self.batches.clear()
        self.current = dict(self._durable)
        self.keys = sorted(self.current)

    def wipe(self) -> None:
        """Begin with nothing."""
        self._durable.clear()
        self.batches.clear()
        self.current.clear()
        self.keys.clear()
        self.corrupt = False


class _Batch:
    def __init__(self, store: MemoryKeyValues) -> None:
        self._store = store
        self.changes: Changes = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append((key, value))

    def delete(self, key: bytes) -> None:
        self.changes.append((key, None))

    def write(self) -> None:
        self._store.apply(self.changes)


class MemoryKeyValues:
    """`KeyValues` of `bookie.storage.index.index` on a dictionary.

    `step` is called before whatever may be cut.
    """

    def __init__(
        self, contents: Contents, *, wipe: bool, step: Callable[[], None] = lambda: None
    ) -> None:
        self._contents = contents
        self._step = step
        self.is_closed = False
        step()
        if wipe:
            contents.wipe()
        if contents.corrupt:
            raise CorruptIndex("the index cannot be opened")

    def get(self, key: bytes) -> bytes | None:
        return self._contents.current.get(key)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self.keys(start, stop):
            yield key, self._contents.current[key]

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        keys = self._contents.keys
        yield from keys[bisect.bisect_left(keys, start) : bisect.bisect_left(keys, stop)]

    def last_key(self, start: bytes, stop: bytes) -> bytes | None:
        keys = self._contents.keys
        at = bisect.bisect_left(keys, stop)
        return keys[at - 1] if at and keys[at - 1] >= start else None

    def batch(self) -> _Batch:
        return _Batch(self)

    def apply(self, changes: Changes) -> None:
        self._step()
        if self._contents.broken:
            raise CorruptIndex("the index cannot be written")
        self._contents.apply(changes)

    def flush(self) -> None:
        self._step()
        self._contents.flush()

    def memory_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._contents.current.items())

    def close(self) -> None:
        self.is_closed = True


def _apply(content: dict[bytes, bytes], changes: Changes) -> None:
    for key, value in changes:
        if value is None:
            content.pop(key, None)
        else:
            content[key] = value
