"""How wrong tokens of an HTTP port are slowed down, in virtual time."""

from __future__ import annotations

import asyncio

from client.node.http_guard import WrongTokens
from client.security.failure_delays import WAITING_MAX
from tests.fakes.virtual_time import run


def test_each_answer_waits_longer_than_the_one_before() -> None:
    async def scenario() -> list[float]:
        wrong, loop = WrongTokens(1.0, 5.0), asyncio.get_running_loop()
        waited = []
        for _ in range(5):
            began_s = loop.time()
            await wrong.wait("10.0.0.1")
            waited.append(round(loop.time() - began_s, 3))
        return waited

    assert run(scenario()) == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_an_address_may_have_so_many_answers_waiting() -> None:
    async def scenario() -> None:
        wrong = WrongTokens(1.0, 1.0)
        waiting = [asyncio.create_task(wrong.wait("10.0.0.1")) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        assert wrong.is_full("10.0.0.1")
        assert not wrong.is_full("10.0.0.2")
        for one in waiting:
            one.cancel()  # its client has hung up
        await asyncio.sleep(0.5)
        assert wrong.is_full("10.0.0.1")
        await asyncio.sleep(0.6)
        assert not wrong.is_full("10.0.0.1")
        assert wrong.retry_after_s == 2

    run(scenario())


def test_without_a_delay_nobody_waits() -> None:
    async def scenario() -> None:
        wrong, began_s = WrongTokens(0.0, 0.0), asyncio.get_running_loop().time()
        for _ in range(3 * WAITING_MAX):
            await wrong.wait("10.0.0.1")
        assert asyncio.get_running_loop().time() == began_s
        assert not wrong.is_full("10.0.0.1")

    run(scenario())
