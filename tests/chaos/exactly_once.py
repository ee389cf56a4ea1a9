"""`make chaos-transactions`: read-process-write and appending transactions under faults.

    python -m tests.chaos.exactly_once [--minutes 10] [--every-s 3] [--seed N] [--out FOLDER]

A source publishes records; two copiers of librdkafka and one of Java's client read what is
committed and copy it with their offsets, in transactions; two appenders read and append to lists.
Brokers, bookies, ZooKeeper and these clients are killed, paused and cut off by a seeded plan. At
the end everything is healed, the copiers must get to the end, and then the copy is every record
once, and the lists show none of the anomalies of `judges/appends.py`, both read as committed data.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from client.pubsub import TopicAdmin
from tests.chaos.campaign import Campaign, Plan
from tests.chaos.clients import ClientProcesses
from tests.chaos.cluster import ChaosCluster
from tests.chaos.exactly_once_load import COPY, GROUP, LISTS, PARTITIONS, SOURCE
from tests.chaos.faults import Faults, Strike
from tests.chaos.judges.appends import Histories, Lists, copied
from tests.chaos.judges.checkers import Anomaly
from tests.chaos.program import ClusterRun, options_of, run_and_judge, shortcomings
from tests.integration.clients.java_programs import java_program
from tests.integration.cluster import wait_until

_CLIENTS_S_MAX = 90.0
_COPY_S_MAX = 180.0
_READ_S_MAX = 120.0
_DECIDED_S_MAX = 60.0
_PER_S = {"source": 200.0, "copier": 0.0, "appender": 10.0}
_NO_DISKS = "the disks of this run are ordinary ones"
_NO_CLOCKS = "the clocks of this run are the machine's"


class Clients(ClientProcesses):
    """A source, copiers and appenders."""

    def __init__(self, servers: str, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng, spared=("source",))
        program = [sys.executable, "-m", "tests.chaos.exactly_once_load"]
        for role, numbers in (("source", 1), ("copier", 2), ("appender", 2)):
            for number in range(numbers):
                name = f"{role}-{number}"
                about = [role, servers, name, str(self.notes_of(name)), str(_PER_S[role])]
                self.add(role, name, [*program, *about])
        name = "copier-java"
        about = [servers, name, str(self.notes_of(name)), SOURCE, COPY, GROUP]
        self.add("copier", name, [*java_program("java", "Copier"), *about])

    def latest(self) -> dict[str, float]:
        """When each of these last got on: the copiers share the partitions, one may have none."""
        latest = super().latest()
        copiers = [latest.pop(c.node.name) for c in self.all if c.role == "copier"]
        return {**latest, "the copiers": max(copiers)}


class Run(ClusterRun):
    """One run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        cluster = ChaosCluster(folder)
        rng = random.Random(f"{plan.seed} clients")
        super().__init__(plan, cluster, Clients(cluster.bootstrap_servers, folder, rng))
        faults = Faults(cluster, random.Random(plan.seed), _NO_DISKS, _NO_CLOCKS)
        self._armed: dict[str, Callable[[], Strike | None]] = {
            **faults.armed(),
            "client_kill": self._clients.client_kill,
            "client_pause": self._clients.client_pause,
        }

    def run(self) -> dict[str, Any]:
        """Return the report."""
        self._say("starting three ZooKeeper servers, five bookies, three brokers")
        self._cluster.start()
        asyncio.run(self._make_topics())
        self._clients.start()
        wait_until(self._all_began, "every client to begin", _CLIENTS_S_MAX)
        return self._strike(self._armed)

    async def _make_topics(self) -> None:
        async with TopicAdmin(self._cluster.bootstrap_servers) as topics:
            for topic in (SOURCE, COPY, LISTS):
                await topics.create(topic, partition_count=PARTITIONS)

    def _all_began(self) -> bool:
        self._clients.look()
        return all(client.notes.exists() for client in self._clients.all) and not (
            self._clients.silent(self._began_s)
        )

    def _finish(self, campaign: Campaign) -> dict[str, Any]:
        """Heal, let the copiers get to the end, and judge."""
        self._say("healing")
        healed_s = time.monotonic()
        self._cluster.heal()
        self._clients.resume()

        def is_well() -> bool:
            campaign.keep_alive()
            self._clients.look()
            return not self._clients.silent(healed_s)

        wait_until(is_well, "every client to get on", _CLIENTS_S_MAX)
        well_s = time.monotonic() - healed_s
        self._say(f"every client got on {well_s:.1f} s after healing")
        self._clients.stop("source")
        self._clients.stop("appender")
        audit = Audit(self._cluster.bootstrap_servers)
        source = audit.read(SOURCE)
        count = sum(map(len, source.values()))
        self._say(f"waiting for {count} records to be copied")

        def is_copied() -> bool:
            campaign.keep_alive()
            self._clients.look()
            return sum(map(len, audit.read(COPY).values())) >= count

        wait_until(is_copied, f"all of {count} records to be copied", _COPY_S_MAX)
        self._clients.stop("copier")
        for topic in (COPY, LISTS):
            audit.until_decided(topic)
        return {**judge(self._clients, audit, source), "well_again_s": round(well_s, 1)}


def judge(clients: ClientProcesses, audit: Audit, source: Lists) -> dict[str, Any]:
    """Hold the copy and the lists against what clients noted; return anomalies and figures."""
    copy, lists = audit.read(COPY), audit.read(LISTS)
    notes = clients.lines("appender")
    histories = Histories([json.loads(line) for line in notes if line.endswith("}")], lists)
    acked = {line.split()[1] for line in clients.lines("source")}
    missing = acked - {value for rows in source.values() for _, value in rows}
    anomalies = [*copied(source, copy), *histories.anomalies()]
    if missing:
        anomalies.append(Anomaly("lost-write", f"{len(missing)}, as {sorted(missing)[:5]}"))
    return {
        "anomalies": anomalies,
        "records_copied": sum(map(len, source.values())),
        "copying_transactions": len(clients.lines("copier")),
        "appending_transactions": len(histories.transactions),
        "appends": sum(map(len, lists.values())),
    }


class Audit:
    """Reads what is committed, with librdkafka."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def until_decided(self, topic: str) -> None:
        """Wait until no transaction is open: what died is aborted by its successor, or in time."""
        readers = [self._consumer(level) for level in ("read_committed", "read_uncommitted")]

        def is_decided() -> bool:
            ends = [[self._end(reader, topic, p) for p in range(PARTITIONS)] for reader in readers]
            return ends[0] == ends[1]

        wait_until(is_decided, f"every transaction in {topic} to be decided", _DECIDED_S_MAX)
        for reader in readers:
            reader.close()

    def _end(self, reader: Consumer, topic: str, partition: int) -> int:
        try:
            return reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
        except KafkaException:
            reader.list_topics(topic, timeout=10)
            return -1 - partition

    def _consumer(self, level: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "audit",
                "isolation.level": level,
                "enable.partition.eof": True,
            }
        )

    def read(self, topic: str) -> Lists:
        """Read everything that is committed, until all partitions end."""
        consumer = self._consumer("read_committed")
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        found: dict[int, list[tuple[int, str]]] = {p: [] for p in range(PARTITIONS)}
        ended: set[int] = set()
        deadline_s = time.monotonic() + _READ_S_MAX
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline_s, f"cannot read {topic}"
            for message in consumer.consume(10_000, 0.2):
                error, partition = message.error(), message.partition()
                if error is None:
                    found[partition].append((message.offset(), message.value().decode()))
                elif error.name() == "_PARTITION_EOF":
                    ended.add(partition)
                elif not error.retriable():
                    raise KafkaException(error)
        consumer.close()
        return found


def main() -> int:
    """Run and judge."""
    options = options_of("make chaos-transactions", __doc__).parse_args()
    return run_and_judge(Run, options, lambda report: shortcomings(report, options.faults_min))


if __name__ == "__main__":
    sys.exit(main())
