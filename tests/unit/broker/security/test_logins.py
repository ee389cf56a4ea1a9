"""Logins by SASL: who gets in, who is refused how, and what they cost."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import struct
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import PASSWORD_MECHANISMS
from broker.security.login import PasswordChecks
from client.metadata import paths
from client.security.failure_delays import WAITING_MAX as FAILED_MAX
from client.wire.kafka.apis import ApiKey
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud, until
from tests.fakes.sasl_client import ScramClient, add_user, log_in, plain
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, produce
from tests.unit.broker.security.test_listeners import connections, trusting

MECHANISMS = [str(mechanism) for mechanism in PASSWORD_MECHANISMS]


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


async def start(cloud: FakeCloud, node_id: int = 1, **settings: Any) -> Broker:
    sasl = {
        "listeners": ("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
        "sasl_mechanisms": PASSWORD_MECHANISMS,
        "sasl_failure_delay_ms": 0,
    }
    security = SecurityConfig(**{**sasl, **settings})
    return await cloud.start_broker(node_id, port=9092, security=security)


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    broker = await start(cloud)
    await with_anna(broker)
    return broker


async def with_anna(broker: Broker) -> None:
    inside = await WireClient.connect(broker.port)
    await add_user(inside, "anna", "secret")
    await inside.close()


async def connect(broker: Broker) -> WireClient:
    return await WireClient.connect(broker.ports["SASL_PLAINTEXT"])


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_who_knows_the_password_gets_in(broker: Broker, mechanism: str) -> None:
    await create_topic(broker)
    client = await connect(broker)
    assert (await client.call(ApiKey.API_VERSIONS, 2)).error_code == 0
    answer = await log_in(client, mechanism, "anna", "secret")
    assert (answer.error_code, answer.session_lifetime.total_seconds()) == (0, 0)
    assert (await produce(client, batch(b"v"))).error_code == 0
    assert "anna" in [one.peer.user for one in connections(broker)]
    large = batch(bytes(200_000))
    assert (await produce(client, large)).error_code == 0, "small ones are for before the login"
    await client.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["anna", "nobody", ""])
async def test_who_does_not_is_answered_the_same_and_closed(
    broker: Broker, mechanism: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(broker)
    with caplog.at_level(logging.WARNING):
        answer = await log_in(client, mechanism, user, "wrong-password")
        assert answer.error_code == 58
        assert answer.error_message == ("Authentication failed: the user or the password is wrong")
        assert await client.is_closed()
    assert "login.refused" in caplog.text
    assert "wrong-password" not in caplog.text
    await until(lambda: broker.server.connection_count == 0)


async def test_an_unknown_mechanism_is_told_what_there_is(broker: Broker) -> None:
    client = await connect(broker)
    answer = await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert (answer.error_code, list(answer.mechanisms)) == (33, MECHANISMS)
    assert await client.is_closed()


async def test_a_token_without_a_handshake(broker: Broker) -> None:
    client = await connect(broker)
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain("anna", "secret"))
    assert answer.error_code == 58
    assert await client.is_closed()


async def test_two_handshakes_in_a_row(broker: Broker) -> None:
    client = await connect(broker)
    await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer = await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert answer.error_code == 34
    assert await client.is_closed()


async def test_there_is_no_sasl_on_a_plain_listener(broker: Broker) -> None:
    client = await WireClient.connect(broker.port)
    assert (await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == 34
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"")
    assert answer.error_code == 34
    assert (await client.call(ApiKey.METADATA, 9, topics=[])).brokers
    await client.close()


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in (17, 18, 36)])
async def test_no_other_request_is_served_before(broker: Broker, key: ApiKey) -> None:
    served = broker.services.served.get(key)
    version = served[1] if served else 0
    for is_chosen in (False, True):
        client = await connect(broker)
        if is_chosen:
            await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.send_raw(struct.pack(">ihhih", 10, key, version, 7, -1))
        assert await client.is_closed()


async def test_a_large_request_before_the_login_is_refused_by_its_length(broker: Broker) -> None:
    client = await connect(broker)
    client.send_raw(struct.pack(">i", 64 * 1024 + 1))
    assert await client.is_closed()


async def test_taking_too_long_ends_the_connection(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_login_timeout_ms=100)
    await with_anna(broker)
    silent, begun, done = [await connect(broker) for _ in range(3)]
    await begun.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert (await log_in(done, "PLAIN", "anna", "secret")).error_code == 0
    assert await silent.is_closed()
    assert await begun.is_closed()
    await asyncio.sleep(0.15)
    assert (await done.call(ApiKey.METADATA, 9, topics=[])).brokers
    await done.close()


async def test_failures_are_answered_later_each_time(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_failure_delay_ms=50, sasl_failure_delay_max_ms=150)
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(4):
        client = await connect(broker)
        began_s = loop.time()
        await log_in(client, "PLAIN", "anna", "wrong")
        waits.append(loop.time() - began_s)
    for wait, least in zip(waits, (0.05, 0.1, 0.15, 0.15), strict=True):
        assert wait >= least


async def test_a_login_that_has_ended_has_to_be_renewed(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_reauth_max_ms=400)
    await with_anna(broker)
    renewing, forgetful = await connect(broker), await connect(broker)
    for client in (renewing, forgetful):
        answer = await log_in(client, "SCRAM-SHA-256", "anna", "secret")
        assert answer.session_lifetime.total_seconds() == 0.4
    await asyncio.sleep(0.25)
    assert (await log_in(renewing, "SCRAM-SHA-256", "anna", "secret")).error_code == 0
    await asyncio.sleep(0.25)
    assert (await renewing.call(ApiKey.METADATA, 9, topics=[])).brokers
    forgetful.send(ApiKey.METADATA, 9, topics=[])
    assert await forgetful.is_closed()
    await renewing.close()


async def test_sasl_inside_tls(cloud: FakeCloud, tmp_path: Path) -> None:
    certificates.write(tmp_path)
    broker = await start(
        cloud, listeners=("PLAINTEXT://127.0.0.1:0", "SASL_SSL://127.0.0.1:0"),
        tls_cert=tmp_path / "broker.pem", tls_key=tmp_path / "broker.key",
        tls_client_auth="required", tls_client_ca=tmp_path / "authority.pem",
    )  # fmt: skip
    await with_anna(broker)
    port = broker.ports["SASL_SSL"]
    client = await WireClient.connect(port, tls=trusting(tmp_path))
    assert (await log_in(client, "PLAIN", "anna", "secret")).error_code == 0
    assert [one.peer.user for one in connections(broker)] == ["anna"]
    await client.close()
    certified = await WireClient.connect(port, tls=trusting(tmp_path, "anna"))
    certified.send(ApiKey.METADATA, 9, topics=[])
    assert await certified.is_closed(), "a certificate is no login here"


# --- users


async def scram_rows(client: WireClient, *names: str) -> dict[str, Any]:
    asked = [{"name": name} for name in names] or None
    answer = await client.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
    assert answer.error_code == 0
    return {
        row.user: row.error_code
        or [(info.mechanism, info.iterations) for info in row.credential_infos]
        for row in answer.results
    }


def row(name: str, mechanism: int = 1, **fields: Any) -> dict[str, Any]:
    given = {"iterations": 4096, "salt": b"s", "salted_password": b"p" * 32}
    return {"name": name, "mechanism": mechanism, **given, **fields}


async def alter(client: WireClient, *rows: dict[str, Any], gone: Any = ()) -> dict[str, int]:
    deletions = [{"name": name, "mechanism": number} for name, number in gone]
    answer = await client.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions, upsertions=list(rows)
    )
    return {result.user: int(result.error_code) for result in answer.results}


async def test_users_come_change_and_go(broker: Broker) -> None:
    client = await WireClient.connect(broker.port)
    assert await alter(client, row("bert"), row("bert", 2, iterations=8192)) == {"bert": 0}
    assert await scram_rows(client) == {
        "anna": [(1, 4096), (2, 4096)], "bert": [(1, 4096), (2, 8192)],
    }  # fmt: skip
    assert await alter(client, gone=[("bert", 1)]) == {"bert": 0}
    assert await scram_rows(client, "bert", "carl") == {"bert": [(2, 8192)], "carl": 91}
    assert await alter(client, gone=[("bert", 2)]) == {"bert": 0}
    assert await scram_rows(client) == {"anna": [(1, 4096), (2, 4096)]}
    assert await alter(client, gone=[("anna", 1), ("anna", 2)]) == {"anna": 0}
    refused = await connect(broker)
    assert (await log_in(refused, "PLAIN", "anna", "secret")).error_code == 58
    await client.close()


@pytest.mark.parametrize(
    ("rows", "gone", "code"),
    [
        ([row("x", iterations=4095)], [], 93),
        ([row("x", iterations=16_385)], [], 93),
        ([row("x", salt=b"")], [], 93),
        ([row("x", salted_password=b"")], [], 93),
        ([row("x", salted_password=b"p" * 65)], [], 93),
        ([row("")], [], 93),
        ([row("x", 0)], [], 33),
        ([row("x", 3)], [], 33),
        ([row("x"), row("x")], [], 92),
        ([row("x")], [("x", 1)], 92),
        ([], [("x", 1)], 91),
        ([row("x", 2)], [("x", 1)], 91),
    ],
)
async def test_what_makes_no_credential_changes_nothing(
    broker: Broker, rows: list[dict[str, Any]], gone: Any, code: int
) -> None:
    client = await WireClient.connect(broker.port)
    assert list((await alter(client, *rows, row("good"), gone=gone)).values()) == [code, 0] or (
        await alter(client, *rows, row("good"), gone=gone)
    ) == {(rows[0]["name"] if rows else "x"): code, "good": 0}
    assert sorted(await scram_rows(client)) == ["anna", "good"]
    await client.close()


async def test_another_broker_knows_within_moments(cloud: FakeCloud) -> None:
    first, second = await start(cloud, 1), await start(cloud, 2)
    await with_anna(first)
    await until(lambda: second.services.users.names() == ["anna"])
    client = await connect(second)
    assert (await log_in(client, "SCRAM-SHA-512", "anna", "secret")).error_code == 0
    await client.close()


async def test_what_is_stored_does_not_log_anybody_in(broker: Broker, cloud: FakeCloud) -> None:
    store = cloud.tree.session()
    (name,) = await store.children(paths.USERS)
    data = (await store.get(f"{paths.USERS}/{name}")).data
    assert b"secret" not in data
    assert "anna" not in name


async def test_a_damaged_user_is_left_out(
    broker: Broker, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    store = cloud.tree.session()
    (name,) = await store.children(paths.USERS)
    with caplog.at_level(logging.ERROR):
        await store.set(f"{paths.USERS}/{name}", b'{"version": 1, "name": "bert", "scram": {}}')
        await until(lambda: "metadata.unreadable" in caplog.text)
    assert broker.services.users.names() == []


# --- hostile


async def test_random_frames_end_their_connection_only(broker: Broker) -> None:
    rng = random.Random(3)
    scram = ScramClient("SCRAM-SHA-256", "anna", "secret").first()
    bystander = await connect(broker)
    await log_in(bystander, "PLAIN", "anna", "secret")
    for _ in range(150):
        client = await connect(broker)
        if rng.random() < 0.7:
            client.send(
                ApiKey.SASL_HANDSHAKE, 1, mechanism=rng.choice([*MECHANISMS, "X", "x" * 5_000])
            )
        for _ in range(rng.randint(1, 4)):
            token = bytearray(rng.choice((scram, plain("anna", "secret"), rng.randbytes(40))))
            if token and rng.random() < 0.8:
                token[rng.randrange(len(token))] ^= 1 << rng.randrange(8)
            client.send(ApiKey.SASL_AUTHENTICATE, rng.randint(0, 2), auth_bytes=bytes(token))
        client.send_raw(rng.randbytes(rng.randint(0, 60)) + struct.pack(">i", -1))
        async with asyncio.timeout(10):
            while not await client.is_closed():
                pass
    assert (await bystander.call(ApiKey.METADATA, 9, topics=[])).brokers
    assert not broker.metrics.request_failures
    await bystander.close()


async def test_many_failed_logins_leave_nothing_behind(broker: Broker) -> None:
    clients = [await connect(broker) for _ in range(100)]
    for _ in range(2):
        for client in clients:
            client.send(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            client.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=plain("anna", "wrong"))
        for client in clients:
            await client.receive()
            assert (await client.receive()).error_code == 58
            assert await client.is_closed()
        clients = [await connect(broker) for _ in range(100)]
    for client in clients:
        await client.close()
    await until(lambda: broker.server.connection_count == 0)
    assert broker.server.in_flight_bytes == 0
    assert broker.server.security._logins.refused == 200


async def waits_in_a_delay(broker: Broker, count: int = 1) -> list[WireClient]:
    """Return clients whose logins have failed, with all that a login may send."""
    refused, clients = broker.server.security._logins.refused, []
    for number in range(count):
        client = await connect(broker)
        await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=bytes(65_000))
        await until(lambda number=number: broker.server.security._logins.refused > refused + number)  # type: ignore[misc]
        clients.append(client)
    return clients


async def test_who_waits_in_a_delay_holds_nothing(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_failure_delay_ms=60_000, sasl_failure_delay_max_ms=60_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        clients = await waits_in_a_delay(broker, 8)
        assert len(broker.server.dispatcher._tasks) == 8, "their answers wait"
        assert broker.server.login_room.memory.size == broker.server.in_flight_bytes == 0
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 8 * 65_000, "what they sent is gone"
    finally:
        tracemalloc.stop()
    for client in clients:
        await client.close()


async def test_nothing_goes_on_for_a_client_that_has_gone(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_failure_delay_ms=60_000, sasl_failure_delay_max_ms=60_000)
    (client,) = await waits_in_a_delay(broker)
    await client.close()
    await until(lambda: not broker.server.dispatcher._tasks)
    assert broker.server.login_room.memory.size == 0


async def test_clients_that_have_not_logged_in_have_a_room_of_their_own(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they hold keeps nobody waiting but them."""
    release = asyncio.Event()

    async def is_right(self: PasswordChecks, check: object, host: str) -> bool:
        await release.wait()
        return True

    monkeypatch.setattr(PasswordChecks, "is_right", is_right)
    broker = await start(cloud, sasl_logins_bytes_max=64 * 1024)
    await with_anna(broker)
    bystander = await WireClient.connect(broker.port)
    clients = [await connect(broker) for _ in range(8)]
    for client in clients:
        await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    for client in clients:
        message = plain("anna", "x" * 4_000)
        client.send(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
    await until(lambda: bool(broker.server.login_room.starved))
    assert (await bystander.call(ApiKey.API_VERSIONS, 2)).error_code == 0
    assert broker.server.in_flight_bytes == 0
    release.set()
    for client in clients:
        assert (await client.receive()).error_code == 0
    assert broker.server.login_room.memory.size == 0
    for client in (bystander, *clients):
        await client.close()


async def test_an_address_that_failed_often_is_told_to_come_again(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_failure_delay_ms=60_000, sasl_failure_delay_max_ms=60_000)
    await with_anna(broker)
    clients = await waits_in_a_delay(broker, FAILED_MAX)
    client = await connect(broker)
    answer = await log_in(client, "PLAIN", "anna", "secret")
    assert answer.error_code == 7, "one that clients retry"
    assert await client.is_closed()
    for one in clients:
        await one.close()
