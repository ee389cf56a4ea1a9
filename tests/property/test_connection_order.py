"""The order of connections and sessions against everything that was ever let through."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.core.connection_order import ChannelOrder, ConnectionOrder, Session
from broker.errors import OldConnection
from client.ids import ConnectionId, LeaderEpoch

REQUESTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.sampled_from((True, False, None))),
    max_size=60,
)
"""Transactional id, connection, whether it counts (None: the id is gone)."""
MESSAGES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3)), max_size=60)
"""Coordinator's partition, its leader epoch, the number of the session."""


@settings(max_examples=300)
@given(REQUESTS, st.integers(-1, 5))
def test_the_newest_connection_counts(
    requests: list[tuple[str, int, bool | None]], accepted_before: int
) -> None:
    order = ConnectionOrder(ConnectionId(accepted_before))
    counted: list[tuple[str, int]] = []
    for name, connection, counts in requests:
        if counts is None:
            order.forget(name)
            counted = [one for one in counted if one[0] != name]
            continue
        has_newer = any(one == name and newer > connection for one, newer in counted)
        is_refused = connection <= accepted_before or (counts and has_newer)
        assert order.is_newest(name, ConnectionId(connection)) == (not has_newer)
        try:
            order.admit(name, ConnectionId(connection), counts=counts)
        except OldConnection:
            assert is_refused
        else:
            assert not is_refused
            if counts:
                counted.append((name, connection))


@settings(max_examples=300)
@given(MESSAGES)
def test_nothing_of_an_older_session_is_heard_behind_a_newer_one(
    messages: list[tuple[int, int, int]],
) -> None:
    order = ChannelOrder()
    heard: list[tuple[int, Session]] = []
    for partition, epoch, number in messages:
        session = Session(LeaderEpoch(epoch), number)
        has_newer = any(one == partition and newer > session for one, newer in heard)
        assert order.hear(partition, session) == (not has_newer)
        if not has_newer:
            heard.append((partition, session))
