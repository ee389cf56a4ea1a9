"""/cluster, /brokers and /bookies: who is there and how it is."""

from __future__ import annotations

from importlib.metadata import version

from aiohttp import web

from broker.admin.server import AdminServer
from broker.config import BrokerConfig
from client.config import resolve
from client.ids import BookieId, LedgerId
from client.ledger.under_replication import mark_under_replicated
from client.metadata import paths
from client.wire.bookkeeper import protobuf
from tests.fakes.admin import AdminCloud, until
from tests.fakes.broker import FakeCloud


async def test_the_cluster_at_a_glance() -> None:
    async with AdminCloud(2) as cloud:
        await cloud.send("PUT", "/topics/t", {"partition_count": 4}, status=201)
        await cloud.led("t")
        for at in (1, 2):
            cluster = await cloud.get("/cluster", at=at)
            assert cluster["answered_by"] == at
            assert cluster["cluster_id"] == cloud.brokers[1].cluster.cluster_id
            assert cluster["brokers"] == {
                "live": 2, "unloaded": [], "not_ready": [], "silent": {},
            }  # fmt: skip
            assert cluster["partitions"] == {"count": 4, "led": 4}
            assert cluster["bookies"] == {"writable": 0, "read_only": 0, "down": 3}
            assert (cluster["topics"], cluster["groups"]) == (1, 0)


async def test_brokers_in_pages() -> None:
    async with AdminCloud(3) as cloud:
        first = await cloud.get("/brokers?limit=2")
        rest = await cloud.get(f"/brokers?limit=2&after={first['next']}")
        rows = first["items"] + rest["items"]
        assert [row["broker_id"] for row in rows] == [1, 2, 3]
        assert all(row["live"]["is_ready"] for row in rows)
        assert all(row["live"]["version"] == version("quire") for row in rows)
        assert rest["next"] is None
        assert rows[1]["admin_url"] == cloud.admins[2].url


async def test_settings_with_their_sources() -> None:
    cloud = FakeCloud()
    resolved = resolve(
        BrokerConfig,
        env_prefix="Q_",
        environ={"Q_ADMIN_TOKEN": "s3cret", "Q_LEDGER_PASSWORD": ""},
        flags={"port": "0", "admin_port": "0"},
    )
    broker = await cloud.start_broker(1)
    admin = AdminServer(resolved.config, broker, resolved.sources)
    await admin.start()
    test = AdminCloud(0)
    async with test:
        test.admins[1] = admin
        headers = {"Authorization": "Bearer s3cret"}
        config = await test.get("/brokers/1/config", headers=headers)
        rows = {row["name"]: row for row in config["settings"]}
        assert (rows["port"]["value"], rows["port"]["source"]) == (0, "--port")
        assert rows["node_id"]["source"] == "default"
        assert rows["admin_token"]["value"] == "(hidden)"
        assert rows["admin_token"]["source"] == "Q_ADMIN_TOKEN"
        assert rows["zookeeper"]["value"] == ["127.0.0.1:2181"]
        assert rows["port"]["doc"]
    await cloud.close()


def registration(port: int, admin_port: int | None = None, rack: str = "") -> bytes:
    info = protobuf.BookieServiceInfoFormat()
    info.endpoints.add(id="bookie", port=port, host="127.0.0.1", protocol="bookie-rpc")
    if admin_port is not None:
        info.endpoints.add(id="httpserver", port=admin_port, host="127.0.0.1", protocol="http")
    if rack:
        info.properties.add(key="rack", value=rack)
    data: bytes = info.SerializeToString()
    return data


async def test_bookies_with_state_and_disk() -> None:
    tokens: list[str | None] = []

    async def info(request: web.Request) -> web.Response:
        tokens.append(request.headers.get("Authorization"))
        return web.json_response({"freeSpace": 5, "totalSpace": 9})

    app = web.Application()
    app.router.add_get("/api/v1/bookie/info", info)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with AdminCloud(admin_token="s3cret") as cloud:
        store = cloud.cloud.tree.session()
        await store.create(paths.available_bookie(BookieId("b0")), registration(4000, port, "/r1"),
                           make_parents=True)  # fmt: skip
        await store.create(paths.readonly_bookie(BookieId("b1")), registration(4001, 1),
                           make_parents=True)  # fmt: skip
        await store.create(paths.available_bookie(BookieId("stray")), b"")
        headers = {"Authorization": "Bearer s3cret"}
        rows = (await cloud.get("/bookies", headers=headers))["items"]
        assert [(row["bookie_id"], row["state"]) for row in rows] == [
            ("b0", "writable"), ("b1", "read_only"), ("b2", "down"), ("stray", "writable"),
        ]  # fmt: skip
        assert rows[2]["registered_ms"] is None
        assert rows[0]["registered_ms"] >= 0
        assert rows[0] | {"registered_ms": 5} == {
            "bookie_id": "b0", "state": "writable", "address": "127.0.0.1:4000", "rack": "/r1",
            "admin_url": f"http://127.0.0.1:{port}", "registered_ms": 5,
            "disk_free_bytes": 5, "disk_total_bytes": 9,
        }  # fmt: skip
        assert (rows[1]["address"], rows[1]["disk_free_bytes"]) == ("127.0.0.1:4001", None)
        assert rows[2]["address"] is rows[3]["address"] is None
        # The brokers' token is nothing for bookies to know.
        assert tokens == [None]
        page = await cloud.get("/bookies?limit=2&after=b0", headers=headers)
        assert [row["bookie_id"] for row in page["items"]] == ["b1", "b2"]
        assert page["next"] == "b2"
        assert await cloud.get("/bookies/b0", headers=headers) == rows[0]
        problem = await cloud.get("/bookies/b9", headers=headers, status=404)
        assert problem["type"] == "urn:quire:problem:unknown-bookie"
        cluster = await cloud.get("/cluster", headers=headers)
        assert cluster["bookies"] == {"writable": 2, "read_only": 1, "down": 1}
    await runner.cleanup()


async def test_ledgers_that_lack_copies_in_pages() -> None:
    async with AdminCloud() as cloud:
        assert await cloud.get("/under-replication") == {"items": [], "next": None}
        store = cloud.cloud.tree.session()
        ids = [3, 70_000, 2**40 + 1, 2**62]
        for ledger_id in reversed(ids):
            await mark_under_replicated(store, LedgerId(ledger_id), [BookieId("b1")], now_ms=7)
        first = await cloud.get("/under-replication?limit=3")
        rest = await cloud.get(f"/under-replication?limit=3&after={first['next']}")
        rows = first["items"] + rest["items"]
        assert rows == [
            {
                "ledger_id": one, "topic": None, "partition": None, "bookies": ["b1"],
                "since_ms": 7,
            }
            for one in ids
        ]  # fmt: skip
        assert rest["next"] is None


async def test_a_ledger_that_lacks_copies_is_named_by_its_partition() -> None:
    async with AdminCloud() as cloud:
        await cloud.send("PUT", "/topics/t", {"partition_count": 2}, status=201)
        await cloud.led("t")
        path = "/topics/t/partitions/1/segments"
        (segment,) = (await cloud.get(path))["items"]
        await mark_under_replicated(
            cloud.cloud.tree.session(), LedgerId(segment["ledger_id"]), [BookieId("b1")]
        )
        (row,) = (await cloud.get("/under-replication"))["items"]
        assert (row["topic"], row["partition"]) == ("t", 1)
        await cloud.send("DELETE", "/topics/t", status=204)
        await until(lambda: "t" not in cloud.brokers[1].cluster.topics)
        rows = (await cloud.get("/under-replication"))["items"]
        assert all(row["topic"] is None for row in rows)
