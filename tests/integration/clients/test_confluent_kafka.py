"""confluent-kafka (librdkafka), unmodified: admin, idempotent producer, codecs, groups."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.traffic import Received

pytestmark = pytest.mark.smoke


def _create(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, traffic.PARTITION_COUNT)])[topic].result(30)


def _publish(bootstrap_servers: str, topic: str, numbers: range, **settings: Any) -> list[Message]:
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, **settings}
    )
    for number in numbers:
        producer.produce(
            topic,
            traffic.value(number),
            traffic.key(number),
            headers=[traffic.HEADER],
            on_delivery=on_delivery,
        )
    assert producer.flush(30) == 0
    return delivered


def _consumer(bootstrap_servers: str, group: str, protocol: str = "classic") -> Consumer:
    # Members of the consumer protocol cannot choose their session timeout.
    settings = {"session.timeout.ms": 10_000} if protocol == "classic" else {}
    return Consumer(
        {
            **settings,
            "group.protocol": protocol,
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def _poll(consumer: Consumer, received: list[Received]) -> None:
    message = consumer.poll(0.1)
    if message is None:
        return
    assert message.error() is None, message.error()
    assert message.headers() == [traffic.HEADER]
    key, value = message.key(), message.value()
    received.append(Received(message.partition(), message.offset(), key.decode(), value.decode()))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, protocol: str
) -> None:
    _create(bootstrap_servers, topic)
    members = [_consumer(bootstrap_servers, group, protocol) for _ in range(2)]
    received: list[list[Received]] = [[], []]

    def all_polled(enough: bool) -> bool:
        for member, records in zip(members, received, strict=True):
            _poll(member, records)
        return enough

    for member in members:
        member.subscribe([topic])
    traffic.wait_for(
        lambda: all_polled([len(m.assignment()) for m in members] == [2, 2]),
        "two partitions for each of two members",
    )
    _publish(bootstrap_servers, topic, traffic.FIRST)
    traffic.wait_for(lambda: all_polled(sum(map(len, received)) >= len(traffic.FIRST)), "records")
    assert all(received)
    traffic.check([*received[0], *received[1]], traffic.FIRST)
    for member in members:
        member.commit(asynchronous=False)
        member.close()

    _publish(bootstrap_servers, topic, traffic.SECOND)
    rest: list[Received] = []
    member = _consumer(bootstrap_servers, group, protocol)
    member.subscribe([topic])

    def more() -> bool:
        _poll(member, rest)
        return len(rest) >= len(traffic.SECOND)

    traffic.wait_for(more, "the rest")
    traffic.check(rest, traffic.SECOND)
    member.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back(bootstrap_servers: str, topic: str, group: str, codec: str) -> None:
    _create(bootstrap_servers, topic)
    settings = {"compression.type": codec, "linger.ms": 20}
    _publish(bootstrap_servers, topic, traffic.FIRST, **settings)
    consumer = _consumer(bootstrap_servers, group)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(traffic.PARTITION_COUNT)])
    received: list[Received] = []

    def enough() -> bool:
        _poll(consumer, received)
        return len(received) >= len(traffic.FIRST)

    traffic.wait_for(enough, "records")
    traffic.check(received, traffic.FIRST)
    consumer.close()


def test_acknowledged_offsets_are_where_the_records_are(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    _create(bootstrap_servers, topic)
    delivered = _publish(bootstrap_servers, topic, traffic.FIRST)
    expected = {(m.partition(), m.offset()): m.value().decode() for m in delivered}
    assert len(expected) == len(traffic.FIRST)
    consumer = _consumer(bootstrap_servers, group)
    partitions = [TopicPartition(topic, p, 0) for p in range(traffic.PARTITION_COUNT)]
    ends = [consumer.get_watermark_offsets(p, timeout=10)[1] for p in partitions]
    assert sum(ends) == len(traffic.FIRST)
    consumer.assign(partitions)
    received: list[Received] = []

    def enough() -> bool:
        _poll(consumer, received)
        return len(received) >= len(traffic.FIRST)

    traffic.wait_for(enough, "records")
    assert {(r.partition, r.offset): r.value for r in received} == expected
    consumer.close()


def test_publishing_creates_the_topic(bootstrap_servers: str, topic: str) -> None:
    assert len(_publish(bootstrap_servers, topic, traffic.FIRST)) == len(traffic.FIRST)


def test_records_without_a_key_are_told_from_the_rest_of_their_batch(
    bootstrap_servers: str, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    compacted = NewTopic(topic, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[topic].result(30)
    codes: list[int] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        codes.append(0 if error is None else error.code())

    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 500})
    for number in range(100):
        key = None if number % 10 == 3 else traffic.key(number)
        producer.produce(topic, traffic.value(number), key, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    invalid = [at for at, code in enumerate(codes) if code == KafkaError.INVALID_RECORD]
    assert invalid == [*range(3, 100, 10)]
    assert codes.count(KafkaError._INVALID_DIFFERENT_RECORD) == 90
