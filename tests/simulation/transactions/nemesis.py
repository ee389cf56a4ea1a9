"""The faults of transaction schedules: leaders that move, brokers that die, links that are cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.coordinator.core.routing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.errors import BrokerError
from broker.transactions.core.marker_queue import Leader
from client.errors import LedgerError, LogCorrupt, MetadataError
from tests.simulation.transactions.plan import WEIGHTS

if TYPE_CHECKING:
    from tests.simulation.transactions.nodes import Node, Place
    from tests.simulation.transactions.world import TransactionWorld

_TROUBLE = (BrokerError, LedgerError, MetadataError, LogCorrupt)


class Nemesis:
    """Draws faults from the schedule's own generator."""

    def __init__(self, world: TransactionWorld) -> None:
        self._world = world
        self._rng = world.rng

    async def move_and_kill(self) -> None:
        """Move leaders, kill brokers and roll ledgers until the world is healed."""
        plan, rng = self._world.plan, self._rng
        while not self._world.is_healed:
            await asyncio.sleep(rng.expovariate(1 / plan.move_s))
            if self._world.is_healed:
                return
            if rng.random() < plan.kill_p:
                await self._kill(rng.choice([*self._world.nodes.values()]))
            elif rng.random() < plan.roll_p:
                self._roll(rng.choice([*self._world.leaders]))
            else:
                self._move_any()

    def _move_any(self) -> None:
        rng = self._rng
        place = rng.choice([*self._world.moving])
        for topic, weight in WEIGHTS[self._world.plan.trouble].items():
            if rng.random() < weight:
                place = (topic, 0)
        if self._world.moving[place].locked():
            return
        before = self._world.leaders.get(place)
        others = [n for n in self._world.nodes.values() if before is None or n is not before[0]]
        target = rng.choice(others)
        names = {TRANSACTIONS_TOPIC: "move coordinator", OFFSETS_TOPIC: "move groups"}
        self._world.struck(names.get(place[0], "move leader"))
        is_unaware = rng.random() < self._world.plan.unaware_p
        unaware_s = rng.expovariate(1 / self._world.plan.unaware_s) if is_unaware else None
        self._world.start(lambda: self._world.move(place, target, unaware_s=unaware_s))

    async def _kill(self, node: Node) -> None:
        """kill -9, and begin again at once."""
        self._world.note("NEMESIS kill %d", node.id)
        self._world.struck("kill broker")
        node.stop()
        await node.start()
        for place, (leader, partition) in self._world.leaders.items():
            node.heard(place, Leader(leader.id, partition.leader_epoch))
        lost = [place for place, (leader, _) in self._world.leaders.items() if leader is node]
        for place in lost:
            target = self._rng.choice([*self._world.nodes.values()])
            self._world.start(lambda place=place, target=target: self._world.move(place, target))  # type: ignore[misc]

    def _roll(self, place: Place) -> None:
        found = self._world.leader(place)
        if found is None:
            return
        self._world.struck("roll")

        async def roll() -> None:
            try:
                await found[1].changes.roll()
            except _TROUBLE as error:
                self._world.note("not rolled: %r", error)

        self._world.start(roll)

    async def cut_now_and_then(self) -> None:
        """Cut brokers off from each other, one pair at a time, until the world is healed."""
        plan, rng = self._world.plan, self._rng
        while not self._world.is_healed:
            await asyncio.sleep(rng.expovariate(1 / plan.cut_s))
            pair = tuple(sorted(rng.sample([*self._world.nodes], 2)))
            if not self._world.is_healed:
                self._world.note("NEMESIS cut %s", pair)
                self._world.struck("cut brokers")
                self._world.cuts.add(pair)
                await asyncio.sleep(rng.expovariate(1 / 0.3))
                self._world.cuts.discard(pair)
