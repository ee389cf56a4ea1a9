"""Logins by SASL at a real ZooKeeper: whose the nodes are, who is refused, and what that costs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.errors import AuthFailed, ConnectionLoss, MetadataError
from client.ledger.standalone import connect
from client.metadata.store import Create, SessionState
from client.metadata.zookeeper import ZooKeeperStore, protect
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity, read_cluster_security
from client.spark.ledgers.ledger_access import LedgerAccess
from tests.integration.cluster import ROOT, RealZooKeeper
from tests.integration.lone_bookie import BookieProcess
from tests.integration.test_zookeeper_store import ZooKeeperLab
from tests.unit.client.metadata.contract import Recorder

PASSWORD = "secret of ours"
LONG_MS = 60_000
"""Nobody waits so long for a refusal."""


def user(name: str = "quire", password: str = PASSWORD, scheme: Any = "sasl") -> ClusterSecurity:
    return ClusterSecurity(
        zookeeper_user=name, zookeeper_password=password, zookeeper_scheme=scheme
    )


OURS, DIGEST, BOTH = user(), user(scheme="digest"), user(scheme="both")


def write_users(folder: Path, **passwords: str) -> Path:
    """Write a JAAS file with the users of a server."""
    path = folder / "jaas.conf"
    rows = "".join(f'\n  user_{name}="{password}"' for name, password in passwords.items())
    path.write_text(
        f"Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required{rows};\n}};\n",
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    folder = tmp_path_factory.mktemp("sasl")
    users = {"quire": PASSWORD, "another": "x", "Jörg": "wörter", "wide": "fünf €"}
    made = RealZooKeeper(folder, jaas=write_users(folder, **users))
    made.start()
    yield made
    made.kill()


async def opened(
    server: RealZooKeeper, security: ClusterSecurity, session_timeout_ms: int = 10_000
) -> ZooKeeperStore:
    store = ZooKeeperStore(
        server.hosts,
        security=security,
        start_timeout_ms=LONG_MS,
        session_timeout_ms=session_timeout_ms,
    )
    await store.start()
    return store


async def owners(store: ZooKeeperStore, path: str) -> list[str]:
    """Return who may do all to a node; nobody else may do anything."""
    found, _ = await store._call(path, lambda: store._client.get_acls_async(path))
    assert all(each.perms == 31 for each in found)
    return sorted(f"{each.id.scheme}:{each.id.id.partition(':')[0]}" for each in found)


async def refused(store: ZooKeeperStore, path: str) -> None:
    with pytest.raises(MetadataError, match="zookeeper_scheme"):
        await store.get(path)
    with pytest.raises(MetadataError, match="zookeeper_scheme"):
        await store.set(path, b"")


async def told_to_log_in(store: ZooKeeperStore) -> None:
    """Ask a server that serves only who logs in. It closes the connection behind its answer, which
    at times is lost with it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.children("/")
            except ConnectionLoss:
                continue
            except AuthFailed as error:
                assert "zookeeper_scheme" in str(error)
                return
            raise AssertionError("it was served")


async def test_nodes_belong_to_who_logged_in(server: RealZooKeeper) -> None:
    ours = await opened(server, OURS)
    await ours.create("/ours/deep", b"secret", make_parents=True)
    await ours.multi([Create("/ours/one"), Create("/ours/two")])
    for path in ("/ours", "/ours/deep", "/ours/one", "/ours/two"):
        assert await owners(ours, path) == ["sasl:quire"]
    for security in (OPEN_CLUSTER, DIGEST, user("another", "x")):
        other = await opened(server, security)
        await refused(other, "/ours/deep")
        await other.close()
    assert (await ours.get("/ours/deep")).data == b"secret"
    await ours.close()


@pytest.mark.parametrize(("name", "password"), [("Jörg", "wörter"), ("wide", "fünf €")])
async def test_names_and_passwords_beyond_ascii(
    server: RealZooKeeper, name: str, password: str
) -> None:
    store = await opened(server, user(name, password))
    await store.create(f"/of-{name}", b"x")
    assert (await store.get(f"/of-{name}")).data == b"x"
    await store.close()


@pytest.mark.parametrize("security", [user(password="guess"), user("nobody"), user("Quire")])
async def test_a_wrong_password_is_refused_at_once(
    server: RealZooKeeper, security: ClusterSecurity, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AuthFailed, match="zookeeper_password") as refusal:
        await asyncio.wait_for(opened(server, security), LONG_MS / 2000)
    for text in (str(refusal.value), caplog.text):
        assert "guess" not in text and PASSWORD not in text


async def test_a_server_without_sasl_says_so(zookeeper: RealZooKeeper) -> None:
    with pytest.raises(AuthFailed, match=r"a JAAS file .*zookeeper_scheme to digest"):
        await asyncio.wait_for(opened(zookeeper, OURS), LONG_MS / 2000)


async def test_from_digest_to_sasl(server: RealZooKeeper) -> None:
    """All programs as both, then the nodes, then all programs by SASL, then the nodes again."""
    before = await opened(server, DIGEST)
    await before.create("/moved/a", make_parents=True)
    between = await opened(server, BOTH)
    await between.create("/moved/b")
    assert await before.children("/moved") == ["a", "b"]
    assert await owners(between, "/moved/b") == ["digest:quire", "sasl:quire"]
    assert await protect(between, "/moved") == 3
    after = await opened(server, OURS)
    await after.create("/moved/c")
    assert await between.children("/moved") == ["a", "b", "c"]
    assert await owners(after, "/moved/a") == ["digest:quire", "sasl:quire"]
    assert await protect(after, "/moved") == 4
    assert await owners(after, "/moved/a") == ["sasl:quire"]
    await refused(before, "/moved/a")
    for store in (before, between, after):
        await store.close()


async def test_a_new_connection_logs_in_again(server: RealZooKeeper) -> None:
    lab = ZooKeeperLab(server, "/cut", OURS, 10_000)
    store = await lab.session()
    await store.create("/cut/mine", b"x", ephemeral=True, make_parents=True)
    session = store.session_id
    await lab.cut(store)
    states = Recorder()
    store.add_session_listener(states)
    await lab.heal(store)
    await states.said(SessionState.CONNECTED)
    assert (await store.get("/cut/mine")).data == b"x"
    assert store.session_id == session
    await lab.close()


async def test_a_password_that_is_changed_ends_the_session_until_it_is_back(tmp_path: Path) -> None:
    """The server wants logins before anything else; and restarts of it are no refusal."""
    server = RealZooKeeper(tmp_path, jaas=write_users(tmp_path, quire=PASSWORD))
    with (tmp_path / "zoo.cfg").open("a") as file:
        file.write("enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n")
    server.start()
    try:
        store = await opened(server, OURS, session_timeout_ms=1_500)
        await store.create("/kept", b"x")
        nobody = await opened(server, OPEN_CLUSTER)
        await told_to_log_in(nobody)
        await nobody.close()
        states = Recorder()
        store.add_session_listener(states)
        server.kill()
        await states.said(SessionState.SUSPENDED)
        write_users(tmp_path, quire="another")
        server.start()
        await states.said(SessionState.EXPIRED)
        server.kill()
        write_users(tmp_path, quire=PASSWORD)
        server.start()
        await states.said(SessionState.CONNECTED)
        assert (await store.get("/kept")).data == b"x"
        await store.close()
    finally:
        server.kill()


def quire(server: RealZooKeeper, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    flags = ("--zookeeper", server.hosts, "--cluster-config", str(config))
    command = [sys.executable, "-m", "ops.cli.main", *words, *flags]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


async def test_commands_bookies_programs_and_spark_take_the_same_settings(
    server: RealZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, wrong = tmp_path / "ours.toml", tmp_path / "wrong.toml"
    for path, password in ((ours, PASSWORD), (wrong, "guess")):
        path.write_text(
            '[cluster_security]\nzookeeper_scheme = "sasl"\nzookeeper_user = "quire"\n'
            f'zookeeper_password = "{password}"\n'
        )
    refused = await asyncio.to_thread(quire, server, wrong, "metadata", "init")
    assert refused.returncode == 1 and "zookeeper_password" in refused.stderr
    assert "quire up" not in refused.stderr and "guess" not in refused.stderr
    made = await asyncio.to_thread(quire, server, ours, "metadata", "init")
    assert made.returncode == 0, made.stderr
    for name, value in (("USER", "quire"), ("PASSWORD", PASSWORD), ("SCHEME", "sasl")):
        monkeypatch.setenv(f"QUIRE_BOOKIE_CLUSTER_SECURITY_ZOOKEEPER_{name}", value)
    bookie = BookieProcess(tmp_path, server.hosts, "/ledgers")
    bookie.start()
    try:
        (await bookie.connect()).transport.close()
        store = await opened(server, OURS)
        here = f"/ledgers/available/127.0.0.1:{bookie.port}"
        async with asyncio.timeout(30):
            registered = asyncio.Event()
            while await store.exists(here, registered.set) is None:
                await registered.wait()
                registered.clear()
        assert await owners(store, here) == ["sasl:quire"]
        await store.close()
        async with connect(server.hosts, security=read_cluster_security(ours)) as ledgers:
            writer = await ledgers.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
            await writer.append(b"x")
            await writer.close()
        access = LedgerAccess(server.hosts, 200, str(ours))
        metadata = await asyncio.to_thread(access.call, access.describe(writer.ledger_id), 20)
        assert metadata.last_entry == 0
        await asyncio.to_thread(access.close)
    finally:
        bookie.signal(signal.SIGKILL)
    assert PASSWORD not in bookie.log_path.read_text()
