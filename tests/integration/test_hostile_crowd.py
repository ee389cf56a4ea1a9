"""A thousand hostile connections and one honest client, on a real broker and on a real bookie.

The crowd claims lengths, drips, sends halves of requests, is silent, or asks and does not read.
What the honest client waits is compared with what it waited just before, on the same processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from client.ledger import connect
from client.node.process import connections_that_fit
from client.wire.bookkeeper import v2
from client.wire.bookkeeper.messages import Status
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.bookie_box import add, read
from tests.fakes.wire_client import WireClient
from tests.integration.cluster import LocalCluster
from tests.unit.broker.front.handlers.requests import produce

CROWD = 1_000
CALLS = 150
HALF_BYTES = 60_000
"""Of a request that claims a megabyte."""
WAIT_FACTOR_MAX = 5.0
WAIT_SLACK_S = 0.5
"""For the cores that the crowd itself takes from everybody on a small machine."""
GROWTH_BYTES_MAX = CROWD * (HALF_BYTES + 64 * 1024) + (64 << 20)
"""What was sent, 64 KiB for each connection, and what an honest client costs."""

Call = Callable[[], Awaitable[None]]


class Hostile(asyncio.Protocol):
    """One of the crowd. Reads nothing, or only what a kernel takes for it."""

    def __init__(self, says: bytes) -> None:
        self._says = says
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()
        transport.write(self._says)


def lines_of(kind: str) -> list[bytes]:
    """What each member of the crowd says, in turn."""
    claim = struct.pack(">i", 1 << 20)
    if kind == "broker":
        question = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 1, -1)
    else:
        question = b"".join(v2.encode_request(read(10**9, 0)))
    return [b"", claim[:2], claim, claim + bytes(HALF_BYTES), question * 200, b"\x16\x03\x01" * 9]


@contextlib.asynccontextmanager
async def crowd(kind: str, port: int) -> AsyncIterator[int]:
    """Connect them all, from many addresses of this machine, and let them drip."""
    loop = asyncio.get_running_loop()
    says = lines_of(kind)
    members: list[Hostile] = []
    count = connections_that_fit(CROWD, reserved=300)
    for number in range(count):
        address = (f"127.0.{number % 4}.{2 + number % 200}", 0)
        with contextlib.suppress(ConnectionError):
            _, member = await loop.create_connection(
                lambda number=number: Hostile(says[number % len(says)]),
                "127.0.0.1", port, local_addr=address,
            )  # fmt: skip
            members.append(member)
    dripping = loop.create_task(_drip(members))
    try:
        yield count
    finally:
        dripping.cancel()
        for member in members:
            member.transport.abort()


async def _drip(members: list[Hostile]) -> None:
    rng = random.Random(1)
    while True:
        for member in rng.sample(members, 20):
            member.transport.write(b"\x00")
        await asyncio.sleep(0.02)


def resident_bytes(pid: int) -> int:
    """Return what a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def waits(call: Call) -> list[float]:
    """Return what calls took, shortest first."""
    found = []
    for _ in range(CALLS):
        began_s = time.perf_counter()
        await call()
        found.append(time.perf_counter() - began_s)
        await asyncio.sleep(0.002)
    return sorted(found)


async def held_out(kind: str, port: int, pid: int, call: Call) -> None:
    """Compare with and without the crowd."""
    before = await waits(call)
    size = resident_bytes(pid)
    async with crowd(kind, port) as count:
        meanwhile = await waits(call)
        grown = resident_bytes(pid) - size
    at = CALLS * 99 // 100
    print(
        f"{kind}: {count} hostile connections, honest p50 {before[CALLS // 2] * 1e3:.1f} ->"
        f" {meanwhile[CALLS // 2] * 1e3:.1f} ms, p99 {before[at] * 1e3:.1f} ->"
        f" {meanwhile[at] * 1e3:.1f} ms, memory +{grown >> 20} MiB"
    )
    assert meanwhile[at] < WAIT_FACTOR_MAX * before[at] + WAIT_SLACK_S
    assert grown < GROWTH_BYTES_MAX


@pytest.mark.timeout(180)
async def test_an_honest_producer_among_a_thousand_hostile_connections(
    cluster: LocalCluster,
) -> None:
    name = "honest-among-hostile"
    index, port = await _leader(cluster, name)
    client = await WireClient.connect(port)

    async def call() -> None:
        data = build_batch([Record(b"k", b"v" * 100, int(time.time() * 1000))])
        client.send(ApiKey.PRODUCE, 9, **_fields(name, data))
        answer = await client.receive(60.0)
        assert answer.responses[0].partition_responses[0].error_code == 0

    await held_out("broker", port, cluster.pid_of(f"broker-{index}"), call)
    await client.close()


@pytest.mark.timeout(180)
async def test_an_honest_writer_among_a_thousand_hostile_connections(
    cluster: LocalCluster,
) -> None:
    port = int(str(cluster.about["bookies"][0]["id"]).rpartition(":")[2])
    # What the cluster does not know, a bookie deletes after ten minutes, in the middle of a test.
    async with connect(cluster.zookeeper) as ledgers:
        ledger_id = (await ledgers.create()).ledger_id
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    entries = iter(range(10 * CALLS))

    async def call() -> None:
        writer.write(b"".join(v2.encode_request(add(ledger_id, next(entries), b"v" * 100))))
        async with asyncio.timeout(60):
            answer = await reader.readexactly(28)
        assert v2.decode_response(memoryview(answer)[4:]).status is Status.OK

    await held_out("bookie", port, cluster.pid_of("bookie-0"), call)
    writer.close()


async def _leader(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Make a topic; return index and port of the broker that takes records for it."""
    ports = [int(each.rpartition(":")[2]) for each in cluster.bootstrap_servers.split(",")]
    async with asyncio.timeout(60):
        while True:
            for index, port in enumerate(ports):
                client = await WireClient.connect(port)
                row = {"name": topic, "topic_id": None}
                await client.call(ApiKey.METADATA, 12, topics=[row], allow_auto_topic_creation=True)
                stamp_ms = int(time.time() * 1000)
                data = build_batch([Record(b"k", b"first", stamp_ms)])
                answer = await produce(client, data, topic=topic)
                await client.close()
                if answer.error_code == 0:
                    return index, port
            await asyncio.sleep(0.1)


def _fields(topic: str, data: bytes) -> dict[str, object]:
    partition = {"index": 0, "records": data}
    return {
        "transactional_id": None, "acks": -1, "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }  # fmt: skip
