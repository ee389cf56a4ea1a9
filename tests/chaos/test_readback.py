"""Reading back, by librdkafka from brokers in this process."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.chaos.readback import Readback, Timing
from tests.fakes.live_brokers import LiveBrokers, in_thread

TOPIC, PARTITIONS, COUNT = "t", 4, 1_000


def fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(COUNT):
        producer.produce(TOPIC, b"%d" % number, b"key", partition=number % (PARTITIONS - 1))
    assert producer.flush(30) == 0


def read_back(servers: str) -> tuple[dict[int, list[tuple[int, str]]], Timing]:
    with Readback(servers, TOPIC, PARTITIONS, timeout_s=30) as readback:
        readback.probe()
        return readback.whole()


async def test_everything_comes_back_in_order_and_an_empty_partition_holds_up_nothing() -> None:
    async with LiveBrokers() as brokers:
        await in_thread(fill, brokers.bootstrap)
        log, timing = await in_thread(read_back, brokers.bootstrap)
    assert log.pop(PARTITIONS - 1) == []
    for partition, records in log.items():
        numbers = range(partition, COUNT, PARTITIONS - 1)
        assert records == [(at, str(number)) for at, number in enumerate(numbers)]
    assert timing.records == COUNT
    assert timing.size == sum(len(str(number)) for number in range(COUNT))
    assert 0 < timing.stall_s <= timing.seconds
    assert timing.mb_per_s > 0
