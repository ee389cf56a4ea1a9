"""How much of one ledger may be unconfirmed at a time, so that it does not keep others waiting.

What a writer sends waits at the bookies in the order in which it came, whichever ledger it is for.
A full window is many times what bookies need to be busy, and all of it stands before an entry of a
ledger that has one a second. So a writer that is not alone has a window of its own measure: what
was confirmed of it in the time that a confirmation takes when nothing waits. More would wait, and
others behind it. That time is the least that was seen lately, and the window a quarter larger: if
the bookies can do more, more is confirmed, and it grows. (So does congestion control by delay:
Vegas, BBR.)

    WINDOW-ALONE   a writer with nobody beside it has the whole window. Who begins where somebody
                   else ends, as the next ledger of a partition does, is not beside anybody: only
                   a writer that adds again after another one shows that there are two.
    WINDOW-SHARED  otherwise it has what is confirmed within `target_s`, or, if that is longer,
                   within the least time of late and a quarter, and never less than
                   `shared_bytes_min`, so that a slow moment does not stop it.
"""

from __future__ import annotations

from typing import Final

_INTERVAL_S: Final = 0.02
"""Over this long the rate of confirmations is taken."""

_ACTIVE_S: Final = 5.0
"""Who added something this long ago still counts as writing."""

_GROWTH: Final = 1.25

_LEAST_S: Final = 5.0
"""The least time is that of as much, and of as much before."""

_UNKNOWN_S: Final = float("inf")


class ActiveWriters:
    """Whether several writers of a process are adding, or one alone."""

    __slots__ = ("current", "last_return_s")

    def __init__(self) -> None:
        self.current: object = None
        """Who added last."""
        self.last_return_s = float("-inf")
        """When somebody was back who had added before somebody else did."""

    def change(self, writer: object, now_s: float, *, is_new: bool) -> None:
        """Somebody adds who is not `current`; `is_new`: its first entry."""
        if not is_new:
            self.last_return_s = now_s
        self.current = writer


class WriterWindow:
    """The window of one writer."""

    __slots__ = (
        "_active_writers",
        "_bytes_max",
        "_least_s",
        "_least_until_s",
        "_mark_bytes",
        "_mark_s",
        "_shared_bytes",
        "_shared_bytes_min",
        "_target_s",
        "_timed_bytes",
        "_timed_s",
        "is_shared",
        "size",
        "wants_time",
    )

    def __init__(
        self,
        active_writers: ActiveWriters,
        bytes_max: int,
        *,
        shared_bytes_min: int,
        target_s: float,
    ) -> None:
        self.size = bytes_max
        """Payload bytes that may be unconfirmed now."""
        self.is_shared = False
        """Whether others have added something of late, as far as was looked."""
        self._active_writers = active_writers
        self._bytes_max = bytes_max
        self._shared_bytes_min = min(shared_bytes_min, bytes_max)
        self._shared_bytes = self._shared_bytes_min
        self._target_s = target_s
        self._mark_bytes = 0
        self._mark_s = float("-inf")
        self.wants_time = False
        """Whether to tell of the next entry by `begin`: one at a time is timed, beside others."""
        self._timed_bytes = 0
        """Length of the ledger with the entry that is timed; 0: none is."""
        self._timed_s = 0.0
        self._least_s = [_UNKNOWN_S, _UNKNOWN_S]
        """Of this span and of the one before."""
        self._least_until_s = float("-inf")

    def on_others(self, now_s: float, *, is_new: bool) -> None:
        """An entry is sent now, before which somebody else added one; `is_new`: it is the first."""
        self._active_writers.change(self, now_s, is_new=is_new)
        self._look(now_s)

    def begin(self, pushed_bytes: int, now_s: float) -> None:
        """An entry is sent now, with which the ledger has this many bytes."""
        self._timed_bytes, self._timed_s = pushed_bytes, now_s
        self.wants_time = False

    def on_confirmed(self, confirmed_bytes: int, now_s: float) -> None:
        """So much of the ledger is confirmed by now."""
        if 0 < self._timed_bytes <= confirmed_bytes:
            self._timed_bytes = 0
            self._note(now_s - self._timed_s, now_s)
        took_s = now_s - self._mark_s
        if took_s >= _INTERVAL_S:
            least_s = min(self._least_s)
            within_s = self._target_s
            if least_s != _UNKNOWN_S:
                within_s = max(within_s, _GROWTH * least_s)
            fits = (confirmed_bytes - self._mark_bytes) / took_s * within_s
            self._shared_bytes = min(max(int(fits), self._shared_bytes_min), self._bytes_max)
            self._mark_bytes, self._mark_s = confirmed_bytes, now_s
        self._look(now_s)
        self.wants_time = self.is_shared and not self._timed_bytes

    def _look(self, now_s: float) -> None:
        """Look whether more than one writer added something lately."""
        self.is_shared = now_s - self._active_writers.last_return_s < _ACTIVE_S
        self.size = self._shared_bytes if self.is_shared else self._bytes_max

    def _note(self, took_s: float, now_s: float) -> None:
        """The entry that was timed took this long."""
        if now_s >= self._least_until_s:
            self._least_s = [_UNKNOWN_S, self._least_s[0]]
            self._least_until_s = now_s + _LEAST_S
        self._least_s[0] = min(self._least_s[0], took_s)
