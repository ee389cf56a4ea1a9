"""Record batches as they lie in the entries of ledgers, taken apart by a layout of its own."""

from __future__ import annotations

import struct
from typing import NamedTuple

from client.wire.kafka.batches.records import records
from tests.model import rules

_BATCH = struct.Struct(">qiibIhiqqqhii")
_LENGTH_PREFIX_BYTES = 12
_BATCH_MAGIC = 2


class Batch(NamedTuple):
    """A record batch as it lies in an entry."""

    base_offset: int
    next_offset: int
    epoch: int
    producer: tuple[int, int]
    """(producer id, producer epoch)"""
    sequence: int
    record_count: int
    attributes: int
    data: bytes

    @property
    def is_idempotent(self) -> bool:
        """Whether its sequence says something: neither markers nor coordinators count."""
        return self.producer[0] >= 0 and self.sequence >= 0

    def abstract(self) -> rules.Batch:
        """Return it as the transition rules know it."""
        producer = self.producer if self.is_idempotent else None
        count = self.next_offset - self.base_offset
        return rules.Batch(self.base_offset, count, producer, self.sequence)

    def values(self) -> list[tuple[int, bytes]]:
        """(offset, value) of each record."""
        return [(record.offset, record.value or b"") for record in records(self.data)]


def batches_of(payload: bytes) -> list[Batch]:
    """Take an entry's payload apart; an internal entry holds none."""
    found: list[Batch] = []
    at = 0
    while at < len(payload):
        if payload[at + 16] != _BATCH_MAGIC:
            return found
        base, length, epoch, _, _, bits, delta, _, _, pid, pid_epoch, sequence, count = (
            _BATCH.unpack_from(payload, at)
        )
        data = payload[at : at + length + _LENGTH_PREFIX_BYTES]
        producer = (pid, pid_epoch)
        found.append(Batch(base, base + delta + 1, epoch, producer, sequence, count, bits, data))
        at += len(data)
    return found
