"""What became of the records of one partition, read over the wire when all is quiet."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import CONTROL_BIT, TRANSACTIONAL_BIT
from tests.simulation.kafka.connection import EARLIEST, LATEST, Refused
from tests.simulation.kafka.entries import batches_of
from tests.simulation.kafka.guide import SILENCE_S

if TYPE_CHECKING:
    from tests.simulation.kafka.entries import Batch
    from tests.simulation.kafka.guide import Guide

_BYTES = 1 << 20


class Fate(enum.Enum):
    """What a record has come to."""

    KEPT = "kept"
    ABORTED = "aborted"
    OPEN = "open"
    MARKER = "marker"


class ShareLog:
    """All records that are still there. Offsets without one are in none of the tables."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.fates: dict[int, Fate] = {}
        self.values: dict[int, bytes] = {}
        self._open: dict[int, list[int]] = {}
        """Offsets of undecided records, by producer id."""

    def add(self, batch: Batch) -> None:
        """Go on with the next batch."""
        if batch.attributes & CONTROL_BIT:
            self.fates[batch.base_offset] = Fate.MARKER
            marker = read_marker(batch.data)
            for offset in self._open.pop(marker.producer_id, ()):
                self.fates[offset] = Fate.KEPT if marker.is_commit else Fate.ABORTED
            return
        is_transactional = bool(batch.attributes & TRANSACTIONAL_BIT)
        for offset, value in batch.values():
            self.values[offset] = value
            self.fates[offset] = Fate.OPEN if is_transactional else Fate.KEPT
            if is_transactional:
                self._open.setdefault(batch.producer[0], []).append(offset)


async def read_log(guide: Guide, topic: str, index: int) -> ShareLog:
    """Read a partition from its first offset to its last. Raises what clients meet."""
    link, epoch = await guide.connect(index)
    try:
        first = await link.offset(topic, index, EARLIEST, epoch, SILENCE_S)
        last = await link.offset(topic, index, LATEST, epoch, SILENCE_S)
        log, at = ShareLog(first), first
        while at < last:
            got = await link.fetch(topic, index, at, epoch, max_bytes=_BYTES, timeout_s=SILENCE_S)
            if got.code:
                raise Refused(got.code, "fetch")
            for batch in batches_of(got.records):
                if batch.next_offset > at:
                    log.add(batch)
                    at = batch.next_offset
        return log
    finally:
        link.close()
