"""Bytes that are held are counted once, and who waits for fewer of them is told."""

from __future__ import annotations

import pytest

from client.held_memory import HeldMemory


def test_it_counts_what_is_held_and_tells_when_it_becomes_less() -> None:
    memory = HeldMemory()
    memory.take(5)
    memory.give(2)
    seen: list[int] = []
    memory.on_given = lambda: seen.append(memory.size)
    memory.take(4)
    assert seen == []
    memory.give(6)
    assert seen == [1]
    with pytest.raises(AssertionError):
        memory.give(2)
