"""DIGEST-MD5, the client's side: proves to a server that we know a password, and the reverse.

    server  realm="<realm>",nonce="<nonce>",qop="auth",charset=utf-8,algorithm=md5-sess
    client  charset=utf-8,username="<user>",realm="<realm>",nonce="<nonce>",nc=00000001,
            cnonce="<nonce>",digest-uri="<service>/<host>",response=<32 hex digits>,qop=auth
    server  rspauth=<32 hex digits>

It is what ZooKeeper's servers have besides Kerberos; nothing else should use it. The password does
not cross the network, but whoever listened can try passwords at leisure: MD5 is fast. So it has to
be long and random, or TLS lies beneath. Source: RFC 2831; of its qualities of protection only
`auth`, that is, no encryption of what follows.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

_MESSAGE_BYTES_MAX: Final = 2_048
_COUNT: Final = "00000001"
"""How many requests had this nonce: no login is ever shortened."""
_DIRECTIVE: Final = re.compile(
    rb"[ \t\r\n,]*([!#-'*+\-.0-9A-Z^-z|~]+)[ \t\r\n]*=[ \t\r\n]*"
    rb'(?:"((?:[^"\\]|\\.)*)"|([^ \t\r\n,"]+))[ \t\r\n]*(?:,|\Z)',
    re.DOTALL,
)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class DigestError(Exception):
    """The server's message is none of DIGEST-MD5, or proves nothing."""


class DigestMd5Client:
    """One login. `respond` to the challenge, then `check` what the server says to it."""

    def __init__(self, user: str, password: str, *, service: str, host: str, nonce: str) -> None:
        """`service` and `host`: whom the client means, as the server calls itself.

        `nonce`: of the client, random; of characters that need no quotes.
        """
        self._user, self._password = user, password
        self._uri = f"{service}/{host}".encode("ascii")
        self._nonce = nonce.encode("ascii")
        self._expected = b""

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to the server's first message. Raises DigestError."""
        found = _directives(challenge)
        server_nonce = found.get("nonce", b"")
        if found.get("algorithm") != b"md5-sess" or not server_nonce:
            raise DigestError("it lacks a nonce, or its algorithm is not md5-sess")
        if b"auth" not in re.split(rb"[ \t\r\n,]+", found.get("qop", b"auth")):
            raise DigestError("it wants the connection to be signed or encrypted by SASL")
        charset = "utf-8" if found.get("charset", b"").lower() == b"utf-8" else "latin-1"
        realm = found.get("realm")
        response, self._expected = self._proofs(server_nonce, realm, charset)
        parts = [b"charset=utf-8"] if charset == "utf-8" else []
        parts.append(b"username=" + _quoted(_encoded(self._user, charset)))
        if realm is not None:
            parts.append(b"realm=" + _quoted(realm))
        parts += [
            b"nonce=" + _quoted(server_nonce),
            b"nc=" + _COUNT.encode(),
            b"cnonce=" + _quoted(self._nonce),
            b"digest-uri=" + _quoted(self._uri),
            b"response=" + response,
            b"qop=auth",
        ]
        return b",".join(parts)

    def check(self, final: bytes) -> None:
        """Raise DigestError unless the server knows the password, too."""
        said = _directives(final).get("rspauth", b"")
        if not self._expected or not hmac.compare_digest(said, self._expected):
            raise DigestError("it does not prove that it knows the password")

    def _proofs(
        self, server_nonce: bytes, realm: bytes | None, charset: str
    ) -> tuple[bytes, bytes]:
        """Return what shows the server that we know the password, and what it has to show us."""
        try:
            of_realm = _to_hash((realm or b"").decode(charset), charset)
        except UnicodeDecodeError:
            raise DigestError("its realm is not in the charset that it names") from None
        secret = b":".join(
            [_to_hash(self._user, charset), of_realm, _to_hash(self._password, charset)]
        )
        a1 = b":".join([_md5(secret), server_nonce, self._nonce])
        key = _md5(a1).hex().encode()
        between = b":".join([server_nonce, _COUNT.encode(), self._nonce, b"auth"])

        def proof(method: bytes) -> bytes:
            a2 = _md5(method + b":" + self._uri).hex().encode()
            return _md5(b":".join([key, between, a2])).hex().encode()

        return proof(b"AUTHENTICATE"), proof(b"")


def _directives(message: bytes) -> Mapping[str, bytes]:
    """Return the values of a message by their names; of several, the first. Raises DigestError."""
    if len(message) > _MESSAGE_BYTES_MAX:
        raise DigestError(f"it has {len(message)} bytes, at most {_MESSAGE_BYTES_MAX} are allowed")
    found: dict[str, bytes] = {}
    at = 0
    while at < len(message):
        directive = _DIRECTIVE.match(message, at)
        if directive is None:
            raise DigestError("it is no list of names and values")
        name, quoted, plain = directive.groups()
        value = plain if quoted is None else _ESCAPED.sub(rb"\1", quoted)
        found.setdefault(name.decode("ascii").lower(), value)
        at = directive.end()
    return found


def _quoted(value: bytes) -> bytes:
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", value) + b'"'


def _encoded(text: str, charset: str) -> bytes:
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        raise DigestError(
            "it takes no characters but those of Latin-1, and user or password has others"
        ) from None


def _to_hash(text: str, charset: str) -> bytes:
    """RFC 2831 2.1.2.1: hashed is Latin-1 whenever that has all characters."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return _encoded(text, charset)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
