"""A bookie put together: cookie, replay, server, registration, and the way down.

    start   check the cookie -> replay the logs -> look at the disks -> listen -> register
            -> watch the disks, collect garbage
    stop    deregister -> read no more -> answer what is in flight -> close connections
            -> index the rest -> last checkpoints

What it needs of the machine and the cluster is given (`Environment`). The limits of each of its
parts are made of its flat configuration: units are converted, and defaults filled in that depend on
other settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from bookie.admin.server import AdminServer, BookieStatus, Routes, Serving
from bookie.config import BookieConfig
from bookie.membership import cookie
from bookie.membership.cluster_ledgers import ClusterLedgers
from bookie.membership.garbage import GarbageCollection, GarbageLimits
from bookie.membership.read_only_state import ReadOnlyLimits, ReadOnlyState
from bookie.membership.registration import Registration, service_info
from bookie.metrics import BookieMetrics
from bookie.server.guard import Guard
from bookie.server.handlers import BatchLimits, Handlers
from bookie.server.server import BookieServer, RequestLimits, ServerLimits
from bookie.storage.compactor import CompactorLimits
from bookie.storage.core.disk_space import SpaceLimits
from bookie.storage.core.group_commit import Backlog
from bookie.storage.core.read_turns import ReadLimits
from bookie.storage.index.indexer import CheckpointLimits
from bookie.storage.ledger_directories import LedgerDirectories, open_ledger_directories
from bookie.storage.ledger_directory import Directory, LedgerDirectoryLimits
from bookie.storage.storage import StorageLimits
from client.histogram import Stopwatch, loop_time
from client.ids import BookieId, Clock, Rng
from client.metadata.store import MetadataStore
from client.node.connection_limits import ConnectionLimits
from client.security.admin_access import is_loopback

logger = logging.getLogger(__name__)

_PRIORITY_FILES = 1.2
"""So many log files must fit before a full directory still takes urgent adds."""


class Environment(NamedTuple):
    """What a bookie gets from outside: its disks, the metadata store, time, randomness and the
    loop.

    Nothing of it is global, so several bookies, or one on a simulated loop, live in one process.
    """

    store: MetadataStore
    directories: Sequence[Directory]
    clock: Clock
    rng: Rng
    loop: asyncio.AbstractEventLoop
    stopwatch: Stopwatch = loop_time
    """What durations are measured by."""


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
        self._warn()
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

    def _warn(self) -> None:
        """Log what is wrong with where this bookie listens."""
        config = self._config
        if not is_loopback(config.host):
            if reason := config.access.open_reason():
                logger.warning("bookie.open host=%s hint=%s", config.host, reason)
        elif not is_loopback(config.client_host()):
            logger.warning(
                "bookie.on_loopback host=%s advertised=%s hint=%s", config.host,
                config.client_host(), "other machines cannot connect to a loopback address",
            )  # fmt: skip

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


def ledger_directory_limits(config: BookieConfig) -> LedgerDirectoryLimits:
    """Return the bounds of each directory; what is shared is divided."""
    count = len(config.data_dirs())
    return LedgerDirectoryLimits(
        log_file_bytes_max=config.log_file_bytes_max,
        storage=StorageLimits(
            group_bytes_max=config.group_bytes_max,
            cache_bytes_max=config.cache_bytes_max // count,
            reads=ReadLimits(
                rest_times=config.read_rest_times,
                bytes_per_s_min=config.read_bytes_per_s_min // count,
                wait_s_max=config.read_wait_ms_max / 1000,
            ),
            checkpoint=CheckpointLimits(
                checkpoint_bytes=config.checkpoint_bytes,
                checkpoint_records=config.checkpoint_records,
                checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
            ),
            index_gather_s=config.index_gather_ms / 1000,
            disk_full_retry_s=config.disk_full_retry_ms / 1000,
        ),
        compactor=CompactorLimits(
            copy_bytes_max=config.log_file_bytes_max,
            reclaim_bytes_per_s=config.reclaim_bytes_per_s,
            free_bytes_min=config.free_bytes_min,
            deletion_memory_ms=config.deletion_memory_ms,
        ),
    )


def server_limits(config: BookieConfig) -> ServerLimits:
    """Return the bounds of connections and requests."""
    return ServerLimits(
        connections=ConnectionLimits(
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
            connection_idle_s=config.connection_idle_ms / 1000,
            frame_timeout_s=config.frame_timeout_ms / 1000,
            unfinished_bytes_max=config.unfinished_bytes_max,
            unread_bytes_max=config.unread_bytes_max,
            unsent_bytes_max=config.unsent_bytes_max,
        ),
        frame_bytes_max=config.frame_bytes_max,
        requests_in_flight_max=config.requests_in_flight_max,
        request_limiter=RequestLimits(
            config.adds_in_flight_max,
            config.reads_in_flight_max,
            config.long_polls_max,
            config.long_polls_per_connection_max,
            config.other_requests_max,
        ),
    )


def read_only_limits(config: BookieConfig) -> ReadOnlyLimits:
    """Return when the bookie turns read-only, and back."""
    full_at = config.disk_usage_threshold
    room_below = config.disk_usage_lwm_threshold
    priority_bytes = config.priority_free_bytes_min
    return ReadOnlyLimits(
        space=SpaceLimits(
            full_at=full_at,
            scarce_at=config.disk_usage_warn_threshold,
            room_below=full_at if room_below is None else room_below,
            free_bytes_min=config.free_bytes_min,
            free_bytes_for_room=config.free_bytes_min
            + max(config.log_preallocate_bytes, config.pending_bytes_max),
        ),
        check_interval_s=config.disk_check_interval_ms / 1000,
        read_only_on_any_full=config.read_only_on_any_full,
        priority_free_bytes_min=(
            int(_PRIORITY_FILES * config.log_file_bytes_max)
            if priority_bytes is None
            else priority_bytes
        ),
    )


def garbage_limits(config: BookieConfig) -> GarbageLimits:
    """Return the schedule of garbage collection."""
    return GarbageLimits(
        wait_s=config.gc_wait_ms / 1000,
        overreplicated_wait_s=config.gc_overreplicated_wait_ms / 1000,
        minor_threshold=config.minor_compaction_threshold,
        minor_interval_s=config.minor_compaction_interval_ms / 1000,
        major_threshold=config.major_compaction_threshold,
        major_interval_s=config.major_compaction_interval_ms / 1000,
        deletion_memory_ms=config.deletion_memory_ms,
    )
