"""A bookie put together: cookie, replay, server, registration, and the way down.

    start   check the cookie -> replay the logs -> look at the disks -> listen -> register
            -> watch the disks, collect garbage
    stop    deregister -> read no more -> answer what is in flight -> close connections
            -> index the rest -> last checkpoints

Nothing here is global: disks, indexes, metadata store, clock, randomness and loop are given, so
several bookies, or one on a simulated loop, live in one process. This file is the only home of
that order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bookie import cookie
from bookie.admin import AdminServer, BookieStatus, Routes, Serving
from bookie.cluster_ledgers import ClusterLedgers
from bookie.config import BookieConfig
from bookie.core.backlog import Backlog
from bookie.garbage import GarbageCollection
from bookie.handlers import Handlers
from bookie.limits import garbage_limits, server_limits, shelf_limits, writability_limits
from bookie.metrics import BookieMetrics
from bookie.registration import Registration, service_info
from bookie.server import BookieServer
from bookie.shelf import Directory
from bookie.shelves import Shelves, open_shelves
from bookie.writability import Writability
from client.histogram import Stopwatch, loop_time
from client.ids import BookieId, Clock, Rng
from client.metadata.store import MetadataStore

logger = logging.getLogger(__name__)


class Bookie:
    """One storage node. `start` once, `stop` once."""

    def __init__(
        self,
        config: BookieConfig,
        *,
        store: MetadataStore,
        directories: Sequence[Directory],
        clock: Clock,
        rng: Rng,
        loop: asyncio.AbstractEventLoop,
        stopwatch: Stopwatch = loop_time,
        admin_routes: Routes = (),
    ) -> None:
        """`admin_routes`: further paths of the admin server, see `cluster_admin.py`."""
        self._config = config
        self._store = store
        self._directories = directories
        self._clock = clock
        self._rng = rng
        self._loop = loop
        self.metrics = BookieMetrics(stopwatch)
        self.port = config.port
        """Port in use, once started."""
        self.admin_port = config.admin_port
        self.failed: asyncio.Future[None] = loop.create_future()
        """Gets an exception when the bookie can no longer keep its promises and must end."""
        self.failed.add_done_callback(_look_at)
        self._shelves: Shelves | None = None
        self._server: BookieServer | None = None
        self._registration: Registration | None = None
        self._writability: Writability | None = None
        self._garbage: GarbageCollection | None = None
        self._admin_routes = admin_routes
        self._admin: AdminServer | None = None
        self._is_stopping = False

    @property
    def bookie_id(self) -> BookieId:
        """Name in the cluster."""
        default = f"{self._config.client_host()}:{self.port}"
        return BookieId(self._config.bookie_id or default)

    @property
    def is_ready(self) -> bool:
        """Whether the bookie serves and its clients can know."""
        registration = self._registration
        return (
            registration is not None
            and registration.is_registered
            and not self._is_stopping
            and not self.failed.done()
        )

    @property
    def is_read_only(self) -> bool:
        """Whether ordinary adds are refused."""
        return self._writability is not None and self._writability.is_read_only

    async def start(self) -> None:
        """Serve. Raises ConfigError, StorageError, MetadataError, OSError (port taken)."""
        await self._start_admin()
        config = self._config
        if config.port == 0 and config.bookie_id is None:
            # The default name needs the port, and the cookie needs the name.
            self.port = await self._free_port()
        known = await cookie.admit(
            self._store,
            self._directories,
            bookie_id=self.bookie_id,
            may_grow=config.allow_storage_expansion,
            root=config.ledgers_root,
            rng=self._rng,
        )
        backlog = Backlog(config.pending_bytes_max)
        shelves = self._shelves = await open_shelves(
            self._directories,
            shelf_limits(config),
            backlog=backlog,
            loop=self._loop,
            metrics=self.metrics,
            on_failed=self._on_shelf_failed,
        )
        shelves.publish(self.metrics)
        self.metrics.gauges["is_registered"] = lambda: self.is_ready
        self.metrics.gauges["is_read_only"] = lambda: self.is_read_only
        garbage = self._garbage = self._make_garbage_collection(shelves, known.instance_id)
        writability = self._writability = self._make_writability(shelves, garbage)
        await writability.look()
        self._server = self._make_server(shelves)
        self.port = await self._server.start(config.host, self.port)
        registration = self._registration = Registration(
            self._store,
            self.bookie_id,
            service_info(config.client_host(), self.port, self.admin_port, config.rack),
            root=config.ledgers_root,
            takeover_timeout_s=2 * config.session_timeout_ms / 1000,
            loop=self._loop,
        )
        writability.start()
        await registration.register(read_only=writability.is_read_only)
        garbage.start()

    async def stop(self) -> None:
        """Leave the cluster and make everything accepted durable and cheap to start from."""
        self._is_stopping = True
        if self._garbage is not None:
            await self._garbage.stop()
        if self._writability is not None:
            await self._writability.stop()
        if self._registration is not None:
            await self._registration.close()
        if self._server is not None:
            self._server.stop_reading()
        if self._shelves is not None:
            await self._shelves.drain()
        if self._server is not None:
            self._server.stop()
        if self._shelves is not None:
            await self._shelves.close()
        if self._admin is not None:
            await self._admin.stop()
        for directory in self._directories:
            directory.disk.close()

    async def _start_admin(self) -> None:
        config = self._config
        if config.admin_port is None:
            return
        self._admin = AdminServer(config, self.metrics, self._status, self._admin_routes)
        self.admin_port = await self._admin.start(config.admin_host, config.admin_port)

    def _status(self) -> BookieStatus:
        shelves, writability, garbage = self._shelves, self._writability, self._garbage
        serving = None
        if shelves is not None and writability is not None and garbage is not None:
            serving = Serving(shelves, writability, garbage)
        return BookieStatus(self.is_ready, self._is_stopping, self.failed.done(), serving)

    async def _free_port(self) -> int:
        server = await self._loop.create_server(asyncio.Protocol, self._config.host, 0)
        port: int = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return port

    def _make_garbage_collection(self, shelves: Shelves, instance_id: str) -> GarbageCollection:
        config = self._config
        cluster = ClusterLedgers(
            self._store, self.bookie_id, instance_id=instance_id, root=config.ledgers_root
        )
        return GarbageCollection(
            shelves,
            cluster,
            garbage_limits(config),
            loop=self._loop,
            clock=self._clock,
            metrics=self.metrics,
        )

    def _make_writability(self, shelves: Shelves, garbage: GarbageCollection) -> Writability:
        def on_change(read_only: bool) -> None:
            if self._registration is not None:
                self._registration.set_read_only(read_only)

        return Writability(
            shelves,
            writability_limits(self._config),
            loop=self._loop,
            metrics=self.metrics,
            on_change=on_change,
            on_scarce=garbage.space_is_scarce,
        )

    def _make_server(self, shelves: Shelves) -> BookieServer:
        config = self._config
        handlers = Handlers(
            shelves,
            batch_bytes_max=config.frame_bytes_max,
            loop=self._loop,
            clock=self._clock,
            metrics=self.metrics,
        )
        return BookieServer(
            handlers, shelves.backlog, server_limits(config), loop=self._loop, metrics=self.metrics
        )

    def _on_shelf_failed(self, path: str, error: BaseException) -> None:
        """With one directory left the bookie goes on, read-only; with none it ends."""
        logger.error("shelf.failed directory=%s error=%r", path, error)
        is_alone = self._shelves is None or all(
            shelf.storage.is_failed for shelf in self._shelves.shelves
        )
        if is_alone and not self.failed.done():
            self.failed.set_exception(error)
        elif self._writability is not None:
            self._writability.look_soon()


def _look_at(done: asyncio.Future[None]) -> None:
    """Mark the exception as seen: whoever runs the bookie may be gone already."""
    if not done.cancelled():
        done.exception()
