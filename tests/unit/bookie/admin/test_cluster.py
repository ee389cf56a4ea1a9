"""The paths about the whole cluster: one bookie in memory, and the ledgers that it knows of."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from bookie.admin.cluster import ClusterAdmin
from client.ids import BookieId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.under_replication import mark_under_replicated
from client.metadata import paths
from tests.fakes.bookie_box import FixedClock
from tests.fakes.clock import rng
from tests.unit.bookie.admin.test_server import Http, Site

RECOVERY = "/api/v1/autorecovery"


class Cluster:
    """A bookie, a ledger on it, and the paths."""

    def __init__(self, site: Site, http: Http, ledger_id: LedgerId) -> None:
        self.site = site
        self.http = http
        self.ledger_id = ledger_id
        self.store = site.machine.store


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    site = await Site().start()
    store, random_ = site.machine.store, random.Random(3)
    client = LedgerClient(store, rng=random_, clock=FixedClock())
    async with client:
        writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
        for number in range(5):
            await writer.append(b"entry %d" % number)
        await writer.close()
    app = web.Application()
    admin = ClusterAdmin(
        store, me=BookieId("admin"), root=paths.LEDGERS_ROOT, clock=FixedClock(), rng=rng()
    )
    app.add_routes(admin.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Cluster(site, Http(runner.addresses[0][1]), writer.ledger_id)
    await runner.cleanup()
    await site.bookie.stop()


async def test_ledgers(cluster: Cluster) -> None:
    http, ledger_id = cluster.http, cluster.ledger_id
    assert await http.get("/api/v1/ledger/list") == (200, {str(ledger_id): None})
    _, listed = await http.get("/api/v1/ledger/list?print_metadata=true")
    assert "state=CLOSED" in listed[str(ledger_id)]
    _, found = await http.get(f"/api/v1/ledger/metadata?ledger_id={ledger_id}")
    assert "lastEntryId=4" in found[str(ledger_id)]
    assert "ensembles={0=[b1]}" in found[str(ledger_id)]
    _, entries = await http.get(
        f"/api/v1/ledger/read?ledger_id={ledger_id}&start_entry_id=1&end_entry_id=2"
    )
    assert entries == {"1": "entry 1", "2": "entry 2"}
    _, entries = await http.get(f"/api/v1/ledger/read?ledger_id={ledger_id}")
    assert len(entries) == 5
    status, text = await http.ask("DELETE", "/api/v1/ledger/delete?ledger_id=x")
    assert (status, text) == (400, "ledger_id must be a number\n")
    assert (await http.ask("DELETE", f"/api/v1/ledger/delete?ledger_id={ledger_id}"))[0] == 200
    assert await http.get("/api/v1/ledger/list") == (200, {})


async def test_bookies(cluster: Cluster) -> None:
    http = cluster.http
    assert await http.get("/api/v1/bookie/list_bookies?type=rw") == (200, {"b1": None})
    assert await http.get("/api/v1/bookie/list_bookies?type=ro") == (200, {})
    assert (await http.get("/api/v1/bookie/list_bookies?type=x"))[0] == 400
    _, info = await http.get("/api/v1/bookie/list_bookie_info")
    total = cluster.site.machine.volume.capacity_bytes
    assert f"Total: {total}(" in info["b1"]
    assert f"Total: {total}(" in info["ClusterInfo: "]
    await cluster.store.create(paths.cookie(BookieId("gone")), make_parents=True)
    assert await http.get("/api/v1/bookie/cluster_info") == (
        200,
        {
            "auditorElected": False,
            "auditorId": "",
            "clusterUnderReplicated": False,
            "ledgerReplicationEnabled": True,
            "totalBookiesCount": 2,
            "writableBookiesCount": 1,
            "readonlyBookiesCount": 0,
            "unavailableBookiesCount": 1,
        },
    )


async def test_auto_recovery(cluster: Cluster) -> None:
    http = cluster.http
    assert await http.get(f"{RECOVERY}/status") == (200, {"enabled": True})
    assert await http.put(f"{RECOVERY}/status?enabled=false") == (200, {"enabled": False})
    assert await cluster.store.exists(paths.replication_disabled()) is not None
    assert await http.put(f"{RECOVERY}/status?enabled=true") == (200, {"enabled": True})
    assert (await http.put(f"{RECOVERY}/status"))[0] == 400
    assert (await http.get(f"{RECOVERY}/who_is_auditor"))[0] == 404
    assert (await http.put(f"{RECOVERY}/trigger_audit"))[0] == 200
    assert (await cluster.store.get(paths.lost_bookie_delay())).data == b"0"
    delay = f"{RECOVERY}/lost_bookie_recovery_delay"
    assert (await http.put(delay, {"delay_seconds": 30}))[0] == 200
    assert (await http.put(delay, {"delay_seconds": -1}))[0] == 400
    assert await http.get(delay) == (200, {"lostBookieRecoveryDelay": 30})


async def test_marked_ledgers(cluster: Cluster) -> None:
    http, path = cluster.http, f"{RECOVERY}/list_under_replicated_ledger"
    assert (await http.get(path))[0] == 404
    await mark_under_replicated(cluster.store, LedgerId(5), [BookieId("a:1")])
    await mark_under_replicated(cluster.store, LedgerId(4), [BookieId("b:1")])
    assert await http.get(path) == (200, [4, 5])
    assert await http.get(f"{path}?missingreplica=a:1") == (200, [5])
    assert await http.get(f"{path}?excludingmissingreplica=a:1") == (200, [4])
    assert await http.get(f"{path}?print_missing_replica=true") == (
        200,
        {"4": ["b:1"], "5": ["a:1"]},
    )


async def test_recovering_a_lost_bookie_is_begun_and_ends_with_its_cookie(
    cluster: Cluster,
) -> None:
    http, gone = cluster.http, paths.cookie(BookieId("gone:1"))
    await cluster.store.create(gone, make_parents=True)
    body = {"bookie_src": ["gone:1"], "delete_cookie": True}
    assert (await http.put(f"{RECOVERY}/bookie", {"bookie_src": "gone:1"}))[0] == 400
    assert (await http.put(f"{RECOVERY}/bookie", body))[0] == 200
    async with asyncio.timeout(5):
        while await cluster.store.exists(gone) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_decommissioning_a_lost_bookie_is_begun_and_ends_with_its_cookie(
    cluster: Cluster,
) -> None:
    http, gone = cluster.http, paths.cookie(BookieId("gone:1"))
    await cluster.store.create(gone, make_parents=True)
    assert (await http.put(f"{RECOVERY}/decommission", {}))[0] == 400
    assert (await http.put(f"{RECOVERY}/decommission", {"bookie_src": "gone:1"}))[0] == 200
    async with asyncio.timeout(5):
        while await cluster.store.exists(gone) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_decommissioning_that_cannot_be_is_told_by_the_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await cluster.http.put(f"{RECOVERY}/decommission", {"bookie_src": "b1"}))[0] == 200
    async with asyncio.timeout(5):
        while "bookie b1 is running: stop it first" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
