"""What TLS and logins cost: the figures, the clusters that are compared, the load that logs in."""

from __future__ import annotations

import asyncio
import struct
import tomllib
from pathlib import Path
from typing import Any

import pytest

from client.errors import ConfigError
from client.kafka_security import ClientSecurity, security_of
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.sasl_login import LOGIN_ID
from ops.bench.load import requests
from ops.bench.login import login_of, properties_of
from ops.bench.peers.secured import ClientLinks, Links, SecuredTurn
from ops.bench.report.targets import ALONE, target_of
from ops.bench.workloads.records.secured import Cost, figures_of
from ops.local.node_files import write_toml

LABEL = "produce 1024 B, 1 partition, 1 MB batches"
SMALL = "unbatched requests, 64 connections"
PLAIN = ClientSecurity(protocol="SASL_SSL", mechanism="PLAIN", username="u", password="p")


def costs(cpu_s: float, cpu_us: float) -> dict[str, Cost]:
    return {
        LABEL: Cost("MB/s", 100.0, "CPU s per GB", cpu_s),
        SMALL: Cost("requests/s", 1_000.0, "CPU µs per request", cpu_us),
    }


def test_each_secured_cluster_is_compared_with_plain_text_and_has_targets() -> None:
    found = figures_of(
        {Links.NONE: costs(2.0, 100.0), Links.CLIENTS: costs(3.0, 120.0),
         Links.ALL: costs(4.0, 150.0)}
    )  # fmt: skip
    values = {(one.workload, one.measure): one.value for one in found}
    for links, times, small in ((Links.CLIENTS, 1.5, 1.2), (Links.ALL, 2.0, 1.5)):
        row, measure = f"{links.value}: {LABEL}", "CPU s per GB, times plaintext's"
        assert values[row, measure] == times
        assert values[row, "in plaintext CPU s per GB"] == 2.0
        assert str(target_of(row, measure, ALONE)) == "value <= 1.6"
        row, measure = f"{links.value}: {SMALL}", "CPU µs per request, times plaintext's"
        assert values[row, measure] == small
        assert str(target_of(row, measure, ALONE)) == "value <= 1.3"
    assert not any(one.workload.startswith(Links.NONE.value) for one in found)


def test_one_cluster_secures_its_clients_alone(tmp_path: Path) -> None:
    made = ClientLinks(tmp_path)
    made.prepare()
    assert made.bookie_settings() == {} and not made.cluster_security().bookie_tls
    write_toml(tmp_path / "broker.toml", made.broker_settings(9_092))
    settings = tomllib.loads((tmp_path / "broker.toml").read_text())
    assert settings["security"]["listeners"] == ["SASL_SSL://127.0.0.1:9092"]
    assert not settings["cluster_security"]["bookie_tls"]
    assert not settings["cluster_security"]["zookeeper_tls"]
    client = security_of(properties_of(str(made.client_config)))
    assert client.is_tls and client.is_sasl


def test_the_results_say_what_each_cluster_is(tmp_path: Path) -> None:
    assert set(SecuredTurn(tmp_path).settings()) == {links.value for links in Links}


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


def connection(security: ClientSecurity) -> tuple[requests._Connection, Transport]:
    made = requests._Connection([b"request"], 2, "t", asyncio.Event(), login_of(security))
    transport: Any = Transport()
    made.connection_made(transport)
    return made, transport


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_a_connection_logs_in_before_its_first_request() -> None:
    made, transport = connection(PLAIN)
    made.data_received(frame(struct.pack(">ihi", LOGIN_ID, 0, 0)))
    keys = [struct.unpack_from(">h", sent, 4)[0] for sent in transport.written]
    assert keys == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    made.data_received(frame(struct.pack(">ihhiq", LOGIN_ID, 0, -1, 0, 0)))
    assert transport.written[2:] == [b"request"] * 2
    assert connection(ClientSecurity())[1].written == [b"request"] * 2


def test_a_login_that_is_refused_voids_the_run_with_its_reason() -> None:
    made, _ = connection(PLAIN)
    made.data_received(frame(struct.pack(">ihi", LOGIN_ID, 33, 0)))
    assert made.failure is not None and "PLAIN is not offered" in made.failure


def test_settings_are_those_of_a_file(tmp_path: Path) -> None:
    assert properties_of("") == {}
    with pytest.raises(ConfigError, match="cannot read"):
        properties_of(str(tmp_path / "missing.properties"))
