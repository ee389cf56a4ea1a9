"""`quire up --secure`: nobody gets anything without TLS and a login, and who has both does."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from client.errors import UnauthorizedAccess
from client.ids import BookieId, EntryId, LedgerId
from client.kafka_security import read_properties
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookies import Bookies
from client.ledger.config import LedgerClientConfig
from client.ledger.standalone import connect
from client.metadata.zookeeper import ZooKeeperStore
from client.security.cluster_security import read_cluster_security
from client.spark.ledgers.ledger_access import LedgerAccess
from client.wire.bookkeeper.messages import LAST_ENTRY, ReadRequest
from ops.ports import pick_free
from tests.integration.cluster import ROOT, LocalCluster, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secure")
    with LocalCluster(folder, bookies=1, brokers=2, flags=("--secure",)) as made:
        yield made


def settings(cluster: LocalCluster) -> dict[str, Any]:
    found = read_properties(Path(cluster.about["client_config"]))
    return {"bootstrap.servers": cluster.bootstrap_servers, **found}


def quire(
    cluster: LocalCluster, *words: str, secured: bool = True
) -> subprocess.CompletedProcess[str]:
    folder = cluster.data / "security"
    environ = {**os.environ, "QUIRE_BOOTSTRAP": cluster.bootstrap_servers}
    if secured:
        environ |= {
            "QUIRE_CLUSTER_CONFIG": cluster.about["cluster_config"],
            "QUIRE_CLIENT_CONFIG": str(cluster.about["client_config"]),
            "QUIRE_ADMIN_CA": str(folder / "ca.pem"),
            "QUIRE_ADMIN_TOKEN": (folder / "admin.token").read_text().strip(),
            "QUIRE_USER_PASSWORD": "that of anna",
        }
    command = [sys.executable, "-m", "ops.cli.main", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_records_and_transactions_go_through(cluster: LocalCluster) -> None:
    mine = settings(cluster)
    new = confluent_kafka.admin.NewTopic("orders", 6, 1)
    admin = AdminClient(mine)
    for done in admin.create_topics([new]).values():
        done.result(30)
    producer = confluent_kafka.Producer({**mine, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(60):
        producer.produce("orders", f"{number}".encode(), partition=number % 6)
    producer.commit_transaction(30)
    consumer = confluent_kafka.Consumer({**mine, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = {m.value() for _ in range(30) for m in consumer.consume(60, 1.0)}
    consumer.close()
    assert len(found) == 60


def test_commands_see_the_cluster_and_make_users(cluster: LocalCluster) -> None:
    brokers = quire(cluster, "broker", "list", "--json")
    assert brokers.returncode == 0, brokers.stderr
    assert len(json.loads(brokers.stdout)) == 2
    for words in (
        ("user", "create", "anna"),
        ("acl", "grant", "writer", "--user", "anna", "--topic", "orders"),
        ("quota", "set", "--user", "anna", "producer_byte_rate=1000000"),
    ):
        done = quire(cluster, *words)
        assert done.returncode == 0, done.stderr
    listed = quire(cluster, "acl", "list")
    assert "writer of topic 'orders'" in listed.stdout
    anna = {**settings(cluster), "sasl.username": "anna", "sasl.password": "that of anna"}
    errors: list[Any] = []
    producer = confluent_kafka.Producer(anna)
    for topic in ("orders", "other"):
        producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert sum(error is None for error in errors) == 1


def _of_the_handbook(*begin: str) -> list[list[str]]:
    """Return the handbook's commands about the registry that begin with these words."""
    page = (ROOT / "ops" / "handbook" / "SET_UP.md").read_text()
    section = page[page.index("## Schemas") :]
    lines = [line.split()[1:] for line in section.splitlines() if line.startswith("quire ")]
    return [words for words in lines if words[: len(begin)] == list(begin)]


def test_a_registry_needs_the_rights_of_the_handbook_and_no_more(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (user,) = _of_the_handbook("user", "create")
    rights = _of_the_handbook("acl", "add")
    ((option, _, *words),) = _of_the_handbook("--client-config")
    done = quire(cluster, *user)
    assert done.returncode == 0, done.stderr
    mine = {**read_properties(Path(cluster.about["client_config"])), "sasl.username": user[-1]}
    file = tmp_path / "registry.properties"
    mine["sasl.password"] = "that of anna"
    file.write_text("".join(f"{k}={v}\n" for k, v in mine.items()))
    port = pick_free(1)[0]
    command = [option, str(file), *words, "--port", str(port)]
    refused = quire(cluster, *command)
    assert refused.returncode == 1
    assert "_schemas" in refused.stderr and "Traceback" not in refused.stderr, refused.stderr
    for right in rights:
        done = quire(cluster, *right)
        assert done.returncode == 0, done.stderr
    environ = {**os.environ, "QUIRE_BOOTSTRAP": cluster.bootstrap_servers}
    with subprocess.Popen(
        [sys.executable, "-m", "ops.cli.main", *command], cwd=ROOT, env=environ
    ) as registry:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: _is_ready(url), "the registry")
            client = SchemaRegistryClient({"url": url})
            number = client.register_schema("orders-value", Schema('"string"', "AVRO"))
            assert client.get_schema(number).schema_str == '"string"'
        finally:
            registry.terminate()
    assert registry.returncode == 0


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2):
            return True
    except OSError:
        return False


def test_strangers_get_nothing(cluster: LocalCluster) -> None:
    assert quire(cluster, "topic", "list", secured=False).returncode == 1
    assert quire(cluster, "broker", "list", secured=False).returncode == 1
    wrong = AdminClient({**settings(cluster), "sasl.password": "wrong"})
    with pytest.raises(confluent_kafka.KafkaException):
        wrong.list_topics(timeout=3)


def test_bookies_and_zookeeper_are_closed(cluster: LocalCluster) -> None:
    there = ("--zookeeper", str(cluster.about["zookeeper"]))
    listed = quire(cluster, "ledger", "list", *there)
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) > 3
    assert quire(cluster, "ledger", "list", *there, secured=False).returncode == 1
    examined = quire(cluster, "doctor", "--all", *there)
    assert "TROUBLE" not in examined.stdout, examined.stdout
    bookie = str(cluster.about["bookies"][0]["id"])
    answers, owners = asyncio.run(_look(cluster, BookieId(bookie)))
    assert all(isinstance(each, UnauthorizedAccess) for each in answers), answers
    assert len(owners) > 20
    assert {owner for owner in owners.values() if owner != "world"} == {"quire"}
    assert [path for path, owner in owners.items() if owner == "world"] == ["/"]


def test_admin_ports_of_bookies_are_closed_and_commands_get_in(cluster: LocalCluster) -> None:
    row = cluster.about["bookies"][0]
    port, folder = row["admin"], cluster.data / "security"
    trusts = ssl.create_default_context(cafile=folder / "ca.pem")

    def status(path: str, token: str = "", method: str = "GET") -> int:
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", method=method)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=trusts, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/heartbeat", timeout=20)
    assert (status("/heartbeat"), status("/metrics")) == (200, 401)
    assert status("/metrics", (folder / "metrics.token").read_text().strip()) == 200
    state, gc = "/api/v1/bookie/state", "/api/v1/bookie/gc"
    assert status(state) == status(state, "wrong") == status(gc, method="PUT") == 401
    lines = (folder / "admin.tokens").read_text().splitlines()
    tokens = {role: token for _, role, token in map(str.split, lines)}
    assert status(state, tokens["look"]) == 200
    assert status(gc, tokens["look"], "PUT") == 403
    assert status(gc, tokens["operate"], "PUT") == 200
    there = (str(row["id"]), "--zookeeper", str(cluster.about["zookeeper"]))
    info = quire(cluster, "bookie", "info", *there, "--json")
    assert json.loads(info.stdout)["details"]["running"] is True, info.stderr
    assert quire(cluster, "topic", "create", "noted", "--replication-factor", "1").returncode == 0
    noted = quire(cluster, "cluster", "audit", "--json")
    items = json.loads(noted.stdout)["items"]
    assert any("noted" in one["what"] and one["user"] == "admin" for one in items), items
    assert quire(cluster, "cluster", "audit").returncode == 0
    scraped = json.loads((cluster.data / "prometheus.yml").read_text())["scrape_configs"]
    assert scraped[1]["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]
    assert {job["scheme"] for job in scraped} == {"https"}
    url = f"https://127.0.0.1:{cluster.about['brokers'][0]['admin']}/admin/v1/bookies"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {tokens['look']}"})
    with urllib.request.urlopen(request, context=trusts, timeout=20) as answer:
        (shown,) = json.load(answer)["items"]
    assert shown["disk_free_bytes"] > 0  # the broker asked the bookie


def test_programs_and_sparks_ledger_mode_read_ledgers(cluster: LocalCluster) -> None:
    """With the same file; `ledger.securityFile` names it."""
    file = Path(cluster.about["cluster_config"])
    zookeeper = str(cluster.about["zookeeper"])

    async def ledger_ids() -> list[LedgerId]:
        async with connect(zookeeper, security=read_cluster_security(file)) as ledgers:
            return [ledger_id async for ledger_id in ledgers.ledgers()]

    access = LedgerAccess(zookeeper, 200, str(file))
    read_entries = 0
    for ledger_id in asyncio.run(ledger_ids()):
        metadata = access.call(access.describe(ledger_id), 20)
        if access.call(access.last_confirmed(ledger_id, metadata), 20) >= 0:
            read_entries += bool(access.call(access.entry(ledger_id, metadata, 0), 20).payload)
    access.close()
    assert read_entries > 3


async def _look(cluster: LocalCluster, bookie: BookieId) -> tuple[list[Any], dict[str, str]]:
    """Ask a bookie in plain text; look up whose each node in ZooKeeper is."""
    security = read_cluster_security(Path(cluster.about["cluster_config"]))
    store = ZooKeeperStore(str(cluster.about["zookeeper"]), security=security)
    await store.start()
    bookies = Bookies(BookieDirectory(store, "/ledgers"), LedgerClientConfig())
    answers: list[Any] = []
    heard = asyncio.Event()
    requests = (
        ReadRequest(LedgerId(0), LAST_ENTRY, fence=True, master_key=bytes(20)),
        ReadRequest(LedgerId(0), EntryId(0)),
    )
    for request in requests:
        bookies.bookie(bookie).request(request, lambda _, answer: hear(answer))

    def hear(answer: Any) -> None:
        answers.append(answer)
        if len(answers) == len(requests):
            heard.set()

    async with asyncio.timeout(20):
        await heard.wait()
    bookies.close()
    owners: dict[str, str] = {}
    paths = ["/"]
    while paths:
        path = paths.pop()
        if path == "/zookeeper":
            continue  # the server's own
        lists = await asyncio.to_thread(store._client.get_acls, path)
        owners[path] = {"anyone": "world"}.get(
            lists[0][0].id.id, lists[0][0].id.id.partition(":")[0]
        )
        assert len(lists[0]) == 1, lists
        paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
    await store.close()
    return answers, owners


def test_secrets_are_in_files_of_their_owner_and_nowhere_else(cluster: LocalCluster) -> None:
    secrets = json.loads((cluster.data / "security" / "passwords.json").read_text())
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        assert not any(secret.encode() in line for secret in secrets.values()), process
    holders = set()
    for path in cluster.data.rglob("*"):
        if path.is_file() and any(one.encode() in path.read_bytes() for one in secrets.values()):
            holders.add(path.suffix)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert holders == {".json", ".properties", ".token", ".tokens", ".toml"}
    described = quire(cluster, "broker", "config", "0")
    assert described.returncode == 0, described.stderr
    assert not any(secret in described.stdout for secret in secrets.values())


def test_the_next_start_goes_on_with_the_same(cluster: LocalCluster) -> None:
    before = (cluster.data / "security" / "passwords.json").read_text()
    from ops.local.local_security import LocalSecurity

    LocalSecurity(cluster.data).prepare()
    assert (cluster.data / "security" / "passwords.json").read_text() == before
