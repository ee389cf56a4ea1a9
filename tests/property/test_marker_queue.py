"""The queue of markers against a list of what is not confirmed: none is lost, none told twice."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.transactions.core.marker_queue import (
    Leader,
    MarkerQueue,
    MarkerQueueConfig,
    MarkersWritten,
    Outcome,
    QueueEffects,
    SendMarkers,
    Unled,
)
from broker.transactions.core.transaction import (
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
    WriteMarkers,
)
from client.ids import BrokerId, LeaderEpoch, ProducerId

_DONE = (Outcome.WRITTEN, Outcome.SUPERSEDED)
_MARKERS_MAX = 3
_PAUSE_S = (0.02, 0.16)

PARTITION = st.integers(0, 3)
LEADER = st.one_of(
    st.builds(Leader, st.integers(1, 2).map(BrokerId), st.integers(1, 3).map(LeaderEpoch)),
    st.sampled_from(Unled),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), st.sets(PARTITION, min_size=1)),
        st.tuples(st.just("leader"), PARTITION, LEADER),
        st.tuples(
            st.just("answer"), st.integers(0, 3), st.lists(st.sampled_from(Outcome), min_size=3)
        ),
        st.tuples(st.just("silence"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from((0.005, 0.05, 0.5))),
    ),
    max_size=50,
)

Key = tuple[int, int]
"""Number of the transaction, partition."""


class Model:
    """What is not confirmed, and the requests under way; everybody's leader, and the time."""

    def __init__(self) -> None:
        self.leaders: dict[int, Leader | Unled] = {}
        self.now_s = 100.0
        self.config = MarkerQueueConfig(
            request_markers_max=_MARKERS_MAX, retry_ms_min=20, retry_ms_max=160
        )
        self.queue = MarkerQueue(self, self.config)
        self.missing: set[Key] = set()
        self.under_way: dict[int, SendMarkers] = {}
        self.failed_s: dict[Key, float] = {}
        """When each failed last; unless its leader was looked up anew since."""
        self.decided = 0

    def leader(self, partition: TransactionPartition) -> Leader | Unled:
        return self.leaders.get(partition.partition, Unled.UNKNOWN)

    def decide(self, partitions: set[int]) -> None:
        self.decided += 1
        self.missing |= {(self.decided, index) for index in partitions}
        what = WriteMarkers(
            "id",
            self.decided,
            ProducerIdAndEpoch(ProducerId(1), 0),
            True,
            TransactionVersion.TV2,
            tuple(TransactionPartition("t", UUID(int=1), index) for index in sorted(partitions)),
        )
        gone = {(self.decided, one) for one in partitions if self.leaders.get(one) is Unled.DELETED}
        self.perform(self.queue.add(what, self.now_s), gone)

    def answer(self, request: SendMarkers, outcomes: list[Outcome]) -> None:
        del self.under_way[request.request_id]
        keys = [(one.number, one.partition.partition) for one in request.markers]
        outcomes = (outcomes * len(keys))[: len(keys)]
        done = {key for key, outcome in zip(keys, outcomes, strict=True) if outcome in _DONE}
        self.failed_s.update((key, self.now_s) for key in keys if key not in done)
        self.perform(self.queue.on_answer(request.request_id, outcomes, self.now_s), done)

    def silence(self, request: SendMarkers) -> None:
        del self.under_way[request.request_id]
        keys = [(one.number, one.partition.partition) for one in request.markers]
        self.failed_s.update((key, self.now_s) for key in keys)
        self.perform(self.queue.on_no_answer(request.request_id, self.now_s), set())

    def look_again(self) -> None:
        sent = self.sent()
        self.failed_s.clear()
        gone = {one for one in self.missing - sent if self.leaders.get(one[1]) is Unled.DELETED}
        self.perform(self.queue.on_leaders_changed(self.now_s), gone)

    def wait(self, time_s: float) -> None:
        until_s = self.now_s + time_s
        while (due_s := self.queue.next_deadline()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            self.perform(self.queue.on_deadline(self.now_s), set())
        self.now_s = until_s

    def perform(self, effects: QueueEffects, done: set[Key]) -> None:
        """Carry effects out; `done` is what has to be told, with or without deleted topics."""
        told: list[Key] = []
        for effect in effects:
            if isinstance(effect, MarkersWritten):
                told += [(one.number, one.partition.partition) for one in effect.written]
            else:
                self.send(effect)
        assert len(set(told)) == len(told)
        assert done <= set(told) <= self.missing
        for key in set(told) - done:
            assert self.leaders.get(key[1]) is Unled.DELETED, "nobody has said so"
        self.missing -= set(told)
        self.queue.check()
        assert len(self.queue) == len(self.missing)

    def send(self, request: SendMarkers) -> None:
        assert all(one.broker != request.broker for one in self.under_way.values()), "one at a time"
        assert 0 < len(request.markers) <= _MARKERS_MAX
        for marker in request.markers:
            key = marker.number, marker.partition.partition
            assert key in self.missing
            assert key not in self.sent(), "it is under way already"
            if (failed_s := self.failed_s.get(key)) is not None:
                assert self.now_s >= failed_s + _PAUSE_S[0] - 1e-9, "it has not paused"
        self.under_way[request.request_id] = request

    def sent(self) -> set[Key]:
        return {
            (one.number, one.partition.partition)
            for request in self.under_way.values()
            for one in request.markers
        }


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_marker_is_told_once(steps: list[tuple]) -> None:
    model = Model()
    for step in steps:
        requests = [*model.under_way.values()]
        match step:
            case ("decide", partitions):
                model.decide(partitions)
            case ("leader", index, leader):
                model.leaders[index] = leader
                model.look_again()
            case ("answer", number, outcomes) if requests:
                model.answer(requests[number % len(requests)], outcomes)
            case ("silence", number) if requests:
                model.silence(requests[number % len(requests)])
            case ("wait", time_s):
                model.wait(time_s)
    # All is well from now on: every marker gets to the leader that there is.
    model.leaders = {index: Leader(BrokerId(1), LeaderEpoch(9)) for index in range(4)}
    model.look_again()
    for _ in range(1000):
        if not model.missing:
            break
        for request in [*model.under_way.values()]:
            fresh = all(one.leader_epoch == 9 for one in request.markers)
            model.answer(request, [Outcome.WRITTEN if fresh else Outcome.FAILED])
        model.wait(0.2)
    assert not model.missing
    assert model.queue.next_deadline() is None
