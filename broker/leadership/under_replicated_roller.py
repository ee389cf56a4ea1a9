"""Rolls under-replicated partitions to a new ledger once that gives them more copies.

With fewer bookies than a topic asks for, a ledger is created with fewer copies, never fewer than
the ack quorum (`ledger_creation.py`): writes go on, guarantees hold, and only the spare copies are
missing. A ledger keeps its quorums for life, so more copies need a new ledger. A partition is
rolled

- when that would have more copies: bookies have appeared;
- when a member of the present one has been gone for a while and nobody has replaced it. Auto
  recovery cannot replicate a ledger that is being written, and closes it in the end, which fences
  us; a roll does the same without stopping anybody. A bookie that only restarts is waited for: what
  it misses meanwhile is replicated later (client/ledger/PROTOCOL.md, "Holes");
- when it is marked as lacking copies and all of its members are there again. What they missed of
  a ledger that is being written is made up for only after its end: without a roll that would
  be when the segment is full.

One partition is rolled after the other, so that the metadata store does not feel it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, Protocol

from broker.errors import BrokerError
from broker.partition.ledgers import Ledgers
from client.errors import MetadataError
from client.ids import LedgerId
from client.node import background

_LOG = logging.getLogger(__name__)

_INTERVAL_S: Final = 5.0
"""How often to look, for rolls that failed and for partitions opened meanwhile."""
_LOST_S: Final = 10.0
"""How long a lost member is waited for; a third of auto recovery's patience with open ledgers."""


class LedgerReplication(Protocol):
    """What is asked about the ledger that a partition is writing."""

    def would_shed(self, bookie_count: int) -> bool:
        """Whether the active ledger has a member that is gone, and a new one would do without."""
        ...

    def would_grow(self, bookie_count: int) -> bool:
        """Whether a new ledger would have more copies, or be striped over more bookies."""
        ...

    def would_repair(self, marked: Collection[LedgerId]) -> bool:
        """Whether the active ledger is among the marked ones, and all its members are there."""
        ...


class Rolling(Protocol):
    """What is done to a partition here."""

    async def roll(self) -> None:
        """Continue in a new ledger. Raises BrokerError."""
        ...


class LedPartition(Protocol):
    """The part of a led partition that is asked and rolled here."""

    @property
    def name(self) -> str:
        """Topic and index."""
        ...

    @property
    def replication(self) -> LedgerReplication:
        """Whom to ask about its active ledger."""
        ...

    @property
    def changes(self) -> Rolling:
        """Who rolls it."""
        ...


class UnderReplicatedRoller:
    """A background task of every broker, for the partitions it leads."""

    def __init__(
        self,
        partitions: Iterable[LedPartition],
        ledgers: Ledgers,
        marked: Callable[[], Awaitable[Collection[LedgerId]]],
    ) -> None:
        """`marked`: which ledgers are known to lack copies; may raise MetadataError."""
        self._partitions = partitions
        self._ledgers = ledgers
        self._marked = marked
        self._changed = asyncio.Event()
        self._lost_since_s: dict[str, float] = {}
        """Partitions with a lost member, by name."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._ledgers.on_bookies_changed(self._changed.set)
        self._task = background.keep(self._run, "under-replicated-roller")

    async def close(self) -> None:
        """Stop, in the middle of a roll if need be."""
        await background.stop(self._task)

    async def visit_all(self) -> None:
        """Roll every partition that needs it."""
        now_s = asyncio.get_running_loop().time()
        count = len(self._ledgers.writable_bookies)
        lost = [each.name for each in self._partitions if each.replication.would_shed(count)]
        self._lost_since_s = {name: self._lost_since_s.get(name, now_s) for name in lost}
        marked = await self._look_for_marks()
        for partition in self._partitions:
            since_s = self._lost_since_s.get(partition.name, now_s)
            if not (
                now_s - since_s >= _LOST_S
                or partition.replication.would_grow(count)
                or partition.replication.would_repair(marked)
            ):
                continue
            try:
                await partition.changes.roll()
            except BrokerError as error:
                _LOG.warning("strength.failed log=%s error=%r", partition.name, error)

    async def _look_for_marks(self) -> Collection[LedgerId]:
        try:
            return frozenset(await self._marked())
        except MetadataError as error:
            _LOG.warning("strength.marks_unknown error=%r", error)
            return ()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await self._changed.wait()
            except TimeoutError:
                pass  # look all the same
            self._changed.clear()
            await self.visit_all()
