"""How much one writer may have under way, and who waits until it is less.

Covers a writer's back-pressure: entries that are not confirmed and entries that some bookie has
still to answer have a limit each, the former a smaller one beside other writers
(`WriterWindow`). Those who wait are called back on a later turn of the loop.

The window bounds how much of one ledger may be unconfirmed, so that it keeps no other waiting. What
a writer sends waits at the bookies in the order in which it came, whichever ledger it is for. A
full window is many times what bookies need to be busy, and all of it stands before an entry of a
ledger that has one a second. So while there is such a ledger, every writer has a window of its own
measure: what was confirmed of it in the time that a confirmation takes when nothing waits. More
would wait, and others behind it. That time is the least that was seen lately, and the window a
quarter larger: if the bookies can do more, more is confirmed, and it grows. (So does congestion
control by delay: Vegas, BBR.)

    WINDOW-ALONE   while nobody adds little beside others, a writer has the whole window. Several
                   that are equally busy wait for each other whatever their windows are, and the
                   more bookies are given at a time, the fewer syncs and answers it needs.
    WINDOW-MEET    when a writer meets others, after a time alone, it is not known yet who adds
                   little: until rates are, somebody does. Who begins where somebody else ends, as
                   the next ledger of a partition does, meets nobody: only a writer that adds
                   again after another one shows that there are two.
    WINDOW-LITTLE  a writer adds little whose rate is at most an eighth of the busiest one's, taken
                   over a second or longer, twice in a row: the first time it may have begun to be
                   busy after a pause. A ledger that has just begun has no rate yet: it may be the
                   next one of a busy partition.
    WINDOW-SHARED  otherwise a writer has what is confirmed within `target_s`, or, if that is
                   longer, within the least time of late and a quarter, and never less than
                   `shared_bytes_min`, so that a slow moment does not stop it.

`WriterMemory` counts what a writer holds. An entry is held as long as the pipeline may still send
it, or a connection has a copy of it that is neither answered nor given up. That includes copies for
bookies that were replaced meanwhile, and those of a writer that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from client import callbacks
from client.errors import LedgerError, WriteFailed
from client.held_memory import HeldMemory
from client.ids import EntryId
from client.ledger.config import LedgerClientConfig
from client.ledger.core.adds import AddEntry, Adds

_INTERVAL_S: Final = 0.02
"""Over this long the rate of confirmations is taken."""

_ACTIVE_S: Final = 5.0
"""Who added little this long ago still counts."""

_RATE_S: Final = 1.0
"""Over this long, at least, the rate of a writer's adds is taken."""

_LITTLE_PART: Final = 8

_MEETING_S: Final = 3.0
"""Writers that meet need this long until the rates of all are known: two of the above, and more."""

_GROWTH: Final = 1.25

_LEAST_S: Final = 5.0
"""The least time, and the highest rate, is that of as much, and of as much before."""

_UNKNOWN_S: Final = float("inf")


class ActiveWriters:
    """Which writers of a process add, and whether one of them adds little."""

    __slots__ = ("_busiest", "_busiest_until_s", "_last_return_s", "current", "last_little_s")

    def __init__(self) -> None:
        self.current: object = None
        """Who added last."""
        self.last_little_s = float("-inf")
        """When somebody last added who adds little, as far as is known."""
        self._last_return_s = float("-inf")
        self._busiest = [0.0, 0.0]
        """Highest rate of this span and of the one before, in bytes a second."""
        self._busiest_until_s = float("-inf")

    def on_return(self, now_s: float) -> None:
        """Somebody adds again after somebody else did."""
        if now_s - self._last_return_s >= _ACTIVE_S:
            begun_s = now_s - _ACTIVE_S + _MEETING_S
            self.last_little_s = max(self.last_little_s, begun_s)
        self._last_return_s = now_s

    def is_little(self, bytes_per_s: float, now_s: float) -> bool:
        """Take in a writer's rate; return whether it adds little."""
        if now_s >= self._busiest_until_s:
            self._busiest = [0.0, self._busiest[0]]
            self._busiest_until_s = now_s + _LEAST_S
        self._busiest[0] = max(self._busiest[0], bytes_per_s)
        return bytes_per_s * _LITTLE_PART <= max(self._busiest)


class AddRate:
    """How fast one writer adds, and whether that is little beside the busiest one."""

    __slots__ = ("_active_writers", "_bytes", "_since_s", "_was_little", "is_little")

    def __init__(self, active_writers: ActiveWriters) -> None:
        self._active_writers = active_writers
        self._bytes = 0
        """Length of the ledger when the rate was taken last; 0: it was not yet."""
        self._since_s = float("-inf")
        self._was_little = False
        """By the last rate; `is_little`: by the one before, too."""
        self.is_little = False

    @property
    def is_begun(self) -> bool:
        """Whether it has added something before."""
        return self._bytes > 0

    def on_add(self, pushed_bytes: int, now_s: float) -> None:
        """With an entry that is sent now the ledger has so many bytes."""
        took_s = now_s - self._since_s
        if took_s < _RATE_S:
            return
        if self._bytes:
            rate = (pushed_bytes - self._bytes) / took_s
            is_little = self._active_writers.is_little(rate, now_s)
            self.is_little = is_little and self._was_little
            self._was_little = is_little
        self._bytes, self._since_s = pushed_bytes, now_s


class WriterWindow:
    """The window of one writer."""

    __slots__ = (
        "_active_writers",
        "_bytes_max",
        "_least_s",
        "_least_until_s",
        "_mark_bytes",
        "_mark_s",
        "_rate",
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
        """Whether somebody has added little of late, as far as was looked."""
        self._active_writers = active_writers
        self._bytes_max = bytes_max
        self._shared_bytes_min = min(shared_bytes_min, bytes_max)
        self._shared_bytes = self._shared_bytes_min
        self._target_s = target_s
        self._mark_bytes = 0
        self._mark_s = float("-inf")
        self._rate = AddRate(active_writers)
        self.wants_time = False
        """Whether to tell of the next entry by `begin`: one at a time is timed, beside others."""
        self._timed_bytes = 0
        """Length of the ledger with the entry that is timed; 0: none is."""
        self._timed_s = 0.0
        self._least_s = [_UNKNOWN_S, _UNKNOWN_S]
        """Of this span and of the one before."""
        self._least_until_s = float("-inf")

    def on_others(self, pushed_bytes: int, now_s: float) -> None:
        """An entry is sent now, before which somebody else added one; with it the ledger has so
        many bytes."""
        active, rate = self._active_writers, self._rate
        active.current = self
        if rate.is_begun:
            active.on_return(now_s)
        rate.on_add(pushed_bytes, now_s)
        if rate.is_little:
            active.last_little_s = now_s
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
        """Look whether somebody added little lately."""
        self.is_shared = now_s - self._active_writers.last_little_s < _ACTIVE_S
        self.size = self._shared_bytes if self.is_shared else self._bytes_max

    def _note(self, took_s: float, now_s: float) -> None:
        """The entry that was timed took this long."""
        if now_s >= self._least_until_s:
            self._least_s = [_UNKNOWN_S, self._least_s[0]]
            self._least_until_s = now_s + _LEAST_S
        self._least_s[0] = min(self._least_s[0], took_s)


class WriterMemory:
    """The entries of one writer that are held. Told of every copy sent, and of every answer after
    the pipeline's core was."""

    __slots__ = ("_entries", "_memory")

    def __init__(self, memory: HeldMemory) -> None:
        """`memory`: where the bytes are counted with those of others."""
        self._memory = memory
        self._entries: dict[int, AddEntry] = {}
        """By entry id: those that are held."""

    def on_sent(self, entry: AddEntry, copies: int) -> None:
        """So many copies of an entry are sent."""
        if entry.entry_id not in self._entries:
            self._entries[entry.entry_id] = entry
            self._memory.size += entry.size  # `take`, without a call for every entry
        entry.unanswered += copies

    def on_answer(self, entry_id: EntryId) -> None:
        """A copy was answered, or is given up."""
        entry = self._entries[entry_id]
        entry.unanswered -= 1
        if not entry.unanswered and not entry.is_pending:
            self._let_go(entry)

    def on_confirmed(self, first: EntryId, last: EntryId) -> None:
        """These entries are confirmed."""
        for entry_id in range(first, last + 1):
            entry = self._entries.get(entry_id)
            if entry is not None and not (entry.is_pending or entry.unanswered):
                self._let_go(entry)

    def look(self) -> None:
        """Let go of what nothing more will be heard of: the writer has failed, its ensemble has
        changed, or it does not send again what a bookie had no room for."""
        for entry in list(self._entries.values()):
            if not (entry.is_pending or entry.unanswered):
                self._let_go(entry)

    def _let_go(self, entry: AddEntry) -> None:
        del self._entries[entry.entry_id]
        self._memory.give(entry.size)


class WriterRoom:
    """The room of one writer; `wake` whenever something about its adds has changed."""

    __slots__ = ("_adds", "_on_raised", "_unanswered_bytes_max", "waiters", "window")

    def __init__(
        self,
        adds: Adds,
        config: LedgerClientConfig,
        active_writers: ActiveWriters,
        on_raised: Callable[[LedgerError], None],
    ) -> None:
        """`active_writers`: of those that send to the same bookies. `on_raised`: ends the writer,
        with this error."""
        self._adds = adds
        self.window = WriterWindow(
            active_writers,
            config.writer_in_flight_bytes_max,
            shared_bytes_min=config.writer_shared_bytes_min,
            target_s=config.writer_shared_delay_ms / 1000,
        )
        self._unanswered_bytes_max = config.writer_unanswered_bytes_max
        self._on_raised = on_raised
        self.waiters: list[asyncio.Future[None]] = []

    @property
    def is_free(self) -> bool:
        """Whether the next entry may be sent; one that is larger than the limits goes alone."""
        adds = self._adds
        return (
            adds.length - adds.confirmed_length < self.window.size
            and adds.pending_bytes < self._unanswered_bytes_max
        )

    @property
    def is_shared(self) -> bool:
        """Whether a writer that adds little has added something of late (WINDOW-LITTLE)."""
        return self.window.is_shared

    def on_free(self, call: Callable[[], None]) -> None:
        """Call once, later on the loop, when there is room again or the writer has ended."""

        def look(_waiter: asyncio.Future[None]) -> None:
            if not self.is_free and self._adds.error is None:
                self.on_free(call)
                return
            try:
                call()
            except callbacks.RAISED as raised:
                callbacks.failed(callbacks.Kind.WRITER_ROOM, raised)
                error = WriteFailed(f"a callback that waited for room failed: {raised!r}")
                error.__cause__ = raised
                self._on_raised(error)

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(look)
        self.waiters.append(waiter)

    async def changed(self) -> None:
        """Return after something about the adds has changed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Something about the adds has changed: let everybody look who waits."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
