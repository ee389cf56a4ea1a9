"""Lets requests wait for partitions that this broker is about to lead.

Clients learn of a new leader while it is still taking over: from the plan, from a hint, or from a
slightly outdated answer. A client that is refused backs off for longer than the takeover takes;
with acks=0 it gets no error at all, and what it sent is lost. So requests for such a partition
wait.

The wait has three bounds. A partition is waited for until `hold_s` after this broker began to take
it over, however often that fails. After that, requests are refused at once: a partition that cannot
be opened delays the other partitions of a connection only once. No request waits longer than its
own timeout. All waiting requests together hold at most `bytes_max`; their bytes also count as
unanswered, so their connections are not read beyond their in-flight limit (`server.py`).

When thousands open at the same time, most takeovers are in line (`ownership.py`). The first
request for such a partition brings it forward, and its `hold_s` begins then. If clients were
refused instead, they would try again and again, and take from the takeovers the time that these
need. But once a wait was in vain, takeovers are slow or fail, and a connection would wait for one
partition after the other: for `_VAIN_HOLDS` times as long nobody waits for one that is in line.

Safety does not depend on the wait: after it, a request looks up the leader again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

Key = tuple[UUID, int]
"""Topic id and index of a partition."""

_VAIN_HOLDS: Final = 2
_IN_LINE: Final = float("inf")


class AwaitedPartitions:
    """Partitions that this broker is about to lead, and the requests waiting for them."""

    def __init__(self, hold_s: float = 0.0, bytes_max: int = 0) -> None:
        self.held_bytes = 0
        """Bytes of the requests that are waiting."""
        self.hold_s: Final = hold_s
        """For how long a partition is awaited."""
        self.on_wanted: Callable[[Key], None] = lambda key: None
        """Called when a request is the first one to wait for a partition whose takeover is in
        line."""
        self._bytes_max = bytes_max
        self._since_s: dict[Key, float] = {}
        """When the time began; `_IN_LINE`: it has not yet."""
        self._waits: dict[Key, dict[Wait, None]] = {}
        self._vain_s = float("-inf")
        """When somebody last waited in vain."""

    def expect(self, key: Key) -> None:
        """A takeover is in line; if the partition is awaited already, its deadline stays."""
        self._since_s.setdefault(key, _IN_LINE)

    def begin(self, key: Key) -> None:
        """A takeover begins; if the time of the partition has begun already, its deadline stays."""
        if self._since_s.get(key, _IN_LINE) == _IN_LINE:
            self._since_s[key] = asyncio.get_running_loop().time()

    def is_waited_for(self, key: Key) -> bool:
        """Whether a request waits for a partition."""
        return key in self._waits

    def end(self, key: Key) -> None:
        """The partition is led now, or another broker should lead it: end all waits for it."""
        if self._since_s.pop(key, None) is not None:
            for wait in list(self._waits.pop(key, ())):
                wait.end_soon()

    def left_s(self, key: Key) -> float:
        """Return how long requests may still wait for a partition, in seconds; 0: not at all."""
        since_s = self._since_s.get(key)
        if since_s is None:
            return 0.0
        now_s = asyncio.get_running_loop().time()
        if since_s == _IN_LINE:
            return self.hold_s if now_s >= self._vain_s + _VAIN_HOLDS * self.hold_s else 0.0
        return max(0.0, since_s + self.hold_s - now_s)

    def wait(self, key: Key, call: Callable[[], None], timeout_s: float | None = None) -> Wait:
        """Call `call` once, soon after the partition is no longer awaited or the time is up.

        Waits for the same partition end in the order in which they began.
        """
        left_s = self.left_s(key)
        if left_s and self._since_s[key] == _IN_LINE:
            self._since_s[key] = asyncio.get_running_loop().time()
            self.on_wanted(key)
        if timeout_s is None or left_s <= timeout_s:
            wait = Wait(self, key, call, left_s, is_whole=left_s > 0)
        else:
            wait = Wait(self, key, call, timeout_s, is_whole=False)
        self._waits.setdefault(key, {})[wait] = None
        return wait

    async def settled(self, key: Key) -> None:
        """Return when the partition is no longer awaited or the time is up."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wait = self.wait(key, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            wait.cancel()

    def take(self, size: int) -> bool:
        """Return whether a request of `size` bytes may wait; if so, call `give` later."""
        if self.held_bytes + size > self._bytes_max:
            return False
        self.held_bytes += size
        return True

    def give(self, size: int) -> None:
        """A request of `size` bytes no longer waits."""
        self.held_bytes -= size

    def note_vain(self) -> None:
        """Somebody has waited for a partition until its time was up. For `Wait` only."""
        self._vain_s = asyncio.get_running_loop().time()

    def forget(self, key: Key, wait: Wait) -> None:
        """Remove a wait that is over. For `Wait` only."""
        waits = self._waits.get(key)
        if waits is not None:
            waits.pop(wait, None)
            if not waits:
                del self._waits[key]


class Wait:
    """One request's wait for one partition."""

    __slots__ = ("_call", "_handle", "_is_whole", "_key", "_loop", "_owner")

    def __init__(
        self,
        owner: AwaitedPartitions,
        key: Key,
        call: Callable[[], None],
        timeout_s: float,
        *,
        is_whole: bool,
    ) -> None:
        """`is_whole`: whether it lasts for as long as the partition is awaited."""
        self._owner = owner
        self._is_whole = is_whole
        self._key = key
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(timeout_s, self._end)

    def cancel(self) -> None:
        """Cancel the wait: its function is not called."""
        self._handle.cancel()
        self._owner.forget(self._key, self)

    def end_soon(self) -> None:
        """End the wait in the next turn of the loop, so that its errors do not reach others."""
        self._handle.cancel()
        self._handle = self._loop.call_soon(self._call)

    def _end(self) -> None:
        if self._is_whole:
            self._owner.note_vain()
        self._owner.forget(self._key, self)
        self._call()
