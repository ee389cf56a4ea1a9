"""What a copier says that is given nothing, out of the statistics of librdkafka itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.chaos.clients import HUNG
from tests.chaos.exactly_once_load import _HUNG_S, SOURCE, waits_for
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


def test_a_call_that_does_not_return_ends_the_process_and_is_told() -> None:
    program = """
import time
from tests.chaos import exactly_once_load as load
load._HUNG_S = load._HUNG_S / 300
load._until_it_works(lambda timeout_s: None)
load._until_it_works(lambda timeout_s: time.sleep(60))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "_until_it_works" in ended.stderr
    assert HUNG.partition("(")[0] in ended.stderr


def test_how_long_a_call_may_take_is_what_its_log_is_searched_for() -> None:
    assert f"Timeout (0:{_HUNG_S / 60:02.0f}:00)!" == HUNG
