"""Transactional producers and readers of committed data of every client, unmodified."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.transactors import TRANSACTORS, Librdkafka, Place, Round

ROUNDS = [
    Round(0, 20, commit=True),
    Round(20, 40, commit=False, offset=3),
    Round(40, 60, commit=True, offset=7),
    Round(60, 80, commit=False),
    Round(80, 100, commit=True),
]
COMMITTED = [n for one in ROUNDS if one.commit for n in range(one.first, one.end)]
FENCED = {
    "librdkafka": {"_FENCED"},
    "kafka-python": {"ProducerFencedError", "InvalidProducerEpochError"},
    "aiokafka": {"ProducerFenced"},
    "java": {"ProducerFencedException", "InvalidProducerEpochException"},
    "java-3.9": {"ProducerFencedException", "InvalidProducerEpochException"},
    "kafkajs": {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"},
    "franz-go": {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"},
    "sarama": {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"},
}
"""What each client calls it when another one has its transactional id."""


@pytest.fixture
def place(bootstrap_servers: str, topic: str, fresh_name: Callable[[str], str]) -> Place:
    """Topics, ids and groups of one test."""
    source = fresh_name("source")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [NewTopic(topic, traffic.PARTITION_COUNT), NewTopic(source, 1)]
    for created in admin.create_topics(wanted).values():
        created.result(30)
    return Place(
        brokers=bootstrap_servers,
        topic=topic,
        id=fresh_name("id"),
        group=fresh_name("group"),
        source=source,
        count=len(COMMITTED),
    )


def _committed_offset(place: Place) -> int:
    consumer = Consumer({"bootstrap.servers": place.brokers, "group.id": place.group})
    (found,) = consumer.committed([TopicPartition(place.source, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("name", TRANSACTORS)
def test_commits_are_seen_with_their_offsets_and_aborts_are_not(place: Place, name: str) -> None:
    client = TRANSACTORS[name]
    client.rounds(place, ROUNDS)
    wanted = sorted(traffic.value(n) for n in COMMITTED)
    assert sorted(client.read(place)) == wanted
    assert sorted(Librdkafka().read(place)) == wanted
    everything = Librdkafka().read(place, level="read_uncommitted")
    assert set(everything) == {traffic.value(n) for n in range(ROUNDS[-1].end)}
    assert _committed_offset(place) == ROUNDS[2].offset


@pytest.mark.parametrize("name", TRANSACTORS)
def test_a_second_producer_of_the_same_id_fences_the_first(place: Place, name: str) -> None:
    assert TRANSACTORS[name].fenced(place) in FENCED[name]
    assert Librdkafka().read(place) == [traffic.value(1)]
