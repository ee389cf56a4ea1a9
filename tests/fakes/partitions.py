"""A partition that keeps its batches in a list: slow, failing and lost on demand.

Several `FakePartition`s over one `FakeLog` are the successive leaders of one partition. As with
ledgers, a new leader's open decides about what the old one had not confirmed: it may survive.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    BrokerError,
    LeadershipLost,
    MessageTooLarge,
    NotLeader,
    OffsetOutOfRange,
)
from broker.partition.core.append_queue import Append
from broker.partition.tail_cache import Fetched
from client.ids import LeaderEpoch, Offset
from client.wire.kafka.batches.records import STAMP_BYTES, parse_header, stamp


class FakeLog:
    """What survives the leaders: durable batches with their offsets."""

    def __init__(self, topic: str = "__consumer_offsets", index: int = 0) -> None:
        self.topic = TopicInfo(
            name=topic,
            topic_id=uuid.UUID(int=1),
            partition_count=1,
            replication_factor=1,
            config=TopicConfig.parse({}),
            internal=True,
        )
        self.index = index
        self.batches: list[tuple[Offset, Offset, bytes]] = []  # base, end, bytes
        self.start = Offset(0)
        self.epoch = 0

    @property
    def end(self) -> Offset:
        return self.batches[-1][1] if self.batches else self.start

    def size(self) -> int:
        return sum(len(batch) for _, end, batch in self.batches if end > self.start)


class FakePartition:
    """One leader of a `FakeLog`. `manual`: appends wait for `confirm`."""

    def __init__(self, log: FakeLog, *, manual: bool = False) -> None:
        log.epoch += 1
        self.log = log
        self.topic = log.topic
        self.index = log.index
        self.leader_epoch = LeaderEpoch(log.epoch)
        self.manual = manual
        self.reader = self
        self.changes = self
        self.is_open = True
        self.in_doubt = False
        self.batch_bytes_max = 1 << 20
        self.refuse: BrokerError | None = None
        self.refuse_after: int | None = None
        self.read_errors: list[BrokerError] = []
        self.read_bytes_max: int | None = None
        self.rolls = 0
        self.append_count = 0
        self._pending: list[tuple[Append, bytes]] = []
        self._end = log.end
        self._waits: list[tuple[Offset, Callable[[], None]]] = []
        self._opened_end = log.end
        self.readable: Offset | None = None

    @property
    def log_start_offset(self) -> Offset:
        return self.log.start

    @property
    def high_watermark(self) -> Offset:
        return self.log.end if self.readable is None else self.readable

    @property
    def last_stable_offset(self) -> Offset:
        return self.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        return self._end

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def check_leading(self) -> None:
        if not self.is_open or self.in_doubt:
            raise NotLeader("not leading, or not sure")

    def append(self, batch: bytes, *, from_client: bool = True) -> Append:
        assert not from_client
        if not self.is_open:
            raise NotLeader("not leading")
        if self.refuse is not None:
            raise self.refuse
        if self.refuse_after is not None:
            if self.refuse_after == 0:
                self.refuse_after = None
                raise NotLeader("refused half way")
            self.refuse_after -= 1
        if len(batch) > self.batch_bytes_max:
            raise MessageTooLarge(f"{len(batch)} bytes")
        header = parse_header(batch)
        base = self._end
        self._end = Offset(base + header.record_count)
        stamped = stamp(base, header.batch_length, self.leader_epoch) + batch[STAMP_BYTES:]
        append = Append(base, self._end, (stamped,), len(batch))
        self._pending.append((append, stamped))
        self.append_count += 1
        if not self.manual:
            asyncio.get_running_loop().call_soon(self.confirm, 1)
        return append

    def confirm(self, count: int | None = None) -> None:
        """Make the oldest pending appends durable."""
        for _ in range(len(self._pending) if count is None else count):
            if not self._pending:
                return
            append, batch = self._pending.pop(0)
            self.log.batches.append((append.base_offset, append.end_offset, batch))
            append.complete()
        waits, self._waits = self._waits, []
        for above, call in waits:
            if self.high_watermark > above:
                call()
            else:
                self._waits.append((above, call))

    def lose(self, surviving: int = 0) -> None:
        """Lose the leadership; `surviving` pending appends, the oldest, stay in the log."""
        self.is_open = False
        pending, self._pending = self._pending, []
        for append, batch in pending[:surviving]:
            self.log.batches.append((append.base_offset, append.end_offset, batch))
        for append, _ in pending:
            append.complete(LeadershipLost("fenced"))

    async def read(
        self, offset: Offset, size_max: int, *, at_least_one: bool, read_committed: bool
    ) -> Fetched:
        await asyncio.sleep(0)
        if self.read_errors:
            raise self.read_errors.pop(0)
        self.check_leading()
        if offset < self.log.start:
            raise OffsetOutOfRange(offset, self.log.start, self._end)
        found: list[bytes] = []
        size = 0
        end = offset
        for _, batch_end, batch in self.log.batches:
            if batch_end <= offset or batch_end > self.high_watermark:
                continue
            if found and size + len(batch) > min(size_max, self.read_bytes_max or size_max):
                break
            found.append(batch)
            size += len(batch)
            end = batch_end
        return Fetched(list(found), end, size)

    def on_high_watermark(self, above: Offset, call: Callable[[], None]) -> Callable[[], None]:
        if self.high_watermark > above:
            asyncio.get_running_loop().call_soon(call)
            return lambda: None
        wait = (above, call)
        self._waits.append(wait)
        return lambda: self._waits.remove(wait) if wait in self._waits else None

    def show(self, readable: Offset | None) -> None:
        """Move the high watermark of what was there before."""
        self.readable = readable
        waits, self._waits = self._waits, []
        for above, call in waits:
            call() if self.high_watermark > above else self._waits.append((above, call))

    async def roll(self) -> None:
        await asyncio.sleep(0)
        if not self.is_open:
            raise NotLeader("not leading")
        self.rolls += 1

    async def delete_records(self, before: Offset) -> Offset:
        await asyncio.sleep(0)
        if not self.is_open:
            raise NotLeader("not leading")
        assert self.log.start <= before <= self.log.end
        self.log.start = before
        self.log.batches = [one for one in self.log.batches if one[1] > before]
        return before
