"""Uses a partition as a coordinator's log: appends records, reads them all, says what is durable.

Records are appended as uncompressed batches, as one unless that would be too large. `on_durable` of
each append is called once, in log order, after its last batch is durable. The first batch that does
not become durable ends the log (`on_failed`): whatever follows it is unknown, and the owner has to
read the partition again.

Records of a transaction are batches of its producer. Such a batch may be held in the partition
until the transaction's coordinator has vouched for it, and be refused then; so it waits for nobody,
and nobody for it. Markers stand between the batches, and are read with them.

The log is kept short (`LogCopy`): a copy of all live state is appended, then what precedes it is
trimmed. The copy consists of ordinary records, written id by id while requests go on; what is in
flight is left out of it, see `broker/groups/core/group_shard.py`. A crash before the trim leaves a
longer log and nothing else.

COPY-DECIDED  Whoever folds the log in order, also a consumer that knows nothing of copies, sees
              the coordinator's offsets. So a copy never stands behind something newer: what a
              transaction may still change is left out, and copied once none may, unless something
              newer is in the log by then. And the trim waits until everything is durable and no
              transaction is open that began before the end of the copy, for it would hide the
              copy from those who read what is committed. What such transactions have written is
              not copied: the log is kept from there on. (`tests/model/OffsetCopies.tla`)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from broker.coordinator.core.coordinator_types import (
    CopiedRecord,
    LiveState,
    LogItem,
    LogRecord,
    TransactionalRecord,
    Undecided,
)
from broker.errors import BrokerError, LeadershipLost, OffsetOutOfRange
from broker.partition.core.held_batches import ProducerTransaction
from broker.partition.partition import Append, Partition
from client.errors import Outcome, QuireError
from client.ids import Clock, Offset, ProducerId
from client.node import background
from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import NO_PRODUCER, Record, build_batch, headers
from client.wire.kafka.batches.records import records as decode_records

_LOG = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 512 * 1024
"""Where records of one append are split; a larger single record still goes in alone."""

READ_BYTES: Final = 256 * 1024
"""How much of the log is read at once while loading. Higher: the loop stands still for longer,
about 0.1 s per MiB."""

COPY_HEADER: Final = "quire.copy"
"""Record header of what a copy of the log wrote while a transaction might still change it: only
older brokers did so."""

_RECORD_OVERHEAD_BYTES: Final = 32

COPY_GROWTH: Final = 4
"""The log also has to outgrow the last copy by this factor, so that copying stays cheap."""

COPY_EPOCHS: Final = 16
"""A log that this many leaders wrote to is copied too: each of them left it a ledger more."""

_IN_FLIGHT_BYTES: Final = 4 * 1024 * 1024

_DECIDED_S: Final = 0.1
"""How often to see whether transactions have ended that the copy waits for."""


class ProducerEpoch(Protocol):
    """A producer's transaction."""

    @property
    def producer_id(self) -> ProducerId:
        """Whose it is."""
        ...

    @property
    def epoch(self) -> int:
        """The producer's epoch."""
        ...

    @property
    def transaction(self) -> ProducerTransaction:
        """What the client said of it."""
        ...


class _InTransaction:
    """Batches of one request in a transaction, on their way."""

    def __init__(
        self,
        log: CoordinatorLog,
        producer: ProducerEpoch,
        count: int,
        on_batch: Callable[[Sequence[TransactionalRecord]], None],
        on_done: Callable[[BrokerError | None], None],
    ) -> None:
        self._log = log
        self._producer = producer
        self._missing = count
        self._on_batch = on_batch
        self._on_done = on_done
        self._error: BrokerError | None = None

    def settle(self, part: Sequence[Record], append: Append) -> None:
        """A batch is durable, or will not be."""
        if append.error is not None:
            if append.error.outcome is Outcome.UNKNOWN:
                self._log._fail(append.error)
            self.refuse(append.error)
            return
        producer = self._producer
        self._on_batch(
            [
                TransactionalRecord(
                    LogRecord(record.key or b"", record.value),
                    producer.producer_id,
                    producer.epoch,
                    Offset(append.base_offset + position),
                )
                for position, record in enumerate(part)
            ]
        )
        self._log._on_transaction_stored(append.end_offset)
        self._count()

    def refuse(self, error: BrokerError) -> None:
        """A batch is not in the log."""
        self._error = self._error or error
        self._count()

    def _count(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._on_done(self._error)


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
        self,
        records: Sequence[LogRecord],
        now_ms: int,
        on_durable: Callable[[], None],
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

    def append_in_transaction(
        self,
        records: Sequence[LogRecord],
        now_ms: int,
        producer: ProducerEpoch,
        on_batch: Callable[[Sequence[TransactionalRecord]], None],
        on_done: Callable[[BrokerError | None], None],
    ) -> None:
        """Append records of a producer's transaction.

        `on_batch` is called with the records of each batch that is durable, as they lie in the log;
        `on_done` once at the end, unless `on_failed` is called. Both perhaps from in here. With an
        error, what `on_batch` was not called for is not in the log.
        """
        parts = list(_split(records, now_ms))
        sent = _InTransaction(self, producer, len(parts), on_batch, on_done)
        for part in parts:
            if self._error is not None:
                sent.refuse(self._error)
                continue
            batch = build_batch(
                part,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transactional=True,
            )
            try:
                append = self.partition.append(
                    batch, from_client=False, transaction=producer.transaction
                )
            except BrokerError as error:
                sent.refuse(error)
            else:
                append.on_done(partial(sent.settle, part))

    def _on_transaction_stored(self, end_offset: Offset) -> None:
        """Everything up to a batch of a transaction is durable, and replayed."""
        self.applied_offset = max(self.applied_offset, end_offset)
        self.sent_offset = max(self.sent_offset, end_offset)

    async def read(self) -> AsyncIterator[list[LogItem]]:
        """Read all records and markers, up to where the log ends now.

        Raises BrokerError, WireError.
        """
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
            found: list[LogItem] = []
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

    def _decode(self, buffer: memoryview, first: Offset) -> Iterator[LogItem]:
        """Walk the records at or above `first`; the batch that holds it may begin earlier."""
        for at, header in headers(buffer):
            self.oldest_epoch = min(self.oldest_epoch, header.leader_epoch)
            batch = buffer[at : at + header.size]
            if header.is_control:
                if header.producer_id != NO_PRODUCER and header.base_offset >= first:
                    yield read_marker(batch)
                continue
            for one in decode_records(batch):
                if one.offset < first:
                    continue
                record = LogRecord(one.key or b"", one.value)
                if header.is_transactional:
                    yield TransactionalRecord(
                        record, header.producer_id, header.producer_epoch, one.offset
                    )
                elif one.headers and one.headers[0][0] == COPY_HEADER:
                    yield CopiedRecord(record)
                else:
                    yield record

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


class LogCopy:
    """Copies of one coordinator, one at a time."""

    def __init__(self, name: str, clock: Clock, *, bytes_min: int) -> None:
        """`bytes_min`: log growth after which state is copied. A load takes about 0.1 s of
        processor time per MiB of single commits."""
        self._name = name
        self._clock = clock
        self._bytes_min = bytes_min
        self._copied_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def start_if_due(self, log: CoordinatorLog, view: LiveState) -> None:
        """Start a copy if the log has grown enough."""
        if self._task is not None:
            return
        grown = log.bytes_since_copy >= max(self._bytes_min, COPY_GROWTH * self._copied_bytes)
        scattered = log.partition.leader_epoch - log.oldest_epoch >= COPY_EPOCHS
        if grown or scattered:
            self._task = background.run(self._run(log, view), f"copy {self._name}")
            self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Stop copying."""
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, _task: asyncio.Task[None]) -> None:
        self._task = None

    async def _run(self, log: CoordinatorLog, view: LiveState) -> None:
        log.bytes_since_copy = 0
        log.oldest_epoch = log.partition.leader_epoch
        try:
            start, copied = await self._copy(log, view)
            await log.partition.changes.delete_records(start)
        except QuireError as error:
            _LOG.warning("coordinator.copy_failed shard=%s error=%r", self._name, error)
            return  # the log has to grow anew before the next attempt
        self._copied_bytes = copied
        _LOG.info("coordinator.copied shard=%s bytes=%d start=%d", self._name, copied, start)

    async def _copy(self, log: CoordinatorLog, view: LiveState) -> tuple[Offset, int]:
        """Return (offset up to which the log is superfluous, bytes of the copy)."""
        # In a segment of its own, the copy lets everything before it go as whole ledgers.
        await log.partition.changes.roll()
        await log.applied(log.sent_offset)
        start = view.kept_from(log.applied_offset)
        before = log.bytes_since_copy
        left = await self._write(log, view, dict.fromkeys(view.ids()))
        end, copied = log.sent_offset, log.bytes_since_copy - before
        await log.applied(end)
        while left or not _is_stable(log, end):
            await asyncio.sleep(_DECIDED_S)
            if left:
                left = await self._write(log, view, left)
                end = log.sent_offset
                await log.applied(end)
        return start, copied

    async def _write(
        self, log: CoordinatorLog, view: LiveState, wanted: Mapping[str, Undecided | None]
    ) -> dict[str, Undecided]:
        """Copy these ids, or what was left out of them before; return what is left out now."""
        left: dict[str, Undecided] = {}
        for key, undecided in wanted.items():
            # From the view's answer to the append nothing may happen in between.
            found = view.snapshot(key, undecided)
            if found.records:
                log.append(found.records, self._clock.now_ms(), lambda: None)
            if found.undecided:
                left[key] = found.undecided
            if log.in_flight_bytes >= _IN_FLIGHT_BYTES:
                await log.applied(log.sent_offset)
        return left


def _is_stable(log: CoordinatorLog, end: Offset) -> bool:
    """Whether no transaction is open in the log that began before `end`."""
    return log.partition.last_stable_offset >= end
