"""Searches in a ledger against a dictionary, with whatever places are known beforehand."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.partition.core.active_segment import ActiveSegment, SparseIndex
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.producer_state import ProducerState
from broker.partition.ledger_views import LedgerView
from broker.partition.read_ahead import ReadAhead
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.log.entry_format import is_internal
from client.log.snapshot import IndexPoint, seal_snapshot
from client.wire.bookkeeper.entry import Entry
from client.wire.kafka.batches.records import Record, build_batch

EPOCH = LeaderEpoch(0)


class ListReader:
    """A ledger in a list."""

    ledger_id = LedgerId(1)

    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries
        self.reads = 0

    @property
    def last_entry(self) -> EntryId:
        return EntryId(len(self.entries) - 1)

    @property
    def length(self) -> int:
        return sum(map(len, self.entries))

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        assert 0 <= first <= last <= self.last_entry
        self.reads += 1
        return [
            Entry(self.ledger_id, EntryId(at), EntryId(-1), 0, memoryview(self.entries[at]))
            for at in range(first, last + 1)
        ]

    async def read_some(self, first: EntryId, last: EntryId) -> list[Entry]:
        return await self.read(first, last)


def write(
    sizes: list[int], base: int, snapshot_every: int, index_bytes: int
) -> tuple[ListReader, dict[int, int], ActiveSegment]:
    """Return a ledger, where each offset really is, and the writer's own index."""
    active = ActiveSegment(
        LedgerId(1), Offset(base), 0, LogLimits(index_interval_bytes=index_bytes)
    )
    entries: list[bytes] = []
    truth: dict[int, int] = {}

    def snapshot() -> None:
        end, newest = active.end_offset, active.max_timestamp_ms
        data = seal_snapshot(end, EPOCH, newest, active.points, ProducerState().encode())
        entries.append(data)
        active.on_snapshot(len(data))

    snapshot()
    for number, count in enumerate(sizes):
        start = active.end_offset
        data = build_batch([Record(None, b"v", 10 + number % 7)] * count, base_offset=start)
        truth.update((offset, len(entries)) for offset in range(start, start + count))
        entries.append(data)
        active.on_batch(start, Offset(start + count), len(data), 10 + number % 7)
        active.on_entry()
        if number % snapshot_every == snapshot_every - 1:
            snapshot()
    return ListReader(entries), truth, active


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=80),
    st.integers(0, 1000),
    st.integers(1, 40),
    st.sampled_from([1, 200, 1 << 20]),
    st.integers(1, 8),
    st.sampled_from(["own", "closed", "nothing known"]),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_offset_is_found(
    sizes: list[int],
    base: int,
    snapshot_every: int,
    index_bytes: int,
    span: int,
    knowledge: str,
    with_timestamps: bool,
    remember: bool,
    rng: object,
) -> None:
    async def check() -> None:
        reader, truth, active = write(sizes, base, snapshot_every, index_bytes)
        limits = LogLimits(search_span_entries=span)
        if knowledge == "own":
            view = LedgerView(reader, active.offsets, active.timestamps, limits, ReadAhead())
        elif knowledge == "closed":
            view = LedgerView.of_closed(reader, Offset(base), limits, ReadAhead())
            if with_timestamps:
                await view.before_timestamp(12)  # reads the snapshots, whose places it learns
        else:
            view = LedgerView.of_closed(reader, None, limits, ReadAhead())
        offsets = list(truth)
        rng.shuffle(offsets)  # type: ignore[attr-defined]
        for offset in offsets:
            low, found_span = await view.find(Offset(offset))
            assert found_span <= max(span, 1)
            assert low <= truth[offset]
            between = reader.entries[low + found_span - 1 : truth[offset]]
            assert low + found_span > truth[offset] or all(map(is_internal, between))
            if remember:
                begins = min(other for other, entry in truth.items() if entry == truth[offset])
                view.learn_next(Offset(begins), EntryId(truth[offset]))

    asyncio.run(check())


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=120, unique=True
    ),
    st.integers(2, 40),
)
def test_a_thinned_index_never_points_past_the_place(
    steps: list[tuple[int, int]], count_max: int
) -> None:
    index = SparseIndex(count_max)
    known: list[IndexPoint] = []
    key = entry = 0
    for key_step, entry_step in steps:
        key += key_step
        entry += entry_step + 1
        index.add(key, EntryId(entry))
        known.append(IndexPoint(Offset(key), EntryId(entry), 0))
    for target in range(key + 2):
        below = [point.entry_id for point in known if point.offset <= target]
        above = [point.entry_id for point in known if point.offset > target]
        found = index.at_or_before(target)
        assert found is None or (below and found <= below[-1])
        beyond = index.after(target)
        assert beyond is None or (above and beyond >= above[0])
