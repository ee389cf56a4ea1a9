"""One run: a cluster under load, the fault phase, healing, and the verdict over the history."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from client.kafka_security import security_of
from client.pubsub import TopicAdmin
from client.pubsub.brokers import Brokers
from tests.chaos.administration import Administration
from tests.chaos.campaign import Campaign, Plan, Unavailable
from tests.chaos.clocks import Clocks, NoClocks
from tests.chaos.cluster import BOOKIES, ChaosCluster
from tests.chaos.faults import Faults
from tests.chaos.forgetful import ForgetfulDisks, Unmountable
from tests.chaos.judges.checkers import Anomaly, Event, check
from tests.chaos.lagging_servers import LaggingServers
from tests.chaos.progress import Progress, Seen
from tests.chaos.readback import Log, Readback, Timing
from tests.chaos.secured import ChaosSecurity
from tests.integration.cluster import wait_until
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
_GROUPS_S_MAX = 120.0
_READ_S_MAX = 60.0


class Healing(NamedTuple):
    """What became of the cluster after the last fault. Times in seconds since then."""

    written_s: float
    """Until every producer and every partition had got on."""
    served_s: float
    """Until every partition had served its first record, one in its middle, and its last."""
    read_s: float
    """Until everything had been read."""
    reading: Timing


class Run:
    """One run: load, faults, verdict. Use as a context manager."""

    def __init__(
        self, plan: Plan, per_s: float, only: Sequence[str], folder: Path, *, is_secured: bool
    ) -> None:
        """`per_s`: records/s of each producer; `only`: classes of faults, all if empty;
        `is_secured`: with TLS and logins on all links."""
        self._plan = plan
        self._per_s = per_s
        self._folder = folder
        self._began_s = time.monotonic()
        self._producers: list[LoadProcess] = []
        self._groups: dict[str, list[LoadProcess]] = {}
        clocks: Clocks | str
        disks: ForgetfulDisks | str
        try:
            clocks = Clocks(folder)
        except (NoClocks, OSError) as error:
            clocks = f"no clock that can be set: {error}"
        try:
            disks = self._disks = ForgetfulDisks(folder, BOOKIES)
        except (Unmountable, OSError) as error:
            self._disks = None
            disks = f"no FUSE file system, which needs /dev/fuse, fuse3 and mfusepy: {error}"
        self._cluster = ChaosCluster(
            folder,
            self._disks.path if self._disks else None,
            None if isinstance(clocks, str) else clocks.command,
            is_secured=is_secured,
        )
        self._administration: Administration | None = None
        self._lagging: LaggingServers | None = None
        if not is_secured and not only:
            self._administration = Administration(self._cluster, plan.seed, self._say)
            rng = random.Random(f"lagging {plan.seed}")
            self._lagging = LaggingServers(self._cluster, rng)
        self._properties: dict[str, str] = {}
        """Of security, by librdkafka's names."""
        if self._cluster.security is not None:
            self._properties = self._cluster.security.properties
        faults = Faults(self._cluster, random.Random(plan.seed), disks, clocks)
        self.unarmed = faults.unarmed
        """Class -> why it cannot be done here."""
        armed = faults.armed()
        self.armed = {name: armed[name] for name in armed if not only or name in only}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        for part in (self._lagging, self._administration):
            if part is not None:
                part.stop()
        for process in [*self._producers, *(m for group in self._groups.values() for m in group)]:
            process.kill()
        self._cluster.stop()
        if self._disks is not None:
            self._disks.close()

    def run(self) -> dict[str, Any]:
        """Return the report."""
        self._say("starting three ZooKeeper servers, five bookies, three brokers")
        self._cluster.start()
        asyncio.run(self._make_topic())
        self._start_load()
        if self._cluster.security is not None:
            self._cluster.security.renew()
            self._check_certificates(self._cluster.security)
        progress = Progress(self._producers)
        campaign = Campaign(self._plan, self.armed, self._cluster, progress, self._say)
        anomalies: list[Anomaly] = []
        healing: Healing | None = None
        log: Log = {}
        for part in (self._administration, self._lagging):
            if part is not None:
                part.start()
        try:
            campaign.run()
            healing = self._heal(campaign, progress)
            log = self._finish()
        except (Unavailable, AssertionError) as error:
            anomalies.append(Anomaly("unavailable", str(error)))
        else:
            anomalies += check(self._history(campaign.events, log))
            if self._administration is not None:
                anomalies += self._administration.finish()
        return self._report(campaign, healing, log, anomalies)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:7.1f} s  {text}", file=sys.stderr, flush=True)

    async def _make_topic(self) -> None:
        brokers = Brokers(self._cluster.bootstrap_servers, security_of(self._properties))
        async with TopicAdmin(brokers) as topics:
            await topics.create(TOPIC, partition_count=PARTITION_COUNT)

    def _start_load(self) -> None:
        servers, per_s = self._cluster.bootstrap_servers, str(self._per_s)
        if self._cluster.security is not None:
            os.environ["QUIRE_LOAD_PROPERTIES"] = str(self._cluster.security.client_config)
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

    def _heal(self, campaign: Campaign, progress: Progress) -> Healing:
        """End all faults; measure how long it takes until everything works and can be read."""
        self._say("healing")
        if self._administration is not None:
            self._administration.end()
        if self._lagging is not None:
            self._lagging.stop()
        began_s = time.monotonic()
        self._cluster.heal()

        def is_well() -> bool:
            campaign.keep_alive()
            progress.look()
            return not progress.silent(began_s)

        wait_until(is_well, "every producer and partition to get on", _READ_S_MAX)
        written_s = time.monotonic() - began_s
        self._say(f"every producer and every partition got on {written_s:.1f} s after healing")
        with self._readback() as readback:
            readback.probe()
            served_s = time.monotonic() - began_s
            self._say(f"every partition served first, middle and last records by {served_s:.1f} s")
            _, timing = readback.whole()
        read_s = time.monotonic() - began_s
        self._say(
            f"everything was read by {read_s:.1f} s: {timing.records} records in"
            f" {timing.seconds:.1f} s, {timing.mb_per_s:.2f} MB/s, longest stall"
            f" {timing.stall_s:.1f} s"
        )
        return Healing(written_s, served_s, read_s, timing)

    def _readback(self) -> Readback:
        servers = self._cluster.bootstrap_servers
        properties = self._properties
        return Readback(servers, TOPIC, PARTITION_COUNT, _READ_S_MAX, properties)

    def _finish(self) -> Log:
        """End the load; return the log once the groups have read all of it."""
        for producer in self._producers:
            producer.finish()
        with self._readback() as readback:
            log, timing = readback.whole()
        for group, members in self._groups.items():
            seen = Seen(members)
            self._say(f"waiting for {group} to read {timing.records} records")
            wait_until(
                lambda seen=seen: seen.look() >= timing.records,
                f"{group} to read {timing.records} records",
                _GROUPS_S_MAX,
            )
        if self._cluster.security is not None:
            self._check_certificates(self._cluster.security)
        return log

    def _check_certificates(self, security: ChaosSecurity) -> None:
        for broker in self._cluster.brokers:
            at = broker.link.near
            wait_until(
                lambda at=at: security.is_renewed(*at), f"{broker.node.name}'s new certificate", 20
            )

    def _history(self, events: list[Event], log: Log) -> list[Event]:
        """Return everything that was observed, and keep it in the folder."""
        history = [*events]
        for p in self._producers:
            history += [
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
                history += [
                    {"f": "poll", "process": m.name, "group": group, **read._asdict()}
                    for read in reads_of(m.lines())
                ]
        for partition, records in log.items():
            history += [
                {"f": "log", "value": value, "partition": partition, "offset": offset}
                for offset, value in records
            ]
        with (self._folder / "history.jsonl").open("w") as file:
            file.writelines(json.dumps(event) + "\n" for event in history)
        return history

    def _report(
        self,
        campaign: Campaign,
        healing: Healing | None,
        log: Log,
        anomalies: list[Anomaly],
    ) -> dict[str, Any]:
        waits = {p.kind: [ack.waited_ms for ack in acks_of(p.lines())] for p in self._producers}
        return {
            "seed": self._plan.seed,
            "seconds": round(time.monotonic() - self._began_s, 1),
            "faults": campaign.counts.total(),
            "classes": len(campaign.counts),
            "by_class": dict(sorted(campaign.counts.items())),
            "without_victim": dict(sorted(campaign.missed.items())),
            "not_armed": self.unarmed,
            "recoveries_s": [round(each, 1) for each in campaign.recoveries_s],
            "restarts_by_themselves": dict(campaign.restarts),
            "records": sum(map(len, log.values())),
            "administration": None
            if self._administration is None
            else dict(sorted(self._administration.counts.items())),
            "lags": None if self._lagging is None else self._lagging.count,
            "anomalies": anomalies,
            "healing": None
            if healing is None
            else {
                "written_s": round(healing.written_s, 1),
                "served_s": round(healing.served_s, 1),
                "read_s": round(healing.read_s, 1),
                "records": healing.reading.records,
                "records_per_s": round(healing.reading.records / healing.reading.seconds),
                "mb_per_s": round(healing.reading.mb_per_s, 3),
                "stall_s": round(healing.reading.stall_s, 1),
            },
            "longest_wait_s": {k: round(max(w, default=0) / 1000, 1) for k, w in waits.items()},
        }
