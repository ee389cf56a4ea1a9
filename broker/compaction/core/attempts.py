"""When a partition may be tried again after a failure, and what is said of it until then.

A partition is never given up: the pause doubles up to a limit, and whoever asks hears why.
"""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 15.0
PAUSE_MAX_S: Final = 600.0


class Attempts:
    """Of one partition."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the last one failed; empty: it did not."""
        self.failure_count = 0
        """Failures since the last success."""
        self._not_before_s = float("-inf")

    def may_try(self, now_s: float) -> bool:
        """Whether the pause is over."""
        return now_s >= self._not_before_s

    def on_done(self) -> None:
        """A round was complete."""
        self.reason = ""
        self.failure_count = 0
        self._not_before_s = float("-inf")

    def on_failed(self, reason: str, now_s: float) -> None:
        """A round failed: wait, longer each time."""
        self.reason = reason
        pause_s = min(PAUSE_MAX_S, FIRST_PAUSE_S * 2 ** min(self.failure_count, 10))
        self.failure_count += 1
        self._not_before_s = now_s + pause_s
