"""A bookie's index with LevelDB's contract: a batch is atomic, an unsynced suffix may vanish.

One `IndexStore` per host survives its processes. A kill loses nothing (the operating system has
the write-ahead log), a power loss loses a random suffix of the batches since the last flush, and
now and then the index cannot be opened at all afterwards and must be rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie.storage.index.index import Index
from tests.fakes.key_values import Contents, MemoryKeyValues

if TYPE_CHECKING:
    from tests.simulation.machine.volume import Volume


class IndexStore(Contents):
    """What of one host's index survives."""

    def power_lost(self) -> None:
        """Lose a suffix of what was not flushed, and perhaps the ability to open at all."""
        super().power_lost()
        self.corrupt = self.corrupt or self._rng.random() < 0.1


class SimIndex(Index):
    """The index as one bookie process has it open."""

    def __init__(self, store: IndexStore, volume: Volume, *, wipe: bool) -> None:
        super().__init__(MemoryKeyValues(store, wipe=wipe, step=volume.step))
