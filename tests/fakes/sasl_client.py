"""The client's side of SASL, for tests: SCRAM as RFC 5802 describes it, and PLAIN."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


@functools.lru_cache(maxsize=1_000)
def salted(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Salt a password; remembered, because it costs some milliseconds."""
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def keys(hash_name: str, password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Return what a server keeps of a password: (stored key, server key)."""
    made = salted(hash_name, password, salt, iterations)
    key = hmac.digest(made, b"Client Key", hash_name)
    return hashlib.new(hash_name, key).digest(), hmac.digest(made, b"Server Key", hash_name)


def text(data: bytes) -> str:
    """Return bytes as users' nodes have them."""
    return base64.b64encode(data).decode()


class ScramClient:
    """One exchange."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    ) -> None:
        self._hash = HASHES[mechanism]
        self._password = password
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        text = challenge.decode()
        fields = dict(part.split("=", 1) for part in text.split(","))
        made = salted(self._hash, self._password, base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(made, b"Client Key", self._hash)
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        stored = hashlib.new(self._hash, key).digest()
        proof = bytes(
            a ^ b for a, b in zip(key, hmac.digest(stored, signed, self._hash), strict=True)
        )
        server_key = hmac.digest(made, b"Server Key", self._hash)
        signature = base64.b64encode(hmac.digest(server_key, signed, self._hash))
        self.expected = b"v=" + signature
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def plain(user: str, password: str, acting_for: str = "") -> bytes:
    return f"{acting_for}\0{user}\0{password}".encode()


async def log_in(client: WireClient, mechanism: str, user: str, password: str) -> Any:
    """Return the last answer of SaslAuthenticate."""
    chosen = await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
    assert chosen.error_code == 0, chosen
    if mechanism == "PLAIN":
        return await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain(user, password))
    scram = ScramClient(mechanism, user, password)
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=scram.first())
    if answer.error_code:
        return answer
    last = scram.final(answer.auth_bytes)
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=last)
    assert answer.error_code or answer.auth_bytes == scram.expected
    return answer


async def add_user(client: WireClient, user: str, password: str, *mechanisms: str) -> None:
    """Add a user by the API, as kafka-configs does."""
    rows = [
        {
            "name": user,
            "mechanism": NUMBERS[mechanism],
            "iterations": 4096,
            "salt": b"salt-of-" + user.encode(),
            "salted_password": salted(
                HASHES[mechanism], password, b"salt-of-" + user.encode(), 4096
            ),
        }
        for mechanism in mechanisms or HASHES
    ]
    answer = await client.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=rows
    )
    assert [row.error_code for row in answer.results] == [0]
