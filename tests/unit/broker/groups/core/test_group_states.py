"""Deadlines, static members, the durable assignment and what survives a fail-over."""

from __future__ import annotations

import pytest

from broker.errors import (
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    MessageTooLarge,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from broker.groups.core.group_types import GroupMetadata, GroupState
from tests.unit.broker.groups.core.group_driver import PARKED, GroupDriver


class TestFirstRebalance:
    def test_waits_for_more_members(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=3_000)
        token = driver.join()
        driver.advance(2.9)
        assert driver.reply(token) is PARKED
        driver.advance(0.1)
        assert driver.joined(token).generation == 1

    def test_a_late_joiner_extends_the_wait(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=3_000)
        first = driver.join()
        driver.advance(2)
        second = driver.join()
        driver.advance(3.9)
        assert driver.reply(first) is PARKED
        driver.advance(0.1)
        assert driver.joined(first).generation == driver.joined(second).generation == 1

    def test_the_wait_ends_with_the_rebalance_timeout(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=3_000)
        tokens = [driver.join(rebalance_ms=7_000)]
        for _ in range(10):
            driver.advance(0.8)
            if driver.group.state is not GroupState.PREPARING:
                break
            tokens.append(driver.join(rebalance_ms=7_000))
        assert driver.now.s <= 1000 + 8
        assert {driver.joined(token).generation for token in tokens} == {1}

    def test_members_that_leave_do_not_end_the_wait(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=3_000)
        driver.join()
        token = driver.join()
        driver.leave("client-1")
        assert driver.reply(token) is PARKED
        driver.advance(6)
        assert driver.joined(token).leader == "client-2"

    def test_everybody_leaving_empties_the_group(self) -> None:
        driver = GroupDriver(initial_rebalance_delay_ms=3_000)
        driver.join()
        driver.leave("client-1")
        driver.advance(3)
        assert driver.group.state is GroupState.EMPTY


class TestRebalanceTimeout:
    def test_stragglers_are_dropped(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        token = driver.join(leader)
        for _ in range(6):
            assert driver.heartbeat(follower) is RebalanceInProgress
            driver.advance(9.9)
        driver.heartbeat(follower)
        driver.advance(1)
        assert [one.member_id for one in driver.joined(token).members] == [leader]
        assert driver.heartbeat(follower) is UnknownMember

    def test_the_longest_timeout_of_all_members_counts(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b", rebalance_ms=20_000, session_ms=200_000)
        driver.join(rebalance_ms=100_000, session_ms=200_000)
        token = driver.join(leader, rebalance_ms=20_000, session_ms=200_000)
        driver.advance(99)
        assert driver.reply(token) is PARKED
        driver.advance(1)
        assert driver.joined(token).generation == 2
        assert driver.heartbeat(follower) is UnknownMember

    def test_static_stragglers_stay(self) -> None:
        driver = GroupDriver()
        tokens = [driver.join(instance_id=one, session_ms=600_000) for one in "ij"]
        driver.advance(0)
        leader, follower = (driver.joined(token).member_id for token in tokens)
        driver.sync(leader, assignments={leader: b"1", follower: b"2"}, instance_id="i")
        driver.sync(follower, instance_id="j")
        token = driver.join(leader, instance_id="i", session_ms=600_000)
        driver.advance(60)
        assert len(driver.joined(token).members) == 2
        assert driver.heartbeat(follower) is None

    def test_nobody_rejoined_waits_again(self) -> None:
        driver = GroupDriver()
        tokens = [driver.join(instance_id=one, session_ms=600_000) for one in "ij"]
        driver.advance(0)
        leader, follower = (driver.joined(token).member_id for token in tokens)
        driver.sync(leader, assignments={}, instance_id="i")
        driver.sync(follower, instance_id="j")
        third = driver.join(session_ms=600_000)
        driver.leave("client-3")
        assert driver.error(third) is UnknownMember
        driver.advance(61)
        assert driver.group.state is GroupState.PREPARING
        rejoin = driver.join(follower, instance_id="j", session_ms=600_000)
        driver.advance(60)
        assert driver.joined(rejoin).leader == follower

    def test_an_absurd_timeout_does_not_spin(self) -> None:
        driver = GroupDriver()
        token = driver.join(instance_id="i", rebalance_ms=0, session_ms=600_000)
        driver.advance(0)
        member = driver.joined(token).member_id
        driver.sync(member, assignments={}, instance_id="i")
        driver.join(rebalance_ms=0)
        driver.leave("client-2")
        wakes = 0
        while driver.group.state is GroupState.PREPARING:
            at_s = driver.group.next_deadline()
            assert at_s is not None
            driver.advance(at_s - driver.now.s)
            wakes += 1
            assert wakes <= 700

    def test_a_pending_id_delays_completion_until_it_expires(self) -> None:
        driver = GroupDriver()
        (leader,) = driver.stable("a")
        assert isinstance(driver.reply(driver.join(v4=True)), MemberIdRequired)
        token = driver.join(leader)
        assert driver.reply(token) is PARKED
        driver.advance(10)
        assert driver.joined(token).generation == 2


class TestSyncTimeout:
    def test_members_that_do_not_sync_are_removed(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        tokens = [driver.join(leader), driver.join(follower)]
        assert driver.joined(tokens[0]).generation == 2
        driver.sync(leader, assignments={leader: b"x"})
        for _ in range(7):
            driver.heartbeat(follower)
            driver.heartbeat(leader)
            driver.advance(9)
        assert driver.heartbeat(follower) is UnknownMember
        assert driver.heartbeat(leader) is RebalanceInProgress

    def test_a_leader_that_does_not_sync_is_replaced(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        driver.join(leader)
        driver.join(follower)
        parked = driver.sync(follower)
        for _ in range(7):
            driver.heartbeat(leader)
            driver.advance(9)
        assert driver.error(parked) is RebalanceInProgress
        assert driver.joined(driver.join(follower)).leader == follower

    def test_the_deadline_ends_when_all_have_synced(self) -> None:
        driver = GroupDriver()
        ids = driver.stable("a", "b")
        for _ in range(20):
            driver.advance(9)
            assert [driver.heartbeat(one) for one in ids] == [None, None]


class TestSessions:
    def test_silent_members_are_removed(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        driver.advance(6)
        driver.heartbeat(leader)
        driver.advance(5)
        assert driver.heartbeat(follower) is UnknownMember
        assert driver.heartbeat(leader) is RebalanceInProgress

    def test_sync_and_join_renew_the_session(self) -> None:
        driver = GroupDriver()
        _, follower = driver.stable("a", "b")
        driver.advance(6)
        driver.heartbeat("client-1")
        driver.sync(follower)
        driver.advance(6)
        driver.heartbeat("client-1")
        driver.join(follower)
        driver.advance(6)
        assert driver.heartbeat(follower) is None

    def test_parked_joins_do_not_expire(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b", rebalance_ms=300_000)
        token = driver.join(leader, rebalance_ms=300_000)
        for _ in range(20):
            driver.advance(9)
            driver.heartbeat(follower)
        driver.join(follower)
        assert driver.joined(token).leader == leader
        driver.advance(9)
        assert driver.heartbeat(leader) is None

    def test_parked_syncs_do_not_expire(self) -> None:
        driver = GroupDriver()
        tokens = [driver.join(rebalance_ms=300_000), driver.join(rebalance_ms=300_000)]
        driver.advance(0)
        leader, follower = (driver.joined(token).member_id for token in tokens)
        parked = driver.sync(follower)
        for _ in range(20):
            driver.advance(9)
            driver.heartbeat(leader)
        driver.sync(leader, assignments={follower: b"2"})
        assert driver.synced(parked).assignment == b"2"
        driver.advance(9)
        assert driver.heartbeat(follower) is None

    def test_a_new_member_that_gave_up_is_dropped(self) -> None:
        driver = GroupDriver(new_member_join_timeout_ms=50_000)
        (leader,) = driver.stable("a", rebalance_ms=300_000)
        ghost = driver.join(rebalance_ms=300_000)
        for _ in range(6):
            driver.advance(9)
            driver.heartbeat(leader)
        assert driver.error(ghost) is UnknownMember

    def test_the_last_session_empties_the_group(self) -> None:
        driver = GroupDriver()
        driver.stable("a", "b")
        driver.advance(11)
        assert driver.group.state is GroupState.EMPTY
        assert driver.log[-1].members == ()


class TestStaticMembers:
    def restart(self, *, v9: bool = False) -> tuple[GroupDriver, list[str]]:
        driver = GroupDriver()
        tokens = [driver.join(instance_id=one, v9=v9) for one in "ij"]
        driver.advance(0)
        ids = [driver.joined(token).member_id for token in tokens]
        driver.sync(ids[0], assignments={ids[0]: b"1", ids[1]: b"2"}, instance_id="i")
        driver.sync(ids[1], instance_id="j")
        assert driver.group.state is GroupState.STABLE
        return driver, ids

    def test_a_restarted_follower_keeps_its_assignment_without_a_rebalance(self) -> None:
        driver, (leader, follower) = self.restart()
        reply = driver.joined(driver.join(instance_id="j"))
        assert reply.member_id not in (leader, follower)
        assert (reply.generation, reply.leader, reply.members) == (1, leader, ())
        assert driver.synced(driver.sync(reply.member_id, instance_id="j")).assignment == b"2"
        assert driver.heartbeat(leader, instance_id="i") is None

    def test_the_old_id_is_fenced(self) -> None:
        driver, (_, follower) = self.restart()
        driver.join(instance_id="j")
        assert driver.heartbeat(follower, instance_id="j") is FencedInstanceId
        assert driver.error(driver.sync(follower, instance_id="j")) is FencedInstanceId
        assert driver.error(driver.join(follower, instance_id="j")) is FencedInstanceId
        assert driver.leave((follower, "j")) == [FencedInstanceId]

    def test_an_old_client_is_not_told_that_it_leads(self) -> None:
        driver, (leader, _) = self.restart()
        reply = driver.joined(driver.join(instance_id="i", v9=False))
        assert reply.leader == leader != reply.member_id
        assert (reply.members, reply.skip_assignment) == ((), False)

    def test_a_v9_leader_is_told_to_skip_the_assignment(self) -> None:
        driver, _ = self.restart()
        reply = driver.joined(driver.join(instance_id="i", v9=True))
        assert reply.leader == reply.member_id
        assert len(reply.members) == 2
        assert reply.skip_assignment
        follower = driver.joined(driver.join(instance_id="j", v9=True))
        assert not follower.skip_assignment

    def test_the_new_id_is_durable_before_it_is_told(self) -> None:
        driver, _ = self.restart()
        driver.slow_log = True
        token = driver.join(instance_id="j")
        assert driver.reply(token) is PARKED
        driver.finish_stores()
        new_id = driver.joined(token).member_id
        assert [member.member_id for member in driver.log[-1].members][1] == new_id
        assert driver.log[-1].members[1].assignment == b"2"

    def test_a_refused_store_takes_the_new_id_back(self) -> None:
        driver, (_, follower) = self.restart()
        driver.slow_log = True
        token = driver.join(instance_id="j")
        driver.fail_stores(MessageTooLarge("too large"))
        assert driver.error(token) is MessageTooLarge
        assert driver.heartbeat(follower, instance_id="j") is None

    def test_a_rebalance_overtakes_the_store(self) -> None:
        driver, (leader, _) = self.restart()
        driver.slow_log = True
        token = driver.join(instance_id="j")
        rejoin = driver.join(leader, instance_id="i")
        assert driver.joined(token).generation == driver.joined(rejoin).generation == 2
        driver.finish_stores()

    def test_two_restarts_in_a_row(self) -> None:
        driver, _ = self.restart()
        driver.slow_log = True
        first, second = driver.join(instance_id="j"), driver.join(instance_id="j")
        assert driver.error(first) is FencedInstanceId
        driver.finish_stores()
        new_id = driver.joined(second).member_id
        assert driver.log[-1].members[1].member_id == new_id

    def test_in_completing_the_group_rebalances(self) -> None:
        driver = GroupDriver()
        tokens = [driver.join(instance_id=one) for one in "ij"]
        driver.advance(0)
        leader, follower = (driver.joined(token).member_id for token in tokens)
        parked = driver.sync(follower, instance_id="j")
        token = driver.join(instance_id="j")
        assert driver.error(parked) is FencedInstanceId
        assert driver.reply(token) is PARKED
        driver.join(leader, instance_id="i")
        assert driver.joined(token).generation == 2

    def test_in_preparing_the_old_request_is_fenced(self) -> None:
        driver, (leader, follower) = self.restart()
        driver.join(leader, instance_id="i")
        assert driver.group.state is GroupState.PREPARING
        driver.join()
        old = driver.join(follower, instance_id="j")
        assert driver.joined(old).generation == 2
        driver.join(leader, instance_id="i")
        driver.join(follower, instance_id="j", protocols=(("range", b"new"),))
        token = driver.join(instance_id="j")
        assert driver.reply(token) is PARKED

    def test_changed_topics_need_a_rebalance(self) -> None:
        topics = {
            name: b"\0\0\0\0\0\1\0\1" + name.encode() + b"\xff\xff\xff\xff" for name in ("a", "b")
        }
        driver = GroupDriver()
        driver.stable("x", instance_id="i", protocols=(("range", topics["a"]),))
        same = driver.join(instance_id="i", protocols=(("range", topics["a"]),))
        assert driver.joined(same).generation == 1
        changed = driver.join(instance_id="i", protocols=(("range", topics["b"]),))
        assert driver.joined(changed).generation == 2

    def test_a_changed_vote_needs_a_rebalance(self) -> None:
        both = (("range", b"s"), ("sticky", b"s"))
        driver = GroupDriver()
        driver.stable("x", instance_id="i", protocols=both)
        token = driver.join(instance_id="i", protocols=both[::-1])
        assert driver.joined(token).protocol_name == "sticky"

    def test_an_administrator_removes_by_instance_id_alone(self) -> None:
        driver, (leader, follower) = self.restart()
        assert driver.leave(("", "j")) == [None]
        assert driver.heartbeat(leader, instance_id="i") is RebalanceInProgress
        assert driver.heartbeat(follower, instance_id="j") is UnknownMember
        assert driver.leave(("", "j"), ("", None)) == [UnknownMember, UnknownMember]

    def test_an_unknown_instance_with_a_member_id(self) -> None:
        driver, (leader, _) = self.restart()
        assert driver.heartbeat(leader, instance_id="other") is UnknownMember


class TestVote:
    def test_the_first_common_protocol_with_most_votes_wins(self) -> None:
        driver = GroupDriver()
        a, b, c = ("a", b""), ("b", b""), ("c", b"")
        tokens = [driver.join(protocols=one) for one in ((c, a, b), (b, a), (b, a, c))]
        driver.advance(0)
        assert {driver.joined(token).protocol_name for token in tokens} == {"b"}

    def test_a_tie_goes_to_the_older_member(self) -> None:
        driver = GroupDriver()
        a, b = ("a", b""), ("b", b"")
        tokens = [driver.join(protocols=one) for one in ((b, a), (a, b))]
        driver.advance(0)
        assert {driver.joined(token).protocol_name for token in tokens} == {"b"}

    def test_a_rolling_upgrade_changes_the_protocol(self) -> None:
        driver = GroupDriver()
        old, new = (("old", b""),), (("new", b""), ("old", b""))
        leader, follower = driver.stable("a", "b", protocols=old)
        tokens = [driver.join(leader, protocols=new), driver.join(follower, protocols=old)]
        assert {driver.joined(token).protocol_name for token in tokens} == {"old"}
        driver.join(follower, protocols=new)
        assert driver.group.state is GroupState.PREPARING
        token = driver.join(leader, protocols=new[:1])
        assert driver.joined(token).protocol_name == "new"


class TestFailedStore:
    def test_assignments_are_cleared_and_the_group_rebalances(self) -> None:
        driver = GroupDriver()
        tokens = [driver.join(), driver.join()]
        driver.advance(0)
        leader, follower = (driver.joined(token).member_id for token in tokens)
        driver.slow_log = True
        syncs = [
            driver.sync(follower),
            driver.sync(leader, assignments={leader: b"1", follower: b"2"}),
        ]
        driver.fail_stores(MessageTooLarge("too large"))
        assert [driver.error(token) for token in syncs] == [MessageTooLarge, MessageTooLarge]
        assert driver.group.state is GroupState.PREPARING
        assert driver.group.stored is None

    def test_a_store_of_an_older_generation_changes_nothing(self) -> None:
        driver = GroupDriver()
        (leader,) = driver.stable("a")
        driver.join(leader)
        driver.slow_log = True
        parked = driver.sync(leader, assignments={leader: b"x"})
        driver.join()
        assert driver.error(parked) is RebalanceInProgress
        driver.finish_stores()
        assert driver.group.state is GroupState.PREPARING
        driver.join(leader)
        assert driver.group.generation == 3

    def test_nor_does_it_become_the_assignment_of_the_next_one(self) -> None:
        driver = GroupDriver()
        (leader,) = driver.stable("a")
        driver.join(leader)
        driver.slow_log = True
        driver.sync(leader, assignments={leader: b"old"})
        second = driver.join()
        driver.join(leader)
        assert driver.joined(second).generation == 3
        parked = driver.sync(driver.joined(second).member_id)
        driver.finish_stores()
        assert driver.reply(parked) is PARKED
        assert driver.group.state is GroupState.COMPLETING


class TestFailOver:
    def test_a_stable_group_goes_on_without_a_rebalance(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        driver.fail_over()
        assert driver.heartbeat(leader, 1) is None
        assert driver.heartbeat(follower, 1) is None
        assert driver.commit(follower, 1) is None
        assert driver.synced(driver.sync(follower, 1)).assignment == b"b"
        assert driver.joined(driver.join(follower)).leader == leader

    def test_sessions_start_afresh(self) -> None:
        driver = GroupDriver()
        leader, _ = driver.stable("a", "b")
        driver.advance(9)
        driver.fail_over()
        driver.advance(9)
        assert driver.heartbeat(leader) is None
        driver.advance(9.5)
        assert driver.group.state is GroupState.PREPARING

    def test_a_generation_that_was_not_stored_is_unknown(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.stable("a", "b")
        driver.join(leader)
        driver.join(follower)
        driver.slow_log = True
        driver.sync(leader, assignments={leader: b"lost"})
        driver.fail_over()
        driver.slow_log = False
        assert driver.error(driver.sync(leader, 2)) is IllegalGeneration
        assert driver.synced(driver.sync(leader, 1)).assignment == b"a"

    def test_static_members_survive(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a", instance_id="i")
        driver.fail_over()
        assert driver.heartbeat(member, instance_id="i") is None
        reply = driver.joined(driver.join(instance_id="i"))
        assert reply.generation == 1

    def test_an_empty_group_keeps_its_generation(self) -> None:
        driver = GroupDriver()
        (member,) = driver.stable("a")
        driver.leave(member)
        driver.fail_over()
        token = driver.join()
        driver.advance(0)
        assert driver.joined(token).generation == 3

    def test_a_group_above_the_limit_shrinks(self) -> None:
        driver = GroupDriver(group_size_max=1)
        stored = GroupDriver()
        ids = stored.stable("a", "b")
        driver.log = stored.log
        driver.fail_over()
        assert driver.group.state is GroupState.PREPARING
        first, second = (driver.join(one) for one in ids)
        assert driver.joined(first).generation == 2
        assert driver.reply(second) is not PARKED

    def test_nothing_stored(self) -> None:
        driver = GroupDriver()
        driver.fail_over()
        assert driver.group.is_unused()

    def test_metadata_from_elsewhere_without_a_leader(self) -> None:
        driver = GroupDriver()
        driver.stable("a")
        member = driver.log[-1].members[0]
        driver.log = [GroupMetadata("consumer", 7, "range", None, -1, (member,))]
        driver.fail_over()
        assert driver.group.members.leader == member.member_id
        assert driver.heartbeat(member.member_id, 7) is None


def test_unload_answers_all_parked_requests() -> None:
    driver = GroupDriver()
    tokens = [driver.join(), driver.join()]
    driver.advance(0)
    ids = [driver.joined(token).member_id for token in tokens]
    parked = [driver.sync(ids[1])]
    driver._perform(driver.group.unload(NotCoordinator()))
    assert driver.error(parked[0]) is NotCoordinator


def test_the_topics_of_a_group_are_known_only_for_consumers() -> None:
    driver = GroupDriver()
    driver.stable("a", protocol_type="connect")
    assert driver.group.subscribed_topics() is None
    driver = GroupDriver()
    driver.stable("a", protocols=(("range", b"garbage"),))
    assert driver.group.subscribed_topics() is None


@pytest.mark.parametrize("state", list(GroupState))
def test_state_names_are_kafkas(state: GroupState) -> None:
    assert state.value in (
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Assigning",
        "Reconciling",
        "Stable",
        "Dead",
    )
