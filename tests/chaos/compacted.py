"""`make chaos-compaction`: a compacted topic under faults, and readers who know what was written.

    python -m tests.chaos.compacted [--minutes 10] [--every-s 3] [--seed N] [--out FOLDER]

Two writers overwrite and delete keys of their own. Brokers look for what is dirty all the time.
Two readers go from the first offset to the end again and again, one of them slowly; a third does so
out of ledgers, as the Spark source plans and reads, and rests between both. Brokers, bookies,
ZooKeeper, readers and the processes that clean are killed, paused, cut off and lose power by a
seeded plan. At the end everything is healed, every reader must get through once more, and then all
passes are held against what was written (`judges/compacted_passes.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from client.pubsub import TopicAdmin
from tests.chaos.campaign import Campaign, Plan
from tests.chaos.clients import ClientProcesses
from tests.chaos.cluster import BOOKIES, ChaosCluster
from tests.chaos.faults import Faults, Strike
from tests.chaos.forgetful import ForgetfulDisks, Unmountable
from tests.chaos.judges.compacted_passes import PARTITIONS, RETAIN_MS, TOPIC, Truth, check
from tests.chaos.program import ClusterRun, options_of, run_and_judge, shortcomings
from tests.integration.cluster import wait_until

WRITERS: Final = 2
_CLIENTS_S_MAX = 90.0
_READERS: Final = ("reader", "slow-reader", "ledgers")
_ROLES: Final = {"slow-reader": "reader"}
"""What those do whose name does not say it."""
_PAUSES_S: Final = {"writer": 0.006, "reader": 0.0, "slow-reader": 0.5, "ledgers": 4.0}
_ENVIRON: Final = {
    "QUIRE_BROKER_COMPACTION_CHECK_INTERVAL_MS": "300",
    "QUIRE_BROKER_COMPACTION_GRACE_MS": "3000",
    "QUIRE_BROKER_COMPACTION_BYTES_PER_S": "0",
}
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.2",
    "segment.bytes": "60000",
    "delete.retention.ms": str(RETAIN_MS),
}
_NO_CLOCKS = "with it nobody could tell when a deletion may go"
_CLEANER = b"broker.compaction"


class Clients(ClientProcesses):
    """Writers and readers."""

    def __init__(self, servers: str, zookeeper: str, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng, spared=("writer",))
        for number in range(WRITERS):
            self._add("writer", f"writer-{number}", "writer", servers, zookeeper)
        for name in _READERS:
            self._add(name, name, _ROLES.get(name, name), servers, zookeeper)

    def _add(self, role: str, name: str, does: str, servers: str, zookeeper: str) -> None:
        about = [does, servers, name, str(self.notes_of(name)), str(_PAUSES_S[role]), zookeeper]
        self.add(role, name, [sys.executable, "-m", "tests.chaos.compacted_load", *about])

    def latest(self) -> dict[str, float]:
        """Writers must get on; a pass of a reader may take long."""
        return {name: at_s for name, at_s in super().latest().items() if "writer" in name}

    def has_passed_since(self, since_ms: int) -> bool:
        """Whether each reader has begun and ended a pass since then."""
        done = {
            one["by"]
            for one in self.readings()
            if one["f"] == "pass" and one["began_ms"] > since_ms
        }
        return len(done) == len(self.all) - WRITERS

    def readings(self) -> list[dict[str, Any]]:
        """Return what all readers noted."""
        return [note for role in _READERS for note in self.notes(role)]

    def notes(self, role: str) -> list[dict[str, Any]]:
        """Return what clients of a role noted."""
        return [json.loads(line) for line in self.lines(role) if line.endswith("}")]


class Run(ClusterRun):
    """One run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._folder = folder
        os.environ.update(_ENVIRON)
        disks: ForgetfulDisks | str
        try:
            disks = self._disks = ForgetfulDisks(folder, BOOKIES)
        except (Unmountable, OSError) as error:
            self._disks = None
            disks = f"no FUSE file system, which needs /dev/fuse, fuse3 and mfusepy: {error}"
        cluster = ChaosCluster(folder, self._disks.path if self._disks else None)
        servers, zookeeper = cluster.bootstrap_servers, cluster.zookeeper
        clients = Clients(servers, zookeeper, folder, random.Random(f"{plan.seed} clients"))
        super().__init__(plan, cluster, clients)
        self._clients: Clients = clients
        faults = Faults(cluster, random.Random(plan.seed), disks, _NO_CLOCKS)
        self._unarmed = faults.unarmed
        self._rng = random.Random(f"{plan.seed} cleaners")
        self._armed: dict[str, Callable[[], Strike | None]] = {
            **faults.armed(),
            "client_kill": self._clients.client_kill,
            "client_pause": self._clients.client_pause,
            "cleaner_kill": self.cleaner_kill,
        }

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._disks is not None:
            self._disks.close()

    def cleaner_kill(self) -> Strike | None:
        """kill -9 of a process that cleans for a broker, where brokers have such processes."""
        brokers = {b.node.pid: b.node.name for b in self._cluster.brokers if b.node.is_running}
        found = [one for one in _cleaners() if one[1] in brokers]
        if not found:
            return None
        pid, parent = self._rng.choice(found)
        os.kill(pid, signal.SIGKILL)
        return Strike(f"cleaner of {brokers[parent]} killed", lambda: None, 0.0)

    def run(self) -> dict[str, Any]:
        """Return the report."""
        self._say("starting three ZooKeeper servers, five bookies, three brokers")
        self._cluster.start()
        asyncio.run(self._make_topic())
        self._clients.start()
        wait_until(lambda: self._clients.has_passed_since(0), "every reader to pass", 120.0)
        report = self._strike(self._armed)
        truth = Truth(self._clients.notes("writer"))
        passes = [one for one in self._clients.readings() if one["f"] == "pass"]
        report["anomalies"] += check(truth, passes)
        return {
            **report,
            "not_armed": self._unarmed,
            "records": truth.count,
            "keys": len(truth.known_keys()),
            "keys_little_is_known_of": truth.unsure_count,
            "passes": dict(sorted(Counter(one["by"] for one in passes).items())),
            "failed_passes": self._failures(),
            **self._cleaning(),
        }

    async def _make_topic(self) -> None:
        async with TopicAdmin(self._cluster.bootstrap_servers) as topics:
            await topics.create(TOPIC, partition_count=PARTITIONS, configs=_CONFIGS)

    def _finish(self, campaign: Campaign) -> dict[str, Any]:
        """Heal, end the writers, and let every reader pass once more."""
        self._say("healing")
        healed_s = time.monotonic()
        self._cluster.heal()
        self._clients.resume()

        def look() -> None:
            campaign.keep_alive()
            self._clients.look()

        def is_well() -> bool:
            look()
            return not self._clients.silent(healed_s)

        wait_until(is_well, "every writer to get on", _CLIENTS_S_MAX)
        well_s = time.monotonic() - healed_s
        self._say(f"every writer got on {well_s:.1f} s after healing")
        self._clients.stop("writer")
        written_ms = int(time.time() * 1000)

        def has_passed() -> bool:
            look()
            return self._clients.has_passed_since(written_ms)

        wait_until(has_passed, "every reader to pass once more", 2 * _CLIENTS_S_MAX)
        passed_s = time.monotonic() - healed_s
        last = [one for one in self._clients.notes("reader") if one["f"] == "pass"][-1]
        return {
            "well_again_s": round(well_s, 1),
            "passed_s": round(passed_s, 1),
            "records_left": last["count"],
        }

    def _failures(self) -> dict[str, int]:
        """Return how often readers began anew, and over what."""
        texts = [
            one["text"].partition(":")[0]
            for one in self._clients.readings()
            if one["f"] == "failed"
        ]
        return dict(Counter(text[:80] for text in texts).most_common(8))

    def _cleaning(self) -> dict[str, int]:
        """Return what brokers say of their compaction."""
        log = "".join(path.read_text() for path in sorted(self._folder.glob("broker-*.log")))
        names = ("began", "swapped", "done", "failed", "outrun")
        return {f"compaction_{name}": log.count(f"compaction.{name} ") for name in names} | {
            "tracebacks": log.count("Traceback")
        }


def _cleaners() -> Iterator[tuple[int, int]]:
    """Yield (process id, parent's) of every process that cleans."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, status = (folder / "cmdline").read_bytes(), (folder / "stat").read_text()
        except OSError:
            continue
        if _CLEANER in command:
            yield int(folder.name), int(status.rpartition(")")[2].split()[1])


def failures(report: dict[str, Any], faults_min: int, swaps_min: int) -> list[str]:
    """Return, in words, why a run counts as failed; empty: it does not."""
    found = shortcomings(report, faults_min)
    if report["compaction_swapped"] < swaps_min:
        found.append(f"only {report['compaction_swapped']} swaps, not {swaps_min}")
    if report["tracebacks"]:
        found.append(f"{report['tracebacks']} tracebacks in the logs of brokers")
    return found


def main() -> int:
    """Run and judge."""
    parser = options_of("make chaos-compaction", __doc__)
    parser.add_argument("--swaps-min", type=int, default=0, help="fail if there were fewer")
    options = parser.parse_args()
    return run_and_judge(
        Run, options, lambda report: failures(report, options.faults_min, options.swaps_min)
    )


if __name__ == "__main__":
    sys.exit(main())
