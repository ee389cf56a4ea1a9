"""Writes a compacted ledger, and reads it back before anybody relies on it.

An entry is given to the ledger's writer while that has room. Once the ledger is closed it is opened
again, and every byte is compared by checksum: only then does it take the place of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from broker.errors import CompactionFailed
from broker.partition.ledgers import Ledgers, Writer
from client.errors import LedgerError
from client.held_memory import HeldMemory
from client.ids import EntryId, LedgerId, Offset
from client.wire.kafka.batches.records import Buffer

STALLED_S: Final = 60.0
"""How long a ledger may take nothing before its round is given up, for a while."""

_BURST_S: Final = 1.0


class LedgerOutput:
    """One ledger of ours that nobody knows of yet."""

    def __init__(self, writer: Writer, base_offset: Offset, rate: ByteRate) -> None:
        self.base_offset = base_offset
        """Of its segment."""
        self._writer = writer
        self._rate = rate
        self._crc = 0
        self._entry_count = 0
        self.read_bytes = 0
        """Of reading it back."""
        self._unconfirmed = 0
        self._error: LedgerError | None = None
        self._changed = asyncio.Event()

    @property
    def ledger_id(self) -> LedgerId:
        """Which ledger."""
        return self._writer.ledger_id

    async def add(self, entry: Sequence[Buffer]) -> None:
        """Write the next entry, once there is room for it.

        Raises LedgerError; CompactionFailed if bookies take nothing for `STALLED_S`.
        """
        while not self._writer.room.is_free and self._error is None:
            self._changed.clear()
            self._writer.room.on_free(self._changed.set)
            await self._progress()
        if self._error is not None:
            raise self._error
        size = 0
        for part in entry:
            self._crc = crc32c(part, self._crc)
            size += len(part)
        self._writer.add(entry, self._on_added)
        self._entry_count += 1
        self._unconfirmed += 1
        await self._rate.use(size)

    async def finish(self) -> None:
        """Wait until all of it is confirmed, and close the ledger.

        Raises LedgerError, MetadataError; CompactionFailed if nothing is confirmed for `STALLED_S`.
        """
        while self._unconfirmed and self._error is None:
            self._changed.clear()
            await self._progress()
        if self._error is not None:
            raise self._error
        await self._writer.close()

    def abandon(self) -> None:
        """It will not be used."""
        self._writer.abandon()

    async def verify(self, ledgers: Ledgers, memory: HeldMemory) -> None:
        """Read it back; what is read counts in `memory` meanwhile.

        Raises LedgerError; CompactionFailed if it is not what was written.
        """
        reader = await ledgers.open(self.ledger_id)
        crc = count = 0
        if reader.last_entry == self._entry_count - 1:
            while count < self._entry_count:
                some = await reader.read_some(EntryId(count), reader.last_entry)
                size = sum(len(entry.payload) for entry in some)
                self.read_bytes += size
                with memory.held(size):
                    for entry in some:
                        crc = crc32c(entry.payload, crc)
                    await self._rate.use(size)
                count += len(some)
        if (count, crc) != (self._entry_count, self._crc):
            raise CompactionFailed(f"ledger {self.ledger_id} is not what was written to it")

    async def _progress(self) -> None:
        """Wait for a confirmation, but not without end: other partitions wait, too (IN-TIME)."""
        try:
            async with asyncio.timeout(STALLED_S):
                await self._changed.wait()
        except TimeoutError:
            raise CompactionFailed(
                f"ledger {self.ledger_id}: bookies have confirmed nothing for {STALLED_S:g} s"
            ) from None

    def _on_added(self, _entry_id: EntryId, error: LedgerError | None) -> None:
        self._unconfirmed -= 1
        if error is not None and self._error is None:
            self._error = error
        self._changed.set()


class ByteRate:
    """Keeps the compaction of a broker within so many bytes a second, read and written together."""

    def __init__(self, bytes_per_s: int) -> None:
        """`bytes_per_s`: 0 for as many as there are."""
        self._bytes_per_s = bytes_per_s
        self._free_s = float("-inf")
        """When what was used so far would be over, at exactly the rate."""

    async def use(self, size: int) -> None:
        """Use so many bytes, and wait as long as that is too many."""
        if not self._bytes_per_s:
            return
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(self._free_s, now_s - _BURST_S) + size / self._bytes_per_s
        if self._free_s > now_s:
            await asyncio.sleep(self._free_s - now_s)
