"""The share groups of one partition: each begins, ends and comes back from a snapshot by itself."""

from __future__ import annotations

from uuid import UUID

from broker.partition.core.shares.share_partition import Extent, ShareTerms
from broker.partition.core.shares.share_states import GROUPS_MAX, ShareStates
from broker.partition.core.shares.share_updates import ShareUpdate
from client.ids import Offset

ONE, TWO = UUID(int=1), UUID(int=2)


def replayed(*updates: ShareUpdate) -> ShareStates:
    states = ShareStates()
    for update in updates:
        states.apply(update)
    return states


def shown(states: ShareStates) -> list[ShareUpdate]:
    return [one.whole() for one in states]


def test_groups_know_nothing_of_each_other() -> None:
    states = ShareStates()
    assert not states
    updates = [states.begin("a", ONE, Offset(5)), states.begin("b", TWO, Offset(7))]
    share = states.get("a")
    assert share is not None
    share.acquire(
        [Extent(Offset(5), Offset(9))], "m", 0.0, ShareTerms(),
        read_from=Offset(5), count_max=9, is_strict=False,
    )  # fmt: skip
    update = share.release_member("m", ShareTerms())
    assert update is not None
    states = replayed(*updates, update)
    assert [(one.group_id, one.start, len(one.ranges)) for one in shown(states)] == [
        ("a", 5, 1), ("b", 7, 0),
    ]  # fmt: skip
    again = ShareStates()
    again.restore(memoryview(states.encode()))
    assert shown(again) == shown(states)


def test_a_later_group_of_a_name_gets_nothing_of_the_earlier_one() -> None:
    states = ShareStates()
    first = states.begin("a", ONE, Offset(5))
    second = states.begin("a", TWO, Offset(0))
    assert (second.epoch, second.start) == (0, 0)
    (known,) = replayed(first, second)
    assert (known.incarnation, known.start) == (TWO, 0)


def test_a_group_begins_elsewhere_with_a_new_epoch() -> None:
    states = ShareStates()
    first = states.begin("a", ONE, Offset(5))
    second = states.begin("a", ONE, Offset(2))
    assert (first.epoch, second.epoch) == (0, 1)
    (known,) = replayed(first, second)
    assert (known.epoch, known.start) == (1, 2)


def test_a_group_that_has_ended_is_gone() -> None:
    states = ShareStates()
    first = states.begin("a", ONE, Offset(5))
    last = states.end("a")
    assert not states
    assert not replayed(first, last)
    assert not replayed(last)


def test_what_a_snapshot_has_already_may_follow_it() -> None:
    """Changes that were accepted before a snapshot may be in an entry behind it."""
    states = ShareStates()
    updates = [
        states.begin("a", ONE, Offset(5)),
        states.begin("a", ONE, Offset(1)),
        states.begin("b", TWO, Offset(3)),
        states.end("b"),
    ]
    again = ShareStates()
    again.restore(memoryview(states.encode()))
    for update in updates:
        again.apply(update)
    assert shown(again) == shown(states)


def test_bounded_groups() -> None:
    states = ShareStates()
    for number in range(GROUPS_MAX):
        assert not states.is_full
        states.begin(f"g{number}", ONE, Offset(0))
    assert states.is_full
    assert len(states) == GROUPS_MAX
