"""What every program of Quire shows of itself: version, event loop, metadata session.

Covers measuring them. A loop that is late makes everything late that the program does; a session
that is interrupted comes before every takeover.
"""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import Final

from client import callbacks
from client.histogram import Histogram, Stopwatch, loop_time
from client.metadata.store import MetadataStore, SessionState
from client.node import background
from client.node.exposition import Exposition, Kind, Row

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
LOOP_LAG_SECONDS: Final = "quire_loop_lag_seconds"
LOOP_STALL_SECONDS: Final = "quire_loop_stall_seconds"
LOOP_STALL_CPU_SECONDS: Final = "quire_loop_stall_cpu_seconds"
TASK_FAILURES: Final = "quire_task_failures"
ADMIN_REFUSED: Final = "quire_admin_requests_refused"
ADMIN_EXPIRES: Final = "quire_admin_certificate_expires_seconds"
CALLBACK_FAILURES: Final = "quire_callback_failures"
_TICK_S: Final = 1.0
_STALL_TICK_S: Final = 1 / 16
_STALL_WINDOW_S: Final = 60.0
"""Longer than anybody's scrape interval, so that no stall is missed."""
_VERSION: Final = version("quire")

ROWS: Final = (
    Row("quire_info", _G, "Always 1; the labels say what runs.", ("program", "version")),
    Row(LOOP_LAG_SECONDS, _H, "How late the event loop runs what is due."),
    Row(
        LOOP_STALL_SECONDS,
        _G,
        "Longest time that the event loop stood still in the last one to two minutes, less 63 ms at"
        " most: nobody was served meanwhile.",
    ),
    Row(
        LOOP_STALL_CPU_SECONDS,
        _G,
        "The same, counting of a stall only the processor time that the loop's thread got: a value"
        " much below the other one means that the machine was busy with something else.",
    ),
    Row("quire_metadata_connected", _G, "1 while the session with ZooKeeper is alive."),
    Row("quire_metadata_request_seconds", _H, "From a request to ZooKeeper until its answer."),
    Row("quire_metadata_interruptions", _C, "Times that no ZooKeeper server answered."),
    Row("quire_metadata_sessions_expired", _C, "Sessions that ZooKeeper expired."),
    Row(
        "quire_metadata_unreadable_nodes",
        _G,
        "Nodes in ZooKeeper that this process cannot decode. It leaves them alone; the event"
        " metadata.unreadable names them, and quire doctor says what to do.",
    ),
    Row(TASK_FAILURES, _C, "Background tasks that failed and were restarted.", ("task",)),
    Row(
        CALLBACK_FAILURES, _C, "Callbacks that raised: bugs of whoever registered them.", ("kind",)
    ),
)

ADMIN_ROWS: Final = (
    Row(ADMIN_REFUSED, _C, "Requests without a valid token or role, or from foreign pages."),
    Row(ADMIN_EXPIRES, _G, "Unix time at which the first certificate of the port's chain expires."),
)
"""Of a program with an HTTP port (`http_guard.py`)."""


def provide_process(exposition: Exposition, program: str, store: MetadataStore) -> None:
    """Show version and session. `program`: broker, bookie, autorecovery."""
    labels = {"program": program, "version": _VERSION}
    counts = dict.fromkeys(SessionState, 0)

    def on_session(state: SessionState) -> None:
        counts[state] += 1

    store.add_session_listener(on_session)
    one = exposition.provide_one
    exposition.provide("quire_info", lambda: [(labels, 1)])
    exposition.provide(
        TASK_FAILURES, lambda: [({"task": task}, n) for task, n in background.failures.items()]
    )
    exposition.provide(
        CALLBACK_FAILURES,
        lambda: [({"kind": kind.value}, n) for kind, n in callbacks.failures.items()],
    )
    one("quire_metadata_unreadable_nodes", lambda: len(store.unreadable))
    one("quire_metadata_connected", lambda: store.state is SessionState.CONNECTED)
    provide_metadata_requests(exposition, Histogram())
    one("quire_metadata_interruptions", lambda: counts[SessionState.SUSPENDED])
    one("quire_metadata_sessions_expired", lambda: counts[SessionState.EXPIRED])


def provide_metadata_requests(exposition: Exposition, seconds: Histogram) -> None:
    """Show how long ZooKeeper takes to answer; a store in memory has no such number."""
    exposition.provide_one("quire_metadata_request_seconds", lambda: seconds)


class LoopStall:
    """Looks for the longest stall of the loop, sixteen times a second. `start` once, `close` once.

    A sample a second (`LoopLag`) says how late things are as a rule, and misses most of what
    happens once. A stall that the loop's thread did not work for is none of ours: other processes
    had the processor, or the disk the thread. So what it worked is counted by itself.
    """

    def __init__(
        self,
        exposition: Exposition,
        now_s: Stopwatch = loop_time,
        cpu_s: Stopwatch = time.thread_time,
    ) -> None:
        """`cpu_s`: what the loop's thread has had of a processor."""
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._due_s = 0.0
        self._armed_cpu_s = 0.0
        self._window_until_s = 0.0
        self._longest_s = [0.0, 0.0]
        """Of the present window and of the one before."""
        self._worked_s = [0.0, 0.0]
        """The same, of what the loop's thread had of a processor."""
        self._timer: asyncio.TimerHandle | None = None
        exposition.provide_one(LOOP_STALL_SECONDS, lambda: max(self._longest_s))
        exposition.provide_one(LOOP_STALL_CPU_SECONDS, lambda: max(self._worked_s))

    def start(self) -> None:
        """Begin to look."""
        self._window_until_s = self._now_s() + _STALL_WINDOW_S
        self._arm()

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._due_s = self._now_s() + _STALL_TICK_S
        self._armed_cpu_s = self._cpu_s()
        self._timer = asyncio.get_running_loop().call_later(_STALL_TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        now_s = self._now_s()
        if now_s >= self._window_until_s:
            self._longest_s = [0.0, self._longest_s[0]]
            self._worked_s = [0.0, self._worked_s[0]]
            self._window_until_s = now_s + _STALL_WINDOW_S
        late_s = now_s - self._due_s
        self._longest_s[0] = max(self._longest_s[0], late_s)
        worked_s = min(late_s, self._cpu_s() - self._armed_cpu_s)
        self._worked_s[0] = max(self._worked_s[0], worked_s)
        self._arm()


class LoopLag:
    """Measures once a second how late the loop is, and its stalls. `start` once, `close` once."""

    def __init__(self, exposition: Exposition, now_s: Stopwatch = loop_time) -> None:
        self._now_s = now_s
        self._seconds = Histogram()
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stall = LoopStall(exposition, now_s)
        exposition.provide_one(LOOP_LAG_SECONDS, lambda: self._seconds)

    def start(self) -> None:
        """Begin to measure."""
        self._stall.start()
        self._arm()

    def _arm(self) -> None:
        self._due_s = self._now_s() + _TICK_S
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._on_tick)

    def close(self) -> None:
        """Stop measuring."""
        self._stall.close()
        if self._timer is not None:
            self._timer.cancel()

    def _on_tick(self) -> None:
        self._seconds.observe(max(0.0, self._now_s() - self._due_s))
        self._arm()
