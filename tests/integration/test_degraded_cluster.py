"""A bookie of three dies for good, then the broker that leads: nobody notices, nothing is lost.

Topics have three copies, two of them synced before an acknowledgement, which is what Kafka users
choose to survive the loss of one machine. The new leader has only two bookies for its ledgers. A
third bookie comes back in the end, and new records have three copies again.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from client.ids import LedgerId
from client.ledger import LedgerClient, connect
from client.pubsub import TopicAdmin
from ops.child import LEASH
from tests.integration.cluster import ROOT, LocalCluster
from tests.integration.numbered import ProducerProcess, check, read_log

pytestmark = pytest.mark.smoke

TOPIC = "degraded"
PARTITION_COUNT = 4
ROUND_RECORDS = 1_000
PER_S = 2_000


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        await asyncio.sleep(0.05)


async def copies_of_open_ledgers(ledgers: LedgerClient) -> list[int]:
    known: list[LedgerId] = [ledger_id async for ledger_id in ledgers.ledgers()]
    found = [await ledgers.describe(ledger_id) for ledger_id in known]
    return [metadata.write_quorum for metadata in found if not metadata.is_closed]


def start_bookie_again(cluster: LocalCluster, name: str) -> subprocess.Popen[bytes]:
    """Start a node that the supervisor left dead; it ends with this process at the latest."""
    command = [sys.executable, "-m", "bookie", "--config", str(cluster.data / f"{name}.toml")]
    with (cluster.data / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


@pytest.mark.timeout(300)
async def test_a_bookie_and_then_a_broker_die_for_good(
    start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(flags=["--no-restart"])
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create(TOPIC, partition_count=PARTITION_COUNT)
    producers = [
        ProducerProcess(kind, kind, cluster.bootstrap_servers, TOPIC, tmp_path, PER_S)
        for kind in ("librdkafka", "quire")
    ]

    async def more() -> None:
        for each in producers:
            await asyncio.to_thread(each.wait_for_more, ROUND_RECORDS)

    returned: subprocess.Popen[bytes] | None = None
    try:
        async with connect(cluster.zookeeper) as ledgers:
            await more()
            cluster.kill("bookie-0")
            await until(lambda: len(ledgers.writable_bookies) == 2, "the bookie's session to end")
            await more()
            cluster.kill("broker-0")
            await more()
            assert 2 in await copies_of_open_ledgers(ledgers), "the new leader's"
            returned = start_bookie_again(cluster, "bookie-0")
            await until(lambda: len(ledgers.writable_bookies) == 3, "the bookie to be back")
            deadline_s = time.monotonic() + 60
            while 2 in await copies_of_open_ledgers(ledgers):
                assert time.monotonic() < deadline_s, "ledgers with two copies stay in use"
                await asyncio.sleep(0.2)
            await more()
        for each in producers:
            each.finish()
        check(producers, read_log(cluster.bootstrap_servers, TOPIC, PARTITION_COUNT))
    finally:
        for each in producers:
            each.process.kill()
            each.process.wait()
        if returned is not None:
            returned.kill()
            returned.wait()
