"""Planning in ledger mode: whatever the ledgers look like, every record is read exactly once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.spark.decode.decode import Wanted, decode
from client.spark.plan.ledger_splits import LedgerSplitter, SplitLimits
from client.spark.splits import BrokerSplit, LedgerSplit, OffsetRange, Position, Split
from tests.fakes.ledger_source import FakeLedger, FakeLedgerSource

SHAPES = st.lists(
    st.lists(
        st.one_of(
            st.tuples(st.just("snapshot")),
            st.tuples(
                st.just("batch"),
                st.sampled_from([1, 1, 2, 50]),
                st.sampled_from([0, 0, 0, 7, 400]),
                st.sampled_from([1, 1, 30]),
            ),
        ),
        max_size=14,
    ),
    min_size=1,
    max_size=6,
)


def build(shapes: list[list[tuple]], data: st.DataObject) -> FakeLedgerSource:
    ledgers: list[FakeLedger] = []
    offset = data.draw(st.sampled_from([0, 1000]))
    for number, shape in enumerate(shapes):
        ledger = FakeLedger(10 + number, offset)
        ledger.add_snapshot()
        for item in shape:
            if item[0] == "snapshot":
                ledger.add_snapshot()
            else:
                _kind, count, hole, repeat = item
                for _ in range(repeat):
                    ledger.add_batch(count, hole)
        ledger.close()
        ledgers.append(ledger)
        offset = ledger.end_offset
    last = ledgers[-1]
    last.closed = data.draw(st.booleans())
    last.sealed = last.closed and data.draw(st.booleans())
    last.confirmed = data.draw(st.integers(-1, len(last.entries) - 1))
    for ledger in ledgers:
        ledger.gone = data.draw(st.sampled_from([False, False, False, True]))
    source = FakeLedgerSource(ledgers)
    source.rolling = len(ledgers) > 1 and not last.sealed and data.draw(st.booleans())
    if source.rolling:
        ledgers[-2].sealed = False
    return source


def read(source: FakeLedgerSource, splits: Sequence[Split]) -> list[int]:
    offsets: list[int] = []
    for split in splits:
        if isinstance(split, LedgerSplit):
            chunks = source.batches(split.ledger_id, split.first_entry, split.last_entry)
            bounds = split.offset_start, split.offset_end
        else:
            chunks = source.log()
            bounds = split.start, split.end
        for rows in decode(chunks, Wanted("t", 0, *bounds, ["offset"])):
            offsets += rows.column(0).to_pylist()
    return offsets


@settings(max_examples=300)
@given(shapes=SHAPES, data=st.data())
def test_every_record_is_read_exactly_once(shapes: list[list[tuple]], data: st.DataObject) -> None:
    source = build(shapes, data)
    everything = read(source, [BrokerSplit("", "t", 0, -1, 0, 1 << 60)])
    end = next(reversed(source.ledgers.values())).end_offset
    low = data.draw(st.integers(0, end))
    high = data.draw(st.integers(low, end))
    limits = SplitLimits(
        partition_bytes_max=data.draw(st.sampled_from([1, 300, 5000, 1 << 30])),
        partition_records_max=data.draw(st.sampled_from([None, 1, 40])),
        partition_count_min=data.draw(st.sampled_from([None, 1, 7])),
    )
    splitter = LedgerSplitter(source, limits)
    hint = None
    kind = data.draw(st.sampled_from(["none", "right", "nonsense"]))
    if kind == "right":
        hint = asyncio.run(splitter.locate(OffsetRange("id", "t", 0, 0, low)))
    elif kind == "nonsense":
        hint = Position(10 + data.draw(st.integers(0, 6)), data.draw(st.integers(0, 99)))
    splits = asyncio.run(splitter.split([OffsetRange("id", "t", 0, low, high, hint)]))

    assert read(source, splits) == [offset for offset in everything if low <= offset < high]
    edges = [
        (one.offset_start, one.offset_end) if isinstance(one, LedgerSplit) else (one.start, one.end)
        for one in splits
    ]
    assert all(start < after for start, after in edges)
    assert all(one[1] == two[0] for one, two in itertools.pairwise(edges))
    for split in splits:
        if isinstance(split, LedgerSplit):
            ledger = source.ledgers[split.ledger_id]
            last = len(ledger.entries) - 1 if ledger.closed else ledger.confirmed
            assert 0 <= split.first_entry <= split.last_entry <= last
            assert not ledger.gone


@given(shapes=SHAPES, data=st.data())
def test_a_position_stays_the_same_while_the_log_goes_on(
    shapes: list[list[tuple]], data: st.DataObject
) -> None:
    source = build(shapes, data)
    end = next(reversed(source.ledgers.values())).end_offset
    target = OffsetRange("id", "t", 0, 0, data.draw(st.integers(0, end)))
    splitter = LedgerSplitter(source, SplitLimits(1 << 30))
    before = asyncio.run(splitter.locate(target))
    last = next(reversed(source.ledgers.values()))
    last.add_snapshot()
    last.confirmed = len(last.entries) - 1
    if data.draw(st.booleans()):
        last.close()
    after = asyncio.run(splitter.locate(target))
    assert before is None or before == after


@pytest.mark.parametrize("entry_count", [4, 5, 7, 101, 1003])
@pytest.mark.parametrize("least", [1, 3, 4])
def test_no_more_splits_of_a_ledger_than_were_asked_for(entry_count: int, least: int) -> None:
    """A fifth task on two slots would be a third round, for a quarter of nothing."""
    ledger = FakeLedger(10, 0)
    for number in range(entry_count):
        ledger.add_batch(1 + number % 3)
    ledger.close()
    splitter = LedgerSplitter(
        FakeLedgerSource([ledger]), SplitLimits(1 << 30, partition_count_min=least)
    )
    whole = OffsetRange("id", "t", 0, 0, ledger.end_offset)
    splits = asyncio.run(splitter.split([whole]))
    assert len(splits) == least
    lengths = [
        one.last_entry - one.first_entry + 1 for one in splits if isinstance(one, LedgerSplit)
    ]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("least", range(1, 14))
def test_ledgers_of_few_entries_are_made_up_for_by_others(least: int) -> None:
    first = FakeLedger(10, 0)
    for _ in range(2):
        first.add_batch(1, value_bytes=5000)
    second = FakeLedger(11, first.end_offset)
    for _ in range(50):
        second.add_batch(1)
    source = FakeLedgerSource([first, second])
    for ledger in (first, second):
        ledger.close()
    splitter = LedgerSplitter(source, SplitLimits(1 << 30, partition_count_min=least))
    whole = OffsetRange("id", "t", 0, 0, second.end_offset)
    assert len(asyncio.run(splitter.split([whole]))) == max(2, least)


def test_limits_by_size_make_a_multiple_of_what_was_asked_for() -> None:
    ledger = FakeLedger(10, 0)
    for _ in range(100):
        ledger.add_batch(1)
    ledger.close()
    source = FakeLedgerSource([ledger])
    limits = SplitLimits(sum(map(len, ledger.entries)) * 2 // 9, partition_count_min=4)
    whole = OffsetRange("id", "t", 0, 0, ledger.end_offset)
    assert len(asyncio.run(LedgerSplitter(source, limits).split([whole]))) == 8
