"""The sessions in which a coordinator's markers travel."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.coordinator.core.connection_order import Session
from broker.errors import PeerUnanswered
from broker.transactions.core.link_messages import MarkersAnswer, MarkersRequest
from broker.transactions.core.marker_queue import Marker, Outcome
from broker.transactions.core.transaction import (
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from broker.transactions.marker_sender import CoordinatorTerm, LinkedMarkers
from client.ids import BrokerId, LeaderEpoch, ProducerId
from tests.fakes.virtual_time import run

MARKER = Marker(
    "tx",
    1,
    ProducerIdAndEpoch(ProducerId(9), 4),
    True,
    TransactionVersion.TV2,
    TransactionPartition("t", UUID(int=7), 3),
    LeaderEpoch(6),
)
TERM = CoordinatorTerm(12, LeaderEpoch(3))
ONE, TWO = BrokerId(1), BrokerId(2)


class FakeLinks:
    """Answers that all is written, unless it is told otherwise."""

    def __init__(self) -> None:
        self.requests: list[tuple[BrokerId, MarkersRequest]] = []
        self.answer: MarkersAnswer | Exception = MarkersAnswer(True, [Outcome.WRITTEN])
        self.gate: asyncio.Event | None = None

    async def ask(self, broker: BrokerId, api: Any, request: MarkersRequest, lane: str) -> Any:
        self.requests.append((broker, request))
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def session(self) -> Session:
        """Of the last request."""
        return self.requests[-1][1].session


def test_a_marker_travels_with_its_address() -> None:
    async def scenario() -> None:
        links = FakeLinks()
        sessions = LinkedMarkers(links).open(TERM)  # type: ignore[arg-type]
        assert await sessions.send(ONE, [MARKER]) == [Outcome.WRITTEN]
        ((broker, request),) = links.requests
        assert (broker, request.partition, request.session.leader_epoch) == (ONE, 12, 3)
        (sent,) = request.markers
        assert (sent.topic.topic_id, sent.topic.name, sent.partition) == (UUID(int=7), "t", 3)
        assert (sent.leader_epoch, sent.producer_id, sent.producer_epoch) == (6, 9, 4)
        assert (sent.is_commit, sent.is_tv2) == (True, True)

    run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        PeerUnanswered("late"),
        MarkersAnswer(False, ()),
        MarkersAnswer(True, [Outcome.WRITTEN] * 2),
    ],
)
def test_a_session_ends_when_an_answer_does_not_come(answer: MarkersAnswer | Exception) -> None:
    async def scenario() -> None:
        links = FakeLinks()
        sessions = LinkedMarkers(links).open(TERM)  # type: ignore[arg-type]
        await sessions.send(ONE, [MARKER])
        first = links.session()
        await sessions.send(ONE, [MARKER])
        assert links.session() == first
        links.answer = answer
        with pytest.raises(PeerUnanswered):
            await sessions.send(ONE, [MARKER])
        assert links.session() == first
        links.answer = MarkersAnswer(True, [Outcome.WRITTEN])
        await sessions.send(ONE, [MARKER])
        assert links.session() > first

    run(scenario())


def test_so_does_one_whose_sender_was_stopped() -> None:
    async def scenario() -> None:
        links = FakeLinks()
        links.gate = asyncio.Event()
        sessions = LinkedMarkers(links).open(TERM)  # type: ignore[arg-type]
        task = asyncio.create_task(sessions.send(ONE, [MARKER]))
        await asyncio.sleep(0)
        first = links.session()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        links.gate = None
        await sessions.send(ONE, [MARKER])
        assert links.session() > first

    run(scenario())


def test_every_loading_and_every_broker_has_its_own() -> None:
    async def scenario() -> None:
        links = FakeLinks()
        markers = LinkedMarkers(links)  # type: ignore[arg-type]
        sessions = markers.open(TERM)
        await sessions.send(ONE, [MARKER])
        first = links.session()
        await sessions.send(TWO, [MARKER])
        assert links.session() != first
        sessions.close()
        again = markers.open(TERM)
        await again.send(ONE, [MARKER])
        assert links.session() > first

    run(scenario())
