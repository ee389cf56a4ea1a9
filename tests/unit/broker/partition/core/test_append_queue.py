"""Order of appends across a change of ledgers, entries that batches share, and held batches."""

from __future__ import annotations

import pytest

from broker.errors import (
    BrokerError,
    LeadershipLost,
    NotEnoughReplicas,
    OutOfOrderSequence,
    Overloaded,
)
from broker.partition.core.append_queue import (
    Append,
    AppendQueue,
    BatchAccumulator,
    HeldAppend,
    LogEntry,
    settle,
)
from broker.partition.core.batch_checks import CheckedBatch
from broker.partition.core.held_batches import HeldBatches, Released
from broker.partition.core.log_limits import LogLimits
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import parse_header
from tests.fakes.transactions import CLASSIC, transactional

WRONG = OutOfOrderSequence(ProducerId(1), "wrong", first=1, expected=0)


def append(base: int) -> Append:
    return Append(Offset(base), Offset(base + 1), (b"x" * 10,), 10)


def entry(*bases: int) -> LogEntry:
    appends = [append(base) for base in bases]
    buffers = [buffer for each in appends for buffer in each.buffers]
    return LogEntry(appends, buffers, appends[-1].end_offset, 10 * len(appends))


def test_first_in_first_out_and_bytes() -> None:
    queue = AppendQueue()
    first, second = entry(0), entry(1, 2)
    queue.push(first)
    queue.push(second)
    assert queue.waiting
    assert [queue.take(), queue.take()] == [first, second]
    assert not queue.waiting
    assert (len(queue), queue.entries_under_way, queue.size_bytes) == (2, 2, 30)
    assert queue.pop() is first
    assert queue.pop() is second
    assert queue.is_drained
    assert queue.size_bytes == 0


def test_held_appends_wait_for_the_release() -> None:
    queue = AppendQueue()
    queue.push(entry(0))
    queue.take()
    queue.hold()
    held = [entry(1), entry(2)]
    for item in held:
        queue.push(item)
    assert not queue.waiting
    assert not queue.is_drained
    assert queue.entries_under_way == 1
    queue.pop()
    assert queue.is_drained
    assert queue.size_bytes == 20
    queue.release()
    assert not queue.is_holding
    assert not queue.is_drained
    assert [queue.take(), queue.take()] == held
    assert queue.pop() is held[0]


def test_entries_wait_for_room_in_order() -> None:
    queue = AppendQueue()
    entries = [entry(base) for base in range(4)]
    for item in entries[:3]:
        queue.push(item)
    assert queue.take() is entries[0]
    assert (len(queue), queue.entries_under_way, queue.size_bytes) == (3, 3, 30)
    queue.pop()
    assert not queue.is_drained, "what waits is for this ledger"
    assert queue.take() is entries[1]
    queue.hold()
    queue.push(entries[3])
    assert queue.take() is entries[2]
    assert not queue.waiting, "what is held is not for this ledger"
    queue.pop()
    assert queue.pop() is entries[2]
    assert queue.is_drained


@pytest.mark.parametrize("taken", [False, True])
def test_nothing_is_released_before_the_previous_ledger_confirmed_everything(taken: bool) -> None:
    queue = AppendQueue()
    queue.push(entry(0))
    if taken:
        queue.take()
    queue.hold()
    with pytest.raises(AssertionError, match="unconfirmed"):
        queue.release()


def test_appends_are_walked_and_drained_in_order_wherever_they_are() -> None:
    queue = AppendQueue()
    entries = [entry(0, 1), LogEntry((), (b"snapshot",), Offset(2), 8), entry(2)]
    queue.push(entries[0])
    queue.push(entries[1])
    queue.hold()
    queue.push(entries[2])
    assert [item.base_offset for item in queue.appends()] == [0, 1, 2]
    assert queue.drain() == [*entries[0].appends, *entries[2].appends]
    assert (len(queue), queue.size_bytes) == (0, 0)


def test_completion_is_told_once_and_late_listeners_at_once() -> None:
    item = append(0)
    heard: list[Append] = []
    item.on_done(heard.append)
    item.complete()
    item.on_done(heard.append)
    assert heard == [item, item]
    assert item.completed
    assert item.error is None
    with pytest.raises(AssertionError):
        item.complete()


def test_a_failed_append_carries_its_error() -> None:
    item = append(0)
    error = LeadershipLost("fenced")
    item.complete(error)
    assert item.error is error


def gathering(**limits: int) -> BatchAccumulator:
    return BatchAccumulator(LogLimits(**{"shared_entry_bytes_max": 100, **limits}))


def two_buffers(base: int, size: int = 10) -> Append:
    return Append(Offset(base), Offset(base + 1), (bytes([base]) * 2, b"-" * (size - 2)), size)


def test_one_batch_keeps_its_own_buffers() -> None:
    gathered, only = gathering(), two_buffers(3)
    gathered.add(only)
    entry = gathered.take()
    assert entry.buffers is only.buffers
    assert (entry.appends, entry.end_offset, entry.size) == ([only], 4, 10)
    assert (len(gathered), gathered.size_bytes) == (0, 0)


def test_small_batches_become_one_buffer_and_large_ones_are_not_copied() -> None:
    for copy_below_bytes, buffer_count in ((100, 1), (1, 4)):
        gathered = gathering(copy_below_bytes=copy_below_bytes)
        appends = [two_buffers(0), two_buffers(1)]
        for each in appends:
            gathered.add(each)
        entry = gathered.take()
        assert len(entry.buffers) == buffer_count
        assert b"".join(entry.buffers) == b"".join(b"".join(each.buffers) for each in appends)
        assert (entry.appends, entry.end_offset, entry.size) == (appends, 2, 20)


def test_an_entry_is_full_by_bytes_or_by_batches() -> None:
    gathered = gathering()
    gathered.add(two_buffers(0, 90))
    assert not gathered.is_full
    assert gathered.has_room(10)
    assert not gathered.has_room(11)
    gathered.add(two_buffers(1, 10))
    assert gathered.is_full
    gathered = gathering(shared_entry_batches_max=2)
    gathered.add(two_buffers(0))
    assert not gathered.is_full
    gathered.add(two_buffers(1))
    assert gathered.is_full


def test_a_batch_of_any_size_has_an_entry_to_itself() -> None:
    gathered = gathering()
    assert gathered.has_room(5000)
    gathered.add(two_buffers(0, 5000))
    assert gathered.is_full


def test_an_entry_never_exceeds_what_bookies_take() -> None:
    gathered = gathering(shared_entry_bytes_max=1000, entry_bytes_max=50)
    gathered.add(two_buffers(0, 45))
    assert not gathered.has_room(10)


def test_batches_wait_while_entries_are_under_way() -> None:
    gathered = gathering(entries_before_sharing=2)
    assert not gathered.may_leave(0), "there is nothing"
    gathered.add(two_buffers(0))
    assert [gathered.may_leave(count) for count in range(4)] == [True, True, False, False]


def test_drain() -> None:
    gathered = gathering()
    appends = [two_buffers(0), two_buffers(1)]
    for each in appends:
        gathered.add(each)
    assert list(gathered) == appends
    assert gathered.drain() == appends
    assert (len(gathered), gathered.size_bytes) == (0, 0)


def held(sequence: int = 0, count: int = 1) -> HeldAppend:
    batch = transactional(*["x"] * count, sequence=sequence)
    return HeldAppend(batch, CheckedBatch(parse_header(batch), False), CLASSIC, from_client=True)


def accepted(offset: int, count: int = 1) -> Append:
    return Append(Offset(offset), Offset(offset + count), (b"x",), 1, log_append_time_ms=77)


def test_it_has_no_offsets_but_a_count() -> None:
    append = held(count=3)
    assert (append.base_offset, append.end_offset - append.base_offset) == (-1, 3)
    assert (append.completed, append.buffers) == (False, ())
    assert append.size == len(append.batch)


def test_it_follows_what_it_has_become() -> None:
    append, real = held(count=2), accepted(5, 2)
    heard: list[str] = []
    append.on_accepted(lambda one: heard.append(f"accepted {one.base_offset}"))
    append.on_done(lambda one: heard.append(f"done {one.error}"))
    append.follow(real)
    assert (append.base_offset, append.end_offset, append.log_append_time_ms) == (5, 7, 77)
    assert heard == ["accepted 5"]
    append.on_accepted(lambda _: heard.append("again"))
    real.complete(WRONG)
    assert heard == ["accepted 5", "again", f"done {WRONG}"]


def test_it_may_repeat_what_is_stored() -> None:
    append, real = held(), accepted(5)
    real.complete()
    append.follow(real)
    assert append.completed
    assert append.error is None


def settled(count: int, *outcomes: Append | BrokerError) -> list[HeldAppend]:
    """Settle held batches, the first of which are accepted as told."""
    batches = [held(at) for at in range(count)]
    rest = list(outcomes)

    def accept(_: HeldAppend) -> Append:
        outcome = rest.pop(0)
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome

    queue: HeldBatches[HeldAppend] = HeldBatches("t-0", size_bytes_max=1 << 20)
    settle(Released(tuple(batches)), queue, accept)
    assert not rest
    return batches


def test_all_are_accepted_in_order() -> None:
    first, second = accepted(5), accepted(6)
    assert [one.base_offset for one in settled(2, first, second)] == [5, 6]


def test_none_is_taken_behind_one_that_comes_again() -> None:
    error = Overloaded("full")
    batches = settled(3, accepted(5), error)
    assert [one.error for one in batches] == [None, error, error]


def test_an_error_for_good_is_only_its_own() -> None:
    batches = settled(2, WRONG, accepted(5))
    assert [one.error for one in batches] == [WRONG, None]
    assert [one.base_offset for one in batches] == [-1, 5]


def test_refused_ones_are_not_even_tried() -> None:
    batches, error = (held(0), held(1)), NotEnoughReplicas("x")
    queue: HeldBatches[HeldAppend] = HeldBatches("t-0", size_bytes_max=1 << 20)
    settle(Released(batches, error), queue, lambda _: accepted(1))
    assert [one.error for one in batches] == [error, error]
