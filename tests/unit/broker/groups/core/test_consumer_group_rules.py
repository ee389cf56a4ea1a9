"""Consumer groups under faults: what schedules of the simulator have found, in a few steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.coordinator.core.coordinator_types import LogRecord
from broker.errors import CoordinatorNotAvailable, StaleMemberEpoch
from broker.groups.core.consumer_group_records import ConsumerGroupEntry, MemberState, Part
from broker.groups.core.group_types import GroupConfig
from broker.groups.core.offset_records import decode
from tests.fakes.consumer_group_bench import GROUP, ConsumerBench, Member, settle
from tests.fakes.group_topics import FakeTopics


@pytest.fixture
def bench() -> ConsumerBench:
    return ConsumerBench()


def two_members(bench: ConsumerBench) -> tuple[Member, Member]:
    first, second = Member(bench, "a"), Member(bench, "b")
    settle(first, second)
    return first, second


def keys(records: Sequence[LogRecord]) -> set[tuple[Part, str]]:
    """Return what records are about."""
    entries = [decode(*record) for record in records]
    return {(one.part, one.name) for one in entries if isinstance(one, ConsumerGroupEntry)}


def test_a_copy_of_the_log_has_all_but_what_is_on_its_way(bench: ConsumerBench) -> None:
    first, _ = two_members(bench)
    bench.slow = True
    bench.heartbeat("a", first.epoch, topics=("u",))
    (sent,) = bench.held
    bench.copy_log()
    everything = {
        (Part.GROUP, ""), (Part.TARGET_EPOCH, ""), (Part.MEMBER, "a"), (Part.MEMBER, "b"),
        (Part.TARGET, "a"), (Part.TARGET, "b"), (Part.CURRENT, "a"), (Part.CURRENT, "b"),
    }  # fmt: skip
    assert keys(bench.log) == everything - keys(sent.records)
    bench.log = [*sent.records, *bench.log]
    bench.finish()
    before = sorted(map(repr, bench.shard._table.consumer(GROUP).durable.entries(GROUP)))
    bench.move_coordinator()
    assert sorted(map(repr, bench.shard._table.consumer(GROUP).durable.entries(GROUP))) == before


def test_what_is_to_be_given_up_next_has_its_own_time() -> None:
    bench = ConsumerBench(topics=FakeTopics(t=4, u=4))
    member = Member(bench, "a", topics=("t", "u"), rebalance_timeout_ms=10_000)
    bench.heartbeat("a", member.epoch, topics=("t",))
    bench.advance(9)
    del member.owned["u"]
    bench.join("b")
    member.beat()
    assert member.owned["t"] != [0, 1, 2, 3], "now it has to give up some of the other topic"
    bench.advance(9)
    bench.heartbeat("a", member.epoch)
    assert "a" in bench.shard._table.consumer(GROUP).members
    bench.advance(2)
    assert "a" not in bench.shard._table.consumer(GROUP).members


def test_what_was_revoked_at_an_unchanged_epoch_is_committed_by_its_next_owner_only() -> None:
    config = GroupConfig(consumer_assignment_interval_ms=1_000)
    bench = ConsumerBench(config, FakeTopics(t=2, u=2, v=2))
    first = Member(bench, "a", topics=("t", "u"))
    bench.advance(2)
    second = Member(bench, "b", topics=("v",))
    settle(first, second)
    assert first.owned == {"t": [0, 1], "u": [0, 1]}
    bench.heartbeat("b", second.epoch, topics=("t",))
    second.owned = {}
    bench.heartbeat("a", first.epoch, topics=("u",))
    first.owned = {"u": [0, 1]}
    first.beat()
    bench.advance(2)
    epoch = first.epoch
    settle(second)
    assert second.owned == {"t": [0, 1]}
    assert second.epoch > epoch, "the first one has not heard of that"
    assert bench.error(bench.commit(7, 0, "a", epoch)) is StaleMemberEpoch
    assert bench.replies[bench.commit(8, 0, "b", second.epoch)] == (None,)


def test_what_a_member_has_to_give_up_it_commits_at_the_epoch_before_too(
    bench: ConsumerBench,
) -> None:
    first = Member(bench, "a")
    epoch = first.epoch
    bench.topics.put("t", 5)
    bench.heartbeat("a", epoch)  # the answer is lost: it does not know that it is at another one
    bench.join("b")
    bench.heartbeat("a", epoch, owned={"t": [0, 1, 2, 3]})
    current = bench.shard._table.consumer(GROUP).durable.current["a"]
    assert current.state is MemberState.UNREVOKED
    assert current.epoch > epoch
    (revoking,) = current.revoking.values()
    index = min(revoking)
    assert revoking[index] == epoch, "and the log keeps since when it has had it"
    assert bench.replies[bench.commit(7, index, "a", epoch)] == (None,)
    bench.heartbeat("a", current.epoch, owned={})
    assert bench.error(bench.commit(8, index, "a", epoch)) is StaleMemberEpoch


def test_a_removal_that_the_log_refuses_is_tried_again_a_little_later(bench: ConsumerBench) -> None:
    Member(bench, "a")
    bench.slow = True
    bench.advance(46)
    assert len(bench.held) == 1, "45 s is a session"
    bench.refuse(CoordinatorNotAvailable("no"))
    again_s = bench.shard.next_deadline()
    assert again_s is not None
    assert 0.05 <= again_s - bench.now.s <= 1.0
    bench.slow = False
    bench.advance(1)
    assert not bench.shard._table.consumer(GROUP).members


def test_a_member_that_gave_nothing_up_is_removed_though_the_log_refused_once(
    bench: ConsumerBench,
) -> None:
    Member(bench, "a", rebalance_timeout_ms=5_000)
    second = Member(bench, "b")
    bench.heartbeat("a", 1)
    bench.slow = True
    bench.advance(5)
    assert len(bench.held) == 1
    bench.refuse(CoordinatorNotAvailable("no"))
    bench.slow = False
    bench.advance(2)
    assert list(bench.shard._table.consumer(GROUP).members) == ["b"]
    second.beat()
    assert second.owned == {"t": [0, 1, 2, 3]}


def test_time_to_give_up_runs_for_what_is_durable_only(bench: ConsumerBench) -> None:
    Member(bench, "a", rebalance_timeout_ms=5_000)
    bench.join("b")
    bench.slow = True
    token = bench.heartbeat("a", 1)
    bench.refuse(CoordinatorNotAvailable("no"))
    assert bench.error(token) is CoordinatorNotAvailable
    bench.slow = False
    bench.advance(6)
    assert "a" in bench.shard._table.consumer(GROUP).members, "it was told of nothing"


def test_a_member_of_which_half_a_batch_was_stored_is_removed_in_the_end(
    bench: ConsumerBench,
) -> None:
    bench.join("a")
    bench.log = [record for record in bench.log if keys([record]) != {(Part.CURRENT, "a")}]
    bench.move_coordinator()
    bench.advance(46)
    assert not bench.shard._table.consumer(GROUP).members


def test_a_group_that_has_emptied_waits_for_no_target(bench: ConsumerBench) -> None:
    bench.config.take(GroupConfig(consumer_assignment_interval_ms=1_000))
    first = Member(bench, "a")
    bench.join("b")
    first.beat()
    for name in ("a", "b"):
        bench.heartbeat(name, -1)
    bench.advance(2)
    assert (bench.shard.next_deadline() or bench.now.s + 1) > bench.now.s
