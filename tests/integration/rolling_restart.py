"""A rolling restart of a local cluster under load, and what it did to producers and consumers.

    python -m tests.integration.rolling_restart [--brokers 3] [--bookies 3] [--per-s 500] [--json]

Starts a cluster, lets idempotent producers of three code bases publish and two groups read, runs
`quire restart` over every bookie and every broker, and then holds the log and the notes of all
clients against each other. Rules (asserted): every acknowledged record is in the log once, at its
offset, in its key's order, and every record of the log was read by each group, in each partition's
order. Figures (reported): the longest wait for an acknowledgement, the longest silence of the
groups, and what each restart took. `make rolling-restart` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from client.pubsub import TopicAdmin
from tests.integration.cluster import ROOT, LocalCluster, wait_until
from tests.integration.numbered import read_log

TOPIC = "rolling"
PARTITION_COUNT = 6
KINDS = ("confluent", "kafka-python", "aiokafka")
GROUP_KINDS = ("confluent", "aiokafka")
GROUP_SIZE = 2
WARM_UP_ACKS = 200
EXIT_S_MAX = 10.0
END_S_MAX = {"produce": 130.0, "consume": 90.0}
"""From SIGTERM to the end of a load process: producers go on trying for 120 s, and librdkafka keeps
a commit for a session timeout of 45 s, in case that a coordinator appears."""
LOG_LINES = 200
"""Of each log, when something went wrong."""
_DUMP_S = 1.0
"""What a process on a busy machine may take to write its stacks."""
ENVIRON = {
    "QUIRE_BOOKIE_AUTO_RECOVERY": "true",
    "QUIRE_BOOKIE_RECOVERY_POLL_MS": "300",
    "QUIRE_BOOKIE_RECOVERY_RETRY_MIN_MS": "500",
    "QUIRE_BOOKIE_RECOVERY_LOST_BOOKIE_DELAY_MS": "60000",
}
"""Somebody must copy what a bookie missed, but not all it has because it was away for a moment."""


class Ack(NamedTuple):
    """A line of a producer's notes."""

    number: int
    partition: int
    offset: int
    sent_ms: int
    waited_ms: float


class Read(NamedTuple):
    """A line of a consumer's notes."""

    partition: int
    offset: int
    value: str


class LoadProcess:
    """A process of `rolling_load`, and what it noted."""

    def __init__(
        self, role: str, kind: str, name: str, servers: str, folder: Path, last: str
    ) -> None:
        self.name = name
        self.kind = kind
        self._role = role
        self._notes_path = folder / f"{name}.notes"
        self._log_path = folder / f"{name}.log"
        program = (sys.executable, "-m", "tests.integration.rolling_load")
        about = (role, kind, servers, TOPIC, name, str(self._notes_path), last)
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen([*program, *about], cwd=ROOT, stderr=log)

    def lines(self) -> list[list[str]]:
        return self.lines_from(0)[0]

    def lines_from(self, position: int) -> tuple[list[list[str]], int]:
        """Return the notes from a position of the file on, and where they end."""
        if not self._notes_path.exists():
            return [], position
        with self._notes_path.open("rb") as notes:
            notes.seek(position)
            data = notes.read()
        data = data[: data.rfind(b"\n") + 1]
        return [line.split() for line in data.decode().splitlines()], position + len(data)

    def check_alive(self) -> None:
        assert self.process.poll() is None, f"{self.name} ended: {self.log_end()}"

    def finish(self) -> None:
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        timeout_s = END_S_MAX[self._role]
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end in {timeout_s:g} s") from None
        assert code == 0, f"{self.name} ended with {code}: {self.log_end()}"

    def dump_stacks(self) -> None:
        """Have the process write its Python stacks into its log; it does, whatever it hangs in."""
        self.process.send_signal(signal.SIGUSR1)

    def standing(self) -> str:
        """Say where the process stands: its native threads, and what it logged."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/comm")
        threads = ", ".join(sorted(path.read_text().strip() for path in tasks))
        return f"--- {self.name}, threads: {threads or 'none'}\n{self.log_end()}"

    def log_end(self) -> str:
        """Return the last lines of the log.

        Of librdkafka's lines only those that are not about fetching, and of those that say the
        same, which a hanging thread may write a thousand times a second, the last one.
        """
        lines: dict[str, str] = {}
        for number, line in enumerate(self._log_path.read_text(errors="replace").splitlines()):
            if " FetchRe" in line:
                continue
            said = line.split("|", 2)[-1] if line.startswith("%") else str(number)
            lines.pop(said, None)
            lines[said] = line
        return "\n".join([*lines.values()][-LOG_LINES:])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def acks_of(lines: Sequence[Sequence[str]]) -> list[Ack]:
    return [Ack(int(n), int(p), int(o), int(sent), float(w)) for n, p, o, sent, w in lines]


def reads_of(lines: Sequence[Sequence[str]]) -> list[Read]:
    return [Read(int(p), int(o), value) for p, o, value in lines]


class Outcome(NamedTuple):
    """What a run showed."""

    restarts: list[dict[str, Any]]
    records: int
    longest_wait_ms: dict[str, float]
    """By producer: the longest time between sending a record and its acknowledgement."""
    waits_over_1_s: dict[str, int]
    reread: dict[str, int]
    """By group: records that its members read more than once."""
    seconds: float

    def report(self) -> dict[str, Any]:
        return self._asdict()


def check_log(log: dict[int, list[tuple[int, str]]], producers: list[LoadProcess]) -> int:
    """Assert the rules for producers; return how many records there are."""
    at = {(p, offset): value for p, records in log.items() for offset, value in records}
    values = list(at.values())
    assert len(values) == len(set(values)), "a record is there twice"
    for producer in producers:
        acks = acks_of(producer.lines())
        assert [ack.number for ack in sorted(acks)] == list(range(len(acks))), "an ack is missing"
        wrong = [
            a for a in acks if at.get((a.partition, a.offset)) != f"{producer.name}:{a.number}"
        ]
        assert not wrong, f"{producer.name}: {len(wrong)} acknowledged, not there: {wrong[:5]}"
        own = [value for value in values if value.startswith(f"{producer.name}:")]
        assert len(own) == len(acks), f"{producer.name}: {len(own)} there, {len(acks)} acknowledged"
    for partition, records in log.items():
        last: dict[str, int] = {}
        for _, value in records:
            name, _, number = value.partition(":")
            assert last.get(name, -1) < int(number), f"disorder in {partition}: {value}"
            last[name] = int(number)
    return len(values)


def check_group(log: dict[int, list[tuple[int, str]]], members: list[LoadProcess]) -> int:
    """Assert the rules for a group; return how many records were read more than once."""
    at = {(p, offset): value for p, records in log.items() for offset, value in records}
    seen: dict[tuple[int, int], int] = {}
    for member in members:
        for read in reads_of(member.lines()):
            assert at.get((read.partition, read.offset)) == read.value, read
            seen[read.partition, read.offset] = seen.get((read.partition, read.offset), 0) + 1
    missing = at.keys() - seen.keys()
    assert not missing, f"{members[0].name}: {len(missing)} never read: {sorted(missing)[:5]}"
    return sum(count - 1 for count in seen.values())


class Run:
    """One run on a cluster that serves."""

    def __init__(self, cluster: LocalCluster, folder: Path, per_s: float) -> None:
        self._cluster = cluster
        self._folder = folder
        self._per_s = per_s
        self._producers: list[LoadProcess] = []
        self._groups: dict[str, list[LoadProcess]] = {}

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self._story())
        for each in self._processes():
            each.kill()

    def start_load(self, kinds: Sequence[str], group_kinds: Sequence[str]) -> None:
        """Start everything; return once all producers and all groups are under way."""
        servers = self._cluster.bootstrap_servers
        for kind in kinds:
            self._producers.append(
                LoadProcess(
                    "produce", kind, f"producer-{kind}", servers, self._folder, str(self._per_s)
                )
            )
        for kind in group_kinds:
            self._groups[kind] = [
                LoadProcess(
                    "consume", kind, f"group-{kind}-{i}", servers, self._folder, f"group-{kind}"
                )
                for i in range(GROUP_SIZE)
            ]
        for producer in self._producers:
            self._wait(lambda p=producer: len(p.lines()) >= WARM_UP_ACKS, producer)
        for members in self._groups.values():
            for member in members:
                self._wait(lambda m=member: bool(m.lines()), member)

    def restart_everything(self, flags: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Run `quire restart`; return what it printed."""
        admin = ",".join(
            f"http://127.0.0.1:{node['admin']}" for node in self._cluster.about["brokers"]
        )
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ops.cli.main", "restart", "--json"),
                *("--admin", admin, "--data", str(self._cluster.data), *flags),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def finish(self) -> dict[int, list[tuple[int, str]]]:
        """End the load, the groups only when they have read everything; return the log."""
        for producer in self._producers:
            producer.finish()
        log = read_log(self._cluster.bootstrap_servers, TOPIC, PARTITION_COUNT)
        ends = {p: len(records) for p, records in log.items()}
        for members in self._groups.values():

            def has_all(members: list[LoadProcess] = members) -> bool:
                reads = [r for m in members for r in reads_of(m.lines())]
                return len({(r.partition, r.offset) for r in reads}) >= sum(ends.values())

            self._wait(has_all, members[0])
        for members in self._groups.values():
            for member in members:
                member.finish()
        return log

    def outcome(
        self, restarts: list[dict[str, Any]], log: dict[int, list[tuple[int, str]]], seconds: float
    ) -> Outcome:
        """Assert the rules and return the figures."""
        records = check_log(log, self._producers)
        waits = {p.kind: [a.waited_ms for a in acks_of(p.lines())] for p in self._producers}
        return Outcome(
            restarts,
            records,
            {kind: round(max(each)) for kind, each in waits.items()},
            {kind: sum(one > 1_000 for one in each) for kind, each in waits.items()},
            {kind: check_group(log, members) for kind, members in self._groups.items()},
            round(seconds, 1),
        )

    def _processes(self) -> list[LoadProcess]:
        members = itertools.chain.from_iterable(self._groups.values())
        return [*self._producers, *members]

    def _story(self) -> str:
        """Say where every process of the load stands, and what the brokers did with the groups."""
        processes = self._processes()
        for each in processes:
            each.dump_stacks()
        time.sleep(_DUMP_S)
        brokers = [
            line
            for node in self._cluster.about["brokers"]
            for line in self._cluster.node_log(f"broker-{node['id']}").splitlines()
            if " group." in line or " coordinator." in line
        ]
        told = [each.standing() for each in processes]
        return "\n".join([*told, "--- the brokers, of groups", *sorted(brokers)[-LOG_LINES:]])

    @staticmethod
    def _wait(condition: Any, process: LoadProcess) -> None:
        def there() -> bool:
            process.check_alive()
            return bool(condition())

        wait_until(there, f"{process.name} to get on", 90)


def run(
    cluster: LocalCluster,
    folder: Path,
    *,
    per_s: float,
    kinds: Sequence[str] = KINDS,
    group_kinds: Sequence[str] = GROUP_KINDS,
    flags: Sequence[str] = (),
) -> Outcome:
    """Restart every node of a cluster that serves, under load; assert the rules."""
    began_s = time.monotonic()

    async def make_topic() -> None:
        async with TopicAdmin(cluster.bootstrap_servers) as topics:
            await topics.create(TOPIC, partition_count=PARTITION_COUNT)

    asyncio.run(make_topic())
    with Run(cluster, folder, per_s) as load:
        load.start_load(kinds, group_kinds)
        restarts = load.restart_everything(flags)
        log = load.finish()
        return load.outcome(restarts, log, time.monotonic() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rolling restart under load: the figures.")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--bookies", type=int, default=3)
    parser.add_argument("--per-s", type=float, default=500, help="records/s of each producer")
    parser.add_argument("--keep", type=Path, help="leave all notes and logs in this directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quire-rolling-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with LocalCluster(
            folder, brokers=options.brokers, bookies=options.bookies, environ=ENVIRON
        ) as cluster:
            outcome = run(cluster, folder, per_s=options.per_s)
    print(json.dumps(outcome.report(), indent=1))


if __name__ == "__main__":
    main()
