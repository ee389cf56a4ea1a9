"""Rolls an under-replicated partition once a new ledger would have more copies.

With fewer bookies than a topic asks for, a ledger is created with fewer copies, but never fewer
than the ack quorum (`ledgers.py`): writes go on, guarantees hold, and only the spare copies
are missing. The quorums of a ledger never change, so more copies need a new ledger. A partition is
rolled

- when the new ledger would have more copies, because bookies have joined;
- when a member of the active ledger's ensemble has been gone for a while and was not replaced. Auto
  recovery cannot replicate a ledger that is being written: in the end it closes the ledger, which
  fences us. A roll has the same effect without interrupting writes. A bookie that only restarts is
  waited for: what it misses meanwhile is replicated later (client/ledger/PROTOCOL.md, "Holes");
- when the active ledger is marked under-replicated and all its members are back. What they missed
  is replicated only after the ledger was closed; without a roll that is when the segment is full.

A partition that has no ledger, because too few bookies accepted entries when it was taken over, is
led for reads only. Once a ledger can be had, its leadership ends, and the takeover that follows
creates one.

Partitions are rolled a few at a time, to spare the metadata store, and none is waited for without
end (IN-TIME): a roll lasts for as long as a bookie that its ledger cannot do without takes. It goes
on by itself, and the partition is left alone until it is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, Protocol

from broker.errors import BrokerError
from broker.partition.ledgers import Ledgers
from client.errors import LedgerError, MetadataError
from client.ids import LedgerId
from client.node import background

_LOG = logging.getLogger(__name__)

_INTERVAL_S: Final = 5.0
"""Between two checks, which also retry failed rolls and cover newly opened partitions."""
_LOST_S: Final = 10.0
"""How long to wait for a lost member: a third of auto recovery's grace period for open ledgers."""
_AT_ONCE: Final = 4
"""Rolls that are waited for at a time."""
_ROLL_S: Final = 5.0
"""For how long."""


class LedgerReplication(Protocol):
    """Whether a roll would improve the replication of a partition's active ledger."""

    def would_shed(self, bookie_count: int) -> bool:
        """Whether the active ledger has a lost member that a new ledger would not have."""
        ...

    def would_grow(self, bookie_count: int) -> bool:
        """Whether a new ledger would have more copies, or be striped over more bookies."""
        ...

    def may_gain(self, bookie_count: int) -> bool:
        """Whether there is no active ledger, and may be enough bookies for one."""
        ...

    def would_repair(self, marked: Collection[LedgerId]) -> bool:
        """Whether the active ledger is among the marked ones, and all its members are available."""
        ...


class Rolling(Protocol):
    """Rolls a partition."""

    @property
    def is_rolling(self) -> bool:
        """Whether a roll is in progress."""
        ...

    async def roll(self, wait_s: float | None = ...) -> None:
        """Continue in a new ledger. Raises BrokerError; Overloaded after `wait_s`, and a roll that
        has begun goes on."""
        ...


class LedPartition(Protocol):
    """The part of a led partition that is needed here."""

    @property
    def name(self) -> str:
        """Topic and index."""
        ...

    @property
    def replication(self) -> LedgerReplication:
        """Replication of its active ledger."""
        ...

    @property
    def changes(self) -> Rolling:
        """Rolls it."""
        ...

    async def seek_ledger(self) -> None:
        """If a ledger can be had, begin anew with one. Raises LedgerError, MetadataError."""
        ...


class UnderReplicatedRoller:
    """A background task of every broker, for the partitions it leads."""

    def __init__(
        self,
        partitions: Iterable[LedPartition],
        ledgers: Ledgers,
        marked: Callable[[], Awaitable[Collection[LedgerId]]],
    ) -> None:
        """`marked`: returns the ledgers marked under-replicated; may raise MetadataError."""
        self._partitions = partitions
        self._ledgers = ledgers
        self._marked = marked
        self._changed = asyncio.Event()
        self._lost_since_s: dict[str, float] = {}
        """By name of the partition: since when its active ledger has a lost member."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._ledgers.on_bookies_changed(self._changed.set)
        self._task = background.keep(self._run, "under-replicated-roller")

    async def close(self) -> None:
        """Stop the task, even in the middle of a roll."""
        await background.stop(self._task)

    async def visit_all(self) -> None:
        """Roll every partition that needs it."""
        now_s = asyncio.get_running_loop().time()
        count = len(self._ledgers.writable_bookies)
        lost = [each.name for each in self._partitions if each.replication.would_shed(count)]
        self._lost_since_s = {name: self._lost_since_s.get(name, now_s) for name in lost}
        gaining = iter([each for each in self._partitions if each.replication.may_gain(count)])
        marked = await self._look_for_marks()
        wanted = (
            partition
            for partition in list(self._partitions)
            if not partition.changes.is_rolling
            and (
                (self._lost_since_s and self._is_lost_for_good(partition, now_s))
                or partition.replication.would_grow(count)
                or partition.replication.would_repair(marked)
            )
        )

        async def roll_some() -> None:
            for partition in gaining:
                await self._gain(partition)
            for partition in wanted:  # shared: whoever is free takes the next one
                await self._roll(partition)

        await asyncio.gather(*(roll_some() for _ in range(_AT_ONCE)))

    async def _roll(self, partition: LedPartition) -> None:
        try:
            await partition.changes.roll(_ROLL_S)
        except BrokerError as error:
            _LOG.warning("replication.roll_failed log=%s error=%r", partition.name, error)

    async def _gain(self, partition: LedPartition) -> None:
        try:
            async with asyncio.timeout(_ROLL_S):
                await partition.seek_ledger()
        except (LedgerError, MetadataError, TimeoutError) as error:
            _LOG.warning("replication.no_ledger log=%s error=%r", partition.name, error)

    def _is_lost_for_good(self, partition: LedPartition, now_s: float) -> bool:
        return now_s - self._lost_since_s.get(partition.name, now_s) >= _LOST_S

    async def _look_for_marks(self) -> Collection[LedgerId]:
        try:
            return frozenset(await self._marked())
        except MetadataError as error:
            _LOG.warning("replication.marks_unread error=%r", error)
            return ()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await self._changed.wait()
            except TimeoutError:
                pass  # check anyway
            self._changed.clear()
            await self.visit_all()
