"""Records of transactions in a coordinator's log: several batches, some of which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.coordinator.coordinator_log import COPY_HEADER, CoordinatorLog
from broker.coordinator.core.coordinator_types import (
    CopiedRecord,
    LogItem,
    LogRecord,
    TransactionalRecord,
)
from broker.errors import BrokerError, LeadershipLost, NotEnoughReplicas
from broker.partition.core.append_queue import Append
from broker.partition.core.held_batches import ProducerTransaction
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker, build_marker
from client.wire.kafka.batches.records import Record, build_batch, parse_header, records
from tests.fakes.partitions import FakeLog, FakePartition
from tests.fakes.virtual_time import run

HALF = b"x" * (300 * 1024)


class Producer(NamedTuple):
    producer_id: ProducerId = ProducerId(9)
    epoch: int = 4
    transaction: ProducerTransaction = ProducerTransaction("tx", is_tv2=False)


class Partition(FakePartition):
    """Holds batches of transactions until it is told what becomes of them."""

    def __init__(self) -> None:
        super().__init__(FakeLog())
        self.held: list[tuple[Append, bytes]] = []
        self.refusals: list[BrokerError | None] = []

    def append(self, batch: bytes, *, from_client: bool = True, transaction: Any = None) -> Append:
        if transaction is None:
            return super().append(batch, from_client=from_client)
        if self.refusals and (refusal := self.refusals.pop(0)) is not None:
            raise refusal
        append = Append(Offset(-1), Offset(-1), (), len(batch))
        self.held.append((append, batch))
        return append

    def settle(self, error: BrokerError | None = None) -> None:
        append, batch = self.held.pop(0)
        append.base_offset = self._end
        append.end_offset = self._end = Offset(self._end + parse_header(batch).record_count)
        append.complete(error)


class Bench:
    """A log, and what it says of the last append."""

    def __init__(self) -> None:
        self.partition = Partition()
        self.failures: list[BrokerError] = []
        self.log = CoordinatorLog(self.partition, self.failures.append)  # type: ignore[arg-type]
        self.stored: list[TransactionalRecord] = []
        self.ends: list[BrokerError | None] = []

    def send(self, *values: bytes) -> None:
        items = [LogRecord(b"key", value) for value in values]
        self.log.append_in_transaction(items, 5, Producer(), self.on_batch, self.ends.append)

    def on_batch(self, found: Sequence[TransactionalRecord]) -> None:
        self.stored += found


def test_every_batch_is_the_producers_and_says_where_it_lies() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.send(HALF, HALF)
        assert len(bench.partition.held) == 2
        for _, batch in bench.partition.held:
            header = parse_header(batch)
            assert header.is_transactional
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
        bench.partition.settle()
        assert [(one.producer_id, one.producer_epoch, one.offset) for one in bench.stored] == [
            (9, 4, 0)
        ]
        assert bench.ends == []
        bench.partition.settle()
        assert [one.offset for one in bench.stored] == [0, 1]
        assert bench.ends == [None]
        assert bench.log.applied_offset == 2

    run(scenario())


def test_what_is_held_keeps_no_other_append_waiting() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.send(b"held")
        durable: list[bool] = []
        bench.log.append([LogRecord(b"k", b"v")], 5, lambda: durable.append(True))
        await bench.log.applied(bench.log.sent_offset)
        assert durable == [True]
        assert bench.ends == []

    run(scenario())


def test_a_refusal_says_so_once_and_the_rest_counts() -> None:
    async def scenario() -> None:
        busy = NotEnoughReplicas("not verified")
        for at in (0, 1):
            bench = Bench()
            bench.partition.refusals = [busy if place == at else None for place in (0, 1)]
            bench.send(HALF, HALF)
            bench.partition.settle()
            assert len(bench.stored) == 1
            assert bench.ends == [busy]
        bench = Bench()
        bench.send(HALF, HALF)
        bench.partition.settle(busy)
        bench.partition.settle()
        assert len(bench.stored) == 1
        assert bench.ends == [busy]
        assert bench.failures == []

    run(scenario())


def test_an_unknown_end_is_the_end_of_the_log() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.send(b"x")
        bench.partition.settle(LeadershipLost("gone"))
        assert len(bench.failures) == 1
        bench.ends.clear()
        bench.send(b"y")
        assert isinstance(bench.ends[0], LeadershipLost)
        assert bench.partition.held == []

    run(scenario())


def test_the_log_is_read_with_what_transactions_wrote() -> None:
    async def scenario() -> None:
        bench = Bench()
        log = bench.log
        log.append([LogRecord(b"a", b"1")], 5, lambda: None)
        await log.applied(log.sent_offset)
        copied = build_batch([Record(b"b", b"2", 5, ((COPY_HEADER, None),))])
        marker = Marker(ProducerId(9), 4, True, 7)
        bench.send(b"3")
        (_, batch) = bench.partition.held.pop()
        for more in (copied, batch, build_marker(marker, 5), build_batch(
            list(records(batch)), transactional=True, control=True,
        )):  # fmt: skip
            FakePartition.append(bench.partition, more, from_client=False)
        bench.partition.confirm()
        found: list[LogItem] = []
        async for some in CoordinatorLog(bench.partition, print).read():  # type: ignore[arg-type]
            found += some
        assert found == [
            LogRecord(b"a", b"1"),
            CopiedRecord(LogRecord(b"b", b"2")),
            TransactionalRecord(LogRecord(b"key", b"3"), ProducerId(9), 4, Offset(2)),
            marker,
        ]

    run(scenario())
