"""SCRAM, the server's side: proves that a client knows a password that the server does not hold.

    client  n,,n=<name>,r=<nonce>
    server  r=<nonce><more>,s=<salt>,i=<iterations>
    client  c=biws,r=<nonce><more>,p=<proof>
    server  v=<signature>

What is kept of a password is its salt, the number of iterations, StoredKey and ServerKey; neither
makes anybody able to log in elsewhere. A name that nobody has gets a salt all the same, always the
same one at every broker, and as many iterations as `quire user create` uses, so that the exchange
does not tell who exists. The names of all SASL mechanisms are here, too.

Source: RFC 5802, RFC 7677; without channel binding,
as Kafka has it.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class Mechanism(enum.StrEnum):
    """How a client proves who it is."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


PASSWORD_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
"""Those of users with passwords."""

SCRAM_NUMBERS: Final[Mapping[int, Mechanism]] = {
    1: Mechanism.SCRAM_SHA_256,
    2: Mechanism.SCRAM_SHA_512,
}
"""Of DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
SALT_BYTES_MAX: Final = 1_024
USUAL_ITERATIONS: Final = 8_192
"""What `quire user create` asks for, and with it what names that nobody has are answered with."""
USUAL_SALT_BYTES: Final = 24
"""Likewise."""
_NONCE_CHARS_MAX: Final = 1_024
_FIRST: Final = re.compile(r"([ny]),(?:a=([^,]*))?,((?:m=[^,]*,)?n=([^,]*),r=([!-+\--~]+)(,.*)?)")
_FINAL: Final = re.compile(r"(c=([^,]*),r=([!-+\--~]+)(?:,.*)?),p=([^,]*)")
HASHES: Final[Mapping[Mechanism, str]] = {
    Mechanism.SCRAM_SHA_256: "sha256",
    Mechanism.SCRAM_SHA_512: "sha512",
}


class ScramCredential(NamedTuple):
    """What is kept of a password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramError(Exception):
    """The client's message is none, or proves nothing."""


def credential_of(
    mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Derive what is kept of a password that was salted already."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt,
        hashlib.new(name, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", name),
        iterations,
    )


def salted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Salt a password, which costs as much as the iterations say: some milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def is_password(mechanism: Mechanism, credential: ScramCredential, password: str) -> bool:
    """Say whether a credential was made of this password; costs as much as `salted`."""
    found = salted(mechanism, password, credential.salt, credential.iterations)
    made = credential_of(mechanism, found, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def nobodys(mechanism: Mechanism, name: str, secret: bytes) -> ScramCredential:
    """Return a credential that no password fits, the same each time for a name."""
    size = hashlib.new(HASHES[mechanism]).digest_size
    key = hmac.digest(secret, f"key {mechanism} {name}".encode("utf-8", "surrogatepass"), "sha512")
    salt = salt_of(mechanism, name, secret)
    return ScramCredential(salt, key[:size], key[:size], USUAL_ITERATIONS)


def salt_of(mechanism: Mechanism, name: str, secret: bytes) -> bytes:
    """Return a salt, the same each time for a name. `secret`: the same at all brokers."""
    said = f"salt {mechanism} {name}".encode("utf-8", "surrogatepass")
    return hmac.digest(secret, said, "sha512")[:USUAL_SALT_BYTES]


class ClientFirst(NamedTuple):
    """The client's first message."""

    header: str
    bare: str
    name: str
    nonce: str


def parse_first(token: bytes) -> ClientFirst:
    """Read the client's first message. Raises ScramError."""
    text = _text(token)
    match = _FIRST.fullmatch(text)
    if match is None:
        raise ScramError("the first message is malformed, or wants channel binding")
    _flag, authorized, bare, escaped, nonce, extensions = match.groups()
    if bare.startswith("m="):
        raise ScramError("the client demands an extension")
    if extensions and re.search(r",tokenauth=true(?:,|$)", extensions, re.IGNORECASE):
        raise ScramError("delegation tokens are not supported")
    name = unescaped(escaped)
    if authorized is not None and unescaped(authorized) != name:
        raise ScramError("acting for another user is not allowed")
    if len(nonce) > _NONCE_CHARS_MAX:
        raise ScramError("the nonce is too long")
    header = text[: len(text) - len(bare)]
    return ClientFirst(header, bare, name, nonce)


def unescaped(name: str) -> str:
    """Undo `=2C` for a comma and `=3D` for an equals sign. Raises ScramError."""
    if re.search("=(?!2C|3D)", name) or not name:
        raise ScramError("the user name is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


class ScramExchange:
    """One exchange, from the client's first message on."""

    def __init__(
        self, mechanism: Mechanism, first: ClientFirst, credential: ScramCredential, nonce: str
    ) -> None:
        """`nonce`: the server's, different each time."""
        self._hash = HASHES[mechanism]
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(credential.salt).decode()
        self.challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        """The server's first message."""

    def finish(self, token: bytes) -> bytes:
        """Check the client's proof; return the server's last message. Raises ScramError."""
        match = _FINAL.fullmatch(_text(token))
        if match is None:
            raise ScramError("the last message is malformed")
        without_proof, binding, nonce, proof = match.groups()
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ScramError("the nonce belongs to another exchange")
        if _bytes(binding) != self._first.header.encode():
            raise ScramError("the client's channel binding does not match")
        name, credential = self._hash, self._credential
        signed = f"{self._first.bare},{self.challenge},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, name)
        given = _bytes(proof)
        if len(given) != len(signature):
            raise ScramError("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise ScramError("the proof is wrong")
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, name))


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        raise ScramError("the message is not text") from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("the message is malformed") from None
