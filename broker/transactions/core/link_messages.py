"""What brokers say to each other about transactions: markers, and questions before a first batch.

    markers   coordinator's partition i32 | its leader epoch i32 | session i64
              | topics: [id 16 bytes (zeros: by name) | name]
              | markers: [topic i32 (a place in that list) | partition i32 | leader epoch i32
                          | producer id i64 | epoch i16 | bits i8: 1 commit, 2 TV2]
    outcomes  was the session heard i8 | [outcome i8]

    questions [transactional id | producer id i64 | epoch i16 | topic id 16 bytes | topic
               | partition i32 | add i8]
    verdicts  [Kafka's error code i16 | coordinator epoch i32]

Lists begin with their length i32, texts with theirs i16. Each request of markers says of which
session it is, so the first one of a session is its hello (CHANNEL). A marker names the topic's id
and the leader epoch that it is for (MARKER-ADDRESS).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.connection_order import Session
from broker.link.core.link_api import LinkApi
from broker.link.core.link_frames import end, read_count, read_text, text_bytes
from broker.partition.core.held_batches import VerificationRequest
from broker.transactions.core import link_messages as messages
from broker.transactions.core.marker_queue import Outcome
from client.errors import RemoteProtocolError
from client.ids import LeaderEpoch, ProducerId
from client.wire.buffer import Reader

_SESSION: Final = struct.Struct(">iiq")
_COUNT: Final = struct.Struct(">i")
_MARKER: Final = struct.Struct(">iiiqhb")
_UUID_BYTES: Final = 16
_NO_UUID: Final = bytes(_UUID_BYTES)
_TOPIC_BYTES_MIN: Final = _UUID_BYTES + 2
_COMMIT: Final = 1
_TV2: Final = 2

_OUTCOMES: Final = (
    Outcome.WRITTEN, Outcome.SUPERSEDED, Outcome.COORDINATOR_FENCED, Outcome.FAILED,
)  # fmt: skip

_PRODUCER: Final = struct.Struct(">qh")
_PLACE: Final = struct.Struct(">ib")
_QUESTION_BYTES_MIN: Final = 2 + _PRODUCER.size + _UUID_BYTES + 2 + _PLACE.size
_VERDICT: Final = struct.Struct(">hi")


class MarkerTopic(NamedTuple):
    """A topic that markers are for."""

    topic_id: UUID | None
    """None: known by its name only."""
    name: str


class SentMarker(NamedTuple):
    """A marker of one partition, as it travels."""

    topic: MarkerTopic
    partition: int
    leader_epoch: LeaderEpoch
    """Of the leader that it is for."""
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    is_tv2: bool


class MarkersRequest(NamedTuple):
    """Markers of one coordinator."""

    partition: int
    """The coordinator's, of the internal topic."""
    session: Session
    markers: Sequence[SentMarker]


class MarkersAnswer(NamedTuple):
    """What became of them. Not heard: a newer session has spoken, nothing was done."""

    is_heard: bool
    outcomes: Sequence[Outcome]


class Verdict(NamedTuple):
    """A coordinator's word."""

    code: int
    """Kafka's error code, 0: it vouches for the transaction."""
    coordinator_epoch: int


def encode_markers(request: MarkersRequest) -> bytes:
    """Encode markers."""
    topics = {one.topic: 0 for one in request.markers}
    for place, topic in enumerate(topics):
        topics[topic] = place
    parts = [_SESSION.pack(request.partition, *request.session), _COUNT.pack(len(topics))]
    for topic in topics:
        parts += (_uuid_bytes(topic.topic_id), text_bytes(topic.name))
    parts.append(_COUNT.pack(len(request.markers)))
    for one in request.markers:
        bits = _COMMIT * one.is_commit | _TV2 * one.is_tv2
        parts.append(
            _MARKER.pack(
                topics[one.topic], one.partition, one.leader_epoch, one.producer_id,
                one.producer_epoch, bits,
            )
        )  # fmt: skip
    return b"".join(parts)


def decode_markers(body: memoryview) -> MarkersRequest:
    """Decode markers. Raises RemoteProtocolError."""
    reader = Reader(body)
    partition, epoch, number = reader.unpack(_SESSION)
    topics = [
        MarkerTopic(_read_uuid(reader), read_text(reader))
        for _ in range(read_count(reader, _TOPIC_BYTES_MIN))
    ]
    markers = [_read_marker(reader, topics) for _ in range(read_count(reader, _MARKER.size))]
    end(reader)
    return MarkersRequest(partition, Session(LeaderEpoch(epoch), number), markers)


def _read_marker(reader: Reader, topics: Sequence[MarkerTopic]) -> SentMarker:
    place, partition, leader_epoch, producer_id, epoch, bits = reader.unpack(_MARKER)
    if not 0 <= place < len(topics):
        raise RemoteProtocolError(f"a marker of topic {place} of {len(topics)}")
    is_commit, is_tv2 = bool(bits & _COMMIT), bool(bits & _TV2)
    return SentMarker(topics[place], partition, leader_epoch, producer_id, epoch, is_commit, is_tv2)


def encode_outcomes(answer: MarkersAnswer) -> bytes:
    """Encode what became of markers."""
    found = bytes(_OUTCOMES.index(outcome) for outcome in answer.outcomes)
    return bytes((answer.is_heard,)) + _COUNT.pack(len(found)) + found


def decode_outcomes(body: memoryview) -> MarkersAnswer:
    """Decode what became of markers. Raises RemoteProtocolError."""
    reader = Reader(body)
    is_heard = bool(reader.int8())
    found = reader.take(read_count(reader, 1))
    end(reader)
    try:
        return MarkersAnswer(is_heard, [_OUTCOMES[number] for number in found])
    except IndexError:
        raise RemoteProtocolError("unknown outcome of a marker") from None


def encode_questions(requests: Sequence[VerificationRequest]) -> bytes:
    """Encode questions."""
    parts = [_COUNT.pack(len(requests))]
    for one in requests:
        parts += (
            text_bytes(one.transactional_id),
            _PRODUCER.pack(one.producer_id, one.producer_epoch),
            one.topic_id.bytes,
            text_bytes(one.topic),
            _PLACE.pack(one.partition, one.is_tv2),
        )
    return b"".join(parts)


def decode_questions(body: memoryview) -> Sequence[VerificationRequest]:
    """Decode questions. Raises RemoteProtocolError."""
    reader = Reader(body)
    found = []
    for _ in range(read_count(reader, _QUESTION_BYTES_MIN)):
        transactional_id = read_text(reader)
        producer_id, epoch = reader.unpack(_PRODUCER)
        topic_id = UUID(bytes=bytes(reader.take(_UUID_BYTES)))
        topic = read_text(reader)
        partition, is_tv2 = reader.unpack(_PLACE)
        found.append(
            VerificationRequest(
                transactional_id, producer_id, epoch, topic, topic_id, partition, bool(is_tv2)
            )
        )
    end(reader)
    return found


def encode_verdicts(verdicts: Sequence[Verdict]) -> bytes:
    """Encode a coordinator's answers."""
    return b"".join((_COUNT.pack(len(verdicts)), *(_VERDICT.pack(*one) for one in verdicts)))


def decode_verdicts(body: memoryview) -> Sequence[Verdict]:
    """Decode a coordinator's answers. Raises RemoteProtocolError."""
    reader = Reader(body)
    found = [Verdict(*reader.unpack(_VERDICT)) for _ in range(read_count(reader, _VERDICT.size))]
    end(reader)
    return found


def _uuid_bytes(topic_id: UUID | None) -> bytes:
    return _NO_UUID if topic_id is None else topic_id.bytes


def _read_uuid(reader: Reader) -> UUID | None:
    data = bytes(reader.take(_UUID_BYTES))
    return None if data == _NO_UUID else UUID(bytes=data)


MARKERS: Final[LinkApi[MarkersRequest, MarkersAnswer]] = LinkApi(
    kind=1,
    name="markers",
    encode_request=messages.encode_markers,
    decode_request=messages.decode_markers,
    encode_answer=messages.encode_outcomes,
    decode_answer=messages.decode_outcomes,
)

QUESTIONS: Final[LinkApi[Sequence[VerificationRequest], Sequence[Verdict]]] = LinkApi(
    kind=2,
    name="questions",
    encode_request=messages.encode_questions,
    decode_request=messages.decode_questions,
    encode_answer=messages.encode_verdicts,
    decode_answer=messages.decode_verdicts,
)
