"""Compaction reads and writes no more than so many bytes a second."""

from __future__ import annotations

import asyncio

import pytest

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.compaction.ledger_output import ByteRate
from broker.partition.partition import Partition
from tests.fakes.brokers import Broker, World
from tests.fakes.one_partition import one_partition
from tests.fakes.virtual_time import run
from tests.unit.broker.compaction.test_compactor import COMPACT, write


async def took_s(rate: ByteRate, *sizes: int) -> float:
    began_s = asyncio.get_running_loop().time()
    for size in sizes:
        await rate.use(size)
    return asyncio.get_running_loop().time() - began_s


def test_a_second_of_bytes_is_free_and_more_is_waited_for() -> None:
    async def scenario() -> None:
        rate = ByteRate(1000)
        assert await took_s(rate, 400, 600) == 0
        assert await took_s(rate, 1) == pytest.approx(0.001)
        assert await took_s(rate, *([500] * 10)) == pytest.approx(5)
        await asyncio.sleep(100)
        assert await took_s(rate, 1000, 1000) == pytest.approx(1), "nothing is saved up"

    run(scenario())


def test_zero_is_no_limit() -> None:
    async def scenario() -> None:
        assert await took_s(ByteRate(0), 10**12, 10**12) == 0

    run(scenario())


def test_rounds_keep_within_it_with_all_that_they_read_and_write() -> None:
    bytes_per_s = 20_000

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(8):
            await write(partition, (f"only {number}", "x" * 2000))
            await broker.services.lease.ask(broker.store)
        cleaning = Compactor(
            broker.services, [partition], CompactionConfig(bytes_per_s=bytes_per_s)
        )
        began_s = asyncio.get_running_loop().time()
        await cleaning.visit_all()
        metrics = broker.services.metrics
        used = metrics.compaction_read_bytes + metrics.compaction_written_bytes
        assert metrics.compaction_written_bytes > 10_000
        assert metrics.compaction_read_bytes > 2.9 * metrics.compaction_written_bytes, (
            "twice, and back"
        )
        took = asyncio.get_running_loop().time() - began_s
        assert took == pytest.approx(used / bytes_per_s - 1, abs=0.2)

    one_partition(scenario, config=COMPACT)
