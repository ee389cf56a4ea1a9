"""The state of a compaction: what is due, its JSON."""

from __future__ import annotations

import pytest

from client.ids import LedgerId, Offset
from client.log.segments import (
    CompactionState,
    Retired,
    state_from_json,
    state_to_json,
)

STATE = CompactionState(
    Offset(50), 7, 9, 1000, (Retired(LedgerId(3), 100), Retired(LedgerId(2), 200))
)


def test_json_round_trip() -> None:
    assert state_from_json(state_to_json(STATE)) == STATE
    assert state_from_json(state_to_json(CompactionState())) == CompactionState()


def test_a_ledger_is_due_from_the_time_on_at_which_it_was_retired() -> None:
    assert [STATE.due(at_ms) for at_ms in (99, 100, 200)] == [(), (3,), (3, 2)]


@pytest.mark.parametrize(
    "change",
    [{"cleaned_until": -1}, {"retired": [[1]]}, {"retired": [["1", 2]]}, {"saved_bytes": 0.5}],
)
def test_damage_is_an_error(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        state_from_json({**state_to_json(STATE), **change})
