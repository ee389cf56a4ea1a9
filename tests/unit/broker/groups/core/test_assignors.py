"""How partitions are divided: even, sticky, and in runs."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.groups.core.assignors import ASSIGNORS, Targets, Wish, range_, uniform
from broker.groups.core.group_types import ASSIGNOR_NAMES

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def wish(*topics: UUID, instance_id: str | None = None, **_: object) -> Wish:
    return Wish(frozenset(topics), {}, instance_id)


def again(wishes: dict[str, Wish], targets: Targets) -> dict[str, Wish]:
    """The same members, with what they were assigned."""
    return {name: one._replace(assigned=targets.get(name, {})) for name, one in wishes.items()}


def sizes(targets: Targets) -> dict[str, int]:
    return {name: sum(map(len, one.values())) for name, one in targets.items()}


def moved(before: Targets, after: Targets) -> int:
    """Partitions that a member has now and had not before."""
    return sum(
        len(indexes - before.get(name, {}).get(topic_id, frozenset()))
        for name, one in after.items()
        for topic_id, indexes in one.items()
    )


def test_the_names_are_those_that_settings_take() -> None:
    assert tuple(ASSIGNORS) == ASSIGNOR_NAMES


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
def test_nobody_gets_anything_of_nothing(assignor) -> None:  # type: ignore[no-untyped-def]
    assert assignor({}, {}) == {}
    assert assignor({"m": wish()}, {A: 3}) == {"m": {}}
    assert assignor({"m": wish(A)}, {A: 0}) == {"m": {}}


def test_uniform_is_even() -> None:
    targets = uniform({name: wish(A, B) for name in "xyz"}, {A: 4, B: 4})
    assert sorted(sizes(targets).values()) == [2, 3, 3]


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    wishes = {name: wish(A) for name in "xy"}
    before = uniform(wishes, {A: 6})
    wishes = again(wishes, before) | {"z": wish(A)}
    after = uniform(wishes, {A: 6})
    assert sizes(after) == {"x": 2, "y": 2, "z": 2}
    assert moved(before, after) == 2


def test_uniform_gives_what_a_member_left_to_the_others() -> None:
    wishes = {name: wish(A) for name in "xyz"}
    before = uniform(wishes, {A: 6})
    left = {name: one for name, one in again(wishes, before).items() if name != "y"}
    after = uniform(left, {A: 6})
    assert sizes(after) == {"x": 3, "z": 3}
    assert moved(before, after) == 2


def test_uniform_leaves_an_even_division_as_it_is() -> None:
    wishes = {name: wish(A, B) for name in "xyz"}
    before = uniform(wishes, {A: 5, B: 2})
    assert uniform(again(wishes, before), {A: 5, B: 2}) == before


def test_uniform_forgets_partitions_and_topics_that_are_gone() -> None:
    wishes = {"x": Wish(frozenset((A,)), {A: frozenset((0, 7)), B: frozenset((0,))})}
    assert uniform(wishes, {A: 2}) == {"x": {A: frozenset((0, 1))}}


def test_uniform_believes_one_member_of_two_with_the_same_partition() -> None:
    held = {A: frozenset((0, 1))}
    targets = uniform({name: Wish(frozenset((A,)), held) for name in "xy"}, {A: 2})
    assert sizes(targets) == {"x": 1, "y": 1}


def test_uniform_evens_out_what_different_subscriptions_leave() -> None:
    wishes = {"x": wish(A, B), "y": wish(B), "z": wish(A)}
    targets = uniform(wishes, {A: 4, B: 4})
    assert sorted(sizes(targets).values()) == [2, 3, 3]
    assert all(topic in wishes[name].topics for name, one in targets.items() for topic in one)


def test_range_gives_runs_and_the_same_ones_for_topics_alike() -> None:
    targets = range_({name: wish(A, B) for name in "xyz"}, {A: 7, B: 7})
    assert targets["x"] == {A: frozenset((0, 1, 2)), B: frozenset((0, 1, 2))}
    assert targets["y"][A] == frozenset((3, 4))
    assert targets["z"][A] == frozenset((5, 6))


def test_range_has_static_members_first() -> None:
    wishes = {"a": wish(A), "b": wish(A, instance_id="2"), "c": wish(A, instance_id="1")}
    targets = range_(wishes, {A: 3})
    assert [targets[name][A] for name in "cba"] == [
        frozenset((0,)), frozenset((1,)), frozenset((2,)),
    ]  # fmt: skip


def test_range_leaves_members_without_a_partition() -> None:
    assert range_({name: wish(A) for name in "xy"}, {A: 1}) == {
        "x": {A: frozenset((0,))}, "y": {},
    }  # fmt: skip
