"""A few rounds of `tests.fuzz.sockets`; `make fuzz` goes on for longer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fuzz.judge import Misbehaved
from tests.fuzz.sockets import fuzz
from tests.hostile.attacks.target import Target
from tests.integration.cluster import LocalCluster

CONNECTIONS = 600


@pytest.mark.timeout(300)
def test_mutated_handshakes_and_logins_harm_nobody(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, brokers=1, flags=("--secure",))
    with cluster:
        target = Target(cluster)
        said = asyncio.run(fuzz(target, 7, lambda fuzzer: fuzzer.count < CONNECTIONS))
        assert said.startswith(f"{CONNECTIONS} connections of seed 7")
        assert "closed in the handshake" in said and "answered" in said, "it gets past the door"

        with (cluster.data / "broker-0.log").open("a") as log:
            log.write("connection.broken peer=127.0.0.1\n")
        with pytest.raises(Misbehaved, match=r"connection\.broken"):
            asyncio.run(fuzz(target, 8, lambda fuzzer: fuzzer.count < 1))
