"""Which batches share an entry, and when it leaves."""

from __future__ import annotations

from broker.partition.core.append_queue import Append
from broker.partition.core.batch_accumulator import BatchAccumulator
from broker.partition.core.log_limits import LogLimits
from client.ids import Offset


def gathering(**limits: int) -> BatchAccumulator:
    return BatchAccumulator(LogLimits(**{"shared_entry_bytes_max": 100, **limits}))


def append(base: int, size: int = 10) -> Append:
    return Append(Offset(base), Offset(base + 1), (bytes([base]) * 2, b"-" * (size - 2)), size)


def test_one_batch_keeps_its_own_buffers() -> None:
    gathered, only = gathering(), append(3)
    gathered.add(only)
    entry = gathered.take()
    assert entry.buffers is only.buffers
    assert (entry.appends, entry.end_offset, entry.size) == ([only], 4, 10)
    assert (len(gathered), gathered.size_bytes) == (0, 0)


def test_small_batches_become_one_buffer_and_large_ones_are_not_copied() -> None:
    for copy_below_bytes, buffer_count in ((100, 1), (1, 4)):
        gathered = gathering(copy_below_bytes=copy_below_bytes)
        appends = [append(0), append(1)]
        for each in appends:
            gathered.add(each)
        entry = gathered.take()
        assert len(entry.buffers) == buffer_count
        assert b"".join(entry.buffers) == b"".join(b"".join(each.buffers) for each in appends)
        assert (entry.appends, entry.end_offset, entry.size) == (appends, 2, 20)


def test_an_entry_is_full_by_bytes_or_by_batches() -> None:
    gathered = gathering()
    gathered.add(append(0, 90))
    assert not gathered.is_full
    assert gathered.has_room(10)
    assert not gathered.has_room(11)
    gathered.add(append(1, 10))
    assert gathered.is_full
    gathered = gathering(shared_entry_batches_max=2)
    gathered.add(append(0))
    assert not gathered.is_full
    gathered.add(append(1))
    assert gathered.is_full


def test_a_batch_of_any_size_has_an_entry_to_itself() -> None:
    gathered = gathering()
    assert gathered.has_room(5000)
    gathered.add(append(0, 5000))
    assert gathered.is_full


def test_an_entry_never_exceeds_what_bookies_take() -> None:
    gathered = gathering(shared_entry_bytes_max=1000, entry_bytes_max=50)
    gathered.add(append(0, 45))
    assert not gathered.has_room(10)


def test_batches_wait_while_entries_are_under_way() -> None:
    gathered = gathering(entries_before_sharing=2)
    assert not gathered.may_leave(0), "there is nothing"
    gathered.add(append(0))
    assert [gathered.may_leave(count) for count in range(4)] == [True, True, False, False]


def test_drain() -> None:
    gathered = gathering()
    appends = [append(0), append(1)]
    for each in appends:
        gathered.add(each)
    assert list(gathered) == appends
    assert gathered.drain() == appends
    assert (len(gathered), gathered.size_bytes) == (0, 0)
