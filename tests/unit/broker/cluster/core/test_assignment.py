"""Who should lead what."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from broker.cluster.core.assignment import (
    candidates,
    planned_leaders,
    preferred_leaders,
    replica_lists,
)
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import BrokerInfo, Position, TopicInfo
from client.ids import BrokerId

TOPIC = UUID(int=0x1234_5678)


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def test_nobody_without_brokers() -> None:
    assert preferred_leaders(TOPIC, 4, []) == ()


def test_the_order_in_which_brokers_are_given_does_not_matter() -> None:
    plan = preferred_leaders(TOPIC, 12, brokers(1, 2, 3))
    assert plan == preferred_leaders(TOPIC, 12, brokers(3, 1, 2))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12, 50])
@pytest.mark.parametrize("live", [1, 2, 3, 5])
def test_no_broker_gets_more_than_its_share(count: int, live: int) -> None:
    plan = preferred_leaders(TOPIC, count, brokers(*range(live)))
    assert len(plan) == count
    assert max(Counter(plan).values()) <= -(-count // live)


def test_topics_with_one_partition_are_spread() -> None:
    owners = Counter(
        preferred_leaders(UUID(int=number), 1, brokers(1, 2, 3))[0] for number in range(300)
    )
    assert min(owners.values()) > 60


def test_most_partitions_stay_when_a_broker_goes() -> None:
    before = preferred_leaders(TOPIC, 60, brokers(1, 2, 3, 4))
    after = preferred_leaders(TOPIC, 60, brokers(1, 2, 4))
    moved = sum(old != new for old, new in zip(before, after, strict=True) if old != 3)
    assert moved <= 15
    assert 3 not in after


@pytest.mark.parametrize("live", [1, 2, 3, 5])
@pytest.mark.parametrize("counts", [(1, 2, 3, 4), (3, 4), (4, 5, 12), (7, 50), (1, 60)])
def test_partitions_that_are_added_move_none_and_share_what_is_left(
    live: int, counts: tuple[int, ...]
) -> None:
    for number in range(20):
        topic_id = UUID(int=number)
        before = preferred_leaders(topic_id, counts[0], brokers(*range(live)))
        for at in range(1, len(counts)):
            grown = brokers(*range(live))
            plan = preferred_leaders(topic_id, counts[at], grown, grown_from=counts[:at])
            assert plan[: len(before)] == before
            assert max(Counter(plan).values()) <= -(-counts[at] // live)
            before = plan


def test_most_partitions_of_a_topic_that_has_grown_stay_when_a_broker_goes() -> None:
    steps = (12, 24)
    before = preferred_leaders(TOPIC, 60, brokers(1, 2, 3, 4), grown_from=steps)
    after = preferred_leaders(TOPIC, 60, brokers(1, 2, 4), grown_from=steps)
    moved = sum(old != new for old, new in zip(before, after, strict=True) if old != 3)
    assert moved <= 15


def test_a_plan_of_brokers_knows_what_the_topic_had_before() -> None:
    small = TopicInfo(
        name="t", topic_id=TOPIC, partition_count=4, replication_factor=3, config=TopicConfig()
    )
    grown = dataclasses.replace(small, partition_count=12, grown_from=(4,))
    live = [info(1), info(2), info(3)]
    assert planned_leaders(grown, live)[:4] == planned_leaders(small, live)


def test_a_replica_list_moves_one_partition_and_no_other() -> None:
    plain = preferred_leaders(TOPIC, 12, brokers(1, 2, 3))
    elsewhere = BrokerId(1 if plain[4] != 1 else 2)
    pinned = preferred_leaders(TOPIC, 12, brokers(1, 2, 3), {4: (elsewhere, plain[4])})
    assert pinned == (*plain[:4], elsewhere, *plain[5:])


def test_the_next_broker_of_a_replica_list_leads_while_the_first_is_away() -> None:
    lists = {0: brokers(9, 2, 1), 1: brokers(9), 99: brokers(1)}
    plain = preferred_leaders(TOPIC, 3, brokers(1, 2))
    assert preferred_leaders(TOPIC, 3, brokers(1, 2), lists) == (2, *plain[1:])


def topic(replication_factor: int = 2, **more: Any) -> TopicInfo:
    return TopicInfo(
        name="t",
        topic_id=TOPIC,
        partition_count=3,
        replication_factor=replication_factor,
        config=TopicConfig(),
        **more,
    )


def test_replica_lists_stay_while_leadership_moves_between_live_brokers() -> None:
    live = brokers(1, 2, 3)
    plan = preferred_leaders(TOPIC, 3, live)
    before = replica_lists(topic(3), live, plan)
    assert [replicas[0] for replicas in before] == list(plan)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in before)
    assert replica_lists(topic(3), live, brokers(2, 2, 2)) == before


def test_a_leader_is_in_its_replica_list() -> None:
    live = brokers(1, 2, 3, 4, 5)
    for leader in live:
        for replicas in replica_lists(topic(), live, (leader,) * 3):
            assert leader in replicas
            assert len(set(replicas)) == len(replicas) == 2
    (one, *_) = replica_lists(topic(1), live, (BrokerId(4),) * 3)
    assert one == (4,)


def test_a_replica_list_is_shown_as_it_was_given() -> None:
    given = topic(assignments={1: brokers(9, 3, 1)})
    live = brokers(1, 2, 3)
    leaders = preferred_leaders(TOPIC, 3, live, given.assignments)
    assert replica_lists(given, live, leaders)[1] == (9, 3, 1)
    assert replica_lists(given, (), ()) == [(), (9, 3, 1), ()]


def info(broker: int, *, unloaded: bool = False, leads_from: Position | None = None) -> BrokerInfo:
    return BrokerInfo(
        id=BrokerId(broker),
        incarnation="i",
        host="h",
        port=1,
        advertised=False,
        unloaded=unloaded,
        leads_from=leads_from,
    )


def test_unloaded_brokers_take_no_part_unless_there_are_no_others() -> None:
    at = (TOPIC, 0)
    assert candidates([info(1), info(2, unloaded=True), info(3)], at) == [1, 3]
    assert candidates([info(1, unloaded=True), info(2, unloaded=True)], at) == [1, 2]
    assert candidates([], at) == []


@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("place", [0, 1, 5, 12, 99])
def test_on_the_way_a_broker_takes_part_from_its_place_on(place: int, going: bool) -> None:
    topic = TopicInfo(
        name="t", topic_id=TOPIC, partition_count=12, replication_factor=3, config=TopicConfig()
    )
    others = [info(1), info(3)]
    there = planned_leaders(topic, [*others, info(2)])
    away = planned_leaders(topic, [*others, info(2, unloaded=True)])
    on_the_way = info(2, unloaded=going, leads_from=(TOPIC, place))
    assert planned_leaders(topic, [*others, on_the_way]) == away[:place] + there[place:]
    for topic_id, plan in ((UUID(int=1), there), (UUID(int=2**100), away)):
        far = info(2, unloaded=going, leads_from=(topic_id, 3))
        assert planned_leaders(topic, [*others, far]) == plan
    assert planned_leaders(topic, []) == ()
