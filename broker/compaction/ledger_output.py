"""Writes a compacted ledger, and reads it back before anybody relies on it.

An entry is given to the ledger's writer while that has room. Once the ledger is closed it is opened
again, and every byte is compared by checksum: only then does it take the place of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from crc32c import crc32c

from broker.compaction.byte_rate import ByteRate
from broker.errors import CompactionFailed
from broker.partition.ledgers import Ledgers, Writer
from client.errors import LedgerError
from client.held_memory import HeldMemory
from client.ids import EntryId, LedgerId, Offset
from client.wire.kafka.batches.records import Buffer


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
        """Write the next entry, once there is room for it. Raises LedgerError."""
        while not self._writer.room.is_free and self._error is None:
            self._changed.clear()
            self._writer.room.on_free(self._changed.set)
            await self._changed.wait()
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

        Raises LedgerError, MetadataError.
        """
        while self._unconfirmed and self._error is None:
            self._changed.clear()
            await self._changed.wait()
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

    def _on_added(self, _entry_id: EntryId, error: LedgerError | None) -> None:
        self._unconfirmed -= 1
        if error is not None and self._error is None:
            self._error = error
        self._changed.set()
