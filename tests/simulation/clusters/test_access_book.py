"""The judge of logins: which outcomes it lets pass, and which it does not."""

from __future__ import annotations

import base64
import json
from typing import Final

import pytest

from client.metadata import paths
from tests.fakes import sasl_client
from tests.simulation.clusters.access_book import AccessBook

_BOUND_S: Final = 2.0
_CUT_OFF_S: Final = 10.0
_USER: Final = "wanderer"


class Clock:
    """A loop of which only the time matters."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s


class Judged:
    """A book, and what it found."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.found: list[str] = []
        self.book = AccessBook(
            self.clock,  # type: ignore[arg-type]
            lambda rule, _text: self.found.append(rule),
            _BOUND_S,
            _CUT_OFF_S,
        )

    def set_password(self, password: str, salt: bytes = b"salt") -> None:
        """Keep a password in the store, as brokers do."""
        key, _ = sasl_client.keys("sha256", password, salt, 4096)
        kept = {
            "salt": base64.b64encode(salt).decode(),
            "stored_key": base64.b64encode(key).decode(),
            "iterations": 4096,
        }
        node = {"name": _USER, "scram": {"SCRAM-SHA-256": kept}}
        self.book.node_changed(f"{paths.USERS}/{_USER}", json.dumps(node).encode())

    def remove(self) -> None:
        """Forget the user."""
        self.book.node_changed(f"{paths.USERS}/{_USER}", None)

    def log_in(self, password: str, *, is_taken: bool, took_s: float = 0.0) -> list[str]:
        """Judge a login that began so long ago; return what is wrong with it."""
        self.found.clear()
        self.book.logged_in(_USER, password, self.clock.now_s - took_s, is_taken)
        return list(self.found)


@pytest.fixture
def judged() -> Judged:
    """One with a user who has had a password for long."""
    made = Judged()
    made.set_password("right")
    made.clock.now_s += 1_000
    return made


def test_who_had_the_password_all_the_while_gets_in(judged: Judged) -> None:
    assert judged.log_in("right", is_taken=True) == []
    assert judged.log_in("right", is_taken=False) == ["A3"]


def test_a_password_that_never_held_does_not(judged: Judged) -> None:
    assert judged.log_in("wrong", is_taken=False) == []
    assert judged.log_in("wrong", is_taken=True) == ["A3"]


def test_nor_does_somebody_who_is_not_known(judged: Judged) -> None:
    judged.found.clear()
    judged.book.logged_in("stranger", "right", judged.clock.now_s, True)
    assert judged.found == ["A3"]
    judged.remove()
    judged.clock.now_s += _CUT_OFF_S + 1
    assert judged.log_in("right", is_taken=True) == ["A3"]


def test_the_same_password_set_anew_during_a_login_may_refuse_it(judged: Judged) -> None:
    judged.set_password("right", salt=b"another")
    judged.clock.now_s += 0.1
    assert judged.log_in("right", is_taken=False, took_s=0.2) == []
    assert judged.log_in("right", is_taken=True, took_s=0.2) == []
    judged.clock.now_s += _CUT_OFF_S + 1
    assert judged.log_in("right", is_taken=False, took_s=0.2) == ["A3"], "that is over"


def test_the_same_credential_written_again_refuses_nobody(judged: Judged) -> None:
    judged.set_password("right")
    judged.clock.now_s += 0.1
    assert judged.log_in("right", is_taken=False, took_s=0.2) == ["A3"]


def test_a_replaced_password_holds_for_as_long_as_a_broker_may_be_cut_off(judged: Judged) -> None:
    judged.set_password("new")
    judged.clock.now_s += _CUT_OFF_S - 1
    for password in ("right", "new"):
        for is_taken in (True, False):
            assert judged.log_in(password, is_taken=is_taken) == []
    judged.clock.now_s += 2
    assert judged.log_in("right", is_taken=True) == ["A3"]
    assert judged.log_in("new", is_taken=False) == ["A3"]


def test_who_is_cut_off_no_more_follows_sooner(judged: Judged) -> None:
    judged.set_password("new")
    judged.clock.now_s += _BOUND_S + 1
    assert judged.log_in("right", is_taken=True) == []
    judged.book.all_follow = True
    assert judged.log_in("right", is_taken=True) == ["A3"]


def test_a_broker_that_does_not_know_the_password_lets_nobody_in(judged: Judged) -> None:
    judged.book.unproven(_USER, "broker0")
    assert judged.found == ["A3"]
