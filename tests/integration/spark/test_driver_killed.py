"""kill -9 of the driver at every step of a microbatch: nothing lost, nothing twice."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, LocalCluster, wait_until
from tests.integration.spark.topics import create, publish

STEPS = (
    "after the offsets are written",
    "while a task reads",
    "before the sink writes",
    "after the sink wrote",
    "before the offsets are written",
    "when the source is told of the commit",
)
"""In this order every run meets its step: the first four in batch 0, which none of them commits;
the fifth commits it and dies on the way to batch 1, the last one on the way from there."""

PER_RUN = 50
ROUNDS = int(os.environ.get("QUIRE_SPARK_ROUNDS", "1"))
"""How often all steps are met; `make spark` does it more often than `make test`."""


@pytest.mark.timeout(400 * ROUNDS)
def test_a_driver_dies_at_every_step(cluster: LocalCluster, tmp_path: Path) -> None:
    topic = create(cluster, "killed-driver", partition_count=2)
    publish(cluster, topic, [b"-1"] * 10)  # before the query begins, at the end
    counter = itertools.count()
    published = 0

    def driver(step: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable, "-m", "tests.integration.spark.killed_driver",
                    cluster.bootstrap_servers, topic, str(tmp_path), step,
                ],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    for step in [*STEPS, *STEPS * (ROUNDS - 1)]:
        process = driver(step)
        try:
            wait_until((tmp_path / "begun").exists, "the query to begin", 100)
            values = [b"%d" % next(counter) for _ in range(PER_RUN)]
            publish(cluster, topic, values[: PER_RUN // 2], partition=0)
            publish(cluster, topic, values[PER_RUN // 2 :], partition=1)
            published += PER_RUN
            code = process.wait(100)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert code == -signal.SIGKILL, (step, (tmp_path / "driver.log").read_text()[-3000:])

    last = driver("none")
    assert last.wait(100) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    batches = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    assert sorted(itertools.chain(*batches)) == list(range(published))
    assert len(batches) >= 2
