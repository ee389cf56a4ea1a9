"""A bookie put together: cookie, replay, server, registration, and the way down.

    start   check the cookie -> replay the log -> listen -> register
    stop    deregister -> read no more -> answer what is in flight -> close connections
            -> index the rest -> last checkpoint

Nothing here is global: disk, index, metadata store, clock, randomness and loop are given, so
several bookies, or one on a simulated loop, live in one process. This file is the only home of
that order.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from bookie import cookie
from bookie.admin import AdminServer, State
from bookie.config import BookieConfig
from bookie.disk import Disk
from bookie.handlers import Handlers
from bookie.index import IndexFactory
from bookie.metrics import BookieMetrics
from bookie.registration import Registration, service_info
from bookie.replay import replay
from bookie.server import BookieServer, ServerLimits
from bookie.storage import Storage, StorageLimits
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
        disk: Disk,
        index_factory: IndexFactory,
        clock: Clock,
        rng: Rng,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._store = store
        self._disk = disk
        self._index_factory = index_factory
        self._clock = clock
        self._rng = rng
        self._loop = loop
        self.metrics = BookieMetrics()
        self.port = config.port
        """Port in use, once started."""
        self.admin_port = config.admin_port
        self.failed: asyncio.Future[None] = loop.create_future()
        """Gets an exception when the bookie can no longer keep its promises and must end."""
        self.failed.add_done_callback(_look_at)
        self._storage: Storage | None = None
        self._server: BookieServer | None = None
        self._registration: Registration | None = None
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

    async def start(self) -> None:
        """Serve. Raises ConfigError, StorageError, MetadataError, OSError (port taken)."""
        await self._start_admin()
        config = self._config
        if config.port == 0 and config.bookie_id is None:
            # The default name needs the port, and the cookie needs the name.
            self.port = await self._free_port()
        await cookie.admit(
            self._store,
            self._disk,
            bookie_id=self.bookie_id,
            data_dir=str(config.data_dir),
            root=config.ledgers_root,
            rng=self._rng,
        )
        self._storage = await self._open_storage()
        self._server = self._make_server(self._storage)
        self.port = await self._server.start(config.host, self.port)
        self._registration = Registration(
            self._store,
            self.bookie_id,
            service_info(config.client_host(), self.port, self.admin_port, config.rack),
            root=config.ledgers_root,
            takeover_timeout_s=2 * config.session_timeout_ms / 1000,
            loop=self._loop,
        )
        self.metrics.gauges["is_registered"] = lambda: self.is_ready
        self.metrics.gauges["is_read_only"] = lambda: self._is_read_only
        await self._registration.register(read_only=self._storage.has_damage)

    async def stop(self) -> None:
        """Leave the cluster and make everything accepted durable and cheap to start from."""
        self._is_stopping = True
        if self._registration is not None:
            await self._registration.close()
        if self._server is not None:
            self._server.stop_reading()
        if self._storage is not None:
            await self._storage.drain()
        if self._server is not None:
            self._server.stop()
        if self._storage is not None:
            await self._storage.close()
        if self._admin is not None:
            await self._admin.stop()
        self._disk.close()

    @property
    def _is_read_only(self) -> bool:
        return self._registration is not None and self._registration.is_read_only

    async def _start_admin(self) -> None:
        config = self._config
        if config.admin_port is None:
            return
        self._admin = AdminServer(
            self._disk,
            self.metrics,
            is_ready=lambda: self.is_ready,
            state=lambda: State(
                running=self._storage is not None and not self.failed.done(),
                read_only=self._is_read_only,
                shutting_down=self._is_stopping,
            ),
        )
        self.admin_port = await self._admin.start(config.admin_host, config.admin_port)

    async def _free_port(self) -> int:
        server = await self._loop.create_server(asyncio.Protocol, self._config.host, 0)
        port: int = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return port

    async def _open_storage(self) -> Storage:
        config = self._config
        replayed = await self._disk.index_job(
            partial(
                replay,
                self._disk,
                self._index_factory,
                log_file_bytes_max=config.log_file_bytes_max,
            )
        )
        limits = StorageLimits(
            pending_bytes_max=config.pending_bytes_max,
            cache_bytes_max=config.cache_bytes_max,
            checkpoint_bytes=config.checkpoint_bytes,
            checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
            disk_full_retry_s=config.disk_full_retry_ms / 1000,
        )
        return Storage(
            replayed,
            self._disk,
            limits,
            loop=self._loop,
            metrics=self.metrics,
            on_failed=self._on_failed,
        )

    def _make_server(self, storage: Storage) -> BookieServer:
        config = self._config
        handlers = Handlers(
            storage,
            self._disk,
            batch_bytes_max=config.frame_bytes_max,
            loop=self._loop,
            clock=self._clock,
            metrics=self.metrics,
        )
        limits = ServerLimits(
            frame_bytes_max=config.frame_bytes_max,
            connections_max=config.connections_max,
            requests_in_flight_max=config.requests_in_flight_max,
            unsent_bytes_max=config.unsent_bytes_max,
        )
        return BookieServer(handlers, storage, limits, loop=self._loop, metrics=self.metrics)

    def _on_failed(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _look_at(done: asyncio.Future[None]) -> None:
    """Mark the exception as seen: whoever runs the bookie may be gone already."""
    if not done.cancelled():
        done.exception()
