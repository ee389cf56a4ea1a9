"""ZooKeeper with TLS, a user and access control lists: the store on a server that has all three."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from client.errors import AuthFailed, ConfigError, MetadataError
from client.metadata.store import Create, SetData
from client.metadata.zookeeper import ZooKeeperStore, may_write_alone, protect
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from ops import zookeeper
from tests.fakes import certificates
from tests.integration.cluster import RealZooKeeper
from tests.integration.test_zookeeper_sasl import PASSWORD, told_to_log_in, write_users
from tests.integration.test_zookeeper_store import ZooKeeperLab
from tests.unit.client.metadata.contract import StoreContract

USER = {"zookeeper_user": "quire", "zookeeper_password": "secret of ours"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.write(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def security(files: Path) -> ClusterSecurity:
    return ClusterSecurity(
        tls_ca=files / "authority.pem", tls_cert=files / "anna.pem", tls_key=files / "anna.key",
        zookeeper_tls=True, **USER,
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(
    files: Path, security: ClusterSecurity, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealZooKeeper]:
    tls = zookeeper.ServerTls(files / "broker.pem", files / "broker.key", files / "authority.pem")
    folder = tmp_path_factory.mktemp("secured")
    made = RealZooKeeper(folder, tls=tls, jaas=write_users(folder, quire=PASSWORD))
    made.start(security.contexts().get())
    yield made
    made.kill()


class TestSecuredStore(StoreContract):
    """The contract of every store, over TLS and as a user."""

    @pytest.fixture
    async def lab(
        self, server: RealZooKeeper, security: ClusterSecurity, request: pytest.FixtureRequest
    ) -> AsyncIterator[ZooKeeperLab]:
        lab = ZooKeeperLab(server, f"/lab-{abs(hash(request.node.name))}", security, 5_000)
        admin = ZooKeeperStore(server.hosts, security=security)
        await admin.start()
        await admin.create(lab.root)
        await admin.close()
        yield lab
        await lab.close()


async def opened(
    server: RealZooKeeper, security: ClusterSecurity, *, start_timeout_ms: int = 30_000
) -> ZooKeeperStore:
    store = ZooKeeperStore(server.hosts, security=security, start_timeout_ms=start_timeout_ms)
    await store.start()
    return store


async def test_others_may_do_nothing(
    server: RealZooKeeper, security: ClusterSecurity, files: Path
) -> None:
    """A certificate alone, and another user, are refused; so are a stranger and plain text."""
    store = await opened(server, security)
    await store.create("/ours/deep", b"secret", make_parents=True)
    await store.multi([Create("/ours/one"), Create("/ours/two")])
    tls = {"tls_ca": security.tls_ca, "tls_cert": security.tls_cert, "tls_key": security.tls_key}
    for who in ({}, {"zookeeper_user": "quire", "zookeeper_password": "guess"}):
        other = await opened(server, ClusterSecurity(zookeeper_tls=True, **tls, **who))
        for path in ("/ours", "/ours/deep", "/ours/one", "/ours/two"):
            with pytest.raises(MetadataError, match="zookeeper_user"):
                await other.get(path)
            with pytest.raises(MetadataError, match="zookeeper_user"):
                await other.set(path, b"")
            with pytest.raises(MetadataError, match="zookeeper_user"):
                await other.get_many([path])
            with pytest.raises(MetadataError, match="zookeeper_user"):
                await other.multi([SetData(path, b"")])
        with pytest.raises(MetadataError, match="zookeeper_user"):
            await other.create("/ours/more")
        await other.close()
    strangers = (
        ClusterSecurity(zookeeper_tls=True, tls_ca=security.tls_ca),
        ClusterSecurity(
            zookeeper_tls=True, tls_ca=security.tls_ca,
            tls_cert=files / "stranger.pem", tls_key=files / "stranger.key",
        ),
        ClusterSecurity(zookeeper_tls=True, tls_ca=files / "other.pem"),
        OPEN_CLUSTER,
    )  # fmt: skip
    for stranger in strangers:
        with pytest.raises(MetadataError, match="no ZooKeeper server answers"):
            await opened(server, stranger, start_timeout_ms=2_000)
    assert (await store.get("/ours/deep")).data == b"secret"
    await store.close()


async def test_a_login_by_sasl_inside_tls(server: RealZooKeeper, security: ClusterSecurity) -> None:
    ours = dataclasses.replace(security, zookeeper_password=PASSWORD, zookeeper_scheme="sasl")
    store = await opened(server, ours)
    await store.create("/logged-in", b"secret")
    other = await opened(server, security)
    with pytest.raises(MetadataError, match="zookeeper_scheme"):
        await other.get("/logged-in")
    assert (await store.get("/logged-in")).data == b"secret"
    for each in (store, other):
        await each.close()
    with pytest.raises(AuthFailed, match="zookeeper_password"):
        await opened(server, dataclasses.replace(ours, zookeeper_password="guess"))


async def test_large_answers_and_many_requests_at_once(
    server: RealZooKeeper, security: ClusterSecurity
) -> None:
    """More than a TLS record, and more than one read brings."""
    store = await opened(server, security)
    await store.create("/large", bytes(900_000))
    answers = await asyncio.gather(*(store.get("/large") for _ in range(20)))
    assert [len(each.data) for each in answers] == [900_000] * 20
    await asyncio.gather(*(store.create(f"/large/{i}", bytes(5_000)) for i in range(300)))
    assert len(await store.children("/large")) == 300
    await store.close()


async def test_an_open_tree_becomes_ours(zookeeper: RealZooKeeper) -> None:
    """A user and no lists, as long as some have no user; then the tree is closed."""
    without = await opened(zookeeper, OPEN_CLUSTER)
    await without.create("/opened/a", make_parents=True)
    half = await opened(zookeeper, ClusterSecurity(**USER, zookeeper_acl=False))
    await half.create("/opened/b")
    assert await without.children("/opened") == ["a", "b"]
    with pytest.raises(ConfigError, match="zookeeper_acl"):
        await protect(half, "/opened")
    ours = await opened(zookeeper, ClusterSecurity(**USER))
    assert not await may_write_alone(without, "/opened")
    assert await protect(ours, "/opened") == 3
    assert await may_write_alone(ours, "/opened")
    for path in ("/opened", "/opened/a", "/opened/b"):
        with pytest.raises(MetadataError, match="zookeeper_user"):
            await without.get(path)
    assert await half.children("/opened") == ["a", "b"]
    for store in (without, half, ours):
        await store.close()


async def test_a_server_that_wants_a_login_before_anything_else(tmp_path: Path) -> None:
    """Whatever node it is, and with the scheme digest, too."""
    server = RealZooKeeper(tmp_path)
    with (tmp_path / "zoo.cfg").open("a") as file:
        file.write("enforce.auth.enabled=true\nenforce.auth.schemes=digest\n")
    server.start()
    try:
        ours = await opened(server, ClusterSecurity(**USER))
        await ours.create("/ours", b"x")
        assert (await ours.get("/ours")).data == b"x"
        await ours.close()
        await told_to_log_in(server)
    finally:
        server.kill()
