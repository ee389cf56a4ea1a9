"""Readers of transaction schedules: of a partition's committed data, and of groups' stable offsets.

What they are shown goes into the judge's book at once (X1, X4, X5, X9).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.errors import BrokerError
from broker.groups.core.group_types import Commit, OffsetToCommit
from client.errors import LedgerError, LogCorrupt, MetadataError
from client.ids import Offset
from tests.simulation.kafka.connection import Aborted
from tests.simulation.kafka.connection import Fetched as Answer
from tests.simulation.kafka.transaction_readers import filtered
from tests.simulation.transactions.actors import Writer
from tests.simulation.transactions.book import offset_rows
from tests.simulation.transactions.plan import TOPIC

if TYPE_CHECKING:
    from tests.simulation.transactions.book import OffsetKey
    from tests.simulation.transactions.nodes import Node, Place
    from tests.simulation.transactions.world import TransactionWorld

_OFFSETS: Place = (OFFSETS_TOPIC, 0)
_STRANGER_P = 0.1
_TROUBLE = (BrokerError, LedgerError, MetadataError, LogCorrupt)


class CommittedReader:
    """A reader of one partition's committed data."""

    def __init__(self, world: TransactionWorld, place: Place, name: str) -> None:
        self._world = world
        self._place = place
        self._name = name
        self._rng = world.fork_rng(f"reader {name} {place}")
        self._stable = -1
        self.position = 0
        self.shown: list[tuple[int, bytes]] = []

    async def follow(self) -> None:
        """Read until the world is healed, now and then from the start."""
        while not self._world.is_healed:
            if self._rng.random() < 0.1:
                self.position = 0
            with contextlib.suppress(_TROUBLE):
                await self._fetch()
            await asyncio.sleep(0.05 * self._rng.random())

    async def read_everything(self) -> None:
        """Read from the start, until all that is there is stable and was read."""
        while True:
            found = self._world.leader(self._place)
            log = self._world.book.log(*self._place)
            self._world.doing = f"{self._place}: open is {log.open_transactions()}"
            if found is not None:
                partition = found[1]
                end, stable = partition.log_end_offset, partition.last_stable_offset
                if self.position >= end == stable:
                    return
                try:
                    await self._fetch()
                except _TROUBLE as error:
                    self._world.doing = f"reading {self._place}: {error!r}"
            await asyncio.sleep(0.01)

    async def _fetch(self) -> None:
        """Fetch once, of the leader. Raises what brokers raise."""
        found = self._world.leader(self._place)
        if found is None:
            return
        _, partition = found
        if self._rng.random() < 0.5:
            partition.reader.tail.clear()
        before = partition.last_stable_offset
        if self.position >= before:
            self._look(partition.last_stable_offset, partition.high_watermark)
            return
        got = await partition.reader.read(
            Offset(self.position),
            self._rng.choice((1, 200, 1 << 16)),
            at_least_one=True,
            read_committed=True,
        )
        stable = partition.last_stable_offset
        self._look(stable, partition.high_watermark)
        data = b"".join(bytes(part) for part in got.buffers)
        aborted = [Aborted(one.producer_id, one.first_offset) for one in got.aborted]
        answer = Answer(0, partition.high_watermark, stable, 0, aborted, data, -1)
        log = self._world.book.log(*self._place)
        for batch, is_shown in filtered(answer, self.position):
            if batch.next_offset > stable:
                self._world.fail("X4", f"{self._name} got {batch.base_offset}, {stable} is stable")
            self._world.book.read(log, self._name, batch, is_shown=is_shown)
            if is_shown:
                self.shown += [row for row in batch.values() if row[0] >= self.position]
        self.position = got.next_offset

    def _look(self, stable: int, high: int) -> None:
        self._world.book.stable(self._world.book.log(*self._place), self._name, stable, high)
        if stable < self._stable:
            self._world.fail("X4", f"{self._name} saw {self._stable} stable, then {stable}")
        self._stable = stable


class OffsetWatcher:
    """Asks for the stable offsets of groups, again and again, and commits some by itself.

    Now and then it reads the log of offsets, as tools do that watch the lag of groups.
    """

    def __init__(self, world: TransactionWorld) -> None:
        self._world = world
        self._rng = world.fork_rng("offset watcher")
        self._last = 1_000_000

    async def watch(self) -> None:
        """Ask until the world is healed."""
        world, rng = self._world, self._rng
        while not world.is_healed:
            await asyncio.sleep(0.04 * rng.random())
            found = world.leader(_OFFSETS)
            if found is None:
                continue
            group = f"of {Writer.name_of(rng.randrange(world.plan.writers))}"
            key = group, TOPIC, 0
            if rng.random() < _STRANGER_P:
                with contextlib.suppress(*_TROUBLE):
                    await read_offsets(world)
                continue
            if rng.random() < world.plan.plain_p:
                await self._commit(found[0], group)
                continue
            asked = world.book.asking(key)
            try:
                got = found[0].fetch_offset(*key)
            except BrokerError:
                continue
            if got.is_stable:
                world.book.fetched_offset(key, asked, got.offset, is_of_leader=True)
                world.count("stable offsets")
            else:
                world.count("unstable offsets")

    async def _commit(self, node: Node, group: str) -> None:
        """Commit an offset without a transaction."""
        self._last += 1
        rows = [OffsetToCommit(TOPIC, 0, self._last, -1, "")]
        self._world.count("plain commits")
        with contextlib.suppress(BrokerError, TimeoutError):
            async with asyncio.timeout(1.0):
                await node.groups().commit(Commit(group, "", None, -1), rows)


async def read_offsets(world: TransactionWorld) -> None:
    """X9: read the log of offsets from its beginning up to where it is stable, record by record, as
    a consumer does that knows nothing of copies. Raises what brokers raise."""
    found = world.leader(_OFFSETS)
    if found is None:
        return
    partition = found[1]
    position, end = partition.log_start_offset, partition.last_stable_offset
    told: dict[OffsetKey, int] = {}
    while position < end:
        got = await partition.reader.read(position, 1 << 16, at_least_one=True, read_committed=True)
        aborted = [Aborted(one.producer_id, one.first_offset) for one in got.aborted]
        data = b"".join(bytes(part) for part in got.buffers)
        answer = Answer(0, partition.high_watermark, end, 0, aborted, data, -1)
        for batch, is_shown in filtered(answer, position):
            if is_shown and batch.base_offset < end:
                told.update((row.key, row.offset) for row in offset_rows(batch))
        position = got.next_offset
    world.count("logs of offsets read")
    world.book.told_by_the_log(told, end)
