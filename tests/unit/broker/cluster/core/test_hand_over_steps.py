"""Which partitions move together when a broker goes or comes back."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from broker.cluster.core.assignment import planned_leaders
from broker.cluster.core.hand_over_steps import END, FIRST, Step, steps
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import BrokerInfo, Position, TopicInfo
from client.ids import BrokerId

AT_ONCE = 4


def info(broker: int) -> BrokerInfo:
    return BrokerInfo(id=BrokerId(broker), incarnation="i", host="h", port=1, advertised=False)


def topic(number: int, partition_count: int) -> TopicInfo:
    return TopicInfo(
        name=f"t{number}",
        topic_id=UUID(int=number << 90),
        partition_count=partition_count,
        replication_factor=3,
        config=TopicConfig(),
    )


BROKERS = [info(1), info(2), info(3)]
TOPICS = [topic(9, 20), topic(2, 7), *(topic(20 + number, 1) for number in range(12))]


def on_the_way(*, unloaded: bool, leads_from: Position) -> BrokerInfo:
    return dataclasses.replace(BROKERS[1], unloaded=unloaded, leads_from=leads_from)


def plan(me: BrokerInfo) -> dict[Position, BrokerId]:
    live = [broker if broker.id != me.id else me for broker in BROKERS]
    return {
        (topic.topic_id, index): owner
        for topic in TOPICS
        for index, owner in enumerate(planned_leaders(topic, live))
    }


def walk(me: BrokerInfo, way: list[Step]) -> BrokerInfo:
    """Go the way; each step moves what it says, and nothing else."""
    for step in way:
        before = plan(me)
        me = dataclasses.replace(me, leads_from=step.leads_from)
        after = plan(me)
        assert sorted(at for at in after if after[at] != before[at]) == sorted(step.moving)
    return me


@pytest.mark.parametrize("going", [True, False])
def test_it_goes_and_comes_back_in_small_steps(going: bool) -> None:
    me = on_the_way(unloaded=going, leads_from=FIRST if going else END)
    assert plan(me) == plan(dataclasses.replace(BROKERS[1], unloaded=not going))
    way = steps(me, TOPICS, BROKERS, AT_ONCE)
    assert {len(step.moving) for step in way[:-1]} == {AT_ONCE}
    assert 0 < len(way[-1].moving) <= AT_ONCE
    there = walk(me, way)
    assert there == dataclasses.replace(BROKERS[1], unloaded=going)
    assert (2 in plan(there).values()) is not going


@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("taken", [1, 2, 3])
def test_it_turns_round_where_it_is(going: bool, taken: int) -> None:
    me = on_the_way(unloaded=going, leads_from=FIRST if going else END)
    first_steps = steps(me, TOPICS, BROKERS, AT_ONCE)[:taken]
    here = dataclasses.replace(walk(me, first_steps), unloaded=not going)
    back = steps(here, TOPICS, BROKERS, AT_ONCE)
    assert sum(len(step.moving) for step in back) == taken * AT_ONCE
    assert walk(here, back) == dataclasses.replace(BROKERS[1], unloaded=not going)


def test_where_much_moves_the_steps_are_larger_and_not_more() -> None:
    me = on_the_way(unloaded=True, leads_from=FIRST)
    way = steps(me, [topic(1, 900)], BROKERS, AT_ONCE)
    assert 30 <= len(way) <= 32
    assert len({len(step.moving) for step in way[:-1]}) == 1


def test_where_nothing_moves_there_is_one_step() -> None:
    me = on_the_way(unloaded=True, leads_from=FIRST)
    assert steps(me, [], BROKERS, AT_ONCE) == [Step(None, [])]
    assert steps(me, TOPICS, [me], AT_ONCE) == [Step(None, [])]
