"""Order of appends across a change of ledgers."""

from __future__ import annotations

import pytest

from broker.errors import LeadershipLost
from broker.partition.core.append_queue import Append, AppendQueue, LogEntry
from client.ids import Offset


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
