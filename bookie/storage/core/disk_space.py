"""When a directory is full, and when it has room again.

    PLENTY   below the warning threshold
    SCARCE   above it: give back what can be given back
    FULL     above the full threshold, or less left than must be kept: no more entries

A full directory has room again only below a lower mark, so that it does not come and go with every
file that is given back.

Which adds a storage then takes is `AcceptedAdds`, set in `read_only_state.py`.

Sources: Apache BookKeeper `LedgerDirsMonitor`, `DiskChecker`, `minUsableSizeForHighPriorityWrites`.

"""

from __future__ import annotations

import enum
from typing import NamedTuple


class AcceptedAdds(enum.Enum):
    """Which adds are taken; reads and fences always are."""

    ALL = "all"
    PRIORITY = "priority"
    """Those of recovery, and those marked as urgent."""
    NONE = "none"

    def takes(self, *, is_urgent: bool) -> bool:
        """Whether an add, urgent or not, is taken."""
        return self is AcceptedAdds.ALL or (is_urgent and self is AcceptedAdds.PRIORITY)


class Space(enum.Enum):
    """How much room a directory has."""

    PLENTY = "plenty"
    SCARCE = "scarce"
    FULL = "full"


class SpaceLimits(NamedTuple):
    """Thresholds of usage, 0 to 1, and of bytes left."""

    full_at: float
    scarce_at: float
    room_below: float
    """A full directory has room again below this usage."""
    free_bytes_min: int
    """What must be left for anything but entries."""
    free_bytes_for_room: int
    """What must be left before a full directory has room again."""


def judge(before: Space, total: int, free: int, limits: SpaceLimits) -> Space:
    """Return how much room there is, given what was said last time and the bytes of the disk."""
    used = 1 - free / total if total else 1.0
    if used >= limits.full_at or free < limits.free_bytes_min:
        return Space.FULL
    if before is Space.FULL and (used >= limits.room_below or free < limits.free_bytes_for_room):
        return Space.FULL
    return Space.SCARCE if used >= limits.scarce_at else Space.PLENTY
