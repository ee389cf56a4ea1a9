"""Whole brokers on the simulated loop, over the in-memory ledgers with real fencing, and what
breaks them: for schedules about what brokers do for the clients of groups.

Brokers are killed, stopped for longer than their metadata session, cut off from the store or from
clients; clients are killed and stopped; connections break. Who the clients are and what is asked of
them is for a subclass to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import traceback
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from broker.app import Broker
from broker.errors import BrokerError
from client.errors import MetadataError
from client.ids import BookieId, BrokerId
from client.metadata import paths
from tests.fakes.ledgers import FakeLedgers
from tests.simulation.machine.hosts import Host, SimClock
from tests.simulation.machine.loop import SimLoop, Stuck, Violation
from tests.simulation.machine.net import NetOptions, SimNet
from tests.simulation.machine.store import SimMetadata, StoreOptions
from tests.simulation.machine.tripwires import armed
from tests.simulation.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from broker.config import BrokerConfig
    from tests.simulation.machine.hosts import Process

BROKERS = 3
_RESTART_S = 1.0
_KNOWN_S = 30.0


class FrontWorld(ABC):
    """Three brokers, a store, hosts of clients, and what breaks them."""

    def __init__(
        self, seed: object, config: BrokerConfig, clients: Sequence[str], *, ledger_s: float = 0.02
    ) -> None:
        """`ledger_s`: mean time of an entry's way to its ledger, and of the answer's way back."""
        self.loop = SimLoop(random.Random(f"{seed} loop"))
        self.rng = random.Random(f"{seed} faults")
        self.net = SimNet(self.loop, random.Random(f"{seed} net"), NetOptions(split_p=0.1))
        self.brokers = [self.net.add_host(f"broker{number + 1}") for number in range(BROKERS)]
        self.members = [self.net.add_host(name) for name in clients]
        self.observer = self.net.add_host("observer")
        self.clock = SimClock(self.loop, self.members[0])
        options = StoreOptions(session_timeout_s=4.0)
        self.store = SimMetadata(self.net, random.Random(f"{seed} store"), options, self.clock)
        self.ledgers = FakeLedgers()
        delays = random.Random(f"{seed} ledgers")
        self.ledgers.arrival_s = lambda: delays.expovariate(1 / ledger_s)
        self.ledgers.answer_s = lambda: delays.expovariate(1 / ledger_s)
        self.ledgers.keep_unconfirmed = lambda ledger: delays.randrange(len(ledger.entries) + 1)
        self.running: dict[str, Broker] = {}
        self.faults: dict[str, int] = {}
        """How often each fault struck."""
        self.counts: dict[str, int] = {}
        """How often each thing happened that clients are told."""
        self.doing = "starting"
        """What the schedule waits for."""
        self._config = config

    # --- the schedule -------------------------------------------------------------------------

    @abstractmethod
    async def drive(self) -> None:
        """Run all of it. Raises Violation; TimeoutError: what `doing` says did not come about."""

    def play(self, seed: int, plan: str, *, late: str, log: Sequence[str] | None) -> Result:
        """Run the schedule, and return what it came to. `plan`: its options, for people; `late`:
        the rule that is broken if it does not end in time; `log`: what was noted meanwhile."""
        loop, trouble = self.loop, ""
        with armed(loop.time):
            try:
                loop.run_until_complete(self.drive())
            except Stuck as stuck:
                loop.failure = loop.failure or Violation(f"L7 {stuck}")
            except Violation as violation:
                loop.failure = loop.failure or violation
            except TimeoutError:
                loop.failure = loop.failure or Violation(f"{late}: {self.doing}")
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
            detail="" if failure is None else f"{plan}\n{self.doing}\n{trouble}",
            virtual_s=loop.time() - 1000,
            steps=loop.steps,
            digest=loop.digest,
            faults=self.faults,
            log=None if log is None else list(log),
            counts={**self.counts, "trace events": len(self.counts)},
        )
        loop.dispose()
        return result

    # --- processes ----------------------------------------------------------------------------

    @abstractmethod
    def client_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of the next process of a client's host."""

    @property
    def broker_names(self) -> list[str]:
        """The hosts of brokers, by name."""
        return [one.name for one in self.brokers]

    def boot(self, host: Host) -> None:
        """Start what runs on a host."""
        main = self._broker if host in self.brokers else self.client_of
        self.net.bind(self.loop.start_process(host, lambda: main(host)))
        self.net.release_held()
        self.store.links_changed()

    def config_of(self, host: Host) -> BrokerConfig:
        """Return the settings of the broker on a host."""
        number = BrokerId(self.brokers.index(host) + 1)
        return dataclasses.replace(self._config, node_id=number, advertised_host=host.name)

    async def _broker(self, host: Host) -> None:
        broker = Broker(
            self.config_of(host),
            store=self.store.session(),
            ledgers=self.ledgers.client(f"{host.name}.{host.starts}"),
            clock=SimClock(self.loop, host),
            rng=random.Random(f"{host.name} {host.starts}"),
        )
        self.running[host.name] = broker
        try:
            await broker.start()
        except MetadataError:  # the program ends, and its supervisor starts it again
            self.loop.kernel_at(self.loop.time() + _RESTART_S, lambda: self.start(host))
            return
        await asyncio.Event().wait()

    # --- faults -------------------------------------------------------------------------------

    def strike(self) -> None:
        """Break something, and plan its repair."""
        fault = self.rng.choice(self.fault_choices())
        name = getattr(fault, "__name__", "").strip("_").replace("_", " ")
        self.faults[name] = self.faults.get(name, 0) + 1
        fault()

    def fault_choices(self) -> Sequence[Callable[[], None]]:
        """Return what may break, as often as it should among the others."""
        return (self._kill, self._kill, self._stop, self._cut_from_store, self._cut_link,
                self._reset)  # fmt: skip

    def later(self, seconds: float, repair: Callable[[], None]) -> None:
        """Do something later, whichever processes live by then."""
        self.loop.kernel_at(self.loop.time() + seconds, repair)

    def _kill(self) -> None:
        self.kill(self.rng.choice([*self.brokers, *self.brokers, *self.members]))

    def kill(self, host: Host) -> None:
        """Kill what runs on a host; it starts again soon."""
        if host.process is not None and host.process.alive:
            self.loop.kill(host.process)
            self.later(self.rng.uniform(0.2, 8.0), lambda: self.start(host))

    def start(self, host: Host) -> None:
        """Start what runs on a host, unless it does."""
        if not host.running:
            self.boot(host)

    def _stop(self) -> None:
        process = self.rng.choice([*self.brokers, *self.members]).process
        if process is not None and process.alive and not process.paused:
            self.loop.pause(process)
            self.store.paused(process)
            self.later(self.rng.uniform(0.5, 15.0), lambda: self._continue(process))

    def _continue(self, process: Process) -> None:
        if process.alive and process.paused:
            self.store.resuming(process)
            self.loop.resume(process)
            self.store.links_changed()

    def _cut(self, one: Host, other: Host) -> None:
        for source, target in ((one, other), (other, one)):
            self.net.cut(source, target)
        self.store.links_changed()
        self.later(self.rng.uniform(0.5, 8.0), lambda: self._mend(one, other))

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
            self.start(host)
        self.net.heal_all()
        self.net.calm_down()
        self.store.calm_down()
        self.store.links_changed()

    # --- a schedule ---------------------------------------------------------------------------

    async def start_brokers(self) -> None:
        """Start the store and all brokers, and wait until they know of each other."""
        admin = self.store.cluster.session()
        for number in range(3):
            await admin.create(paths.cookie(BookieId(f"b{number}")), make_parents=True)
        self.store.options = dataclasses.replace(self.store.options, lose_reply_p=0.02)
        for host in self.brokers:
            self.boot(host)
        await self.until(self._all_known, _KNOWN_S)

    async def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, through the first broker."""
        broker = self.running[self.brokers[0].name]
        while name not in broker.cluster.topics:
            with contextlib.suppress(MetadataError, BrokerError):
                await broker.topics.create(name, partitions, config=config)

    def _all_known(self) -> bool:
        views = [broker.cluster.brokers for broker in self.running.values()]
        return len(views) == BROKERS and all(len(view) == BROKERS for view in views)

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Wait until something is so. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not done():  # noqa: ASYNC110  (virtual time)
                await asyncio.sleep(0.05)
