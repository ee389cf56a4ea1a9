"""Debezium, unmodified: Kafka Connect with its connector brings a PostgreSQL table's changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ops.child import LEASH
from ops.java import find_java
from ops.ports import pick_free
from tests.integration.clients import installed, traffic

TABLE = "CREATE TABLE orders (id int PRIMARY KEY, fruit text)"
ROWS = 50
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ACCOUNT = "postgres"
"""PostgreSQL does not run as root; Debian's package brings this account."""


class Database:
    """A PostgreSQL server of this test's own."""

    def __init__(self, folder: Path) -> None:
        (binaries, *_) = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True) or [None]
        assert binaries is not None, f"PostgreSQL is not installed: {installed.INSTALL}"
        self.port = pick_free(1)[0]
        self._bin, self._folder = binaries, folder
        self._as_account = ["runuser", "-u", _ACCOUNT, "--"] if os.getuid() == 0 else []

    def start(self) -> None:
        self._folder.mkdir(mode=0o700)
        if self._as_account:
            shutil.chown(self._folder, _ACCOUNT)
        data = self._folder / "data"
        self._run("initdb", "-D", data, "-U", "debezium", "--auth=trust", "--no-sync")
        options = f"-p {self.port} -k '' -h 127.0.0.1 -c wal_level=logical -c fsync=off"
        self._run("pg_ctl", "-D", data, "-w", "-o", options, "-l", data / "log", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._folder / "data", "-m", "immediate", "stop")

    def sql(self, *statements: str) -> None:
        given = [argument for one in statements for argument in ("-c", one)]
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "debezium", "-d", "postgres")
        self._run("psql", "-v", "ON_ERROR_STOP=1", "-q", *where, *given)

    def _run(self, name: str, *arguments: object) -> None:
        done = subprocess.run(
            [*self._as_account, str(self._bin / name), *map(str, arguments)],
            cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.fixture
def database() -> Iterator[Database]:
    """It lives below /tmp, where its account may go."""
    folder = Path(f"/tmp/quire-debezium-{os.getpid()}")
    made = Database(folder)
    made.start()
    yield made
    made.stop()
    shutil.rmtree(folder)


@contextmanager
def _connect(folder: Path, brokers: str, connector: dict[str, str]) -> Iterator[None]:
    """Run Kafka Connect with one connector; it keeps its offsets in a file."""
    worker = {
        "bootstrap.servers": brokers,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{pick_free(1)[0]}",
    }
    files = []
    for name, settings in (("worker", worker), ("connector", connector)):
        file = folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        files.append(str(file))
    lib = installed.folder("debezium/lib")
    with (folder / "connect.log").open("a") as log:
        program = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(LEASH), str(os.getpid())),
                *(str(find_java().path), *_JVM, "-cp", f"{lib}{os.sep}*"),
                *("org.apache.kafka.connect.cli.ConnectStandalone", *files),
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            program.kill()
            program.wait()


def test_rows_and_their_changes_arrive(
    bootstrap_servers: str, database: Database, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    prefix = fresh_name("shop")
    connector = {
        "name": prefix,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "debezium",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "table.include.list": "public.orders",
    }
    insert = f"INSERT INTO orders SELECT n, 'pear ' || n FROM generate_series(1, {ROWS}) n"
    database.sql(TABLE, insert)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": prefix})
    consumer.assign([TopicPartition(f"{prefix}.public.orders", 0, 0)])
    changes: list[tuple[str, Any]] = []

    def have(count: int) -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None and message.value():
            change = json.loads(message.value())
            changes.append((change["op"], (change["after"] or change["before"])["id"]))
        return len(changes) >= count

    with _connect(tmp_path, bootstrap_servers, connector):
        traffic.wait_for(lambda: have(ROWS), "the rows that were there")
        database.sql("UPDATE orders SET fruit = 'plum' WHERE id = 7")
        database.sql("DELETE FROM orders WHERE id = 8", "INSERT INTO orders VALUES (1000, 'fig')")
        traffic.wait_for(lambda: have(ROWS + 3), "changes")
    consumer.close()
    assert changes[:ROWS] == [("r", number) for number in range(1, ROWS + 1)]
    assert changes[ROWS:] == [("u", 7), ("d", 8), ("c", 1000)]
