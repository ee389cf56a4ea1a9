"""The client's side of a SASL exchange: which token comes next, and whether the server is the one
that knows the password.

PLAIN is one token, `NUL user NUL password`. SCRAM (RFC 5802, without channel binding) is three: the
name and a nonce, the proof, and what the server has to send in the end.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from client.errors import RemoteProtocolError

_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MIN: Final = 4_096
"""What RFC 7677 asks for. A server that wants fewer, or somebody who poses as one, would get a
proof from which the password is guessed so much sooner."""
_ITERATIONS_MAX: Final = 1_000_000
"""A server that wants more keeps its clients busy."""


class SaslExchange:
    """One login."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        """`nonce`: another text each time; PLAIN needs none."""
        self._hash = _HASHES.get(mechanism)
        self._user = user
        self._password = password
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self._nonce = nonce
        self._expected: bytes | None = None

    @property
    def first(self) -> bytes:
        """The first token."""
        if self._hash is None:
            return f"\0{self._user}\0{self._password}".encode()
        return f"n,,{self._bare}".encode()

    def answer(self, token: bytes) -> bytes | None:
        """Return the token that answers the server's; None: the login is complete.

        Raises RemoteProtocolError if the server's token makes no sense, or does not prove that it
        knows the password.
        """
        if self._hash is None:
            return None
        if self._expected is not None:
            if not hmac.compare_digest(self._expected, token):
                raise RemoteProtocolError("the server does not know the password")
            return None
        return self._proof(self._hash, token)

    def _proof(self, name: str, token: bytes) -> bytes:
        try:
            text = token.decode()
            fields = dict(part.split("=", 1) for part in text.split(","))
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (ValueError, KeyError, binascii.Error) as error:
            raise RemoteProtocolError("the server's SCRAM message is malformed") from error
        if not nonce.startswith(self._nonce) or iterations > _ITERATIONS_MAX:
            raise RemoteProtocolError(
                "the server's SCRAM message is another client's, or asks for too much work"
            )
        if iterations < _ITERATIONS_MIN:
            raise RemoteProtocolError(
                f"the server asks for {iterations} iterations of the password's hash, with which"
                f" it could be guessed: at least {_ITERATIONS_MIN} are needed"
            )
        salted = hashlib.pbkdf2_hmac(name, self._password.encode(), salt, iterations)
        key = hmac.digest(salted, b"Client Key", name)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(name, key).digest(), signed, name)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", name)
        self._expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, name))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
