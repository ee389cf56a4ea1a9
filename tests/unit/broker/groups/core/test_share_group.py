"""Share groups: members come, share partitions and go; coordinators move."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from broker.coordinator.core.coordinator_types import Token
from broker.errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRequest,
    UnknownMember,
)
from broker.groups.core.consumer_heartbeat import (
    UNKNOWN,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import GroupConfig, GroupState, GroupType, Join
from broker.groups.core.share_group import check_share_heartbeat, simple
from tests.fakes.consumer_group_bench import GROUP, ConsumerBench
from tests.fakes.group_topics import FakeTopics

T, U = UUID(int=1), UUID(int=2)


def heartbeat(
    member: str, epoch: int, topics: Sequence[str] | None = None, **fields: object
) -> ConsumerHeartbeat:
    request = ConsumerHeartbeat(
        GROUP, member, epoch, None, None, "client", "/host", UNKNOWN,
        None if topics is None else tuple(topics), None, None, None, lambda _: False,
    )  # fmt: skip
    return request._replace(**fields)  # type: ignore[arg-type]


class Bench(ConsumerBench):
    def __init__(self, config: GroupConfig | None = None, topics: FakeTopics | None = None) -> None:
        super().__init__(
            config or GroupConfig(share_assignment_interval_ms=0), topics or FakeTopics(t=4)
        )

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.config, lambda prefix: f"{prefix}-{uuid4()}", self.topics)

    def beat(self, member: str, epoch: int, topics: Sequence[str] | None = None) -> object:
        request = heartbeat(member, epoch, topics)
        token = self.ask(lambda token: self.shard.heartbeat_share(request, token, self.now))
        return self.replies[token]

    def told(self, member: str, epoch: int, topics: Sequence[str] | None = None) -> list[int]:
        """Return the partitions that a member is told to have."""
        reply = self.beat(member, epoch, topics)
        assert isinstance(reply, ConsumerHeartbeatReply), reply
        assert reply.assignment is not None
        return sorted(index for held in reply.assignment.values() for index in held)

    def incarnation(self, member: str) -> UUID:
        return self.shard.view.incarnation_for(GROUP, member)


# --- the assignor ---------------------------------------------------------------------------------


def test_every_partition_has_a_member_and_every_member_a_partition() -> None:
    wishes = {"a": frozenset((T, U)), "b": frozenset((T,)), "c": frozenset((T,))}
    assert simple(wishes, {T: 5, U: 1}) == {
        "a": {T: {0, 3}, U: {0}}, "b": {T: {1, 4}}, "c": {T: {2}},
    }  # fmt: skip
    assert simple(wishes, {T: 2}) == {"a": {T: {0}}, "b": {T: {1}}, "c": {T: {0}}}
    assert simple({"a": frozenset((T,))}, {}) == {"a": {}}
    assert simple({}, {T: 3}) == {}


# --- members --------------------------------------------------------------------------------------


def test_the_first_answer_has_the_partitions() -> None:
    bench = Bench()
    assert bench.told("a", 0, ["t"]) == [0, 1, 2, 3]
    assert bench.beat("a", 1) == ConsumerHeartbeatReply("a", 1, None), "nothing has changed"
    assert bench.told("b", 0, ["t"]) == [1, 3]
    assert bench.told("a", 1) == [0, 2], "nobody had to give anything up before"
    view = bench.shard.view
    headline = view.headline(GROUP)
    assert headline is not None
    assert (headline.group_type, headline.state) == (GroupType.SHARE, GroupState.STABLE)
    description = view.describe_share(GROUP)
    assert description is not None
    assert (description.assignor, len(description.members)) == ("simple", 2)
    assert view.describe_consumer(GROUP) is None


def test_a_lost_answer_is_given_again_and_other_epochs_are_fenced() -> None:
    bench = Bench()
    bench.told("a", 0, ["t"])
    bench.told("b", 0, ["t"])
    assert bench.told("a", 1) == [0, 2]
    assert isinstance(bench.beat("a", 1), ConsumerHeartbeatReply), "it did not hear the last one"
    for epoch in (3, 9):
        assert isinstance(bench.beat("a", epoch), FencedMemberEpoch)
    assert isinstance(bench.beat("stranger", 1), UnknownMember)


def test_who_leaves_and_who_falls_silent_is_out() -> None:
    bench = Bench()
    bench.told("a", 0, ["t"])
    bench.told("b", 0, ["t"])
    assert bench.told("a", 1) == [0, 2]
    assert bench.beat("b", -1) == ConsumerHeartbeatReply("b", -1, None)
    assert bench.told("a", 2) == [0, 1, 2, 3]
    bench.advance(46)
    headline = bench.shard.view.headline(GROUP)
    assert headline is not None
    assert headline.state is GroupState.EMPTY
    with pytest.raises(UnknownMember):
        bench.incarnation("a")


def test_a_full_group() -> None:
    bench = Bench(GroupConfig(share_size_max=1))
    bench.told("a", 0, ["t"])
    assert isinstance(bench.beat("b", 0, ["t"]), GroupMaxSizeReached)


def test_topics_that_come_are_shared_too() -> None:
    bench = Bench()
    assert bench.told("a", 0, ["t", "u"]) == [0, 1, 2, 3]
    bench.topics.put("u", 2)
    assert bench.told("a", 1) == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (heartbeat("", 0, ["t"]), "MemberId"),
        (heartbeat("m" * 256, 0, ["t"]), "255"),
        (heartbeat("m", 0, ["t"], group_id="g" * 256), "255"),
        (heartbeat("m", 0), "SubscribedTopicNames"),
        (heartbeat("m", 0, []), "SubscribedTopicNames"),
        (heartbeat("m", 0, ["t"], rack_id=""), "RackId"),
        (heartbeat("m", -2), "MemberEpoch"),
    ],
)
def test_bad_ones(request_: ConsumerHeartbeat, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_share_heartbeat(request_)


# --- the group ------------------------------------------------------------------------------------


def test_another_coordinator_knows_all_that_was_told() -> None:
    bench = Bench()
    bench.told("a", 0, ["t"])
    bench.told("b", 0, ["t"])
    before = bench.incarnation("a")
    bench.move_coordinator()
    assert bench.incarnation("a") == before
    assert bench.told("a", 1) == [0, 2]
    bench.copy_log()
    bench.move_coordinator()
    assert bench.incarnation("b") == before
    assert bench.beat("b", 2) == ConsumerHeartbeatReply("b", 2, None)


def test_a_group_that_was_deleted_is_another_one_the_next_time() -> None:
    bench = Bench()
    bench.told("a", 0, ["t"])
    before = bench.incarnation("a")
    bench.beat("a", -1)
    assert bench.shard.view.incarnation(GROUP) == before, "an empty group is the same group"
    bench.ask(lambda token: bench.shard.delete_groups([GROUP], token, bench.now))
    assert bench.shard.view.incarnation(GROUP) is None
    bench.move_coordinator()
    assert bench.shard.view.incarnation(GROUP) is None
    bench.told("a", 0, ["t"])
    assert bench.incarnation("a") != before


def test_what_is_refused_is_not_done() -> None:
    bench = Bench()
    bench.slow = True
    request = heartbeat("a", 0, ["t"])
    token = bench.ask(lambda token: bench.shard.heartbeat_share(request, token, bench.now))
    assert token not in bench.replies, "the answer comes when it is durable"
    bench.refuse(CoordinatorNotAvailable("no"))
    assert isinstance(bench.replies[token], CoordinatorNotAvailable)
    assert bench.shard.view.incarnation(GROUP) is None


def test_groups_of_a_name_are_of_one_kind() -> None:
    bench = Bench()
    bench.told("a", 0, ["t"])
    join = Join(
        GROUP, "", None, "c", "/h", 10_000, 10_000, "consumer", (("range", b""),),
        requires_member_id=False, can_skip_assignment=False,
    )  # fmt: skip
    with pytest.raises(InconsistentGroupProtocol):
        bench.shard.join(join, Token(99), bench.now)
    assert isinstance(bench.replies[bench.join("c")], GroupIdNotFound)
    with pytest.raises(GroupIdNotFound):
        bench.shard.view.check_fetch(GROUP, "a", 1)
    other = Bench()
    other.join("c")
    assert isinstance(other.beat("a", 0, ["t"]), GroupIdNotFound)
    with pytest.raises(GroupIdNotFound):
        other.incarnation("c")
