"""A client's way through SASL: every sequence of requests against a table of what may follow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from broker.security.core.sasl import (
    Accepted,
    Challenge,
    Handshake,
    PasswordCheck,
    Refused,
    SaslSession,
)
from broker.security.core.scram import Mechanism, ScramCredential, credential_of, salted
from tests.fakes.sasl_client import ScramClient, plain

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512


def kept(mechanism: Mechanism, password: str) -> ScramCredential:
    return credential_of(mechanism, salted(mechanism, password, b"salt", 4096), b"salt", 4096)


KEPT: dict[str, dict[Mechanism, ScramCredential]] = {
    "anna": {SHA_256: kept(SHA_256, "a")},
    "bert": {SHA_512: kept(SHA_512, "b")},
}


class FakeUsers:
    def credentials(self, user: str) -> Mapping[Mechanism, ScramCredential]:
        return KEPT.get(user, {})


def session(*mechanisms: Mechanism) -> SaslSession:
    return SaslSession(
        mechanisms or tuple(Mechanism), FakeUsers(), nonce=lambda: "nonce", secret=b"secret"
    )


def scram(made: SaslSession, mechanism: Mechanism, user: str, password: str) -> object:
    client = ScramClient(mechanism, user, password)
    outcome = made.authenticate(client.first())
    if isinstance(outcome, Challenge):
        outcome = made.authenticate(client.final(outcome.token))
    return outcome


def by_plain(made: SaslSession, token: bytes) -> object:
    """Send a token of PLAIN, and check the password if it comes to that."""
    outcome = made.authenticate(token)
    return made.checked(outcome.is_right()) if isinstance(outcome, PasswordCheck) else outcome


def test_scram_in_two_steps() -> None:
    made = session()
    assert made.handshake("SCRAM-SHA-256") is Handshake.DONE
    assert not made.is_logged_in
    outcome = scram(made, SHA_256, "anna", "a")
    assert isinstance(outcome, Accepted)
    assert (outcome.user, made.user, made.is_logged_in) == ("anna", "anna", True)


@pytest.mark.parametrize(("user", "password"), [("anna", "a"), ("bert", "b")])
def test_plain_asks_whatever_is_kept_of_the_password(user: str, password: str) -> None:
    made = session()
    made.handshake("PLAIN")
    assert by_plain(made, plain(user, password)) == Accepted(user, b"")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (plain("anna", "x"), "password is wrong"),
        (plain("anna", ""), "password is wrong"),
        (plain("nobody", "a"), "no such user"),
        (plain("", "a"), "no such user"),
        (plain("anna", "a", "bert"), "acting for another user"),
        (b"anna\0a", "not in the format of PLAIN"),
        (b"\0anna\0a\0", "not in the format of PLAIN"),
        (b"", "not in the format of PLAIN"),
        (b"\0anna\0" + b"a" * 5_000, "not in the format of PLAIN"),
        (b"\0\xff\0a", "not UTF-8 text"),
    ],
)
def test_plain_refuses(token: bytes, reason: str) -> None:
    made = session()
    made.handshake("PLAIN")
    outcome = by_plain(made, token)
    assert isinstance(outcome, Refused)
    assert reason in outcome.reason
    assert made.is_over
    assert not made.is_logged_in


@pytest.mark.parametrize(("user", "password"), [("anna", "x"), ("nobody", "a"), ("bert", "b")])
def test_scram_refuses_after_a_challenge_whoever_it_is(user: str, password: str) -> None:
    """Bert has a password, but not for this mechanism."""
    made = session()
    made.handshake("SCRAM-SHA-256")
    client = ScramClient("SCRAM-SHA-256", user, password)
    challenge = made.authenticate(client.first())
    assert isinstance(challenge, Challenge)
    outcome = made.authenticate(client.final(challenge.token))
    assert isinstance(outcome, Refused)
    assert outcome.user == user
    assert made.is_over


@pytest.mark.parametrize("name", ["GSSAPI", "", "plain", "SCRAM-SHA-512"])
def test_a_mechanism_that_is_not_offered(name: str) -> None:
    made = session(Mechanism.PLAIN, SHA_256)
    assert made.handshake(name) is Handshake.UNSUPPORTED
    assert made.is_over


def test_who_logs_in_again_stays_who_they_are() -> None:
    made = session()
    made.handshake("PLAIN")
    assert isinstance(by_plain(made, plain("anna", "a")), Accepted)
    assert made.handshake("PLAIN") is Handshake.DONE
    assert made.is_logged_in, "requests go on meanwhile"
    assert isinstance(by_plain(made, plain("anna", "a")), Accepted)
    made.handshake("PLAIN")
    assert by_plain(made, plain("bert", "b")) == Refused(
        "bert", "it is not the user who logged in before"
    )
    assert not made.is_logged_in


def test_another_mechanism_is_no_way_to_log_in_again() -> None:
    made = session()
    made.handshake("PLAIN")
    by_plain(made, plain("anna", "a"))
    assert made.handshake("SCRAM-SHA-256") is Handshake.UNSUPPORTED
    assert not made.is_logged_in


NEXT = {
    ("start", "handshake"): "tokens",
    ("start", "bad handshake"): "over",
    ("start", "token"): "over",
    ("start", "bad token"): "over",
    ("tokens", "handshake"): "over",
    ("tokens", "bad handshake"): "over",
    ("tokens", "token"): "logged in",
    ("tokens", "bad token"): "over",
    ("logged in", "handshake"): "again",
    ("logged in", "bad handshake"): "over",
    ("logged in", "token"): "over",
    ("logged in", "bad token"): "over",
    ("again", "handshake"): "over",
    ("again", "bad handshake"): "over",
    ("again", "token"): "logged in",
    ("again", "bad token"): "over",
}  # fmt: skip


class Model:
    """What may follow what, as a table; PLAIN alone, whose tokens need no answer."""

    def __init__(self) -> None:
        self.state = "start"

    def take(self, step: str) -> None:
        self.state = NEXT.get((self.state, step), "over")


STEPS: dict[str, Callable[[SaslSession], object]] = {
    "handshake": lambda made: made.handshake("PLAIN"),
    "bad handshake": lambda made: made.handshake("NONE"),
    "token": lambda made: by_plain(made, plain("anna", "a")),
    "bad token": lambda made: made.authenticate(b"anna"),
}


@pytest.mark.parametrize("after", [{}, {SHA_256: kept(SHA_256, "another")}])
def test_a_password_that_is_changed_while_it_is_checked_does_not_count(
    after: dict[Mechanism, ScramCredential], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session()
    made.handshake("PLAIN")
    check = made.authenticate(plain("anna", "a"))
    assert isinstance(check, PasswordCheck) and check.is_right()
    monkeypatch.setitem(KEPT, "anna", after)
    outcome = made.checked(True)
    assert isinstance(outcome, Refused)
    assert "changed meanwhile" in outcome.reason
    assert made.is_over


@pytest.mark.parametrize("meanwhile", ["handshake", "token"])
def test_nothing_may_be_asked_while_a_password_is_checked(meanwhile: str) -> None:
    made = session()
    made.handshake("PLAIN")
    made.authenticate(plain("anna", "a"))
    if meanwhile == "handshake":
        assert made.handshake("PLAIN") is Handshake.OUT_OF_TURN
    else:
        assert isinstance(made.authenticate(plain("anna", "a")), Refused)
    assert isinstance(made.checked(True), Refused)
    assert not made.is_logged_in


def test_nobody_gets_in_whatever_the_check_of_nobodys_password_says() -> None:
    made = session()
    made.handshake("PLAIN")
    made.authenticate(plain("nobody", "a"))
    assert isinstance(made.checked(True), Refused)
    assert not made.is_logged_in


def test_a_check_does_not_show_the_password() -> None:
    made = session()
    made.handshake("PLAIN")
    assert "secret" not in repr(made.authenticate(plain("anna", "secret")))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_every_sequence_of_steps(length: int) -> None:
    for steps in itertools.product(STEPS, repeat=length):
        made, model = session(Mechanism.PLAIN), Model()
        for step in steps:
            STEPS[step](made)
            model.take(step)
            assert made.is_logged_in == (model.state in ("logged in", "again")), steps
            assert made.is_over == (model.state == "over"), steps
            if model.state == "over":
                break


@pytest.mark.parametrize("after", [{}, {SHA_256: kept(SHA_256, "another")}])
def test_a_password_that_is_changed_before_the_proof_comes_does_not_count(
    after: dict[Mechanism, ScramCredential], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever logs in again may wait with the proof for as long as it likes."""
    made = session()
    made.handshake("SCRAM-SHA-256")
    client = ScramClient("SCRAM-SHA-256", "anna", "a")
    challenge = made.authenticate(client.first())
    assert isinstance(challenge, Challenge)
    monkeypatch.setitem(KEPT, "anna", after)
    outcome = made.authenticate(client.final(challenge.token))
    assert isinstance(outcome, Refused)
    assert "changed meanwhile" in outcome.reason
    assert made.is_over
