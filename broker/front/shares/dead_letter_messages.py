"""What the leader of a partition sends to the leader of a topic for dead letters.

    request   topic id 16 bytes | partition i32 | a record batch
    answer    Kafka's error code i16 | text

Texts begin with their length i16.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from broker.front.shares import dead_letter_messages as messages
from broker.link.core.link_api import LinkApi
from broker.link.core.link_frames import end, read_text, text_bytes
from client.wire.buffer import Reader

_PARTITION: Final = struct.Struct(">i")
_CODE: Final = struct.Struct(">h")
_UUID_BYTES: Final = 16


class LetterBatch(NamedTuple):
    """Dead letters to be stored."""

    topic_id: UUID
    partition: int
    batch: bytes


class LetterAnswer(NamedTuple):
    """What became of them."""

    code: int
    """Kafka's error code, 0: they are durable."""
    text: str = ""


def encode_request(request: LetterBatch) -> bytes:
    """Encode a request."""
    return b"".join((request.topic_id.bytes, _PARTITION.pack(request.partition), request.batch))


def decode_request(body: memoryview) -> LetterBatch:
    """Decode a request. Raises RemoteProtocolError."""
    reader = Reader(body)
    topic_id = UUID(bytes=bytes(reader.take(_UUID_BYTES)))
    (partition,) = reader.unpack(_PARTITION)
    return LetterBatch(topic_id, partition, bytes(body[reader.position :]))


def encode_answer(answer: LetterAnswer) -> bytes:
    """Encode an answer."""
    return _CODE.pack(answer.code) + text_bytes(answer.text)


def decode_answer(body: memoryview) -> LetterAnswer:
    """Decode an answer. Raises RemoteProtocolError."""
    reader = Reader(body)
    (code,) = reader.unpack(_CODE)
    answer = LetterAnswer(code, read_text(reader))
    end(reader)
    return answer


DEAD_LETTERS: Final[LinkApi[LetterBatch, LetterAnswer]] = LinkApi(
    kind=5,
    name="dead letters",
    encode_request=messages.encode_request,
    decode_request=messages.decode_request,
    encode_answer=messages.encode_answer,
    decode_answer=messages.decode_answer,
)
