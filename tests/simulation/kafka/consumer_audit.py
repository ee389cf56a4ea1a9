"""Compares what a coordinator knows of a consumer group with what another one would read (H5)."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

from broker.coordinator.coordinator_log import CoordinatorLog
from broker.coordinator.runtime import Phase
from broker.groups.core.consumer_group import ConsumerGroup
from client.errors import QuireError
from tests.simulation.machine.loop import Violation

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from broker.app import Broker
    from broker.groups.coordinator import Coordinator
    from broker.groups.core.group_shard import GroupShard
    from tests.simulation.machine.hosts import Host
    from tests.simulation.machine.loop import SimLoop

_EVERY_S = 1.0
_READ_S = 2.0


class ConsumerAudit:
    """Looks at the coordinators of one group, wherever they are."""

    def __init__(
        self,
        loop: SimLoop,
        group_id: str,
        brokers: Callable[[], Iterable[tuple[Host, Broker]]],
        count: Callable[[str], None],
    ) -> None:
        """`brokers`: those that run at present, or ran last on their hosts."""
        self._loop = loop
        self._group_id = group_id
        self._brokers = brokers
        self._count = count

    def coordinators(self) -> list[tuple[Host, Coordinator]]:
        """Return those that serve."""
        found = []
        for host, broker in self._brokers():
            process = host.process
            if process is not None and process.alive and not process.paused:
                for one in broker.groups.coordinators():
                    if one.phase is Phase.ACTIVE and one.partition.is_open:
                        found.append((host, one))
        return found

    async def run(self, rng: random.Random) -> None:
        """Look now and then, for ever."""
        while True:
            await asyncio.sleep(2 * _EVERY_S * rng.random())
            for host, one in self.coordinators():
                self._check(one._shard)
                assert host.process is not None
                host.process.context.run(self._loop.create_task, self._compare(one))

    def _fail(self, text: str) -> None:
        self._loop.fail(Violation(f"H5: {text}"))

    def _check(self, shard: GroupShard) -> None:
        """The invariants of what a coordinator holds; and no pattern that nobody has."""
        try:
            shard.view.check()
        except AssertionError as error:
            self._fail(str(error) or traceback.format_exc())
        group = shard._table.get(self._group_id)
        if isinstance(group, ConsumerGroup):
            wanted = {one.pattern for one in group.durable.members.values()}
            if left := sorted(group.durable.matches.keys() - wanted):
                self._fail(f"nobody has the patterns {left}")

    async def _compare(self, coordinator: Coordinator) -> None:
        """Read the log as another coordinator would, unless it goes on meanwhile."""
        shard, log = coordinator._shard, coordinator._log
        fresh, applied = coordinator._new_shard(), log.applied_offset
        reader = CoordinatorLog(coordinator.partition, lambda error: None)
        try:
            async with asyncio.timeout(_READ_S):
                async for found in reader.read():
                    for item in found:
                        fresh.replay(item)
        except (QuireError, TimeoutError):
            return
        is_same = coordinator._shard is shard and log.applied_offset == applied == log.sent_offset
        if not is_same or reader.applied_offset != applied:
            return
        self._count("logs compared")
        mine, theirs = self._facts(shard), self._facts(fresh)
        if mine != theirs:
            self._fail(
                f"only the writer knows {sorted(mine - theirs)},"
                f" only the log {sorted(theirs - mine)}"
            )

    def _facts(self, shard: GroupShard) -> set[str]:
        """Return what is durable of the group, as texts."""
        group = shard._table.get(self._group_id)
        offsets = {repr(one) for one in shard.view.committed(self._group_id)}
        if isinstance(group, ConsumerGroup):
            return offsets | set(map(repr, group.durable.entries(self._group_id)))
        return offsets
