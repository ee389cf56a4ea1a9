"""Which markers go where, and when again."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from broker.transactions.core.marker_queue import (
    Leader,
    Marker,
    MarkerQueue,
    MarkerQueueConfig,
    MarkersWritten,
    Outcome,
    QueueEffects,
    SendMarkers,
    Unled,
)
from broker.transactions.core.transaction import (
    MarkerWritten,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
    WriteMarkers,
)
from client.errors import ConfigError
from client.ids import BrokerId, LeaderEpoch, ProducerId

TOPIC_ID = UUID(int=7)
WHO = ProducerIdAndEpoch(ProducerId(5), 3)
WRITTEN, SUPERSEDED = Outcome.WRITTEN, Outcome.SUPERSEDED
FAILED, COORDINATOR_FENCED = Outcome.FAILED, Outcome.COORDINATOR_FENCED


def partition(index: int) -> TransactionPartition:
    return TransactionPartition("t", TOPIC_ID, index)


def at(broker: int, epoch: int = 1) -> Leader:
    return Leader(BrokerId(broker), LeaderEpoch(epoch))


class Bench:
    """A queue, the cluster's view, and time by hand."""

    def __init__(self, **config: int) -> None:
        self.leaders: dict[int, Leader | Unled] = {}
        self.now_s = 100.0
        self.queue = MarkerQueue(self, MarkerQueueConfig(**config))
        self.sent: list[SendMarkers] = []
        self.written: list[MarkerWritten] = []

    def leader(self, partition: TransactionPartition) -> Leader | Unled:
        return self.leaders.get(partition.partition, Unled.UNKNOWN)

    def perform(self, effects: QueueEffects) -> None:
        for effect in effects:
            if isinstance(effect, SendMarkers):
                self.sent.append(effect)
            else:
                assert isinstance(effect, MarkersWritten)
                self.written += effect.written
        self.queue.check()

    def add(self, *indexes: int, name: str = "tx", number: int = 1) -> None:
        partitions = tuple(partition(index) for index in indexes)
        decided = WriteMarkers(name, number, WHO, True, TransactionVersion.TV2, partitions)
        self.perform(self.queue.add(decided, self.now_s))

    def answer(self, *outcomes: Outcome, request: int = 0) -> None:
        """Answer a request that was sent; the oldest."""
        sent = self.sent.pop(request)
        found = outcomes or (WRITTEN,) * len(sent.markers)
        self.perform(self.queue.on_answer(sent.request_id, found, self.now_s))

    def advance(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while (due_s := self.queue.next_deadline()) is not None and due_s <= end_s:
            self.now_s = max(due_s, self.now_s)
            self.perform(self.queue.on_deadline(self.now_s))
        self.now_s = end_s

    def done(self) -> list[int]:
        return [one.partition.partition for one in self.written]


def indexes(request: SendMarkers) -> list[int]:
    return [marker.partition.partition for marker in request.markers]


def test_markers_go_to_their_leaders() -> None:
    bench = Bench()
    bench.leaders = {0: at(1), 1: at(2, 9), 2: at(1, 4)}
    bench.add(0, 1, 2)
    first, second = bench.sent
    assert (first.broker, indexes(first)) == (1, [0, 2])
    assert (second.broker, indexes(second)) == (2, [1])
    # MARKER-ADDRESS
    assert [marker.leader_epoch for marker in first.markers] == [1, 4]
    marker = first.markers[0]
    assert isinstance(marker, Marker)
    assert (marker.producer, marker.is_commit, marker.version) == (WHO, True, 2)
    assert marker.partition.topic_id == TOPIC_ID
    bench.answer()
    bench.answer()
    assert sorted(bench.done()) == [0, 1, 2]
    assert {one.transactional_id for one in bench.written} == {"tx"}
    assert len(bench.queue) == 0
    assert bench.queue.next_deadline() is None


def test_one_request_to_a_broker_at_a_time() -> None:
    bench = Bench()
    bench.leaders = {index: at(1) for index in range(9)}
    bench.add(0)
    bench.add(1, 2, name="b")
    bench.add(3, name="c")
    assert [indexes(request) for request in bench.sent] == [[0]]
    bench.answer()
    assert [indexes(request) for request in bench.sent] == [[1, 2, 3]]
    assert [marker.transactional_id for marker in bench.sent[0].markers] == ["b", "b", "c"]
    assert len(bench.queue) == 3


def test_requests_are_not_too_long() -> None:
    bench = Bench(request_markers_max=2)
    bench.leaders = {index: at(1) for index in range(5)}
    bench.add(*range(5))
    for expected in ([0, 1], [2, 3], [4]):
        assert [indexes(request) for request in bench.sent] == [expected]
        bench.answer()
    assert bench.done() == [0, 1, 2, 3, 4]


def test_an_error_of_one_delays_no_other() -> None:
    bench = Bench()
    bench.leaders = {0: at(1), 1: at(1), 2: at(1), 3: at(1)}
    bench.add(0, 1, 2, 3)
    bench.answer(WRITTEN, FAILED, SUPERSEDED, COORDINATOR_FENCED)
    assert bench.done() == [0, 2]
    assert not bench.sent
    bench.leaders[1] = at(2, 5)
    bench.advance(1)
    assert {(request.broker, *indexes(request)) for request in bench.sent} == {(2, 1), (1, 3)}
    assert {marker.leader_epoch for one in bench.sent for marker in one.markers} == {1, 5}


def test_without_an_answer_all_are_sent_again() -> None:
    bench = Bench()
    bench.leaders = {0: at(1), 1: at(1)}
    bench.add(0, 1)
    sent = bench.sent.pop()
    bench.perform(bench.queue.on_no_answer(sent.request_id, bench.now_s))
    assert not bench.sent
    assert not bench.written
    bench.advance(1)
    assert [indexes(request) for request in bench.sent] == [[0, 1]]


def test_pauses_grow_up_to_a_limit() -> None:
    bench = Bench(retry_ms_min=20, retry_ms_max=100)
    bench.leaders = {0: at(1)}
    bench.add(0)
    pauses = []
    for _ in range(5):
        bench.answer(FAILED)
        due_s = bench.queue.next_deadline()
        assert due_s is not None
        pauses.append(round((due_s - bench.now_s) * 1000))
        bench.advance(due_s - bench.now_s)
    assert pauses == [20, 40, 80, 100, 100]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    bench = Bench()
    bench.add(0, 1)
    bench.advance(60)
    assert not bench.sent
    assert len(bench.queue) == 2
    bench.leaders = {0: at(1), 1: at(1)}
    bench.perform(bench.queue.on_leaders_changed(bench.now_s))
    assert [sorted(indexes(request)) for request in bench.sent] == [[0, 1]]


def test_a_deleted_topic_needs_no_markers() -> None:
    bench = Bench()
    bench.leaders = {0: Unled.DELETED, 1: at(1)}
    bench.add(0, 1)
    assert bench.done() == [0]
    bench.answer(FAILED)
    bench.leaders[1] = Unled.DELETED
    bench.advance(1)
    assert bench.done() == [0, 1]
    assert len(bench.queue) == 0


def test_a_new_leader_is_asked_at_once() -> None:
    bench = Bench()
    bench.leaders = {0: at(1), 1: at(1), 2: at(1)}
    bench.add(0)
    bench.add(1, 2, name="b")
    bench.leaders = {0: at(2, 2), 1: at(2, 2), 2: at(1)}
    bench.perform(bench.queue.on_leaders_changed(bench.now_s))
    # What is on its way stays so: its outcome is unknown.
    assert [(request.broker, indexes(request)) for request in bench.sent] == [(1, [0]), (2, [1])]
    bench.answer(FAILED)
    assert [(request.broker, indexes(request)) for request in bench.sent] == [(2, [1]), (1, [2])]


def test_limits_must_make_sense() -> None:
    for config in (
        {"request_markers_max": 0},
        {"retry_ms_min": 0},
        {"retry_ms_min": 5, "retry_ms_max": 4},
    ):
        with pytest.raises(ConfigError):
            MarkerQueueConfig(**config)


@pytest.mark.parametrize("seed", range(20))
def test_every_marker_is_confirmed_once_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(request_markers_max=3)
    expected = []
    for step in range(300):
        match rng.randrange(6):
            case 0 if step < 200:
                chosen = rng.sample(range(8), rng.randint(1, 4))
                bench.add(*chosen, name=f"tx-{step}", number=step)
                expected += [(step, index) for index in chosen]
            case 1:
                found = rng.choice([Unled.UNKNOWN, at(1, step), at(2, step), at(3, step)])
                bench.leaders[rng.randrange(8)] = found
                bench.perform(bench.queue.on_leaders_changed(bench.now_s))
            case 2 if bench.sent:
                sent = bench.sent.pop(rng.randrange(len(bench.sent)))
                bench.perform(bench.queue.on_no_answer(sent.request_id, bench.now_s))
            case 3 | 4 if bench.sent:
                which = rng.randrange(len(bench.sent))
                count = len(bench.sent[which].markers)
                bench.answer(*rng.choices(list(Outcome), k=count), request=which)
            case _:
                bench.advance(rng.random())
        assert len(bench.queue) == len(expected) - len(bench.written)
    bench.leaders = {index: at(1) for index in range(8)}
    while len(bench.queue):
        while bench.sent:
            bench.answer()
        bench.advance(2)
    found_all = [(one.number, one.partition.partition) for one in bench.written]
    assert sorted(found_all) == sorted(expected)
