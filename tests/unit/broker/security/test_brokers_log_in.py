"""Brokers reach each other where every listener wants a login."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import PASSWORD_MECHANISMS, Mechanism
from client.errors import ConfigError
from client.wire.kafka.apis import ApiKey
from ops.security.security_admin import ITERATIONS
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud, until
from tests.fakes.sasl_client import ScramClient, add_user, log_in
from tests.fakes.wire_client import WireClient
from tests.unit.broker.security.test_listeners import connections, trusting

PASSWORD = "of brokers, and nobody else's"


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return certificates.write(tmp_path)


async def start(cloud: FakeCloud, files: Path, node_id: int, **settings: Any) -> Broker:
    secured: dict[str, Any] = {
        "listeners": ("SASL_SSL://127.0.0.1:0",),
        "sasl_mechanisms": PASSWORD_MECHANISMS,
        "sasl_failure_delay_ms": 0,
        "tls_cert": files / "broker.pem",
        "tls_key": files / "broker.key",
        "tls_peer_ca": files / "authority.pem",
        "inter_broker_user": "brokers",
        "inter_broker_password": PASSWORD,
        "authorization": True,
        "super_users": ("User:brokers",),
        **settings,
    }
    return await cloud.start_broker(node_id, port=9092, security=SecurityConfig(**secured))


def users(broker: Broker) -> set[str]:
    return {one.peer.user for one in connections(broker)}


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
async def test_links_and_signs_of_life_are_logged_in(
    cloud: FakeCloud, files: Path, mechanism: Mechanism
) -> None:
    pair = [
        await start(cloud, files, number, inter_broker_mechanism=mechanism) for number in (1, 2)
    ]
    for broker in pair:
        await until(lambda broker=broker: users(broker) == {"brokers"})  # type: ignore[misc]
    await until(lambda: 2 in pair[0].services.leader_changes._peers._connections)  # type: ignore[attr-defined]
    peers: Any = pair[0].services.leader_changes._peers
    await asyncio.wait_for(peers._connections[2].ask(), 5)
    assert not peers._connections[2].lost.done()


async def test_the_first_user_is_made_by_whoever_knows_the_brokers_password(
    cloud: FakeCloud, files: Path
) -> None:
    broker = await start(cloud, files, 1)
    client = await WireClient.connect(broker.ports["SASL_SSL"], tls=trusting(files))
    assert (await log_in(client, "SCRAM-SHA-256", "brokers", PASSWORD)).error_code == 0
    await add_user(client, "anna", "secret")
    anna = await WireClient.connect(broker.ports["SASL_SSL"], tls=trusting(files))
    assert (await log_in(anna, "SCRAM-SHA-512", "anna", "secret")).error_code == 0
    for one in (client, anna):
        await one.close()


async def test_another_password_is_refused_and_told(
    cloud: FakeCloud, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await start(cloud, files, 1)
    with caplog.at_level(logging.WARNING):
        await start(cloud, files, 2, inter_broker_password="another one")
        await until(lambda: "peer.not_trusted" in caplog.text)
    assert "the login of 'brokers' failed" in caplog.text
    assert PASSWORD not in caplog.text and "another one" not in caplog.text
    assert "brokers" not in users(first)


async def test_a_login_is_renewed_before_it_ends(cloud: FakeCloud, files: Path) -> None:
    pair = [await start(cloud, files, number, sasl_reauth_max_ms=500) for number in (1, 2)]
    await until(lambda: users(pair[1]) == {"brokers"})
    peers: Any = pair[0].services.leader_changes._peers
    await until(lambda: 2 in peers._connections)
    connection = peers._connections[2]
    accepted = pair[1].server.security._logins.accepted
    await until(lambda: pair[1].server.security._logins.accepted >= accepted + 3, 10)
    await asyncio.wait_for(connection.ask(), 5)
    assert peers._connections[2] is connection and not connection.lost.done()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inter_broker_user": ""}, "must be set together"),
        ({"inter_broker_user": "", "inter_broker_password": ""}, "cannot log in to each other"),
        ({"sasl_mechanisms": (Mechanism.PLAIN,)}, "is not among sasl_mechanisms"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://h:1",),
        "inter_broker_user": "brokers",
        "inter_broker_password": "p",
        **settings,
    }
    with pytest.raises(ConfigError, match=message):
        SecurityConfig(**given)


def test_the_password_is_not_shown() -> None:
    config = SecurityConfig(
        listeners=("SASL_PLAINTEXT://h:1",), inter_broker_user="b", inter_broker_password=PASSWORD
    )
    assert PASSWORD not in repr(config)


async def test_a_question_does_not_tell_who_exists(cloud: FakeCloud, files: Path) -> None:
    """Users of our own tool, nobody, and the brokers' own user look the same, at all brokers."""
    pair = [await start(cloud, files, number) for number in (1, 2)]
    maker = await WireClient.connect(pair[0].ports["SASL_SSL"], tls=trusting(files))
    assert (await log_in(maker, "SCRAM-SHA-256", "brokers", PASSWORD)).error_code == 0
    salts = {
        (user, mechanism): [await challenged(one, files, user, mechanism) for one in pair]
        for user in ("brokers", "nobody")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    for first, second in salts.values():
        assert first == second, "each broker tells the same"
    shapes = {(len(salt), iterations) for (salt, iterations), _ in salts.values()}
    assert shapes == {(24, ITERATIONS)}
    assert len({salt for (salt, _), _ in salts.values()}) == 4, "and of each name another"
    await maker.close()


async def challenged(broker: Broker, files: Path, user: str, mechanism: str) -> tuple[bytes, int]:
    client = await WireClient.connect(broker.ports["SASL_SSL"], tls=trusting(files))
    await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
    first = ScramClient(mechanism, user, "x").first()
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=first)
    await client.close()
    told = dict(part.split("=", 1) for part in answer.auth_bytes.decode().split(","))
    return base64.b64decode(told["s"]), int(told["i"])
