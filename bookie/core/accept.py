"""Which adds a storage takes: what is left to decide when its disk is nearly full or damaged.

This file is the only home of that rule; who sets it is in `writability.py`.

Source: Apache BookKeeper `minUsableSizeForHighPriorityWrites`.
"""

from __future__ import annotations

import enum


class Accept(enum.Enum):
    """Which adds are taken; reads and fences always are."""

    ALL = "all"
    PRIORITY = "priority"
    """Those of recovery, and those marked as urgent."""
    NONE = "none"

    def takes(self, *, is_urgent: bool) -> bool:
        """Whether an add, urgent or not, is taken."""
        return self is Accept.ALL or (is_urgent and self is Accept.PRIORITY)
