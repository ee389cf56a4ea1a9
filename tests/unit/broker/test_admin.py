"""The broker's HTTP server."""

from __future__ import annotations

import dataclasses

import aiohttp

from broker.admin.server import AdminServer
from tests.fakes.broker import CONFIG, FakeCloud


async def test_health_readiness_and_metrics() -> None:
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)
    admin = AdminServer(dataclasses.replace(CONFIG, admin_port=0), broker)
    port = await admin.start()

    async def get(path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz") == (200, "ready\n")
    status, text = await get("/metrics")
    assert status == 200
    assert "quire_connections 0.0" in text
    assert 'quire_groups{state="Stable"} 0.0' in text
    await cloud.close()
    assert await get("/readyz") == (503, "not ready\n")
    assert (await get("/nothing"))[0] == 404
    await admin.close()


async def test_it_can_be_switched_off() -> None:
    cloud = FakeCloud()
    admin = AdminServer(CONFIG, await cloud.start_broker(1))
    assert await admin.start() == 0
    await admin.close()
    await cloud.close()
