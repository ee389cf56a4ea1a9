"""Any members, any topics: each partition that somebody wants has one owner who wants it."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.core.assignors import Targets, Wish, range_, uniform

TOPICS = [UUID(int=one) for one in range(1, 6)]
NAMES = [f"m{one}" for one in range(8)]

Group = tuple[dict[str, frozenset[UUID]], dict[UUID, int]]

GROUPS = st.tuples(
    st.dictionaries(st.sampled_from(NAMES), st.frozensets(st.sampled_from(TOPICS)), max_size=8),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)


def divide(assignor, group: Group, before: Targets) -> Targets:  # type: ignore[no-untyped-def]
    members, counts = group
    known = {name: frozenset(one & counts.keys()) for name, one in members.items()}
    wishes = {name: Wish(topics, before.get(name, {})) for name, topics in known.items()}
    targets: Targets = assignor(wishes, counts)
    assert targets.keys() == members.keys()
    owners: dict[tuple[UUID, int], str] = {}
    for name, one in targets.items():
        for topic_id, indexes in one.items():
            assert indexes
            assert topic_id in members[name]
            for index in indexes:
                assert owners.setdefault((topic_id, index), name) == name
    wanted = {topic for topics in known.values() for topic in topics}
    assert owners.keys() == {(t, index) for t in wanted for index in range(counts[t])}
    return targets


@given(GROUPS, GROUPS)
def test_each_partition_has_one_owner(first: Group, second: Group) -> None:
    for assignor in (uniform, range_):
        before = divide(assignor, first, {})
        after = divide(assignor, second, before)
        assert divide(assignor, second, after) == after, "the same again moves nothing"


@given(GROUPS, GROUPS)
def test_uniform_is_as_even_as_subscriptions_allow(first: Group, second: Group) -> None:
    targets = divide(uniform, second, divide(uniform, first, {}))
    members, _ = second
    size = {name: sum(map(len, one.values())) for name, one in targets.items()}
    for giver in members:
        for taker in members:
            could = any(topic in members[taker] for topic in targets[giver])
            assert not could or size[giver] - size[taker] < 2
