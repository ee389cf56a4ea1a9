"""One schedule of the ledger layer: bookies, writers, recoverers and readers under faults.

The bookies and the ledger client are the production code, unmodified; who may know which ledger
ids exist is this file's out-of-band knowledge.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.bookies import machines, swarm
from tests.simulation.bookies.faults import Nemesis
from tests.simulation.bookies.machines import Machines
from tests.simulation.ledgers.clients import LedgerClients
from tests.simulation.ledgers.oracle import LedgerOracle

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tests.simulation.bookies.swarm import LedgerSwarm
    from tests.simulation.machine.hosts import Host
    from tests.simulation.result import Result

_WAITS_P = 0.95
_WAIT_S = 0.02
_WAITS_MAX = 50


class LedgerWorld(Machines):
    """The cluster of one ledger schedule."""

    def __init__(self, options: LedgerSwarm, *, log: bool) -> None:
        super().__init__(options, LedgerOracle, log=log)
        self.looks_per_s = options.looks / options.fault_phase_s
        """How often a recoverer or reader takes up a ledger."""
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

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a client host's next process."""
        return self.work.main_of(host)

    def make_nemesis(self) -> Nemesis:
        """Return what makes the faults."""
        return Nemesis(self, self.fork_rng("nemesis"), self.options.faults)

    async def until_ready(self) -> None:
        """Wait for a ledger in most races, which are short: they could be over before there is one.

        In the others its creation is under fire, too.
        """
        await super().until_ready()
        if self.options.kind == "race" and self.fork_rng("ready").random() < _WAITS_P:
            for _ in range(_WAITS_MAX):
                if self.work.known:
                    break
                await asyncio.sleep(_WAIT_S)

    def wind_down(self) -> None:
        """Let writers come to their end."""
        self.work.wind_down()

    def judge(self, host: Host, done: asyncio.Future[None]) -> Coroutine[Any, Any, None]:
        """Recover and read everything."""
        return self.work.judge(host, done)


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one ledger schedule and return what it came to."""
    options = swarm.draw(seed)
    return machines.run(LedgerWorld(options, log=log), options)
