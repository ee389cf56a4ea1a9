"""Every sample of settings is read by the real loaders, and the nodes of a sample fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.deploy.files import DEPLOY, env_file, settings

CONFIG = DEPLOY / "config"
SAMPLES = ("one-machine", "three-machines", "three-machines-secured", "three-zones")


SECURED = "three-machines-secured"
SECRETS = {
    "QUIRE_BROKER_ADMIN_TOKEN": "x" * 48,
    "QUIRE_BROKER_SECURITY_INTER_BROKER_PASSWORD": "y" * 48,
    "QUIRE_BROKER_CLUSTER_SECURITY_ZOOKEEPER_PASSWORD": "z" * 48,
    "QUIRE_BOOKIE_ADMIN_TOKEN": "x" * 48,
    "QUIRE_BOOKIE_CLUSTER_SECURITY_ZOOKEEPER_PASSWORD": "z" * 48,
}
"""What `make.sh` adds to the variables of that sample."""


def nodes(sample: str, program: str) -> list[Any]:
    """Return the settings of each node of a kind: each file, with each machine's variables."""
    files = sorted((CONFIG / sample).glob(f"{program}*.toml"))
    machines = [env_file(path) for path in sorted((CONFIG / sample).glob("*.env"))] or [{}]
    if sample == SECURED:
        machines = [environ | SECRETS for environ in machines]
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


@pytest.mark.parametrize("sample", ("three-machines", "three-zones"))
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


def test_nothing_of_the_secured_sample_is_open() -> None:
    """`tests/integration/test_three_machines.py` starts it."""
    for broker in nodes(SECURED, "broker"):
        (listener,) = broker.security.parsed_listeners()
        assert (listener.name, broker.security.authorization) == ("SASL_SSL", True)
        assert listener.bind.host == broker.admin_host
        assert not broker.metrics_are_open and broker.admin_tls_cert is not None
        assert "User:ANONYMOUS" not in broker.security.super_users
        assert broker.cluster_security.bookie_tls and broker.cluster_security.zookeeper_tls
    script = (CONFIG / SECURED / "make.sh").read_text()
    for bookie in nodes(SECURED, "bookie"):
        assert bookie.access.open_reason() == ""
        assert bookie.access.allowed_clients == ("node1", "node2", "node3", "operator")
        assert not bookie.metrics_are_open and bookie.admin_tls_cert is not None
        assert bookie.cluster_security.zookeeper_user
    assert all(f"{name}=" in script for name in SECRETS)
