"""Hosts that run the production bookie: what of them survives, and how they are supervised."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import TYPE_CHECKING

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.errors import StorageError
from bookie.shelf import Directory
from client.errors import ConfigError, MetadataError
from tests.simulation.disk import DiskTimes, SimDisk
from tests.simulation.faults import FREE_BYTES_MIN
from tests.simulation.hosts import Host, SimClock
from tests.simulation.index import IndexStore, SimIndex
from tests.simulation.volume import Volume

if TYPE_CHECKING:
    import random

    from tests.simulation.ledger_world import LedgerWorld
    from tests.simulation.swarm import LedgerSwarm

BOOKIE_PORT = 3181
_RESTART_S = 0.3
_REFUSED_S = 5.0
"""Pause after a refusal to start that only an operator could mend."""


def bookie_config(options: LedgerSwarm) -> BookieConfig:
    """Return the settings of a schedule's bookies, apart from their names."""
    return BookieConfig(
        data_dir=Path("/simulated"),
        port=BOOKIE_PORT,
        session_timeout_ms=max(1000, int(options.store.session_timeout_s * 1000)),
        requests_in_flight_max=options.bookie.requests_in_flight_max,
        pending_bytes_max=options.bookie.pending_bytes_max,
        cache_bytes_max=options.bookie.cache_bytes_max,
        log_preallocate_bytes=options.bookie.log_preallocate_bytes,
        log_file_bytes_max=options.bookie.log_file_bytes_max,
        disk_full_retry_ms=options.bookie.disk_full_retry_ms,
        checkpoint_bytes=options.bookie.checkpoint_bytes,
        checkpoint_interval_ms=options.bookie.checkpoint_interval_ms,
    )


class BookieHost:
    """One machine with a disk and a bookie that its supervisor starts again whenever it ends."""

    def __init__(self, world: LedgerWorld, host: Host, config: BookieConfig) -> None:
        options = world.options
        self._world = world
        self.host = host
        self.bookie_id = f"{host.name}:{BOOKIE_PORT}"
        self.volume = Volume(self._rng("volume"))
        self.times = DiskTimes(self._rng("disk"), options.disk)
        self._index = IndexStore(self._rng("index"))
        self.volume.on_durable = lambda file, writes: world.oracle.on_durable(
            self.bookie_id, file, writes
        )
        # Checking every range again for every host would take longer than the host's life.
        self.config = copy.copy(config)
        object.__setattr__(self.config, "advertised_host", host.name)

    def _rng(self, what: str) -> random.Random:
        return self._world.fork_rng(f"{what} {self.host.name}")

    def power_lost(self) -> None:
        """Lose what was not durable."""
        self.volume.stops_in = -1
        self.volume.power_lost()
        self._index.power_lost()

    def damage_index(self) -> None:
        """Make the index impossible to open."""
        self._index.corrupt = True

    def wipe(self) -> None:
        """Put an empty disk in."""
        self.volume.wipe()
        self._index.wipe()
        self._world.oracle.wiped(self.bookie_id)

    def _open_index(self, wipe: bool) -> SimIndex:
        return SimIndex(self._index, self.volume, wipe=wipe)

    async def main(self) -> None:
        """Run one bookie process until its disk fails or it cannot start."""
        world = self._world
        loop = asyncio.get_running_loop()
        disk = SimDisk(
            self.volume,
            self.times,
            free_bytes_min=FREE_BYTES_MIN,
            preallocate_bytes=self.config.log_preallocate_bytes,
        )
        bookie = Bookie(
            self.config,
            store=world.store.session(),
            directories=[Directory(str(self.config.data_dir), disk, self._open_index)],
            clock=SimClock(world.loop, self.host),
            rng=self._rng(f"bookie {self.host.starts}"),
            loop=loop,
        )
        try:
            await bookie.start()
            await asyncio.wait([bookie.failed])
            reason: object = bookie.failed.exception()
        except (ConfigError, StorageError, MetadataError, OSError) as error:
            reason = error
        world.oracle.note("%s ends: %r", self.host.name, reason)
        world.oracle.count(f"bookie ended by {type(reason).__name__}")
        self._restart_later(_REFUSED_S if isinstance(reason, ConfigError) else _RESTART_S)

    def _restart_later(self, delay_s: float) -> None:
        """The supervisor of the machine: not part of the process that ends."""
        world, host = self._world, self.host

        def restart() -> None:
            if host.powered and not host.running:
                world.boot(host)

        world.loop.kernel_at(world.loop.time() + delay_s, restart)
