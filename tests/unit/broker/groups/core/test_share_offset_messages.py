"""Questions about where share groups are, as they travel."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.groups.core.share_offset_messages import (
    SHARE_OFFSETS,
    AskedPartition,
    OffsetsQuestion,
    OffsetsRow,
    What,
    decode_question,
    decode_rows,
    encode_question,
    encode_rows,
)
from client.errors import RemoteProtocolError

GROUP, TOPIC = UUID(int=1), UUID(int=2)
QUESTION = OffsetsQuestion("g", GROUP, What.BEGIN_AT, [AskedPartition(TOPIC, 3, 77)])
ROWS = [OffsetsRow(TOPIC, 3, 0, "", 77, 5, 9), OffsetsRow(TOPIC, 4, 6, "not here")]


def test_all_comes_back() -> None:
    for question in (QUESTION, QUESTION._replace(what=What.DESCRIBE, partitions=[])):
        assert decode_question(memoryview(encode_question(question))) == question
    assert decode_rows(memoryview(encode_rows(ROWS))) == ROWS
    assert decode_rows(memoryview(encode_rows([]))) == []
    assert SHARE_OFFSETS.kind == 4


def test_every_truncation_and_what_follows_is_an_error() -> None:
    for decode, body in (
        (decode_question, encode_question(QUESTION)),
        (decode_rows, encode_rows(ROWS)),
    ):
        for bad in (*(body[:size] for size in range(len(body))), body + b"\0"):
            with pytest.raises(RemoteProtocolError):
                decode(memoryview(bad))


def test_what_nobody_asks() -> None:
    body = bytearray(encode_question(QUESTION))
    body[2 + 1 + 16] = 9
    with pytest.raises(RemoteProtocolError):
        decode_question(memoryview(body))
