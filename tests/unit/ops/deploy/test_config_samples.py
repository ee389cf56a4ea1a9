"""Every sample of settings is read by the real loaders, and the nodes of a sample fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.deploy.files import DEPLOY, env_file, settings

CONFIG = DEPLOY / "config"
SAMPLES = ("one-machine", "three-machines", "three-zones")


def nodes(sample: str, program: str) -> list[Any]:
    """Return the settings of each node of a kind: each file, with each machine's variables."""
    files = sorted((CONFIG / sample).glob(f"{program}*.toml"))
    machines = [env_file(path) for path in sorted((CONFIG / sample).glob("*.env"))] or [{}]
    return [settings(program, environ, path) for path in files for environ in machines]


def test_every_sample_has_its_tests() -> None:
    assert sorted(path.name for path in CONFIG.iterdir()) == sorted(SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_load_and_fit_together(sample: str) -> None:
    brokers, bookies = nodes(sample, "broker"), nodes(sample, "bookie")
    assert len({broker.node_id for broker in brokers}) == len(brokers)
    names = {(bookie.client_host(), bookie.port) for bookie in bookies}
    assert len(names) == len(bookies) == 3
    for broker in brokers:
        assert broker.default_min_insync_replicas == 2
        assert broker.default_replication_factor == len(bookies)
        assert broker.admin_port > 0
    assert len({node.zookeeper for node in [*brokers, *bookies]}) == 1
    assert all(bookie.auto_recovery and bookie.admin_port for bookie in bookies)
    assert all(bookie.recovery.lost_bookie_delay_ms >= 60_000 for bookie in bookies)


@pytest.mark.parametrize("sample", SAMPLES[1:])
def test_nodes_of_several_machines_reach_each_other(sample: str) -> None:
    for broker in nodes(sample, "broker"):
        assert broker.listen_host == broker.admin_host == "0.0.0.0"
        assert broker.advertised_host == broker.admin_advertised_host
        assert broker.advertised_host.endswith(".example")
    assert all(one.client_host().endswith(".example") for one in nodes(sample, "bookie"))


def test_in_zones_each_has_its_rack_and_copies_span_them() -> None:
    brokers, bookies = nodes("three-zones", "broker"), nodes("three-zones", "bookie")
    assert {node.rack for node in brokers} == {node.rack for node in bookies}
    assert len({node.rack for node in bookies}) == 3
    assert all(broker.ledger.racks_min == 3 for broker in brokers)


def test_ports_of_one_machine_do_not_meet() -> None:
    brokers, bookies = nodes("one-machine", "broker"), nodes("one-machine", "bookie")
    ports = [port for node in [*brokers, *bookies] for port in (node.port, node.admin_port)]
    assert len(set(ports)) == len(ports)
    assert len({bookie.data_dir for bookie in bookies}) == len(bookies)


@pytest.mark.parametrize("sample", SAMPLES)
def test_zookeeper_tells_the_doctor_and_allows_our_sessions(sample: str) -> None:
    path: Path = CONFIG / sample / "zoo.cfg"
    lines = [line for line in path.read_text().splitlines() if "=" in line and line[0] != "#"]
    found = dict(line.split("=", 1) for line in lines)
    assert "srvr" in found["4lw.commands.whitelist"].split(",")
    longest_ms = int(found.get("maxSessionTimeout", 20 * int(found["tickTime"])))
    for program in ("broker", "bookie"):
        for node in nodes(sample, program):
            assert int(found["minSessionTimeout"]) <= node.session_timeout_ms <= longest_ms
            hosts = {server.partition(":")[0] for server in node.zookeeper}
            peers = {value.partition(":")[0] for key, value in found.items() if "server." in key}
            assert hosts == peers or (hosts == {"127.0.0.1"} and not peers)
