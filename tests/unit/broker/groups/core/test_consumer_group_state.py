"""The fold of a group's records: owners, copies, and what makes and removes all of it."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.groups.core.consumer_group_records import (
    ConsumerGroupEntry,
    Current,
    GroupEpoch,
    Matches,
    MemberState,
    Part,
    PartValue,
    Subscriber,
    TargetEpoch,
)
from broker.groups.core.consumer_group_state import ConsumerGroupState

T = UUID(int=1)
WISH = Subscriber(None, None, "c", "/h", ("t",), "t.*", 60_000, None)


def entry(part: Part, name: str, value: PartValue | None) -> ConsumerGroupEntry:
    return ConsumerGroupEntry("g", part, name, value)


def holding(*indexes: int, revoking: tuple[int, ...] = ()) -> Current:
    gone = {T: dict.fromkeys(revoking, 1)} if revoking else {}
    return Current(1, 0, MemberState.STABLE, {T: dict.fromkeys(indexes, 1)}, gone)


@pytest.fixture
def state() -> ConsumerGroupState:
    found = ConsumerGroupState()
    for one in (
        entry(Part.GROUP, "", GroupEpoch(2, 5)),
        entry(Part.TARGET_EPOCH, "", TargetEpoch(2, 9)),
        entry(Part.MEMBER, "a", WISH),
        entry(Part.TARGET, "a", {T: frozenset((0, 1))}),
        entry(Part.CURRENT, "a", holding(0, 1, revoking=(2,))),
        entry(Part.PATTERN, "t.*", Matches(("t",), 3)),
    ):
        found.apply(one)
    return found


def test_who_has_a_partition_or_has_to_give_it_up_owns_it(state: ConsumerGroupState) -> None:
    assert [state.owner(T, index) for index in range(4)] == ["a", "a", "a", None]
    state.apply(entry(Part.CURRENT, "a", holding(1)))
    assert [state.owner(T, index) for index in range(4)] == [None, "a", None, None]
    state.apply(entry(Part.CURRENT, "a", None))
    assert state.owner(T, 1) is None
    state.check()


def test_a_copy_is_changed_by_itself(state: ConsumerGroupState) -> None:
    other = state.copy()
    other.apply(entry(Part.CURRENT, "a", None))
    other.apply(entry(Part.MEMBER, "b", WISH))
    assert state.owner(T, 1) == "a"
    assert "b" not in state.members
    state.check()
    other.check()


def test_entries_make_it_anew_and_tombstones_remove_it(state: ConsumerGroupState) -> None:
    other = ConsumerGroupState()
    for one in state.entries("g"):
        other.apply(one)
    assert list(other.entries("g")) == list(state.entries("g"))
    assert other.owner(T, 2) == "a"
    for one in state.tombstones("g"):
        assert one.value is None
        other.apply(one)
    assert not other
    assert list(other.entries("g")) == []
    assert other.owner(T, 2) is None


def test_two_owners_are_an_error(state: ConsumerGroupState) -> None:
    state.apply(entry(Part.CURRENT, "b", holding(1)))
    with pytest.raises(AssertionError, match="two owners"):
        state.check()


@pytest.mark.parametrize("part", Part)
def test_get_returns_what_was_applied(state: ConsumerGroupState, part: Part) -> None:
    name = {Part.GROUP: "", Part.TARGET_EPOCH: "", Part.PATTERN: "t.*"}.get(part, "a")
    found = next(one for one in state.entries("g") if one.part is part)
    assert state.get(part, name) == found.value
    state.apply(found._replace(value=None))
    assert state.get(part, name) is None
