"""Uses a partition as a coordinator's log: appends records, reads them all, says what is durable.

Records are appended as uncompressed batches, as one unless that would be too large. `on_durable` of
each append is called once, in log order, after its last batch is durable. The first batch that does
not become durable ends the log (`on_failed`): whatever follows it is unknown, and the owner has to
read the partition again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from broker.coordinator.core.coordinator_types import LogRecord
from broker.errors import BrokerError, LeadershipLost, OffsetOutOfRange
from broker.partition.partition import Append, Partition
from client.ids import Offset
from client.wire.kafka.batches.record_builder import Record, build_batch
from client.wire.kafka.batches.record_builder import records as decode_records
from client.wire.kafka.batches.records import headers

_LOG = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 512 * 1024
"""Where records of one append are split; a larger single record still goes in alone."""

READ_BYTES: Final = 256 * 1024
"""How much of the log is read at once while loading. Higher: the loop stands still for longer,
about 0.1 s per MiB."""

_RECORD_OVERHEAD_BYTES: Final = 32


class _Batch:
    """One batch on its way. `on_durable` only on the last batch of an append."""

    __slots__ = ("append", "end_offset", "on_durable", "size")

    def __init__(self, append: Append, end_offset: Offset, size: int) -> None:
        self.append = append
        self.end_offset = end_offset
        self.size = size
        self.on_durable: Callable[[], None] | None = None


class CoordinatorLog:
    """One reading and writing of a partition, from its opening to its first failure."""

    def __init__(self, partition: Partition, on_failed: Callable[[BrokerError], None]) -> None:
        self.partition = partition
        self.bytes_since_copy = 0
        """What a reader would have to read that was not part of the last copy."""
        self.oldest_epoch = partition.leader_epoch
        """Leader epoch of the oldest batch that was read: later leaders left a ledger each."""
        self.in_flight_bytes = 0
        self.applied_offset = partition.log_start_offset
        """Everything below was read, or was appended here and is durable."""
        self.sent_offset = partition.log_start_offset
        """Everything below is at least on its way."""
        self._on_failed = on_failed
        self._in_flight: deque[_Batch] = deque()
        self._waits: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._error: BrokerError | None = None

    def append(
        self, records: Sequence[LogRecord], now_ms: int, on_durable: Callable[[], None]
    ) -> None:
        """Append records in order; `on_durable` is called later, unless `on_failed` is.

        Raises BrokerError: nothing was appended, except when `on_failed` was called too.
        """
        assert records
        if self._error is not None:
            raise self._error
        batches = [(build_batch(part), len(part)) for part in _split(records, now_ms)]
        for position, (batch, count) in enumerate(batches):
            try:
                append = self.partition.append(batch, from_client=False)
            except BrokerError as error:
                if position:  # the first half is in the log, the second never will be
                    self._fail(error)
                raise
            self.sent_offset = Offset(append.base_offset + count)
            sent = _Batch(append, self.sent_offset, len(batch))
            if position == len(batches) - 1:
                sent.on_durable = on_durable
            self._in_flight.append(sent)
            self.in_flight_bytes += sent.size
            self.bytes_since_copy += sent.size
            append.on_done(self._on_done)

    async def read(self) -> AsyncIterator[list[LogRecord]]:
        """Read all records, up to where the log ends now. Raises BrokerError, WireError."""
        partition = self.partition
        end = partition.log_end_offset
        position = partition.log_start_offset
        while position < end:
            try:
                fetched = await partition.reader.read(
                    position, READ_BYTES, at_least_one=True, read_committed=False
                )
            except OffsetOutOfRange:
                if position >= partition.log_start_offset:
                    raise
                position = partition.log_start_offset  # trimmed under our feet: all copied above
                continue
            if fetched.next_offset <= position:
                await self._high_watermark_above(position)
                continue
            found: list[LogRecord] = []
            for buffer in fetched.buffers:
                self.bytes_since_copy += len(buffer)
                found += self._decode(memoryview(buffer), position)
            position = fetched.next_offset
            yield found
        self.applied_offset = self.sent_offset = position

    async def applied(self, offset: Offset) -> None:
        """Wait until everything below `offset` is durable and applied. Raises BrokerError."""
        if self._error is not None:
            raise self._error
        if self.applied_offset < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits.append((offset, future))
            await future

    def close(self, error: BrokerError) -> None:
        """Stop: callbacks of what is in flight are not called any more."""
        if self._error is None:
            self._error = error
        self._in_flight.clear()
        for _, future in self._waits:
            if not future.done():
                future.set_exception(error)
        self._waits.clear()

    def _decode(self, buffer: memoryview, first: Offset) -> Iterator[LogRecord]:
        """Walk the records at or above `first`; the batch that holds it may begin earlier."""
        for at, header in headers(buffer):
            self.oldest_epoch = min(self.oldest_epoch, header.leader_epoch)
            if header.is_control:
                continue
            for record in decode_records(buffer[at : at + header.size]):
                if record.offset >= first:
                    yield LogRecord(record.key or b"", record.value)

    def _on_done(self, _append: Append) -> None:
        while self._in_flight and self._in_flight[0].append.completed:
            batch = self._in_flight.popleft()
            self.in_flight_bytes -= batch.size
            if batch.append.error is not None:
                self._fail(batch.append.error)
                return
            self.applied_offset = batch.end_offset
            if batch.on_durable is not None:
                batch.on_durable()
        while self._waits and self._waits[0][0] <= self.applied_offset:
            _, future = self._waits.popleft()
            if not future.done():
                future.set_result(None)

    def _fail(self, error: BrokerError) -> None:
        if self._error is None:
            lost = LeadershipLost(str(error))
            self.close(lost)
            self._on_failed(lost)

    async def _high_watermark_above(self, offset: Offset) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(*_: object) -> None:
            if not future.done():
                future.set_result(None)

        cancel = self.partition.on_high_watermark(offset, wake)
        try:
            await future
        finally:
            cancel()


def _split(records: Sequence[LogRecord], now_ms: int) -> Iterator[list[Record]]:
    part: list[Record] = []
    size = 0
    for record in records:
        more = len(record.key) + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        if part and size + more > BATCH_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(Record(record.key, record.value, now_ms))
        size += more
    if part:
        yield part
