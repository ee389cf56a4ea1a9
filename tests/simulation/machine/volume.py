"""What survives: a volume of files that keeps apart what was written and what is durable.

Pure state, no loop. A write goes to the cached content and to a list of unsynced writes; a sync
makes durable what was written before it began. A process' death loses nothing (the kernel keeps
the cache). A power loss keeps the durable content, plus, per file and independently: nothing,
everything, a torn prefix, or a random subset of the unsynced writes. A failed sync drops the
dirty pages: later syncs succeed without them, though the cache may still show them. Names made
since the last sync of their directory may vanish, in the reverse order of their making.
"""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.machine.hosts import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

SECTOR_BYTES = 512


class Write(NamedTuple):
    """One unsynced change: bytes at an offset, or a truncation when `data` is None."""

    offset: int
    data: bytes | None


class SimFile:
    """One file: its cached content, its durable content and what lies between."""

    __slots__ = ("cached", "dirty", "durable", "name", "newest_sync_at", "volume")

    def __init__(self, volume: Volume, name: str) -> None:
        self.volume = volume
        self.name = name
        self.cached = bytearray()
        self.durable = bytearray()
        self.dirty: list[Write] = []
        self.newest_sync_at = 0
        """Lowest offset that the newest sync made durable: everything before is older."""

    def write(self, offset: int, data: bytes) -> None:
        """Write into the cache. Raises OSError(ENOSPC) when the volume is full."""
        growth = offset + len(data) - len(self.cached)
        if growth > 0:
            self.volume.charge(growth)
        _apply(self.cached, Write(offset, data))
        self.dirty.append(Write(offset, data))

    def truncate(self, size: int) -> None:
        """Set the file's size; growth reads as zeros."""
        if size > len(self.cached):
            self.volume.charge(size - len(self.cached))
        else:
            self.volume.used_bytes -= len(self.cached) - size
        _apply(self.cached, Write(size, None))
        self.dirty.append(Write(size, None))

    def read(self, offset: int, size: int) -> bytes:
        """Read from the cache."""
        return bytes(self.cached[offset : offset + size])

    def synced(self, count: int) -> None:
        """Make the oldest `count` unsynced writes durable: a sync that began then returned."""
        done, self.dirty = self.dirty[:count], self.dirty[count:]
        for write in done:
            _apply(self.durable, write)
        self.newest_sync_at = min(
            (write.offset for write in done if write.data), default=self.newest_sync_at
        )
        if done and self.volume.on_durable is not None:
            self.volume.on_durable(self, done)

    def sync_failed(self) -> None:
        """Drop the dirty pages; with luck the cache still shows them."""
        self.dirty.clear()
        if self.volume.rng.random() < 0.5:
            self._revert()

    def uncache(self) -> None:
        """Drop clean pages: what a failed sync left in the cache only is gone."""
        content = bytearray(self.durable)
        for write in self.dirty:
            _apply(content, write)
        self.volume.used_bytes += len(content) - len(self.cached)
        self.cached = content

    def rot(self, offset: int, bits: int) -> None:
        """Change a durable byte for good."""
        self.durable[offset] ^= bits
        if offset < len(self.cached):
            self.cached[offset] ^= bits

    def power_lost(self) -> None:
        """Keep what the platter has."""
        rng, dirty = self.volume.rng, self.dirty
        fate = rng.random()
        kept: list[Write] = []
        if fate < 0.2:
            kept = dirty
        elif fate < 0.6 and dirty:
            cut = rng.randrange(len(dirty))
            kept = [*dirty[:cut], _torn(dirty[cut], rng)]
        elif fate < 0.75:
            kept = [_torn(w, rng) if rng.random() < 0.2 else w for w in dirty if rng.random() < 0.5]
        for write in kept:
            _apply(self.durable, write)
        if kept and self.volume.on_durable is not None:
            # What is left of a torn write may hold whole records: a start finds and trusts them.
            self.volume.on_durable(self, kept)
        self.dirty = []
        self._revert()

    def _revert(self) -> None:
        self.volume.used_bytes += len(self.durable) - len(self.cached)
        self.cached = bytearray(self.durable)


def _apply(content: bytearray, write: Write) -> None:
    offset, data = write
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def _torn(write: Write, rng: random.Random) -> Write:
    if write.data is None:
        return write
    cut = rng.randrange(len(write.data) + 1)
    if rng.random() < 0.5:
        end = write.offset + cut
        cut = max(0, end - end % SECTOR_BYTES - write.offset)
    return Write(write.offset, write.data[:cut])


class Volume:
    """The files of one host's disk, by name ('/' separates directories, nothing more)."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.files: dict[str, SimFile] = {}
        self.capacity_bytes = 1 << 40
        self.used_bytes = 0
        self.flip_read_p = 0.0
        self.fail_syncs = 0
        """How many of the next syncs fail with EIO."""
        self.stops_in = -1
        """After how many steps the process ends in the middle of what it does; -1 for never."""
        self.on_stop: Callable[[], None] = lambda: None
        self.on_durable: Callable[[SimFile, list[Write]], None] | None = None
        self.on_group: Callable[[int], None] = lambda size: None
        """Told of each group that is to be written, and how large it is."""
        self._undo_names: list[tuple[str, Callable[[], None]]] = []
        """Unsynced name changes, oldest first: (directory, what reverts it)."""

    def step(self) -> None:
        """Count one elementary operation. Raises Stopped when it is the last one."""
        if self.stops_in >= 0:
            self.stops_in -= 1
            if self.stops_in < 0:
                self.on_stop()
                raise Stopped

    def charge(self, size: int) -> None:
        """Take space. Raises OSError(ENOSPC)."""
        if self.used_bytes + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "no space left on simulated device")
        self.used_bytes += size

    @property
    def free_bytes(self) -> int:
        """Space left; never negative."""
        return max(0, self.capacity_bytes - self.used_bytes)

    def create(self, name: str) -> SimFile:
        """Make an empty file; an existing one of that name is replaced."""
        if name in self.files:
            self.delete(name)
        file = SimFile(self, name)
        self._add(name, file)
        self._undo_names.append((directory_of(name), lambda: self._remove(name)))
        return file

    def delete(self, name: str) -> None:
        """Remove a name. Raises FileNotFoundError."""
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such simulated file", name)
        file = self._remove(name)
        self._undo_names.append((directory_of(name), lambda: self._add(name, file)))

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in its directory, replacing what had it, in one step."""
        assert directory_of(old) == directory_of(new)
        replaced = self._remove(new) if new in self.files else None
        file = self._remove(old)
        self._add(new, file)

        def undo() -> None:
            self._remove(new)
            self._add(old, file)
            if replaced is not None:
                self._add(new, replaced)

        self._undo_names.append((directory_of(new), undo))

    def _add(self, name: str, file: SimFile) -> None:
        file.name = name
        self.files[name] = file
        self.used_bytes += len(file.cached)

    def _remove(self, name: str) -> SimFile:
        file = self.files.pop(name)
        self.used_bytes -= len(file.cached)
        return file

    def sync_names(self, directory: str = "") -> None:
        """Make a directory's name changes durable (its fsync)."""
        self._undo_names = [undo for undo in self._undo_names if undo[0] != directory]

    def take_sync_failure(self) -> bool:
        """Whether the sync under way fails; a planned failure is used up."""
        if self.fail_syncs > 0:
            self.fail_syncs -= 1
            return True
        return False

    def damaged(self, data: bytes) -> bytes:
        """Flip one bit of what a read returns, with the probability now in force."""
        if data and self.flip_read_p and self.rng.random() < self.flip_read_p:
            at = self.rng.randrange(len(data))
            flipped = bytearray(data)
            flipped[at] ^= 1 << self.rng.randrange(8)
            return bytes(flipped)
        return data

    def power_lost(self) -> None:
        """Lose what was not durable, names first, then content."""
        for directory in dict.fromkeys(name for name, _ in self._undo_names):
            undos = [undo for name, undo in self._undo_names if name == directory]
            keep = self.rng.randrange(len(undos) + 1)
            for undo in reversed(undos[keep:]):
                undo()
        self._undo_names.clear()
        for file in self.files.values():
            file.power_lost()

    def wipe(self) -> None:
        """Lose everything: a new disk in the old machine."""
        self.files.clear()
        self._undo_names.clear()
        self.used_bytes = 0


def directory_of(name: str) -> str:
    """Return the directory part of a file's name; "" for the top."""
    return name.rpartition("/")[0]
