"""The message of OAUTHBEARER, and which tokens are for here."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.security.core.bearer import (
    TOKEN_BYTES_MAX,
    TokenRefused,
    TokenRules,
    bearer_of,
    token_of,
)

NOW_S = 1_000_000.0
RULES = TokenRules(issuer="https://issuer", audiences=("kafka",), scopes=("produce",), skew_s=30)
CLAIMS: dict[str, Any] = {
    "iss": "https://issuer", "aud": "kafka", "sub": "anna", "scope": "consume produce",
    "exp": NOW_S + 60, "iat": NOW_S - 60,
}  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer a.b-c_d.e\x01\x01",
        b"n,a=anna,\x01auth=bearer a.b-c_d.e\x01\x01",
        b"n,,\x01host=h\x01port=1\x01auth=Bearer a.b-c_d.e\x01\x01",
        b"n,,\x01auth=Bearer a.b-c_d.e\x01traceId=7\x01\x01",
    ],
)
def test_the_token_of_a_message(message: bytes) -> None:
    assert token_of(message) == "a.b-c_d.e"


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"p=x,,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer a\x01", b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * TOKEN_BYTES_MAX + b"\x01\x01",
    ],
)  # fmt: skip
def test_what_is_no_message(message: bytes) -> None:
    with pytest.raises(TokenRefused):
        token_of(message)


def test_who_a_token_speaks_for() -> None:
    assert bearer_of(CLAIMS, RULES, NOW_S) == ("anna", NOW_S + 60)
    several = {**CLAIMS, "aud": ["other", "kafka"], "scope": ["produce"]}
    assert bearer_of(several, RULES, NOW_S).user == "anna"
    by_name = TokenRules(issuer="https://issuer", audiences=("kafka",), user_claim="email")
    assert bearer_of({**CLAIMS, "email": "a@b"}, by_name, NOW_S).user == "a@b"


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "https://other"}, {"iss": None}, {"aud": "other"}, {"aud": None}, {"aud": []},
        {"scope": "consume"}, {"scope": None}, {"scope": 7}, {"exp": None}, {"exp": "soon"},
        {"exp": True}, {"exp": NOW_S - 31}, {"exp": 1e300}, {"nbf": NOW_S + 31},
        {"iat": NOW_S + 31}, {"sub": None}, {"sub": ""}, {"sub": 7}, {"sub": "x" * 1_001},
    ],
)  # fmt: skip
def test_what_is_not_for_here(change: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        bearer_of({**CLAIMS, **change}, RULES, NOW_S)


def test_clocks_may_be_a_little_apart() -> None:
    late = {**CLAIMS, "exp": NOW_S - 29, "nbf": NOW_S + 29}
    assert bearer_of(late, RULES, NOW_S).user == "anna"


def test_a_token_speaks_for_none_of_the_clusters_own_users() -> None:
    reserved = dataclasses.replace(RULES, reserved=frozenset(("anna", "p:bert")))
    with pytest.raises(TokenRefused, match="names a user of the cluster's own settings"):
        bearer_of(CLAIMS, reserved, NOW_S)
    prefixed = dataclasses.replace(reserved, user_prefix="p:")
    assert bearer_of(CLAIMS, prefixed, NOW_S).user == "p:anna"
    with pytest.raises(TokenRefused):
        bearer_of({**CLAIMS, "sub": "bert"}, prefixed, NOW_S)
