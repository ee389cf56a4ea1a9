"""Hosts that run the production bookie: what of them survives, and how they are supervised."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import TYPE_CHECKING

from bookie.bookie import Bookie, Environment
from bookie.config import BookieConfig
from bookie.errors import StorageError
from bookie.storage.ledger_directory import Directory
from client.errors import ConfigError, MetadataError
from tests.simulation.bookies.faults import FREE_BYTES_MIN
from tests.simulation.machine.disk import DiskTimes, SimDisk
from tests.simulation.machine.hosts import Host, SimClock
from tests.simulation.machine.index import LevelStore, SimIndex
from tests.simulation.machine.volume import Volume

if TYPE_CHECKING:
    import random

    from tests.simulation.bookies.machines import Machines
    from tests.simulation.bookies.swarm import LedgerSwarm

BOOKIE_PORT = 3181
_RESTART_S = 0.3
_WEAK_DISK_FACTOR = 10.0
_REFUSED_S = 5.0
"""Pause after a refusal to start that only an operator could resolve."""


def bookie_config(options: LedgerSwarm) -> BookieConfig:
    """Return the settings of a schedule's bookies, apart from their names."""
    return BookieConfig(
        data_dir=Path("/simulated"),
        port=BOOKIE_PORT,
        session_timeout_ms=max(1000, int(options.store.session_timeout_s * 1000)),
        requests_in_flight_max=options.bookie.requests_in_flight_max,
        pending_bytes_max=options.bookie.pending_bytes_max,
        group_bytes_max=options.bookie.group_bytes_max,
        cache_bytes_max=options.bookie.cache_bytes_max,
        log_preallocate_bytes=options.bookie.log_preallocate_bytes,
        log_file_bytes_max=options.bookie.log_file_bytes_max,
        disk_full_retry_ms=options.bookie.disk_full_retry_ms,
        checkpoint_bytes=options.bookie.checkpoint_bytes,
        checkpoint_interval_ms=options.bookie.checkpoint_interval_ms,
        index_gather_ms=options.bookie.index_gather_ms,
        more_data_dirs=tuple(
            Path(f"/simulated{number}") for number in range(1, options.bookie.directories)
        ),
        disk_check_interval_ms=options.bookie.disk_check_interval_ms,
        gc_wait_ms=options.bookie.gc_wait_ms,
        gc_overreplicated_wait_ms=options.bookie.gc_overreplicated_wait_ms,
        minor_compaction_interval_ms=options.bookie.compaction_interval_ms,
        major_compaction_interval_ms=5 * options.bookie.compaction_interval_ms,
    )


class _Drive:
    """One data directory, on a disk of its own, and its index."""

    def __init__(self, machine: BookieHost, path: str, number: int) -> None:
        name = str(number or "")
        self._machine = machine
        self._path = path
        self.volume = Volume(machine._rng(f"volume{name}"))
        self.index = LevelStore(
            machine._rng(f"index{name}"),
            self.volume,
            write_buffer_bytes=machine._world.options.bookie.index_write_buffer_bytes,
        )
        oracle = machine._world.oracle
        self.index.on_wrong = lambda text: oracle.fail("R13", f"{machine.bookie_id}: {text}")
        self.volume.on_durable = lambda file, writes: oracle.on_durable(
            machine.bookie_id, file, writes
        )
        self.volume.on_group = lambda size: oracle.group_written(machine.bookie_id, size)

    def directory(self) -> Directory:
        """Return it as a process opens it."""
        disk = SimDisk(
            self.volume,
            self._machine.times,
            free_bytes_min=FREE_BYTES_MIN,
            preallocate_bytes=self._machine.config.log_preallocate_bytes,
        )
        return Directory(self._path, disk, lambda wipe: SimIndex(self.index, wipe=wipe))


class BookieHost:
    """One machine with a disk and a bookie that its supervisor starts again whenever it ends."""

    def __init__(self, world: Machines, host: Host, config: BookieConfig) -> None:
        options = world.options
        self._world = world
        self.host = host
        self.bookie_id = f"{host.name}:{BOOKIE_PORT}"
        self.times = DiskTimes(self._rng("disk"), options.disk)
        self._drives = [
            _Drive(self, str(path), number) for number, path in enumerate(config.data_dirs())
        ]
        self._bookie: Bookie | None = None
        self._serving: object = None
        """The process whose bookie has come up."""
        # Checking every range again for every host would take longer than the host's life.
        self.config = copy.copy(config)
        object.__setattr__(self.config, "advertised_host", host.name)
        if options.bookie.weak_adds_max and host is world.bookies[0]:
            object.__setattr__(self.config, "adds_in_flight_max", options.bookie.weak_adds_max)
            self.times.factor = _WEAK_DISK_FACTOR

    def _rng(self, what: str) -> random.Random:
        return self._world.fork_rng(f"{what} {self.host.name}")

    @property
    def volume(self) -> Volume:
        """The disk that suffers when one does."""
        return self._drives[-1].volume

    def power_lost(self) -> None:
        """Lose what was not durable."""
        for drive in self._drives:
            drive.volume.stops_in = -1
            drive.volume.power_lost()
            drive.index.power_lost()

    @property
    def index(self) -> LevelStore:
        """The index that suffers when one does."""
        return self._drives[-1].index

    @property
    def is_up(self) -> bool:
        """Whether a bookie serves here."""
        return self.host.running and self._serving is self.host.process

    @property
    def has_failed_directory(self) -> bool:
        """Whether a directory failed: the others go on, and an operator must restart the bookie."""
        ledger_directories = None if self._bookie is None else self._bookie._ledger_directories
        return ledger_directories is not None and any(
            ledger_directory.storage.is_failed
            for ledger_directory in ledger_directories.directories
        )

    def set_read_only(self, *, read_only: bool) -> None:
        """Turn the bookie read-only, or take that back, as its admin API does."""
        bookie, process = self._bookie, self.host.process
        if self.is_up and process is not None and bookie is not None:
            assert bookie._read_only_state is not None, "it serves"
            process.context.run(bookie._read_only_state.force, read_only)

    def wipe(self) -> None:
        """Put empty disks in."""
        for drive in self._drives:
            drive.index.wipe()
            drive.volume.wipe()
        self._world.oracle.wiped(self.bookie_id)

    async def main(self) -> None:
        """Run one bookie process until its disk fails or it cannot start."""
        world = self._world
        loop = asyncio.get_running_loop()
        store = world.store.session()
        bookie = Bookie(
            self.config,
            Environment(
                store=store,
                directories=[drive.directory() for drive in self._drives],
                clock=SimClock(world.loop, self.host),
                rng=self._rng(f"bookie {self.host.starts}"),
                loop=loop,
            ),
        )
        self._bookie = bookie
        try:
            await bookie.start()
            self._serving = self.host.process
            beside = world.beside_bookie(self.host, store)
            if beside is not None:
                loop.create_task(beside)  # noqa: RUF006  (the process keeps its tasks)
            await asyncio.wait([bookie.failed])
            reason: object = bookie.failed.exception()
        except (ConfigError, StorageError, MetadataError, OSError) as error:
            reason = error
        world.oracle.note("%s ends: %r", self.host.name, reason)
        world.oracle.count(f"bookie ended by {type(reason).__name__}")
        delay_s = _REFUSED_S if isinstance(reason, ConfigError) else _RESTART_S
        world.restart_later(self.host, delay_s)
