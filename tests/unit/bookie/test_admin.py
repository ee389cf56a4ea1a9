"""The HTTP server, over a real socket on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from bookie.admin import AdminServer, State
from tests.fakes.bookie_box import BookieBox, add


class Fixture:
    def __init__(self) -> None:
        self.box = BookieBox()
        self.is_ready = True
        self.state = State(running=True, read_only=False, shutting_down=False)
        self.server = AdminServer(
            self.box.disk,
            self.box.metrics,
            is_ready=lambda: self.is_ready,
            state=lambda: self.state,
        )
        self.base = ""

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(self.base + path) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def admin() -> AsyncIterator[Fixture]:
    fixture = Fixture()
    port = await fixture.server.start("127.0.0.1", 0)
    fixture.base = f"http://127.0.0.1:{port}"
    yield fixture
    await fixture.server.stop()


async def test_heartbeat(admin: Fixture) -> None:
    assert await admin.get("/heartbeat") == (200, "OK\n")
    assert (await admin.get("/nothing"))[0] == 404


async def test_readiness(admin: Fixture) -> None:
    assert (await admin.get("/api/v1/bookie/is_ready"))[0] == 200
    admin.is_ready = False
    assert (await admin.get("/api/v1/bookie/is_ready"))[0] == 503


async def test_metrics(admin: Fixture) -> None:
    await admin.box.call(add(7, 0))
    status, text = await admin.get("/metrics")
    assert status == 200
    assert "quire_bookie_adds_total 1.0" in text


async def test_state_and_info(admin: Fixture) -> None:
    admin.state = State(running=True, read_only=True, shutting_down=False)
    status, text = await admin.get("/api/v1/bookie/state")
    assert status == 200
    assert '"readOnly": true' in text
    status, text = await admin.get("/api/v1/bookie/info")
    assert f'"totalSpace": {admin.box.volume.capacity_bytes}' in text
