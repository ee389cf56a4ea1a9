"""`make chaos-transactions`: read-process-write and appending transactions under faults.

    python -m tests.chaos.exactly_once [--minutes 10] [--every-s 3] [--seed N] [--out FOLDER]

A source publishes records; two copiers of librdkafka and one of Java's client read what is
committed and copy it with their offsets, in transactions; two appenders read and append to lists.
Brokers, bookies, ZooKeeper and these clients are killed, paused and cut off by a seeded plan. At
the end everything is healed, the copiers must get to the end, and then the copy is every record
once, and the lists show none of the anomalies of `appends.py`, both read as committed data.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from client.pubsub import TopicAdmin
from tests.chaos.appends import Histories, Lists, copied
from tests.chaos.campaign import Campaign, Plan, Unavailable
from tests.chaos.checkers import Anomaly
from tests.chaos.cluster import ChaosCluster
from tests.chaos.exactly_once_load import COPY, GROUP, LISTS, PARTITIONS, SOURCE
from tests.chaos.faults import Faults, Strike
from tests.chaos.nodes import Node
from tests.integration.clients.transactors import java_program
from tests.integration.cluster import wait_until

_CLIENTS_S_MAX = 90.0
_COPY_S_MAX = 180.0
_READ_S_MAX = 120.0
_DECIDED_S_MAX = 60.0
_PER_S = {"source": 200.0, "copier": 0.0, "appender": 10.0}
_NO_DISKS = "the disks of this run are ordinary ones"
_NO_CLOCKS = "the clocks of this run are the machine's"


class Client(NamedTuple):
    """A client's process and its notes."""

    node: Node
    notes: Path
    role: str


class Clients:
    """All clients; also their progress, for the campaign. Times are those of `time.monotonic`."""

    def __init__(self, servers: str, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._at: dict[str, int] = {}
        self._last_s: dict[str, float] = {}
        self.count = 0
        """Lines of notes so far: acknowledged records, transactions."""
        self.restarts = 0
        """How often one ended by itself."""
        program = [sys.executable, "-m", "tests.chaos.exactly_once_load"]
        self.all: list[Client] = []
        for role, numbers in (("source", 1), ("copier", 2), ("appender", 2)):
            for number in range(numbers):
                name = f"{role}-{number}"
                notes = folder / f"{name}.notes"
                about = [role, servers, name, str(notes), str(_PER_S[role])]
                self._add(role, name, [*program, *about], notes, folder)
        notes = folder / "copier-java.notes"
        about = [servers, "copier-java", str(notes), SOURCE, COPY, GROUP]
        command = [*java_program("java", "Copier"), *about]
        self._add("copier", "copier-java", command, notes, folder)

    def _add(self, role: str, name: str, command: list[str], notes: Path, folder: Path) -> None:
        node = Node(name, command, folder / f"{name}.log", lambda: notes.exists())
        self.all.append(Client(node, notes, role))
        self._last_s[name] = time.monotonic()
        self._at[name] = 0

    def start(self) -> None:
        """Start all."""
        for client in self.all:
            client.node.start()

    def stop(self, role: str, *, kill: bool = False) -> None:
        """Stop those of a role."""
        for client in self.all:
            if client.role == role:
                client.node.resume()
                client.node.kill() if kill else client.node.stop()

    def resume(self) -> None:
        """Let all go on, and start those that do not run."""
        for client in self.all:
            client.node.resume()
            client.node.start()

    def lines(self, role: str) -> list[str]:
        """Return what clients of a role noted, whole lines only."""
        found = []
        for client in self.all:
            if client.role == role:
                text = client.notes.read_text()
                found += text[: text.rfind("\n") + 1].splitlines()
        return found

    # ---------------------------------------------------------------- faults

    def client_kill(self) -> Strike | None:
        """kill -9 of a copier or appender."""
        client = self._running()
        if client is None:
            return None
        client.node.kill()
        return Strike(f"{client.node.name} killed", client.node.start, self._rng.uniform(0.2, 4.0))

    def client_pause(self) -> Strike | None:
        """SIGSTOP of one, for longer than its session or transaction may last at times."""
        client = self._running()
        if client is None:
            return None
        client.node.pause()
        for_s = self._rng.choice((1.0, 8.0, 14.0))
        return Strike(f"{client.node.name} paused", client.node.resume, for_s)

    def _running(self) -> Client | None:
        running = [
            client
            for client in self.all
            if client.role != "source" and client.node.is_running and not client.node.is_paused
        ]
        return self._rng.choice(running) if running else None

    # ---------------------------------------------------------------- progress

    def look(self) -> None:
        """Take note of what was noted since the last look; start what ended by itself."""
        now_s = time.monotonic()
        for client in self.all:
            name = client.node.name
            size = client.notes.stat().st_size if client.notes.exists() else 0
            if size > self._at[name]:
                self._at[name], self._last_s[name] = size, now_s
                self.count += 1
            if client.node.is_preferred and not client.node.is_running:
                self.restarts += 1
                client.node.start()

    def _latest(self) -> dict[str, float]:
        """When each of these last got on: the copiers share the partitions, one may have none."""
        latest = dict(self._last_s)
        copiers = [latest.pop(c.node.name) for c in self.all if c.role == "copier"]
        return {**latest, "the copiers": max(copiers)}

    def silent_s(self) -> float:
        """Return for how long one of them has got nowhere."""
        return time.monotonic() - min(self._latest().values())

    def silent(self, since_s: float) -> list[str]:
        """Name those that have got nowhere since then."""
        return [name for name, last_s in self._latest().items() if last_s < since_s]


class Run:
    """One run. Use as a context manager."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._began_s = time.monotonic()
        rng = random.Random(f"{plan.seed} clients")
        self._cluster = ChaosCluster(folder)
        self._clients = Clients(self._cluster.bootstrap_servers, folder, rng)
        faults = Faults(self._cluster, random.Random(plan.seed), _NO_DISKS, _NO_CLOCKS)
        self._armed: dict[str, Callable[[], Strike | None]] = {
            **faults.armed(),
            "client_kill": self._clients.client_kill,
            "client_pause": self._clients.client_pause,
        }

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._clients.all:
            client.node.resume()
            client.node.kill()
        self._cluster.stop()

    def run(self) -> dict[str, Any]:
        """Return the report."""
        self._say("starting three ZooKeeper servers, five bookies, three brokers")
        self._cluster.start()
        asyncio.run(self._make_topics())
        self._clients.start()
        wait_until(self._all_began, "every client to begin", _CLIENTS_S_MAX)
        campaign = Campaign(
            self._plan,
            self._armed,
            self._cluster,
            self._clients,
            self._say,  # type: ignore[arg-type]
        )
        anomalies: list[Anomaly] = []
        figures: dict[str, Any] = {}
        try:
            campaign.run()
            figures = self._finish(campaign)
        except (Unavailable, AssertionError) as error:
            anomalies.append(Anomaly("unavailable", str(error)))
        else:
            anomalies += figures.pop("anomalies")
        return {
            "seed": self._plan.seed,
            "seconds": round(time.monotonic() - self._began_s, 1),
            "faults": campaign.counts.total(),
            "by_class": dict(sorted(campaign.counts.items())),
            "clients_restarted": self._clients.restarts,
            **figures,
            "anomalies": [anomaly._asdict() for anomaly in anomalies],
        }

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", file=sys.stderr, flush=True)

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


def judge(clients: Clients, audit: Audit, source: Lists) -> dict[str, Any]:
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
    parser = argparse.ArgumentParser(
        prog="make chaos-transactions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every-s", type=float, default=3.0, help="mean time between faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults-min", type=int, default=0, help="fail if there were fewer")
    parser.add_argument("--out", type=Path, help="keep logs and notes in this new folder")
    options = parser.parse_args()
    print(f"chaos: seed {options.seed}", file=sys.stderr)
    folder = options.out or Path(tempfile.mkdtemp(prefix="quire-chaos-"))
    folder.mkdir(parents=True, exist_ok=options.out is None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # processes must not stay
    plan = Plan(options.seed, options.every_s, options.minutes * 60)
    with Run(plan, folder) as run:
        report = run.run()
    print(json.dumps(report, indent=1))
    found = [f"{each['name']}: {each['text']}" for each in report["anomalies"]]
    if report["faults"] < options.faults_min:
        found.append(f"only {report['faults']} faults, not {options.faults_min}")
    for failure in found:
        print(f"FAILED {failure}")
    if found:
        print(f"logs and notes are in {folder}")
    elif options.out is None:
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
