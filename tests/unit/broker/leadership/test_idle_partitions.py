"""What a partition keeps while nothing happens in it."""

from __future__ import annotations

import gc
from collections import deque

import pytest

from tests.fakes.brokers import ClientBackend, World, batch, done, until
from tests.fakes.virtual_time import run

_PARTITIONS = 4


def _deques() -> list[object]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is deque]


@pytest.mark.parametrize("is_used", [False, True])
def test_a_partition_that_is_idle_keeps_no_deque_not_even_in_its_ledgers_writer(
    is_used: bool,
) -> None:
    """An empty one takes 760 bytes: twelve of them were a third of such a partition."""

    async def whole() -> None:
        world = await World(ClientBackend()).start()
        broker = await world.broker(1)
        await world.topic("first", _PARTITIONS)
        await until(lambda: len(broker.opened) == _PARTITIONS)
        before = _deques()  # kept, so that nothing new is mistaken for one of these
        second = await world.topic("second", _PARTITIONS)
        await until(lambda: len(broker.opened) == 2 * _PARTITIONS)
        for index in range(_PARTITIONS if is_used else 0):
            partition = await broker.leads(second, index)
            await done(partition.append(batch("a record")))
        await until(lambda: not any(len(each._leader.log.queue) for each in broker.opened))
        known = {id(found) for found in before}
        assert [found for found in _deques() if id(found) not in known] == []
        await world.close()

    run(whole())
