"""How long the answer to a failed login or wrong token is delayed: longer each time per address.

The delay doubles from the first failure on, up to a limit, and starts anew when nothing failed for
a while. Addresses remembered are bounded: beyond, the one that failed longest ago is forgotten.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_DOUBLINGS_MAX: Final = 30


class _Failures(NamedTuple):
    number: int
    last_s: float


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

    def fail(self, host: str, now_s: float) -> float:
        """Count a failure; return how long its answer waits."""
        before = self._failures.pop(host, _Failures(0, now_s))
        if now_s - before.last_s > self._forgotten_after_s:
            before = _Failures(0, now_s)
        if len(self._failures) >= self._hosts_max:
            del self._failures[next(iter(self._failures))]
        self._failures[host] = _Failures(before.number + 1, now_s)
        doublings = min(before.number, _DOUBLINGS_MAX)
        return min(self._first_s * (1 << doublings), self._longest_s)
