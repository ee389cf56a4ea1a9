"""What operators make and brokers keep in memory: so many users, entities with quotas and access
control entries, no more, and gauges that say how many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.scrape import parse
from tests.fakes.wire_client import WireClient

MOST = 3
SECURITY = SecurityConfig(
    authorization=True, super_users=("User:ANONYMOUS",), acls_max=MOST, users_max=MOST,
    quota_entities_max=MOST,
)  # fmt: skip


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def brokers(cloud: FakeCloud) -> list[Broker]:
    return [await cloud.start_broker(number, security=SECURITY) for number in (1, 2)]


@pytest.fixture
async def client(brokers: list[Broker]) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(brokers[0].port)
    yield made
    await made.close()


def shown(broker: Broker, name: str) -> float:
    return parse(broker.metrics.exposition().decode())[name]


async def user(client: WireClient, name: str, *, is_gone: bool = False) -> tuple[int, str]:
    made = {
        "name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt",
        "salted_password": bytes(32),
    }  # fmt: skip
    gone = {"name": name, "mechanism": 1}
    answer = await client.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[gone] if is_gone else [],
        upsertions=[] if is_gone else [made],
    )  # fmt: skip
    (result,) = answer.results
    return int(result.error_code), str(result.error_message)


async def quota(client: WireClient, name: str, *, is_gone: bool = False) -> tuple[int, str]:
    entry: dict[str, Any] = {
        "entity": [{"entity_type": "user", "entity_name": name}],
        "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": is_gone}],
    }
    answer = await client.call(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False
    )  # fmt: skip
    (result,) = answer.entries
    return int(result.error_code), str(result.error_message)


@pytest.mark.parametrize(
    ("make", "gauge", "setting"),
    [
        (user, "quire_broker_users", "security.users_max"),
        (quota, "quire_broker_quota_entities", "security.quota_entities_max"),
    ],
    ids=["users", "quotas"],
)
async def test_so_many_and_no_more(
    brokers: list[Broker], client: WireClient, make: Any, gauge: str, setting: str
) -> None:
    assert (await make(client, "n0"))[0] == 0
    await until(lambda: shown(brokers[0], gauge) == 1)
    for number in range(1, MOST):
        assert (await make(client, f"n{number}"))[0] == 0
    await until(lambda: shown(brokers[0], gauge) == MOST)
    code, text = await make(client, "more")
    assert code
    assert f"{setting} ({MOST})" in text
    assert (await make(client, "n0"))[0] == 0, "one that is there may change"
    assert shown(brokers[0], gauge) == MOST
    assert (await make(client, "n1", is_gone=True))[0] == 0
    await until(lambda: shown(brokers[0], gauge) == MOST - 1)
    assert (await make(client, "more"))[0] == 0


async def test_every_broker_says_how_many_quotas_it_keeps(
    brokers: list[Broker], client: WireClient
) -> None:
    await quota(client, "n0")
    await until(lambda: shown(brokers[1], "quire_broker_quota_entities") == 1)


async def test_entries_are_counted(brokers: list[Broker], client: WireClient) -> None:
    row = {
        "resource_type": 2, "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    rows = [{**row, "resource_name": name} for name in "abcd"]
    answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=rows)
    assert [bool(one.error_code) for one in answer.results] == [False] * MOST + [True]
    for broker in brokers:
        await until(lambda broker=broker: shown(broker, "quire_broker_acls") == MOST)  # type: ignore[misc]
