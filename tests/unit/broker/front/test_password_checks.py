"""PLAIN's passwords: compared beside the loop, and the answer does not tell how long that took."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping

import pytest

from broker.access.login import Login, Logins
from broker.access.password_checks import PasswordChecks
from broker.security.config import SecurityConfig
from broker.security.core.mechanisms import PASSWORD_MECHANISMS, Mechanism
from broker.security.core.sasl import Accepted, PasswordCheck, Refused
from broker.security.core.scram import ScramCredential, credential_of, salted
from client.node.turns import Turns
from tests.fakes import virtual_time
from tests.fakes.sasl_client import plain

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
CONFIG = SecurityConfig(sasl_mechanisms=PASSWORD_MECHANISMS)
FIRST_DELAY_S = CONFIG.sasl_failure_delay_ms / 1000
TOOK_S = {SHA_256: 0.002, SHA_512: 0.03}
"""What a check takes, by what is kept of the password."""


def kept(mechanism: Mechanism) -> Mapping[Mechanism, ScramCredential]:
    made = salted(mechanism, "secret", b"salt", 4096)
    return {mechanism: credential_of(mechanism, made, b"salt", 4096)}


class FakeUsers:
    """Two users, whose passwords are kept in different ways."""

    kept: Mapping[str, Mapping[Mechanism, ScramCredential]] = {
        "anna": kept(SHA_256),
        "bert": kept(SHA_512),
    }

    def credentials(self, user: str) -> Mapping[Mechanism, ScramCredential]:
        return self.kept.get(user, {})


class SlowChecks(PasswordChecks):
    """Takes its time, on the loop's clock."""

    async def is_right(self, check: PasswordCheck) -> bool:
        await asyncio.sleep(TOOK_S[check.mechanism])
        return check.is_right()


def logins_of(checks: PasswordChecks) -> Logins:
    clock = virtual_time.VirtualClock()
    made = Logins(CONFIG, FakeUsers(), Turns(), random.Random(1), clock)  # type: ignore[arg-type]
    made.passwords = checks
    return made


async def tried(logins: Logins, user: str, password: str) -> tuple[object, float]:
    """Log in from an address of its own; return the outcome, and how long that took."""
    login = Login(logins, lambda user: None, lambda reason: None)
    login.handshake("PLAIN")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    outcome = await login.authenticate(f"10.0.0.{user}", plain(user, password))
    login.close()
    return outcome, loop.time() - began_s


def test_failures_take_as_long_whoever_exists() -> None:
    async def scenario() -> list[float]:
        logins = logins_of(SlowChecks())
        took = []
        for user in ("anna", "bert", "nobody"):
            outcome, took_s = await tried(logins, user, "wrong")
            assert isinstance(outcome, Refused)
            took.append(took_s)
        outcome, took_s = await tried(logins, "bert", "secret")
        assert isinstance(outcome, Accepted)
        assert took_s == pytest.approx(TOOK_S[SHA_512]), "who knows the password waits for no more"
        return took

    assert virtual_time.run(scenario()) == pytest.approx([FIRST_DELAY_S] * 3)


@pytest.mark.parametrize(("password", "is_in"), [("secret", True), ("wrong", False)])
async def test_passwords_are_compared_on_a_thread(
    password: str, is_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def is_right(self: PasswordCheck) -> bool:
        threads.append(threading.current_thread())
        return original(self)

    original = PasswordCheck.is_right
    monkeypatch.setattr(PasswordCheck, "is_right", is_right)
    logins = logins_of(PasswordChecks())
    outcome, _ = await tried(logins, "anna", password)
    assert isinstance(outcome, Accepted) == is_in
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
    logins.close()


async def test_who_gives_up_before_its_turn_costs_no_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, begun = threading.Event(), threading.Event()
    checked: list[str] = []

    def is_right(self: PasswordCheck) -> bool:
        begun.set()
        assert release.wait(60)
        checked.append(self.password)
        return False

    monkeypatch.setattr(PasswordCheck, "is_right", is_right)
    checks = PasswordChecks()
    credential = FakeUsers.kept["anna"][SHA_256]
    waiting = [
        asyncio.ensure_future(checks.is_right(PasswordCheck(SHA_256, credential, name)))
        for name in ("first", "second", "third")
    ]
    await asyncio.to_thread(begun.wait, 60)
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])
    release.set()
    assert not any(await asyncio.gather(waiting[0], waiting[2]))
    assert checked == ["first", "third"]
    checks.close()
