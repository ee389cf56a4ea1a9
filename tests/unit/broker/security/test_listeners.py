"""Listeners of a broker: TLS, who a client is, what it is told, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker
from broker.front.server import Connection
from broker.security.config import SecurityConfig
from client.wire.kafka.apis import ApiKey
from tests.fakes import certificates
from tests.fakes.broker import CONFIG, FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    batch,
    create_topic,
    fetch_fields,
    produce,
    produce_fields,
)

LISTENERS = ("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    certificates.write(tmp_path)
    shutil.copy(tmp_path / "broker.pem", tmp_path / "cert.pem")
    shutil.copy(tmp_path / "broker.key", tmp_path / "cert.key")
    return tmp_path


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


async def start(
    cloud: FakeCloud,
    files: Path,
    node_id: int = 1,
    frame_timeout_ms: int = CONFIG.frame_timeout_ms,
    **settings: Any,
) -> Broker:
    tls = {"listeners": LISTENERS, "tls_cert": files / "cert.pem", "tls_key": files / "cert.key"}
    settings = {**tls, "tls_peer_ca": files / "authority.pem", **settings}
    security = SecurityConfig(**settings)
    return await cloud.start_broker(
        node_id, port=9092, frame_timeout_ms=frame_timeout_ms, security=security
    )


def trusting(files: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files / "authority.pem"))
    if name is not None:
        context.load_cert_chain(files / f"{name}.pem", files / f"{name}.key")
    return context


def connections(broker: Broker) -> list[Connection]:
    return list(broker.server._connections)


async def test_records_go_through_tls_in_every_size(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files)
    await create_topic(broker)
    client = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    values = [random.Random(7).randbytes(size) for size in (1, 100, 16_384, 70_000, 900_000)]
    for value in values:
        assert (await produce(client, batch(value))).error_code == 0
    found = b""
    for offset in range(len(values)):
        answer = await client.call(ApiKey.FETCH, 12, **fetch_fields(offset))
        found += bytes(answer.responses[0].partitions[0].records)
    assert all(value in found for value in values)
    await client.close()
    await until(lambda: not connections(broker))


async def test_many_requests_in_one_write_are_answered_in_order(
    cloud: FakeCloud, files: Path
) -> None:
    broker = await start(cloud, files)
    await create_topic(broker)
    client = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    frames = [
        client.frame(ApiKey.PRODUCE, 9, produce_fields(batch(b"v" * 3_000))) for _ in range(300)
    ]
    client.send_raw(b"".join(frames))
    offsets = [
        (await client.receive()).responses[0].partition_responses[0].base_offset for _ in range(300)
    ]
    assert offsets == list(range(300))
    await client.close()


async def test_each_listener_tells_its_own_addresses(cloud: FakeCloud, files: Path) -> None:
    brokers = [
        await start(cloud, files, number, advertised_listeners=(f"SSL://b{number}.example:443",))
        for number in (1, 2)
    ]
    plain = await WireClient.connect(brokers[0].port)
    secure = await WireClient.connect(brokers[0].ports["SSL"], tls=trusting(files))
    inside = [("127.0.0.1", broker.ports["PLAINTEXT"]) for broker in brokers]
    outside = [("b1.example", 443), ("b2.example", 443)]
    for client, expected in ((plain, inside), (secure, outside)):
        metadata = await client.call(ApiKey.METADATA, 9, topics=[])
        assert [(one.host, one.port) for one in metadata.brokers] == expected
        cluster = await client.call(ApiKey.DESCRIBE_CLUSTER, 0)
        assert [(one.host, one.port) for one in cluster.brokers] == expected
        found = await client.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
        assert (found.coordinators[0].host, found.coordinators[0].port) in expected
        await client.close()


async def test_a_broker_without_the_listener_is_left_out(cloud: FakeCloud, files: Path) -> None:
    both = await start(cloud, files, 1)
    await cloud.start_broker(2)
    secure = await WireClient.connect(both.ports["SSL"], tls=trusting(files))
    plain = await WireClient.connect(both.port)
    assert [b.node_id for b in (await secure.call(ApiKey.METADATA, 9, topics=[])).brokers] == [1]
    assert [b.node_id for b in (await plain.call(ApiKey.METADATA, 9, topics=[])).brokers] == [1, 2]
    await secure.close()
    await plain.close()


async def test_brokers_find_each_other_by_tls(cloud: FakeCloud, files: Path) -> None:
    mutual = {"tls_client_auth": "required", "tls_client_ca": files / "authority.pem"}
    settings: dict[str, Any] = {"listeners": ("SSL://127.0.0.1:0",), **mutual}
    first = await start(cloud, files, 1, **settings)
    second = await start(cloud, files, 2, **settings)
    for broker in (first, second):
        await until(
            lambda broker=broker: (  # type: ignore[misc]
                [one.peer.user for one in connections(broker)] == ["CN=broker,O=quire"]
            )
        )
    await second.close()
    await until(lambda: list(first.cluster.brokers) == [1])


@pytest.mark.parametrize(
    ("rules", "user"),
    [("DEFAULT", "CN=anna,OU=tests,O=quire,C=DE"), ("RULE:^CN=(.*?),.*$/$1/", "anna")],
)
async def test_a_certificate_names_its_user(
    cloud: FakeCloud, files: Path, rules: str, user: str
) -> None:
    broker = await start(
        cloud, files, tls_client_auth="requested", tls_client_ca=files / "authority.pem",
        tls_principal_rules=rules,
    )  # fmt: skip
    known = await WireClient.connect(broker.ports["SSL"], tls=trusting(files, "anna"))
    await known.call(ApiKey.API_VERSIONS, 0)
    unknown = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    await unknown.call(ApiKey.API_VERSIONS, 0)
    assert [one.peer.user for one in connections(broker)] == [user, "ANONYMOUS"]
    await known.close()
    await unknown.close()


async def refused(broker: Broker, context: ssl.SSLContext) -> None:
    """Connect in vain: in TLS 1.3 the client's side is done before its certificate is seen."""
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        client = await WireClient.connect(broker.ports["SSL"], tls=context)
        await client.call(ApiKey.API_VERSIONS, 0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "peer did not return a certificate"),
        ("stranger", "unable to get local issuer certificate"),
        ("expired", "certificate has expired"),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_certificate_that_does_not_fit_is_refused(
    cloud: FakeCloud, files: Path, name: str | None, reason: str, version: ssl.TLSVersion,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    broker = await start(
        cloud, files, tls_client_auth="required", tls_client_ca=files / "authority.pem"
    )
    context = trusting(files, name)
    context.maximum_version = version
    with caplog.at_level(logging.WARNING):
        await refused(broker, context)
        await until(lambda: "connection.failed" in caplog.text)
    assert reason in caplog.text
    await until(lambda: not connections(broker))


async def test_a_certificate_without_a_rule_is_refused(cloud: FakeCloud, files: Path) -> None:
    broker = await start(
        cloud, files, tls_client_auth="required", tls_client_ca=files / "authority.pem",
        tls_principal_rules="RULE:^CN=bert.*$/bert/",
    )  # fmt: skip
    await refused(broker, trusting(files, "anna"))


async def test_old_versions_of_tls_are_refused(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files, tls_version_min="1.3")
    context = trusting(files)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    await refused(broker, context)


async def test_plain_text_to_tls_and_the_reverse_say_what_is_wrong(
    cloud: FakeCloud, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(cloud, files)
    with caplog.at_level(logging.WARNING):
        plain = await WireClient.connect(broker.ports["SSL"])
        plain.send(ApiKey.API_VERSIONS, 0)
        assert await plain.is_closed()
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await WireClient.connect(broker.port, tls=trusting(files))
        await until(lambda: caplog.text.count("connection.failed") == 2)
    assert "speaks plain text to a listener with TLS" in caplog.text
    assert "speaks TLS to a plain port" in caplog.text


async def test_new_certificates_are_for_new_connections(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files, tls_reload_interval_ms=100)
    old = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    for kind in ("pem", "key"):
        os.replace(files / f"renewed.{kind}", files / f"cert.{kind}")

    async def subject() -> Any:
        client = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
        found = client.certificate()["subject"]
        await client.close()
        return found

    async with asyncio.timeout(5):
        while (("commonName", "renewed"),) not in await subject():
            pass
    assert (await old.call(ApiKey.API_VERSIONS, 0)).error_code == 0
    await old.close()


# --- hostile


async def test_a_handshake_that_stalls_is_ended(
    cloud: FakeCloud, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(cloud, files, tls_handshake_timeout_ms=200)
    silent = await WireClient.connect(broker.ports["SSL"])
    begun = await WireClient.connect(broker.ports["SSL"])
    begun.send_raw(bytes.fromhex("16030100f5"))
    with caplog.at_level(logging.WARNING):
        assert await silent.is_closed()
        assert await begun.is_closed()
    assert "longer than tls_handshake_timeout_ms" in caplog.text
    assert broker.server.security._gate.handshakes == 0
    assert not connections(broker)


async def test_handshakes_under_way_are_limited(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files, tls_handshakes_max=2)
    stalled = [await stall(broker, f"127.0.0.{at}") for at in (2, 3)]
    await until(lambda: broker.server.security._gate.handshakes == 2)
    third = await stall(broker, "127.0.0.4")
    assert await third.is_closed()
    for client in stalled:
        await client.close()
    await until(lambda: broker.server.security._gate.handshakes == 0)
    good = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    assert (await good.call(ApiKey.API_VERSIONS, 0)).error_code == 0
    await good.close()


async def stall(broker: Broker, address: str) -> WireClient:
    """Connect from an address of this machine, and say nothing."""
    port = broker.ports["SSL"]
    return WireClient(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))


async def test_one_address_does_not_take_all_handshakes(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files, tls_handshakes_max=4)
    stalled = [await stall(broker, "127.0.0.2") for _ in range(4)]
    assert await stalled[2].is_closed() and await stalled[3].is_closed()
    good = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    assert (await good.call(ApiKey.API_VERSIONS, 0)).error_code == 0
    for client in (*stalled, good):
        await client.close()
    await until(lambda: not broker.server.security._gate.handshakes)
    assert not broker.server.security._gate._of_host


async def test_random_bytes_end_their_connection_only(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files, tls_handshake_timeout_ms=300)
    rng = random.Random(11)
    bystander = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    hostile = []
    for _ in range(60):
        client = await WireClient.connect(broker.ports["SSL"])
        start_with = rng.choice((b"", b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x00\x80\x01"))
        client.send_raw(start_with + rng.randbytes(rng.choice((1, 50, 5_000, 200_000))))
        hostile.append(client)
    for client in hostile:
        with pytest.raises((OSError, asyncio.IncompleteReadError, TimeoutError)):
            while True:  # an alert may come first
                await client.receive_raw(2.0)
        await client.close()
    assert (await bystander.call(ApiKey.API_VERSIONS, 0)).error_code == 0
    await until(lambda: len(connections(broker)) == 1)
    assert broker.server.security._gate.handshakes == 0
    await bystander.close()


async def test_damage_behind_the_handshake_ends_the_connection(
    cloud: FakeCloud, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(cloud, files)
    client = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    await client.call(ApiKey.API_VERSIONS, 0)
    with caplog.at_level(logging.WARNING):
        client.under_tls().write(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ssl.SSLError, match="bad record mac"):
            await client.is_closed()
    assert "connection.failed" in caplog.text


async def unfinished(broker: Broker, files: Path) -> WireClient:
    """Send a part of a request, whose rest is awaited then."""
    client = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    client.send_raw((200_000).to_bytes(4, "big") + bytes(30_000))
    await until(lambda: broker.server.unfinished.total_bytes > 0)
    return client


async def test_a_client_that_is_gone_within_a_request_is_forgotten(
    cloud: FakeCloud, files: Path
) -> None:
    broker = await start(cloud, files)
    (await unfinished(broker, files)).under_tls().close()
    await until(lambda: not connections(broker))
    assert broker.server.unfinished.total_bytes == 0


async def test_a_request_that_goes_on_too_slowly_is_cut_off(
    cloud: FakeCloud, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(cloud, files, frame_timeout_ms=1_000)
    with caplog.at_level(logging.WARNING):
        assert await (await unfinished(broker, files)).is_closed()
    assert "frame_timeout_ms" in caplog.text
    assert not connections(broker)


async def test_a_client_that_does_not_read_is_held_back(cloud: FakeCloud, files: Path) -> None:
    broker = await start(cloud, files)
    await create_topic(broker)
    client = await WireClient.connect(broker.ports["SSL"], tls=trusting(files))
    assert (await produce(client, batch(bytes(900_000)))).error_code == 0
    client.pause()
    for _ in range(60):
        client.send(ApiKey.FETCH, 12, **fetch_fields(0))
    await until(lambda: broker.server.unread.total_bytes > 0)
    assert broker.server.unsent_bytes < 8 << 20
    client.resume()
    for _ in range(60):
        answer = await client.receive()
        assert len(answer.responses[0].partitions[0].records) > 900_000
    await client.close()


@pytest.mark.parametrize(
    ("rules", "settings"),
    [
        ("RULE:^CN=(.*?),.*$/$1/", {"inter_broker_user": "anna", "inter_broker_password": "x"}),
        ("RULE:^CN=anna.*$/ANONYMOUS/", {}),
    ],
)
async def test_a_certificate_names_none_of_the_clusters_own_users(
    cloud: FakeCloud, files: Path, rules: str, settings: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    broker = await start(
        cloud, files, tls_client_auth="requested", tls_client_ca=files / "authority.pem",
        tls_principal_rules=rules, **settings,
    )  # fmt: skip
    await refused(broker, trusting(files, "anna"))
    assert "a user that no certificate may name" in caplog.text
