"""What every simulated cluster is made of: loop, network, store, bookies, and one schedule's run.

A fault phase, in which the workload runs against the nemesis; then everything is healed and a
judge sees to it that all is well within a bound. The oracle watches throughout. What runs beside
the bookies is the business of `ledgers/world.py` and `clusters/world.py`.
"""

from __future__ import annotations

import abc
import asyncio
import random
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from client.errors import MetadataError
from client.ids import LedgerId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from tests.simulation.bookies.bookie_hosts import BOOKIE_PORT, BookieHost, bookie_config
from tests.simulation.bookies.brim import fill_at_recovery_adds
from tests.simulation.bookies.inspection import Inspection
from tests.simulation.bookies.self_checks import checking
from tests.simulation.bookies.wiretap import BookieTap, ClientTap
from tests.simulation.machine.hosts import Host, SimClock
from tests.simulation.machine.loop import SimLoop, Stuck, Violation
from tests.simulation.machine.net import SimNet
from tests.simulation.machine.store import SimMetadata
from tests.simulation.machine.tripwires import armed
from tests.simulation.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from client.metadata.memory import MemoryStore
    from client.metadata.store import MetadataStore
    from tests.simulation.bookies.faults import Nemesis
    from tests.simulation.bookies.swarm import LedgerSwarm
    from tests.simulation.ledgers.oracle import LedgerOracle
    from tests.simulation.machine.hosts import Process
    from tests.simulation.machine.index import LevelStore
    from tests.simulation.machine.transport import SimTransport
    from tests.simulation.machine.volume import Volume


_INDEX_S_MAX = 0.01
"""Longest a healed disk may take to write the index: slower than clients wait is a fault."""


_OF_COLLECTION = b' gc"\n'
"""How locks of garbage collection end: it holds none for long."""


class Described(Protocol):
    """Options that can be printed."""

    def describe(self) -> str:
        """Return the options, one per line."""
        ...


class Machines(abc.ABC):
    """The cluster of one schedule; also what the nemesis acts on."""

    healed_phase_s = 60.0
    """How long the healed phase may take: everything recovers, is readable, and goes on."""

    def __init__(
        self,
        options: LedgerSwarm,
        make_oracle: Callable[[SimLoop], LedgerOracle],
        *,
        log: bool,
    ) -> None:
        self.options = options
        seed = options.seed
        self.loop = SimLoop(
            random.Random(f"{seed} loop"),
            step_cost_s=options.step_cost_s,
            hostile=options.hostile,
        )
        self.net = SimNet(self.loop, random.Random(f"{seed} net"), options.net)
        self.oracle = make_oracle(self.loop)
        if log:
            self.oracle.log = []
        self.oracle.share.group_bytes_max = options.bookie.group_bytes_max
        self.oracle.share.directories = options.bookie.directories
        ensemble_size, _, ack_quorum = options.quorums
        self.copies_to_spare = ack_quorum > 1 and options.bookies > ensemble_size
        self.bookies = [self.net.add_host(f"b{n}") for n in range(options.bookies)]
        self.clients: list[Host] = []
        """Every other host that faults may strike."""
        self.healed_at_s = 0.0
        self.healed = False
        """Whether the fault phase is over: the workload makes no new trouble."""
        config = bookie_config(options)
        self._machines = {host.name: BookieHost(self, host, config) for host in self.bookies}
        self.net.on_accept = self._accepted
        self.store: SimMetadata
        self.admin: MemoryStore
        """A session that no fault reaches."""
        self.doing = "nothing"
        """What the judge is at."""

    def _accepted(self, end: SimTransport, connecting: Process) -> None:
        if end.local[1] == BOOKIE_PORT:
            machine = self._machines[end.host.name]
            tap = BookieTap(self.oracle, machine.bookie_id, connecting.name)
            end.tap, end.peer.tap = tap, ClientTap(tap)

    # ---------------------------------------------------------------- what a cluster adds

    @abc.abstractmethod
    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of the next process of a host that is no bookie."""
        ...

    def beside_bookie(self, host: Host, store: MetadataStore) -> Coroutine[Any, Any, None] | None:
        """Return what else runs in a bookie's process once it serves."""
        del host, store
        return None

    @abc.abstractmethod
    def make_nemesis(self) -> Nemesis:
        """Return what makes the faults."""
        ...

    @abc.abstractmethod
    def judge(self, host: Host, done: asyncio.Future[None]) -> Coroutine[Any, Any, None]:
        """Return the judge's main; it fulfils `done` when all is well."""
        ...

    @abc.abstractmethod
    def wind_down(self) -> None:
        """The fault phase is over: let the workload come to its end."""
        ...

    # ---------------------------------------------------------------- what the nemesis needs

    def boot(self, host: Host) -> None:
        """Start the program that belongs on a host."""
        machine = self._machines.get(host.name)
        main = self.main_of(host) if machine is None else machine.main()
        process = self.loop.start_process(host, lambda: main)
        self.net.bind(process)

    def restart_later(self, host: Host, delay_s: float) -> None:
        """The supervisor of a machine, which is not part of the process that ends."""

        def restart() -> None:
            if host.powered and not host.running:
                self.boot(host)

        self.loop.kernel_at(self.loop.time() + delay_s, restart)

    def volume(self, host: Host) -> Volume | None:
        """Return a host's disk."""
        machine = self._machines.get(host.name)
        return None if machine is None else machine.volume

    def bookie_id(self, host: Host) -> str:
        """Return the name of the bookie on a host."""
        return self._machines[host.name].bookie_id

    def is_up(self, host: Host) -> bool:
        """Return whether the bookie on a host serves."""
        return self._machines[host.name].is_up

    def power_lost(self, host: Host) -> None:
        """Let a host's disk lose what was not durable."""
        machine = self._machines.get(host.name)
        if machine is not None:
            machine.power_lost()

    def wipe(self, host: Host) -> None:
        """Replace a host's disk by an empty one."""
        self._machines[host.name].wipe()

    def index(self, host: Host) -> LevelStore | None:
        """Return a host's index, None if it has no disk."""
        machine = self._machines.get(host.name)
        return None if machine is None else machine.index

    def slow_down(self, host: Host, factor: float) -> None:
        """Make a host's disk slower by a factor."""
        self._machines[host.name].times.factor = factor

    def calm_disk(self, host: Host) -> None:
        """Make a host's disk normal: no heavy tails, an index that clients can wait for."""
        times = self._machines[host.name].times
        times.factor = 1.0
        index_s = min(times.options.index_s, _INDEX_S_MAX)
        times.options = replace(times.options, tail_p=0.0, index_s=index_s)

    def set_read_only(self, host: Host, *, read_only: bool) -> None:
        """Let an operator turn a bookie read-only, or take it back."""
        self._machines[host.name].set_read_only(read_only=read_only)

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
        self.store.on_event = self.oracle.count
        self.oracle.watch(self.store.cluster.tree)
        await self._init_store()
        for host in self.bookies:
            self.boot(host)
        await self._until_registered()
        for host in self.clients:
            if not host.running:
                self.boot(host)
        await self.until_ready()
        nemesis = self.make_nemesis()
        nemesis.lie_in_ambush(self.options.ambush_p)
        nemesis.sow_doubt(self.options.doubt_p)
        fill_at_recovery_adds(self, self.fork_rng("brim"), self.options.fill_p)
        await nemesis.run(self.options.fault_phase_s, self.options.fault_every_s)
        self.healed = True
        self.wind_down()
        self.healed_at_s = self.loop.time()
        nemesis.heal_all()
        for wait_s in (0.0, 1.0, 4.0):
            self.loop.kernel_at(self.loop.time() + wait_s, self._operate)
        await self._judge()
        return nemesis.counts

    def _operate(self) -> None:
        """Do what an operator does for healthy machines: restart bookies with a dead directory."""
        for host in self.bookies:
            if host.running and self._machines[host.name].has_failed_directory:
                assert host.process is not None
                self.loop.kill(host.process)
                self.restart_later(host, 0.1)

    async def until_ready(self) -> None:
        """Wait until faults may begin."""
        await asyncio.sleep(0.02)

    async def _until_registered(self) -> None:
        """Wait for the bookies, so that short schedules are not over before they begin."""
        tree = self.store.cluster.tree
        for _ in range(120):
            names = tree.children(paths.available())
            if len(names) > len(self.bookies):  # "readonly" is one of them
                return
            await asyncio.sleep(0.025)

    async def _init_store(self) -> None:
        self.admin = self.store.cluster.session()
        while True:
            try:
                await init_bookkeeper(self.admin, rng=self.fork_rng("init"))
            except MetadataError:
                await asyncio.sleep(0.01)
            else:
                return

    async def _judge(self) -> None:
        """See that all is well, within the bound."""
        try:
            async with asyncio.timeout(self.healed_phase_s):
                await self._run_aside("judge", self.judge)
                await self._until_unlocked()
                if self.options.inspected:
                    self.doing = "inspecting the bookies"
                    await self._run_aside("inspector", self._inspect)
        except TimeoutError:
            self.late(f"healed for {self.healed_phase_s} s, still: {self.doing}")

    async def _until_unlocked(self) -> None:
        """Wait for a moment in which no lock is left over: its ledger could not be repaired, ever.

        Auto recovery keeps the lock of a ledger that is still marked, between its attempts.
        """
        tree, directory = self.store.cluster.tree, paths.replication_locks()
        while True:
            left = [
                name
                for name in (tree.children(directory) if tree.find(directory) else ())
                if tree.get(f"{directory}/{name}").data.endswith(_OF_COLLECTION)
                or tree.find(paths.under_replicated_ledger(LedgerId(int(name[3:])))) is None
            ]
            if not left:
                return
            self.doing = f"waiting for the locks {', '.join(left)}"
            await asyncio.sleep(0.05)

    async def _run_aside(
        self, name: str, main: Callable[[Host, asyncio.Future[None]], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a program on a machine of its own until it says that it is done."""
        host, done = self.net.add_host(name), self.loop.create_future()
        running = main(host, done)
        process = self.loop.start_process(host, lambda: running)
        self.net.bind(process)
        await done

    async def _inspect(self, host: Host, done: asyncio.Future[None]) -> None:
        del host
        await Inspection(self, self.store.session()).run()
        done.set_result(None)

    def late(self, text: str) -> None:
        """The bound of the healed phase is over."""
        self.oracle.fail("L7", text)


def run(world: Machines, options: Described) -> Result:
    """Run a world's schedule and return what it came to."""
    loop = world.loop
    faults: dict[str, int] = {}
    trouble = ""
    with armed(loop.time), checking(world.options.self_checks):
        try:
            faults = loop.run_until_complete(world.drive())
        except Stuck as stuck:
            loop.failure = loop.failure or Violation(f"L7 {stuck}")
        except Exception:
            trouble = traceback.format_exc()
            if loop.failure is None:
                loop.failure = Violation("HARNESS the schedule itself failed")
    world.oracle.counts["trace events"] = world.oracle.trace.events
    failure = loop.failure
    if failure is not None and failure.__cause__ is not None:
        trouble = "".join(traceback.format_exception(failure.__cause__))
    result = Result(
        seed=world.options.seed,
        violation="" if failure is None else str(failure),
        detail="" if failure is None else f"{options.describe()}\n{trouble}",
        virtual_s=loop.time() - 1000,
        healed_s=loop.time() - world.healed_at_s if world.healed else 0.0,
        steps=loop.steps,
        segments=world.net.segments,
        digest=loop.digest,
        faults=faults,
        counts=world.oracle.counts,
        log=world.oracle.log,
    )
    loop.dispose()
    return result
