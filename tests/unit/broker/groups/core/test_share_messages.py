"""Questions about members of share groups, as they travel."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.groups.core.share_messages import (
    SHARE_MEMBERS,
    ShareAnswer,
    ShareQuestion,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from client.errors import RemoteProtocolError


def test_all_comes_back() -> None:
    for question in (ShareQuestion("g", "m"), ShareQuestion("ü", "")):
        assert decode_question(memoryview(encode_question(question))) == question
    answer = ShareAnswer(25, UUID(int=3))
    assert decode_answer(memoryview(encode_answer(answer))) == answer
    assert SHARE_MEMBERS.kind == 3


def test_every_truncation_and_what_follows_is_an_error() -> None:
    question, answer = (
        encode_question(ShareQuestion("g", "m")),
        encode_answer(ShareAnswer(0, UUID(int=3))),
    )
    for decode, body in ((decode_question, question), (decode_answer, answer)):
        for bad in (*(body[:size] for size in range(len(body))), body + b"\0"):
            with pytest.raises(RemoteProtocolError):
                decode(memoryview(bad))
