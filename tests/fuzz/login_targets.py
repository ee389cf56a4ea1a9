"""What whoever has not logged in can send us, and what is read of users, entries and quotas."""

from __future__ import annotations

import base64
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.security import acl_store, quota_store, users
from broker.security.core.acls import PatternType, ResourceType
from broker.security.core.bearer import Bearer, TokenRefused, TokenRules, bearer_of, token_of
from broker.security.core.sasl import SaslSession
from broker.security.core.scram import SCRAM_NUMBERS, Mechanism, ScramCredential, credential_of
from client.errors import LogCorrupt, RemoteProtocolError
from client.wire.kafka.sasl_client import SaslExchange
from client.wire.kafka.sasl_login import LOGIN_ID, LoginRefused, SaslLogin

_CREDENTIALS: Final[Mapping[Mechanism, ScramCredential]] = {
    one: credential_of(one, b"x" * 32, b"salt", 4_096) for one in SCRAM_NUMBERS.values()
}
_RULES: Final = TokenRules(issuer="i", audiences=("a",))


class _Users:
    def credentials(self, user: str) -> Mapping[Mechanism, ScramCredential]:
        return _CREDENTIALS if user == "anna" else {}


def _bearer(token: str) -> Bearer:
    try:
        return bearer_of({"iss": "i", "aud": "a", "sub": token, "exp": 9}, _RULES, 1.0)
    except TokenRefused:
        raise
    except Exception as error:
        raise AssertionError(token) from error


def _session(data: bytes) -> None:
    """A connection's tokens, each with its length, after the mechanism that the first byte says.

    PLAIN is left out: it hashes what it gets, which is slow on purpose.
    """
    mechanisms = (*SCRAM_NUMBERS.values(), Mechanism.OAUTHBEARER)
    session = SaslSession(
        mechanisms, _Users(), nonce=lambda: "nonce", secret=b"secret", bearer=_bearer
    )
    session.handshake(str(mechanisms[data[0] % 3]) if data else "")
    at = 1
    while at + 2 <= len(data) and not session.is_over:
        size = int.from_bytes(data[at : at + 2], "big")
        session.authenticate(data[at + 2 : at + 2 + size])
        at += 2 + size


def _client(data: bytes) -> None:
    """What a broker, or something in its place, answers a login of ours."""
    login = SaslLogin("SCRAM-SHA-256", SaslExchange("SCRAM-SHA-256", "anna", "p", "nonce"))
    try:
        login.on_answer(memoryview(struct.pack(">ihi", LOGIN_ID, 0, 0)))
        login.on_answer(memoryview(data))
    except LoginRefused as error:
        raise RemoteProtocolError(str(error)) from error


def _message(data: bytes) -> str:
    try:
        return token_of(data)
    except TokenRefused as error:
        raise RemoteProtocolError(str(error)) from error


def _acls(data: bytes) -> Any:
    place = ResourceType.TOPIC, PatternType.LITERAL, "t"
    try:
        return acl_store.decode(acl_store._node_name(place), data)
    except ValueError as error:  # which denies everything
        raise LogCorrupt(str(error)) from error


def _tokens(mechanism: int, *tokens: bytes) -> bytes:
    return bytes([mechanism]) + b"".join(struct.pack(">h", len(one)) + one for one in tokens)


_KEY: Final = base64.b64encode(bytes(32))
_ENTITY: Final = (("client-id", None), ("user", "a"))
_FIRST: Final = b"n,,n=anna,r=abc"
_FINAL: Final = b"c=biws,r=abcnonce,p=" + b"A" * 43 + b"="
_BEARER: Final = b"n,,\x01auth=Bearer a.b.c\x01\x01"
_CHALLENGE: Final = b"r=noncemore,s=c2FsdA==,i=4096"
SASL_TOKENS: Final = (_FIRST, _FINAL, _BEARER, b"\x01", b"\0anna\0wrong", b"")
"""What clients send that have not logged in."""

LOGIN_TARGETS: Final[Sequence[tuple[str, Callable[[bytes], Any], Sequence[bytes]]]] = (
    (
        "sasl-session",
        _session,
        [_tokens(0, _FIRST, _FINAL), _tokens(1, _FIRST, _FINAL), _tokens(2, _BEARER, b"\x01")],
    ),
    ("sasl-bearer", _message, [_BEARER, b"n,a=x,\x01host=h\x01auth=Bearer a\x01\x01"]),
    (
        "sasl-answer",
        _client,
        [
            struct.pack(">ihhi", LOGIN_ID, 0, -1, len(_CHALLENGE)) + _CHALLENGE + bytes(8),
            struct.pack(">ihh", LOGIN_ID, 58, 3) + b"no!" + bytes(12),
        ],
    ),
    (
        "acl-node",
        _acls,
        [
            b'{"version":1,"resource_type":"TOPIC","pattern":"LITERAL","name":"t",'
            b'"acls":[["User:a","*","READ","ALLOW"]]}'
        ],
    ),
    (
        "quota-node",
        functools.partial(quota_store.decode, quota_store._node_name(_ENTITY)),
        [b'{"version":1,"entity":{"user":"a","client-id":null},'
         b'"quotas":{"producer_byte_rate":"1.0"}}'],
    ),
    (
        "user-node",
        functools.partial(users.decode, users._node_name("a")),
        [b'{"version":1,"name":"a","scram":{"SCRAM-SHA-256":{"salt":"c2FsdA==",'
         b'"stored_key":"' + _KEY
         + b'","server_key":"' + _KEY + b'","iterations":4096}}}'],
    ),
)  # fmt: skip
"""Name, parser and good inputs."""
