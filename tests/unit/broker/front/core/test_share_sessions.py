"""Share sessions: numbered requests, bound to a connection, bounded memory."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from broker.front.core.share_sessions import FINAL, SILENT_S, ShareSession, ShareSessions
from client.ids import ConnectionId

A, B, C = ((UUID(int=1), index) for index in range(3))


class Bench:
    def __init__(self, count_max: int = 3, partitions_max: int = 10) -> None:
        self.sessions = ShareSessions(count_max, partitions_max)
        self.now_s = 1_000.0

    def begin(
        self, member: str = "m", *keys: tuple[UUID, int], connection: int = 1
    ) -> ShareSession:
        session = self.sessions.begin("g", member, ConnectionId(connection), keys, self.now_s)
        self.sessions.check()
        return session

    def next(
        self,
        epoch: int,
        *keys: tuple[UUID, int],
        member: str = "m",
        connection: int = 1,
        forgotten: tuple[tuple[UUID, int], ...] = (),
    ) -> ShareSession:
        try:
            return self.sessions.next(
                "g", member, epoch, ConnectionId(connection), self.now_s, keys, forgotten
            )
        finally:
            self.sessions.check()


def test_same_order() -> None:
    bench = Bench()
    session = bench.begin("m", A)
    assert bench.next(1, B) is session
    assert list(session.partitions) == [A, B]
    assert bench.next(2, C, forgotten=(A, A)) is session
    assert list(session.partitions) == [B, C]
    for epoch in (2, 4, 1):
        with pytest.raises(InvalidShareSessionEpoch):
            bench.next(epoch)
    assert bench.next(FINAL) is session, "it may be ended at any time"


def test_after_the_largest_epoch_comes_the_first() -> None:
    bench = Bench()
    bench.begin().next_epoch = (1 << 31) - 1
    bench.next((1 << 31) - 1)
    bench.next(1)


def test_there_is_no_session_before_one_has_begun_or_on_another_connection() -> None:
    bench = Bench()
    with pytest.raises(ShareSessionNotFound):
        bench.next(1)
    bench.begin()
    with pytest.raises(ShareSessionNotFound):
        bench.next(1, connection=2)
    with pytest.raises(ShareSessionNotFound):
        bench.next(1, member="other")


def test_a_session_ends_once() -> None:
    bench = Bench()
    session = bench.begin("m", A)
    told: list[str] = []
    session.on_over = lambda: told.append("over")
    bench.sessions.end(session)
    bench.sessions.end(session)
    bench.sessions.check()
    assert (session.is_over, told, len(bench.sessions)) == (True, ["over"], 0)


def test_connected() -> None:
    bench = Bench()
    one, two = bench.begin("one", A), bench.begin("two", A, connection=2)
    assert bench.sessions.on_connection_lost(ConnectionId(1)) == [one]
    assert bench.sessions.on_connection_lost(ConnectionId(1)) == []
    bench.sessions.check()
    assert (one.is_over, two.is_over) == (True, False)


def test_a_session_that_was_replaced_takes_nothing_with_its_connection() -> None:
    bench = Bench()
    before = bench.begin("m", A)
    after = bench.begin("m", B, connection=2)
    assert before.is_over
    assert bench.sessions.on_connection_lost(ConnectionId(1)) == []
    assert bench.next(1, connection=2) is after
    assert bench.sessions.of_group("g") == [after]
    assert bench.sessions.of_group("other") == []


def test_bounded() -> None:
    bench = Bench(count_max=2, partitions_max=3)
    bench.begin("one", A, B)
    bench.begin("two", A)
    with pytest.raises(ShareSessionLimitReached):
        bench.begin("three")
    bench.begin("two", A, connection=2)
    with pytest.raises(ShareSessionLimitReached):
        bench.next(1, C, member="one")
    bench.sessions.check()
    assert len(bench.sessions) == 1, "one that has grown too large begins anew"


def test_what_gave_something_is_looked_at_last() -> None:
    session = Bench().begin("m", A, B)
    session.looked_at(A)
    session.looked_at(C)
    assert list(session.partitions) == [B, A]


def test_one_that_was_silent_for_long_makes_room() -> None:
    bench = Bench(count_max=2)
    bench.begin("one")
    silent = bench.begin("two")
    bench.now_s += SILENT_S
    bench.next(1, member="one")
    bench.begin("three")
    assert silent.is_over
    with pytest.raises(ShareSessionLimitReached):
        bench.begin("four")
