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
import contextlib
import dataclasses
import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

from broker.app import Broker
from broker.config import BrokerConfig
from broker.errors import BrokerError
from client.errors import MetadataError
from client.ids import BookieId, BrokerId
from client.metadata import paths
from tests.fakes.ledgers import FakeLedgers
from tests.simulation.kafka.group_member import PARTITIONS, PORT, TOPIC, History, Member, watch
from tests.simulation.machine.hosts import Host, SimClock
from tests.simulation.machine.loop import SimLoop
from tests.simulation.machine.net import NetOptions, SimNet
from tests.simulation.machine.store import SimMetadata, StoreOptions
from tests.simulation.machine.tripwires import armed

BROKERS = 3
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


class World:
    """Three brokers, three members, a store, and what breaks them."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(random.Random(f"{seed} loop"))
        self.rng = random.Random(f"{seed} faults")
        self.net = SimNet(self.loop, random.Random(f"{seed} net"), NetOptions(split_p=0.1))
        self.brokers = [self.net.add_host(f"broker{number + 1}") for number in range(BROKERS)]
        self.members = [self.net.add_host(f"member{number + 1}") for number in range(MEMBERS)]
        self.observer = self.net.add_host("observer")
        self.clock = SimClock(self.loop, self.members[0])
        options = StoreOptions(session_timeout_s=4.0)
        self.store = SimMetadata(self.net, random.Random(f"{seed} store"), options, self.clock)
        self.ledgers = FakeLedgers()
        delays = random.Random(f"{seed} ledgers")
        self.ledgers.arrival_s = lambda: delays.expovariate(50)
        self.ledgers.answer_s = lambda: delays.expovariate(50)
        self.ledgers.keep_unconfirmed = lambda ledger: delays.randrange(len(ledger.entries) + 1)
        self.history = History(self.loop)
        self.running: dict[str, Broker] = {}

    # --- processes ----------------------------------------------------------------------------

    def boot(self, host: Host) -> None:
        """Start what runs on a host."""
        if host is self.observer:
            main = self._watch
        else:
            main = self._broker if host in self.brokers else self._member
        self.net.bind(self.loop.start_process(host, lambda: main(host)))
        self.net.release_held()
        self.store.links_changed()

    async def _broker(self, host: Host) -> None:
        number = self.brokers.index(host) + 1
        broker = Broker(
            dataclasses.replace(CONFIG, node_id=BrokerId(number), advertised_host=host.name),
            store=self.store.session(),
            ledgers=self.ledgers.client(f"{host.name}.{host.starts}"),
            clock=SimClock(self.loop, host),
            rng=random.Random(f"{host.name} {host.starts}"),
        )
        self.running[host.name] = broker
        try:
            await broker.start()
        except MetadataError:  # the program ends, and its supervisor starts it again
            self.loop.kernel_at(self.loop.time() + 1.0, lambda: self._start(host))
            return
        await asyncio.Event().wait()

    async def _watch(self, host: Host) -> None:
        names = [one.name for one in self.brokers]
        await watch(names, self.history, random.Random(f"{host.name} {host.starts}"))

    async def _member(self, host: Host) -> None:
        static = host is self.members[-1]
        self.history.stable.pop(host.name, None)
        names = [one.name for one in self.brokers]
        rng = random.Random(f"{host.name} {host.starts}")
        await Member(host.name, names, self.history, rng, static=static).run()

    # --- faults -------------------------------------------------------------------------------

    def strike(self) -> None:
        """Break something, and plan its repair."""
        fault = self.rng.choice(
            (self._kill, self._kill, self._stop, self._cut_from_store, self._cut_link, self._reset)
        )
        fault()

    def _later(self, seconds: float, repair: Callable[[], None]) -> None:
        self.loop.kernel_at(self.loop.time() + seconds, repair)

    def _kill(self) -> None:
        host = self.rng.choice([*self.brokers, *self.brokers, *self.members])
        if host.process is not None and host.process.alive:
            self.loop.kill(host.process)
            self._later(self.rng.uniform(0.2, 8.0), lambda: self._start(host))

    def _start(self, host: Host) -> None:
        if not host.running:
            self.boot(host)

    def _stop(self) -> None:
        process = self.rng.choice([*self.brokers, *self.members]).process
        if process is not None and process.alive and not process.paused:
            self.loop.pause(process)
            self.store.paused(process)
            self._later(self.rng.uniform(0.5, 15.0), lambda: self._continue(process))

    def _continue(self, process: Any) -> None:
        if process.alive and process.paused:
            self.store.resuming(process)
            self.loop.resume(process)
            self.store.links_changed()

    def _cut(self, one: Host, other: Host) -> None:
        for source, target in ((one, other), (other, one)):
            self.net.cut(source, target)
        self.store.links_changed()
        self._later(self.rng.uniform(0.5, 8.0), lambda: self._mend(one, other))

    def _mend(self, one: Host, other: Host) -> None:
        for source, target in ((one, other), (other, one)):
            self.net.heal(source, target)
        self.store.links_changed()

    def _cut_from_store(self) -> None:
        self._cut(self.rng.choice(self.brokers), self.store.host)

    def _cut_link(self) -> None:
        self._cut(self.rng.choice(self.members), self.rng.choice(self.brokers))

    def _reset(self) -> None:
        connections = self.net.connections()
        if connections:
            self.net.reset(self.rng.choice(connections))

    def heal(self) -> None:
        """Mend everything and start everything."""
        for host in (*self.brokers, *self.members):
            if host.process is not None and host.process.alive:
                self._continue(host.process)
            self._start(host)
        self.net.heal_all()
        self.net.calm_down()
        self.store.calm_down()
        self.store.links_changed()

    # --- a schedule ---------------------------------------------------------------------------

    async def drive(self) -> None:
        admin = self.store.cluster.session()
        for number in range(3):
            await admin.create(paths.cookie(BookieId(f"b{number}")), make_parents=True)
        self.store.options = dataclasses.replace(self.store.options, lose_reply_p=0.02)
        for host in self.brokers:
            self.boot(host)
        await self._until(self._all_known, 30)
        await self._create_topic()
        for host in (*self.members, self.observer):
            self.boot(host)
        await self._until(self._together, 60)
        end_s = self.loop.time() + FAULTS_S
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.expovariate(1 / 2.0))
            self.strike()
        await asyncio.sleep(10.0)
        self.heal()
        before = dict(self.history.acknowledged)
        await self._until(self._together, HEALED_S)
        await self._until(
            lambda: all(self.history.acknowledged[one] > before[one] for one in before), HEALED_S
        )

    async def _create_topic(self) -> None:
        broker = self.running["broker1"]
        while TOPIC not in broker.cluster.topics:
            with contextlib.suppress(MetadataError, BrokerError):
                await broker.topics.create(TOPIC, PARTITIONS)

    def _all_known(self) -> bool:
        views = [broker.cluster.brokers for broker in self.running.values()]
        return len(views) == BROKERS and all(len(view) == BROKERS for view in views)

    def _together(self) -> bool:
        stable = self.history.stable
        return len(stable) == MEMBERS and len(set(stable.values())) == 1

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not done():  # noqa: ASYNC110  (virtual time)
                await asyncio.sleep(0.05)


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
