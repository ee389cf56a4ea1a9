"""SCRAM: the examples of the RFCs, and everything that proves nothing."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.core.scram import (
    Mechanism,
    ScramError,
    ScramExchange,
    credential_of,
    is_password,
    nobodys,
    parse_first,
    salted,
)
from ops.security.security_admin import ITERATIONS, SALT_BYTES
from tests.fakes.sasl_client import ScramClient

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = credential_of(SHA_256, salted(SHA_256, "pencil", SALT, 4096), SALT, 4096)
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
MORE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def test_the_example_of_rfc_7677() -> None:
    exchange = ScramExchange(SHA_256, parse_first(FIRST), PENCIL, MORE)
    assert exchange.challenge == (
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.finish(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", ["anna", "a=b,c", "Jürgen 日本"])
def test_who_knows_the_password_is_accepted(mechanism: Mechanism, user: str) -> None:
    kept = credential_of(mechanism, salted(mechanism, "p w,=", b"s", 5000), b"s", 5000)
    client = ScramClient(mechanism, user, "p w,=")
    first = parse_first(client.first())
    assert first.name == user
    exchange = ScramExchange(mechanism, first, kept, "more")
    answer = exchange.finish(client.final(exchange.challenge.encode()))
    assert answer == client.expected
    assert is_password(mechanism, kept, "p w,=")
    assert not is_password(mechanism, kept, "p w,")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_who_does_not_is_refused(mechanism: Mechanism) -> None:
    kept = credential_of(mechanism, salted(mechanism, "right", b"s", 4096), b"s", 4096)
    for credential in (kept, nobodys(mechanism, "anna", b"secret")):
        client = ScramClient(mechanism, "anna", "wrong")
        exchange = ScramExchange(mechanism, parse_first(client.first()), credential, "more")
        with pytest.raises(ScramError, match="proof is wrong"):
            exchange.finish(client.final(exchange.challenge.encode()))


@pytest.mark.parametrize(
    "token",
    [
        b"", b"n,,", b"n,,n=,r=x", b"n,,r=x,n=user", b"n,,n=user", b"n,,n=user,r=",
        b"p=tls-unique,,n=user,r=x", b"x,,n=user,r=x", b"n,,n=us=er,r=x", b"n,,n=user=2,r=x",
        b"n,a=other,n=user,r=x", b"n,,m=ext,n=user,r=x", b"n,,n=user,r=x\n", b"n,,n=user,r=a b",
        b"n,,n=user,r=x,tokenauth=true", b"\xff\xfe", b"n,,n=user,r=" + b"x" * 1_025,
    ],
)  # fmt: skip
def test_a_first_message_that_is_none(token: bytes) -> None:
    with pytest.raises(ScramError):
        parse_first(token)


@pytest.mark.parametrize(
    ("token", "header", "name"),
    [
        (b"n,,n=user,r=x", "n,,", "user"),
        (b"y,,n=user,r=x", "y,,", "user"),
        (b"n,a=us=2Cer,n=us=2Cer,r=x", "n,a=us=2Cer,", "us,er"),
        (b"n,,n=user,r=x,ext=1", "n,,", "user"),
    ],
)
def test_first_messages(token: bytes, header: str, name: str) -> None:
    first = parse_first(token)
    assert (first.header, first.name) == (header, name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"c=biws", b"c=eSws", "channel binding"),
        (b"c=biws", b"c=!", "malformed"),
        (b"%hvYD", b"%hvYE", "another exchange"),
        (FINAL, b"x", "malformed"),
        (b"p=dHzb", b"p=dHzc", "proof is wrong"),
        (b"p=dHzbZ", b"p=", "malformed|wrong length"),
        (b",p=", b",q=", "malformed"),
    ],
)
def test_a_last_message_that_proves_nothing(old: bytes, new: bytes, message: str) -> None:
    exchange = ScramExchange(SHA_256, parse_first(FIRST), PENCIL, MORE)
    token = FINAL.replace(old, new) if old in FINAL else new
    with pytest.raises(ScramError, match=message):
        exchange.finish(token)


def test_an_exchange_that_was_overheard_is_worth_nothing() -> None:
    """The same client's messages, with the nonce of another exchange."""
    with pytest.raises(ScramError, match="another exchange"):
        ScramExchange(SHA_256, parse_first(FIRST), PENCIL, "other").finish(FINAL)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_refused_with_our_error(first: bytes, last: bytes) -> None:
    with contextlib.suppress(ScramError):
        parse_first(first)
    with pytest.raises(ScramError):
        ScramExchange(SHA_256, parse_first(FIRST), PENCIL, MORE).finish(last)


def test_a_salt_does_not_tell_who_exists() -> None:
    assert nobodys(SHA_256, "x", b"k") == nobodys(SHA_256, "x", b"k")
    assert nobodys(SHA_256, "x", b"k").salt != nobodys(SHA_256, "y", b"k").salt
    assert nobodys(SHA_256, "x", b"k").salt != nobodys(Mechanism.SCRAM_SHA_512, "x", b"k").salt
    found = nobodys(SHA_256, "x", b"k")
    assert (found.iterations, len(found.salt)) == (ITERATIONS, SALT_BYTES), "as our own tool's"
    assert nobodys(SHA_256, "x", b"k").salt != nobodys(SHA_256, "x", b"l").salt
