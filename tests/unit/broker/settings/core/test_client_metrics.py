"""Subscriptions to metrics of clients: what they may say, whom they are about, and their sum."""

from __future__ import annotations

import time

import pytest

from broker.errors import BrokerError, InvalidRequest, InvalidTopicConfig
from broker.settings.core.client_metrics import changed, parse, wanted
from broker.topics.core.config_resource import Change, Operation

JAVA = {
    "client_instance_id": "4a", "client_id": "app-1", "client_software_name": "apache-kafka-java",
    "client_software_version": "4.2.0", "client_source_address": "10.0.0.1",
    "client_source_port": "999",
}  # fmt: skip


@pytest.mark.parametrize(
    ("match", "is_about"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=app-.*,client_software_name=apache-kafka-java", True),
        ("client_id=app-.*,client_software_version=3.*", False),
        ("client_source_address=10\\.0\\.0\\.1, client_source_port=999", True),
    ],
)
def test_the_whole_of_every_property_has_to_match(match: str, is_about: bool) -> None:
    one = parse({"metrics": "*", "match": match})
    assert one.is_about(JAVA) is is_about


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("interval.ms", "99", InvalidRequest),
        ("interval.ms", "-1", InvalidRequest),
        ("interval.ms", "3600001", InvalidRequest),
        ("interval.ms", "9" * 25, InvalidTopicConfig),
        ("interval.ms", "soon", InvalidTopicConfig),
        ("match", "client_id", InvalidTopicConfig),
        ("match", "colour=red", InvalidTopicConfig),
        ("match", "client_id=(", InvalidTopicConfig),
        ("no.such", "1", InvalidRequest),
    ],
)
def test_what_makes_no_sense_is_refused_as_in_kafka(
    name: str, value: str, error: type[BrokerError]
) -> None:
    with pytest.raises(error, match=name):
        changed({}, [Change(name, Operation.SET, value)])


def test_the_sum_has_all_metrics_and_the_shortest_interval() -> None:
    subscriptions = [
        parse({"metrics": "b., a.", "interval.ms": "1000"}),
        parse({"metrics": "a.,c.", "interval.ms": "500"}),
        parse({"metrics": "x.", "match": "client_id=other", "interval.ms": "100"}),
        parse({"interval.ms": "100"}),
    ]
    found = wanted(subscriptions, JAVA)
    assert (found.metrics, found.interval_ms) == (["a.", "b.", "c."], 500)
    assert wanted(subscriptions, JAVA) == found
    assert wanted(subscriptions[:1], JAVA).subscription_id != found.subscription_id
    everything = wanted([*subscriptions, parse({"metrics": "*"})], JAVA)
    assert everything.metrics == [""]
    nothing = wanted([], JAVA)
    assert (nothing.metrics, nothing.interval_ms) == ([], 300_000)
    assert nothing.subscription_id != everything.subscription_id


def test_lists_can_be_edited() -> None:
    values = changed({}, [Change("metrics", Operation.SET, "a.,b.")])
    values = changed(values, [Change("metrics", Operation.APPEND, "c.,a.")])
    assert values == {"metrics": "a.,b.,c."}
    assert changed(values, [Change("metrics", Operation.SUBTRACT, "b.")]) == {"metrics": "a.,c."}
    with pytest.raises(InvalidTopicConfig):
        changed(values, [Change("interval.ms", Operation.APPEND, "5")])


def test_no_client_makes_an_expression_take_long() -> None:
    """Python's own would take seconds for the first of these, and twice that for each letter."""
    one = parse({"metrics": "*", "match": "client_id=(a+)+b"})
    began_s = time.process_time()
    for client_id in ("a" * 40, "a" * 32_767):
        assert not one.is_about({"client_id": client_id})
    assert one.is_about({"client_id": "a" * 40 + "b"})
    assert time.process_time() - began_s < 1


def test_an_expression_has_a_length() -> None:
    with pytest.raises(InvalidTopicConfig, match="1000"):
        parse({"metrics": "*", "match": "client_id=" + "a" * 1_001})
