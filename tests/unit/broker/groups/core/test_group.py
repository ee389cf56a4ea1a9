"""The table of `broker.groups.core.group`, row by row, and what each request checks first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupError,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from broker.groups.core.group_types import GroupState, SyncReply
from tests.unit.broker.groups.core.group_driver import PARKED, RANGE, GroupDriver

OTHER = (("range", b"changed"),)


def preparing(driver: GroupDriver) -> tuple[str, str]:
    """A stable group of two in which a third member asked to join; returns the two."""
    leader, follower = driver.stable("a", "b")
    driver.join()
    assert driver.group.state is GroupState.PREPARING
    return leader, follower


def completing(driver: GroupDriver) -> tuple[str, str]:
    """A group of two that got its join answers and owes the syncs."""
    first, second = driver.join(), driver.join()
    driver.advance(0)
    assert driver.group.state is GroupState.COMPLETING
    return driver.joined(first).member_id, driver.joined(second).member_id


class TestJoinOfANewMember:
    def test_empty_group_starts_a_rebalance(self) -> None:
        driver = GroupDriver()
        token = driver.join()
        assert driver.group.state is GroupState.PREPARING
        assert driver.reply(token) is PARKED
        driver.advance(0)
        reply = driver.joined(token)
        assert (reply.generation, reply.protocol_type, reply.protocol_name) == (
            1,
            "consumer",
            "range",
        )
        assert reply.leader == reply.member_id
        assert [member.metadata for member in reply.members] == [b"subscription"]

    def test_preparing_parks_until_everybody_rejoined(self) -> None:
        driver = GroupDriver()
        leader, follower = preparing(driver)
        third = driver.join()
        rejoin = [driver.join(leader), driver.join(follower)]
        assert driver.group.state is GroupState.COMPLETING
        assert {driver.joined(token).generation for token in (third, *rejoin)} == {2}

    def test_completing_restarts_the_rebalance(self) -> None:
        driver = GroupDriver()
        completing(driver)
        token = driver.join()
        assert driver.group.state is GroupState.PREPARING
        assert driver.reply(token) is PARKED

    def test_completing_releases_parked_syncs(self) -> None:
        driver = GroupDriver()
        _, follower = completing(driver)
        parked = driver.sync(follower)
        driver.join()
        assert driver.error(parked) is RebalanceInProgress

    def test_stable_starts_a_rebalance(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        driver.join()
        assert driver.group.state is GroupState.PREPARING

    def test_v4_first_learns_its_id(self) -> None:
        driver = GroupDriver()
        refusal = driver.reply(driver.join(v4=True))
        assert isinstance(refusal, MemberIdRequired)
        assert refusal.member_id.startswith("client-")
        assert driver.group.state is GroupState.EMPTY
        token = driver.join(refusal.member_id, v4=True)
        driver.advance(0)
        assert driver.joined(token).member_id == refusal.member_id

    def test_before_v4_it_joins_directly(self) -> None:
        driver = GroupDriver()
        token = driver.join(v4=False)
        driver.advance(0)
        assert driver.joined(token).member_id == "client-1"

    def test_v4_with_instance_id_joins_directly(self) -> None:
        driver = GroupDriver()
        token = driver.join(instance_id="i", v4=True)
        driver.advance(0)
        assert driver.joined(token).member_id == "i-1"

    def test_only_the_leader_sees_the_members(self) -> None:
        driver = GroupDriver()
        first, second = driver.join(), driver.join()
        driver.advance(0)
        assert len(driver.joined(first).members) == 2
        assert driver.joined(second).members == ()
        assert driver.joined(second).leader == driver.joined(first).member_id


class TestJoinOfAKnownMember:
    def test_preparing_parks(self) -> None:
        driver = GroupDriver()
        leader, _ = preparing(driver)
        assert driver.reply(driver.join(leader)) is PARKED

    def test_joining_twice_answers_the_older_request(self) -> None:
        driver = GroupDriver()
        leader, _ = preparing(driver)
        older, newer = driver.join(leader), driver.join(leader)
        assert driver.error(older) is RebalanceInProgress
        assert driver.reply(newer) is PARKED

    @pytest.mark.parametrize("index", [0, 1])
    def test_completing_repeats_the_current_generation(self, index: int) -> None:
        driver = GroupDriver()
        member = completing(driver)[index]
        reply = driver.joined(driver.join(member))
        assert reply.generation == 1
        assert len(reply.members) == (2 if index == 0 else 0)
        assert driver.group.state is GroupState.COMPLETING

    def test_completing_with_changed_metadata_restarts(self) -> None:
        driver = GroupDriver()
        _, follower = completing(driver)
        driver.join(follower, protocols=OTHER)
        assert driver.group.state is GroupState.PREPARING

    def test_stable_follower_gets_the_current_generation(self) -> None:
        driver = GroupDriver()
        _, follower = driver.stable("a", "b")
        reply = driver.joined(driver.join(follower))
        assert (reply.generation, reply.members) == (1, ())
        assert driver.group.state is GroupState.STABLE

    def test_stable_leader_forces_a_rebalance(self) -> None:
        driver = GroupDriver()
        leader, _ = driver.stable("a", "b")
        assert driver.reply(driver.join(leader)) is PARKED
        assert driver.group.state is GroupState.PREPARING

    def test_stable_with_changed_metadata_starts_a_rebalance(self) -> None:
        driver = GroupDriver()
        _, follower = driver.stable("a", "b")
        driver.join(follower, protocols=OTHER)
        assert driver.group.state is GroupState.PREPARING

    def test_unknown_id(self) -> None:
        driver = GroupDriver()
        assert driver.error(driver.join("nobody")) is UnknownMember
        driver.stable("a")
        assert driver.error(driver.join("nobody")) is UnknownMember


class TestJoinRefusals:
    @pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
    def test_session_timeout_out_of_range(self, session_ms: int) -> None:
        assert driver_error(session_ms=session_ms) is InvalidSessionTimeout

    def test_no_protocols(self) -> None:
        assert driver_error(protocols=()) is InconsistentGroupProtocol

    def test_no_protocol_type(self) -> None:
        assert driver_error(protocol_type="") is InconsistentGroupProtocol

    def test_other_protocol_type(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        assert driver.error(driver.join(protocol_type="connect")) is InconsistentGroupProtocol

    def test_no_common_protocol(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        token = driver.join(protocols=(("roundrobin", b""),))
        assert driver.error(token) is InconsistentGroupProtocol
        assert driver.group.state is GroupState.STABLE

    def test_protocol_type_is_free_text_and_opaque(self) -> None:
        driver = GroupDriver()
        blob = bytes(range(256))
        token = driver.join(protocol_type="sr", protocols=(("v0", blob),))
        driver.advance(0)
        reply = driver.joined(token)
        assert reply.protocol_type == "sr"
        assert reply.members[0].metadata == blob

    def test_an_empty_group_forgets_its_protocol_type(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        driver.leave(member)
        token = driver.join(protocol_type="connect", protocols=(("c", b""),))
        driver.advance(0)
        assert driver.joined(token).protocol_type == "connect"

    def test_group_size_limit(self) -> None:
        driver = GroupDriver(group_size_max=2)
        driver.stable("a", "b")
        assert driver.error(driver.join()) is GroupMaxSizeReached
        assert driver.group.state is GroupState.STABLE

    def test_pending_ids_count_towards_the_limit(self) -> None:
        driver = GroupDriver(group_size_max=2)
        driver.join(v4=True)
        driver.join(v4=True)
        assert driver.error(driver.join(v4=True)) is GroupMaxSizeReached

    def test_the_last_to_rejoin_is_turned_away(self) -> None:
        driver = GroupDriver(group_size_max=2)
        leader, follower = driver.stable("a", "b")
        rejoin = driver.join(leader)
        newcomer = driver.join()
        assert driver.error(driver.join(follower)) is GroupMaxSizeReached
        assert driver.joined(rejoin).generation == driver.joined(newcomer).generation == 2


def driver_error(**join: object) -> type[GroupError]:
    driver = GroupDriver()
    error = driver.error(driver.join(**join))  # type: ignore[arg-type]
    assert driver.group.is_unused()
    assert issubclass(error, GroupError)
    return error


class TestSync:
    def test_empty(self) -> None:
        driver = GroupDriver()
        assert driver.error(driver.sync("m", 0)) is UnknownMember

    def test_preparing(self) -> None:
        driver = GroupDriver()
        leader, _ = preparing(driver)
        assert driver.error(driver.sync(leader)) is RebalanceInProgress

    def test_follower_parks_until_the_leader_stored(self) -> None:
        driver = GroupDriver()
        leader, follower = completing(driver)
        parked = driver.sync(follower)
        assert driver.reply(parked) is PARKED
        own = driver.sync(leader, assignments={leader: b"1", follower: b"2"})
        assert driver.synced(own) == SyncReply("consumer", "range", b"1")
        assert driver.synced(parked).assignment == b"2"
        assert driver.group.state is GroupState.STABLE

    def test_nobody_is_answered_before_the_assignment_is_durable(self) -> None:
        driver = GroupDriver()
        leader, follower = completing(driver)
        driver.slow_log = True
        tokens = [
            driver.sync(follower),
            driver.sync(leader, assignments={leader: b"1", follower: b"2"}),
        ]
        assert [driver.reply(token) for token in tokens] == [PARKED, PARKED]
        assert driver.group.state is GroupState.COMPLETING
        driver.finish_stores()
        assert [driver.synced(token).assignment for token in tokens] == [b"2", b"1"]

    def test_missing_assignments_become_empty_bytes(self) -> None:
        driver = GroupDriver()
        leader, follower = completing(driver)
        parked = driver.sync(follower)
        driver.sync(leader, assignments={leader: b"all"})
        assert driver.synced(parked).assignment == b""
        assert [member.assignment for member in driver.log[-1].members] == [b"all", b""]

    def test_assignments_of_followers_are_ignored(self) -> None:
        driver = GroupDriver()
        leader, follower = completing(driver)
        parked = driver.sync(follower, assignments={follower: b"mine"})
        driver.sync(leader, assignments={})
        assert driver.synced(parked).assignment == b""

    def test_stable_returns_what_is_stored(self) -> None:
        driver = GroupDriver()
        _, follower = driver.stable("a", "b")
        assert driver.synced(driver.sync(follower)).assignment == b"b"

    def test_wrong_generation(self) -> None:
        driver = GroupDriver()
        leader, _ = completing(driver)
        assert driver.error(driver.sync(leader, 0)) is IllegalGeneration
        assert driver.error(driver.sync(leader, 2)) is IllegalGeneration

    def test_unknown_member(self) -> None:
        driver = GroupDriver()
        completing(driver)
        assert driver.error(driver.sync("nobody")) is UnknownMember

    @pytest.mark.parametrize(
        ("protocol_type", "protocol_name"), [("connect", None), (None, "sticky")]
    )
    def test_v5_protocol_mismatch(
        self, protocol_type: str | None, protocol_name: str | None
    ) -> None:
        driver = GroupDriver()
        leader, _ = completing(driver)
        token = driver.sync(leader, protocol_type=protocol_type, protocol_name=protocol_name)
        assert driver.error(token) is InconsistentGroupProtocol

    def test_v5_protocol_match(self) -> None:
        driver = GroupDriver()
        leader, _ = completing(driver)
        token = driver.sync(leader, protocol_type="consumer", protocol_name="range")
        assert driver.synced(token)

    def test_a_second_leader_sync_does_not_replace_what_may_be_durable(self) -> None:
        driver = GroupDriver()
        leader, follower = completing(driver)
        driver.slow_log = True
        first = driver.sync(leader, assignments={leader: b"1", follower: b"2"})
        again = driver.sync(leader, assignments={leader: b"2", follower: b"1"})
        assert driver.error(first) is RebalanceInProgress
        assert len(driver.held) == 1
        driver.finish_stores()
        assert driver.synced(again).assignment == b"1"


class TestHeartbeat:
    def test_empty(self) -> None:
        assert GroupDriver().heartbeat("m", 0) is UnknownMember

    def test_preparing(self) -> None:
        driver = GroupDriver()
        leader, _ = preparing(driver)
        assert driver.heartbeat(leader) is RebalanceInProgress

    def test_completing_is_fine(self) -> None:
        driver = GroupDriver()
        leader, _ = completing(driver)
        assert driver.heartbeat(leader) is None

    def test_stable_is_fine(self) -> None:
        driver = GroupDriver()
        leader, _ = driver.stable("a", "b")
        assert driver.heartbeat(leader) is None

    def test_wrong_generation(self) -> None:
        driver = GroupDriver()
        (leader,) = driver.stable("a")
        assert driver.heartbeat(leader, 0) is IllegalGeneration

    def test_unknown_member(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        assert driver.heartbeat("nobody") is UnknownMember


class TestCommit:
    """Validation table of commits."""

    def test_outsider_may_commit_to_an_empty_group(self) -> None:
        assert GroupDriver().commit("", -1) is None

    def test_outsider_may_not_commit_while_there_are_members(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        assert driver.commit("", -1) is UnknownMember

    def test_member_of_the_current_generation(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        assert driver.commit(member, 1) is None

    @pytest.mark.parametrize("generation", [-1, 0, 2])
    def test_wrong_generation(self, generation: int) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        assert driver.commit(member, generation) is IllegalGeneration

    def test_unknown_member(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        assert driver.commit("nobody", 1) is UnknownMember

    def test_member_id_of_an_empty_group(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        driver.leave(member)
        assert driver.commit(member, 1) is UnknownMember

    def test_preparing_accepts(self) -> None:
        driver = GroupDriver()
        leader, _ = preparing(driver)
        assert driver.commit(leader) is None

    def test_completing_refuses(self) -> None:
        driver = GroupDriver()
        leader, _ = completing(driver)
        assert driver.commit(leader) is RebalanceInProgress

    def test_fenced_instance(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a", instance_id="i")
        driver.join(instance_id="i")
        assert driver.commit(member, instance_id="i") is FencedInstanceId

    def test_renews_the_session(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        for _ in range(4):
            driver.advance(9)
            assert driver.commit(member) is None
        assert driver.group.state is GroupState.STABLE


class TestLeave:
    def test_empty(self) -> None:
        assert GroupDriver().leave("m") == [UnknownMember]

    def test_stable_starts_a_rebalance(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        assert driver.leave(follower) == [None]
        assert driver.heartbeat(leader) is RebalanceInProgress

    def test_completing_starts_a_rebalance(self) -> None:
        driver = GroupDriver()
        leader, follower = completing(driver)
        parked = driver.sync(follower)
        assert driver.leave(leader) == [None]
        assert driver.error(parked) is RebalanceInProgress
        assert driver.group.state is GroupState.PREPARING

    def test_preparing_may_complete_the_join(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        token = driver.join(leader)
        assert driver.reply(token) is PARKED
        assert driver.leave(follower) == [None]
        assert driver.joined(token).generation == 2

    def test_a_parked_member_that_is_removed_gets_an_answer(self) -> None:
        driver = GroupDriver()
        leader, _ = driver.stable("a", "b")
        token = driver.join(leader)
        driver.leave(leader)
        assert driver.error(token) is UnknownMember

    def test_several_members_cost_one_rebalance(self) -> None:
        driver = GroupDriver()
        _, second, third = driver.stable("a", "b", "c")
        rebalances = len(driver.events)
        assert driver.leave(second, "nobody", third) == [None, UnknownMember, None]
        assert [event.name for event in driver.events[rebalances:]] == ["group.rebalancing"]

    def test_the_last_member_empties_the_group(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        driver.leave(member)
        assert driver.group.state is GroupState.EMPTY
        assert driver.group.generation == 2
        assert driver.log[-1].generation == 2
        assert driver.log[-1].members == ()
        assert driver.log[-1].protocol is None
        assert driver.log[-1].protocol_type == "consumer"

    def test_a_pending_id_can_leave(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        refusal = driver.reply(driver.join(v4=True))
        assert isinstance(refusal, MemberIdRequired)
        tokens = [driver.join(leader), driver.join(follower)]
        assert [driver.reply(token) for token in tokens] == [PARKED, PARKED]
        assert driver.leave(refusal.member_id) == [None]
        assert {driver.joined(token).generation for token in tokens} == {2}

    @pytest.mark.parametrize("group", [completing, lambda driver: driver.stable("a", "b")])
    def test_a_pending_id_that_leaves_costs_no_rebalance(
        self, group: Callable[[GroupDriver], object]
    ) -> None:
        driver = GroupDriver()
        group(driver)
        state = driver.group.state
        refusal = driver.reply(driver.join(v4=True))
        assert isinstance(refusal, MemberIdRequired)
        assert driver.leave(refusal.member_id) == [None]
        assert (driver.group.state, driver.group.generation) == (state, 1)

    def test_leadership_moves_on(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        driver.leave(leader)
        assert driver.joined(driver.join(follower)).leader == follower


class TestDead:
    def test_everything_is_refused(self) -> None:
        driver = GroupDriver()
        driver.group.mark_dead(driver.now)
        assert driver.error(driver.join()) is CoordinatorNotAvailable
        assert driver.error(driver.sync("m")) is CoordinatorNotAvailable
        assert driver.heartbeat("m") is CoordinatorNotAvailable
        assert driver.commit("", -1) is CoordinatorNotAvailable
        with pytest.raises(CoordinatorNotAvailable):
            driver.leave("m")

    def test_pending_ids_are_forgotten(self) -> None:
        driver = GroupDriver()
        refusal = driver.reply(driver.join(v4=True))
        assert isinstance(refusal, MemberIdRequired)
        driver.group.mark_dead(driver.now)
        driver.group.revive(driver.now)
        assert driver.error(driver.join(refusal.member_id)) is UnknownMember


class TestDescribe:
    def test_stable_shows_blobs(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        description = driver.group.describe()
        assert description.state.value == "Stable"
        assert (description.protocol_type, description.protocol) == ("consumer", "range")
        (member,) = description.members
        assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
        assert (member.metadata, member.assignment) == (RANGE[0][1], b"a")

    def test_rebalancing_hides_blobs(self) -> None:
        driver = GroupDriver()
        preparing(driver)
        description = driver.group.describe()
        assert description.state.value == "PreparingRebalance"
        assert description.protocol == ""
        assert {member.assignment for member in description.members} == {b""}
