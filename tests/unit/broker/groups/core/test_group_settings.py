"""Settings of groups: what they may say, what holds, and what is only kept."""

from __future__ import annotations

import pytest

from broker.errors import BrokerError, InvalidRequest, InvalidTopicConfig
from broker.groups.core.group_settings import (
    ASSIGNMENT,
    GROUP_KEYS,
    HEARTBEAT,
    OURS,
    SESSION,
    changed,
    foreign,
    in_force,
    times_of,
)
from broker.groups.core.group_types import ConsumerTimes, GroupConfig
from broker.topics.core.config_resource import Change, Operation
from client.errors import ConfigError

LIMITS = GroupConfig()
QUICK = GroupConfig(consumer_session_timeout_ms=6_000, consumer_heartbeat_interval_ms=500)


def put(name: str, value: str, operation: int = Operation.SET) -> Change:
    return Change(name, operation, value)


def test_the_names_are_those_of_kafka_4_4_and_three_are_ours() -> None:
    assert len(GROUP_KEYS.keys() - set(OURS)) == 27
    assert GROUP_KEYS.keys() > set(OURS)
    assert [name for name, key in GROUP_KEYS.items() if key.effect] == [
        ASSIGNMENT, HEARTBEAT, SESSION,
        "errors.deadletterqueue.copy.record.enable", "errors.deadletterqueue.topic.name",
        "share.auto.offset.reset", "share.delivery.count.limit", "share.isolation.level",
        "share.order", "share.partition.max.record.locks", "share.record.lock.duration.ms",
        "share.release.delay.max.ms", "share.release.delay.ms", "share.renew.acknowledge.enable",
    ]  # fmt: skip
    for name, key in GROUP_KEYS.items():
        if name == "streams.assignor.name":
            continue  # none: what the broker's first one is
        assert changed({}, [put(name, key.default)], LIMITS) == {name: key.default}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        (SESSION, "45000", "45000"),
        (SESSION, " 60000 ", "60000"),
        (HEARTBEAT, "5000", "5000"),
        (HEARTBEAT, "15000", "15000"),
        (ASSIGNMENT, "0", "0"),
        (ASSIGNMENT, "15000", "15000"),
        ("share.auto.offset.reset", "earliest", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT1H", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:P3DT0.5S", "by_duration:P3DT0.5S"),
        ("share.isolation.level", "read_committed", "read_committed"),
        ("streams.num.standby.replicas", "2", "2"),
        ("share.renew.acknowledge.enable", "FALSE", "false"),
    ],
)
def test_what_kafka_takes_is_taken(name: str, value: str, kept: str) -> None:
    assert changed({}, [put(name, value)], LIMITS) == {name: kept}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (SESSION, "44999", InvalidTopicConfig),
        (SESSION, "60001", InvalidTopicConfig),
        (SESSION, "soon", InvalidTopicConfig),
        (SESSION, "-1", InvalidTopicConfig),
        (SESSION, "", InvalidTopicConfig),
        (HEARTBEAT, "4999", InvalidTopicConfig),
        (HEARTBEAT, "15001", InvalidTopicConfig),
        (HEARTBEAT, str(2**31), InvalidTopicConfig),
        (ASSIGNMENT, "15001", InvalidTopicConfig),
        (ASSIGNMENT, "-1", InvalidTopicConfig),
        ("share.delivery.count.limit", "1", InvalidTopicConfig),
        ("share.delivery.count.limit", "11", InvalidTopicConfig),
        ("share.session.timeout.ms", "44999", InvalidTopicConfig),
        ("share.auto.offset.reset", "LATEST", InvalidTopicConfig),
        ("streams.task.offset.interval.ms", "14999", InvalidTopicConfig),
        ("streams.num.warmup.replicas", "21", InvalidTopicConfig),
        ("streams.rack.aware.assignment.tags", "a,a", InvalidTopicConfig),
        ("streams.rack.aware.assignment.tags", "a,,b", InvalidTopicConfig),
        ("streams.assignor.name", "uniform", InvalidTopicConfig),
        ("errors.deadletterqueue.topic.name", "__x", InvalidTopicConfig),
        ("share.auto.offset.reset", "none", InvalidTopicConfig),
        ("share.auto.offset.reset", "by_duration:P", InvalidTopicConfig),
        ("share.auto.offset.reset", "by_duration:-PT1H", InvalidTopicConfig),
        ("share.isolation.level", "snapshot", InvalidTopicConfig),
        ("streams.assignor.name", "x" * 1_001, InvalidTopicConfig),
        ("no.such", "1", InvalidTopicConfig),
        ("retention.ms", "1", InvalidTopicConfig),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, value: str, error: type[BrokerError]) -> None:
    with pytest.raises(error, match=name):
        changed({}, [put(name, value)], LIMITS)


def test_lists_are_edited_and_numbers_are_not() -> None:
    tags = "streams.rack.aware.assignment.tags"
    once = changed({}, [put(tags, "zone,host")], LIMITS)
    more = changed(once, [put(tags, "rack", Operation.APPEND)], LIMITS)
    assert more == {tags: "zone,host,rack"}
    assert changed(more, [put(tags, "host", Operation.SUBTRACT)], LIMITS) == {tags: "zone,rack"}
    with pytest.raises(InvalidTopicConfig):
        changed({}, [put(SESSION, "1", Operation.APPEND)], LIMITS)
    with pytest.raises(InvalidRequest):
        changed({}, [put(SESSION, "50000"), put(SESSION, "50001")], LIMITS)


def test_resetting_what_was_never_set_changes_nothing() -> None:
    gone = Change(SESSION, Operation.DELETE, None)
    assert changed({}, [gone], LIMITS) == {}
    assert changed({SESSION: "50000", HEARTBEAT: "6000"}, [gone], LIMITS) == {HEARTBEAT: "6000"}
    with pytest.raises(InvalidTopicConfig, match="unknown"):
        changed({}, [Change("no.such", Operation.DELETE, None)], LIMITS)


def test_what_all_groups_have_is_allowed_though_it_is_out_of_bounds() -> None:
    assert changed({}, [put(SESSION, "6000"), put(HEARTBEAT, "500")], QUICK)
    assert changed({}, [put(SESSION, "30000")], QUICK)  # on the way to the bounds
    with pytest.raises(InvalidTopicConfig, match=r"between 6000 \(group.consumer.min.session"):
        changed({}, [put(SESSION, "5999")], QUICK)


def test_a_session_is_longer_than_two_heartbeats_are_apart() -> None:
    wide = GroupConfig(
        consumer_times_min=ConsumerTimes(1_000, 1_000, 0),
        consumer_times_max=ConsumerTimes(60_000, 60_000, 0),
    )
    with pytest.raises(InvalidTopicConfig, match="must be greater"):
        changed({}, [put(SESSION, "5000")], wide)
    assert changed({}, [put(SESSION, "5000"), put(HEARTBEAT, "4999")], wide)
    with pytest.raises(InvalidTopicConfig, match="must be greater"):
        changed({HEARTBEAT: "4999", SESSION: "5000"}, [put(HEARTBEAT, "5000")], wide)
    # Such a pair, stored when bounds were others, does not hold.
    odd = {SESSION: "2000", HEARTBEAT: "3000", ASSIGNMENT: "0"}
    assert times_of(odd, wide) == (45_000, 5_000, 0)


def test_what_was_stored_before_counts_as_the_nearest_within_the_bounds() -> None:
    stored = {SESSION: "90000", HEARTBEAT: "100", ASSIGNMENT: "x", "of.later": "1"}
    assert times_of(stored, LIMITS) == (60_000, 5_000, 1_000)
    assert in_force(stored, LIMITS) == {SESSION: "60000", HEARTBEAT: "5000", ASSIGNMENT: "1000"}
    assert foreign(stored) == {"of.later": "1"}
    # Another setting can be changed all the same, and what is foreign stays.
    after = changed(stored, [put("share.delivery.count.limit", "3")], LIMITS)
    assert after == {**stored, "share.delivery.count.limit": "3"}
    assert times_of({}, QUICK) == (6_000, 500, 1_000)


def test_bounds_have_an_order() -> None:
    with pytest.raises(ConfigError, match="must not exceed"):
        GroupConfig(consumer_times_min=ConsumerTimes(60_001, 1, 0))
