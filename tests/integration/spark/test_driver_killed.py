"""kill -9 of the driver at every step of a microbatch: nothing lost, nothing twice."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, LocalCluster, wait_until
from tests.integration.spark.killed_driver import BEGUN, NONE, OUT, REACHED, STEPS
from tests.integration.spark.topics import create, publish

PARTITIONS = 2
PER_LOT = 10
QUERIES = 3
ROUNDS = int(os.environ.get("QUIRE_SPARK_ROUNDS", "1"))
"""How often every step is met; `make spark` does it more often than `make test-all`. A driver has a
query at each of three steps, so two of them are killed in a round. What the first death leaves
unfinished is in the way of the second; in the next round each query stops a step later."""

KILLS = ROUNDS * len(STEPS) // QUERIES
START_S = 200.0
"""A driver starts a dozen processes."""


class Driver:
    """A driver that runs until it is killed."""

    def __init__(self, servers: str, topic: str, folder: Path, steps: list[str]) -> None:
        self.folders = [folder / str(number) for number in range(len(steps))]
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.integration.spark.killed_driver",
                    servers, topic, str(folder), *steps,
                ],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def have(self, name: str) -> bool:
        """Whether all queries have made a file; fails if they cannot any more."""
        assert self._process.poll() is None, self.tail()
        return all((folder / name).exists() for folder in self.folders)

    def wait(self) -> int:
        return self._process.wait(START_S)

    def kill(self) -> None:
        """End Python and JVM at the same moment."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.mark.timeout(600 * ROUNDS)
def test_a_driver_dies_at_every_step(cluster: LocalCluster, tmp_path: Path) -> None:
    topic = create(cluster, "killed-driver", partition_count=PARTITIONS)
    publish(cluster, topic, [b"-1"] * 10)  # before the queries begin, at the end
    counter = itertools.count()

    def come_to_their_steps(driver: Driver) -> bool:
        for partition in range(PARTITIONS):
            values = [b"%d" % next(counter) for _ in range(PER_LOT)]
            publish(cluster, topic, values, partition=partition)
        until = time.monotonic() + 0.5
        while not driver.have(REACHED) and time.monotonic() < until:
            time.sleep(0.02)
        return driver.have(REACHED)  # if not, some need another batch to stop in

    for number in range(KILLS):
        first = number * QUERIES + number // 2
        steps = [STEPS[(first + at) % len(STEPS)] for at in range(QUERIES)]
        driver = Driver(cluster.bootstrap_servers, topic, tmp_path, steps)
        try:
            wait_until(partial(driver.have, BEGUN), "the queries to begin", START_S)
            wait_until(
                partial(come_to_their_steps, driver), "the queries to come to a step", START_S
            )
        finally:
            driver.kill()
        for folder in driver.folders:
            (folder / REACHED).unlink()

    last = Driver(cluster.bootstrap_servers, topic, tmp_path, [NONE] * QUERIES)
    try:
        assert last.wait() == 0, last.tail()
    finally:
        last.kill()
    published = list(range(next(counter)))
    for folder in last.folders:
        batches = [json.loads(path.read_text()) for path in (folder / OUT).glob("*.json")]
        assert sorted(itertools.chain(*batches)) == published
        assert len(batches) >= 2
