"""`quire user`, `quire acl` and `quire quota` against a broker in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.app import Broker
from broker.security.config import SecurityConfig
from client.kafka_security import security_of
from client.pubsub.brokers import Brokers
from ops.cli.main import quire
from ops.security.acl_entries import Filter
from ops.security.security_admin import SecurityAdmin, SecurityRefused
from tests.fakes.broker import FakeCloud

Run = Callable[..., Any]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    cloud = FakeCloud()
    security = SecurityConfig(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        inter_broker_user="root",
        inter_broker_password="secret",
        authorization=True,
        super_users=("User:root",),
        sasl_failure_delay_ms=0,
    )
    yield await cloud.start_broker(1, port=9092, security=security)
    await cloud.close()


@pytest.fixture
def run(broker: Broker, tmp_path: Path) -> Run:
    """Run a command in a thread beside the broker; fail if it does."""
    config = tmp_path / "root.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.username=root\nsasl.password=secret\n"
    )

    async def work(
        *words: str, code: int = 0, user: Path = config, environ: dict[str, str] | None = None
    ) -> Result:
        arguments = ["--client-config", str(user), *words, "-b", f"127.0.0.1:{broker.port}"]
        result = await asyncio.to_thread(
            CliRunner().invoke,
            quire,
            arguments,
            env={"QUIRE_USER_PASSWORD": None, **(environ or {})},
        )
        assert result.exit_code == code, result.output
        return result

    return work


def as_user(folder: Path, name: str, password: str) -> Path:
    path = folder / f"{name}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username={name}\nsasl.password={password}\n"
    )
    return path


async def test_users_come_change_and_go(run: Run, tmp_path: Path) -> None:
    assert "There are no users yet" in (await run("user", "list")).output
    await run("user", "create", "anna", environ={"QUIRE_USER_PASSWORD": "the first"})
    users = json.loads((await run("user", "list", "--json")).stdout)
    assert [one["name"] for one in users] == ["anna"]
    assert set(users[0]["mechanisms"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    again = await run(
        "user", "create", "anna", code=1, environ={"QUIRE_USER_PASSWORD": "the other"}
    )
    assert "quire user alter" in again.output
    secret = tmp_path / "password"
    secret.write_text("the second\n")
    await run("user", "alter", "anna", "--password-file", str(secret))
    refused = await run("acl", "list", code=1, user=as_user(tmp_path, "anna", "the first"))
    assert "user or the password is wrong" in refused.output
    denied = await run("acl", "list", code=1, user=as_user(tmp_path, "anna", "the second"))
    assert "Traceback" not in denied.output
    await run("user", "delete", "anna", "--yes")
    await run("user", "delete", "anna", "--yes", code=1)
    assert "There are no users" in (await run("user", "list")).output


async def test_a_password_is_asked_for_or_refused_but_never_an_option(run: Run) -> None:
    for line in (("user", "create", "b"), ("user", "alter", "b")):
        assert (await run(*line, code=1)).exit_code == 1
    for short in ("", "seven77"):
        environ = {"QUIRE_USER_PASSWORD": short}
        refused = await run("user", "create", "b", code=1, environ=environ)
        assert "fewer than 8" in refused.output
    assert "password" not in {
        option for command in ("create", "alter") for option in _options("user", command)
    }
    await run("user", "delete", "b", code=1)


def _options(group: str, command: str) -> set[str]:
    found: Any = quire.get_command(None, group)  # type: ignore[arg-type]
    return {param.name for param in found.commands[command].params}


async def test_roles_are_granted_shown_and_revoked(run: Run) -> None:
    await run("acl", "grant", "reader", "--user", "a", "--topic", "t", "--group", "g")
    await run("acl", "grant", "reader", "--user", "a", "--topic", "u", "--group", "g")
    await run("acl", "grant", "writer", "--user", "a", "--topic", "t")
    await run("acl", "grant", "application", "--user", "shop", "--prefix", "shop-")
    await run("acl", "add", "--user", "*", "--operation", "read", "--topic", "secret", "--deny")
    shown = json.loads((await run("acl", "list", "--json")).stdout)
    assert sorted(one["text"] for one in shown["roles"]) == [
        "application with names that begin with 'shop-'",
        "reader of topic 't', as group 'g'",
        "reader of topic 'u', as group 'g'",
        "writer of topic 't'",
    ]
    assert [one["name"] for one in shown["entries"]] == ["secret"]
    await run("acl", "revoke", "reader", "--user", "a", "--topic", "t", "--group", "g")
    text = (await run("acl", "list", "--user", "a")).stdout
    assert "reader of topic 'u', as group 'g'" in text and "writer of topic 't'" in text
    assert "reader of topic 't'" not in text
    assert "a role" in text and "describe" in text, "the entries of roles are shown, too"
    entries = (await run("acl", "list", "--entries")).stdout
    assert "deny" in entries and "idempotent" not in entries


@pytest.mark.parametrize(
    "words",
    [
        ("acl", "add", "--user", "a", "--operation", "read"),
        ("acl", "add", "--user", "a", "--operation", "read", "--topic", "t", "--group", "g"),
        ("acl", "grant", "reader", "--user", "a", "--topic", "t"),
        ("acl", "grant", "writer", "--user", "a", "--topic", "t", "--group", "g"),
        ("acl", "grant", "application", "--user", "a", "--topic", "t"),
        ("quota", "set", "producer_byte_rate=1"),
        ("quota", "set", "--user", "a", "--default-user", "producer_byte_rate=1"),
        ("quota", "set", "--user", "a", "producer_byte_rate"),
        ("quota", "set", "--user", "a", "producer_byte_rate=0"),
        ("quota", "set", "--user", "a", "no_such=1"),
        ("quota", "remove", "--user", "a"),
    ],
)
async def test_what_makes_no_sense_is_one_sentence(run: Run, words: tuple[str, ...]) -> None:
    result = await run(*words, code=1)
    assert result.stderr.startswith("quire: ") and result.stderr.count("\n") == 1


async def test_the_last_right_of_ones_own_is_not_taken_away_by_the_way(
    run: Run, tmp_path: Path
) -> None:
    await run("user", "create", "anna", environ={"QUIRE_USER_PASSWORD": "password"})
    anna = as_user(tmp_path, "anna", "password")
    entry = ("--user", "anna", "--operation", "alter", "--operation", "describe", "--cluster")
    await run("acl", "add", *entry)
    refused = await run("acl", "remove", *entry, code=1, user=anna)
    assert "the last right of anna" in refused.output
    await run("acl", "remove", *entry, "--yes", user=anna)
    assert "entries" not in (await run("acl", "list", "--entries")).stdout
    await run("acl", "remove", *entry)


async def test_quotas_are_set_shown_and_removed(run: Run) -> None:
    await run(
        "quota", "set", "--user", "anna", "--client-id", "x", "producer_byte_rate=1048576",
        "request_percentage=12.5",
    )  # fmt: skip
    await run("quota", "set", "--default-user", "consumer_byte_rate=5")
    await run("quota", "set", "--ip", "10.0.0.1", "connection_creation_rate=9")
    shown = json.loads((await run("quota", "list", "--json")).stdout)
    assert {json.dumps(one["entity"], sort_keys=True) for one in shown} == {
        '{"client-id": "x", "user": "anna"}', '{"user": null}', '{"ip": "10.0.0.1"}',
    }  # fmt: skip
    text = (await run("quota", "list")).stdout
    assert "1048576" in text and "12.5" in text and "(default)" in text
    await run("quota", "remove", "--user", "anna", "--client-id", "x", "request_percentage")
    await run("quota", "remove", "--default-user")
    left = json.loads((await run("quota", "list", "--json")).stdout)
    assert len(left) == 2


async def test_a_broker_that_has_no_lists_says_so() -> None:
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)

    def work() -> None:
        with SecurityAdmin(Brokers(f"127.0.0.1:{broker.port}", security_of({}))) as admin:
            admin.add([])
            admin.entries(Filter())

    with pytest.raises(SecurityRefused, match="authorization is off"):
        await asyncio.to_thread(work)
    await cloud.close()
