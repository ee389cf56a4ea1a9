"""A consumer that keeps what it was told knows, after each answer, what a full one would say."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.errors import FetchSessionError
from broker.front.core.fetch_sessions import FULL, Asked, FetchSessions, Told
from client.wire.kafka.fetch import PartitionData, PartitionFetch
from client.wire.steps import finish

COUNT = 5
partitions = st.integers(0, COUNT - 1)


class _Consumer:
    """As Java's FetchSessionHandler: what it wants, what it said, and what it knows."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = FULL
        self.wants: dict[int, PartitionFetch] = {}
        self.said: dict[int, PartitionFetch] = {}
        self.knows: dict[int, Told] = {}

    def begin_anew(self) -> None:
        self.session_id, self.epoch = 0, FULL
        self.said.clear()
        self.knows.clear()


class FetchSessionMachine(RuleBasedStateMachine):
    """Two or three consumers, a log whose watermarks move, and answers that get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.sessions = FetchSessions(2, 8, itertools.count(1).__next__)
        self.consumers = [_Consumer() for _ in range(3)]
        self.high = [0] * COUNT
        self.start = [0] * COUNT
        self.failing: set[int] = set()

    @rule(one=st.integers(0, 2), partition=partitions, offset=st.integers(0, 3))
    def want(self, one: int, partition: int, offset: int) -> None:
        self.consumers[one].wants[partition] = PartitionFetch(partition, offset, 100, -1)

    @rule(one=st.integers(0, 2), partition=partitions)
    def forget(self, one: int, partition: int) -> None:
        self.consumers[one].wants.pop(partition, None)

    @rule(partition=partitions, count=st.integers(1, 3))
    def grow(self, partition: int, count: int) -> None:
        self.high[partition] += count

    @rule(partition=partitions)
    def trim(self, partition: int) -> None:
        self.start[partition] = self.high[partition]

    @rule(partition=partitions)
    def fail(self, partition: int) -> None:
        self.failing ^= {partition}

    @rule(seconds=st.sampled_from((1.0, 200.0)))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(one=st.integers(0, 2), is_lost=st.sampled_from((False, False, False, True)))
    def fetch(self, one: int, is_lost: bool) -> None:
        consumer = self.consumers[one]
        changed = [
            Asked("t", fetch)
            for key, fetch in consumer.wants.items()
            if consumer.said.get(key) != fetch
        ]
        gone = [("t", key) for key in consumer.said if key not in consumer.wants]
        consumer.said = dict(consumer.wants)
        try:
            turn = self.sessions.begin(
                consumer.session_id, consumer.epoch, changed, gone, by_id=False, now_s=self.now_s
            )
        except FetchSessionError:
            consumer.begin_anew()
            return
        assert {one.fetch.partition: one.fetch for one in turn.asked} == consumer.wants
        found = [self.look(one.fetch) for one in turn.asked]
        session_id, told = finish(self.sessions.finish(turn, found, self.now_s))
        if is_lost:
            consumer.begin_anew()
            return
        for _, row in told:
            consumer.knows[row.partition] = Told(
                row.high_watermark, row.last_stable_offset, row.log_start_offset
            )
        shown = {row.partition for _, row in told}
        assert shown >= {row.partition for row in found if row.size or row.error_code}
        for partition in consumer.wants:
            high = self.high[partition]
            assert consumer.knows[partition] == Told(high, high, self.start[partition])
        if session_id:
            consumer.session_id = session_id
            consumer.epoch += 1
        else:
            consumer.begin_anew()

    def look(self, fetch: PartitionFetch) -> PartitionData:
        partition = fetch.partition
        high, start = self.high[partition], self.start[partition]
        if partition in self.failing:
            return PartitionData(partition, 6, high, high, start, (), 0)
        size = max(0, high - fetch.offset) % 2
        return PartitionData(partition, 0, high, high, start, (b"x",) * size, size)

    @invariant()
    def memory_is_bounded(self) -> None:
        self.sessions.check()
        assert self.sessions.partition_count <= 8


FetchSessionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None
)
TestFetchSessions = FetchSessionMachine.TestCase
