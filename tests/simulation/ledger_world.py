"""One schedule of the ledger layer: bookies, writers, recoverers and readers under faults.

A fault phase, in which the workload runs against the nemesis; then everything is healed and a
judge recovers every ledger within a bound and reads all of it. The oracle watches throughout.
The bookies and the ledger client are the production code, unmodified; who may know which ledger
ids exist is this file's out-of-band knowledge.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from client.errors import MetadataError
from client.metadata.bookkeeper import init_bookkeeper
from tests.simulation import swarm
from tests.simulation.bookie_hosts import BOOKIE_PORT, BookieHost, bookie_config
from tests.simulation.faults import Nemesis
from tests.simulation.hosts import Host, SimClock
from tests.simulation.ledger_clients import LedgerClients
from tests.simulation.loop import SimLoop, Stuck, Violation
from tests.simulation.net import SimNet
from tests.simulation.oracle import LedgerOracle
from tests.simulation.result import Result
from tests.simulation.store import SimMetadata
from tests.simulation.tripwires import armed
from tests.simulation.wiretap import BookieTap, ClientTap

if TYPE_CHECKING:
    from tests.simulation.hosts import Process
    from tests.simulation.swarm import LedgerSwarm
    from tests.simulation.transport import SimTransport
    from tests.simulation.volume import Volume

HEALED_PHASE_S = 60.0
"""How long the healed phase may take: L7 and the readability of everything."""


class LedgerWorld:
    """The cluster of one schedule; also what the nemesis acts on."""

    def __init__(self, options: LedgerSwarm, *, log: bool) -> None:
        self.options = options
        seed = options.seed
        self.loop = SimLoop(
            random.Random(f"{seed} loop"),
            step_cost_s=options.step_cost_s,
            hostile=options.hostile,
        )
        self.net = SimNet(self.loop, random.Random(f"{seed} net"), options.net)
        self.oracle = LedgerOracle(self.loop)
        if log:
            self.oracle.log = []
        ensemble_size, _, ack_quorum = options.quorums
        self.copies_to_spare = ack_quorum > 1 and options.bookies > ensemble_size
        self.bookies = [self.net.add_host(f"b{n}") for n in range(options.bookies)]
        self.clients: list[Host] = []
        self.healed = False
        """Whether the fault phase is over: the workload makes no new trouble."""
        config = bookie_config(options)
        self._machines = {host.name: BookieHost(self, host, config) for host in self.bookies}
        self.work = LedgerClients(self)
        for role, count in (
            ("writer", options.writers),
            ("recoverer", options.recoverers),
            ("reader", options.readers),
        ):
            for number in range(count):
                host = self.net.add_host(f"{role}{number}")
                self.clients.append(host)
                self.work.assign(host, role)
        self.net.on_accept = self._accepted
        self.store: SimMetadata

    def _accepted(self, end: SimTransport, connecting: Process) -> None:
        if end.local[1] == BOOKIE_PORT:
            machine = self._machines[end.host.name]
            tap = BookieTap(self.oracle, machine.bookie_id, connecting.name)
            end.tap, end.peer.tap = tap, ClientTap(tap)

    # ---------------------------------------------------------------- what the nemesis needs

    def boot(self, host: Host) -> None:
        """Start the program that belongs on a host."""
        machine = self._machines.get(host.name)
        main = self.work.main_of(host) if machine is None else machine.main()
        process = self.loop.start_process(host, lambda: main)
        self.net.bind(process)

    def volume(self, host: Host) -> Volume | None:
        """Return a host's disk."""
        machine = self._machines.get(host.name)
        return None if machine is None else machine.volume

    def power_lost(self, host: Host) -> None:
        """Let a host's disk lose what was not durable."""
        machine = self._machines.get(host.name)
        if machine is not None:
            machine.power_lost()

    def wipe(self, host: Host) -> None:
        """Replace a host's disk by an empty one."""
        self._machines[host.name].wipe()

    def damage_index(self, host: Host) -> None:
        """Make a host's index impossible to open."""
        self._machines[host.name].damage_index()

    def slow_down(self, host: Host, factor: float) -> None:
        """Make a host's disk slower by a factor."""
        self._machines[host.name].times.factor = factor

    def calm_disk(self, host: Host) -> None:
        """Make a host's disk normal and without heavy tails."""
        times = self._machines[host.name].times
        times.factor = 1.0
        times.options = replace(times.options, tail_p=0.0)

    def fork_rng(self, name: str) -> random.Random:
        """Return a generator of its own for one purpose."""
        return random.Random(f"{self.options.seed} {name}")

    # ---------------------------------------------------------------- the schedule

    async def drive(self) -> dict[str, int]:
        """Run the whole schedule; return how many faults of each class struck."""
        seed = self.options.seed
        clock = SimClock(self.loop, Host("nowhere", "0.0.0.0"))
        self.store = SimMetadata(
            self.net, random.Random(f"{seed} store"), self.options.store, clock
        )
        self.oracle.watch(self.store.cluster.tree)
        await self._init_store()
        for host in [*self.bookies, *self.clients]:
            self.boot(host)
        await asyncio.sleep(0.2)
        nemesis = Nemesis(self, self.fork_rng("nemesis"), self.options.faults)
        nemesis.lie_in_ambush(self.options.ambush_p)
        await nemesis.run(self.options.fault_phase_s, self.options.fault_every_s)
        self.healed = True
        nemesis.heal_all()
        await self._judge()
        return nemesis.counts

    async def _init_store(self) -> None:
        session = self.store.cluster.session()
        while True:
            try:
                await init_bookkeeper(session, rng=self.fork_rng("init"))
            except MetadataError:
                await asyncio.sleep(0.01)
            else:
                return

    async def _judge(self) -> None:
        """Recover and read everything, within the bound."""
        host = self.net.add_host("judge")
        done = self.loop.create_future()
        judged = self.work.judge(host, done)
        process = self.loop.start_process(host, lambda: judged)
        self.net.bind(process)
        try:
            async with asyncio.timeout(HEALED_PHASE_S):
                await done
        except TimeoutError:
            self.oracle.fail("L7", f"healed for {HEALED_PHASE_S} s, still: {self.work.doing}")


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one ledger schedule and return what it came to."""
    options = swarm.draw(seed)
    world = LedgerWorld(options, log=log)
    loop = world.loop
    faults: dict[str, int] = {}
    trouble = ""
    with armed(loop.time):
        try:
            faults = loop.run_until_complete(world.drive())
        except Stuck as stuck:
            loop.failure = loop.failure or Violation(f"L7 {stuck}")
        except Exception:
            trouble = traceback.format_exc()
            if loop.failure is None:
                loop.failure = Violation("HARNESS the schedule itself failed")
    failure = loop.failure
    if failure is not None and failure.__cause__ is not None:
        trouble = "".join(traceback.format_exception(failure.__cause__))
    result = Result(
        seed=seed,
        violation="" if failure is None else str(failure),
        detail="" if failure is None else f"{options.describe()}\n{trouble}",
        virtual_s=loop.time() - 1000,
        steps=loop.steps,
        segments=world.net.segments,
        digest=loop.digest,
        faults=faults,
        counts=world.oracle.counts,
        log=world.oracle.log,
    )
    loop.dispose()
    return result
