"""Markers for the partitions of a broker: whose are written, which are dropped, who waits."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.coordinator.core.connection_order import Session
from broker.errors import (
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    NotLeader,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from broker.transactions.core.link_messages import (
    MarkersAnswer,
    MarkersRequest,
    MarkerTopic,
    SentMarker,
)
from broker.transactions.core.marker_queue import Outcome
from broker.transactions.marker_writer import MARKERS_PER_TURN, MarkerWriter
from client.errors import QuireError
from client.ids import BrokerId, LeaderEpoch, ProducerId
from client.node import background
from client.wire.kafka.batches.control_batch import Marker
from tests.fakes.virtual_time import run

TOPIC_ID = UUID(int=7)
TOPIC = MarkerTopic(TOPIC_ID, "t")
NEWEST = Session(LeaderEpoch(3), 9)
SENDER = BrokerId(2)


class Partition:
    """Writes markers at once, unless it is told otherwise."""

    def __init__(self, name: str, index: int, topic_id: UUID) -> None:
        self.topic = SimpleNamespace(name=name, topic_id=topic_id)
        self.index = index
        self.transactions = self
        self.written: list[tuple[Marker, bool, LeaderEpoch | None]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def write_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> None:
        self.written.append((marker, is_tv2, leader_epoch))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error


class Bench:
    """A broker that leads t-0 and t-1, and somebody's log u-0."""

    def __init__(self) -> None:
        self.led = {("t", index): Partition("t", index, TOPIC_ID) for index in range(2)}
        self.led["u", 0] = Partition("u", 0, UUID(int=8))
        self.routed: list[Marker] = []
        cluster = SimpleNamespace(
            topic_by_id={
                one.topic.topic_id: SimpleNamespace(name=one.topic.name)
                for one in self.led.values()
            }
        )
        self.writer = MarkerWriter(cluster, self, {"u": self.route}, answer_s_max=1.0)  # type: ignore[arg-type]

    def leader(self, topic: str, index: int) -> Any:
        if (topic, index) not in self.led:
            raise NotLeader(f"{topic}-{index}")
        return self.led[topic, index]

    async def route(self, partition: Any, marker: Marker, **_: Any) -> None:
        self.routed.append(marker)

    async def send(self, *markers: SentMarker, session: Session = NEWEST) -> MarkersAnswer:
        return await self.writer.receive(SENDER, MarkersRequest(4, session, markers))


def sent(index: int = 0, *, producer: int = 1, topic: MarkerTopic = TOPIC) -> SentMarker:
    return SentMarker(topic, index, LeaderEpoch(5), ProducerId(producer), 2, True, False)


def test_a_marker_is_written_with_what_it_says() -> None:
    async def scenario() -> None:
        bench = Bench()
        answer = await bench.send(sent(), sent(1)._replace(is_tv2=True, is_commit=False))
        assert answer == MarkersAnswer(True, [Outcome.WRITTEN, Outcome.WRITTEN])
        assert bench.led["t", 0].written == [
            (Marker(ProducerId(1), 2, True, 3), False, LeaderEpoch(5))
        ]
        assert bench.led["t", 1].written[0][:2] == (Marker(ProducerId(1), 2, False, 3), True)
        assert await bench.send() == MarkersAnswer(True, [])

    run(scenario())


def test_what_comes_of_an_older_session_is_dropped() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.send(sent())
        for old in (Session(LeaderEpoch(3), 8), Session(LeaderEpoch(2), 99)):
            assert await bench.send(sent(1), session=old) == MarkersAnswer(False, ())
        assert bench.led["t", 1].written == []
        assert (await bench.send(sent(1), session=Session(LeaderEpoch(4), 1))).is_heard

    run(scenario())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (FencedLeaderEpoch("x"), Outcome.FAILED),
        (TransactionCoordinatorFenced(ProducerId(1), "x"), Outcome.COORDINATOR_FENCED),
        (InvalidProducerEpoch(ProducerId(1), "x"), Outcome.SUPERSEDED),
        (ZeroDivisionError(), Outcome.FAILED),
    ],
)
def test_an_error_of_one_keeps_no_other_back(error: Exception, outcome: Outcome) -> None:
    failed = background.failures["marker"]

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        bench = Bench()
        bench.led["t", 0].error = error
        found = await bench.send(sent(), sent(1), sent(2), sent(topic=MarkerTopic(None, "v")))
        assert found.outcomes == [outcome, Outcome.WRITTEN, Outcome.FAILED, Outcome.FAILED]

    run(scenario())
    is_bug = not isinstance(error, QuireError)
    assert background.failures["marker"] == failed + is_bug, "a bug is counted, and nothing else"


def test_many_markers_take_turns_and_leave_the_rest_to_a_newer_session() -> None:
    async def scenario() -> None:
        bench = Bench()
        many = [sent(producer=number) for number in range(2 * MARKERS_PER_TURN + 1)]
        written = bench.led["t", 0].written
        answer = asyncio.create_task(bench.send(*many))
        counts = []
        while not answer.done():
            await asyncio.sleep(0)
            counts.append(len(written))
        steps = [later - earlier for earlier, later in itertools.pairwise([0, *counts])]
        assert max(steps) == MARKERS_PER_TURN, "no turn writes more"
        assert (await answer).outcomes == [Outcome.WRITTEN] * len(many)
        assert [marker.producer_id for marker, *_ in written] == list(range(len(many)))

        written.clear()
        answer = asyncio.create_task(bench.send(*many))
        await asyncio.sleep(0)
        newer = asyncio.create_task(bench.send(session=Session(LeaderEpoch(3), 10)))
        assert not (await answer).is_heard
        assert (await newer).is_heard
        assert len(written) == MARKERS_PER_TURN, "the rest came of a session that is over"

    run(scenario())


def test_an_answer_waits_for_a_moment_and_the_write_goes_on() -> None:
    async def scenario() -> None:
        bench = Bench()
        stuck = bench.led["t", 0]
        stuck.gate = asyncio.Event()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert (await bench.send(sent(), sent(1))).outcomes == [Outcome.FAILED, Outcome.WRITTEN]
        assert loop.time() - began_s == 1.0
        again = asyncio.create_task(bench.send(sent()))
        await asyncio.sleep(0.5)
        assert len(stuck.written) == 1, "it meets the write that is under way"
        stuck.gate.set()
        assert (await again).outcomes == [Outcome.WRITTEN]
        assert not bench.writer._writes

    run(scenario())


def test_a_topic_that_was_created_again_is_another_one() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.led["t", 0].topic.topic_id = UUID(int=99)
        gone = MarkerTopic(UUID(int=55), "t")
        assert (await bench.send(sent(), sent(topic=gone))).outcomes == [Outcome.FAILED] * 2
        by_name = await bench.send(sent(topic=MarkerTopic(None, "t")))
        assert by_name.outcomes == [Outcome.WRITTEN], "a record of Kafka's knows names only"

    run(scenario())


def test_who_has_a_log_of_its_own_writes_into_it() -> None:
    async def scenario() -> None:
        bench = Bench()
        answer = await bench.send(sent(topic=MarkerTopic(UUID(int=8), "u")))
        assert answer.outcomes == [Outcome.WRITTEN]
        assert bench.routed == [Marker(ProducerId(1), 2, True, 3)]
        assert bench.led["u", 0].written == []

    run(scenario())


def test_an_operators_marker_is_for_whoever_leads() -> None:
    async def scenario() -> None:
        bench = Bench()
        marker = Marker(ProducerId(1), 2, False, 7)
        await bench.writer.write("t", 0, marker)
        assert bench.led["t", 0].written == [(marker, False, None)]
        with pytest.raises(NotLeader):
            await bench.writer.write("t", 5, marker)
        with pytest.raises(UnknownTopicOrPartition):
            await bench.writer.write("__transaction_state", 0, marker)

    run(scenario())
