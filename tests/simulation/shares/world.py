"""One schedule of share groups (KIP-932): whole brokers, and members that come, go and die.

Brokers are those of `kafka/front_world.py`, over scripted ledgers. Beside its faults members leave
for a while. `kafka/share_book.py` judges what members are given and told, and `ShareClients.judge`
sees that everything is settled when all is healed (S8).
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from broker.cluster.core.features import SHARE_VERSION
from broker.compaction.config import CompactionConfig
from broker.transactions.config import TransactionSettings
from tests.simulation.clusters.settings import VariedConfig
from tests.simulation.kafka.connection import PORT
from tests.simulation.kafka.front_world import FrontWorld
from tests.simulation.kafka.share_clients import SHARED, ShareClients
from tests.simulation.result import Result
from tests.simulation.shares.plan import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from broker.config import BrokerConfig
    from tests.simulation.machine.hosts import Host
    from tests.simulation.shares.plan import SharePlan

FAULTS = ("kill", "stop", "cut from store", "cut link", "reset", "leave")
_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
    "message.timestamp.after.max.ms": str(1 << 50),
}
_HEALED_S = 60.0
_READY_S = 30.0
_SESSION_S = 4.0
_SWEEP_S = 0.3


class ShareWorld(FrontWorld):
    """Everything of one schedule."""

    def __init__(self, plan: SharePlan, *, log: bool) -> None:
        config = VariedConfig(
            snapshot_interval_bytes=plan.snapshot_bytes,
            admin_port=-1,
            listen_host="0.0.0.0",
            port=PORT,
            offsets_topic_partitions=1,
            session_timeout_ms=int(_SESSION_S * 1000),
            transactions=TransactionSettings(
                enabled=True, topic_partitions=1, timeout_interval_ms=int(_SWEEP_S * 1000)
            ),
            compaction=CompactionConfig(check_interval_ms=200, grace_ms=300, in_child=False),
            **plan.load.settings(),
        )
        self.plan = plan
        self.healed = False
        self.log: list[str] | None = [] if log else None
        self.shares: ShareClients
        names = [f"share{number}" for number in range(plan.load.members * plan.load.groups)]
        super().__init__(f"shares {plan.seed}", config, names, ledger_s=plan.ledger_s)
        self.feeder = self.net.add_host("feeder")
        self.shares = ShareClients(
            self,
            plan.load,
            self.running.get,
            self.count,
            self.note,
            self._say,
            broker_session_s=_SESSION_S,
        )
        for host in self.members:
            self.shares.assign(host)
        self.shares.watch(self.store.cluster.tree)

    def count(self, name: str) -> None:
        """Count an event."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def note(self, text: str) -> None:
        """Write a line of the schedule's log."""
        if self.log is not None:
            self.log.append(f"{self.loop.time() - 1000:.4f} {text}")

    # --- what share groups need ---------------------------------------------------------------

    def fork_rng(self, name: str) -> random.Random:
        """Return a generator of its own for one purpose."""
        return random.Random(f"shares {self.plan.seed} {name}")

    def _say(self, text: str) -> None:
        self.doing = text

    # --- processes ----------------------------------------------------------------------------

    def client_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of the next process of a client's host."""
        return self._judge() if host is self.observer else self.shares.main_of(host)

    async def _judge(self) -> None:
        await self.shares.judge()
        self._judged.set_result(None)

    def config_of(self, host: Host) -> BrokerConfig:
        """Return the settings of the broker on a host: windows may be smaller than can be set."""
        config = super().config_of(host)
        object.__setattr__(
            config, "group_share_partition_max_record_locks", self.plan.load.window_max
        )
        return config

    # --- faults -------------------------------------------------------------------------------

    def fault_choices(self) -> Sequence[Callable[[], None]]:
        """Return the faults of brokers and members, and what members do."""
        return (*super().fault_choices(), *([self._leave] * self.plan.leave_weight))

    def strike(self) -> None:
        """Break something, and plan its repair."""
        super().strike()
        self.note(f"faults {self.faults}")

    def _leave(self) -> None:
        self.shares.leave(self.rng.choice(self.members))

    # --- a schedule ---------------------------------------------------------------------------

    async def drive(self) -> None:
        """Run the schedule."""
        plan, shares = self.plan, self.shares
        await self.start_brokers()
        config = {
            "segment.bytes": str(plan.segment_bytes),
            **(_COMPACTED if plan.load.keys else {}),
        }
        await self.create_topic(SHARED, plan.load.partitions, config)
        await self.until(self._may_share, _READY_S)
        for host in (*self.members, self.feeder):
            self.boot(host)
        audit = self.loop.create_task(shares.begin())
        await self.until(lambda: bool(self.counts.get("records settled")), _READY_S)
        end_s = self.loop.time() + plan.fault_s
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.expovariate(1 / (plan.fault_every_s or 1.0)))
            if plan.fault_every_s:
                self.strike()
        self.heal()
        self.healed = True
        self.note("healed")
        judged = self._judged = self.loop.create_future()
        self.boot(self.observer)
        await asyncio.wait_for(judged, _HEALED_S)
        audit.cancel()

    def _may_share(self) -> bool:
        levels = [one.services.features.finalized.levels for one in self.running.values()]
        return all(level.get(SHARE_VERSION) for level in levels)


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one schedule and return what it came to."""
    plan = draw(seed)
    world = ShareWorld(plan, log=log)
    return world.play(seed, plan.describe(), late="S8", log=world.log)
