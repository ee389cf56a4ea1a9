"""A partition that one broker leads over scripted ledgers, for tests of a single partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.partition.partition import Partition
from client.ids import Offset
from tests.fakes.brokers import Broker, World
from tests.fakes.virtual_time import run

Scenario = Callable[[World, Broker, Partition], Awaitable[None]]


def one_partition(
    scenario: Scenario, *, config: dict[str, str] | None = None, **limits: int
) -> None:
    """Run a scenario on a fresh partition that one broker leads."""

    async def whole() -> None:
        world = await World(**limits).start()
        topic = await world.topic(**(config or {}))
        broker = await world.broker(1, owning=False)
        partition = await broker.open(topic)
        try:
            await scenario(world, broker, partition)
        finally:
            await world.close()

    run(whole())


async def fetch(
    partition: Partition, offset: int, size_max: int = 1 << 20, **options: bool
) -> bytes:
    """Read from an offset on and join the bytes."""
    found = await partition.reader.read(
        Offset(offset),
        size_max,
        at_least_one=options.get("at_least_one", True),
        read_committed=False,
    )
    return b"".join(bytes(part) for part in found.buffers)
