"""SIGTERM ends a node within ten seconds whatever the others do: gone, frozen, or well."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from client.pubsub import TopicAdmin
from tests.integration.cluster import LocalCluster, is_alive, wait_until
from tests.integration.numbered import ProducerProcess, check, read_log

TOPIC = "shutdown"
PARTITION_COUNT = 4
EXIT_S_MAX = 10.0


def ends_in_time(cluster: LocalCluster, *names: str) -> dict[str, float]:
    """Send SIGTERM to nodes, wait for their ends, and return how long each took."""
    pids = {name: cluster.kill(name, signal.SIGTERM) for name in names}
    began_s = time.monotonic()
    took: dict[str, float] = {}

    def all_gone() -> bool:
        for name, pid in pids.items():
            if name not in took and not is_alive(pid):
                took[name] = time.monotonic() - began_s
        return len(took) == len(pids)

    wait_until(all_gone, f"{names} to end", 40)
    late = {name: seconds for name, seconds in took.items() if seconds >= EXIT_S_MAX}
    assert not late, f"{late}\n{[cluster.node_log(name)[-2000:] for name in late]}"
    for name in names:
        assert "Traceback" not in cluster.node_log(name)
    return took


def is_ready(cluster: LocalCluster, broker: int) -> bool:
    url = f"http://127.0.0.1:{cluster.about['brokers'][broker]['admin']}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.timeout(300)
async def test_nodes_end_in_time_whatever_the_others_do(
    start_cluster: Callable[..., LocalCluster],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    cluster = start_cluster(bookies=4)
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(TOPIC, partition_count=PARTITION_COUNT)
    producer = ProducerProcess(
        "librdkafka", "librdkafka", cluster.bootstrap_servers, TOPIC, tmp_path, 1_000
    )
    try:
        producer.wait_for_more(500)
        report = {}
        for name in ("broker-0", "bookie-3"):
            was = cluster.pid_of(name)
            report[f"all is well: {name}"] = ends_in_time(cluster, name)
            cluster.wait_restarted(name, was)
            producer.wait_for_more(500)
        wait_until(lambda: is_ready(cluster, 0), "broker 0 to be back")
        # The other broker found closed ledgers: nothing was there to recover.
        assert "takeover.leading" in cluster.node_log("broker-1")
        assert "ledger.recovering" not in cluster.node_log("broker-1")
        # Two of four bookies hang with adds in flight: broker 1 can confirm nothing any more.
        frozen = [cluster.kill(name, signal.SIGSTOP) for name in ("bookie-0", "bookie-1")]
        was = cluster.pid_of("broker-1")
        report["bookies hang"] = ends_in_time(cluster, "broker-1")
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        cluster.wait_restarted("broker-1", was)
        producer.wait_for_more(500)
        wait_until(lambda: is_ready(cluster, 1), "broker 1 to be back")
        zookeeper = cluster.kill("zookeeper", signal.SIGSTOP)
        report["ZooKeeper hangs"] = ends_in_time(cluster, "broker-1", "bookie-2")
        os.kill(zookeeper, signal.SIGCONT)
        producer.wait_for_more(500)
        producer.finish()
        check([producer], read_log(cluster.bootstrap_servers, TOPIC, PARTITION_COUNT))
        for why, took in report.items():
            record_property(why, took)
    finally:
        producer.process.kill()
        producer.process.wait()
