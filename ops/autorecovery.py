"""`python -m ops.autorecovery`: auto recovery alone, without a bookie in its process.

    python -m ops.autorecovery [--zookeeper HOST:PORT] [--config FILE] ...

With `--admin-port` it answers over HTTP:

    GET /heartbeat   "OK" while the process runs its loop
    GET /readyz      200 once it looks for work, 503 before
    GET /metrics     Prometheus text

SIGTERM and SIGINT stop it. Exit code 0 after that, 2 when it could not start (one sentence says
why), 1 when a part of it ended that should not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop
from aiohttp import web
from prometheus_client import ProcessCollector

from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.metrics import PROGRAM_TABLE
from client.autorecovery.service import running
from client.config import check_ranges, load_program, setting
from client.errors import ConfigError, LedgerError, MetadataError
from client.ids import BookieId
from client.ledger.standalone import WallClock
from client.metadata.paths import LEDGERS_ROOT
from client.metadata.zookeeper import ZooKeeperStore
from client.node import logs
from client.node.exposition import Exposition
from client.node.http_bodies import make_runner
from client.node.http_connections import CLOSE_S, HttpConnections
from client.node.http_guard import METRICS, HttpGuard, Rights, close_headers, with_sentences
from client.node.logs import LogFormat, LogLevel
from client.node.process import on_stop_signal
from client.node.process_metrics import LoopLag, provide_metadata_requests, provide_process
from client.node.scrapes import Scrapes
from client.security.admin_access import AdminAccess, check_admin_access
from client.security.cluster_security import ClusterSecurity

log = logging.getLogger("autorecovery")

RIGHTS: Final[Rights] = {"GET /heartbeat": None, "GET /readyz": None, "GET /metrics": METRICS}
"""Method and path -> the role it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryProgram(AdminAccess):
    """Settings of the program."""

    name: str | None = setting(
        None, "Name in votes and locks; by default this machine's, with the process id."
    )
    zookeeper: tuple[str, ...] = setting(("127.0.0.1:2181",), "ZooKeeper servers, host:port.")
    ledgers_root: str = setting(LEDGERS_ROOT, "Root of BookKeeper's tree in ZooKeeper.")
    session_timeout_ms: int = setting(
        10_000, "ZooKeeper session timeout: how long others wait for a dead node.", at_least=1000
    )
    admin_host: str = setting("127.0.0.1", "Address of the HTTP server for probes and metrics.")
    admin_port: int | None = setting(
        None, "Port of that server, 0 for a free one; without it there is none."
    )
    log_format: LogFormat = setting(
        "text", "How log lines look: text for people, json for programs."
    )
    log_level: LogLevel = setting(
        "info", "What is logged: info is every change of state, debug far more."
    )
    recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    cluster_security: ClusterSecurity = field(default_factory=ClusterSecurity)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.admin_port is not None and not 0 <= self.admin_port <= 65535:
            raise ConfigError(f"admin_port must be between 0 and 65535, not {self.admin_port}")
        check_admin_access(self)


class AdminServer:
    """Probes and metrics over HTTP. `start` once, `close` once."""

    def __init__(self, metrics: Exposition, access: AdminAccess, host: str) -> None:
        """`host`: where it is going to listen. Raises ConfigError (certificates, tokens)."""
        self.is_ready = False
        self._scrapes = Scrapes(metrics.exposition)
        self._doors = HttpConnections()
        self._host = host
        self._guard = guard = HttpGuard(access, host)
        metrics.add_part(guard.exposition())
        app = web.Application(
            middlewares=[self._doors.watch, with_sentences, guard.by_table(RIGHTS)]
        )
        app.on_response_prepare.append(close_headers)
        app.router.add_get("/heartbeat", self._heartbeat)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._exposition)
        self._runner = make_runner(app, shutdown_timeout=CLOSE_S)

    async def start(self, port: int) -> int:
        """Listen and return the port. Raises OSError if it is taken."""
        await self._runner.setup()
        return await self._doors.listen(self._runner, self._host, port, self._guard.tls)

    async def close(self) -> None:
        """Close the server and its connections."""
        self._doors.close()
        await self._runner.cleanup()

    async def _heartbeat(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self.is_ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: starting, or without ZooKeeper\n")

    async def _exposition(self, _request: web.Request) -> web.Response:
        return self._scrapes.answer()


def main() -> int:
    """Run until told to stop; return the exit code."""
    style = logs.asked_style(sys.argv[1:], os.environ.get("QUIRE_AUTORECOVERY_LOG_FORMAT"))
    logs.start("autorecovery", style=style)
    try:
        resolved = load_program(
            AutoRecoveryProgram,
            prog="python -m ops.autorecovery",
            env_prefix="QUIRE_AUTORECOVERY_",
            argv=sys.argv[1:],
        )
        return uvloop.run(_run(resolved.config))
    except (ConfigError, MetadataError, LedgerError, OSError) as error:
        log.error("autorecovery.cannot_start reason=%s", error or repr(error))
    return 2


async def _run(config: AutoRecoveryProgram) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = on_stop_signal(loop)
    me = BookieId(config.name or f"{socket.gethostname()}-{os.getpid()}")
    logs.start("autorecovery", node=me, style=config.log_format, level=config.log_level)
    store = ZooKeeperStore(
        config.zookeeper, session_timeout_ms=config.session_timeout_ms,
        security=config.cluster_security,
    )  # fmt: skip
    metrics = Exposition(PROGRAM_TABLE)
    provide_process(metrics, "autorecovery", store)
    provide_metadata_requests(metrics, store.request_seconds)
    metrics.add_collector(ProcessCollector(registry=None))
    loop_lag = LoopLag(metrics, time.perf_counter)
    admin = AdminServer(metrics, config, config.admin_host)
    if config.admin_port is not None:
        port = await admin.start(config.admin_port)
        log.info("autorecovery.admin host=%s port=%d", config.admin_host, port)
    try:
        await store.start()
        loop_lag.start()
        async with running(
            store,
            me=me,
            clock=WallClock(),
            rng=random.SystemRandom(),
            config=config.recovery,
            root=config.ledgers_root,
            now_s=time.perf_counter,
            security=config.cluster_security,
        ) as node:
            node.show_in(metrics)
            admin.is_ready = True
            log.info("autorecovery.running node=%s", me)
            stopping: asyncio.Future[Any] = loop.create_task(told_to_stop.wait())
            failing: asyncio.Future[Any] = loop.create_task(node.failed())
            await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                log.error("autorecovery.ended", exc_info=failing.exception())
                return 1
            failing.cancel()
    finally:
        loop_lag.close()
        await admin.close()
        await store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
