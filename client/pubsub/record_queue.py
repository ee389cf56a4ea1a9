"""Records that wait for their batch to be sent, by partition.

A batch takes records until it is full or the sender closes it; then it has its sequence number
and its bytes, and is sent with these until it is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from client.pubsub.core.transaction import Identity, TopicPartition

UNSENT_BYTES_MAX: Final = 16 << 20
"""Bytes of records in memory before whoever adds more has to wait."""

Headers = Sequence[tuple[str, bytes]]

_MAGIC: Final = 2
_IS_TRANSACTIONAL: Final = 1
_NOBODY: Final = (-1, -1, -1)
_CODECS: Final = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Batch:
    """Records of one partition: open, or sealed with a number and final bytes."""

    def __init__(self, codec: int, size_max: int) -> None:
        self._builder = DefaultRecordBatchBuilder(
            _MAGIC, codec, _IS_TRANSACTIONAL, *_NOBODY, size_max
        )
        self.record_count = 0
        self.size = 0
        """Bytes of its records before compression, about."""
        self.sealed: bytes | None = None

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Add a record; return its bytes, 0 if the batch is full."""
        if self.sealed is not None:
            return 0
        added = self._builder.append(self.record_count, timestamp_ms, key, value, list(headers))
        if added is None:
            return 0
        self.record_count += 1
        self.size += added.size
        return int(added.size)

    def seal(self, identity: Identity, sequence: int) -> bytes:
        """Number the batch and return its bytes, the same from now on."""
        if self.sealed is None:
            self._builder.set_producer_state(identity.producer_id, identity.epoch, sequence)
            self.sealed = bytes(self._builder.build())
        return self.sealed


class RecordQueue:
    """Batches by partition, in order."""

    def __init__(
        self, compression: str | None, batch_size_max: int, size_max: int = UNSENT_BYTES_MAX
    ) -> None:
        """Raises KeyError for a compression that is none."""
        self._size_max = size_max
        self._codec = _CODECS[compression]
        self._batch_size_max = batch_size_max
        self._batches: dict[TopicPartition, deque[Batch]] = {}
        self._size = 0
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may."""
        return self._size >= self._size_max

    def first(self) -> dict[TopicPartition, Batch]:
        """Return the first batch of each partition that has one."""
        return {at: batches[0] for at, batches in self._batches.items()}

    def append(
        self,
        at: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        """Add a record behind those of its partition."""
        batches = self._batches.setdefault(at, deque())
        added = batches[-1].append(timestamp_ms, key, value, headers) if batches else 0
        if not added:
            batches.append(Batch(self._codec, self._batch_size_max))
            added = batches[-1].append(timestamp_ms, key, value, headers)
        self._size += added
        self._changed.set()

    def acknowledged(self, at: TopicPartition, batch: Batch) -> None:
        """The first batch of a partition is stored; nothing changes if it was forgotten since."""
        batches = self._batches.get(at)
        if not batches or batches[0] is not batch:
            return
        self._size -= batches.popleft().size
        if not batches:
            del self._batches[at]
        self._changed.set()

    def clear(self) -> None:
        """Forget everything."""
        self._batches.clear()
        self._size = 0
        self._changed.set()

    async def changed(self) -> None:
        """Wait for the next change."""
        self._changed.clear()
        await self._changed.wait()
