"""The bookie's HTTP server, with the paths that Apache BookKeeper's has.

    GET /heartbeat                  "OK"
    GET /metrics                    Prometheus text
    GET /api/v1/bookie/is_ready     200, or 503 while not serving: for readiness probes
    GET /api/v1/bookie/state        {running, readOnly, shuttingDown, ...}
    GET /api/v1/bookie/info         {freeSpace, totalSpace} in bytes

This file is the only home of HTTP in the bookie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web

from bookie.disk import Disk
from bookie.metrics import BookieMetrics


class State(NamedTuple):
    """What /state says."""

    running: bool
    read_only: bool
    shutting_down: bool


class AdminServer:
    """Serves one bookie's paths."""

    def __init__(
        self,
        disk: Disk,
        metrics: BookieMetrics,
        *,
        is_ready: Callable[[], bool],
        state: Callable[[], State],
    ) -> None:
        self._disk = disk
        self._metrics = metrics
        self._is_ready = is_ready
        self._state = state
        app = web.Application()
        app.router.add_get("/heartbeat", self._heartbeat)
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/api/v1/bookie/is_ready", self._ready)
        app.router.add_get("/api/v1/bookie/state", self._describe_state)
        app.router.add_get("/api/v1/bookie/info", self._info)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError if it is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Close the server and its connections."""
        await self._runner.cleanup()

    async def _heartbeat(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def _exposition(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._is_ready():
            return web.Response(text="OK\n")
        return web.Response(status=503, text="the bookie is not serving\n")

    async def _describe_state(self, _request: web.Request) -> web.Response:
        state = self._state()
        return web.json_response(
            {
                "running": state.running,
                "readOnly": state.read_only,
                "shuttingDown": state.shutting_down,
                "availableForHighPriorityWrites": state.running,
            }
        )

    async def _info(self, _request: web.Request) -> web.Response:
        usage = await self._disk.reader_job(self._disk.usage)
        return web.json_response({"freeSpace": usage.free, "totalSpace": usage.total})
