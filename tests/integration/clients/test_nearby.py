"""Unmodified clients with `client.rack` read what is sealed from a broker in their rack (KIP-392).

The brokers run in the test's process, over ledgers that are in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from broker.app import Broker
from broker.leadership.config import RACK_AWARE_SELECTOR, FollowerSettings
from broker.partition.partition import Partition
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.broker import FakeCloud, until
from tests.fakes.clock import WallClock
from tests.integration.clients.test_secured import in_thread, java

SEGMENTS, RECORDS = 5, 20
NEARBY = FollowerSettings(selector=RACK_AWARE_SELECTOR, behind_bytes_min=1)
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
"""kafka-console-consumer"""


class Placed(NamedTuple):
    """A partition with some sealed segments and an active one, and where its brokers are."""

    cloud: FakeCloud
    partition: Partition
    leader: Broker
    other: Broker
    values: list[bytes]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.leader.port}"

    @property
    def fetched_nearby(self) -> int:
        """Record bytes that the other broker has sent."""
        return self.other.metrics.fetched_bytes


@pytest.fixture
async def placed() -> AsyncIterator[Placed]:
    cloud = FakeCloud(clock=WallClock())
    for node_id in (1, 2):
        await cloud.start_broker(node_id, rack=f"rack-{node_id}", follower=NEARBY)
    brokers = cloud.brokers
    await brokers[1].topics.create("t")
    await until(lambda: any(one.partitions.find("t", 0) for one in brokers.values()))
    leader = brokers[1] if brokers[1].partitions.find("t", 0) else brokers[2]
    partition = leader.partitions.find("t", 0)
    assert partition is not None
    values: list[bytes] = []
    for number in range(SEGMENTS + 1):
        some = [b"%d-%d" % (number, each) for each in range(RECORDS)]
        await _append(partition, some)
        values += some
        if number < SEGMENTS:
            await partition.changes.roll()
            end = partition.high_watermark
            await until(lambda end=end: partition.usage.listed.segments[-1].base_offset == end)  # type: ignore[misc]
    yield Placed(cloud, partition, leader, brokers[3 - leader.config.node_id], values)
    await cloud.close()


async def _append(partition: Partition, values: list[bytes]) -> None:
    now_ms = WallClock().now_ms()
    end = partition.high_watermark + len(values)
    partition.append(build_batch([Record(None, value, now_ms) for value in values]))
    await until(lambda: partition.high_watermark == end)


def consume(settings: dict[str, Any], count: int) -> list[bytes]:
    """Read a partition from its beginning with librdkafka."""
    consumer = confluent_kafka.Consumer({"group.id": "g", **settings})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    try:
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None, f"{len(found)} of {count} records came"
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_librdkafka_reads_nearby_and_then_from_the_leader(
    placed: Placed, isolation: str
) -> None:
    settings = {
        "bootstrap.servers": placed.bootstrap,
        "client.rack": placed.other.config.rack,
        "isolation.level": isolation,
        "fetch.message.max.bytes": 300,  # some batches in each answer
    }
    assert await in_thread(consume, settings, len(placed.values)) == placed.values
    assert placed.leader.services.followers.redirects >= 1
    assert placed.fetched_nearby > 0


async def test_librdkafka_without_a_rack_reads_from_the_leader(placed: Placed) -> None:
    settings = {"bootstrap.servers": placed.bootstrap}
    assert await in_thread(consume, settings, len(placed.values)) == placed.values
    assert placed.fetched_nearby == 0


async def test_only_the_tail_comes_from_the_other_rack(placed: Placed) -> None:
    """What it saves, in record bytes that a consumer in the other broker's rack is sent."""
    sent = []
    for rack in ("", placed.other.config.rack):
        before = [one.metrics.fetched_bytes for one in (placed.leader, placed.other)]
        counted = _by_relation(placed)
        settings = {
            "bootstrap.servers": placed.bootstrap,
            "client.rack": rack,
            "fetch.message.max.bytes": 300,
        }
        assert await in_thread(consume, settings, len(placed.values)) == placed.values
        after = [one.metrics.fetched_bytes for one in (placed.leader, placed.other)]
        sent.append([now - then for now, then in zip(after, before, strict=True)])
        # What Prometheus shows of it: only who says where it is can be told to be far away.
        far, near = sent[-1] if rack else (0, 0)
        assert _by_relation(placed) - counted == Counter(
            {"other": far, "same": near, "unknown": 0 if rack else sum(sent[-1])}
        )
    (across, nothing), (across_still, nearby) = sent
    assert nothing == 0
    # The segments are of one size; a fetch may begin in the middle of what a reader had before.
    assert across_still <= 1.5 * across / (SEGMENTS + 1), sent
    assert nearby >= across * SEGMENTS / (SEGMENTS + 1), sent


def _by_relation(placed: Placed) -> Counter[str]:
    """Return the record bytes that both brokers have sent, by the consumer's rack."""
    found: Counter[str] = Counter()
    for one in (placed.leader, placed.other):
        found.update(one.metrics.fetched_rack_bytes)
    return found


async def test_librdkafka_goes_on_if_the_broker_nearby_is_gone(placed: Placed) -> None:
    settings = {
        "bootstrap.servers": placed.bootstrap,
        "client.rack": placed.other.config.rack,
        "fetch.message.max.bytes": 300,
    }
    reading = asyncio.ensure_future(in_thread(consume, settings, len(placed.values)))
    await until(lambda: placed.fetched_nearby > 0)
    await placed.other.close()
    assert await reading == placed.values


async def test_javas_console_consumer_reads_nearby(placed: Placed) -> None:
    code, output = await java(
        CONSUMER, "--bootstrap-server", placed.bootstrap, "--topic", "t", "--from-beginning",
        "--max-messages", str(len(placed.values)), "--timeout-ms", "20000",
        "--consumer-property", f"client.rack={placed.other.config.rack}",
        "--consumer-property", "max.partition.fetch.bytes=300",
    )  # fmt: skip
    assert code == 0, output
    lines = [line for line in output.splitlines() if line.count("-") == 1 and line[0].isdigit()]
    assert lines == [value.decode() for value in placed.values]
    assert placed.fetched_nearby > 0
