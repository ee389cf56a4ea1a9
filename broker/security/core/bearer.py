"""OAUTHBEARER, the server's side: the client's message, and what its token's claims must be.

    client  n,,^Aauth=Bearer <token>^A^A        ^A is byte 1; further key=value pairs are ignored
    server  nothing, or a JSON object with the status, which the client answers with ^A

Whether the token is signed by somebody we trust is asked of others (`Signatures`): what they return
are claims that were not made up. An issuer, an audience, scopes and the times are looked at here.
Sources: RFC 7628, RFC 7519, RFC 8725, KIP-255, KIP-768.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

TOKEN_BYTES_MAX: Final = 16 * 1024
_MESSAGE: Final = re.compile(
    rb"[ny],(?:a=([^,]*))?,\x01(?:[A-Za-z]+=[^\x01]*\x01)*?auth=[Bb]earer +([A-Za-z0-9._~+/=-]+)"
    rb"\x01(?:[A-Za-z]+=[^\x01]*\x01)*\x01"
)
INVALID: Final = json.dumps({"status": "invalid_token"}).encode()
"""What a client is told of a token that is not taken, whatever the reason."""
_NAME_CHARS_MAX: Final = 1_000


class TokenRefused(Exception):
    """The token is none, or not one for here; the text is for the log."""


class Signatures(Protocol):
    """Who knows whose signatures count."""

    def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that is signed by a known key. Raises TokenRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token has to say."""

    issuer: str
    audiences: tuple[str, ...]
    """One of them has to be in it."""
    scopes: tuple[str, ...] = ()
    """All of them have to be in it."""
    user_claim: str = "sub"
    user_prefix: str = ""
    """What the names of users begin with."""
    reserved: frozenset[str] = frozenset()
    """Users whom no token may speak for."""
    skew_s: float = 30.0
    """How far clocks may be apart."""


class Bearer(NamedTuple):
    """Who a token speaks for, and until when."""

    user: str
    expires_s: float
    """Unix time."""


def token_of(message: bytes) -> str:
    """Return the token of a client's first message. Raises TokenRefused."""
    if len(message) > TOKEN_BYTES_MAX:
        raise TokenRefused("the message is too long")
    match = _MESSAGE.fullmatch(message)
    if match is None:
        raise TokenRefused("the message is not in the format of OAUTHBEARER")
    return match[2].decode("ascii")


def bearer_of(claims: Mapping[str, Any], rules: TokenRules, now_s: float) -> Bearer:
    """Return who a token speaks for. Raises TokenRefused."""
    if claims.get("iss") != rules.issuer:
        raise TokenRefused("it comes from another issuer")
    audience = claims.get("aud")
    there = [audience] if isinstance(audience, str) else audience
    if not isinstance(there, list) or not set(rules.audiences) & {str(one) for one in there}:
        raise TokenRefused("it is for another audience")
    scopes = claims.get("scope", claims.get("scp", ""))
    granted = scopes.split() if isinstance(scopes, str) else scopes
    if not isinstance(granted, list) or not set(rules.scopes) <= {str(one) for one in granted}:
        raise TokenRefused("a scope is missing")
    expires_s = _time(claims, "exp")
    if expires_s is None or now_s >= expires_s + rules.skew_s:
        raise TokenRefused("it has expired" if expires_s is not None else "it never expires")
    for name in ("nbf", "iat"):
        at_s = _time(claims, name)
        if at_s is not None and at_s > now_s + rules.skew_s:
            raise TokenRefused("it is not valid yet")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not 0 < len(user) <= _NAME_CHARS_MAX:
        raise TokenRefused(f"claim {rules.user_claim} names no user")
    if rules.user_prefix + user in rules.reserved:
        raise TokenRefused(f"claim {rules.user_claim} names a user of the cluster's own settings")
    return Bearer(rules.user_prefix + user, expires_s)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise TokenRefused(f"claim {name} is not a time")
    return float(value)
