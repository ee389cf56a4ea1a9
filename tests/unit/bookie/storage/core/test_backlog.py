"""Back-pressure: the moment the limit is passed, and the one moment of relief."""

from __future__ import annotations

from bookie.storage.core.backlog import Backlog


def test_both_crossings_of_the_limit_are_told_once() -> None:
    told: list[int] = []
    backlog = Backlog(100)
    backlog.on_change = lambda: told.append(backlog.bytes)
    backlog.add(100)
    assert not backlog.is_over
    backlog.remove(10)
    backlog.add(50)
    assert backlog.is_over
    backlog.remove(20)
    assert backlog.is_over
    backlog.remove(60)
    assert not backlog.is_over
    backlog.remove(60)
    assert told == [140, 60]
