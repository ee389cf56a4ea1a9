"""Makes guessing the tokens of an HTTP port slow: the answer to a wrong one waits.

It waits longer with each wrong one of an address, as failed logins of Kafka's clients do. Whoever
guesses need not wait for it, as a right token is answered at once. So while several answers of an
address wait, further tokens of that address are not even compared.
"""

from __future__ import annotations

import asyncio
from typing import Final

from client.security.failure_delays import FailureDelays

WAITING_MAX: Final = 10
"""Answers of one address."""
_FORGOTTEN_AFTER_S: Final = 300.0
_HOSTS_MAX: Final = 10_000


class WrongTokens:
    """Of one HTTP port."""

    def __init__(self, delay_s: float, delay_max_s: float) -> None:
        """`delay_s`: of the first answer; 0: none waits."""
        self._delay_max_s = delay_max_s
        self._delays = FailureDelays(
            delay_s, delay_max_s, forgotten_after_s=_FORGOTTEN_AFTER_S, hosts_max=_HOSTS_MAX
        )
        self._waiting: dict[str, int] = {}
        """Address -> answers that wait, which go on counting if their client hangs up."""

    def is_full(self, host: str) -> bool:
        """Whether no token of an address may be compared now."""
        return self._waiting.get(host, 0) >= WAITING_MAX

    @property
    def retry_after_s(self) -> int:
        """When it is worth coming again."""
        return int(self._delay_max_s) + 1

    async def wait(self, host: str) -> None:
        """A token of an address was wrong: return when that may be answered."""
        loop = asyncio.get_running_loop()
        delay_s = self._delays.fail(host, loop.time())
        if delay_s:
            self._waiting[host] = self._waiting.get(host, 0) + 1
            loop.call_later(delay_s, self._on_answered, host)
            await asyncio.sleep(delay_s)

    def _on_answered(self, host: str) -> None:
        left = self._waiting.pop(host) - 1
        if left:
            self._waiting[host] = left
