"""A signal is heard once, and a program that cannot end is ended."""

import asyncio
import os
import signal

from client.node.process import on_stop_signal


async def test_the_first_signal_sets_the_event_and_the_clock() -> None:
    loop = asyncio.get_running_loop()
    cut = loop.create_future()
    told = on_stop_signal(loop, within_s=0.05, cut_short=cut.set_result)
    try:
        assert not told.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await told.wait()
        os.kill(os.getpid(), signal.SIGINT)
        assert await cut == 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
