"""Which requests of one connection have waited too long for their answers: its clock, in ticks.

Covers when a bookie that owes an answer counts as failed, by the names that PROTOCOL.md and the
tests use:

- LINK-CLOCK  a request is overdue when for the request timeout the bookie has answered neither it
              nor any request sent before it, nor taken any of the bytes that could not leave at
              once. A bookie works through what it was sent in about that order, so what was queued
              in front of a request does not count against the bookie. One that answers nothing is
              soon sent nothing more: then its time begins.
- LINK-SILENT a connection on which nothing at all arrived for the request timeout, although
              something is under way, is to be cut: everything on it fails now instead of one by
              one.

Time is coarse: requests are stamped with a tick, and `TICKS_PER_TIMEOUT` ticks make a timeout. The
clock stands still while nothing is under way. What happens once per request is a store into a
field, by the connection: no call.
"""

from __future__ import annotations

from collections import deque
from typing import Final

TICKS_PER_TIMEOUT: Final = 8
NOTHING_ANSWERED: Final = 1 << 62


class AnswerClock:
    """The clock of one connection."""

    __slots__ = (
        "_answered_before",
        "_backlog",
        "answered",
        "heard_tick",
        "sent_bytes",
        "sent_count",
        "tick",
        "tick_s",
        "written_bytes",
    )

    def __init__(self, timeout_s: float) -> None:
        self.tick_s = timeout_s / TICKS_PER_TIMEOUT
        """How often to call `on_tick`."""
        self.tick = 0
        """The present one: what a request that is sent now is stamped with."""
        self.sent_count = 0
        """Requests sent so far: the number of the last one."""
        self.sent_bytes = 0
        """Payload bytes of these."""
        self.written_bytes = 0
        """Of those, what was handed to the transport."""
        self.heard_tick = 0
        """When anything arrived last."""
        self.answered = NOTHING_ANSWERED
        """Lowest number of a request that was answered in this tick."""
        self._answered_before: deque[int] = deque(maxlen=TICKS_PER_TIMEOUT)
        """The same of the ticks before, as many as make a timeout; 0 stands for all."""
        self._backlog = (0, 0)
        """At the last tick: bytes that the transport held, and bytes written until then."""

    def on_tick(self, held_bytes: int) -> None:
        """An eighth of the timeout is over; the transport holds this many bytes back."""
        self.tick += 1
        self._answered_before.append(0 if self._is_draining(held_bytes) else self.answered)
        self.answered = NOTHING_ANSWERED

    def is_overdue(self, number: int, tick: int) -> bool:
        """Whether a request, by its number and stamp, has waited too long; call after `on_tick`."""
        return tick < self.tick - TICKS_PER_TIMEOUT and number <= min(self._answered_before)

    @property
    def is_silent(self) -> bool:
        """Whether nothing has arrived for the whole timeout."""
        return self.heard_tick < self.tick - TICKS_PER_TIMEOUT

    def stop(self) -> None:
        """Nothing is under way: what was answered until now says nothing of what comes."""
        self._answered_before.clear()

    def _is_draining(self, held_bytes: int) -> bool:
        """Whether the bookie has taken bytes since the last tick that were held back before.

        Headers are not counted as written, so this errs on the side of "no".
        """
        held, written = self._backlog
        self._backlog = held_bytes, self.written_bytes
        return held > 0 and held + self.written_bytes - written > held_bytes
