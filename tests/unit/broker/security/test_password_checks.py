"""PLAIN's passwords: compared beside the loop, and the answer does not tell how long that took."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping

import pytest

from broker.errors import TooManyLogins
from broker.security.config import SecurityConfig
from broker.security.core.sasl import Accepted, PasswordCheck, Refused
from broker.security.core.scram import (
    PASSWORD_MECHANISMS,
    Mechanism,
    ScramCredential,
    credential_of,
    salted,
)
from broker.security.login import WAITING_MAX, Login, Logins, PasswordChecks
from client.node.turns import Turns
from client.security.failure_delays import WAITING_MAX as FAILED_MAX
from tests.fakes import virtual_time
from tests.fakes.sasl_client import plain

HOST = "10.0.0.1"
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

    secret = b"secret"
    kept: Mapping[str, Mapping[Mechanism, ScramCredential]] = {
        "anna": kept(SHA_256),
        "bert": kept(SHA_512),
    }

    def credentials(self, user: str) -> Mapping[Mechanism, ScramCredential]:
        return self.kept.get(user, {})


class SlowChecks(PasswordChecks):
    """Takes its time, on the loop's clock."""

    async def is_right(self, check: PasswordCheck, host: str) -> bool:
        await asyncio.sleep(TOOK_S[check.mechanism])
        return check.is_right()


def logins_of(checks: PasswordChecks) -> Logins:
    clock = virtual_time.VirtualClock()
    made = Logins(CONFIG, FakeUsers(), Turns(), random.Random(1), clock)  # type: ignore[arg-type]
    made.passwords = checks
    return made


async def tried(logins: Logins, user: str, password: str) -> tuple[object, float]:
    """Log in from an address of its own; return the outcome, and how long that took."""
    login = Login(logins, lambda user: None, lambda reason: None, lambda: None)
    login.handshake("PLAIN")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    outcome = await login.authenticate(f"10.0.0.{user}", plain(user, password))
    await login.wait()
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
        asyncio.ensure_future(checks.is_right(PasswordCheck(SHA_256, credential, name), HOST))
        for name in ("first", "second", "third")
    ]
    await asyncio.to_thread(begun.wait, 60)
    waiting[1].cancel()
    await asyncio.wait([waiting[1]])
    release.set()
    assert not any(await asyncio.gather(waiting[0], waiting[2]))
    assert checked == ["first", "third"]
    checks.close()


class Thread:
    """A check that waits until it may go on, and notes whose it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release, self.begun = threading.Event(), threading.Event()
        self.checked: list[str] = []

        def is_right(check: PasswordCheck) -> bool:
            self.begun.set()
            assert self.release.wait(60)
            self.checked.append(check.password)
            return False

        monkeypatch.setattr(PasswordCheck, "is_right", is_right)


def check_of(password: str) -> PasswordCheck:
    return PasswordCheck(SHA_256, FakeUsers.kept["anna"][SHA_256], password)


async def test_addresses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, checks = Thread(monkeypatch), PasswordChecks()
    rows = [("10.0.0.1", "a1"), ("10.0.0.1", "a2"), ("10.0.0.1", "a3"), ("10.0.0.2", "b1")]
    tasks = [asyncio.ensure_future(checks.is_right(check_of(name), host)) for host, name in rows]
    await asyncio.to_thread(thread.begun.wait, 60)
    thread.release.set()
    await asyncio.gather(*tasks)
    assert thread.checked == ["a1", "a2", "b1", "a3"]
    checks.close()


async def test_an_address_has_so_many_checks_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, checks = Thread(monkeypatch), PasswordChecks()
    tasks = [
        asyncio.ensure_future(checks.is_right(check_of("x"), f"2001:db8::{number}"))
        for number in range(WAITING_MAX + 1)
    ]
    await asyncio.to_thread(thread.begun.wait, 60)
    assert checks.waiting_count == WAITING_MAX
    with pytest.raises(TooManyLogins):
        async with asyncio.timeout(5):
            await checks.is_right(check_of("x"), "2001:db8::ffff")
    for task in tasks[1:]:
        task.cancel()
    await asyncio.wait(tasks[1:])
    assert checks.waiting_count == 0, "who has gone waits for nothing"
    other = asyncio.ensure_future(checks.is_right(check_of("other"), "10.0.0.1"))
    thread.release.set()
    await asyncio.gather(tasks[0], other)
    assert thread.checked == ["x", "other"]
    checks.close()


def test_an_address_that_failed_often_is_not_compared_for_a_while() -> None:
    async def scenario() -> None:
        logins = logins_of(SlowChecks())
        waiting = [asyncio.ensure_future(tried(logins, "anna", "no")) for _ in range(FAILED_MAX)]
        await asyncio.sleep(0.05)
        with pytest.raises(TooManyLogins):
            await tried(logins, "anna", "secret")
        assert isinstance((await tried(logins, "bert", "secret"))[0], Accepted)
        await asyncio.gather(*waiting)
        assert isinstance((await tried(logins, "anna", "secret"))[0], Accepted)

    virtual_time.run(scenario())
