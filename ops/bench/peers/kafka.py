"""Apache Kafka as a system under test: KRaft, three nodes that are broker and controller.

The jars are those that `install.sh` fetched. Everything is Kafka's default (with the heap and the
collector of its own start script), but for what three nodes on one machine need and, in the row
of equal durability, `log.flush.interval.messages=1`: a replica syncs before it acknowledges.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from ops import probes
from ops.bench.peers.system import BROKERS, REPLICAS, PeerError, SystemName
from ops.child import Child
from ops.java import find_java
from ops.ports import pick_free_runs

LIB: Final = Path(__file__).parent / "java" / "lib"
HEAP: Final = "-Xmx1G -Xms1G"
_JVM: Final = (
    *HEAP.split(),
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_HOST: Final = "127.0.0.1"
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.1


def is_installed() -> bool:
    """Tell whether Kafka's jars are there."""
    return (LIB / ".pins").exists()


def version() -> str | None:
    """Return the version of the jars; None if they are not there."""
    jars = sorted(LIB.glob("kafka_2.13-*.jar"))
    return jars[0].stem.partition("-")[2] if jars else None


def elect_preferred(admin: AdminClient) -> Future[Any]:
    """Ask for the preferred leaders of all partitions; the future fails if they cannot be asked.

    confluent-kafka 2.16.1 raises SystemError when any timeout is given.
    """
    return admin.elect_leaders(ElectionType.PREFERRED)


def java_command(options: Sequence[str], main: str, *arguments: str) -> list[str]:
    """Return the command that runs one of Kafka's programs. Raises PeerError without its jars."""
    if not is_installed():
        raise PeerError(f"Apache Kafka is not in {LIB}: run ops/bench/peers/install.sh")
    return [str(find_java().path), *options, "-cp", f"{LIB}/*", main, *arguments]


class KafkaSystem:
    """Three Kafka nodes."""

    compacted_copies = REPLICAS
    """Each replica compacts its own."""

    def __init__(self, folder: Path, *, synced: bool) -> None:
        if not is_installed():
            raise PeerError(f"Apache Kafka is not in {LIB}: run ops/bench/peers/install.sh")
        self.about = (
            SystemName("kafka, synced", "synced by every in-sync replica")
            if synced
            else SystemName("kafka, defaults", "in memory of every in-sync replica, no sync")
        )
        self._folder = folder
        self._synced = synced
        self._ports = pick_free_runs(2 * BROKERS)[0]
        self._nodes: list[Child] = []
        self.bootstrap_servers = ",".join(f"{_HOST}:{self._kafka_port(i)}" for i in range(BROKERS))

    async def start(self) -> None:
        """Format the folders of a first start, start the nodes, wait until all are registered."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._nodes = [self._node(i) for i in range(BROKERS)]
        try:
            for i in range(BROKERS):
                if not (self._folder / f"node-{i}" / "meta.properties").exists():
                    await self._format(i)
            for node in self._nodes:
                await node.start()
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all nodes at once."""
        await asyncio.gather(*(node.stop(_STOP_TIMEOUT_S) for node in self._nodes))

    async def is_compacted(self, topic: str) -> bool:
        """Tell whether every node has noted that it has compacted a topic's only partition."""
        notes = [self._folder / f"node-{i}" / "cleaner-offset-checkpoint" for i in range(BROKERS)]
        return all(note.exists() and f"\n{topic} 0 " in note.read_text() for note in notes)

    async def hand_over(self, broker: int) -> None:
        """Stop a node under control: it moves its leaderships away and ends.

        Kafka has no broker that leads nothing and goes on running; this is what its operators do.
        """
        await self._shut_down(self._nodes[broker])

    async def hand_back(self, broker: int) -> None:
        """Start the node again, wait until it is in sync, elect the preferred leaders."""
        await self._nodes[broker].start()
        await self._until_ready()
        await self._until_in_sync()
        await self._elect_preferred()

    async def rolling_restart(self) -> None:
        """Stop and start each node, the next when all replicas are in sync; then rebalance."""
        for node in self._nodes:
            await self._shut_down(node)
            await node.start()
            await self._until_ready()
            await self._until_in_sync()
        await self._elect_preferred()

    async def _shut_down(self, node: Child) -> None:
        if not await node.stop(_STOP_TIMEOUT_S):
            raise PeerError(f"{node.name} did not stop within {_STOP_TIMEOUT_S:g} s")

    async def _elect_preferred(self) -> None:
        """Do at once what `auto.leader.rebalance.enable` does within five minutes."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        await asyncio.to_thread(elect_preferred(admin).result, _START_TIMEOUT_S)

    async def _until_in_sync(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while lagging := await asyncio.to_thread(_lagging, admin):
            if time.monotonic() > deadline_s:
                raise PeerError(f"{lagging} partitions of Kafka did not get in sync in time")
            await asyncio.sleep(_POLL_S)

    def broker_pids(self) -> Mapping[int, int]:
        """Return the process id of each node, by its id."""
        return {i: node.pid for i, node in enumerate(self._nodes)}

    def pids(self) -> Sequence[int]:
        """Return the nodes: the controllers are inside them."""
        return [*self.broker_pids().values()]

    def data_folder(self) -> Path:
        """Return the folder of all nodes."""
        return self._folder

    def settings(self) -> Mapping[str, str]:
        """Return what differs from Kafka's defaults."""
        return {**self._shared_settings(), "JVM": HEAP}

    def _shared_settings(self) -> dict[str, str]:
        shared = {
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
        }
        return {**shared, "log.flush.interval.messages": "1"} if self._synced else shared

    def _kafka_port(self, i: int) -> int:
        return self._ports + i

    def _controller_port(self, i: int) -> int:
        return self._ports + BROKERS + i

    def _settings_file(self, i: int) -> Path:
        return self._folder / f"node-{i}.properties"

    def _node(self, i: int) -> Child:
        voters = ",".join(f"{n}@{_HOST}:{self._controller_port(n)}" for n in range(BROKERS))
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(i),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{_HOST}:{self._kafka_port(i)},"
            f"CONTROLLER://{_HOST}:{self._controller_port(i)}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str((self._folder / f"node-{i}").resolve()),
            **self._shared_settings(),
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        self._settings_file(i).write_text("\n".join(lines) + "\n")
        command = java_command(_JVM, "kafka.Kafka", str(self._settings_file(i).resolve()))
        return Child(f"kafka-{i}", command, log_path=self._folder / f"node-{i}.log")

    async def _format(self, i: int) -> None:
        identity = self._folder / "cluster.id"
        if not identity.exists():
            identity.write_text(base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("="))
        command = java_command(
            _JVM,
            "kafka.tools.StorageTool",
            *("format", f"--cluster-id={identity.read_text()}"),
            *("--config", str(self._settings_file(i).resolve())),
        )
        log_path = self._folder / f"format-{i}.log"
        formatter = Child(f"format-{i}", command, log_path=log_path)
        await formatter.start()
        how = await formatter.wait()
        if how != "exit code 0":
            last = "\n".join(formatter.last_lines())
            raise PeerError(
                f"Kafka's storage could not be formatted ({how}), see {log_path}:\n{last}"
            )

    async def _until_ready(self) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        for i, node in enumerate(self._nodes):
            while not await probes.kafka_answers(_HOST, self._kafka_port(i)):
                if not node.running:
                    last = "\n".join(node.last_lines())
                    raise PeerError(f"{node.name} ended while it started:\n{last}")
                if time.monotonic() > deadline_s:
                    raise PeerError(f"{node.name} did not serve in time: see {node.log_path}")
                await asyncio.sleep(_POLL_S)


def _lagging(admin: AdminClient) -> int:
    """Return how many partitions have no leader, or replicas that are not in sync."""
    topics = admin.list_topics(timeout=_START_TIMEOUT_S).topics.values()
    return sum(
        one.leader < 0 or len(one.isrs) < len(one.replicas)
        for topic in topics
        for one in topic.partitions.values()
    )
