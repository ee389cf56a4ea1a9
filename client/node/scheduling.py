"""Chooses how the kernel shares processors between a server and what runs beside it.

A process that wakes up usually interrupts the one that runs. A message passes a client, a broker
and three bookies, so on a machine that runs several of them each message costs a dozen such
changes, and each server finds one message when it runs. Under Linux's policy for batch work,
whoever runs goes on until it waits or has used up its time; meanwhile messages gather, and share
entries, writes and syncs. Where a processor is idle nobody has to wait in either case.
"""

from __future__ import annotations

import os
from typing import Literal

CpuScheduling = Literal["batch", "normal"]


def apply_scheduling(wanted: CpuScheduling) -> bool:
    """Set the policy of this thread and of threads and processes that it starts from now on.

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
