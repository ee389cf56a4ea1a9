"""What a member is said to wait for."""

from __future__ import annotations

import pytest

from broker.groups.core.consumer_group_description import what_it_waits_for
from tests.fakes.consumer_group_bench import GROUP, ConsumerBench, Member, settle


def waits(bench: ConsumerBench) -> dict[str, str | None]:
    group = bench.shard.view.describe_consumer(GROUP)
    assert group is not None
    names = {bench.topics.id(name): name for name in bench.topics.names()}
    return {one.member_id: what_it_waits_for(group, one, names) for one in group.members}


@pytest.fixture
def bench() -> ConsumerBench:
    return ConsumerBench()


def test_members_that_are_there_wait_for_nothing(bench: ConsumerBench) -> None:
    settle(Member(bench, "a"), Member(bench, "b"))
    assert waits(bench) == {"a": None, "b": None}


def test_one_that_gives_up_and_one_that_waits_for_it(bench: ConsumerBench) -> None:
    first = Member(bench, "a")
    Member(bench, "b")
    assert waits(bench) == {"a": "its next heartbeat", "b": "t 2 3 of a"}
    bench.heartbeat("a", first.epoch)
    assert waits(bench) == {"a": "itself, to give up t 2 3", "b": "t 2 3 of a"}


def test_a_static_member_that_is_away(bench: ConsumerBench) -> None:
    Member(bench, "a", instance_id="i")
    bench.heartbeat("a", -2, instance_id="i")
    assert waits(bench) == {"a": "instance i to come back"}


def test_a_topic_that_is_gone_has_its_id(bench: ConsumerBench) -> None:
    first = Member(bench, "a")
    gone = bench.topics.id("t")
    bench.topics.remove("t")
    bench.heartbeat("a", first.epoch)
    assert waits(bench) == {"a": f"itself, to give up {gone} 0 1 2 3"}
