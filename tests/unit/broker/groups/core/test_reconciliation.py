"""One step of one member towards its target: every state, with what it says that it owns."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.groups.core.consumer_group_records import Current, MemberState, Partitions
from broker.groups.core.reconciliation import overlap, reconcile, within

T, U = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def some(*indexes: int, topic: UUID = T) -> dict[UUID, frozenset[int]]:
    return {topic: frozenset(indexes)}


def step(
    current: Current,
    target: Partitions,
    epoch: int,
    *,
    owned: Partitions | None = None,
    foreign: frozenset[int] = frozenset(),
    subscribed: tuple[UUID, ...] = (T, U),
) -> Current:
    """`foreign`: partitions of T that another member owns."""

    def owner(topic_id: UUID, index: int) -> str | None:
        return "other" if topic_id == T and index in foreign else None

    return reconcile("m", current, target, epoch, owned=owned, owner=owner, subscribed=subscribed)


AT_3 = Current(3, 2, STABLE, {T: {0: 1, 1: 3}}, {})


def test_a_member_that_is_there_stays_as_it_is() -> None:
    assert step(AT_3, some(0, 1), 3) is AT_3


def test_a_member_that_only_gets_more_is_there_at_once() -> None:
    assert step(AT_3, some(0, 1, 2), 4) == Current(4, 3, STABLE, {T: {0: 1, 1: 3, 2: 4}}, {})


def test_the_same_target_at_a_later_epoch_is_only_an_epoch() -> None:
    assert step(AT_3, some(0, 1), 5) == Current(5, 3, STABLE, AT_3.assigned, {})


def test_what_others_have_is_waited_for() -> None:
    new = step(AT_3, some(0, 1, 2, 3), 4, foreign=frozenset((2,)))
    assert new == Current(4, 3, UNRELEASED, {T: {0: 1, 1: 3, 3: 4}}, {})
    assert step(new, some(0, 1, 2, 3), 4, foreign=frozenset((2,))) == new
    later = step(new, some(0, 1, 2, 3), 4)
    assert later == Current(4, 3, STABLE, {T: {0: 1, 1: 3, 3: 4, 2: 4}}, {})


def test_what_is_not_in_the_target_is_given_up_first() -> None:
    new = step(AT_3, some(0, 2), 4)
    assert new == Current(3, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 3}})


@pytest.mark.parametrize("owned", [None, some(0, 1), some(1)])
def test_until_the_member_says_that_it_has_given_it_up_nothing_happens(
    owned: Partitions | None,
) -> None:
    revoking = Current(3, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 2}})
    assert step(revoking, some(0, 2), 4, owned=owned) is revoking


@pytest.mark.parametrize("owned", [{}, some(0), some(1, topic=U)])
def test_then_it_is_at_the_new_epoch(owned: Partitions) -> None:
    revoking = Current(3, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 2}})
    new = step(revoking, some(0, 2), 4, owned=owned)
    assert new == Current(4, 3, STABLE, {T: {0: 1, 2: 4}}, {})


def test_what_a_member_surely_does_not_have_it_need_not_give_up() -> None:
    assert step(AT_3, some(0), 4, owned=some(0)) == Current(4, 3, STABLE, {T: {0: 1}}, {})


def test_while_it_gives_something_up_more_may_be_taken_away() -> None:
    revoking = Current(3, 2, UNREVOKED, {T: {0: 1, 5: 1}}, {T: {1: 2}})
    new = step(revoking, some(0), 5, owned=some(0, 5))
    assert new == Current(3, 2, UNREVOKED, {T: {0: 1}}, {T: {5: 1}})


def test_what_it_gives_up_may_come_back() -> None:
    revoking = Current(3, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 2}})
    new = step(revoking, some(0, 1), 5, owned=some(0))
    assert new == Current(5, 3, STABLE, {T: {0: 1, 1: 5}}, {})


def test_a_topic_that_is_not_wanted_any_more_is_given_up_before_there_is_a_target() -> None:
    current = Current(3, 2, STABLE, {T: {0: 1}, U: {0: 1}}, {})
    target = {**some(0), **some(0, topic=U)}
    new = step(current, target, 3, subscribed=(T,))
    assert new == Current(3, 2, UNREVOKED, {T: {0: 1}}, {U: {0: 1}})
    assert step(new, target, 3, owned=some(0), subscribed=(T,)).state is STABLE


def test_overlap() -> None:
    assert overlap(some(0, 1), some(1, 2))
    assert not overlap(some(0), some(1))
    assert not overlap(some(0), some(0, topic=U))
    assert not overlap({}, some(0))


def test_within() -> None:
    assert within(some(0), {T: {0: 1, 1: 1}})
    assert within({}, {})
    assert not within(some(0, 2), {T: {0: 1, 1: 1}})
    assert not within(some(0, topic=U), {T: {0: 1}})
