"""Lets requests wait for partitions that this broker is about to lead.

A client is told of a leader while that leader still takes over: by the plan, by a hint, or by an
answer that is a moment old. Refused, it backs off for longer than the takeover takes; with acks 0
it is told nothing, and what it sent is lost. So a request for such a partition waits.

The wait is bounded three times. A partition is waited for during `hold_s` after this broker began
to take it over, however often that fails: then requests are refused at once, so a partition that
cannot be opened holds up the others of a connection once and not for ever, and of ten thousand that
open at the same time the last cost no more than the first. No request waits for longer than its own
timeout. And all that wait hold at most `bytes_max`; their bytes also count as unanswered, so their
connections are not read beyond what those may have in flight (`server.py`).

Nobody relies on the wait for safety: who waited asks for the leader again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

Key = tuple[UUID, int]
"""Topic id and index of a partition."""


class AwaitedPartitions:
    """Partitions that this broker is about to lead, and the requests that wait for them."""

    def __init__(self, hold_s: float = 0.0, bytes_max: int = 0) -> None:
        self.held_bytes = 0
        """Of the requests that wait."""
        self.hold_s: Final = hold_s
        """For how long a partition is waited for."""
        self._bytes_max = bytes_max
        self._since_s: dict[Key, float] = {}
        self._waits: dict[Key, dict[Wait, None]] = {}

    def begin(self, key: Key) -> None:
        """A takeover begins; if the partition is awaited already, its time goes on."""
        if key not in self._since_s:
            self._since_s[key] = asyncio.get_running_loop().time()

    def end(self, key: Key) -> None:
        """The partition is led now, or another broker should lead it: nobody waits any longer."""
        if self._since_s.pop(key, None) is not None:
            for wait in list(self._waits.pop(key, ())):
                wait.end_soon()

    def left_s(self, key: Key) -> float:
        """Return for how long a partition may still be waited for; 0: not at all."""
        since_s = self._since_s.get(key)
        if since_s is None:
            return 0.0
        return max(0.0, since_s + self.hold_s - asyncio.get_running_loop().time())

    def wait(self, key: Key, call: Callable[[], None], timeout_s: float | None = None) -> Wait:
        """Call once, soon after the partition is not awaited any more or the time is over.

        Those who wait for the same partition are called in the order in which they came.
        """
        left_s = self.left_s(key)
        wait = Wait(self, key, call, left_s if timeout_s is None else min(left_s, timeout_s))
        self._waits.setdefault(key, {})[wait] = None
        return wait

    async def settled(self, key: Key) -> None:
        """Return when the partition is not awaited any more or the time is over."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = self.wait(key, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            wait.cancel()

    def take(self, size: int) -> bool:
        """Return whether a request of that size may wait; if so, `give` its bytes back later."""
        if self.held_bytes + size > self._bytes_max:
            return False
        self.held_bytes += size
        return True

    def give(self, size: int) -> None:
        """The request does not wait any more."""
        self.held_bytes -= size

    def forget(self, key: Key, wait: Wait) -> None:
        """Drop a wait that is over. For `Wait` only."""
        waits = self._waits.get(key)
        if waits is not None:
            waits.pop(wait, None)
            if not waits:
                del self._waits[key]


class Wait:
    """One request's wait for one partition."""

    __slots__ = ("_call", "_handle", "_key", "_loop", "_owner")

    def __init__(
        self, owner: AwaitedPartitions, key: Key, call: Callable[[], None], timeout_s: float
    ) -> None:
        self._owner = owner
        self._key = key
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(timeout_s, self._end)

    def cancel(self) -> None:
        """Do not call."""
        self._handle.cancel()
        self._owner.forget(self._key, self)

    def end_soon(self) -> None:
        """Call in the next turn of the loop: what one of those who wait raises is its own."""
        self._handle.cancel()
        self._handle = self._loop.call_soon(self._call)

    def _end(self) -> None:
        self._owner.forget(self._key, self)
        self._call()
