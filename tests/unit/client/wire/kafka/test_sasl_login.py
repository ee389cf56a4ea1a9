"""The client's frames of a login, and what it makes of answers."""

from __future__ import annotations

import struct

import pytest

from client.errors import RemoteProtocolError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.connection import peek_header
from client.wire.kafka.sasl_client import SaslExchange
from client.wire.kafka.sasl_login import LOGIN_ID, LoginRefused, SaslLogin, is_login


def login() -> SaslLogin:
    return SaslLogin("PLAIN", SaslExchange("PLAIN", "broker", "secret", ""))


def chosen(code: int = 0) -> memoryview:
    return memoryview(struct.pack(">ihi", LOGIN_ID, code, 0))


def answered(code: int = 0, text: bytes | None = None, lifetime_ms: int = 0) -> memoryview:
    said = struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text
    return memoryview(
        struct.pack(">ih", LOGIN_ID, code) + said + struct.pack(">iq", 0, lifetime_ms)
    )


def test_a_login_is_a_handshake_and_tokens() -> None:
    one = login()
    frame = one.start()
    assert peek_header(memoryview(frame)[4:]) == (ApiKey.SASL_HANDSHAKE, 1, LOGIN_ID)
    assert frame.endswith(struct.pack(">h", 5) + b"PLAIN")
    frame = one.on_answer(chosen()) or b""
    assert peek_header(memoryview(frame)[4:]) == (ApiKey.SASL_AUTHENTICATE, 1, LOGIN_ID)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert frame.endswith(struct.pack(">i", 14) + b"\0broker\0secret")
    assert one.on_answer(answered(lifetime_ms=5_000)) is None
    assert one.lifetime_ms == 5_000


def test_what_is_refused_says_why() -> None:
    with pytest.raises(LoginRefused, match="PLAIN is not offered"):
        login().on_answer(chosen(33))
    one = login()
    one.on_answer(chosen())
    with pytest.raises(LoginRefused, match="wrong password"):
        one.on_answer(answered(58, b"wrong password"))


@pytest.mark.parametrize("size", range(4, 14))
def test_a_short_answer_is_an_error(size: int) -> None:
    one = login()
    if size > 5:
        one.on_answer(chosen())
    with pytest.raises(RemoteProtocolError):
        one.on_answer(answered()[:size] if size > 5 else chosen()[:size])


def test_answers_to_other_requests_are_told_apart() -> None:
    assert is_login(chosen())
    assert not is_login(memoryview(struct.pack(">ih", 1, 0)))
    assert not is_login(memoryview(b"abc"))
    with pytest.raises(RemoteProtocolError, match="another request"):
        login().on_answer(memoryview(struct.pack(">ih", 1, 0)))
