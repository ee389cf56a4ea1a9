"""What the coordinator of a share group asks of the leaders of its partitions, for operators.

    question   group | incarnation 16 bytes | what i8 (0 describe, 1 begin at, 2 forget)
               | [topic id 16 bytes | partition i32 | offset i64]; none: all that are led there
    answer     [topic id 16 bytes | partition i32 | Kafka's error code i16 | text | start i64
               | leader epoch i32 | lag i64]

Lists begin with their length i32, texts with theirs i16. A partition of which the group has nothing
has start and lag -1; one that was not named is left out then.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from broker.groups.core import share_offset_messages as messages
from broker.link.core.link_api import LinkApi
from broker.link.core.link_frames import end, read_count, read_text, text_bytes
from client.errors import RemoteProtocolError
from client.wire.buffer import Reader

_WHAT: Final = struct.Struct(">b")
_COUNT: Final = struct.Struct(">i")
_ASKED: Final = struct.Struct(">iq")
_CODE: Final = struct.Struct(">ih")
_PLACE: Final = struct.Struct(">qiq")
_UUID_BYTES: Final = 16
NOTHING: Final = -1
"""Start and lag of a group that has nothing of a partition."""


class What(enum.IntEnum):
    """What is asked."""

    DESCRIBE = 0
    BEGIN_AT = 1
    FORGET = 2


class AskedPartition(NamedTuple):
    """A partition, and where the group is to begin in it."""

    topic_id: UUID
    partition: int
    offset: int = NOTHING


class OffsetsQuestion(NamedTuple):
    """What is asked of one broker."""

    group_id: str
    incarnation: UUID
    what: What
    partitions: Sequence[AskedPartition]


class OffsetsRow(NamedTuple):
    """What a leader says of one partition."""

    topic_id: UUID
    partition: int
    code: int = 0
    text: str = ""
    start: int = NOTHING
    leader_epoch: int = -1
    lag: int = NOTHING


def encode_question(question: OffsetsQuestion) -> bytes:
    """Encode a question."""
    parts = [
        text_bytes(question.group_id),
        question.incarnation.bytes,
        _WHAT.pack(question.what),
        _COUNT.pack(len(question.partitions)),
    ]
    for one in question.partitions:
        parts += (one.topic_id.bytes, _ASKED.pack(one.partition, one.offset))
    return b"".join(parts)


def decode_question(body: memoryview) -> OffsetsQuestion:
    """Decode a question. Raises RemoteProtocolError."""
    reader = Reader(body)
    group_id, incarnation, (what,) = read_text(reader), _read_uuid(reader), reader.unpack(_WHAT)
    if what not in list(What):
        raise RemoteProtocolError(f"a question of kind {what} about share groups")
    partitions = []
    for _ in range(read_count(reader, _UUID_BYTES + _ASKED.size)):
        topic_id = _read_uuid(reader)
        partitions.append(AskedPartition(topic_id, *reader.unpack(_ASKED)))
    end(reader)
    return OffsetsQuestion(group_id, incarnation, What(what), partitions)


def encode_rows(rows: Sequence[OffsetsRow]) -> bytes:
    """Encode an answer."""
    parts = [_COUNT.pack(len(rows))]
    for one in rows:
        parts += (
            one.topic_id.bytes,
            _CODE.pack(one.partition, one.code),
            text_bytes(one.text),
            _PLACE.pack(one.start, one.leader_epoch, one.lag),
        )
    return b"".join(parts)


def decode_rows(body: memoryview) -> Sequence[OffsetsRow]:
    """Decode an answer. Raises RemoteProtocolError."""
    reader = Reader(body)
    rows = []
    for _ in range(read_count(reader, _UUID_BYTES + _CODE.size + 2 + _PLACE.size)):
        topic_id = _read_uuid(reader)
        partition, code = reader.unpack(_CODE)
        text = read_text(reader)
        rows.append(OffsetsRow(topic_id, partition, code, text, *reader.unpack(_PLACE)))
    end(reader)
    return rows


def _read_uuid(reader: Reader) -> UUID:
    return UUID(bytes=bytes(reader.take(_UUID_BYTES)))


SHARE_OFFSETS: Final[LinkApi[OffsetsQuestion, Sequence[OffsetsRow]]] = LinkApi(
    kind=4,
    name="share offsets",
    encode_request=messages.encode_question,
    decode_request=messages.decode_question,
    encode_answer=messages.encode_rows,
    decode_answer=messages.decode_rows,
)
