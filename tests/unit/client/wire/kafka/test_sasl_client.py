"""The client's side of SASL, against the RFC's example and the broker's side."""

from __future__ import annotations

import pytest

from broker.security.core.scram import Mechanism, ScramExchange, credential_of, parse_first, salted
from client.errors import RemoteProtocolError
from client.wire.kafka.sasl_client import SaslExchange


def test_plain_is_one_token() -> None:
    exchange = SaslExchange("PLAIN", "anna", "secret", "")
    assert exchange.first == b"\0anna\0secret"
    assert exchange.answer(b"") is None


def test_the_example_of_rfc_7677() -> None:
    exchange = SaslExchange("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert exchange.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.answer(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
@pytest.mark.parametrize("user", ["anna", "a=b,c", "Jürgen"])
def test_it_gets_in_at_a_broker(mechanism: Mechanism, user: str) -> None:
    client = SaslExchange(str(mechanism), user, "p,w", "nonce")
    kept = credential_of(mechanism, salted(mechanism, "p,w", b"s", 4096), b"s", 4096)
    server = ScramExchange(mechanism, parse_first(client.first), kept, "more")
    proof = client.answer(server.challenge.encode())
    assert proof is not None
    assert client.answer(server.finish(proof)) is None


@pytest.mark.parametrize(
    "challenge",
    [
        b"", b"r=nonce", b"r=other,s=cw==,i=4096", b"r=nonce1,s=!,i=4096", b"r=nonce1,s=cw==,i=x",
        b"r=nonce1,s=cw==,i=0", b"r=nonce1,s=cw==,i=1", b"r=nonce1,s=cw==,i=4095",
        b"r=nonce1,s=cw==,i=-1", b"r=nonce1,s=cw==,i=99999999", b"\xff",
    ],
)  # fmt: skip
def test_a_challenge_that_makes_no_sense(challenge: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        SaslExchange("SCRAM-SHA-256", "anna", "x", "nonce").answer(challenge)


def test_a_server_that_does_not_know_the_password() -> None:
    exchange = SaslExchange("SCRAM-SHA-256", "anna", "x", "nonce")
    exchange.answer(b"r=nonce1,s=cw==,i=4096")
    with pytest.raises(RemoteProtocolError, match="does not know the password"):
        exchange.answer(b"v=AAAA")
