"""Groups of the consumer protocol: who gets what and when, and what survives which fault."""

from __future__ import annotations

import pytest

from broker.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRegularExpression,
    InvalidRequest,
    NotCoordinator,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from broker.groups.core.consumer_group_records import MemberState, Part
from broker.groups.core.consumer_protocol import assigned_partitions
from broker.groups.core.group_types import (
    ConsumerTimes,
    GroupConfig,
    GroupState,
    GroupType,
    Join,
)
from broker.groups.core.offset_records import decode
from tests.fakes.consumer_group_bench import GROUP, ConsumerBench, Member, settle
from tests.fakes.group_topics import FakeTopics


@pytest.fixture
def bench() -> ConsumerBench:
    return ConsumerBench()


def state(bench: ConsumerBench) -> GroupState:
    headline = bench.shard.view.headline(GROUP)
    assert headline is not None
    return headline.state


# --- one after the other ------------------------------------------------------------------------


def test_the_first_member_gets_everything_with_its_first_answer(bench: ConsumerBench) -> None:
    token = bench.join("a")
    assert bench.told(token) == {"t": [0, 1, 2, 3]}
    assert bench.reply(token).epoch == 1
    assert state(bench) is GroupState.STABLE


def test_a_heartbeat_that_changes_nothing_writes_nothing(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    written = len(bench.log)
    assert bench.told(member.beat()) is None
    assert bench.told(bench.heartbeat("a", member.epoch)) is None
    assert len(bench.log) == written


def test_a_second_member_gets_what_the_first_has_given_up(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    assert second.owned == {}
    assert state(bench) is GroupState.RECONCILING
    assert bench.told(bench.heartbeat("a", first.epoch)) == {"t": [0, 1]}, "told to give up"
    assert bench.told(second.beat()) is None, "not given up yet"
    first.owned = {"t": [0, 1]}
    first.beat()
    assert first.epoch == 2
    assert bench.told(second.beat()) == {"t": [2, 3]}
    assert state(bench) is GroupState.STABLE


def test_a_member_that_does_not_say_what_it_owns_has_given_up_nothing(
    bench: ConsumerBench,
) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    bench.heartbeat("a", first.epoch)
    bench.heartbeat("a", first.epoch)
    assert bench.told(second.beat()) is None


def test_an_untouched_partition_is_never_taken_away(bench: ConsumerBench) -> None:
    first = Member(bench, "a")
    others = [Member(bench, name) for name in "bcd"]
    settle(first, *others)
    assert [sum(map(len, one.owned.values())) for one in (first, *others)] == [1, 1, 1, 1]
    assert first.owned["t"] == [0]


def test_what_a_member_leaves_goes_to_the_others(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    settle(first, second)
    token = bench.heartbeat("b", -1)
    assert bench.reply(token).epoch == -1
    assert bench.told(first.beat()) == {"t": [0, 1, 2, 3]}
    assert bench.error(bench.heartbeat("b", second.epoch)) is UnknownMember


def test_the_last_member_leaves_an_empty_group(bench: ConsumerBench) -> None:
    Member(bench, "a")
    bench.heartbeat("a", -1)
    assert state(bench) is GroupState.EMPTY
    assert Member(bench, "b").owned == {"t": [0, 1, 2, 3]}


def test_other_topics_are_given_and_taken(bench: ConsumerBench) -> None:
    bench.topics.put("u", 2)
    member = Member(bench, "a")
    member.beat(topics=["u"])
    assert member.owned == {}, "first the old ones are given up"
    member.beat()
    assert member.owned == {"u": [0, 1]}


def test_a_topic_that_grows_is_divided_anew(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    bench.topics.put("t", 5)
    assert bench.told(member.beat()) == {"t": [0, 1, 2, 3, 4]}


def test_a_topic_that_goes_is_taken_away(bench: ConsumerBench) -> None:
    bench.topics.put("u", 1)
    member = Member(bench, "a", topics=["t", "u"])
    gone = bench.topics.id("u")
    bench.topics.remove("u")
    assert bench.told(bench.heartbeat("a", member.epoch)) == {"t": [0, 1, 2, 3]}
    member.owned = {"t": [0, 1, 2, 3]}
    member.beat()
    assert state(bench) is GroupState.STABLE
    assert gone not in bench.reply(member.beat(topics=["t"], rebalance_timeout_ms=9)).assignment  # type: ignore[operator]


def test_a_topic_that_does_not_exist_yet_is_waited_for(bench: ConsumerBench) -> None:
    member = Member(bench, "a", topics=["u"])
    assert member.owned == {}
    bench.topics.put("u", 1)
    assert bench.told(member.beat()) == {"u": [0]}


# --- answers that are lost -----------------------------------------------------------------------


def test_a_lost_first_answer_is_asked_for_again(bench: ConsumerBench) -> None:
    first = bench.join("a")
    again = bench.join("a")
    assert bench.told(again) == bench.told(first)
    assert bench.reply(again).epoch == bench.reply(first).epoch


def test_the_epoch_before_is_served_if_the_member_owns_nothing_else(bench: ConsumerBench) -> None:
    first = Member(bench, "a")
    Member(bench, "b")
    before = first.epoch
    bench.heartbeat("a", before)
    token = bench.heartbeat("a", before, owned={"t": [0, 1]})
    assert bench.reply(token).epoch == before + 1
    again = bench.heartbeat("a", before, owned={"t": [0, 1]})
    assert bench.reply(again).epoch == before + 1
    assert bench.told(again) == {"t": [0, 1]}, "it may not have heard that either"
    foreign = bench.heartbeat("a", before, owned={"t": [0, 1, 2]})
    assert bench.error(foreign) is FencedMemberEpoch
    assert bench.error(bench.heartbeat("a", before)) is FencedMemberEpoch


def test_a_member_that_is_ahead_or_far_behind_is_fenced(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    assert bench.error(bench.heartbeat("a", member.epoch + 1, owned={})) is FencedMemberEpoch
    bench.topics.put("t", 5)
    member.beat()
    bench.topics.put("t", 6)
    member.beat()
    assert bench.error(bench.heartbeat("a", member.epoch - 2, owned={})) is FencedMemberEpoch


def test_a_fenced_member_joins_again_and_gets_its_partitions(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    settle(first, second)
    token = bench.join("a")
    assert bench.told(token) == {"t": [0, 1]}
    assert bench.reply(token).epoch == first.epoch


# --- the log -------------------------------------------------------------------------------------


def test_an_answer_waits_until_what_it_tells_is_durable(bench: ConsumerBench) -> None:
    bench.slow = True
    token = bench.join("a")
    assert token not in bench.replies
    bench.finish()
    assert bench.told(token) == {"t": [0, 1, 2, 3]}


def test_heartbeats_wait_for_the_batch_that_is_on_its_way_and_go_together(
    bench: ConsumerBench,
) -> None:
    bench.slow = True
    tokens = [bench.join(name) for name in "abc"]
    assert len(bench.held) == 1
    bench.finish()
    assert all(bench.reply(token).epoch >= 1 for token in tokens)
    assert len({decode(*one).group_id for one in bench.log}) == 1  # type: ignore[union-attr]


def test_members_of_one_batch_all_get_their_part(bench: ConsumerBench) -> None:
    bench.slow = True
    bench.join("a")
    for name in "bc":
        bench.join(name)  # wait, and go together
    bench.slow = False
    bench.finish()
    description = bench.shard.view.describe_consumer(GROUP)
    assert description is not None
    sizes = [len(one.target[bench.topics.id("t")]) for one in description.members]
    assert sorted(sizes) == [1, 1, 2]


def test_a_batch_that_the_log_refuses_never_was(bench: ConsumerBench) -> None:
    first = Member(bench, "a")
    bench.slow = True
    token, later = bench.join("b"), bench.heartbeat("a", first.epoch)
    bench.refuse(NotCoordinator("no"))
    assert bench.error(token) is NotCoordinator
    assert bench.told(later) is None
    bench.slow = False
    assert bench.error(bench.heartbeat("b", 1)) is UnknownMember
    second = Member(bench, "b")
    settle(first, second)
    assert second.owned == {"t": [2, 3]}


def test_topics_that_changed_with_a_refused_batch_are_seen_by_the_next(
    bench: ConsumerBench,
) -> None:
    member = Member(bench, "a", topics=None, pattern="t.*")
    bench.topics.put("t2", 1)
    bench.advance(2)
    bench.slow = True
    bench.heartbeat("a", member.epoch)
    bench.refuse(NotCoordinator("no"))
    bench.slow = False
    assert bench.told(member.beat()) == {"t": [0, 1, 2, 3], "t2": [0]}


def test_unload_answers_all_that_wait(bench: ConsumerBench) -> None:
    bench.slow = True
    tokens = [bench.join(name) for name in "ab"]
    for effect in bench.shard.unload(NotCoordinator("moved")):
        bench.replies[effect.token] = effect.result  # type: ignore[union-attr]
    assert [bench.error(token) for token in tokens] == [NotCoordinator] * 2


@pytest.mark.parametrize("is_copied", [False, True])
def test_another_coordinator_goes_on_where_this_one_was(
    bench: ConsumerBench, is_copied: bool
) -> None:
    first, second = Member(bench, "a"), Member(bench, "b", topics=None, pattern="t")
    bench.heartbeat("a", first.epoch)
    if is_copied:
        bench.copy_log()
    bench.move_coordinator()
    assert bench.told(second.beat()) is None, "still not given up"
    first.owned = {"t": [0, 1]}
    first.beat()
    assert bench.told(second.beat()) == {"t": [2, 3]}
    assert (first.epoch, second.epoch) == (2, 2)


def test_with_another_coordinator_sessions_begin_anew(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    bench.advance(44)
    bench.move_coordinator()
    bench.advance(44)
    member.beat()
    bench.advance(46)
    assert bench.error(bench.heartbeat("a", member.epoch)) is UnknownMember


def test_a_group_that_was_emptied_is_nothing_to_another_coordinator_once_deleted(
    bench: ConsumerBench,
) -> None:
    Member(bench, "a", topics=None, pattern="t")
    bench.heartbeat("a", -1)
    bench.ask(lambda token: bench.shard.delete_groups([GROUP], token, bench.now))
    assert bench.shard.view.ids() == []
    bench.move_coordinator()
    assert bench.shard.view.ids() == []


# --- time ----------------------------------------------------------------------------------------


def test_a_silent_member_is_removed(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    settle(first, second)
    for _ in range(10):
        bench.advance(5)
        first.beat()
    assert first.owned == {"t": [0, 1, 2, 3]}
    assert bench.error(bench.heartbeat("b", second.epoch)) is UnknownMember


def test_a_member_that_gives_nothing_up_is_removed_after_its_own_time(
    bench: ConsumerBench,
) -> None:
    first = Member(bench, "a", rebalance_timeout_ms=20_000)
    second = Member(bench, "b")
    for _ in range(5):
        bench.advance(5)
        if bench.replies[token := bench.heartbeat("a", first.epoch)] and bench.now.s < 1020:
            assert bench.reply(token).epoch == first.epoch
        second.beat()
    assert bench.error(bench.heartbeat("a", first.epoch)) is UnknownMember
    second.beat()
    assert second.owned == {"t": [0, 1, 2, 3]}


def test_a_member_that_gave_up_in_time_stays(bench: ConsumerBench) -> None:
    first = Member(bench, "a", rebalance_timeout_ms=20_000)
    second = Member(bench, "b")
    settle(first, second)
    for _ in range(10):
        bench.advance(5)
        first.beat()
        second.beat()
    assert first.owned == {"t": [0, 1]}


def test_with_another_coordinator_the_time_to_give_up_begins_anew(bench: ConsumerBench) -> None:
    first = Member(bench, "a", rebalance_timeout_ms=20_000)
    Member(bench, "b")
    bench.heartbeat("a", first.epoch)
    bench.move_coordinator()
    bench.advance(19)
    assert bench.reply(bench.heartbeat("a", first.epoch)).epoch == first.epoch
    bench.advance(2)
    assert bench.error(bench.heartbeat("a", first.epoch)) is UnknownMember


def test_target_assignments_keep_their_distance() -> None:
    bench = ConsumerBench(GroupConfig(consumer_assignment_interval_ms=1_000))
    first, second = Member(bench, "a"), Member(bench, "b")
    assert state(bench) is GroupState.ASSIGNING
    assert second.epoch == first.epoch == 1
    third = Member(bench, "c")
    bench.advance(1)
    settle(first, second, third)
    assert (first.epoch, second.epoch, third.epoch) == (3, 3, 3)
    assert state(bench) is GroupState.STABLE


def test_a_group_may_have_times_of_its_own(bench: ConsumerBench) -> None:
    """They hold from the next heartbeat on; other groups have what all groups have."""
    first = Member(bench, "a")
    bench.config.own_times = {"g": ConsumerTimes(10_000, 5_000, 0)}
    bench.advance(40)
    assert bench.reply(bench.heartbeat("a", first.epoch)).epoch == first.epoch
    bench.advance(11)
    assert bench.error(bench.heartbeat("a", first.epoch)) is UnknownMember
    bench.config.own_times = {"other": ConsumerTimes(10_000, 5_000, 0)}
    again = Member(bench, "a")
    bench.advance(40)
    assert bench.reply(bench.heartbeat("a", again.epoch)).epoch == again.epoch


def test_target_assignments_of_a_group_keep_its_own_distance() -> None:
    bench = ConsumerBench(GroupConfig(consumer_assignment_interval_ms=1_000))
    bench.config.own_times = {"g": ConsumerTimes(45_000, 5_000, 4_000)}
    first, second = Member(bench, "a"), Member(bench, "b")
    bench.advance(3)
    assert state(bench) is GroupState.ASSIGNING
    bench.advance(2)
    settle(first, second)
    assert state(bench) is GroupState.STABLE


# --- patterns ------------------------------------------------------------------------------------


def test_a_pattern_matches_whole_names_that_the_client_may_see(bench: ConsumerBench) -> None:
    for name in ("tt", "tx", "xt"):
        bench.topics.put(name, 1)
    token = bench.join("a", topics=None, pattern="t.", sees=lambda name: name != "tx")
    assert bench.told(token) == {"tt": [0]}


def test_a_new_topic_is_found_a_little_later(bench: ConsumerBench) -> None:
    member = Member(bench, "a", topics=None, pattern="t.*")
    bench.topics.put("t2", 1)
    assert bench.told(member.beat()) is None
    bench.advance(1)
    assert bench.told(member.beat()) == {"t": [0, 1, 2, 3], "t2": [0]}


def test_rights_that_changed_are_seen_after_ten_minutes(bench: ConsumerBench) -> None:
    member = Member(bench, "a", topics=None, pattern="t")
    for _ in range(121):
        bench.advance(5)
        member.beat(sees=lambda _: False)
    member.beat()
    assert member.owned == {}


def test_a_pattern_goes_with_its_last_member(bench: ConsumerBench) -> None:
    first = Member(bench, "a", topics=None, pattern="t")
    Member(bench, "b", topics=None, pattern="t")
    bench.heartbeat("b", -1)
    first.beat(pattern="", topics=["t"])
    last = [decode(*one) for one in bench.log if decode(*one).part is Part.PATTERN][-1]  # type: ignore[union-attr]
    assert last.value is None  # type: ignore[union-attr]


def test_a_pattern_goes_with_its_last_member_that_leaves(bench: ConsumerBench) -> None:
    Member(bench, "a", topics=None, pattern="t")
    Member(bench, "b")
    bench.heartbeat("a", -1)
    last = [decode(*one) for one in bench.log if decode(*one).part is Part.PATTERN][-1]  # type: ignore[union-attr]
    assert last.value is None  # type: ignore[union-attr]


# --- static members ------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_what_it_had(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a", instance_id="i"), Member(bench, "b")
    settle(first, second)
    before = first.owned
    assert bench.reply(bench.heartbeat("a", -2, instance_id="i")).epoch == -2
    for _ in range(3):
        second.beat()
    assert second.owned == {"t": [2, 3]}, "nobody gets what it has"
    token = bench.join("a2", instance_id="i")
    assert bench.told(token) == before
    assert bench.reply(token).epoch == second.epoch, "and no rebalance"
    assert bench.error(bench.heartbeat("a", first.epoch, instance_id="i")) is FencedInstanceId


def test_a_static_member_that_stays_away_is_removed(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a", instance_id="i"), Member(bench, "b")
    settle(first, second)
    bench.heartbeat("a", -2, instance_id="i")
    for _ in range(10):
        bench.advance(5)
        second.beat()
    assert second.owned == {"t": [0, 1, 2, 3]}


def test_an_instance_id_in_use_is_not_given_away(bench: ConsumerBench) -> None:
    first = Member(bench, "a", instance_id="i")
    assert bench.error(bench.join("a2", instance_id="i")) is UnreleasedInstanceId
    assert bench.error(bench.heartbeat("a2", 1, instance_id="i")) is FencedInstanceId
    assert bench.error(bench.heartbeat("a2", -1, instance_id="i")) is FencedInstanceId
    assert bench.reply(first.beat()).epoch == first.epoch


# --- assignors -----------------------------------------------------------------------------------


def test_most_members_choose_the_assignor(bench: ConsumerBench) -> None:
    members = [Member(bench, name, assignor="range") for name in "ab"]
    members.append(Member(bench, "c"))
    settle(*members)
    description = bench.shard.view.describe_consumer(GROUP)
    assert description is not None
    assert description.assignor == "range"
    assert [one.owned["t"] for one in members] == [[0, 1], [2], [3]]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"rebalance_timeout_ms": -1}, InvalidRequest),
        ({"rebalance_timeout_ms": -7}, InvalidRequest),
        ({"topics": None}, InvalidRequest),
        ({"instance_id": ""}, InvalidRequest),
        ({"assignor": "mine"}, UnsupportedAssignor),
        ({"pattern": "("}, InvalidRegularExpression),
        ({"pattern": "a" * 1_001}, InvalidRegularExpression),
        ({"group": "g" * 40_000}, Exception),
        ({"topics": ["t"], "pattern": "(?=t)"}, InvalidRegularExpression),
    ],
)
def test_a_first_heartbeat_that_is_none(
    bench: ConsumerBench, change: dict[str, object], error: type[Exception]
) -> None:
    assert issubclass(bench.error(bench.join("a", **change)), error)  # type: ignore[arg-type]
    assert bench.log == []
    assert bench.shard.view.ids() == []


def test_epochs_that_are_none(bench: ConsumerBench) -> None:
    assert bench.error(bench.heartbeat("a", -3)) is InvalidRequest
    assert bench.error(bench.heartbeat("a", -2)) is InvalidRequest
    assert bench.error(bench.heartbeat("", 0)) is InvalidRequest
    assert bench.error(bench.heartbeat("a", 0, owned={"t": [1]}, topics=["t"])) is InvalidRequest
    assert bench.error(bench.heartbeat("a", 5)) is UnknownMember
    assert bench.error(bench.heartbeat("a", -1)) is UnknownMember
    assert bench.shard.view.ids() == []


def test_a_full_group() -> None:
    bench = ConsumerBench(GroupConfig(consumer_size_max=1))
    member = Member(bench, "a")
    assert bench.error(bench.join("b")) is GroupMaxSizeReached
    assert bench.reply(member.beat()).epoch == member.epoch


# --- offsets -------------------------------------------------------------------------------------


def test_a_member_commits_at_its_epoch(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    bench.commit(7, member="a", epoch=member.epoch)
    assert bench.offset() == 7
    assert bench.error(bench.commit(8, member="a", epoch=member.epoch + 1)) is StaleMemberEpoch
    assert bench.error(bench.commit(8, member="b", epoch=member.epoch)) is UnknownMember
    assert bench.error(bench.commit(8)) is UnknownMember
    old = bench.commit(8, member="a", epoch=member.epoch, has_member_epoch=False)
    assert bench.error(old) is UnsupportedVersion
    assert bench.offset() == 7


def test_an_earlier_epoch_commits_what_it_had_then_and_still_has(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    settle(first, second)
    bench.heartbeat("b", -1)
    before = first.epoch
    first.beat()
    assert first.epoch > before
    bench.commit(7, 0, member="a", epoch=before)
    assert bench.offset(0) == 7
    late = bench.commit(7, 2, member="a", epoch=before)
    assert bench.error(late) is StaleMemberEpoch, "it got this one only later"


def test_a_former_owner_commits_nothing_any_more(bench: ConsumerBench) -> None:
    first, second = Member(bench, "a"), Member(bench, "b")
    bench.heartbeat("a", first.epoch)
    bench.commit(5, 2, member="a", epoch=first.epoch)
    assert bench.offset(2) == 5, "while it is giving up it may say how far it came"
    before = first.epoch
    first.owned = {"t": [0, 1]}
    first.beat()
    second.beat()
    assert bench.error(bench.commit(6, 2, member="a", epoch=before)) is StaleMemberEpoch
    assert bench.offset(2) == 5


def test_a_member_whose_removal_is_on_its_way_commits_nothing(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    bench.slow = True
    bench.heartbeat("a", -1)
    assert bench.error(bench.commit(6, member="a", epoch=member.epoch)) is UnknownMember
    bench.finish()
    assert bench.offset() is None


def test_without_members_anybody_commits(bench: ConsumerBench) -> None:
    Member(bench, "a")
    bench.heartbeat("a", -1)
    bench.commit(9)
    assert bench.offset() == 9


def test_offsets_are_fetched_at_the_newest_epoch_or_the_one_before(bench: ConsumerBench) -> None:
    member = Member(bench, "a")
    before = member.epoch
    bench.topics.put("t", 5)
    member.beat()
    view = bench.shard.view
    view.check_fetch(GROUP, "a", member.epoch)
    view.check_fetch(GROUP, "a", before)
    with pytest.raises(StaleMemberEpoch):
        view.check_fetch(GROUP, "a", member.epoch + 1)
    with pytest.raises(UnknownMember):
        view.check_fetch(GROUP, "b", member.epoch)


# --- beside groups of the classic protocol --------------------------------------------------------


def classic_join(bench: ConsumerBench) -> object:
    request = Join(
        GROUP, "", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), False, False
    )
    token = bench.ask(lambda token: bench.shard.join(request, token, bench.now))
    bench.advance(3)
    return bench.replies.get(token)


def test_members_of_the_classic_protocol_keep_those_of_the_other_out(bench: ConsumerBench) -> None:
    assert classic_join(bench) is not None
    assert bench.error(bench.join("a")) is GroupIdNotFound


def test_members_of_the_consumer_protocol_keep_those_of_the_other_out(
    bench: ConsumerBench,
) -> None:
    Member(bench, "a")
    assert isinstance(classic_join(bench), InconsistentGroupProtocol)


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(bench: ConsumerBench) -> None:
    Member(bench, "a")
    bench.commit(9, member="a", epoch=1)
    bench.heartbeat("a", -1)
    assert isinstance(classic_join(bench), CoordinatorNotAvailable), "to be asked again"
    assert not isinstance(classic_join(bench), Exception)
    assert bench.offset() == 9
    bench.move_coordinator()
    assert bench.offset() == 9


def test_a_group_that_only_has_offsets_takes_either_protocol(bench: ConsumerBench) -> None:
    bench.commit(9)
    member = Member(bench, "a")
    assert member.owned == {"t": [0, 1, 2, 3]}
    assert bench.offset() == 9


def test_a_classic_group_that_has_emptied_makes_room(bench: ConsumerBench) -> None:
    classic_join(bench)
    bench.advance(400)
    assert state(bench) is GroupState.EMPTY
    token = bench.join("a")
    if isinstance(bench.replies[token], CoordinatorNotAvailable):
        token = bench.join("a")
    assert bench.told(token) == {"t": [0, 1, 2, 3]}
    bench.move_coordinator()
    headline = bench.shard.view.headline(GROUP)
    assert headline is not None
    assert headline.group_type is GroupType.CONSUMER


# --- what is shown -------------------------------------------------------------------------------


def test_describe_shows_epochs_and_both_assignments(bench: ConsumerBench) -> None:
    Member(bench, "a")
    Member(bench, "b")
    bench.heartbeat("a", 1)
    description = bench.shard.view.describe_consumer(GROUP)
    assert description is not None
    assert (description.epoch, description.target_epoch) == (2, 2)
    first = next(one for one in description.members if one.member_id == "a")
    topic_id = bench.topics.id("t")
    assert first.current.state is MemberState.UNREVOKED
    assert sorted(first.current.assigned[topic_id]) == [0, 1]
    assert first.current.revoking == {topic_id: {2: 1, 3: 1}}
    assert first.target == {topic_id: frozenset((0, 1))}
    shown = bench.shard.view.describe(GROUP)
    assert shown is not None
    assert shown.group_type is GroupType.CONSUMER
    assert assigned_partitions(shown.members[0].assignment) == {"t": (0, 1)}


def test_what_members_give_along_is_counted() -> None:
    bench = ConsumerBench(topics=FakeTopics(t=1))
    Member(bench, "a", topics=["t", "x" * 200])
    held = bench.shard.view.sizes.held
    assert held > 200
    assert bench.shard.view.sizes.growth(GROUP, "a", 300) == 300 - held
    bench.heartbeat("a", -1)
    assert bench.shard.view.sizes.held == 0
