"""A login by SASL over a connection that carries Kafka frames: which frame comes next.

    SaslHandshake v1     request: mechanism string         answer: code i16, mechanisms
    SaslAuthenticate v1  request: token bytes              answer: code i16, text, token bytes,
                                                                   lifetime i64 (ms)

Both have Kafka's classic header without a client id. Requests of other kinds may be on the way
meanwhile: the frames of a login have the correlation id `LOGIN_ID`, one at a time. Sources: KIP-43,
KIP-152, KIP-368.
"""

from __future__ import annotations

import struct
from typing import Final

from client.errors import RemoteProtocolError
from client.wire.buffer import Reader
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.sasl_client import SaslExchange

LOGIN_ID: Final = -7
"""Other requests of such a connection have ids from 0 on."""

_HEAD: Final = struct.Struct(">ihhih")
_ID: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_VERSION: Final = 1
_NO_CLIENT_ID: Final = -1
_TEXT_CHARS_MAX: Final = 200


class LoginRefused(Exception):
    """The server does not take the mechanism, or does not believe it; the text says which."""


def is_login(frame: memoryview) -> bool:
    """Say whether an answer, without its size, belongs to a login."""
    return len(frame) >= _ID.size and _ID.unpack_from(frame)[0] == LOGIN_ID


class SaslLogin:
    """One login: `start`, then each answer to `on_answer`, until that returns None."""

    def __init__(self, mechanism: str, exchange: SaslExchange) -> None:
        self._mechanism = mechanism
        self._exchange = exchange
        self._is_chosen = False
        self.lifetime_ms = 0
        """How long the login is good for, once it is done; 0: as long as the connection."""

    def start(self) -> bytes:
        """Return the first frame."""
        name = self._mechanism.encode()
        return _request(ApiKey.SASL_HANDSHAKE, _SHORT.pack(len(name)) + name)

    def on_answer(self, frame: memoryview) -> bytes | None:
        """Take an answer without its size; return the next frame, or None: logged in.

        Raises LoginRefused, RemoteProtocolError.
        """
        reader = Reader(frame)
        if reader.int32() != LOGIN_ID:
            raise RemoteProtocolError("an answer to another request arrived")
        code = reader.int16()
        if not self._is_chosen:
            if code:
                raise LoginRefused(f"{self._mechanism} is not offered (error {code})")
            self._is_chosen = True
            return self._authenticate(self._exchange.first)
        text = _nullable_text(reader)
        token = bytes(reader.take(reader.int32()))
        if code:
            raise LoginRefused(text or f"error {code}")
        self.lifetime_ms = max(0, reader.int64())
        answer = self._exchange.answer(token)
        return None if answer is None else self._authenticate(answer)

    def _authenticate(self, token: bytes) -> bytes:
        return _request(ApiKey.SASL_AUTHENTICATE, _ID.pack(len(token)) + token)


def _request(key: ApiKey, body: bytes) -> bytes:
    size = _HEAD.size - _ID.size + len(body)
    return _HEAD.pack(size, key, _VERSION, LOGIN_ID, _NO_CLIENT_ID) + body


def _nullable_text(reader: Reader) -> str:
    size = reader.int16()
    if size < 0:
        return ""
    return str(reader.take(size), "utf-8", "replace")[:_TEXT_CHARS_MAX]
