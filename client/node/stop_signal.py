"""How a program is told to stop, and how long it may take to obey.

SIGTERM and SIGINT ask for a graceful end; whatever hangs then (a metadata store, a peer, a disk)
hangs for a bounded time: after it the process ends as it is, with exit code 1. That loses nothing
that was promised: an end like that is what fencing, replay and expiring sessions are for, and
supervisors kill a little later anyway.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

STOP_S_MAX: Final = 8.0
"""From the signal to the end; supervisors should wait a little longer before they kill."""


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
