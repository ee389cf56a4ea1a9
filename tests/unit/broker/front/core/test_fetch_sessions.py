"""Sessions follow KIP-227: numbered requests, answers with what changed, bounded memory."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence

import pytest

from broker.errors import FetchSessionNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from broker.front.core.fetch_sessions import (
    EPOCH_MAX,
    FULL,
    NO_SESSION,
    PARTITION_BYTES_MAX,
    SILENT_S,
    Asked,
    FetchSessions,
    FetchTurn,
    Key,
)
from client.wire.kafka.apis import ApiKey, request_type
from client.wire.kafka.encoder import blank, encode
from client.wire.kafka.fetch import PartitionData, PartitionFetch, response_steps
from client.wire.steps import finish


def asked(*partitions: int, offset: int = 0, topic: str = "t") -> list[Asked]:
    return [Asked(topic, PartitionFetch(one, offset, 1_000, -1)) for one in partitions]


def data(partition: int, high: int = 5, *, size: int = 0, error: int = 0) -> PartitionData:
    return PartitionData(partition, error, high, high, 0, (b"x" * size,) if size else (), size)


class Bench:
    """Sessions with a clock."""

    def __init__(self, count_max: int = 3, partitions_max: int = 100) -> None:
        self.sessions = FetchSessions(count_max, partitions_max, itertools.count(1).__next__)
        self.now_s = 1_000.0

    def begin(
        self,
        session_id: int,
        epoch: int,
        what: Sequence[Asked] = (),
        forgotten: Sequence[Key] = (),
        *,
        by_id: bool = False,
    ) -> FetchTurn:
        try:
            return self.sessions.begin(
                session_id, epoch, what, forgotten, by_id=by_id, now_s=self.now_s
            )
        finally:
            self.sessions.check()

    def finish(self, turn: FetchTurn, found: Sequence[PartitionData]) -> tuple[int, list[int]]:
        session_id, told = finish(self.sessions.finish(turn, found, self.now_s))
        self.sessions.check()
        return session_id, [row.partition for _, row in told]

    def open(self, *partitions: int) -> int:
        turn = self.begin(0, FULL, asked(*partitions))
        session_id, told = self.finish(turn, [data(one) for one in partitions])
        assert told == list(partitions)
        return session_id


def test_what_did_not_change_is_left_out() -> None:
    bench = Bench()
    session = bench.open(0, 1, 2)
    turn = bench.begin(session, 1)
    assert [one.fetch.partition for one in turn.asked] == [0, 1, 2]
    found = [data(0), data(1, high=6), data(2, size=9)]
    assert bench.finish(turn, found) == (session, [1, 2])
    turn = bench.begin(session, 2)
    found = [data(one.fetch.partition, high=6) for one in turn.asked]
    assert bench.finish(turn, found) == (session, [0, 2])


def test_a_partition_that_gave_data_goes_to_the_end() -> None:
    bench = Bench()
    session = bench.open(0, 1, 2)
    bench.finish(bench.begin(session, 1), [data(0, size=9), data(1), data(2)])
    turn = bench.begin(session, 2)
    assert [one.fetch.partition for one in turn.asked] == [1, 2, 0]


def test_partitions_come_change_and_go() -> None:
    bench = Bench()
    session = bench.open(0, 1)
    turn = bench.begin(session, 1, [*asked(2), *asked(0, offset=7)], [("t", 1), ("t", 9)])
    assert [(one.fetch.partition, one.fetch.offset) for one in turn.asked] == [(0, 7), (2, 0)]
    assert bench.finish(turn, [data(0), data(2)]) == (session, [2])
    assert bench.sessions.partition_count == 2


def test_an_error_is_followed_by_an_answer() -> None:
    bench = Bench()
    session = bench.open(0)
    assert bench.finish(bench.begin(session, 1), [data(0, error=6)]) == (session, [0])
    assert bench.finish(bench.begin(session, 2), [data(0)]) == (session, [0])
    assert bench.finish(bench.begin(session, 3), [data(0)]) == (session, [])


def test_requests_are_numbered() -> None:
    bench = Bench()
    session = bench.open(0)
    for epoch in (2, 7):
        with pytest.raises(InvalidFetchSessionEpoch):
            bench.begin(session, epoch)
    bench.begin(session, 1)
    with pytest.raises(InvalidFetchSessionEpoch):
        bench.begin(session, 1)
    bench.begin(session, 2)


def test_numbers_begin_again_after_the_last() -> None:
    bench = Bench()
    session = bench.open(0)
    bench.sessions._sessions[session].next_epoch = EPOCH_MAX
    bench.begin(session, EPOCH_MAX)
    bench.begin(session, 1)


def test_names_and_ids_do_not_mix() -> None:
    bench = Bench()
    session = bench.open(0)
    with pytest.raises(FetchSessionTopicIdError):
        bench.begin(session, 1, by_id=True)


@pytest.mark.parametrize("epoch", [FULL, NO_SESSION])
def test_a_full_request_ends_the_session_that_it_names(epoch: int) -> None:
    bench = Bench()
    session = bench.open(0)
    turn = bench.begin(session, epoch, asked(1))
    found, told = bench.finish(turn, [data(1)])
    assert told == [1]
    assert bool(found) is (epoch == FULL)
    assert found != session
    with pytest.raises(FetchSessionNotFound):
        bench.begin(session, 1)


def test_without_room_a_consumer_goes_on_without_a_session() -> None:
    bench = Bench(count_max=2)
    first, second = bench.open(0), bench.open(1)
    assert 0 not in (first, second)
    assert bench.open(2) == 0
    bench.now_s += SILENT_S
    bench.begin(second, 1)
    third = bench.open(2)
    assert third
    assert bench.sessions.evicted_count == 1
    with pytest.raises(FetchSessionNotFound):
        bench.begin(first, 1)
    bench.begin(second, 2)


def test_partitions_are_bounded_in_all() -> None:
    bench = Bench(partitions_max=5)
    first = bench.open(0, 1, 2)
    assert bench.open(0, 1, 2) == 0
    assert bench.open(*range(9)) == 0
    second = bench.open(0, 1)
    with pytest.raises(FetchSessionNotFound, match="large"):
        bench.begin(first, 1, asked(7))
    assert bench.sessions.partition_count == 2
    bench.begin(second, 1)


def test_a_session_that_was_replaced_meanwhile() -> None:
    bench = Bench(count_max=1)
    session = bench.open(0)
    turn = bench.begin(session, 1)
    bench.now_s += SILENT_S
    assert bench.open(1)
    assert bench.finish(turn, [data(0)]) == (session, [0])
    with pytest.raises(FetchSessionNotFound):
        bench.begin(session, 2)


def test_no_partitions_need_no_session() -> None:
    assert Bench().open() == 0


def request_bytes(epoch: int, partitions: Sequence[int]) -> int:
    rows = [{"partition": one, "current_leader_epoch": 3, "fetch_offset": 1_000_000,
             "partition_max_bytes": 1 << 20} for one in partitions]  # fmt: skip
    entity = request_type(ApiKey.FETCH, 12)
    topics = [{"topic": "orders", "partitions": rows}] if rows else []
    return len(encode(entity, {**blank(entity), "session_epoch": epoch, "topics": topics}))


def answer_bytes(found: Sequence[PartitionData]) -> int:
    topics = [("orders", found)] if found else []
    return finish(response_steps(12, topics, session_id=7))[1]


def test_a_session_of_a_thousand_partitions_saves_nearly_all_the_bytes() -> None:
    """One round in which one partition of them has a batch of 100 bytes, version 12."""
    bench = Bench(partitions_max=1_000)
    everything = range(1_000)
    session = bench.open(*everything)
    found = [data(one, size=100 * (one == 77)) for one in everything]
    _, told = bench.finish(bench.begin(session, 1), found)
    asked_bytes = request_bytes(NO_SESSION, everything), request_bytes(1, ())
    told_bytes = answer_bytes(found), answer_bytes([found[one] for one in told])
    assert told == [77]
    assert asked_bytes == (33_039, 29)
    assert told_bytes == (37_122, 158)


@pytest.mark.parametrize("name", ["x" * 250, "\N{GRINNING FACE}" * 62])
def test_a_name_that_no_topic_can_have_is_not_kept(name: str) -> None:
    bench = Bench()
    turn = bench.begin(0, FULL, asked(0, topic=name))
    assert bench.finish(turn, [data(0, error=3)]) == (0, [0]), "its consumer goes on without"
    session = bench.open(0)
    with pytest.raises(FetchSessionNotFound):
        bench.begin(session, 1, asked(1, topic=name))
    assert not len(bench.sessions)


def test_a_partition_takes_what_is_counted_for_it() -> None:
    """With another topic for each, whose name is the longest: what MEMORY.md reckons with."""
    count = 20_000
    sessions = FetchSessions(count, count, itertools.count(1).__next__)
    tracemalloc.start()
    try:
        for begin in range(0, count, 1_000):
            numbers = range(begin, begin + 1_000)
            rows = [
                asked(1 << 20, offset=1 << 40, topic=f"{number:0249d}")[0] for number in numbers
            ]
            turn = sessions.begin(0, FULL, rows, (), by_id=False, now_s=1.0)
            finish(sessions.finish(turn, [data(1 << 20, number << 40) for number in numbers], 1.0))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sessions.partition_count == count
    assert held <= count * PARTITION_BYTES_MAX
