"""When a segment wants a snapshot, when it wants to end, and where its sparse indexes lead."""

from __future__ import annotations

from broker.partition.core.active_segment import ActiveSegment, SnapshotPoints, SparseIndex
from broker.partition.core.log_limits import LogLimits, SegmentLimits
from client.ids import EntryId, LedgerId, Offset
from client.log.segments import SegmentFacts
from client.log.snapshot import IndexPoint

DAY = 86_400_000


def segment(**limits: int) -> ActiveSegment:
    return ActiveSegment(LedgerId(1), Offset(100), 1000, LogLimits(**limits))


def fill(active: ActiveSegment, count: int, size: int = 100, timestamp_ms: int = 5000) -> None:
    for _ in range(count):
        end = Offset(active.end_offset + 1)
        active.on_batch(active.end_offset, end, size, timestamp_ms)
        active.on_entry()


def test_facts() -> None:
    active = segment()
    active.on_snapshot(30)
    active.transactions.stable_at = Offset(100)
    assert active.facts() == SegmentFacts(Offset(99), 30, -1)
    fill(active, 3, timestamp_ms=7000)
    fill(active, 1, timestamp_ms=6000)
    active.transactions.stable_at = Offset(104)
    assert active.facts() == SegmentFacts(Offset(103), 430, 7000)
    assert active.entry_count == 5


def test_snapshots_fall_due_by_bytes() -> None:
    active = segment(snapshot_interval_bytes=1000)
    active.on_snapshot(30)
    assert not active.has_batches_after_snapshot
    fill(active, 9)
    assert active.has_batches_after_snapshot
    assert not active.snapshot_due
    fill(active, 1)
    assert active.snapshot_due
    active.on_snapshot(30)
    assert not active.snapshot_due
    assert not active.has_batches_after_snapshot


def test_snapshots_fall_due_by_entries() -> None:
    active = segment(snapshot_interval_entries=20)
    active.on_snapshot(30)
    fill(active, 19)
    assert not active.snapshot_due
    fill(active, 1)
    assert active.snapshot_due
    active.on_snapshot(500)
    fill(active, 39)
    assert not active.snapshot_due, "at most an eighth of the log is snapshots"
    fill(active, 1)
    assert active.snapshot_due


def test_large_snapshots_are_rarer() -> None:
    active = segment(snapshot_interval_bytes=1000)
    active.on_snapshot(500)
    fill(active, 39)
    assert not active.snapshot_due
    fill(active, 1)
    assert active.snapshot_due


def test_points_list_the_snapshots() -> None:
    active = segment(snapshot_interval_bytes=200)
    active.on_snapshot(10)
    fill(active, 2, timestamp_ms=44)
    active.on_snapshot(10)
    assert [tuple(point) for point in active.points] == [(100, 0, -1), (102, 3, 44)]


def test_points_leave_out_snapshots_close_to_the_one_before() -> None:
    active = segment(snapshot_interval_bytes=1000, snapshot_interval_entries=3)
    active.on_snapshot(10)
    for _ in range(4):
        fill(active, 3)
        assert active.snapshot_due
        active.on_snapshot(10)
    assert [point.entry_id for point in active.points] == [0, 16]


def test_points_are_thinned_out() -> None:
    active = segment(snapshot_interval_bytes=10)
    for _ in range(10_000):
        active.on_snapshot(10)
    assert len(active.points) <= 4096
    assert active.points[0].entry_id == 0


def test_the_index_has_a_place_every_so_many_bytes() -> None:
    active = segment(index_interval_bytes=250)
    active.on_snapshot(10)
    fill(active, 10)
    assert [active.offsets.at_or_before(100 + at) for at in range(10)] == [
        1, 1, 1, 4, 4, 4, 7, 7, 7, 10,
    ]  # fmt: skip
    assert active.timestamps.at_or_before(4999) == EntryId(1)
    assert active.timestamps.at_or_before(5000) == EntryId(10)


def test_roll_by_size() -> None:
    active = segment()
    limits = SegmentLimits(segment_bytes=1000)
    fill(active, 9)
    assert not active.roll_due(limits, 5000)
    fill(active, 1)
    assert active.roll_due(limits, 5000)


def test_roll_by_age_needs_a_record() -> None:
    active = segment()
    limits = SegmentLimits(segment_ms=DAY)
    assert not active.roll_due(limits, 1000 + DAY)
    fill(active, 1)
    assert not active.roll_due(limits, 999 + DAY)
    assert active.roll_due(limits, 1000 + DAY)


def test_roll_when_everything_in_it_has_expired() -> None:
    active = segment()
    limits = SegmentLimits(retention_ms=DAY)
    fill(active, 1, timestamp_ms=5000)
    assert not active.roll_due(limits, 5000 + DAY)
    assert active.roll_due(limits, 5001 + DAY)
    assert not active.roll_due(SegmentLimits(retention_ms=-1), 5001 + DAY)


def test_old_timestamps_do_not_roll_a_fresh_segment() -> None:
    active = segment()
    fill(active, 1, timestamp_ms=-1)
    assert not active.roll_due(SegmentLimits(retention_ms=DAY), 1000 + DAY)


def point(entry_id: int) -> IndexPoint:
    return IndexPoint(Offset(entry_id), EntryId(entry_id), -1)


def snapshots(**limits: int) -> SnapshotPoints:
    return SnapshotPoints(LogLimits(**limits))


def test_news_is_what_follows_the_last_one() -> None:
    found = snapshots()
    assert not found.has_batches_after(0)
    found.add(point(0), 0, 30)
    assert not found.has_batches_after(30)
    assert found.has_batches_after(31)


def test_one_is_due_after_bytes_or_entries_counted_from_behind_the_last() -> None:
    found = snapshots(snapshot_interval_bytes=100, snapshot_interval_entries=5)
    found.add(point(0), 0, 1)
    assert not found.is_due(100, 5)
    assert found.is_due(101, 2)
    assert found.is_due(20, 6)
    found.add(point(6), 200, 1)
    assert not found.is_due(300, 11)
    assert found.is_due(301, 11)


def test_a_large_one_is_due_less_often() -> None:
    found = snapshots(snapshot_interval_bytes=10, snapshot_interval_entries=1)
    found.add(point(0), 0, 100)
    assert not found.is_due(899, 50)
    assert found.is_due(900, 50)


def test_near_ones_are_not_listed_and_of_too_many_every_other_one() -> None:
    found = snapshots(snapshot_interval_bytes=10)
    for at in range(4097):
        found.add(point(2 * at), 10 * at, 1)
        found.add(point(2 * at + 1), 10 * at + 5, 1)
    assert len(found.points) == 2049
    assert [one.entry_id for one in found.points[:3]] == [0, 4, 8]


def index(*points: tuple[int, int], count_max: int = 100) -> SparseIndex:
    made = SparseIndex(count_max)
    for key, entry in points:
        made.add(key, EntryId(entry))
    return made


def test_neighbours_of_a_key() -> None:
    places = index((10, 1), (20, 5), (30, 9))
    assert [places.at_or_before(key) for key in (9, 10, 19, 20, 99)] == [None, 1, 1, 5, 9]
    assert [places.after(key) for key in (9, 10, 29, 30)] == [1, 5, 9, None]


def test_points_may_come_in_any_order() -> None:
    places = index((30, 9), (10, 1), (20, 5))
    assert [places.at_or_before(key) for key in (15, 25, 35)] == [1, 5, 9]


def test_of_equal_keys_the_last_entry_counts() -> None:
    places = index((10, 4), (10, 2), (10, 7))
    assert len(places) == 1
    assert places.at_or_before(10) == 7


def test_too_many_points_are_thinned_out_but_the_first_stays() -> None:
    places = index(*((key, key) for key in range(100)), count_max=16)
    assert len(places) <= 16
    assert places.at_or_before(0) == 0
    known = [places.at_or_before(key) for key in range(100)]
    assert all(entry is not None and entry <= key for key, entry in enumerate(known))
