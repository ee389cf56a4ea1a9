"""The kazoo store on a real server keeps the same contract as the in-memory one."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from client.errors import MetadataError
from client.metadata.bookkeeper import LAYOUT, init_bookkeeper, init_quire
from client.metadata.store import MetadataStore, SessionState
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from ops.ports import pick_free
from tests.integration.cluster import RealZooKeeper
from tests.integration.proxy import Proxy
from tests.unit.client.metadata.contract import Recorder, StoreContract

SESSION_TIMEOUT_MS = 1500


class ZooKeeperLab:
    """Each session has a link of its own to the server, so that it can be cut alone."""

    def __init__(
        self,
        server: RealZooKeeper,
        root: str,
        security: ClusterSecurity = OPEN_CLUSTER,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self._security = security
        self._session_timeout_ms = session_timeout_ms
        self.root = root
        self._server = server
        self._links: dict[MetadataStore, Proxy] = {}

    async def session(self) -> ZooKeeperStore:
        link = Proxy(self._server.port)
        await link.heal()
        store = ZooKeeperStore(
            f"127.0.0.1:{link.port}",
            session_timeout_ms=self._session_timeout_ms,
            security=self._security,
        )
        await store.start()
        self._links[store] = link
        return store

    async def expire(self, store: ZooKeeperStore) -> None:
        """Take the session over with its password, and end it."""

        def end_session() -> None:
            identity = (store._client._session_id, store._client._session_passwd)
            thief = KazooClient(
                self._server.hosts, client_id=identity, timeout=1.5, **self._kazoo_tls()
            )
            thief.start()
            thief.stop()
            thief.close()

        await asyncio.to_thread(end_session)

    def _kazoo_tls(self) -> dict[str, Any]:
        security = self._security
        if not security.zookeeper_tls:
            return {}
        return {
            "use_ssl": True,
            "ca": str(security.tls_ca),
            "certfile": str(security.tls_cert),
            "keyfile": str(security.tls_key),
        }

    async def cut(self, store: ZooKeeperStore) -> None:
        states = Recorder()
        store.add_session_listener(states)
        await self._links[store].cut()
        await states.said(SessionState.SUSPENDED)

    async def heal(self, store: ZooKeeperStore) -> None:
        await self._links[store].heal()

    async def close(self) -> None:
        for store, link in self._links.items():
            await link.heal()
            await store.close()
            await link.close()


@pytest.fixture
async def lab(
    zookeeper: RealZooKeeper, request: pytest.FixtureRequest
) -> AsyncIterator[ZooKeeperLab]:
    lab = ZooKeeperLab(zookeeper, f"/lab-{request.node.name}")
    admin = ZooKeeperStore(zookeeper.hosts)
    await admin.start()
    await admin.create(lab.root)
    await admin.close()
    yield lab
    await lab.close()


class TestZooKeeperStore(StoreContract):
    pass


async def test_a_thousand_operations_are_in_flight_at_once(lab: ZooKeeperLab) -> None:
    store = await lab.session()
    await asyncio.gather(*(store.create(f"{lab.root}/n{n:04d}") for n in range(1000)))
    assert len(await store.children(lab.root)) == 1000
    assert store.request_seconds.count == 1001
    assert store.request_seconds.total > 0


async def test_no_server_is_one_clear_sentence() -> None:
    port = pick_free(1)[0]
    store = ZooKeeperStore(("127.0.0.1:1", f"127.0.0.1:{port}"), start_timeout_ms=300)
    with pytest.raises(MetadataError) as caught:
        await store.start()
    assert str(caught.value) == (
        f"no ZooKeeper server answers at 127.0.0.1:1,127.0.0.1:{port} (waited 0.3 s)"
    )


async def test_the_session_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    server = RealZooKeeper(tmp_path)
    await asyncio.to_thread(server.start)
    try:
        store = ZooKeeperStore(server.hosts, session_timeout_ms=10_000)
        await store.start()
        states, watch = Recorder(), Recorder()
        store.add_session_listener(states)
        await store.create("/kept", b"x")
        await store.create("/mine", ephemeral=True)
        await store.get("/kept", watch)
        session_id = store.session_id
        await asyncio.to_thread(server.kill)
        await states.said(SessionState.SUSPENDED)
        await asyncio.to_thread(server.start)
        await states.said(SessionState.CONNECTED)
        await watch.seen(1)
        assert store.session_id == session_id, server.log_path.read_text()
        assert (await store.get("/kept")).data == b"x"
        assert await store.exists("/mine") is not None
        await store.close()
    finally:
        await asyncio.to_thread(server.kill)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_answer_that_nobody_expects_costs_the_session_and_no_more(
    lab: ZooKeeperLab,
) -> None:
    """kazoo's thread ends when an answer is not to the oldest request; `make chaos` saw that."""
    store = await lab.session()
    states = Recorder()
    store.add_session_listener(states)
    session_id = store.session_id
    handler = store._client.handler
    store._client._pending.append((None, handler.async_result(), 99))  # its answer never comes
    with pytest.raises(MetadataError):
        await store.exists("/")
    await states.said(SessionState.EXPIRED)
    async with asyncio.timeout(20):
        await states.said(SessionState.CONNECTED)
    assert store.session_id not in (0, session_id)
    assert await store.exists("/") is not None
    await store.close()


async def test_closing_while_the_server_is_gone_ends_soon(tmp_path: Path) -> None:
    server = RealZooKeeper(tmp_path)
    await asyncio.to_thread(server.start)
    store = ZooKeeperStore(server.hosts, session_timeout_ms=2_000)
    await store.start()
    await asyncio.to_thread(server.kill)
    async with asyncio.timeout(10):
        await store.close()
    assert (store.session_id, store.state) == (0, SessionState.EXPIRED)


async def test_a_cluster_is_made_once(lab: ZooKeeperLab) -> None:
    store = await lab.session()
    root = f"{lab.root}/nested/ledgers"
    first = await init_bookkeeper(store, rng=random.Random(1), root=root)
    assert await init_bookkeeper(store, rng=random.Random(2), root=root) == first
    assert (await store.get(f"{root}/LAYOUT")).data == LAYOUT
    cluster_id = await init_quire(store, rng=random.Random(1))
    assert await init_quire(store, rng=random.Random(2)) == cluster_id
    with contextlib.suppress(MetadataError):
        for path in ("brokers", "topics", "partitions", "cluster_id"):
            await store.delete(f"/quire/{path}")
        await store.delete("/quire")
