"""When a directory is full and when it has room again."""

from __future__ import annotations

import pytest

from bookie.storage.core.disk_space import Space, SpaceLimits, judge

LIMITS = SpaceLimits(
    full_at=0.95, scarce_at=0.90, room_below=0.92, free_bytes_min=10, free_bytes_for_room=30
)
PLENTY, SCARCE, FULL = Space


@pytest.mark.parametrize(
    ("before", "free", "after"),
    [
        (PLENTY, 500, PLENTY),
        (PLENTY, 101, PLENTY),
        (PLENTY, 100, SCARCE),
        (PLENTY, 51, SCARCE),
        (PLENTY, 50, FULL),
        (SCARCE, 50, FULL),
        (FULL, 51, FULL),
        (FULL, 80, FULL),
        (FULL, 81, SCARCE),
        (FULL, 500, PLENTY),
    ],
)
def test_thresholds(before: Space, free: int, after: Space) -> None:
    assert judge(before, 1000, free, LIMITS) is after


def test_on_a_small_disk_the_bytes_that_must_be_left_decide() -> None:
    small = LIMITS._replace(full_at=1.0, scarce_at=1.0, room_below=1.0)
    assert judge(PLENTY, 100, 10, small) is PLENTY
    assert judge(PLENTY, 100, 9, small) is FULL
    assert judge(FULL, 100, 29, small) is FULL
    assert judge(FULL, 100, 30, small) is PLENTY


def test_a_disk_without_size_is_full() -> None:
    assert judge(PLENTY, 0, 0, LIMITS) is FULL
