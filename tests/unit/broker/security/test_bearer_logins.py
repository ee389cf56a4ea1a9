"""Logins by OAUTHBEARER: tokens that are signed by a known key, and no others."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import Mechanism
from broker.security.token_keys import TokenKeys
from client.errors import ConfigError
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.security.test_listeners import connections

OLD, NEW, FOREIGN = (ECKey.generate_key("P-256", {"kid": kid}) for kid in ("old", "new", "foreign"))
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
SHARED = OctKey.generate_key(256, {"kid": "shared"})


def write(path: Path, *keys: Any, private: bool = False) -> None:
    path.write_text(json.dumps({"keys": [key.as_dict(private=private) for key in keys]}))


def _put(path: Path, text: str) -> None:
    path.write_text(text)


NO_KEYS = (
    '{"keys": [{"kty": "RSA", "n": "AQAB"}]}',
    '{"keys": [{"kty": "RSA", "n": "x", "e": 5}]}',
    '{"keys": [{"kty": "EC", "crv": "P-256", "x": "!", "y": "?"}]}',
)
"""Sets of what cannot be keys."""


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    write(path, OLD, RSA)
    return path


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


def settings(jwks: Path, **more: Any) -> SecurityConfig:
    given: dict[str, Any] = {
        "listeners": ("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
        "sasl_mechanisms": (Mechanism.OAUTHBEARER,),
        "inter_broker_mechanism": Mechanism.PLAIN,
        "sasl_failure_delay_ms": 0,
        "oauth_jwks": str(jwks),
        "oauth_issuer": "https://issuer",
        "oauth_audiences": ("kafka",),
        **more,
    }
    return SecurityConfig(**given)


@pytest.fixture
async def broker(cloud: FakeCloud, jwks: Path) -> Broker:
    return await cloud.start_broker(1, port=9092, security=settings(jwks))


def token(broker: Broker, key: Any = OLD, alg: str = "ES256", **change: Any) -> str:
    now_s = broker.services.clock.now_ms() / 1000
    claims = {"iss": "https://issuer", "aud": "kafka", "sub": "anna", "exp": int(now_s + 60)}
    return jwt.encode({"alg": alg, "kid": key.kid}, {**claims, **change}, key, algorithms=[alg])


async def log_in(client: WireClient, text: str) -> Any:
    """Return the last answer; what is not taken is first told so."""
    chosen = await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER")
    assert chosen.error_code == 0
    message = b"n,,\x01auth=Bearer " + text.encode() + b"\x01\x01"
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
    if answer.error_code or not answer.auth_bytes:
        return answer
    assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
    return await client.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\x01")


async def connect(broker: Broker) -> WireClient:
    return await WireClient.connect(broker.ports["SASL_PLAINTEXT"])


@pytest.mark.parametrize(("key", "alg"), [(OLD, "ES256"), (RSA, "RS256"), (RSA, "PS256")])
async def test_a_good_token_lets_in_until_it_expires(broker: Broker, key: Any, alg: str) -> None:
    client = await connect(broker)
    answer = await log_in(client, token(broker, key, alg))
    assert answer.error_code == 0
    assert 50 < answer.session_lifetime.total_seconds() <= 60
    assert [one.peer.user for one in connections(broker)] == ["anna"]
    again = await log_in(client, token(broker, key, alg))
    assert again.error_code == 0
    await client.close()


NESTED = base64.urlsafe_b64encode(b"[" * 5_000).rstrip(b"=").decode()
"""No parser gets to the end of it."""
NAMED = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"old"}').rstrip(b"=").decode()


def unsigned(broker: Broker) -> str:
    body = token(broker).split(".")[1]
    head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"old"}').rstrip(b"=").decode()
    return f"{head}.{body}."


def tampered(broker: Broker) -> str:
    head, _, signature = token(broker).split(".")
    body = base64.urlsafe_b64encode(b'{"sub":"root"}').rstrip(b"=").decode()
    return f"{head}.{body}.{signature}"


@pytest.mark.parametrize(
    "make",
    [
        unsigned, tampered,
        lambda broker: token(broker, FOREIGN),
        lambda broker: token(broker, SHARED, "HS256"),
        lambda broker: token(broker, exp=1),
        lambda broker: token(broker, aud="other"),
        lambda broker: token(broker, iss="https://other"),
        lambda _: "a.b.c", lambda _: "x",
        lambda _: f"{NESTED}.b.c",
        lambda _: f"{NAMED}.{NESTED}.c",
    ],
)  # fmt: skip
async def test_any_other_is_refused_and_not_logged(
    broker: Broker, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect(broker)
    text = make(broker)
    with caplog.at_level(logging.DEBUG):
        assert (await log_in(client, text)).error_code == 58
        assert await client.is_closed()
    assert "login.refused" in caplog.text
    assert "Traceback" not in caplog.text
    assert text not in caplog.text or len(text) < 10


async def test_another_user_cannot_take_a_connection_over(broker: Broker) -> None:
    client = await connect(broker)
    await log_in(client, token(broker))
    assert (await log_in(client, token(broker, sub="bert"))).error_code == 58
    assert await client.is_closed()


async def test_keys_are_rotated_without_a_restart(broker: Broker, jwks: Path) -> None:
    keys = broker.server.security._logins.tokens
    write(jwks, NEW)
    client = await connect(broker)
    assert (await log_in(client, token(broker, NEW))).error_code == 58, "it was read a moment ago"
    keys._looked_s -= 11
    client = await connect(broker)
    assert (await log_in(client, token(broker, NEW))).error_code == 0
    other = await connect(broker)
    assert (await log_in(other, token(broker, OLD))).error_code == 58
    await client.close()


@pytest.mark.parametrize("text", ['{"keys": []}', *NO_KEYS])
async def test_old_keys_stay_good_while_the_issuer_has_none(
    broker: Broker, jwks: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """And it is not asked again with every login."""
    _put(jwks, text)
    broker.server.security._logins.tokens._looked_s -= 1e6
    client = await connect(broker)
    assert (await log_in(client, token(broker, OLD))).error_code == 0
    assert "login.keys_stale" in caplog.text
    age_s = asyncio.get_running_loop().time() - broker.server.security._logins.tokens._looked_s
    assert age_s < 1e6
    await client.close()


async def test_a_flood_of_unknown_keys_asks_the_issuer_once(jwks: Path) -> None:
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        await asyncio.sleep(0)
        return json.dumps({"keys": [OLD.as_dict(private=False)]}).encode()

    keys = TokenKeys(settings(jwks, oauth_jwks="https://issuer/keys"), fetch)
    await keys.start()
    keys._looked_s -= 11
    head = base64.urlsafe_b64encode(b'{"kid":"who"}').decode()
    await asyncio.gather(*(keys.prepare(f"{head}.x.y") for _ in range(1_000)))
    assert len(asked) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": []}', '{"keys": [7]}', "x" * 300_000, *NO_KEYS]
)
async def test_what_is_no_key_set_stops_the_start(jwks: Path, text: str) -> None:
    _put(jwks, text)
    with pytest.raises(ConfigError, match="oauth_jwks"):
        await TokenKeys(settings(jwks)).start()


async def test_secrets_and_private_keys_are_none(jwks: Path) -> None:
    write(jwks, SHARED, private=True)
    with pytest.raises(ConfigError, match="no public key"):
        await TokenKeys(settings(jwks)).start()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"oauth_issuer": ""}, "OAUTHBEARER needs"),
        ({"oauth_audiences": ()}, "OAUTHBEARER needs"),
        ({"oauth_jwks": "http://issuer.example/keys"}, "must be an https URL"),
        ({"sasl_mechanisms": (Mechanism.PLAIN,)}, "no effect without OAUTHBEARER"),
        ({"inter_broker_mechanism": Mechanism.OAUTHBEARER}, "one with a password"),
    ],
)
def test_settings_that_make_no_sense(jwks: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(jwks, **change)


@pytest.mark.parametrize("user", ["brokers", "root", "ANONYMOUS"])
async def test_whoever_chooses_names_at_the_issuer_is_nobody_of_the_cluster(
    cloud: FakeCloud, jwks: Path, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(
        jwks, sasl_mechanisms=(Mechanism.OAUTHBEARER, Mechanism.PLAIN), inter_broker_user="brokers",
        inter_broker_password="secret", authorization=True, super_users=("User:root",),
    )  # fmt: skip
    broker = await cloud.start_broker(1, port=9092, security=config)
    client = await connect(broker)
    assert (await log_in(client, token(broker, sub=user))).error_code == 58
    assert "names a user of the cluster's own settings" in caplog.text
    assert await client.is_closed()


async def test_a_super_user_may_come_with_a_token_if_its_name_says_so(
    cloud: FakeCloud, jwks: Path
) -> None:
    config = settings(
        jwks, oauth_user_prefix="token:", authorization=True, super_users=("User:token:root",)
    )
    broker = await cloud.start_broker(1, port=9092, security=config)
    client = await connect(broker)
    assert (await log_in(client, token(broker, sub="root"))).error_code == 0
    assert [one.peer.user for one in connections(broker)] == ["token:root"]
    await client.close()
