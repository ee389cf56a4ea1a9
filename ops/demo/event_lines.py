"""What both demonstrations do while they run: tell events, with the seconds since the start."""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console


class EventLines:
    """Tells events on lines of their own."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False, markup=False)
        self._started_s = time.monotonic()
        self._plain_s = 0.0
        self._total = 0

    def say(self, text: str) -> None:
        """Show an event on a line of its own, with the seconds since the start."""
        seconds = time.monotonic() - self._started_s
        self._console.print(f"{seconds:5.1f} s  {text}", soft_wrap=True)

    def is_due(self, interval_s: float) -> bool:
        """Whether a plain line may be written again: not more often than this."""
        now_s = time.monotonic()
        if now_s - self._plain_s < interval_s:
            return False
        self._plain_s = now_s
        return True
