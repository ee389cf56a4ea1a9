"""A bookie put together: cookie, replay, server, registration, and the way down.

    start   check the cookie -> replay the logs -> look at the disks -> listen -> register
            -> watch the disks, collect garbage
    stop    deregister -> read no more -> answer what is in flight -> close connections
            -> index the rest -> last checkpoints

What it needs of the machine and the cluster is given: `environment.py`.
"""

from __future__ import annotations

import asyncio
import logging

from bookie.admin.server import AdminServer, BookieStatus, Routes, Serving
from bookie.config import BookieConfig
from bookie.environment import Environment
from bookie.limits import garbage_limits, ledger_directory_limits, read_only_limits, server_limits
from bookie.membership import cookie
from bookie.membership.cluster_ledgers import ClusterLedgers
from bookie.membership.garbage import GarbageCollection
from bookie.membership.read_only_state import ReadOnlyState
from bookie.membership.registration import Registration, service_info
from bookie.metrics import BookieMetrics
from bookie.server.guard import Guard
from bookie.server.handlers import BatchLimits, Handlers
from bookie.server.server import BookieServer
from bookie.storage.core.backlog import Backlog
from bookie.storage.ledger_directories import LedgerDirectories, open_ledger_directories
from client.ids import BookieId

logger = logging.getLogger(__name__)


class Bookie:
    """One storage node. `start` once, `stop` once."""

    def __init__(
        self, config: BookieConfig, environment: Environment, *, admin_routes: Routes = ()
    ) -> None:
        """`admin_routes`: further paths of the admin server, see `admin/cluster.py`."""
        self._config = config
        self._environment = environment
        self.metrics = BookieMetrics(environment.stopwatch)
        self.port = config.port
        """Port in use, once started."""
        self.admin_port = config.admin_port
        self.failed: asyncio.Future[None] = environment.loop.create_future()
        """Gets an exception when the bookie can no longer keep its promises and must end."""
        self.failed.add_done_callback(_look_at)
        self._admin_routes = admin_routes
        self._admin: AdminServer | None = None
        self._ledger_directories: LedgerDirectories | None = None
        self._guard: Guard | None = None
        self._server: BookieServer | None = None
        self._registration: Registration | None = None
        self._read_only_state: ReadOnlyState | None = None
        self._garbage: GarbageCollection | None = None
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
        return self._read_only_state is not None and self._read_only_state.is_read_only

    async def start(self) -> None:
        """Serve. Raises ConfigError, StorageError, MetadataError, OSError (port taken)."""
        self._guard = self._make_guard()
        await self._start_admin()
        config, environment = self._config, self._environment
        if config.port == 0 and config.bookie_id is None:
            # The default name needs the port, and the cookie needs the name.
            self.port = await self._free_port()
        known = await cookie.admit(
            environment.store,
            environment.directories,
            bookie_id=self.bookie_id,
            may_grow=config.allow_storage_expansion,
            root=config.ledgers_root,
            rng=environment.rng,
        )
        backlog = Backlog(config.pending_bytes_max)
        ledger_directories = self._ledger_directories = await open_ledger_directories(
            environment.directories,
            ledger_directory_limits(config),
            backlog=backlog,
            loop=environment.loop,
            metrics=self.metrics,
            on_failed=self._on_directory_failed,
        )
        ledger_directories.publish(self.metrics)
        self.metrics.gauges["is_registered"] = lambda: self.is_ready
        self.metrics.gauges["is_read_only"] = lambda: self.is_read_only
        garbage = self._garbage = self._make_garbage_collection(
            ledger_directories, known.instance_id
        )
        read_only_state = self._read_only_state = self._make_read_only_state(
            ledger_directories, garbage
        )
        await read_only_state.look()
        self._server = self._make_server(ledger_directories)
        self.port = await self._server.start(config.host, self.port)
        registration = self._registration = Registration(
            environment.store,
            self.bookie_id,
            service_info(
                config.client_host(),
                self.port,
                self.admin_port,
                config.rack,
                "http" if config.admin_tls_cert is None else "https",
            ),
            root=config.ledgers_root,
            takeover_timeout_s=2 * config.session_timeout_ms / 1000,
            loop=environment.loop,
        )
        read_only_state.start()
        await registration.register(read_only=read_only_state.is_read_only)
        garbage.start()

    async def stop(self) -> None:
        """Leave the cluster and make everything accepted durable and cheap to start from."""
        self._is_stopping = True
        if self._garbage is not None:
            await self._garbage.stop()
        if self._read_only_state is not None:
            await self._read_only_state.stop()
        if self._registration is not None:
            await self._registration.close()
        if self._server is not None:
            self._server.stop_reading()
        if self._ledger_directories is not None:
            await self._ledger_directories.drain()
        if self._server is not None:
            self._server.stop()
        if self._ledger_directories is not None:
            await self._ledger_directories.close()
        if self._admin is not None:
            await self._admin.stop()
        for directory in self._environment.directories:
            directory.disk.close()

    async def _start_admin(self) -> None:
        config = self._config
        if config.admin_port is None:
            return
        self._admin = AdminServer(config, self.metrics, self._status, self._admin_routes)
        self.admin_port = await self._admin.start(config.admin_host, config.admin_port)

    def _status(self) -> BookieStatus:
        ledger_directories, read_only_state, garbage = (
            self._ledger_directories,
            self._read_only_state,
            self._garbage,
        )
        serving = None
        if ledger_directories is not None and read_only_state is not None and garbage is not None:
            serving = Serving(ledger_directories, read_only_state, garbage)
        return BookieStatus(self.is_ready, self._is_stopping, self.failed.done(), serving)

    async def _free_port(self) -> int:
        server = await self._environment.loop.create_server(asyncio.Protocol, self._config.host, 0)
        port: int = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return port

    def _make_garbage_collection(
        self, ledger_directories: LedgerDirectories, instance_id: str
    ) -> GarbageCollection:
        config = self._config
        cluster = ClusterLedgers(
            self._environment.store,
            self.bookie_id,
            instance_id=instance_id,
            root=config.ledgers_root,
        )
        return GarbageCollection(
            ledger_directories,
            cluster,
            garbage_limits(config),
            loop=self._environment.loop,
            clock=self._environment.clock,
            metrics=self.metrics,
        )

    def _make_read_only_state(
        self, ledger_directories: LedgerDirectories, garbage: GarbageCollection
    ) -> ReadOnlyState:
        def on_change(read_only: bool) -> None:
            if self._registration is not None:
                self._registration.set_read_only(read_only)

        return ReadOnlyState(
            ledger_directories,
            read_only_limits(self._config),
            loop=self._environment.loop,
            metrics=self.metrics,
            on_change=on_change,
            on_scarce=garbage.space_is_scarce,
        )

    def _make_server(self, ledger_directories: LedgerDirectories) -> BookieServer:
        config = self._config
        handlers = Handlers(
            ledger_directories,
            batch_limits=BatchLimits(
                config.frame_bytes_max,
                config.batch_read_entries_max,
                config.batch_reads_bytes_max,
            ),
            loop=self._environment.loop,
            clock=self._environment.clock,
            metrics=self.metrics,
        )
        return BookieServer(
            handlers,
            ledger_directories.backlog,
            server_limits(config),
            loop=self._environment.loop,
            metrics=self.metrics,
            guard=self._guard,
        )

    def _make_guard(self) -> Guard | None:
        """Raises ConfigError."""
        config = self._config
        if config.access.tls == "off":
            self.metrics.gauges["tls_handshakes"] = lambda: 0
            return None
        guard = Guard(config.access, config.cluster_security, self._environment.loop)
        self.metrics.gauges["tls_handshakes"] = lambda: guard.gate.handshakes
        self.metrics.gauges["tls_certificate_expires_seconds"] = lambda: guard.expires_s
        self.metrics.provide_one("quire_bookie_tls_handshakes_failed", lambda: guard.gate.failures)
        return guard

    def _on_directory_failed(self, path: str, error: BaseException) -> None:
        """With one directory left the bookie goes on, read-only; with none it ends."""
        logger.error("directory.failed directory=%s error=%r", path, error)
        is_alone = self._ledger_directories is None or all(
            ledger_directory.storage.is_failed
            for ledger_directory in self._ledger_directories.directories
        )
        if is_alone and not self.failed.done():
            self.failed.set_exception(error)
        elif self._read_only_state is not None:
            self._read_only_state.look_soon()


def _look_at(done: asyncio.Future[None]) -> None:
    """Mark the exception as seen: whoever runs the bookie may be gone already."""
    if not done.cancelled():
        done.exception()
