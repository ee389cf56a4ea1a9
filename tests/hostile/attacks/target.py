"""A real cluster that is attacked, an honest producer beside it, and the table of what it saw."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from client.kafka_security import read_properties
from client.node.scrapes import AGE_S_MAX
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.sasl_client import SaslExchange
from tests.fakes.scrape import parse
from tests.fakes.wire_client import WireClient
from tests.hostile.attacks import secured_cluster
from tests.hostile.attacks.honest import HonestProducer
from tests.integration.cluster import LocalCluster
from tests.integration.memory_crowd import resident_bytes

HONEST: Final = "honest"
PAUSE_S_MAX: Final = 0.5
"""The longest that an honest producer may wait for what others do."""
BOOKIES: Final = ("bookie-0", "bookie-1", "bookie-2")


async def until(condition: Callable[[], Awaitable[bool]], within_s: float) -> None:
    """Ask again and again until it is so. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        is_so = False
        while not is_so:
            is_so = await condition()
            await asyncio.sleep(0 if is_so else 0.01)


class Target:
    """The cluster. `port` and `admin_port` are those of its first broker."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.port = int(cluster.bootstrap_servers.split(",")[0].rpartition(":")[2])
        self.admin_port = int(cluster.about["brokers"][0]["admin"])
        self.bookie_port = int(cluster.about["bookies"][0]["port"])
        self.plain_port = secured_cluster.plain_port_of(cluster)
        """Of the listener with logins and without TLS, if the cluster is secured."""
        self.settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
        """Of librdkafka."""
        self.tried = self.logged_in = 0
        """Logins of `connect`, and those that were accepted."""
        if client_config := cluster.about.get("client_config"):
            self.settings |= read_properties(Path(client_config))

    def tls(self) -> ssl.SSLContext:
        """Return what trusts a secured cluster."""
        return ssl.create_default_context(cafile=self.settings["ssl.ca.location"])

    async def connect(self, broker_id: int | None = None) -> WireClient:
        """Connect to a broker, by default the first one, and log in if it wants that."""
        nodes = self.cluster.about["brokers"]
        port = next((node["kafka"] for node in nodes if node["id"] == broker_id), self.port)
        if "sasl.username" not in self.settings:
            return await WireClient.connect(port)
        self.tried += 1
        client = await WireClient.connect(port, tls=self.tls())
        mechanism = self.settings["sasl.mechanism"]
        exchange = SaslExchange(
            mechanism, self.settings["sasl.username"], self.settings["sasl.password"], "nonce"
        )
        await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
        token: bytes | None = exchange.first
        while token is not None:
            answer = await client.call(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=token)
            if answer.error_code is ErrorCode.request_timed_out:
                await client.close()
                raise ConnectionRefusedError(answer.error_message)  # this address is to wait
            assert answer.error_code is ErrorCode.none, answer
            token = exchange.answer(answer.auth_bytes)
        self.logged_in += 1
        return client

    async def log_in(self, within_s: float = 60.0) -> float:
        """Log in on a new connection, however often that takes; return the seconds. Raises
        TimeoutError."""
        began_s = time.monotonic()

        async def gets_in() -> bool:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await (await self.connect()).close()
                return True
            return False

        await until(gets_in, within_s)
        return time.monotonic() - began_s

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic and wait until all of it is led."""
        client = await self.connect()
        rows = [{"name": name.replace("_", "."), "value": text} for name, text in configs.items()]
        wanted = {
            "name": topic, "num_partitions": partitions, "replication_factor": -1,
            "assignments": [], "configs": rows,
        }  # fmt: skip
        client.send(ApiKey.CREATE_TOPICS, 5, topics=[wanted], timeout=30_000, validate_only=False)
        (made,) = (await client.receive(60)).topics
        assert made.error_code in (ErrorCode.none, ErrorCode.topic_already_exists), made

        async def is_led() -> bool:
            return min(await self.leaders(topic, client)) >= 0

        await until(is_led, 120)
        await client.close()

    async def leaders(self, topic: str, client: WireClient) -> list[int]:
        """Return who leads each partition; -1: nobody yet."""
        client.send(
            ApiKey.METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        (found,) = (await client.receive(30)).topics
        return [row.leader_id for row in found.partitions] or [-1]

    def metrics(self, node: str = "broker-0") -> Mapping[str, float]:
        """Return the numbers of a node, none of them older than the question."""
        time.sleep(AGE_S_MAX)  # what was answered before is answered again until then
        kind, _, index = node.partition("-")
        port = self.cluster.about[f"{kind}s"][int(index)]["admin"]
        is_closed = "sasl.username" in self.settings
        url = f"{'https' if is_closed else 'http'}://127.0.0.1:{port}/metrics"
        request = urllib.request.Request(url)
        if is_closed:
            token = (self.cluster.data / "security" / "metrics.token").read_text().strip()
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, context=self.tls() if is_closed else None) as answer:
            return parse(answer.read().decode())

    async def gauge(self, name: str, node: str = "broker-0") -> float:
        """Return one number of a node."""
        return (await asyncio.to_thread(self.metrics, node))[name]

    def resident_mib(self, node: str = "broker-0") -> float:
        """Return what a node has in memory; 0 while it is gone."""
        try:
            return resident_bytes(self.cluster.pid_of(node)) / (1 << 20)
        except FileNotFoundError:
            return 0.0

    def log_lines(self, text: str) -> int:
        """Count lines of the brokers' logs that match an expression."""
        count = len(self.cluster.about["brokers"])
        logs = "".join(self.cluster.node_log(f"broker-{index}") for index in range(count))
        return len(re.findall(text, logs))

    def leaderships(self, topic: str = HONEST) -> int:
        """Return how often a broker has begun to lead a topic's first partition."""
        return self.log_lines(rf"takeover\.leading.*\b{topic}\b.*\bpartition\W+0\b")

    @asynccontextmanager
    async def stopped(self, nodes: Sequence[str] = BOOKIES) -> AsyncIterator[None]:
        """Let nodes stand still meanwhile."""
        pids = [self.cluster.kill(name, signal.SIGSTOP) for name in nodes]
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


class Attack(NamedTuple):
    """One row of the table."""

    name: str
    strike: Callable[[Target], Awaitable[str]]
    """Returns what there is to say; raises AssertionError if the attacked ones did wrong."""
    cluster: str = "plain"
    """Which cluster it is for: `CLUSTERS`."""
    pause_s: float = 0.0
    """How long the attack itself makes everybody wait, because it stops what all need."""
    ends_a_node: bool = False
    """Whether it kills one, which is no answer to it."""


class Row(NamedTuple):
    """What came of an attack."""

    attack: Attack
    said: str
    took_s: float
    longest_s: float
    p99_s: float
    errors: list[str]
    leaderships: int
    grown_mib: float
    wrong: str

    @property
    def faults(self) -> list[str]:
        """Return what must not be, without the pause, which only a quiet machine shows."""
        found = [*self.errors, *([self.wrong] if self.wrong else [])]
        if self.leaderships:
            found.append(f"{self.leaderships} changes of leadership")
        return found

    @property
    def is_slow(self) -> bool:
        """Whether the honest producer waited too long."""
        return self.longest_s > self.attack.pause_s + PAUSE_S_MAX

    def text(self) -> str:
        """Return a row of a table."""
        what = "; ".join([self.said, *self.faults, *(["**too long**"] if self.is_slow else [])])
        return (
            f"| {self.attack.name} | {self.took_s:.1f} | {self.longest_s * 1000:.0f} |"
            f" {self.p99_s * 1000:.0f} | {len(self.errors)} | {self.leaderships} |"
            f" {self.grown_mib:+.0f} | {what} |"
        )


HEAD: Final = (
    "| attack | took, s | honest producer's longest wait, ms | p99, ms | its errors"
    " | changes of leadership | broker's memory, MiB | |\n|---|---|---|---|---|---|---|---|"
)


async def strike(target: Target, attack: Attack, producer: HonestProducer) -> Row:
    """Make one attack and look at what it did to the honest producer."""
    leaderships, before_mib = target.leaderships(), target.resident_mib()
    began_s = time.monotonic()
    wrong = said = ""
    try:
        said = await attack.strike(target)
    except Exception as error:  # whatever it is, the next attack follows
        wrong = f"**wrong**: {error!r:.300}"
    ended_s = time.monotonic()
    await until(lambda: asyncio.to_thread(producer.has_heard, ended_s), 60)
    seen = await asyncio.to_thread(producer.seen, began_s, ended_s)
    return Row(
        attack, said, ended_s - began_s, seen.longest_s, seen.p99_s, seen.errors,
        target.leaderships() - leaderships, target.resident_mib() - before_mib, wrong,
    )  # fmt: skip


async def run(
    cluster: LocalCluster, attacks: Sequence[Attack], folder: Path, tell: Callable[[str], None]
) -> list[Row]:
    """Make attacks on one cluster, one after the other."""
    target = Target(cluster)
    await target.create(HONEST)
    pids = cluster.pids()
    producer = await asyncio.to_thread(
        HonestProducer, target.settings, HONEST, folder / "honest.jsonl"
    )
    rows = []
    try:
        for attack in attacks:
            row = await strike(target, attack, producer)
            if not attack.ends_a_node and cluster.pids() != pids:
                row = row._replace(wrong=f"{row.wrong} a node ended".strip())
            pids = cluster.pids()
            rows.append(row)
            tell(row.text())
    finally:
        await asyncio.to_thread(producer.close)
    return rows
