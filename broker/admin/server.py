"""The broker's HTTP server.

    GET /healthz   200 while the process runs its loop
    GET /readyz    200 once clients are served, 503 before and when the metadata session is lost
    GET /metrics   Prometheus text

This file is the only home of HTTP in the broker.
"""

from __future__ import annotations

from aiohttp import web

from broker.app import Broker
from broker.config import BrokerConfig


class AdminServer:
    """Serves one broker's paths; can start before the broker does."""

    def __init__(self, config: BrokerConfig, broker: Broker) -> None:
        self._config = config
        self._broker = broker
        self._runner: web.AppRunner | None = None
        self.url = ""
        """Where it listens; empty while it does not."""

    async def start(self) -> int:
        """Listen; return the port, or 0 if there is no admin server. Raises OSError."""
        if self._config.admin_port < 0:
            return 0
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._config.admin_host, self._config.admin_port).start()
        port = int(self._runner.addresses[0][1])
        self.url = f"http://{self._config.admin_host}:{port}"
        return port

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        if self._broker.is_ready():
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._broker.metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )
