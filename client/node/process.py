"""What a server asks of its process and of the system: a stop in time, processors, memory, files.

*Stop.* SIGTERM and SIGINT ask for a graceful end; whatever hangs then (a metadata store, a peer, a
disk) hangs for a bounded time: after it the process ends as it is, with exit code 1. That loses
nothing that was promised: an end like that is what fencing, replay and expiring sessions are for,
and supervisors kill a little later anyway.

*Cycles.* Python's collector of reference cycles is paced so that it never stops a server for long
(`Collector`). Left alone it looks at young objects after this many allocations *more than
releases*. A server whose caches are full releases as much as it takes, so its young objects pile up
by the hundred thousand, uncounted, until some burst of requests makes the collector look at all of
them at once: 160 ms in which nobody is served, seen under nine thousand reads of a bookie. So it is
called by time as well, which bounds what has become of it since: eight times a second, some
milliseconds each under load and some 20 us otherwise. Young and middle-aged objects are looked at
together, each of them once: a thousand requests that are always under way cost a broker 9 us of its
processor for each request when they were looked at again as middle-aged ones.

What was there when a program began to serve is never looked at again, and old objects only when
there have been many more of everything, for half a minute, than after the last time: nothing on the
way of an entry makes cycles, and to look at a million objects takes some 300 ms, which no pace can
divide. Half a minute, because a large request makes a million objects for some seconds, and looking
at them then would be a stall that whoever sent it can cause.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final, Literal

log = logging.getLogger(__name__)

STOP_S_MAX: Final = 8.0
"""From the signal to the end; supervisors should wait a little longer before they kill."""

CpuScheduling = Literal["batch", "normal"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_BLOCK_BYTES_MAX: Final = 16 << 20
"""Larger blocks still come from the kernel, and go back there."""
_KEPT_BYTES_MAX: Final = 16 << 20
"""Free memory at the end of an arena beyond which all of it is given back."""

_RESERVED_PART: Final = 4
"""Of few files a quarter is the server's own."""
_KERNEL_FILES_MIN: Final = 10_240
"""What macOS grants a process (OPEN_MAX) whose stated limit is "unlimited"."""

_THRESHOLDS: Final = (25_000, 1, 1_000_000)
"""Young objects, for bursts between two ticks; middle-aged ones, with every other collection of
young ones; old ones: never by count."""

_TICK_S: Final = 1 / 8

_TICKS_UNTIL_LOOK: Final = 20
"""Counting what is allocated takes up to a millisecond: every two or three seconds are enough."""

_LOOKS: Final = 12
"""So many in a row have to find that there is more: half a minute."""

_GROWTH_MIN: Final = 1_000_000
_GROWTH_SHARE: Final = 4


def on_stop_signal(
    loop: asyncio.AbstractEventLoop,
    *,
    within_s: float = STOP_S_MAX,
    cut_short: Callable[[int], None] = os._exit,
) -> asyncio.Event:
    """Return an event that the first signal sets; call `cut_short` if we live on for too long."""
    told = asyncio.Event()

    def late() -> None:
        log.error("stop.cut_short after_s=%g", within_s)
        logging.shutdown()
        cut_short(1)

    def on_signal() -> None:
        if not told.is_set():
            told.set()
            loop.call_later(within_s, late)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return told


def apply_scheduling(wanted: CpuScheduling) -> bool:
    """Choose how the kernel shares processors between a server and what runs beside it.

    A process that wakes up usually interrupts the one that runs. A message passes a client, a
    broker and three bookies, so on a machine that runs several of them each message costs a dozen
    such changes, and each server finds one message when it runs. Under Linux's policy for batch
    work, whoever runs goes on until it waits or has used up its time; meanwhile messages gather,
    and share entries, writes and syncs. Where a processor is idle nobody has to wait in either
    case.

    Returns whether it is `batch` now. A policy that somebody else has set (with `chrt`, or in a
    unit file of systemd) stays, and so does that of a system without such policies.
    """
    if wanted != "batch" or not hasattr(os, "sched_setscheduler"):
        return False
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return os.sched_getscheduler(0) == os.SCHED_BATCH
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError:  # a sandbox that forbids the call
        return False
    return True


def keep_freed_memory() -> bool:
    """Configure the C library's allocator for programs that receive and send megabytes.

    Return whether it has such settings. Call when a program is about to serve.

    Left alone, glibc gives large blocks back to the kernel as soon as they are free, and the next
    one is fresh memory, of which the kernel clears each page at its first touch, which can cost
    more than what is done with the bytes. What is kept instead is bounded, for each of the few
    arenas.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False  # not glibc
    return bool(
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES_MAX) and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES_MAX)
    )


def connections_that_fit(wanted: int, *, reserved: int) -> int:
    """Raise this process's limit of open files as far as needed and allowed.

    A connection is an open file. A server that takes more than the system grants cannot open its
    own files any more, a bookie's log for one; so the limit of connections gives way.

    Returns `wanted`, or how many connections fit beside `reserved` files of other kinds; logs that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + reserved
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = _raised(soft, needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
    fitting = fit(wanted, reserved, None if soft == resource.RLIM_INFINITY else soft)
    if fitting < wanted:
        log.warning("connections.limited fitting=%d wanted=%d files=%d", fitting, wanted, soft)
    return fitting


def _raised(soft: int, asked: int, hard: int) -> int:
    """Raise the limit to `asked`, or as far as the system lets us; return what it is then."""
    for limit in (asked, _KERNEL_FILES_MIN):
        if limit > soft:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            except (OSError, ValueError):
                continue  # macOS: the kernel's own limit is lower than the one it states
            return limit
    return soft


def fit(wanted: int, reserved: int, files: int | None) -> int:
    """Return how many connections fit into this many open files; None: there is no limit."""
    if files is None:
        return wanted
    return max(1, min(wanted, files - min(reserved, files // _RESERVED_PART)))


class Growth:
    """Says when old objects are worth a look: when everything grew by a quarter, by much, and for
    long enough."""

    def __init__(self, block_count: int) -> None:
        self._due_at = 0
        self._found_count = 0
        """Looks in a row that found it grown."""
        self.collected(block_count)

    def is_due(self, block_count: int) -> bool:
        """Look: this many blocks of memory are in use. Return whether to collect all."""
        self._found_count = self._found_count + 1 if block_count >= self._due_at else 0
        return self._found_count >= _LOOKS

    def collected(self, block_count: int) -> None:
        """All were looked at, and this many blocks are left."""
        self._found_count = 0
        self._due_at = block_count + max(_GROWTH_MIN, block_count // _GROWTH_SHARE)


class Collector:
    """Collects at its own pace. `start` once, when the loop runs; `close` once."""

    def __init__(self) -> None:
        self._growth = Growth(sys.getallocatedblocks())
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; what exists now is never looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        self._growth.collected(sys.getallocatedblocks())
        self._arm()

    def close(self) -> None:
        """Leave the collector to itself."""
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Look at young and middle-aged objects; seldom at all."""
        self._ticks += 1
        if not self._ticks % _TICKS_UNTIL_LOOK and self._growth.is_due(sys.getallocatedblocks()):
            gc.collect()
            self._growth.collected(sys.getallocatedblocks())
        else:
            gc.collect(1)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._on_timer)

    def _on_timer(self) -> None:
        self.tick()
        self._arm()
