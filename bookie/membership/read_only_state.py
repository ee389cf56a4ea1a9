"""Whether the bookie takes entries, and why not: full disks, lost records, the operator.

    a directory is FULL           read-only, until all have room again (or, if told so, only while
                                  no directory has room)
    damage nobody can name        read-only for good: the lost record may be anybody's
    a directory's disk failed     read-only for good, while others go on serving
    an operator says so           read-only until an operator says otherwise

Read-only means: registered as such, ordinary adds refused, reads and fences served. Recovery and
urgent adds are taken as long as a directory has some room left: a full cluster must still be able
to recover its ledgers. Disks are looked at regularly, and at once when a group found no space.

Sources: Apache BookKeeper `BookieStateManager`, `LedgerDirsMonitor`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from bookie.metrics import BookieMetrics
from bookie.storage.core.disk_space import AcceptedAdds, Space, SpaceLimits, judge
from bookie.storage.ledger_directories import LedgerDirectories
from bookie.storage.ledger_directory import LedgerDirectory
from client.node import background

logger = logging.getLogger(__name__)


class ReadOnlyLimits(NamedTuple):
    """See the fields of the same names in `config.py`."""

    space: SpaceLimits
    check_interval_s: float
    read_only_on_any_full: bool
    priority_free_bytes_min: int


class ReadOnlyState:
    """Watches the ledger directories of one bookie. `look` once, then `start`."""

    def __init__(
        self,
        ledger_directories: LedgerDirectories,
        limits: ReadOnlyLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: BookieMetrics,
        on_change: Callable[[bool], None],
        on_scarce: Callable[[], None],
    ) -> None:
        """`on_change` gets whether the bookie is read-only, `on_scarce` asks for space back."""
        self._directories = ledger_directories.directories
        self._limits = limits
        self._loop = loop
        self._on_change = on_change
        self._on_scarce = on_scarce
        self._is_forced = False
        self._told: bool | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        for ledger_directory in self._directories:
            ledger_directory.storage.full_disk.on_full = self.look_soon
        metrics.gauges["writable_directories"] = lambda: sum(map(self._has_room, self._directories))

    @property
    def is_read_only(self) -> bool:
        """Whether ordinary adds are refused."""
        return bool(self.reasons)

    @property
    def takes_priority(self) -> bool:
        """Whether at least one directory takes urgent adds."""
        return any(
            not ledger_directory.storage.is_failed
            and ledger_directory.storage.accept is not AcceptedAdds.NONE
            for ledger_directory in self._directories
        )

    @property
    def reasons(self) -> list[str]:
        """Why the bookie is read-only, in words; empty if it is not."""
        found = ["an operator made it so"] if self._is_forced else []
        full = []
        for ledger_directory in self._directories:
            if ledger_directory.storage.has_damage:
                found.append(
                    f"records in {ledger_directory.path} are lost, and it is unknown which"
                )
            if ledger_directory.storage.is_failed:
                found.append(f"the disk of {ledger_directory.path} failed")
            elif ledger_directory.space is Space.FULL:
                full.append(f"{ledger_directory.path} is full")
        if self._limits.read_only_on_any_full or not any(map(self._has_room, self._directories)):
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
        self._task = background.keep(self._run, "read-only-state", self._loop)

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def look(self) -> None:
        """Look at every disk and draw the conclusions."""
        for ledger_directory in self._directories:
            await self._look_at(ledger_directory)
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

    async def _look_at(self, ledger_directory: LedgerDirectory) -> None:
        try:
            total, free = await ledger_directory.disk.reader_job(ledger_directory.disk.usage)
        except OSError as error:
            logger.error("disk.no_usage directory=%s error=%s", ledger_directory.path, error)
            return
        before = ledger_directory.space
        # A group that found no space is a proof, however little the reserve has been touched.
        known = Space.FULL if ledger_directory.storage.full_disk.ran_full else before
        ledger_directory.storage.full_disk.ran_full = False
        ledger_directory.space = judge(known, total, free, self._limits.space)
        ledger_directory.used_part = 1 - free / total if total else 1.0
        has_priority_room = free >= self._limits.priority_free_bytes_min
        ledger_directory.takes_priority = (
            ledger_directory.space is not Space.FULL or has_priority_room
        )
        if ledger_directory.space is not before:
            logger.warning(
                "disk.space directory=%s state=%s free=%d",
                ledger_directory.path,
                ledger_directory.space.value,
                free,
            )
        if ledger_directory.space is not Space.PLENTY:
            self._on_scarce()

    def _apply(self) -> None:
        read_only = self.is_read_only
        for ledger_directory in self._directories:
            if not ledger_directory.takes_priority:
                ledger_directory.storage.accept = AcceptedAdds.NONE
            elif read_only or ledger_directory.space is Space.FULL:
                ledger_directory.storage.accept = AcceptedAdds.PRIORITY
            else:
                ledger_directory.storage.accept = AcceptedAdds.ALL
        if read_only != self._told:
            if read_only:
                logger.warning("bookie.read_only reasons=%r", self.reasons)
            else:
                logger.info("bookie.writable")
            self._told = read_only
            self._on_change(read_only)

    @staticmethod
    def _has_room(ledger_directory: LedgerDirectory) -> bool:
        return not ledger_directory.storage.is_failed and ledger_directory.space is not Space.FULL
