"""kafka-python, unmodified: admin, idempotent producer (its default), gzip, groups."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.traffic import Received


def _create(bootstrap_servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics([NewTopic(topic, traffic.PARTITION_COUNT, -1)])
    admin.close()


def _publish(bootstrap_servers: str, topic: str, numbers: range, codec: str | None = None) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", compression_type=codec
    )
    sent = [
        producer.send(
            topic,
            traffic.value(number).encode(),
            traffic.key(number).encode(),
            headers=[traffic.HEADER],
        )
        for number in numbers
    ]
    producer.flush(30)
    offsets = {(future.get(30).partition, future.get(30).offset) for future in sent}
    assert len(offsets) == len(numbers)
    producer.close()


def _consumer(bootstrap_servers: str, topic: str, group: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=10_000,
        metadata_max_age_ms=2_000,
    )


def _poll(consumer: KafkaConsumer, received: list[Received]) -> None:
    for records in consumer.poll(timeout_ms=100).values():
        for r in records:
            assert [tuple(header) for header in r.headers] == [traffic.HEADER]
            received.append(Received(r.partition, r.offset, r.key.decode(), r.value.decode()))


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, codec: str | None
) -> None:
    _create(bootstrap_servers, topic)
    members = [_consumer(bootstrap_servers, topic, group) for _ in range(2)]
    received: list[list[Received]] = [[], []]

    def all_polled(enough: bool) -> bool:
        for member, records in zip(members, received, strict=True):
            _poll(member, records)
        return enough

    traffic.wait_for(
        lambda: all_polled([len(m.assignment()) for m in members] == [2, 2]),
        "two partitions for each of two members",
    )
    _publish(bootstrap_servers, topic, traffic.FIRST, codec)
    traffic.wait_for(lambda: all_polled(sum(map(len, received)) >= len(traffic.FIRST)), "records")
    assert all(received)
    traffic.check([*received[0], *received[1]], traffic.FIRST)
    for member in members:
        member.commit()
        member.close()

    _publish(bootstrap_servers, topic, traffic.SECOND, codec)
    rest: list[Received] = []
    member = _consumer(bootstrap_servers, topic, group)

    def more() -> bool:
        _poll(member, rest)
        return len(rest) >= len(traffic.SECOND)

    traffic.wait_for(more, "the rest")
    traffic.check(rest, traffic.SECOND)
    member.close()


def test_publishing_creates_the_topic(bootstrap_servers: str, topic: str) -> None:
    _publish(bootstrap_servers, topic, traffic.FIRST)
