"""How long the answer to a failed login or wrong token is delayed: longer each time per address.

The delay doubles from the first failure on, up to a limit, and starts anew when nothing failed for
a while. Addresses remembered are bounded: beyond, the one that failed longest ago is forgotten.

Whoever guesses need not wait for the answer, and may hang up. So no more than `WAITING_MAX` answers
of an address are due at a time; while they are, nothing of that address is compared. They count
until they would have been given, whoever is gone. Addresses of one network of IPv6 are one address
(`networks.py`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from client.security.networks import network_of

WAITING_MAX: Final = 10
"""Answers of one address."""
_DOUBLINGS_MAX: Final = 30


class _Failures:
    __slots__ = ("due_s", "last_s", "number")

    def __init__(self, now_s: float) -> None:
        self.number = 0
        self.last_s = now_s
        self.due_s: deque[float] = deque(maxlen=WAITING_MAX)
        """When the answers to the last ones are given."""


class FailureDelays:
    """By address."""

    def __init__(
        self, first_s: float, longest_s: float, *, forgotten_after_s: float, hosts_max: int
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._forgotten_after_s = forgotten_after_s
        self._hosts_max = hosts_max
        self._failures: dict[str, _Failures] = {}
        """In the order of the last failures."""

    def __len__(self) -> int:
        return len(self._failures)

    def is_full(self, host: str, now_s: float) -> bool:
        """Whether so many answers of an address wait that nothing of it may be compared now."""
        failures = self._failures.get(network_of(host))
        if failures is None:
            return False
        return sum(due_s > now_s for due_s in failures.due_s) >= WAITING_MAX

    def fail(self, host: str, now_s: float) -> float:
        """Count a failure; return how long its answer waits."""
        network = network_of(host)
        failures = self._failures.pop(network, None)
        if failures is None or now_s - failures.last_s > self._forgotten_after_s:
            failures = _Failures(now_s)
        if len(self._failures) >= self._hosts_max:
            del self._failures[next(iter(self._failures))]
        self._failures[network] = failures
        doublings = min(failures.number, _DOUBLINGS_MAX)
        failures.number += 1
        failures.last_s = now_s
        delay_s = min(self._first_s * (1 << doublings), self._longest_s)
        failures.due_s.append(now_s + delay_s)
        return delay_s
