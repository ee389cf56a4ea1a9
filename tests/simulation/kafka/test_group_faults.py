"""Consumer groups under faults: whole brokers and members on the simulated loop.

Brokers are killed, stopped for longer than their metadata session, cut off from the store or
from members; members are killed; connections break. An observer who is no member reads the
committed offsets all the time. At every moment T11 (acknowledged commits are not undone) and T12
(one owner of a partition per generation) hold; after the faults end the group comes together
and goes on (T16).

The ledgers are the in-memory service with real fencing.
"""

from __future__ import annotations

import asyncio
import gc
import random
from typing import TYPE_CHECKING

import pytest

from broker.config import BrokerConfig
from tests.simulation.kafka.front_world import FrontWorld
from tests.simulation.kafka.group_member import PARTITIONS, PORT, TOPIC, History, Member, watch
from tests.simulation.machine.tripwires import armed

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tests.simulation.machine.hosts import Host

MEMBERS = 3
FAULTS_S = 60.0
HEALED_S = 90.0
CONFIG = BrokerConfig(
    admin_port=-1,
    listen_host="0.0.0.0",
    port=PORT,
    offsets_topic_partitions=2,
    group_initial_rebalance_delay_ms=500,
    session_timeout_ms=4_000,
    group_log_copy_bytes=5_000,
)


class World(FrontWorld):
    """Three brokers, three members, an observer, and what breaks them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, CONFIG, [f"member{number + 1}" for number in range(MEMBERS)])
        self.history = History(self.loop)

    def client_of(self, host: Host) -> Coroutine[Any, Any, None]:
        rng = random.Random(f"{host.name} {host.starts}")
        if host is self.observer:
            return watch(self.broker_names, self.history, rng)
        static = host is self.members[-1]
        self.history.stable.pop(host.name, None)
        return Member(host.name, self.broker_names, self.history, rng, static=static).run()

    async def drive(self) -> None:
        await self.start_brokers()
        await self.create_topic(TOPIC, PARTITIONS)
        for host in (*self.members, self.observer):
            self.boot(host)
        await self.until(self._together, 60)
        end_s = self.loop.time() + FAULTS_S
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.expovariate(1 / 2.0))
            self.strike()
        await asyncio.sleep(10.0)
        self.heal()
        before = dict(self.history.acknowledged)
        await self.until(self._together, HEALED_S)
        await self.until(
            lambda: all(self.history.acknowledged[one] > before[one] for one in before), HEALED_S
        )

    def _together(self) -> bool:
        stable = self.history.stable
        return len(stable) == MEMBERS and len(set(stable.values())) == 1


def run(seed: int) -> World:
    gc.collect()
    world = World(seed)
    with armed(world.loop.time):
        gc.disable()
        try:
            world.loop.run_until_complete(world.drive())
        except RuntimeError as stopped:
            raise world.loop.failure or stopped from None
        finally:
            gc.enable()
            world.loop.dispose()
    return world


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_groups_survive(seed: int) -> None:
    world = run(seed)
    assert min(world.history.acknowledged.values()) > 10
