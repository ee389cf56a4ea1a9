"""The paths about one bookie, over a real socket, on a whole bookie in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from bookie.bookie import Bookie
from client.ids import LedgerId
from client.metadata import paths
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import add, fence, read
from tests.unit.bookie.test_bookie import Machine, connect, registered

V1 = "/api/v1/bookie"


class Http:
    """Asks a bookie's admin server."""

    def __init__(self, port: int | None) -> None:
        self._base = f"http://127.0.0.1:{port}"

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the answer, parsed if it is JSON."""
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self._base + path, data=data) as answer,
        ):
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(text) if is_json else text

    async def get(self, path: str) -> tuple[int, Any]:
        return await self.ask("GET", path)

    async def put(self, path: str, body: object = None) -> tuple[int, Any]:
        return await self.ask("PUT", path, body)


class Site:
    """A bookie with an admin server."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.bookie: Bookie
        self.http: Http

    async def start(self, **settings: Any) -> Site:
        settings = {"admin_host": "127.0.0.1", "admin_port": 0, "free_bytes_min": 0, **settings}
        self.bookie = await self.machine.start(**settings)
        self.http = Http(self.bookie.admin_port)
        return self


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = await Site().start()
    yield site
    await site.bookie.stop()


async def test_heartbeat_metrics_and_readiness(site: Site) -> None:
    assert await site.http.get("/heartbeat") == (200, "OK\n")
    assert (await site.http.get("/nothing"))[0] == 404
    assert (await site.http.get(f"{V1}/is_ready"))[0] == 200
    client = await connect(site.bookie)
    await client.call(add(7, 0))
    status, text = await site.http.get("/metrics")
    assert status == 200
    assert "quire_bookie_adds_total 1.0" in text
    assert "bookie_SERVER_STATUS 1.0" in text
    assert 'bookkeeper_server_ADD_ENTRY_REQUEST_count{success="true"} 1' in text


async def test_before_it_serves_only_probes_are_answered() -> None:
    machine = Machine()
    bookie = machine.make(admin_host="127.0.0.1", admin_port=0)
    await bookie._start_admin()
    http = Http(bookie.admin_port)
    assert (await http.get("/heartbeat"))[0] == 200
    assert (await http.get("/metrics"))[0] == 200
    assert (await http.get(f"{V1}/is_ready"))[0] == 503
    status, state = await http.get(f"{V1}/state")
    assert (status, state["running"], state["readOnly"]) == (200, False, False)
    for path in ("info", "state/readonly", "gc", "gc_details", "last_log_mark"):
        assert (await http.get(f"{V1}/{path}"))[0] == 503
    await bookie.stop()


async def test_every_setting_is_shown(site: Site) -> None:
    status, found = await site.http.get("/api/v1/config/server_config")
    assert status == 200
    assert found["bookie_id"] == "b1"
    assert found["data_dir"] == "/data"
    assert found["recovery.poll_ms"] == 5000


async def test_an_operator_makes_it_read_only_and_writable_again(site: Site) -> None:
    machine, http = site.machine, site.http
    await machine.store.create(paths.ledger(LedgerId(7)), make_parents=True)
    client = await connect(site.bookie)
    assert (await client.call(add(7, 0))).status is Status.OK
    path = f"{V1}/state/readonly"
    assert await http.get(path) == (200, {"readOnly": False, "reasons": []})
    status, answer = await http.put(path, {"readOnly": True})
    assert (status, answer["readOnly"]) == (200, True)
    assert answer["reasons"] == ["an operator made it so"]
    async with asyncio.timeout(5):
        while await registered(machine) != ([], ["b1"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await client.call(add(7, 1))).status is Status.READ_ONLY
    assert (await client.call(add(7, 1, recovery=True))).status is Status.OK
    assert (await client.call(add(7, 2, high_priority=True))).status is Status.OK
    assert (await client.call(read(7, 0))).status is Status.OK
    assert (await client.call(fence(8))).status is Status.NO_ENTRY
    _, state = await http.get(f"{V1}/state")
    assert state == {
        "running": True,
        "readOnly": True,
        "shuttingDown": False,
        "availableForHighPriorityWrites": True,
    }
    assert (await http.get("/metrics"))[1].count("bookie_SERVER_STATUS 0.0") == 1
    status, answer = await http.put(path, {"readOnly": False})
    assert (status, answer) == (200, {"readOnly": False, "reasons": []})
    async with asyncio.timeout(5):
        while await registered(machine) != (["b1"], []):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await client.call(add(7, 3))).status is Status.OK


async def test_an_operator_cannot_overrule_a_full_disk() -> None:
    site = Site()
    site.machine.volume.capacity_bytes = 1_000_000
    await site.start(free_bytes_min=2_000_000, priority_free_bytes_min=5_000_000)
    status, text = await site.http.put(f"{V1}/state/readonly", {"readOnly": False})
    assert (status, text) == (409, "the bookie stays read-only: /data0 is full\n")
    _, state = await site.http.get(f"{V1}/state")
    assert state["availableForHighPriorityWrites"] is False
    await site.bookie.stop()


@pytest.mark.parametrize("body", [None, "", "[]", "no json", {}, {"readOnly": "yes"}])
async def test_a_wrong_body_is_told_what_it_should_be(site: Site, body: object) -> None:
    status, text = await site.http.put(f"{V1}/state/readonly", body)
    assert (status, text) == (400, 'the body must be JSON: {"readOnly": true or false}\n')
    assert not site.bookie.is_read_only


async def test_space_marks_and_files(site: Site) -> None:
    client = await connect(site.bookie)
    await client.call(add(7, 0))
    _, info = await site.http.get(f"{V1}/info")
    assert info["totalSpace"] == site.machine.volume.capacity_bytes
    _, marks = await site.http.get(f"{V1}/last_log_mark")
    assert list(marks) == ["LastLogMark: Journal Id - 1(/data0)"]
    assert next(iter(marks.values())).startswith("Pos - ")
    _, files = await site.http.get(f"{V1}/list_disk_file?file_type=entrylog")
    assert files == {"entrylog files": "/data0/log/0000000001.log"}
    _, files = await site.http.get(f"{V1}/list_disk_file")
    assert set(files) == {"journal files", "entrylog files", "index files"}


async def test_sanity_fails_with_damage(site: Site) -> None:
    assert await site.http.get(f"{V1}/sanity") == (200, {"passed": True, "readOnly": False})
    site.bookie._ledger_directories.directories[0].storage.has_damage = True  # type: ignore[union-attr]
    _, found = await site.http.get(f"{V1}/sanity")
    assert found == {"passed": False, "readOnly": True}


async def test_collection_is_asked_for(site: Site) -> None:
    assert await site.http.get(f"{V1}/gc") == (200, {"is_in_force_gc": "false"})
    _, [before] = await site.http.get(f"{V1}/gc_details")
    assert (before["majorCompactionCounter"], before["lastMajorCompactionTime"]) == (0, 0)
    assert (await site.http.put(f"{V1}/gc", {"forceMajor": False, "forceMinor": True}))[0] == 200
    assert (await site.http.put(f"{V1}/gc"))[0] == 200
    async with asyncio.timeout(5):
        while True:
            _, [after] = await site.http.get(f"{V1}/gc_details")
            if after["majorCompactionCounter"] and not after["forceCompacting"]:
                break
            await asyncio.sleep(0.01)
    assert after["lastMajorCompactionTime"] > 0
    assert site.bookie.metrics.gc_rounds >= 1
    assert (await site.http.put(f"{V1}/gc", {"forceMajor": 1}))[0] == 400


async def test_rewriting_is_suspended_and_resumed(site: Site) -> None:
    suspended, resumed = f"{V1}/gc/suspend_compaction", f"{V1}/gc/resume_compaction"
    garbage = site.bookie._garbage
    assert garbage is not None
    status, answer = await site.http.put(suspended, {"suspendMajor": True})
    assert (status, answer["isMajorGcSuspended"], answer["isMinorGcSuspended"]) == (
        200,
        "true",
        "false",
    )
    garbage.ask(major=True)
    assert not garbage.major.is_due(0.0)
    status, text = await site.http.put(suspended, {})
    assert (status, text) == (400, 'say which: {"suspendMajor": true, "suspendMinor": true}\n')
    status, answer = await site.http.put(resumed, {"resumeMajor": True, "resumeMinor": True})
    assert answer["isMajorGcSuspended"] == "false"
    assert garbage.major.is_due(0.0)
