"""DIGEST-MD5: the exchange of RFC 2831, characters beyond ASCII, and servers that prove nothing."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.security.core.digest_md5 import DigestError, DigestMd5Client

RFC_CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)
RFC_RESPONSE = (
    b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",'
    b'nc=00000001,cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
    b"response=d388dad90d4bbd760a152321f2143af7,qop=auth"
)
RFC_FINAL = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"
ZOOKEEPER = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'


def rfc(password: str = "secret") -> DigestMd5Client:
    return DigestMd5Client(
        "chris", password, service="imap", host="elwood.innosoft.com", nonce="OA6MHXh6VqTrRk"
    )


def ours(user: str = "quire", password: str = "secret") -> DigestMd5Client:
    return DigestMd5Client(user, password, service="zookeeper", host="zk-sasl-md5", nonce="c")


def proof(response: bytes) -> bytes:
    return response.partition(b"response=")[2].partition(b",")[0]


def test_the_exchange_of_the_rfc() -> None:
    client = rfc()
    assert client.respond(RFC_CHALLENGE) == RFC_RESPONSE
    client.check(RFC_FINAL)


@pytest.mark.parametrize(
    "final",
    [b"", b"rspauth=", b"rspauth=ea40f60335c427b5527b84dbabcdfffe", b"rspauth", b"other=1",
     b"rspauth=\xff"],
)  # fmt: skip
def test_a_server_that_does_not_know_the_password(final: bytes) -> None:
    client = rfc()
    client.respond(RFC_CHALLENGE)
    with pytest.raises(DigestError):
        client.check(final)
    other = rfc("guess")
    other.respond(RFC_CHALLENGE)
    with pytest.raises(DigestError, match="knows the password"):
        other.check(RFC_FINAL)


def test_nothing_is_proven_before_a_challenge() -> None:
    for final in (b"", b"rspauth=", RFC_FINAL):
        with pytest.raises(DigestError):
            rfc().check(final)


def test_spaces_case_and_order_of_a_challenge_do_not_matter() -> None:
    challenge = (
        b' Charset = UTF-8 ,, algorithm=md5-sess,\r\n\tqop="auth-conf, auth",'
        b'NONCE="OA6MG9tEQGm2hh" , realm = "elwood.innosoft.com", realm="another", maxbuf=65536'
    )
    assert rfc().respond(challenge) == RFC_RESPONSE


def test_quotes_and_backslashes_are_escaped() -> None:
    response = ours('a"b\\c').respond(rb'realm="r\"x\\",nonce="n",charset=utf-8,algorithm=md5-sess')
    assert rb'username="a\"b\\c"' in response
    assert rb'realm="r\"x\\"' in response


def test_without_a_realm_none_is_named() -> None:
    assert b"realm" not in ours().respond(b'nonce="n",algorithm=md5-sess')


@pytest.mark.parametrize(
    ("user", "password", "hashed"),
    [
        ("J\u00f6rg", "w\u00f6rter", b"J\xf6rg:zk-sasl-md5:w\xf6rter"),
        ("J\u00f6rg", "f\u00fcnf \u20ac", b"J\xf6rg:zk-sasl-md5:f\xc3\xbcnf \xe2\x82\xac"),
    ],
)
def test_what_is_hashed_is_latin_1_if_that_has_all_characters(
    user: str, password: str, hashed: bytes
) -> None:
    """Each part for itself; what is sent is UTF-8 all the same."""

    def hexed(data: bytes) -> bytes:
        return hashlib.md5(data).hexdigest().encode()

    key = hexed(hashlib.md5(hashed).digest() + b":n:c")
    method = hexed(b"AUTHENTICATE:zookeeper/zk-sasl-md5")
    response = ours(user, password).respond(ZOOKEEPER)
    assert proof(response) == hexed(key + b":n:00000001:c:auth:" + method)
    assert f'username="{user}"'.encode() in response


def test_characters_that_the_server_does_not_take() -> None:
    old = b'realm="r",nonce="n",algorithm=md5-sess'
    assert 'username="Jörg"'.encode("latin-1") in ours("Jörg").respond(old)
    for user, password in (("€", "x"), ("x", "€")):
        with pytest.raises(DigestError, match="Latin-1"):
            ours(user, password).respond(old)


@pytest.mark.parametrize(
    ("challenge", "what"),
    [
        (b"", "nonce"),
        (b'realm="r",algorithm=md5-sess', "nonce"),
        (b'nonce="n"', "algorithm"),
        (b'nonce="n",algorithm=md5', "algorithm"),
        (b'nonce="n",algorithm=md5-sess,qop="auth-int,auth-conf"', "signed or encrypted"),
        (b'nonce="n', "no list"),
        (b'nonce="n" x', "no list"),
        (b"nonce", "no list"),
        (b"\x00\xff", "no list"),
        (b'nonce="n",algorithm=md5-sess,charset=utf-8,realm="\xff"', "charset"),
        (b'nonce="n",algorithm=md5-sess,x="' + bytes(2_048) + b'"', "2048"),
    ],
)
def test_bytes_that_are_no_challenge(challenge: bytes, what: str) -> None:
    with pytest.raises(DigestError, match=what):
        ours().respond(challenge)


@given(st.binary(max_size=300), st.text(max_size=20), st.text(max_size=20))
def test_any_bytes_are_answered_or_refused(challenge: bytes, user: str, password: str) -> None:
    for message in (challenge, ZOOKEEPER + b"," + challenge):
        try:
            ours(user, password).respond(message)
        except DigestError:
            continue
