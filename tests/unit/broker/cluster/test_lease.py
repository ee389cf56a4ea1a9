"""How long a broker may speak as a leader without an answer from the store."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.lease import SessionLease
from client.errors import MetadataError
from tests.fakes.brokers import World
from tests.fakes.virtual_time import run


def test_two_thirds_of_the_timeout_from_the_question_on() -> None:
    lease = SessionLease(9.0)
    assert not lease.is_valid(0.0)
    lease.renew(100.0)
    assert lease.is_valid(105.9)
    assert not lease.is_valid(106.0)
    lease.renew(90.0)
    assert lease.is_valid(105.9), "an older answer takes nothing away"
    lease.end()
    assert not lease.is_valid(100.0)


def test_the_time_of_the_question_counts_not_that_of_the_answer() -> None:
    async def scenario() -> None:
        world = await World().start()
        loop = asyncio.get_running_loop()
        world.cluster.latency = lambda: 1.0
        lease = SessionLease(9.0)
        asked = loop.time()
        await lease.ask(world.cluster.session())
        assert loop.time() == asked + 2
        assert lease.is_valid(asked + 5.9)
        assert not lease.is_valid(asked + 6.0)

    run(scenario())


def test_it_is_kept_while_the_store_answers() -> None:
    async def scenario() -> None:
        world = await World().start()
        loop = asyncio.get_running_loop()
        store = world.cluster.session()
        lease = SessionLease(9.0)
        keeping = asyncio.create_task(lease.keep(store))
        await asyncio.sleep(60)
        assert lease.is_valid(loop.time())
        world.cluster.suspend(store)
        await asyncio.sleep(4.4)
        assert lease.is_valid(loop.time())
        await asyncio.sleep(1.7)
        assert not lease.is_valid(loop.time())
        world.cluster.resume(store)
        lease.ask_soon()
        await asyncio.sleep(0.1)
        assert lease.is_valid(loop.time())
        await store.close()
        with pytest.raises(MetadataError):
            await lease.ask(store)
        keeping.cancel()

    run(scenario())


def test_others_hear_when_a_question_left_that_was_answered() -> None:
    lease, heard = SessionLease(9.0), list[float]()
    lease.add_listener(heard.append)
    lease.renew(100.0)
    lease.renew(90.0)
    assert heard == [100.0, 90.0]
