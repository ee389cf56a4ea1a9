"""Unmodified clients log in with tokens (OAUTHBEARER), and again when those expire."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from joserfc import jwt
from joserfc.jwk import ECKey

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import Mechanism
from tests.fakes.broker import FakeCloud
from tests.fakes.clock import WallClock
from tests.integration.clients import installed, test_java_tools

KEY, FOREIGN = (ECKey.generate_key("P-256", {"kid": kid}) for kid in ("ours", "theirs"))


def token(key: Any = KEY, life_s: int = 60) -> str:
    claims = {
        "iss": "https://issuer", "aud": "kafka", "sub": "anna", "iat": int(time.time()),
        "exp": int(time.time()) + life_s,
    }  # fmt: skip
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    cloud = FakeCloud(clock=WallClock())
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    security = SecurityConfig(
        listeners=("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
        sasl_mechanisms=(Mechanism.OAUTHBEARER,),
        inter_broker_mechanism=Mechanism.PLAIN,
        oauth_jwks=str(keys),
        oauth_issuer="https://issuer",
        oauth_audiences=("kafka",),
    )
    yield await cloud.start_broker(1, port=9092, security=security)
    await cloud.close()


def librdkafka(broker: Broker, make: Callable[[], str], life_s: float) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.ports['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (make(), time.time() + life_s),
    }


async def test_librdkafka_goes_on_with_the_next_token(broker: Broker) -> None:
    def traffic() -> list[Any]:
        errors: list[Any] = []
        made: list[str] = []

        def make() -> str:
            made.append(token(life_s=5))
            return made[-1]

        producer = confluent_kafka.Producer({**librdkafka(broker, make, 5), "linger.ms": 0})
        until_s = time.monotonic() + 9
        while time.monotonic() < until_s:
            producer.produce("orders", b"v", on_delivery=lambda error, _: errors.append(error))
            producer.poll(0.2)
        producer.flush(20)
        return [len(made), [error for error in errors if error is not None], len(errors)]

    tokens, failed, sent = await asyncio.to_thread(traffic)
    assert tokens >= 2
    assert not failed and sent > 20
    assert broker.server.security._logins.accepted >= 2


async def test_librdkafka_with_a_token_of_somebody_else(broker: Broker) -> None:
    errors: list[Any] = []
    settings = librdkafka(broker, lambda: token(FOREIGN), 60)
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})

    def ask() -> None:
        with pytest.raises(confluent_kafka.KafkaException):
            producer.list_topics(timeout=3)
        producer.poll(1)

    await asyncio.to_thread(ask)
    assert confluent_kafka.KafkaError._AUTHENTICATION in [error.code() for error in errors]


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


async def test_aiokafka(broker: Broker) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{broker.ports['SASL_PLAINTEXT']}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for number in range(20):
            await producer.send_and_wait("orders", f"{number}".encode())


async def test_java(broker: Broker, tmp_path: Path) -> None:
    """Java's client reads its token from a file that a system property names."""
    installed.folder("java/lib")
    file = tmp_path / "token"
    file.write_text(token())
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        " required;\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer"
        ".OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}\n"
    )
    command = test_java_tools.command(
        test_java_tools.TOPICS,
        ("--bootstrap-server", f"localhost:{broker.ports['SASL_PLAINTEXT']}",
         "--command-config", str(properties), "--create", "--topic", "from-java"),
    )  # fmt: skip
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
    process = await asyncio.create_subprocess_exec(
        command[0], allowed, *command[1:],
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, output.decode()
    assert "from-java" in broker.cluster.topics
