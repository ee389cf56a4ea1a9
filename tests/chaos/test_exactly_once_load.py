"""What a copier says that is given nothing, out of the statistics of librdkafka itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.chaos.exactly_once_load import SOURCE, waits_for
from tests.chaos.judges.hangs import Hang, hangs
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


@pytest.mark.parametrize(
    ("call", "limits"),
    [("commit_transaction", "1e3, 0.2"), ("send_offsets_to_transaction", "0.2, 1e3")],
)
def test_a_call_that_does_not_return_ends_the_process_and_is_told(call: str, limits: str) -> None:
    program = f"""
import time
from tests.chaos import exactly_once_load as load
load._HUNG_S_OF["send_offsets_to_transaction"], load._HUNG_S = {limits}
load._until_it_works(lambda timeout_s: None)
class Producer:
    def send_offsets_to_transaction(self, timeout_s): time.sleep(60)
    def commit_transaction(self, timeout_s): time.sleep(60)
load._until_it_works(Producer().{call})
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "_until_it_works" in ended.stderr
    assert hangs(ended.stderr.splitlines()) == [Hang("", is_known=False)]
