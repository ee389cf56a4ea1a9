"""What brokers say to each other about transactions, there and back, and what is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from uuid import UUID

import pytest

from broker.coordinator.core.connection_order import Session
from broker.partition.core.held_batches import VerificationRequest
from broker.transactions.core import link_messages as messages
from broker.transactions.core.link_messages import (
    MarkersAnswer,
    MarkersRequest,
    MarkerTopic,
    SentMarker,
    Verdict,
)
from broker.transactions.core.marker_queue import Outcome
from client.errors import RemoteProtocolError
from client.ids import LeaderEpoch, ProducerId

TOPICS = (MarkerTopic(UUID(int=7), "orders"), MarkerTopic(None, "übrige"))
MARKERS = MarkersRequest(
    12,
    Session(LeaderEpoch(3), 1 << 40),
    [
        SentMarker(topic, partition, LeaderEpoch(5), ProducerId(9), 32_767, is_commit, is_tv2)
        for topic in TOPICS
        for partition in (0, 3)
        for is_commit in (True, False)
        for is_tv2 in (True, False)
    ],
)
QUESTIONS = [
    VerificationRequest("id ä", ProducerId(9), 4, "orders", UUID(int=7), 3, True),
    VerificationRequest("id", ProducerId(10), 0, "t", UUID(int=8), 0, False),
]


def test_there_and_back() -> None:
    found = messages.decode_markers(memoryview(messages.encode_markers(MARKERS)))
    assert found == MARKERS
    assert messages.encode_markers(MARKERS).count(b"orders") == 1
    answer = MarkersAnswer(True, list(Outcome))
    assert messages.decode_outcomes(memoryview(messages.encode_outcomes(answer))) == answer
    assert messages.decode_questions(memoryview(messages.encode_questions(QUESTIONS))) == QUESTIONS
    verdicts = [Verdict(0, 7), Verdict(120, -1)]
    assert messages.decode_verdicts(memoryview(messages.encode_verdicts(verdicts))) == verdicts


@pytest.mark.parametrize(
    ("decode", "whole"),
    [
        (messages.decode_markers, messages.encode_markers(MARKERS)),
        (messages.decode_outcomes, messages.encode_outcomes(MarkersAnswer(True, [*Outcome]))),
        (messages.decode_questions, messages.encode_questions(QUESTIONS)),
        (messages.decode_verdicts, messages.encode_verdicts([Verdict(1, 2)])),
    ],
)
def test_what_is_cut_or_damaged_costs_no_more_than_its_bytes(
    decode: Callable[[memoryview], object], whole: bytes
) -> None:
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode(memoryview(whole[:size]))
    with pytest.raises(RemoteProtocolError):
        decode(memoryview(whole + b"\0"))
    rng = random.Random(1)
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            decode(memoryview(bytes(damaged)))
        except RemoteProtocolError:
            continue


def test_a_marker_of_a_topic_that_is_not_listed() -> None:
    data = bytearray(messages.encode_markers(MARKERS._replace(markers=MARKERS.markers[:1])))
    data[-23:-19] = struct.pack(">i", 1)
    with pytest.raises(RemoteProtocolError, match="topic 1 of 1"):
        messages.decode_markers(memoryview(bytes(data)))


def test_an_outcome_that_nobody_knows() -> None:
    data = bytearray(messages.encode_outcomes(MarkersAnswer(True, [Outcome.FAILED])))
    data[-1] = 77
    with pytest.raises(RemoteProtocolError):
        messages.decode_outcomes(memoryview(bytes(data)))
