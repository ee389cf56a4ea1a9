"""Requests that are costly on purpose, and an honest producer that must not notice.

Nothing is timed here: `python -m tests.hostile.stalls` measures how long others wait.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.wire_client import WireClient
from tests.hostile.costly_admin import ALL
from tests.hostile.stalls import prepare, send
from tests.integration.cluster import LocalCluster
from tests.unit.broker.front.handlers.requests import produce

TOPIC = "honest-beside-costly"


async def leader_epoch(client: WireClient) -> int:
    answer = await client.call(
        ApiKey.METADATA, 9, topics=[{"name": TOPIC}], allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
    )  # fmt: skip
    (topic,) = answer.topics
    return topic.partitions[0].leader_epoch if topic.partitions else -1


async def first_record(client: WireClient, asking: WireClient) -> None:
    """Make the topic, and wait until it takes records."""
    while True:
        data = build_batch([Record(b"k", b"first", int(time.time() * 1000))])
        has_leader = await leader_epoch(asking) >= 0
        if has_leader and not (await produce(client, data, topic=TOPIC)).error_code:
            return
        await asyncio.sleep(0.1)


async def honest(client: WireClient, stop: asyncio.Event) -> list[int]:
    """Produce one batch after the other; return the offsets."""
    offsets = []
    while not stop.is_set():
        data = build_batch([Record(b"k", b"v" * 100, int(time.time() * 1000))])
        answer = await produce(client, data, topic=TOPIC, timeout_ms=30_000)
        assert answer.error_code == 0, answer
        offsets.append(answer.base_offset)
        await asyncio.sleep(0.005)
    return offsets


@pytest.mark.timeout(300)
async def test_an_honest_producer_beside_costly_requests(tmp_path: Path) -> None:
    """No error, no gap, no other leader, whatever the others send."""
    with LocalCluster(tmp_path, brokers=1) as cluster:
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        await prepare(port, int(time.time() * 1000))
        client, asking = [await WireClient.connect(port) for _ in range(2)]
        async with asyncio.timeout(60):
            await first_record(client, asking)
        epoch = await leader_epoch(asking)
        stop = asyncio.Event()
        producing = asyncio.create_task(honest(client, stop))
        for attack in ALL:
            frames = attack.frames(int(time.time() * 1000))
            _, was_closed = await send(port, frames)
            assert attack.may_close or not was_closed, attack.name
            assert not producing.done(), attack.name
        stop.set()
        offsets = await producing
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert await leader_epoch(asking) == epoch
        for each in (client, asking):
            await each.close()
