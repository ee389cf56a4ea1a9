"""What the compatibility levels ask for."""

from __future__ import annotations

import pytest

from ops.schemas.core.schema import Level


@pytest.mark.parametrize(
    ("level", "asks"),
    [
        (Level.NONE, (False, False, False)),
        (Level.BACKWARD, (True, False, False)),
        (Level.BACKWARD_TRANSITIVE, (True, False, True)),
        (Level.FORWARD, (False, True, False)),
        (Level.FORWARD_TRANSITIVE, (False, True, True)),
        (Level.FULL, (True, True, False)),
        (Level.FULL_TRANSITIVE, (True, True, True)),
    ],
)
def test_levels(level: Level, asks: tuple[bool, bool, bool]) -> None:
    assert (level.reads_older, level.is_read_by_older, level.is_transitive) == asks
