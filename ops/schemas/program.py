"""A registry as a program: HTTP server, health and metrics.

Beside the REST API (`rest.py`) it answers `GET /healthz` (it runs), `/readyz` (200 while it hears
from the brokers) and `/metrics`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import ProcessCollector

from client.errors import QuireError
from client.node import background, logs
from client.node.exposition import Exposition
from client.node.http_bodies import make_runner
from client.node.http_connections import CLOSE_S, HttpConnections
from client.node.http_guard import CALLER, SAFE, AccessRefused, HttpGuard, close_headers
from client.node.logs import AT_WILL, SECURITY
from client.node.process import on_stop_signal
from client.node.scrapes import Scrapes
from client.pubsub.brokers import Brokers
from client.security.admin_access import Role
from ops.schemas.config import SchemasConfig
from ops.schemas.core.catalogue import Catalogue
from ops.schemas.core.errors import RegistryError
from ops.schemas.core.registry import Registry
from ops.schemas.log import SchemaLog
from ops.schemas.metrics import TABLE, SchemaStats, provide
from ops.schemas.rest import SchemaRest, failed, no_such_path, refusal, wrong_method
from ops.schemas.rights import RIGHTS
from ops.schemas.service import SchemaService

log = logging.getLogger("schemas")
_log = SECURITY

LOOKS_MAX: Final = 2
"""Requests of those who only look for which schemas are read at a time: fewer than there are
compilers (`protoc.py`) and threads."""

_BODY_BYTES_EXTRA: Final = 64 << 10
_REFRESH_FAILS: Final = 30.0
"""Seconds without an answer of the brokers after which the registry is not ready."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SchemaServer:
    """The HTTP server of a registry."""

    def __init__(self, config: SchemasConfig, brokers: Brokers) -> None:
        """Raises ConfigError (certificates, tokens)."""
        self._config = config
        self._catalogue = Catalogue()
        self._log = SchemaLog(brokers, config.topic, self._catalogue)
        registry = Registry(self._catalogue, config.level, config.held_bytes_max)
        service = SchemaService(self._log, self._catalogue, registry, config.schema_bytes_max)
        self._stats = SchemaStats()
        self._metrics = Exposition(TABLE)
        self._doors = HttpConnections()
        provide(self._metrics, self._stats, self._catalogue, self._log, self._doors)
        self._metrics.add_collector(ProcessCollector(registry=None))
        self._heard_s = 0.0
        self.guard = guard = HttpGuard(config, config.host, takes_basic=True)
        self._metrics.add_part(guard.exposition())
        self._scrapes = Scrapes(self._metrics.exposition)
        self._looks = asyncio.Semaphore(LOOKS_MAX)
        app = web.Application(
            middlewares=[
                self._doors.watch,
                self._counted,
                guard.by_table(RIGHTS),
                _noted,
                self._with_room,
                self._doors.whole,
            ],
            client_max_size=2 * config.schema_bytes_max + _BODY_BYTES_EXTRA,
        )
        app.on_response_prepare.append(close_headers)
        SchemaRest(service, self._catalogue).add_to(app)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._exposition)
        self._runner = make_runner(app, shutdown_timeout=CLOSE_S)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Read the topic, then listen; yield the port.

        Raises QuireError if no broker answers or the topic is not fit, OSError if the port is
        taken.
        """
        config = self._config
        refreshing: asyncio.Task[None] | None = None
        try:
            await self._log.start(config.replication_factor)
            self._heard_s = time.monotonic()
            refreshing = background.run(self._refresh(), "schemas refresh")
            await self._runner.setup()
            self.guard.warn(config.host)
            yield await self._doors.listen(self._runner, config.host, config.port, self.guard.tls)
        finally:
            if refreshing is not None:
                refreshing.cancel()
            self._doors.close()
            await self._runner.cleanup()
            await self._log.close()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._config.refresh_ms / 1000)
            try:
                await self._log.catch_up()
                self._heard_s = time.monotonic()
            except RegistryError as error:
                log.warning("schemas.refresh_failed reason=%s", error)

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count, and answer what went wrong in the API's own form."""
        start_s = time.perf_counter()
        status = 500
        try:
            found = await self._answered(request, handler)
            status = found.status
            return found
        finally:
            self._stats.requests[status] += 1
            self._stats.request_seconds.observe(time.perf_counter() - start_s)

    @web.middleware
    async def _with_room(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let few of those who only look have schemas read at a time, so that registering goes on
        beside any number of them."""
        reads_schemas = request.method == "POST" or "format" in request.query
        if _role(request) is not Role.LOOK or not reads_schemas:
            return await handler(request)
        async with self._looks:
            return await handler(request)

    @staticmethod
    async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RegistryError as error:
            return refusal(error)
        except AccessRefused as error:
            refused = refusal(RegistryError(100 * error.status + 1, error.sentence.strip()))
            refused.headers.update(error.headers)
            return refused
        except web.HTTPNotFound:
            return refusal(no_such_path(request.path))
        except web.HTTPMethodNotAllowed:
            return refusal(wrong_method(request.method, request.path))
        except web.HTTPException as error:
            return refusal(RegistryError(error.status, (error.text or error.reason).strip()))
        except Exception as error:
            log.exception("schemas.request_failed path=%r", request.path)
            return refusal(failed(error))

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if time.monotonic() - self._heard_s < _REFRESH_FAILS:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: the brokers do not answer\n")

    async def _exposition(self, _request: web.Request) -> web.Response:
        return self._scrapes.answer()


def _role(request: web.Request) -> object:
    """Return what a request's path needs, as the table says."""
    resource = request.match_info.route.resource
    return None if resource is None else RIGHTS.get(f"{request.method} {resource.canonical}")


@web.middleware
async def _noted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Log what was changed, and who asked for it.

    Serializers register at each start what is there already: those lines are at will.
    """
    answer = await handler(request)
    role = _role(request)
    if request.method not in SAFE and role is not Role.LOOK:
        _log.info(
            "admin.done operation=%s path=%s status=%d user=%r from=%s", request.method,
            request.path_qs, answer.status, request[CALLER].name, request.remote,
            extra=AT_WILL if role is Role.OPERATE else None,
        )  # fmt: skip
    return answer


async def serve(config: SchemasConfig, brokers: Brokers, say: Callable[[str], None]) -> None:
    """Run a registry until a signal says stop; `say` where it answers.

    Raises QuireError if no broker answers, the topic is not fit, or the port is taken.
    """
    logs.start("schemas", style="text")
    stop = on_stop_signal(asyncio.get_running_loop())
    server = SchemaServer(config, brokers)
    try:
        async with server.running() as port:
            scheme = server.guard.scheme
            say(f"The registry answers at {scheme}://{config.host}:{port}; topic {config.topic}.")
            await stop.wait()
    except OSError as error:
        raise QuireError(f"{config.host}:{config.port}: {error.strerror or error}") from error
