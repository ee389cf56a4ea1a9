"""Several ledger directories in one test: a machine with more than one disk, and a process."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from bookie.metrics import BookieMetrics
from bookie.server.handlers import BatchLimits, Handlers
from bookie.storage.compactor import CompactorLimits
from bookie.storage.core.group_commit import Backlog
from bookie.storage.index.index import Index
from bookie.storage.ledger_directories import LedgerDirectories, open_ledger_directories
from bookie.storage.ledger_directory import Directory, LedgerDirectoryLimits
from bookie.storage.replay import init_log
from client.wire.bookkeeper.messages import Request, Response, Status
from tests.fakes.bookie_box import DELETION_MEMORY_MS, LIMITS, PENDING_BYTES_MAX, FixedClock
from tests.fakes.disk import CrashDisk
from tests.fakes.key_values import Contents, MemoryKeyValues
from tests.simulation.machine.volume import Volume


class Bay:
    """One disk of the machine."""

    def __init__(self, rng: random.Random) -> None:
        self.volume = Volume(rng)
        self.contents = Contents(rng)
        self.disk = CrashDisk(self.volume)

    def insert(self, rng: random.Random) -> None:
        """Give the disk to a new process."""
        self.disk.kill()
        self.disk = CrashDisk(self.volume)
        init_log(self.disk, rng)

    def open_index(self, wipe: bool) -> Index:
        return Index(MemoryKeyValues(self.contents, wipe=wipe))


class DirectoryRack:
    """`start` before use, and again for another process."""

    def __init__(self, count: int, log_file_bytes_max: int = 1 << 20) -> None:
        self.rng = random.Random(1)
        self.bays = [Bay(self.rng) for _ in range(count)]
        self.failed: list[str] = []
        self.ledger_directories: LedgerDirectories
        self._log_file_bytes_max = log_file_bytes_max

    async def start(self) -> None:
        for bay in self.bays:
            bay.insert(self.rng)
        self.metrics = BookieMetrics()
        loop = asyncio.get_running_loop()
        self.ledger_directories = await open_ledger_directories(
            [Directory(f"/{n}", bay.disk, bay.open_index) for n, bay in enumerate(self.bays)],
            LedgerDirectoryLimits(
                self._log_file_bytes_max,
                LIMITS,
                CompactorLimits(self._log_file_bytes_max, 1 << 40, 0, DELETION_MEMORY_MS),
            ),
            backlog=Backlog(PENDING_BYTES_MAX),
            loop=loop,
            metrics=self.metrics,
            on_failed=lambda path, error: self.failed.append(path),
        )
        self.handlers = Handlers(
            self.ledger_directories,
            batch_limits=BatchLimits(1 << 20, 5000, 1 << 24),
            loop=loop,
            clock=FixedClock(),
            metrics=self.metrics,
        )

    async def call(self, request: Request) -> Any:
        """Send a request and wait for its reply."""
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.handlers.handle(request, future.set_result)
        async with asyncio.timeout(5):
            return await future

    async def status(self, request: Request) -> Status:
        """Send a request and return the status of its reply."""
        status: Status = (await self.call(request)).status
        return status
