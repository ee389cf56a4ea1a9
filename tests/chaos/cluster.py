"""Three ZooKeeper servers, five bookies and three brokers, each behind links of its own.

A node listens on one loopback address and is known by another, that of its link:

    bookie i   127.0.11.i    known as 127.0.12.i
    broker i   127.0.13.i    known as 127.0.14.i
    ZooKeeper  127.0.0.1     known to node n as 127.0.15.n
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from client.metadata.bookkeeper import init_bookkeeper, init_quire
from client.metadata.zookeeper import ZooKeeperStore
from ops.java import find_java
from ops.local.node_files import Value, bookie_settings, broker_settings, write_toml
from ops.ports import pick_free
from ops.probes import kafka_brokers
from ops.zookeeper import make_server
from tests.chaos.links import Address, Link, Links
from tests.chaos.nodes import Node
from tests.chaos.secured import ChaosSecurity
from tests.integration.cluster import wait_until

ZOOKEEPERS, BOOKIES, BROKERS = 3, 5, 3
SESSION_MS = 4_000
START_TIMEOUT_S = 90.0
_EVERYBODY: dict[str, Value] = {
    "security.authorization": True,
    "security.super_users": ["User:ANONYMOUS"],
}
"""Everybody may do everything, and operators may change access control lists."""


def _url_answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _zookeeper_answers(port: int, context: Callable[[], ssl.SSLContext] | None = None) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as plain:
            link = plain
            if context is not None:
                link = context().wrap_socket(plain, server_hostname="127.0.0.1")
            with link:
                link.sendall(b"srvr")
                return b"Mode:" in link.recv(4096)
    except OSError:
        return False


class Member(NamedTuple):
    """A bookie or broker, what leads to it, and what leads from it to the metadata store."""

    node: Node
    link: Link
    to_store: list[Link]
    data: Path


class ChaosCluster:
    """`start`, then break and heal it; `stop` leaves nothing behind."""

    def __init__(
        self,
        folder: Path,
        disk: Callable[[int], Path] | None = None,
        command_prefix: Callable[[str], list[str]] | None = None,
        *,
        is_secured: bool = False,
    ) -> None:
        """`disk(i)` names the data directory of bookie i; by default one below `folder`.

        `command_prefix(name)`: what to put before the command of a bookie or broker.
        `is_secured`: with TLS and logins on all links.
        """
        self.security = ChaosSecurity(folder, _addresses()) if is_secured else None
        """None: everything is open."""
        self.links = Links()
        self._folder = folder
        self._disk = disk or (lambda i: folder / f"bookie-{i}-data")
        self._command_prefix = command_prefix or (lambda name: [])
        self._ports = pick_free(2 + 3 * ZOOKEEPERS + BOOKIES + BROKERS)
        self._member_count = 0
        self.zookeepers = [self._make_zookeeper(i) for i in range(ZOOKEEPERS)]
        self.bookies = [self._make_bookie(i) for i in range(BOOKIES)]
        self.brokers = [self._make_broker(i) for i in range(BROKERS)]

    @property
    def members(self) -> list[Member]:
        """Bookies and brokers."""
        return [*self.bookies, *self.brokers]

    @property
    def bootstrap_servers(self) -> str:
        """For clients."""
        return ",".join(f"{b.link.near.host}:{b.link.near.port}" for b in self.brokers)

    @property
    def zookeeper(self) -> str:
        """The metadata store, for clients of ledgers: no fault is between them."""
        return ",".join(f"127.0.0.1:{port}" for port in self._store_ports)

    @property
    def _store_ports(self) -> list[int]:
        return self._ports[2 : 2 + ZOOKEEPERS]

    def start(self) -> None:
        """Start everything and wait until it serves."""
        for node in self.zookeepers:
            node.start()
        for node in self.zookeepers:
            node.wait_until_it_serves(START_TIMEOUT_S)
        asyncio.run(self._initialise())
        for member in self.members:
            member.node.start()
        for member in self.members:
            member.node.wait_until_it_serves(START_TIMEOUT_S)
        wait_until(self._are_listed, "clients to find every broker", START_TIMEOUT_S)
        if self.security is not None:
            self.security.make_users(*self.brokers[0].link.near)

    def _are_listed(self) -> bool:
        """Tell whether every broker, asked as clients ask, lists all of them."""
        if self.security is not None:
            answers = [self.security.known_brokers(*broker.link.near) for broker in self.brokers]
        else:
            answers = [asyncio.run(kafka_brokers(*broker.link.near)) for broker in self.brokers]
        return all(len(known) == BROKERS for known in answers)

    async def _initialise(self) -> None:
        hosts = [f"127.0.0.1:{port}" for port in self._store_ports]
        store = ZooKeeperStore(hosts) if self.security is None else self.security.store(hosts)
        await store.start()
        try:
            rng = random.SystemRandom()
            await init_bookkeeper(store, rng=rng)
            await init_quire(store, rng=rng)
        finally:
            await store.close()

    def heal(self) -> None:
        """Undo whatever was done, start whatever does not run."""
        self.links.do(lambda: [link.heal() for m in self.members for link in (m.link, *m.to_store)])
        for node in [*self.zookeepers, *(member.node for member in self.members)]:
            node.resume()
            node.start()

    def wait_until_whole(self, timeout_s: float) -> None:
        """Wait until every node serves, except brokers' partitions: those the clients judge."""
        for node in [*self.zookeepers, *(member.node for member in self.members)]:
            wait_until(lambda n=node: n.is_running and n.serves(), f"{node.name}", timeout_s)

    def stop(self) -> None:
        """kill -9 of everything."""
        for node in [*self.zookeepers, *(member.node for member in self.members)]:
            node.resume()
            node.kill()

    def _make_zookeeper(self, i: int) -> Node:
        clients, peers, votes = (self._ports[2 + part * ZOOKEEPERS :] for part in range(3))
        folder = self._folder / f"zookeeper-{i}"
        log_path = self._folder / f"zookeeper-{i}.log"
        tls = None if self.security is None else self.security.zookeeper_tls()
        child = make_server(find_java(), folder=folder, log_path=log_path, port=clients[i], tls=tls)
        (folder / "data").mkdir(exist_ok=True)
        (folder / "data" / "myid").write_text(f"{i + 1}\n")
        with (folder / "zoo.cfg").open("a") as config:
            config.write("initLimit=20\nsyncLimit=10\nquorumListenOnAllIPs=false\n")
            for n in range(ZOOKEEPERS):
                config.write(f"server.{n + 1}=127.0.0.1:{peers[n]}:{votes[n]}\n")
            if self.security is not None:
                config.write(self.security.zookeeper_config(folder))
        context = None if self.security is None else self.security.zookeeper_context
        serves = partial(_zookeeper_answers, clients[i], context)
        return Node(f"zookeeper-{i}", child.command, log_path, serves)

    def _links_to_store(self) -> list[Link]:
        self._member_count += 1
        host = f"127.0.15.{self._member_count}"
        near = [Address(host, port) for port in self._store_ports]
        return [self.links.make(one, Address("127.0.0.1", one.port)) for one in near]

    def _make_member(
        self,
        kind: str,
        i: int,
        nets: tuple[str, str],
        port: int,
        settings: Callable[[list[str]], dict[str, Value]],
        serves: Callable[[], bool],
    ) -> Member:
        name = f"{kind}-{i}"
        to_store = self._links_to_store()
        path = self._folder / f"{name}.toml"
        write_toml(path, settings([f"{link.near.host}:{link.near.port}" for link in to_store]))
        listens, known = (Address(f"127.0.{net}.{i + 1}", port) for net in nets)
        node = Node(
            name,
            [*self._command_prefix(name), sys.executable, "-m", kind, "--config", str(path)],
            self._folder / f"{name}.log",
            serves,
        )
        return Member(node, self.links.make(known, listens), to_store, self._disk(i))

    def _make_bookie(self, i: int) -> Member:
        port, admin = self._ports[0], self._ports[2 + 3 * ZOOKEEPERS + i]

        def settings(zookeeper: list[str]) -> dict[str, Value]:
            return (
                bookie_settings(
                    port=port,
                    admin_port=admin,
                    data_dir=self._disk(i),
                    zookeeper=zookeeper,
                    auto_recovery=True,
                )
                | {
                    "host": f"127.0.11.{i + 1}",
                    "advertised_host": f"127.0.12.{i + 1}",
                    "session_timeout_ms": SESSION_MS,
                    "log_file_bytes_max": 8 << 20,
                    "log_preallocate_bytes": 0,
                    "index_write_buffer_bytes": 64 << 10,  # a table every few seconds
                }
                | ({} if self.security is None else self.security.bookie_settings())
            )

        serves = self._admin_probe(admin, "/api/v1/bookie/is_ready", "bookie")
        return self._make_member("bookie", i, ("11", "12"), port, settings, serves)

    def _make_broker(self, i: int) -> Member:
        port, admin = self._ports[1], self._ports[2 + 3 * ZOOKEEPERS + BOOKIES + i]

        def settings(zookeeper: list[str]) -> dict[str, Value]:
            host, known = f"127.0.13.{i + 1}", f"127.0.14.{i + 1}"
            made = broker_settings(
                node_id=i,
                port=port,
                admin_port=admin,
                zookeeper=zookeeper,
                bookie_count=BOOKIES,
            ) | {"session_timeout_ms": SESSION_MS}
            if self.security is None:
                return made | {"listen_host": host, "advertised_host": known} | _EVERYBODY
            del made["port"]
            return made | self.security.broker_settings(host, known, port)

        serves = self._admin_probe(admin, "/healthz", "broker")
        return self._make_member("broker", i, ("13", "14"), port, settings, serves)

    def _admin_probe(self, port: int, path: str, kind: str) -> Callable[[], bool]:
        """Return what tells whether a node's admin server says that it serves."""
        if self.security is None:
            return partial(_url_answers, f"http://127.0.0.1:{port}{path}")
        settings = (
            self.security.bookie_settings()
            if kind == "bookie"
            else self.security.broker_settings("", "", 0)
        )
        scheme = "https" if "admin_tls_cert" in settings else "http"
        return partial(self.security.admin_answers, f"{scheme}://127.0.0.1:{port}{path}")


def _addresses() -> tuple[str, ...]:
    """Return all addresses by which a node may be known."""
    nodes = {
        "11": BOOKIES, "12": BOOKIES, "13": BROKERS, "14": BROKERS, "15": BOOKIES + BROKERS,
    }  # fmt: skip
    known = (f"127.0.{net}.{i + 1}" for net, count in nodes.items() for i in range(count))
    return ("127.0.0.1", "localhost", *known)
