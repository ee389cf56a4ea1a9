"""Which adds a storage takes: what is left to decide when its disk is nearly full or damaged.

Who sets it is in `read_only_state.py`.

Source: Apache BookKeeper `minUsableSizeForHighPriorityWrites`.
"""

from __future__ import annotations

import enum


class AcceptedAdds(enum.Enum):
    """Which adds are taken; reads and fences always are."""

    ALL = "all"
    PRIORITY = "priority"
    """Those of recovery, and those marked as urgent."""
    NONE = "none"

    def takes(self, *, is_urgent: bool) -> bool:
        """Whether an add, urgent or not, is taken."""
        return self is AcceptedAdds.ALL or (is_urgent and self is AcceptedAdds.PRIORITY)
