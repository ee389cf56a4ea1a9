"""Requests that wait for their groups have a limit of their own."""

from __future__ import annotations

import pytest

from broker.errors import CoordinatorNotAvailable
from broker.front.core.group_requests import GroupRequests
from client.held_memory import HeldMemory
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.connection import Slot


def slot(memory: HeldMemory, size: int, api: ApiKey = ApiKey.JOIN_GROUP) -> Slot:
    return Slot(size, api, 0.0, 0.0, memory)


def test_they_count_here_and_not_with_the_others() -> None:
    memory, waiting = HeldMemory(), GroupRequests(1000)
    told: list[int] = []
    memory.on_given = lambda: told.append(memory.size)
    join, sync = slot(memory, 600), slot(memory, 400, ApiKey.SYNC_GROUP)
    waiting.admit(ApiKey.JOIN_GROUP, join)
    waiting.admit(ApiKey.SYNC_GROUP, sync)
    assert (memory.size, waiting.size) == (0, 1000)
    assert told == [400, 0], "who waits for room hears of it"
    join.release()
    join.release()
    assert (memory.size, waiting.size) == (0, 400)


def test_what_is_beyond_the_limit_is_refused_and_counts_where_it_did() -> None:
    memory, waiting = HeldMemory(), GroupRequests(1000)
    waiting.admit(ApiKey.JOIN_GROUP, slot(memory, 5000))  # alone it may be larger
    second = slot(memory, 1)
    with pytest.raises(CoordinatorNotAvailable, match="5000 bytes"):
        waiting.admit(ApiKey.JOIN_GROUP, second)
    assert (memory.size, waiting.size) == (1, 5000)


def test_other_requests_are_not_its_business() -> None:
    memory, waiting = HeldMemory(), GroupRequests(1000)
    waiting.admit(ApiKey.FETCH, slot(memory, 5000, ApiKey.FETCH))
    assert (memory.size, waiting.size) == (5000, 0)
