"""Ledger mode with read_committed: of every range, the committed records and no others.

A log is written as a leader writes it, with transactions that span ledgers, markers, blocks of
aborted transactions and snapshots; ledgers are ended by their writer or recovered by the next one.
Whatever is read is compared with what was committed, and the broker may serve only what ledgers
cannot decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from client.ids import EntryId, LedgerId, Offset, ProducerId
from client.ledger.core import metadata_codec
from client.log.aborted_transactions import AbortedTransaction, LedgerAborted, seal_block
from client.log.segment import Segment, SegmentFacts, SnapshotPlace, TransactionFacts
from client.log.snapshot import SnapshotTransactions, seal_snapshot
from client.spark.decode.decode import Wanted, decode
from client.spark.options import Options
from client.spark.plan.ledger_splits import LedgerSplitter, SplitLimits
from client.spark.read.ledger_reader import chunks
from client.spark.splits import AbortedTransaction as Aborted
from client.spark.splits import BrokerSplit, LedgerSplit, OffsetRange
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.control_batch import Marker, build_marker
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.ledger_source import EPOCH, FakeLedger, FakeLedgerSource

PRODUCERS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, PRODUCERS - 1), st.sampled_from([1, 3])),
        st.tuples(st.just("data"), st.integers(0, PRODUCERS - 1), st.sampled_from([1, 3])),
        st.tuples(st.just("plain"), st.just(0), st.sampled_from([1, 4])),
        st.tuples(st.just("end"), st.integers(0, PRODUCERS - 1), st.booleans()),
        st.tuples(st.just("block"), st.just(0), st.just(0)),
        st.tuples(st.just("roll"), st.just(0), st.booleans()),
    ),
    max_size=40,
)


class Writer:
    """Writes the log of one partition, as its leader would."""

    def __init__(self) -> None:
        self.end = 0
        self.ledgers: list[FakeLedger] = []
        self.facts: dict[LedgerId, SegmentFacts] = {}
        self.open: dict[int, int] = {}
        self.aborted: list[Aborted] = []
        self.committed: list[int] = []
        self._own: dict[int, list[int]] = {}
        self._unended: FakeLedger | None = None
        self._index = LedgerAborted()
        self._transactional = False
        self._roll({})

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def take(self, kind: str, which: int, value: int) -> None:
        if kind == "data":
            self.open.setdefault(which, self.end)
            self._own.setdefault(which, []).extend(range(self.end, self.end + value))
            self._batch(value, which)
        elif kind == "plain":
            self.committed.extend(range(self.end, self.end + value))
            self._batch(value, None)
        elif kind == "end" and which in self.open:
            self._marker(which, commit=bool(value))
        elif kind == "block" and len(self._index.rest):
            ledger = self.ledgers[-1]
            block = self._index.on_block_written(EntryId(len(ledger.entries)))
            ledger.entries.append(seal_block(block, Offset(self.end), EPOCH))
        elif kind == "roll":
            self._end_ledger(by_its_writer=bool(value))

    def source(self) -> Source:
        last = self.ledgers[-1]
        last.confirmed = len(last.entries) - 1
        return Source(self)

    def _batch(self, count: int, producer: int | None) -> None:
        ledger = self.ledgers[-1]
        transactional = producer is not None
        batch = build_batch(
            [Record(None, b"%d" % (self.end + index)) for index in range(count)],
            base_offset=Offset(self.end),
            producer_id=ProducerId(-1 if producer is None else producer),
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            transactional=transactional,
        )
        self._transactional |= transactional
        ledger.entries.append(batch)
        self.end += count
        ledger.end_offset = self.end

    def _marker(self, producer: int, *, commit: bool) -> None:
        first = self.open.pop(producer)
        ledger = self.ledgers[-1]
        ledger.entries.append(marker(producer, self.end, commit=commit))
        at, self.end = self.end, self.end + 1
        ledger.end_offset = self.end
        own = self._own.pop(producer)
        if commit:
            self.committed.extend(own)
            return
        self.aborted.append(Aborted(producer, first, at))
        entry = AbortedTransaction(ProducerId(producer), Offset(first), Offset(at))
        self._index.add(entry, Offset(self.stable))

    def _end_ledger(self, *, by_its_writer: bool) -> None:
        ledger = self.ledgers[-1]
        if by_its_writer:
            self._snapshot(ledger, {})
            place = SnapshotPlace(ledger.ledger_id, EntryId(len(ledger.entries) - 1))
        else:
            place = SnapshotPlace(LedgerId(ledger.ledger_id + 1), EntryId(0))
        transactions = None
        if self._transactional or self.open or len(self._index):
            transactions = TransactionFacts(
                self._transactional,
                len(self._index),
                place if len(self._index) else None,
                Offset(min(self.stable, self.end)),
            )
        facts = SegmentFacts(Offset(self.end - 1), ledger.length, -1, transactions)
        self.facts[ledger.ledger_id] = facts
        ledger.close()
        earlier = {} if by_its_writer else {ledger.ledger_id: self._index}
        self._roll(earlier)

    def _roll(self, earlier: dict[LedgerId, LedgerAborted]) -> None:
        self._index = LedgerAborted()
        self._transactional = False
        ledger = FakeLedger(10 + len(self.ledgers), self.end)
        self.ledgers.append(ledger)
        self._snapshot(ledger, earlier)

    def _snapshot(self, ledger: FakeLedger, earlier: dict[LedgerId, LedgerAborted]) -> None:
        said = SnapshotTransactions(self._transactional, self._index, earlier)
        ledger.entries.append(seal_snapshot(Offset(self.end), EPOCH, -1, [], b"", said))


def marker(producer: int, at: int, *, commit: bool) -> bytes:
    batch = bytearray(build_marker(Marker(ProducerId(producer), 0, commit, 0), 0))
    batch[:8] = at.to_bytes(8, "big")
    return bytes(batch)


class Source(FakeLedgerSource):
    """The ledgers for a plan, and for tasks."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.ledgers)
        self._facts = writer.facts

    async def segments(self, topic_id: str, partition: int, start: int, end: int) -> list[Segment]:
        found = []
        for ledger in self.ledgers.values():
            facts = self._facts.get(ledger.ledger_id)
            segment = Segment(ledger.ledger_id, Offset(ledger.base_offset), EPOCH, 0, facts)
            if ledger.base_offset < end and (facts is None or facts.last_offset + 1 > start):
                found.append(segment)
        return found

    def read(self, ledger_id: LedgerId, metadata: Any, first: int, last: int, size: int) -> Any:
        entries = self.ledgers[ledger_id].entries
        return [
            Entry(ledger_id, EntryId(at), EntryId(at - 1), 0, memoryview(entries[at]))
            for at in range(first, last + 1)
        ]

    def begin(self, entries: list[Entry]) -> Future[list[Entry]]:
        future: Future[list[Entry]] = Future()
        future.set_result(entries)
        return future


def read(writer: Writer, source: Source, low: int, high: int) -> tuple[list[int], list[Any]]:
    """Return the offsets that tasks yield, and the splits of the plan."""
    options = Options("127.0.0.1:1", read_committed=True, columns=("offset",))
    splitter = LedgerSplitter(source, SplitLimits(200), read_committed=True)
    splits = asyncio.run(splitter.split([OffsetRange("id", "t", 0, low, high)]))
    offsets: list[int] = []

    def from_broker(split: BrokerSplit, aborted: list[Aborted]) -> Iterator[memoryview]:
        aborted.extend(writer.aborted)
        yield from (memoryview(batch) for batch in source.log())

    for split in splits:
        aborted: list[Aborted] = []
        if isinstance(split, LedgerSplit):
            aborted += split.aborted or ()
            start, end = split.offset_start, split.offset_end
            found = chunks(split, options, source, aborted, from_broker)  # type: ignore[arg-type]
            assert metadata_codec.decode(split.metadata)
        else:
            start, end = split.start, split.end
            found = from_broker(split, aborted)
        wanted = Wanted.by(options, "t", 0, start, end, verified=False)
        for rows in decode(found, wanted, aborted):
            offsets += rows.column(0).to_pylist()
    return offsets, splits


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, data=st.data())
def test_the_committed_records_and_no_others(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    writer = Writer()
    for step in steps:
        writer.take(*step)
    low = data.draw(st.integers(0, writer.stable))
    high = data.draw(st.integers(low, writer.stable))
    offsets, splits = read(writer, writer.source(), low, high)
    assert offsets == [at for at in sorted(writer.committed) if low <= at < high]
    for split in splits:
        if isinstance(split, LedgerSplit):
            is_decided = any(
                facts.stable_offset >= split.offset_end
                for ledger_id, facts in writer.facts.items()
                if ledger_id >= split.ledger_id
            )
            assert (split.aborted is not None) == is_decided


def test_a_sealed_segment_is_read_without_its_broker() -> None:
    """And with what another ledger lists, which recovered it."""
    writer = Writer()
    for step in [("data", 0, 3), ("data", 1, 3), ("end", 0, False), ("roll", 0, False)]:
        writer.take(*step)
    for step in [("plain", 0, 1), ("end", 1, True), ("roll", 0, True), ("plain", 0, 2)]:
        writer.take(*step)
    source = writer.source()
    offsets, splits = read(writer, source, 0, 7)
    assert offsets == [3, 4, 5]
    assert {type(one) for one in splits} == {LedgerSplit}
    assert [one.aborted for one in splits if one.aborted] == [(Aborted(0, 0, 6),)] * len(
        [one for one in splits if one.aborted]
    )
