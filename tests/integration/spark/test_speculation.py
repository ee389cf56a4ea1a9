"""The exactly-once sink where Spark runs a slow task twice at a time: an attempt that has written
loses against another, and a batch goes to two topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.ports import pick_free_runs
from tests.integration.cluster import LocalCluster
from tests.integration.spark.speculating_sink import COUNT, SETTINGS
from tests.integration.spark.standalone import StandaloneSpark
from tests.integration.spark.topics import create, publish
from tests.integration.test_pubsub_transactions import read


@pytest.mark.timeout(400)
def test_of_two_attempts_at_a_time_one_counts(cluster: LocalCluster, tmp_path: Path) -> None:
    topic = create(cluster, "speculated", partition_count=2)
    for partition in range(2):
        create(cluster, f"{topic}-{partition}", partition_count=2)
        values = [b"%d" % n for n in range(partition, COUNT, 2)]
        publish(cluster, topic, values, partition=partition)
    (port,) = pick_free_runs(1)
    with StandaloneSpark(port, tmp_path) as spark:
        spark.driver(
            "tests.integration.spark.speculating_sink",
            [cluster.bootstrap_servers, topic, str(tmp_path)],
            **SETTINGS,
        )
        said = spark.executors_said()
    assert "task 0.0 in stage 0.0 (TID 0), interruptThread: true, reason: another attempt" in said
    for partition in range(2):
        copy = f"{topic}-{partition}"
        assert sorted(map(int, read(cluster, copy))) == list(range(partition, COUNT, 2))
    written = sum(len(read(cluster, f"{topic}-{p}", committed=False)) for p in range(2))
    assert written > COUNT, "the attempt that lost had not written"
