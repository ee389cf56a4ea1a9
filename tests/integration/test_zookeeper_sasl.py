"""Logins by SASL at a real ZooKeeper: whose the nodes are, who is refused, and what that costs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from client.errors import AuthFailed, ConnectionLoss, MetadataError
from client.ledger.standalone import connect
from client.metadata.store import Create, SessionState
from client.metadata.zookeeper import ZooKeeperStore, protect
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity, read_cluster_security
from client.spark.ledgers.ledger_access import LedgerAccess
from ops.local.cluster import LocalCluster, LocalConfig, Programs
from ops.local.local_security import ADMIN, LocalSecurity
from ops.ports import pick_free_runs
from tests.integration.cluster import ROOT, RealZooKeeper
from tests.integration.lone_bookie import BookieProcess
from tests.integration.test_zookeeper_store import ZooKeeperLab
from tests.unit.client.metadata.contract import Recorder

PASSWORD = "secret of ours"
LONG_MS = 60_000
"""Nobody waits so long for a refusal."""
ROOTS = ("/ledgers", "/quire")
"""Where a cluster keeps what it knows: bookies, and brokers."""


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


async def told_to_log_in(server: RealZooKeeper) -> None:
    """Ask a server that serves only who logs in, without a login. It closes the connection behind
    its answer, which at times is lost with it."""
    nobody = await opened(server, OPEN_CLUSTER)
    async with asyncio.timeout(60):
        while True:
            try:
                await nobody.children("/")
            except ConnectionLoss:
                continue
            except AuthFailed as error:
                assert "zookeeper_scheme" in str(error)
                break
            raise AssertionError("it was served")
    await nobody.close()


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


def enforcing(folder: Path) -> RealZooKeeper:
    """Start a server that wants logins before anything else."""
    server = RealZooKeeper(folder, jaas=write_users(folder, quire=PASSWORD))
    with (folder / "zoo.cfg").open("a") as file:
        file.write("enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n")
    server.start()
    return server


async def test_a_password_that_is_changed_ends_the_session_until_it_is_back(tmp_path: Path) -> None:
    """Restarts of the server are no refusal."""
    server = enforcing(tmp_path)
    try:
        store = await opened(server, OURS, session_timeout_ms=1_500)
        await store.create("/kept", b"x")
        await told_to_log_in(server)
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


class SaslLinks(LocalSecurity):
    """What `quire up --secure` makes, at a ZooKeeper where programs log in."""

    scheme: Any = "sasl"

    def cluster_security(self) -> ClusterSecurity:
        """Return how the cluster's programs reach bookies and ZooKeeper."""
        return dataclasses.replace(
            super().cluster_security(), zookeeper_password=PASSWORD, zookeeper_scheme=self.scheme
        )


class Told:
    """What a supervisor said of processes that died."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def begin(self, what: str) -> None:
        """A step starts."""

    def done(self, what: str) -> None:
        """It is over."""

    def warn(self, text: str, lines: Any = ()) -> None:
        """Keep what went wrong."""
        self.warnings += [text, *lines]


class Running:
    """A bookie and two brokers, in processes of their own, and a client of theirs."""

    def __init__(self, cluster: LocalCluster, told: Told) -> None:
        assert cluster.security is not None
        self.cluster, self.told = cluster, told
        self.settings: dict[str, Any] = cluster.security.properties(ADMIN) | {
            "bootstrap.servers": str(cluster.describe()["bootstrap_servers"])
        }

    def broker_pid(self, index: int) -> int:
        """Return the process id of a broker at the moment."""
        brokers: Any = self.cluster.describe()["brokers"]
        return int(brokers[index]["pid"])

    def publish(self, topic: str, *values: str) -> None:
        """Publish to every partition in turn, and wait until all are there."""
        producer = Producer(self.settings | {"enable.idempotence": True})
        failures: list[Any] = []
        for i, value in enumerate(values):
            producer.produce(
                topic, value, partition=i % 2, on_delivery=lambda error, _: failures.append(error)
            )
        assert producer.flush(120) == 0 and not any(failures), failures

    def create(self, topic: str) -> None:
        """Create a topic of two partitions."""
        admin = AdminClient(self.settings)  # its futures fail once it is gone
        admin.create_topics([NewTopic(topic, 2)], request_timeout=60)[topic].result()

    def read(self, topic: str, count: int, group: str) -> list[str]:
        """Read so many values as a group, and commit."""
        consumer = Consumer(self.settings | {"group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found: list[str] = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None, found
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append((message.value() or b"").decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return sorted(found)


@asynccontextmanager
async def whole_cluster(config: LocalConfig, scheme: Any) -> AsyncIterator[Running]:
    def make_security(config: LocalConfig) -> LocalSecurity:
        made = SaslLinks(config.data, has_zookeeper=False)
        made.scheme = scheme
        made.prepare()
        return made

    told = Told()
    cluster = LocalCluster(config, told, Programs(), make_security)
    try:
        await cluster.start()
        yield Running(cluster, told)
    finally:
        await cluster.stop()
    assert PASSWORD not in "".join(told.warnings)


async def all_owners(store: ZooKeeperStore) -> set[tuple[str, ...]]:
    """Return who owns the nodes of a cluster, bookies' and brokers'."""
    found, ahead = set(), list(ROOTS)
    while ahead:
        path = ahead.pop()
        found.add(tuple(await owners(store, path)))
        ahead += [f"{path}/{name}" for name in await store.children(path)]
    return found


@pytest.mark.timeout(300)
async def test_whole_clusters_as_both_and_then_by_sasl(tmp_path: Path) -> None:
    """Brokers and bookies at a server that serves nobody else: they publish, lose and regain the
    server, take over from each other, and go from one scheme to the other."""
    server = enforcing(tmp_path)
    kafka, bookie, admin = pick_free_runs(2, 1, 101)
    config = LocalConfig(
        data=tmp_path / "data", bookies=1, brokers=2, secure=True, zookeeper=server.hosts,
        kafka_port=kafka, bookie_port=bookie, admin_port=admin,
    )  # fmt: skip
    try:
        async with whole_cluster(config, "both") as both:
            await asyncio.to_thread(both.create, "old")
            await asyncio.to_thread(both.publish, "old", "a", "b", "c")
            store = await opened(server, BOTH)
            assert await all_owners(store) == {("digest:quire", "sasl:quire")}
            await store.close()
            assert not both.told.warnings
        async with whole_cluster(config, "sasl") as running:
            store = await opened(server, OURS)
            for root in ROOTS:
                assert await protect(store, root) > 1
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(running.create, "new")
            await asyncio.to_thread(running.publish, "new", "d", "e")
            assert await all_owners(store) == {("sasl:quire",)}
            assert not running.told.warnings, "a new login is no reason to end"
            os.kill(running.broker_pid(0), signal.SIGKILL)
            await asyncio.to_thread(running.publish, "new", "f", "g")
            read = await asyncio.to_thread(running.read, "new", 4, "readers")
            assert read == ["d", "e", "f", "g"]
            assert await asyncio.to_thread(running.read, "old", 3, "readers") == ["a", "b", "c"]
            assert await all_owners(store) == {("sasl:quire",)}
            await store.close()
        await told_to_log_in(server)
    finally:
        server.kill()
    for log in config.data.glob("*.log"):
        assert PASSWORD not in log.read_text()


@pytest.mark.parametrize("program", ["bookie", "broker"])
async def test_programs_with_a_wrong_password_end_with_a_sentence(
    server: RealZooKeeper, tmp_path: Path, program: str
) -> None:
    settings = tmp_path / "wrong.toml"
    settings.write_text(
        f'zookeeper = ["{server.hosts}"]\n'
        f"port = 0\nadmin_port = 0\n"
        + (f'data_dir = "{tmp_path / "data"}"\nhost = "127.0.0.1"\n' * (program == "bookie"))
        + ("node_id = 1\n" * (program == "broker"))
        + '[cluster_security]\nzookeeper_scheme = "sasl"\nzookeeper_user = "quire"\n'
        'zookeeper_password = "guess"\n'
    )
    command = [sys.executable, "-m", program, "--config", str(settings)]
    ended = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode not in (0, None), ended.stderr
    said = ended.stdout + ended.stderr
    assert "zookeeper_password" in said, said
    assert "Traceback" not in said and "guess" not in said
