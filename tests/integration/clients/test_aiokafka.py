"""aiokafka, unmodified: admin, idempotent producer, codecs, groups."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.traffic import Received

pytestmark = pytest.mark.smoke


async def _create(bootstrap_servers: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, traffic.PARTITION_COUNT, 1)])
    await admin.close()


async def _publish(
    bootstrap_servers: str, topic: str, numbers: range, codec: str | None = None
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, enable_idempotence=True, compression_type=codec
    )
    async with producer:
        sent = [
            await producer.send(
                topic,
                traffic.value(number).encode(),
                traffic.key(number).encode(),
                headers=[traffic.HEADER],
            )
            for number in numbers
        ]
        metadata = await asyncio.gather(*sent)
    assert len({(m.partition, m.offset) for m in metadata}) == len(numbers)


def _consumer(bootstrap_servers: str, topic: str, group: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def _poll(consumer: AIOKafkaConsumer, received: list[Received]) -> None:
    for records in (await consumer.getmany(timeout_ms=100)).values():
        for r in records:
            assert list(r.headers) == [traffic.HEADER]
            received.append(Received(r.partition, r.offset, r.key.decode(), r.value.decode()))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, codec: str | None
) -> None:
    await _create(bootstrap_servers, topic)
    members = [_consumer(bootstrap_servers, topic, group) for _ in range(2)]
    received: list[list[Received]] = [[], []]
    async with asyncio.timeout(traffic.PATIENCE_S):
        await asyncio.gather(*(member.start() for member in members))
        while [len(member.assignment()) for member in members] != [2, 2]:
            await asyncio.gather(*map(_poll, members, received))
        await _publish(bootstrap_servers, topic, traffic.FIRST, codec)
        while sum(map(len, received)) < len(traffic.FIRST):
            await asyncio.gather(*map(_poll, members, received))
        assert all(received)
        traffic.check([*received[0], *received[1]], traffic.FIRST)
        for member in members:
            await member.commit()
            await member.stop()

        await _publish(bootstrap_servers, topic, traffic.SECOND, codec)
        rest: list[Received] = []
        async with _consumer(bootstrap_servers, topic, group) as member:
            while len(rest) < len(traffic.SECOND):
                await _poll(member, rest)
        traffic.check(rest, traffic.SECOND)


async def test_publishing_creates_the_topic(bootstrap_servers: str, topic: str) -> None:
    await _publish(bootstrap_servers, topic, traffic.FIRST)
