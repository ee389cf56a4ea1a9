"""Broker and topic znodes: what is written is read back; what is unreadable is refused."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from client.errors import LogCorrupt
from client.ids import BrokerId

BROKER = BrokerInfo(
    id=BrokerId(3),
    incarnation="x",
    host="h",
    port=9,
    advertised=True,
    admin_url="http://h:8",
    rack="r",
    unloaded=True,
    leads_from=(uuid.UUID(int=7), 3),
)
TOPIC = TopicInfo(
    name="t",
    topic_id=uuid.UUID(int=7),
    partition_count=4,
    replication_factor=3,
    config=TopicConfig.parse({"retention.ms": "5"}),
    internal=True,
    created_ms=99,
    assignments={2: (BrokerId(7), BrokerId(9))},
    grown_from=(1, 2),
)


def test_round_trips() -> None:
    assert BrokerInfo.decode(BROKER.id, BROKER.encode()) == BROKER
    assert TopicInfo.decode("t", TOPIC.encode()) == TOPIC


def test_pins_of_earlier_versions_are_replica_lists_of_one() -> None:
    fields = json.loads(TOPIC.encode())
    del fields["assignments"]
    fields["pins"] = {"1": 4}
    assert TopicInfo.decode("t", json.dumps(fields).encode()).assignments == {1: (BrokerId(4),)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 1}',
        json.dumps({**json.loads(TOPIC.encode()), "topic_id": "no uuid"}).encode(),
        json.dumps({**json.loads(TOPIC.encode()), "configs": "none"}).encode(),
    ],
)
def test_unreadable_nodes_are_refused(data: bytes) -> None:
    with pytest.raises(LogCorrupt):
        TopicInfo.decode("t", data)
    with pytest.raises(LogCorrupt):
        BrokerInfo.decode(BrokerId(1), data)


def test_what_only_a_newer_release_knows_is_written_back_unchanged() -> None:
    """Whatever else of the topic is changed."""
    fields = json.loads(TOPIC.encode())
    newer: dict[str, object] = {
        **fields,
        "tiers": {"hot": [0.25, None, 10**30, "\ud800"]},
        "configs": {**fields["configs"], "new.setting": "1", "new.list": [{"a": True}]},
    }
    found = TopicInfo.decode("t", json.dumps(newer).encode())
    assert (found.config.retention_ms, found.partition_count) == (5, 4)
    for changed in (
        found,
        found.with_defaults({"segment.ms": "9"}),
        replace(found, partition_count=5, grown_from=(1, 2, 4), assignments={}),
        replace(found, config=TopicConfig.parse({"segment.ms": "7"}).after(found.config)),
    ):
        written = json.loads(changed.encode())
        assert written["tiers"] == newer["tiers"]
        assert written["configs"].items() >= {"new.setting": "1"}.items()
        assert written["configs"]["new.list"] == [{"a": True}]
    assert json.loads(found.encode()) == newer


@pytest.mark.parametrize("place", [5, "x", [], {}, {"topic_id": 5, "index": 1}])
def test_unreadable_places_are_refused(place: object) -> None:
    data = json.dumps({**json.loads(BROKER.encode()), "leads_from": place}).encode()
    with pytest.raises(LogCorrupt):
        BrokerInfo.decode(BROKER.id, data)


def test_a_registration_of_an_older_broker_has_no_place() -> None:
    fields = json.loads(BROKER.encode())
    del fields["leads_from"]
    assert BrokerInfo.decode(BROKER.id, json.dumps(fields).encode()).leads_from is None


@pytest.mark.parametrize("counts", [5, ["x"], [0], [4], [2, 2], [2, 1], None])
def test_unreadable_numbers_of_partitions_are_refused(counts: object) -> None:
    fields = {**json.loads(TOPIC.encode()), "partition_count": 4, "grown_from": counts}
    with pytest.raises(LogCorrupt):
        TopicInfo.decode("t", json.dumps(fields).encode())


def test_a_topic_of_an_older_broker_has_not_grown() -> None:
    fields = json.loads(TOPIC.encode())
    del fields["grown_from"]
    assert TopicInfo.decode("t", json.dumps(fields).encode()).grown_from == ()


def test_quorums() -> None:
    assert (TOPIC.ensemble_size, TOPIC.write_quorum, TOPIC.ack_quorum) == (3, 3, 2)
    lone = TopicInfo(
        name="t",
        topic_id=TOPIC.topic_id,
        partition_count=1,
        replication_factor=1,
        config=TopicConfig.parse({"quire.ensemble.size": "5"}),
    )
    assert (lone.ensemble_size, lone.write_quorum, lone.ack_quorum) == (5, 1, 1)


def test_a_listener_whose_protocol_is_not_known_is_left_out() -> None:
    """Of a newer broker; others work with the listeners that they know."""
    fields = json.loads(BROKER.encode())
    endpoints = {**fields["endpoints"], "NEW": ["h", 10, True, "QUIC", "more"]}
    found = BrokerInfo.decode(BROKER.id, json.dumps({**fields, "endpoints": endpoints}).encode())
    assert found == BROKER
    own = {fields["listener"]: ["h", 9, True, "QUIC"]}
    with pytest.raises(LogCorrupt):  # nobody here could talk to it
        BrokerInfo.decode(BROKER.id, json.dumps({**fields, "endpoints": own}).encode())
