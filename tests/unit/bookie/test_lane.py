"""A thread that does one job after the other for the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from bookie.lane import Lane


async def test_jobs_are_done_in_order_and_their_outcomes_arrive() -> None:
    lane, did = Lane("test"), []

    def fail() -> None:
        raise OSError("no")

    first = lane.run(lambda: did.append(threading.current_thread().name))
    failed = lane.run(fail)
    last = lane.run(lambda: did.append("last"))
    await first
    with pytest.raises(OSError, match="no"):
        await failed
    await last
    assert did == ["test", "last"]
    lane.close()


async def test_closing_waits_for_what_was_given() -> None:
    lane, did = Lane("test"), []
    done = lane.run(lambda: (time.sleep(0.02), did.append("slow"))[0])
    lane.close()
    assert did == ["slow"]
    await done


async def test_nobody_has_to_wait() -> None:
    lane = Lane("test")
    lane.run(lambda: None).cancel()
    await lane.run(lambda: None)
    lane.close()


def test_a_closed_loop_is_no_trouble() -> None:
    lane, may_end = Lane("test"), threading.Event()

    async def give() -> None:
        lane.run(lambda: (may_end.wait(), None)[1])

    asyncio.run(give())
    may_end.set()
    lane.close()
