"""Back to full strength: partitions whose ledger was created while bookies were missing.

This file is the only home of what a broker does about a degraded cluster once it is none any
more. With fewer bookies than a topic wants, a ledger is created with fewer copies, never fewer
than the ack quorum (`opening.py`): writes go on with the promise kept and the spare copies
missing. A ledger keeps its quorums for life, so more copies need a new ledger: when bookies
appear, and now and again, partitions are rolled, one after the other so that the metadata store
does not feel it.

A member that fails in a ledger of full strength is another matter: it is replaced or suspended
there (client/ledger/PROTOCOL.md), and what it missed is repaired by auto recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol

from broker.errors import BrokerError
from broker.ledgers import Ledgers

_LOG = logging.getLogger(__name__)

_INTERVAL_S: Final = 30.0
"""A roll that failed, or a partition opened on an old view of the bookies, is seen after this."""


class ShrunkPartition(Protocol):
    """The part of a led partition that is asked and rolled here."""

    @property
    def name(self) -> str:
        """Topic and index."""
        ...

    def would_grow(self, bookie_count: int) -> bool:
        """Whether a new ledger would have more copies, or be striped over more bookies."""
        ...

    async def roll(self) -> None:
        """Continue in a new ledger. Raises BrokerError."""
        ...


class FullStrength:
    """A background task of every broker, for the partitions it leads."""

    def __init__(self, partitions: Iterable[ShrunkPartition], ledgers: Ledgers) -> None:
        self._partitions = partitions
        self._ledgers = ledgers
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._ledgers.on_bookies_changed(self._changed.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="full strength")

    async def close(self) -> None:
        """Stop, in the middle of a roll if need be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def visit_all(self) -> None:
        """Roll every partition that would gain by it."""
        for partition in self._partitions:
            if not partition.would_grow(len(self._ledgers.writable_bookies)):
                continue
            try:
                await partition.roll()
            except BrokerError as error:
                _LOG.warning("strength.failed partition=%s error=%r", partition.name, error)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await self._changed.wait()
            except TimeoutError:
                pass  # look all the same
            self._changed.clear()
            await self.visit_all()
