"""What a copier says that is given nothing, out of the statistics of librdkafka itself."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.chaos.exactly_once_load import SOURCE, waits_for
from tests.integration.cluster import wait_until


def test_it_says_what_each_partition_and_broker_is_at() -> None:
    told: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            "statistics.interval.ms": 100,
            "stats_cb": told.append,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(SOURCE, 1, 5)])

    def said() -> dict[str, object]:
        consumer.consume(1, 0.05)
        return json.loads(waits_for(told[-1], SOURCE))["partitions"] if told else {}

    wait_until(lambda: "1" in said(), "statistics with the partition")
    about = json.loads(waits_for(told[-1], SOURCE))
    consumer.close()
    assert set(about["partitions"]["1"]) >= {"fetch_state", "next_offset", "ls_offset"}
    assert "join_state" in about["group"]
    assert any("127.0.0.1:1" in name for name in about["brokers"])


@pytest.mark.parametrize("topic", [SOURCE, "another"])
def test_before_there_are_any_it_says_that(topic: str) -> None:
    assert json.loads(waits_for("{}", topic)) == {"group": {}, "partitions": {}, "brokers": {}}
