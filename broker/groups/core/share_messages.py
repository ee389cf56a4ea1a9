"""What the leader of a partition asks the coordinator of a share group before it lends records.

    question   group | member ("": none, the group itself is asked for)
    answer     Kafka's error code i16 | incarnation 16 bytes

Texts begin with their length i16.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from broker.groups.core import share_messages as messages
from broker.link.core.link_api import LinkApi
from broker.link.core.link_frames import end, read_text, text_bytes
from client.wire.buffer import Reader

_CODE: Final = struct.Struct(">h")
_UUID_BYTES: Final = 16


class ShareQuestion(NamedTuple):
    """Is this a member of the group, and which group of that name is it?"""

    group_id: str
    member_id: str


class ShareAnswer(NamedTuple):
    """What the coordinator says."""

    code: int
    """Kafka's error code, 0: it is."""
    incarnation: UUID


def encode_question(question: ShareQuestion) -> bytes:
    """Encode a question."""
    return text_bytes(question.group_id) + text_bytes(question.member_id)


def decode_question(body: memoryview) -> ShareQuestion:
    """Decode a question. Raises RemoteProtocolError."""
    reader = Reader(body)
    question = ShareQuestion(read_text(reader), read_text(reader))
    end(reader)
    return question


def encode_answer(answer: ShareAnswer) -> bytes:
    """Encode an answer."""
    return _CODE.pack(answer.code) + answer.incarnation.bytes


def decode_answer(body: memoryview) -> ShareAnswer:
    """Decode an answer. Raises RemoteProtocolError."""
    reader = Reader(body)
    (code,) = reader.unpack(_CODE)
    answer = ShareAnswer(code, UUID(bytes=bytes(reader.take(_UUID_BYTES))))
    end(reader)
    return answer


SHARE_MEMBERS: Final[LinkApi[ShareQuestion, ShareAnswer]] = LinkApi(
    kind=3,
    name="share members",
    encode_request=messages.encode_question,
    decode_request=messages.decode_question,
    encode_answer=messages.encode_answer,
    decode_answer=messages.decode_answer,
)
