"""What is asked of a parser for every input."""

from __future__ import annotations

import gc
import time
import tracemalloc

from tests.fuzz.targets import Target, allowed

SECONDS_MAX = 0.5
"""CPU time for an input of a few kilobytes: no loop depends on a number in it."""


class Misbehaved(Exception):
    """A parser did what none may do; the message has the input."""


def feed(target: Target, data: bytes) -> bool:
    """Parse; return whether it was accepted. Raises Misbehaved."""
    is_collecting = gc.isenabled()
    gc.disable()  # what a collection costs depends on all the other tests' objects
    began_s = time.thread_time()
    try:
        target.parse(data)
    except Exception as error:
        if not allowed(error):
            raise Misbehaved(f"{target.name} raises {error!r} for {data!r}") from error
        accepted = False
    else:
        accepted = True
    finally:
        taken_s = time.thread_time() - began_s
        if is_collecting:
            gc.enable()
    if taken_s > SECONDS_MAX:
        raise Misbehaved(f"{target.name} takes over {SECONDS_MAX} s of CPU for {data!r}")
    return accepted


def weigh(target: Target, data: bytes) -> int:
    """Parse and return the peak of memory in bytes. Raises Misbehaved."""
    tracemalloc.start()
    try:
        feed(target, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > target.bytes_max + target.bytes_per_byte_max * len(data):
        raise Misbehaved(f"{target.name} takes {peak} bytes for {len(data)}: {data!r}")
    return peak
