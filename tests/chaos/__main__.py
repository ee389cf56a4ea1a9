"""`make chaos`: faults every few seconds on a cluster under load, then the verdict.

    python -m tests.chaos [--minutes 30] [--every-s 3] [--seed N] [--per-s 200] [--out FOLDER]

Producers and consumers of three code bases work on a topic of six partitions while a seeded plan
strikes. At the end everything is healed, the log is read back by librdkafka, and the history of
all clients is checked. The exit code is 0 if there is no anomaly and everything was readable in
time.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from client.pubsub import TopicAdmin
from tests.chaos.checkers import Event, check
from tests.chaos.cluster import BOOKIES, ChaosCluster
from tests.chaos.faults import Faults, Strike
from tests.chaos.forgetful import ForgetfulDisks, Unmountable
from tests.integration.cluster import wait_until
from tests.integration.numbered import read_log
from tests.integration.rolling_restart import (
    PARTITION_COUNT,
    TOPIC,
    LoadProcess,
    acks_of,
    reads_of,
)

KINDS = ("confluent", "kafka-python", "aiokafka")
GROUPS = ("confluent", "aiokafka")
GROUP_SIZE = 2
HEALED_S_MAX = 10.0
_TICK_S = 0.05


class Run:
    """One run: load, faults, verdict."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._began_s = time.time()
        self._events: list[Event] = []
        self._counts: Counter[str] = Counter()
        self._restarts: Counter[str] = Counter()
        self._producers: list[LoadProcess] = []
        self._groups: dict[str, list[LoadProcess]] = {}
        self._disks: ForgetfulDisks | None = None
        try:
            self._disks = ForgetfulDisks(folder, BOOKIES)
        except (Unmountable, OSError) as error:
            print(f"chaos: disks that forget are not to be had here: {error}", file=sys.stderr)
        self._cluster = ChaosCluster(folder, self._disks.path if self._disks else None)

    def run(self) -> dict[str, Any]:
        """Return the report."""
        try:
            self._say("starting three ZooKeeper servers, five bookies, three brokers")
            self._cluster.start()
            asyncio.run(self._make_topic())
            self._start_load()
            faults = Faults(self._cluster, random.Random(self._options.seed), self._disks)
            self._strike(faults)
            healed_s = self._heal()
            return self._judge(faults, healed_s)
        finally:
            for process in [
                *self._producers,
                *(m for group in self._groups.values() for m in group),
            ]:
                process.kill()
            self._cluster.stop()
            if self._disks is not None:
                self._disks.close()

    def _say(self, text: str) -> None:
        print(f"{time.time() - self._began_s:7.1f} s  {text}", file=sys.stderr, flush=True)

    async def _make_topic(self) -> None:
        async with TopicAdmin(self._cluster.bootstrap_servers) as topics:
            await topics.create(TOPIC, partition_count=PARTITION_COUNT)

    def _start_load(self) -> None:
        servers, per_s = self._cluster.bootstrap_servers, str(self._options.per_s)
        for kind in KINDS:
            name = f"producer-{kind}"
            self._producers.append(LoadProcess("produce", kind, name, servers, self._folder, per_s))
        for kind in GROUPS:
            group = f"group-{kind}"
            self._groups[group] = [
                LoadProcess("consume", kind, f"{group}-{i}", servers, self._folder, group)
                for i in range(GROUP_SIZE)
            ]
        for producer in self._producers:
            wait_until(lambda p=producer: bool(p.lines()), f"{producer.name} to begin", 60)

    def _strike(self, faults: Faults) -> None:
        """Let the plan do its work; each class once before any comes again."""
        armed = faults.armed()
        deck: Iterator[str] = iter(())
        rng = random.Random(self._options.seed)
        undo: list[tuple[float, int, Strike]] = []
        end_s = time.monotonic() + self._options.minutes * 60
        next_s = time.monotonic()
        while (now_s := time.monotonic()) < end_s:
            while undo and undo[0][0] <= now_s:
                heapq.heappop(undo)[2].undo()
            self._keep_alive()
            if now_s >= next_s:
                next_s = now_s + self._options.every_s * rng.uniform(0.5, 1.5)
                name = next(deck, None)
                if name is None:
                    deck = iter(rng.sample(list(armed), len(armed)))
                    name = next(deck)
                strike = armed[name]()
                self._counts[name] += 1
                number = sum(self._counts.values())
                self._events.append(
                    {"f": "fault", "class": name, "text": strike.text, "ms": int(time.time() * 1e3)}
                )
                acked = sum(len(p.lines()) for p in self._producers) if number % 10 == 0 else 0
                told = f", {acked} records acknowledged so far" if acked else ""
                self._say(f"{number:4}  {name}: {strike.text}{told}")
                heapq.heappush(undo, (time.monotonic() + strike.for_s, number, strike))
            time.sleep(_TICK_S)
        for _, _, strike in sorted(undo, key=lambda entry: entry[0]):
            strike.undo()

    def _keep_alive(self) -> None:
        """Start what ended by itself, as a service manager would."""
        for member in self._cluster.members:
            if member.node.is_wanted and not member.node.is_running:
                self._restarts[member.node.name] += 1
                member.node.start()

    def _heal(self) -> float:
        """End all faults; return how long it took until every producer and the log went on."""
        self._say("healing")
        self._cluster.heal()
        began_s = time.monotonic()
        sent_ms = time.time() * 1000

        waiting = [*self._producers]

        def going() -> bool:
            self._keep_alive()
            for producer in [*waiting]:
                if any(ack.sent_ms >= sent_ms for ack in acks_of(producer.lines()[-2000:])):
                    waiting.remove(producer)
                    self._say(f"{producer.name} gets acknowledgements again")
            return not waiting

        wait_until(going, "every producer to be acknowledged again", 120)
        read_log(self._cluster.bootstrap_servers, TOPIC, PARTITION_COUNT)
        return time.monotonic() - began_s

    def _judge(self, faults: Faults, healed_s: float) -> dict[str, Any]:
        self._say(f"everything readable {healed_s:.1f} s after the end of faults; finishing")
        for producer in self._producers:
            producer.finish()
        log = read_log(self._cluster.bootstrap_servers, TOPIC, PARTITION_COUNT)
        count = sum(map(len, log.values()))
        for group, members in self._groups.items():

            def has_all(members: list[LoadProcess] = members) -> bool:
                reads = [read for member in members for read in reads_of(member.lines())]
                return len({(read.partition, read.offset) for read in reads}) >= count

            wait_until(has_all, f"{group} to read {count} records", 120)
        self._note_history(log)
        anomalies = check(self._events)
        waits = {p.kind: max(ack.waited_ms for ack in acks_of(p.lines())) for p in self._producers}
        return {
            "seed": self._options.seed,
            "minutes": self._options.minutes,
            "faults": sum(self._counts.values()),
            "classes": len(self._counts),
            "by_class": dict(sorted(self._counts.items())),
            "not_armed": faults.unarmed,
            "restarts_by_themselves": dict(self._restarts),
            "records": count,
            "anomalies": [anomaly._asdict() for anomaly in anomalies],
            "readable_after_s": round(healed_s, 1),
            "longest_wait_s": {kind: round(ms / 1000, 1) for kind, ms in waits.items()},
        }

    def _note_history(self, log: dict[int, list[tuple[int, str]]]) -> None:
        for p in self._producers:
            self._events += [
                {
                    "f": "send",
                    "process": p.name,
                    "value": f"{p.name}:{ack.number}",
                    "partition": ack.partition,
                    "offset": ack.offset,
                    "ms": ack.sent_ms,
                }
                for ack in acks_of(p.lines())
            ]
        for group, members in self._groups.items():
            for m in members:
                self._events += [
                    {"f": "poll", "process": m.name, "group": group, **read._asdict()}
                    for read in reads_of(m.lines())
                ]
        for partition, records in log.items():
            self._events += [
                {"f": "log", "value": value, "partition": partition, "offset": offset}
                for offset, value in records
            ]
        with (self._folder / "history.jsonl").open("w") as history:
            history.writelines(json.dumps(event) + "\n" for event in self._events)


def show(report: dict[str, Any]) -> None:
    """Print the report for people."""
    for name, count in report["by_class"].items():
        print(f"  {name:20} {count}")
    for name, why in report["not_armed"].items():
        print(f"  {name:20} not armed: {why}")
    print(
        f"{report['faults']} faults of {report['classes']} classes, {report['records']} records,"
        f" readable {report['readable_after_s']} s after the last fault, seed {report['seed']}"
    )
    for anomaly in report["anomalies"]:
        print(f"ANOMALY {anomaly['name']}: {anomaly['text']}")
    print("no anomaly" if not report["anomalies"] else f"{len(report['anomalies'])} anomalies")


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every-s", type=float, default=3.0, help="mean time between faults")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--per-s", type=float, default=200.0, help="records/s of each producer")
    parser.add_argument("--healed-s-max", type=float, default=HEALED_S_MAX)
    parser.add_argument("--out", type=Path, help="keep logs and history in this new folder")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    print(f"chaos: seed {options.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="quire-chaos-") as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=options.out is None)
        report = Run(options, folder).run()
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["anomalies"] or report["readable_after_s"] > options.healed_s_max else 0


if __name__ == "__main__":
    sys.exit(main())
