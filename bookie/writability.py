"""Whether the bookie takes entries, and why not: full disks, lost records, the operator.

    a directory is FULL           read-only, until all have room again (or, if told so, only while
                                  no directory has room)
    damage nobody can name        read-only for good: the lost record may be anybody's
    a directory's disk failed     read-only for good, while others go on serving
    an operator says so           read-only until an operator says otherwise

Read-only means: registered as such, ordinary adds refused, reads and fences served. Recovery and
urgent adds are taken as long as a directory has some room left: a full cluster must still be able
to recover its ledgers. Disks are looked at regularly, and at once when a group found no space. This
file is the only home of that decision.

Sources: Apache BookKeeper `BookieStateManager`, `LedgerDirsMonitor`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from bookie.core.accept import Accept
from bookie.core.disk_space import Space, SpaceLimits, judge
from bookie.metrics import BookieMetrics
from bookie.shelf import Shelf
from bookie.shelves import Shelves

logger = logging.getLogger(__name__)


class WritabilityLimits(NamedTuple):
    """See the fields of the same names in `config.py`."""

    space: SpaceLimits
    check_interval_s: float
    read_only_on_any_full: bool
    priority_free_bytes_min: int


class Writability:
    """Watches the shelves of one bookie. `look` once, then `start`."""

    def __init__(
        self,
        shelves: Shelves,
        limits: WritabilityLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
        on_change: Callable[[bool], None],
        on_scarce: Callable[[], None],
    ) -> None:
        """`on_change` gets whether the bookie is read-only, `on_scarce` asks for space back."""
        self._shelves = shelves.shelves
        self._limits = limits
        self._loop = loop
        self._on_change = on_change
        self._on_scarce = on_scarce
        self._is_forced = False
        self._told: bool | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        for shelf in self._shelves:
            shelf.storage.on_full = self.look_soon
        metrics.gauges["writable_directories"] = lambda: sum(map(self._has_room, self._shelves))

    @property
    def is_read_only(self) -> bool:
        """Whether ordinary adds are refused."""
        return bool(self.reasons)

    @property
    def takes_priority(self) -> bool:
        """Whether at least one directory takes urgent adds."""
        return any(
            not shelf.storage.is_failed and shelf.storage.accept is not Accept.NONE
            for shelf in self._shelves
        )

    @property
    def reasons(self) -> list[str]:
        """Why the bookie is read-only, in words; empty if it is not."""
        found = ["an operator made it so"] if self._is_forced else []
        full = []
        for shelf in self._shelves:
            if shelf.storage.has_damage:
                found.append(f"records in {shelf.path} are lost and nobody can name them")
            if shelf.storage.is_failed:
                found.append(f"the disk of {shelf.path} failed")
            elif shelf.space is Space.FULL:
                full.append(f"{shelf.path} is full")
        if self._limits.read_only_on_any_full or not any(map(self._has_room, self._shelves)):
            found += full
        return found

    def force(self, read_only: bool) -> None:
        """An operator decides; taking that back leaves the other reasons in force."""
        logger.info("bookie.forced read_only=%s", read_only)
        self._is_forced = read_only
        self._apply()

    def look_soon(self) -> None:
        """Look at the disks now: something happened."""
        self._wake.set()

    def start(self) -> None:
        """Look regularly from now on."""
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def look(self) -> None:
        """Look at every disk and draw the conclusions."""
        for shelf in self._shelves:
            await self._look_at(shelf)
        self._apply()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._limits.check_interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self.look()

    async def _look_at(self, shelf: Shelf) -> None:
        try:
            total, free = await shelf.disk.reader_job(shelf.disk.usage)
        except OSError as error:
            logger.error("disk.no_usage directory=%s error=%s", shelf.path, error)
            return
        before = shelf.space
        # A group that found no space is a proof, however little the reserve has been touched.
        known = Space.FULL if shelf.storage.ran_full else before
        shelf.storage.ran_full = False
        shelf.space = judge(known, total, free, self._limits.space)
        shelf.used_part = 1 - free / total if total else 1.0
        has_priority_room = free >= self._limits.priority_free_bytes_min
        shelf.takes_priority = shelf.space is not Space.FULL or has_priority_room
        if shelf.space is not before:
            logger.warning(
                "disk.space directory=%s state=%s free=%d", shelf.path, shelf.space.value, free
            )
        if shelf.space is not Space.PLENTY:
            self._on_scarce()

    def _apply(self) -> None:
        read_only = self.is_read_only
        for shelf in self._shelves:
            if not shelf.takes_priority:
                shelf.storage.accept = Accept.NONE
            elif read_only or shelf.space is Space.FULL:
                shelf.storage.accept = Accept.PRIORITY
            else:
                shelf.storage.accept = Accept.ALL
        if read_only != self._told:
            if read_only:
                logger.warning("bookie.read_only reasons=%r", self.reasons)
            else:
                logger.info("bookie.writable")
            self._told = read_only
            self._on_change(read_only)

    @staticmethod
    def _has_room(shelf: Shelf) -> bool:
        return not shelf.storage.is_failed and shelf.space is not Space.FULL
