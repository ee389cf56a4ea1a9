"""A bookie without network or metadata store: handlers, storage and a machine that can crash.

`BookieBox` is the machine: its volume and index survive `kill` (the process dies, the kernel
lives) and, as far as they were durable, `lose_power`. `start` runs a new process on them.
Requests go straight to the handlers; `call` waits for the reply.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from bookie.metrics import BookieMetrics
from bookie.server.handlers import BatchLimits, Handlers
from bookie.storage.compactor import Compactor, CompactorLimits
from bookie.storage.core.append_log import file_number
from bookie.storage.core.group_commit import Backlog
from bookie.storage.core.read_turns import ReadLimits
from bookie.storage.index.index import Index
from bookie.storage.index.indexer import FILE_NAME as CHECKPOINT
from bookie.storage.index.indexer import Checkpoint, CheckpointLimits, decode_checkpoint
from bookie.storage.ledger_directories import LedgerDirectories
from bookie.storage.ledger_directory import Directory, LedgerDirectory
from bookie.storage.replay import init_log, replay
from bookie.storage.storage import Storage, StorageLimits
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    ReadRequest,
    Request,
    Response,
    Status,
)
from tests.fakes.disk import CrashDisk
from tests.fakes.key_values import Contents, MemoryKeyValues
from tests.simulation.machine.index import LevelStore, SimIndex
from tests.simulation.machine.volume import Volume

KEY = master_key(b"")
NOW_MS = 1_700_000_000_000
DELETION_MEMORY_MS = 1000

PENDING_BYTES_MAX = 1 << 20
LIMITS = StorageLimits(
    group_bytes_max=1 << 20,
    cache_bytes_max=0,
    reads=ReadLimits(rest_times=8.0, bytes_per_s_min=16 << 20, wait_s_max=0.5),
    checkpoint=CheckpointLimits(1 << 20, 1 << 20, 60.0),
    index_gather_s=0.0,
    disk_full_retry_s=0.0,
)


class FixedClock:
    """Wall time that stands still."""

    def now_ms(self) -> int:
        return NOW_MS


def envelope(ledger: int, entry: int, payload: bytes = b"payload", lac: int = NO_ENTRY) -> bytes:
    """Return a sealed entry as a writer sends it."""
    codec = EntryCodec(LedgerId(ledger), DigestType.CRC32C, b"")
    return b"".join(codec.seal(EntryId(entry), EntryId(lac), len(payload), [payload]))


def payload_of(ledger: int, entry: Any) -> bytes:
    """Open an envelope that a bookie returned; the digest must hold."""
    codec = EntryCodec(LedgerId(ledger), DigestType.CRC32C, b"")
    return bytes(codec.open(entry, None).payload)


def add(
    ledger: int,
    entry: int,
    payload: bytes = b"payload",
    *,
    lac: int = NO_ENTRY,
    key: bytes = KEY,
    **flags: bool,
) -> AddRequest:
    """Build an add as `decode_request` would return it."""
    body = memoryview(envelope(ledger, entry, payload, lac))
    return AddRequest(LedgerId(ledger), EntryId(entry), key, body, **flags)


def fence(ledger: int, entry: int = LAST_ENTRY, key: bytes | None = KEY) -> ReadRequest:
    """Build a fencing read."""
    return ReadRequest(LedgerId(ledger), EntryId(entry), fence=True, master_key=key)


def read(ledger: int, entry: int) -> ReadRequest:
    """Build a plain read."""
    return ReadRequest(LedgerId(ledger), EntryId(entry))


class BookieBox:
    """One machine with one bookie process at a time. Use inside a running loop."""

    def __init__(
        self,
        seed: int = 1,
        *,
        limits: StorageLimits = LIMITS,
        log_file_bytes_max: int = 1 << 20,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        level_bytes: int = 0,
    ) -> None:
        """`level_bytes`: if not 0, the index is in the simulator's LevelDB, `level`, which begins
        another log after so many; otherwise `index_store` has it, which never fails by itself."""
        self.rng = random.Random(seed)
        self.volume = Volume(self.rng)
        self.index_store = Contents(self.rng)
        self.level = (
            LevelStore(self.rng, self.volume, write_buffer_bytes=level_bytes)
            if level_bytes
            else None
        )
        self.limits = limits
        self.log_file_bytes_max = log_file_bytes_max
        self.pending_bytes_max = pending_bytes_max
        self.failures: list[BaseException] = []
        self.start()

    def start(self) -> None:
        """Start a process. Raises what replay raises."""
        self.disk = CrashDisk(self.volume)
        if not self.volume.files:
            init_log(self.disk, self.rng)
        self.metrics = BookieMetrics()
        replayed = replay(self.disk, self._open_index, log_file_bytes_max=self.log_file_bytes_max)
        loop = asyncio.get_running_loop()
        self.backlog = Backlog(self.pending_bytes_max)
        self.storage = Storage(
            replayed,
            self.disk,
            self.limits,
            backlog=self.backlog,
            loop=loop,
            metrics=self.metrics,
            on_failed=self.failures.append,
        )
        self.compactor = Compactor(
            self.disk,
            self.index,
            self.storage.indexer,
            CompactorLimits(self.log_file_bytes_max, 1 << 40, 0, DELETION_MEMORY_MS),
            salt=replayed.checkpoint.salt,
            next_copy=replayed.next_copy,
            metrics=self.metrics,
        )
        directory = Directory("/data", self.disk, self._open_index)
        self.ledger_directories = LedgerDirectories(
            [LedgerDirectory(directory, self.storage, self.compactor)], self.backlog
        )
        self.handlers = Handlers(
            self.ledger_directories,
            batch_limits=BatchLimits(1 << 20, 5000, 1 << 24),
            loop=loop,
            clock=FixedClock(),
            metrics=self.metrics,
        )

    def _open_index(self, wipe: bool) -> Index:
        if self.level is not None:
            self.index = SimIndex(self.level, wipe=wipe)
            return self.index
        self.key_values = MemoryKeyValues(self.index_store, wipe=wipe)
        self.index = Index(self.key_values)
        return self.index

    def kill(self) -> None:
        """kill -9: what the kernel has, stays."""
        self.disk.kill()

    def lose_power(self) -> None:
        """The machine stops: only what is durable stays for sure."""
        self.disk.kill()
        self.volume.power_lost()
        self.index_store.power_lost()
        if self.level is not None:
            self.level.volume.power_lost()

    def restart(self) -> None:
        """kill -9 and start."""
        self.kill()
        self.start()

    def send(self, request: Request) -> asyncio.Future[Any]:
        """Hand a request to the handlers; the future gets the reply, which comes once."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def reply(response: Response) -> None:
            assert not future.done(), "one reply per request"
            future.set_result(response)

        self.handlers.handle(request, reply)
        return future

    async def call(self, request: Request) -> Any:
        """Send a request and wait for its reply."""
        async with asyncio.timeout(5):
            return await self.send(request)

    async def delete(self, ledger: int, time_ms: int = NOW_MS) -> Status:
        """Delete a ledger and wait until nothing of it is left."""
        done: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self.storage.delete(LedgerId(ledger), time_ms, done.set_result)
        async with asyncio.timeout(5):
            return await done

    async def reclaim(self, threshold: float = 0.0, now_ms: int = NOW_MS) -> None:
        """Give back and rewrite log files."""
        async with asyncio.timeout(5):
            await self.compactor.run(threshold, now_ms)

    @property
    def log_numbers(self) -> list[int]:
        """Numbers of the log files on the disk, ascending."""
        numbers = map(file_number, self.volume.files)
        return sorted(number for number in numbers if number is not None)

    async def status(self, request: Request) -> Status:
        """Send a request and return the status of its reply."""
        status: Status = (await self.call(request)).status
        return status

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint on the disk."""
        data = self.disk.load(CHECKPOINT)
        assert data is not None
        return decode_checkpoint(data)


async def settle(turns: int = 20) -> None:
    """Let everything that can happen without a held group happen."""
    for _ in range(turns):
        await asyncio.sleep(0)
