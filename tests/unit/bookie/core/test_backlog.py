"""Back-pressure: over the limit, and the one moment of relief."""

from __future__ import annotations

from bookie.core.backlog import Backlog


def test_relief_is_told_once_when_the_limit_is_left_behind() -> None:
    told: list[int] = []
    backlog = Backlog(100)
    backlog.on_relief = lambda: told.append(backlog.bytes)
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
    assert told == [60]
