"""Order of appends across a change of ledgers."""

from __future__ import annotations

import pytest

from broker.core.append_queue import Append, AppendQueue
from broker.errors import LeadershipLost
from client.ids import Offset


def append(base: int, *, is_batch: bool = True) -> Append:
    return Append(Offset(base), Offset(base + 1), (b"x" * 10,), 10, is_batch=is_batch)


def test_first_in_first_out_and_bytes() -> None:
    queue = AppendQueue()
    first, second = append(0), append(1)
    assert queue.push(first)
    assert queue.push(second)
    assert (len(queue), queue.size_bytes) == (2, 20)
    assert queue.pop() is first
    assert queue.pop() is second
    assert queue.is_drained
    assert queue.size_bytes == 0


def test_held_appends_wait_for_the_release() -> None:
    queue = AppendQueue()
    queue.push(append(0))
    queue.hold()
    held = [append(1), append(2)]
    assert [queue.push(item) for item in held] == [False, False]
    assert not queue.is_drained
    queue.pop()
    assert queue.is_drained
    assert queue.size_bytes == 20
    assert queue.release() == held
    assert not queue.is_holding
    assert queue.pop() is held[0]


def test_nothing_is_released_before_the_previous_ledger_confirmed_everything() -> None:
    queue = AppendQueue()
    queue.push(append(0))
    queue.hold()
    with pytest.raises(AssertionError, match="unconfirmed"):
        queue.release()


def test_find_looks_at_batches_wherever_they_are() -> None:
    queue = AppendQueue()
    snapshot, first, second = append(5, is_batch=False), append(5), append(6)
    queue.push(snapshot)
    queue.push(first)
    queue.hold()
    queue.push(second)
    assert queue.find(Offset(5)) is first
    assert queue.find(Offset(6)) is second
    assert queue.find(Offset(7)) is None


def test_drain_returns_everything_in_order() -> None:
    queue = AppendQueue()
    items = [append(0), append(1)]
    queue.push(items[0])
    queue.hold()
    queue.push(items[1])
    assert queue.drain() == items
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
