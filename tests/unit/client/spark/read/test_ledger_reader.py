"""A task in ledger mode: what it asks for, and where it goes when bookies cannot serve it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from client.errors import LedgerError, NoSuchEntry
from client.ids import EntryId, LedgerId
from client.ledger.core import metadata_codec
from client.spark.decode.decode import Wanted, decode
from client.spark.options import Options
from client.spark.read.ledger_reader import RUNS_AHEAD, chunks
from client.spark.splits import AbortedTransaction, BrokerSplit, LedgerSplit
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.records import Buffer, Record, build_batch
from tests.fakes.ledger_source import FakeLedger


class FakeAccess:
    """Serves entries at once; some of them fail."""

    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries
        self.failing: dict[int, LedgerError] = {}
        self.asked: list[tuple[int, int]] = []
        self.under_way = 0
        self.under_way_max = 0

    def read(self, ledger_id: LedgerId, metadata: Any, first: int, last: int, size_max: int) -> Any:
        self.asked.append((first, last))
        return first, last

    def begin(self, run: tuple[int, int]) -> Future[list[Entry]]:
        future: Future[list[Entry]] = Future()
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        errors = [self.failing[at] for at in range(run[0], run[1] + 1) if at in self.failing]
        if errors:
            future.set_exception(errors[0])
        else:
            future.set_result([self._entry(at) for at in range(run[0], run[1] + 1)])
        taken = future.result

        def result(timeout: float | None = None) -> list[Entry]:
            self.under_way -= 1
            return taken(timeout)

        future.result = result  # type: ignore[method-assign]
        return future

    def _entry(self, at: int) -> Entry:
        payload = memoryview(self.entries[at])
        return Entry(LedgerId(10), EntryId(at), EntryId(at - 1), 0, payload)


class FakeBroker:
    """Serves a log, from any offset; remembers what it was asked for."""

    def __init__(self, log: list[bytes], aborted: list[AbortedTransaction] | None = None) -> None:
        self.log = log
        self.aborted = aborted or []
        self.asked: list[tuple[int, int]] = []

    def __call__(
        self, split: BrokerSplit, aborted: list[AbortedTransaction]
    ) -> Iterator[memoryview]:
        self.asked.append((split.start, split.end))
        aborted.extend(self.aborted)
        yield from map(memoryview, self.log)


@pytest.fixture
def ledger() -> FakeLedger:
    made = FakeLedger(10, 100)
    made.add_snapshot()
    for _ in range(20):
        made.add_batch(10)
    made.add_snapshot()
    made.add_batch(10)
    made.close()
    return made


def split_of(ledger: FakeLedger, start: int, end: int) -> LedgerSplit:
    return LedgerSplit(
        topic_id="id", topic="t", partition=0, ledger_id=10,
        first_entry=0, last_entry=len(ledger.entries) - 1, offset_start=start, offset_end=end,
        metadata=metadata_codec.encode(ledger.metadata()),
    )  # fmt: skip


def batches(ledger: FakeLedger) -> list[bytes]:
    return [payload for payload in ledger.entries if payload[16] == 2]


def offsets(
    ledger: FakeLedger,
    access: FakeAccess,
    broker: FakeBroker,
    start: int = 100,
    end: int = 310,
    **options: Any,
) -> list[int]:
    settings = Options("127.0.0.1:1", **options)
    aborted: list[AbortedTransaction] = []
    source: Iterator[Buffer] = chunks(
        split_of(ledger, start, end), settings, access, aborted, broker
    )
    rows = decode(source, Wanted("t", 0, start, end, ["offset"], settings.read_committed), aborted)
    return [offset for one in rows for offset in one.column(0).to_pylist()]


def test_entries_in_order_without_what_is_internal(ledger: FakeLedger) -> None:
    broker = FakeBroker([])
    assert offsets(ledger, FakeAccess(ledger.entries), broker, 107, 303) == [*range(107, 303)]
    assert broker.asked == []


def test_reads_under_way_are_bounded(ledger: FakeLedger) -> None:
    access = FakeAccess(ledger.entries)
    offsets(ledger, access, FakeBroker([]), ledger_in_flight_bytes_max=1000)
    assert len(access.asked) > 5
    assert access.under_way_max <= RUNS_AHEAD
    size_max = max(map(len, ledger.entries))
    assert all((last - first) * size_max < 1000 for first, last in access.asked)


def test_the_next_reads_are_under_way_while_entries_are_used(ledger: FakeLedger) -> None:
    access = FakeAccess(ledger.entries)
    settings = Options("127.0.0.1:1", ledger_in_flight_bytes_max=1000)
    source = chunks(split_of(ledger, 100, 310), settings, access, [], FakeBroker([]))
    next(source)
    assert access.under_way == RUNS_AHEAD


@pytest.mark.parametrize("failing", [0, 1, 7, 22])
def test_the_broker_serves_what_no_bookie_has(ledger: FakeLedger, failing: int) -> None:
    access = FakeAccess(ledger.entries)
    access.failing[failing] = NoSuchEntry("no replica has it")
    broker = FakeBroker(batches(ledger))
    found = offsets(ledger, access, broker, ledger_in_flight_bytes_max=600)
    assert found == [*range(100, 310)]
    ((start, end),) = broker.asked
    assert end == 310
    assert start <= 100 + 10 * failing


def test_nothing_is_asked_of_the_broker_when_only_the_end_is_missing(ledger: FakeLedger) -> None:
    access = FakeAccess(ledger.entries)
    access.failing[22] = NoSuchEntry("no replica has it")
    broker = FakeBroker([])
    assert offsets(ledger, access, broker, 100, 300, ledger_in_flight_bytes_max=1) == [
        *range(100, 300)
    ]
    assert broker.asked == []


def test_transactions_are_left_to_the_broker_where_it_matters(ledger: FakeLedger) -> None:
    doubtful = build_batch([Record(None, b"x")] * 10, base_offset=140, producer_id=7,
                           producer_epoch=0, base_sequence=0, transactional=True)  # fmt: skip
    ledger.entries[5] = doubtful
    aborted = AbortedTransaction(7, 140, 149)
    broker = FakeBroker(batches(ledger), [aborted])
    found = offsets(ledger, FakeAccess(ledger.entries), broker, read_committed=True)
    assert found == [*range(100, 140), *range(150, 310)]
    assert broker.asked == [(140, 310)]
    broker = FakeBroker([])
    assert offsets(ledger, FakeAccess(ledger.entries), broker) == [*range(100, 310)]
    assert broker.asked == []


def test_a_reader_that_stops_early_leaves_nothing_under_way(ledger: FakeLedger) -> None:
    access = FakeAccess(ledger.entries)
    settings = Options("127.0.0.1:1", ledger_in_flight_bytes_max=600)
    source = chunks(split_of(ledger, 100, 310), settings, access, [], FakeBroker([]))
    next(source)
    source.close()
    assert access.under_way <= RUNS_AHEAD
