"""kafkajs and franz-go where every listener wants TLS and a login, and may be refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud
from tests.fakes.clock import WallClock
from tests.integration.clients import installed

USER, PASSWORD = "brokers", "of brokers"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    files = certificates.write(tmp_path)
    cloud = FakeCloud(clock=WallClock())
    security = SecurityConfig(
        listeners=("SASL_SSL://127.0.0.1:0",),
        tls_cert=files / "broker.pem",
        tls_key=files / "broker.key",
        inter_broker_user=USER,
        inter_broker_password=PASSWORD,
        authorization=True,
        super_users=(f"User:{USER}",),
    )
    yield await cloud.start_broker(1, port=9092, security=security)
    await cloud.close()


def kafkajs() -> list[str]:
    script = installed.folder("kafkajs/node_modules").parent / "client.js"
    return [installed.command("node"), str(script)]


def franz_go() -> list[str]:
    return [str(installed.folder("franz-go/bin") / "transactions")]


async def run(
    command: list[str], step: str, broker: Broker, folder: Path, **more: Any
) -> tuple[int, str, str]:
    settings = {
        "brokers": f"127.0.0.1:{broker.port}", "topic": "orders", "user": USER,
        "password": PASSWORD, "ca": str(folder / "authority.pem"), **more,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, step, json.dumps(settings),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def test_kafkajs(broker: Broker, tmp_path: Path) -> None:
    code, _, errors = await run(kafkajs(), "create", broker, tmp_path, partitions=2)
    assert code == 0, errors
    messages = [{"key": f"k{n}", "value": f"v{n}"} for n in range(20)]
    code, out, errors = await run(
        kafkajs(), "publish", broker, tmp_path, messages=messages, gzip=False
    )
    assert code == 0, errors
    assert {row["errorCode"] for row in json.loads(out)} == {0}
    code, _, errors = await run(
        kafkajs(), "create", broker, tmp_path, partitions=2, password="wrong"
    )
    assert code == 1
    assert "the user or the password is wrong" in errors


async def test_franz_go(broker: Broker, tmp_path: Path) -> None:
    code, _, errors = await run(kafkajs(), "create", broker, tmp_path, partitions=2)
    assert code == 0, errors
    rounds = [
        {"first": 0, "end": 20, "commit": True, "offset": -1},
        {"first": 20, "end": 40, "commit": False, "offset": -1},
    ]
    more: dict[str, Any] = {"id": "t", "group": "g", "source": "orders", "partitions": 2}
    code, _, errors = await run(franz_go(), "rounds", broker, tmp_path, rounds=rounds, **more)
    assert code == 0, errors
    code, out, errors = await run(franz_go(), "read", broker, tmp_path, **more)
    assert code == 0, errors
    assert sorted(json.loads(out)) == sorted(f"value-{n}" for n in range(20))
    code, _, errors = await run(
        franz_go(), "read", broker, tmp_path, **{**more, "password": "wrong"}
    )
    assert code == 1
    assert "SASL_AUTHENTICATION_FAILED" in errors
