"""Quotas at a broker: who waits how long for what, and how they are set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    batch,
    create_topic,
    fetch_fields,
    produce_fields,
)

SECOND = SecurityConfig(quota_window_ms=1_000)
USER = [("user", "ANONYMOUS")]
ANY_USER: list[tuple[str, str | None]] = [("user", None)]
ALL: dict[str, Any] = {"components": [], "strict": False}


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    broker = await cloud.start_broker(1, security=SECOND)
    await create_topic(broker)
    return broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(broker.port)
    yield made
    await made.close()


def change(entity: Any, values: dict[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


async def alter(client: WireClient, *entries: dict[str, Any], validate_only: bool = False) -> Any:
    return await client.call(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=list(entries), validate_only=validate_only
    )


async def limit(client: WireClient, entity: Any, **values: float | None) -> None:
    answer = await alter(client, change(entity, values))
    assert [one.error_code for one in answer.entries] == [0], answer


async def listed(client: WireClient, **asked: Any) -> list[Any]:
    answer = await client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, **{**ALL, **asked})
    assert answer.error_code == 0, answer
    return [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


def ms(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds() * 1000)


# --- what is limited


async def test_who_produces_too_much_is_answered_and_then_waits(
    broker: Broker, client: WireClient
) -> None:
    await limit(client, USER, producer_byte_rate=20_000)
    waits = []
    for _ in range(6):
        began_s = asyncio.get_running_loop().time()
        answer = await client.call(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(6_000))))
        assert answer.responses[0].partition_responses[0].error_code == 0
        waits.append((ms(answer), asyncio.get_running_loop().time() - began_s))
    assert waits[0][0] == 0
    assert 200 <= waits[-1][0] <= 700, "6,000 bytes at 20,000 in a second take 300 ms"
    late = [took_s for (_, took_s), (told_ms, _) in zip(waits[1:], waits, strict=False) if told_ms]
    assert all(took_s > 0.15 for took_s in late), "its next request was not begun before"


async def test_who_does_not_wait_for_answers_is_held_as_well(
    broker: Broker, client: WireClient
) -> None:
    """Kafka handles a request of a connection only when the one before is answered."""
    await limit(client, USER, producer_byte_rate=20_000)
    for _ in range(30):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(6_000))))
    told_ms, stored = 0.0, 0
    while not told_ms:
        told_ms = ms(await client.receive())
        stored += 1
    end = broker.services.partitions.leader("t", 0).log_end_offset
    assert stored <= end <= 5, "a window's bytes, what came in meanwhile and one more"


async def test_who_is_held_goes_on_after_a_request_without_an_answer(
    broker: Broker, client: WireClient
) -> None:
    await limit(client, USER, producer_byte_rate=10_000)
    for _ in range(3):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(6_000)), acks=0))
        client.forget_last()
    client.send(ApiKey.METADATA, 9, topics=None)
    began_s = asyncio.get_running_loop().time()
    assert (await client.receive()).topics
    assert asyncio.get_running_loop().time() - began_s > 0.5


async def test_who_is_held_goes_on_after_a_request_that_is_refused(
    broker: Broker, client: WireClient
) -> None:
    await limit(client, USER, producer_byte_rate=10_000)
    for _ in range(3):
        client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(6_000)), topic="none"))
    codes = [
        (await client.receive()).responses[0].partition_responses[0].error_code for _ in range(3)
    ]
    assert codes == [3, 3, 3]


async def test_who_is_held_goes_on_once_nobody_is_limited_any_more(
    broker: Broker, client: WireClient, cloud: FakeCloud
) -> None:
    other = await WireClient.connect(broker.port)
    await limit(other, [("client-id", "test")], producer_byte_rate=6_000)
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(9_000))))
    client.send(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(9_000))))
    first = await client.receive()
    assert ms(first) > 0
    await limit(other, [("client-id", "test")], producer_byte_rate=None)
    assert ms(await client.receive()) == 0
    await other.close()


async def test_who_fetches_too_much_waits(broker: Broker, client: WireClient) -> None:
    await client.call(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(30_000))))
    await limit(client, USER, consumer_byte_rate=20_000)
    other = await WireClient.connect(broker.port)
    answers = [await other.call(ApiKey.FETCH, 12, **fetch_fields(0)) for _ in range(2)]
    assert ms(answers[0]) > 0
    assert len(answers[0].responses[0].partitions[0].records) > 30_000
    await other.close()


async def test_time_is_limited(broker: Broker, client: WireClient) -> None:
    await limit(client, USER, request_percentage=0.01)
    waits = [ms(await client.call(ApiKey.METADATA, 9, topics=None)) for _ in range(2)]
    waits += [ms(await client.call(ApiKey.LIST_GROUPS, 4)) for _ in range(2)]
    assert any(waits)
    assert broker.services.quotas.are_times_limited


async def test_only_the_version_that_knows_the_error_is_refused(
    broker: Broker, client: WireClient
) -> None:
    await limit(client, USER, controller_mutation_rate=2)

    async def make(name: str, version: int) -> tuple[int, float]:
        other = await WireClient.connect(broker.port)
        topic = {"name": name, "num_partitions": 3, "replication_factor": 1}
        topic |= {"assignments": [], "configs": []}
        answer = await other.call(ApiKey.CREATE_TOPICS, version, topics=[topic])
        await other.close()
        return answer.topics[0].error_code, ms(answer)

    first, second, third = [await make(name, 6) for name in ("x", "y", "z")]
    assert first[0] == 0 and first[1] > 0, "a change is begun while anything is left"
    assert (second[0], third[0]) == (89, 89)
    code, wait_ms = await make("old", 5)
    assert code == 0 and wait_ms > 0
    answer = await client.call(ApiKey.DELETE_TOPICS, 5, topic_names=["old"])
    assert answer.responses[0].error_code == 89
    row = {"name": "t", "count": 9, "assignments": None}
    answer = await client.call(ApiKey.CREATE_PARTITIONS, 3, topics=[row])
    assert answer.results[0].error_code == 89


async def test_connections_of_an_address_are_limited(broker: Broker, client: WireClient) -> None:
    await limit(client, [("ip", "127.0.0.1")], connection_creation_rate=3)
    opened = [await WireClient.connect(broker.port) for _ in range(8)]
    closed = 0
    for one in opened:
        try:
            await one.call(ApiKey.API_VERSIONS, 0)
        except (OSError, asyncio.IncompleteReadError):
            closed += 1
        await one.close()
    assert closed >= 3
    assert (await client.call(ApiKey.API_VERSIONS, 0)).error_code == 0
    await limit(client, [("ip", "127.0.0.1")], connection_creation_rate=None)
    for _ in range(5):
        one = await WireClient.connect(broker.port)
        assert (await one.call(ApiKey.API_VERSIONS, 0)).error_code == 0
        await one.close()


async def test_others_do_not_wait(broker: Broker, client: WireClient) -> None:
    await limit(client, [("client-id", "greedy")], producer_byte_rate=10)
    answer = await client.call(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(6_000))))
    assert ms(answer) == 0


async def test_waits_are_counted(broker: Broker, client: WireClient) -> None:
    await limit(client, USER, producer_byte_rate=100)
    other = await WireClient.connect(broker.port)
    await other.call(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(2_000))))
    text = broker.metrics.exposition().decode()
    assert 'quire_broker_quota_waits_total{kind="producer_byte_rate"} 1' in text
    assert "quire_broker_quota_owners 1" in text
    await other.close()


async def test_a_connection_that_waits_is_closed_without_trouble(
    broker: Broker, client: WireClient
) -> None:
    await limit(client, USER, producer_byte_rate=2_000)
    other = await WireClient.connect(broker.port)
    await other.call(ApiKey.PRODUCE, 9, **produce_fields(batch(bytes(3_000))))
    other.send(ApiKey.METADATA, 9, topics=None)
    await other.close()
    await until(lambda: broker.server.connection_count == 1)


# --- how they are set


async def test_they_come_are_shown_and_go(broker: Broker, client: WireClient) -> None:
    both = [("client-id", None), ("user", "anna")]
    await limit(client, both, producer_byte_rate=1_000, request_percentage=12.5)
    await limit(client, ANY_USER, consumer_byte_rate=7)
    await limit(client, [("ip", None)], connection_creation_rate=100)
    everything = await listed(client)
    assert (both, {"producer_byte_rate": 1_000.0, "request_percentage": 12.5}) in everything
    assert len(everything) == 3
    anna = {"entity_type": "user", "match_type": 0, "match": "anna"}
    assert [entity for entity, _ in await listed(client, components=[anna])] == [both]
    assert await listed(client, components=[anna], strict=True) == []
    default = {"entity_type": "user", "match_type": 1, "match": None}
    assert [entity for entity, _ in await listed(client, components=[default])] == [ANY_USER]
    some = {"entity_type": "user", "match_type": 2, "match": None}
    assert len(await listed(client, components=[some])) == 2
    await limit(client, both, producer_byte_rate=None)
    assert (both, {"request_percentage": 12.5}) in await listed(client)
    await limit(client, both, request_percentage=None)
    await limit(client, both, request_percentage=None)
    assert len(await listed(client)) == 2


async def test_validating_changes_nothing(broker: Broker, client: WireClient) -> None:
    good, bad = change(USER, {"producer_byte_rate": 1.0}), change(ANY_USER, {"no_such": 1.0})
    answer = await alter(client, good, bad, validate_only=True)
    assert [one.error_code for one in answer.entries] == [0, 42]
    assert await listed(client) == []


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ([], {"producer_byte_rate": 1.0}),
        ([("group", "g")], {"producer_byte_rate": 1.0}),
        ([("user", "")], {"producer_byte_rate": 1.0}),
        ([("user", "x"), ("ip", "1.2.3.4")], {"producer_byte_rate": 1.0}),
        ([("ip", "somewhere")], {"connection_creation_rate": 1.0}),
        ([("user", "x")], {"producer_byte_rate": 0.0}),
        ([("user", "x")], {"connection_creation_rate": 1.0}),
    ],
)
async def test_what_makes_no_sense_is_refused(
    broker: Broker, client: WireClient, entity: Any, values: Any
) -> None:
    answer = await alter(client, change(entity, values), change(USER, {"consumer_byte_rate": 1e9}))
    assert [one.error_code for one in answer.entries] == [42, 0]
    assert answer.entries[0].error_message
    assert len(await listed(client)) == 1


async def test_the_same_entity_twice(broker: Broker, client: WireClient) -> None:
    row = change(USER, {"producer_byte_rate": 1e9})
    answer = await alter(client, row, row)
    assert [one.error_code for one in answer.entries] == [42, 42]
    assert await listed(client) == []


@pytest.mark.parametrize(
    "part",
    [
        {"entity_type": "group", "match_type": 2, "match": None},
        {"entity_type": "user", "match_type": 7, "match": None},
        {"entity_type": "", "match_type": 0, "match": "anna"},
        {"entity_type": "user", "match_type": 0, "match": None},
        {"entity_type": "user", "match_type": 1, "match": "anna"},
    ],
)
async def test_filters_that_make_no_sense(broker: Broker, client: WireClient, part: Any) -> None:
    answer = await client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[part], strict=False)
    assert answer.error_code == (35 if part["entity_type"] == "group" else 42)


async def test_another_broker_follows_and_damage_ends_no_limit(
    cloud: FakeCloud, broker: Broker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    second = await cloud.start_broker(2, security=SECOND)
    await limit(client, USER, producer_byte_rate=1_000_000)
    await until(lambda: second.services.quotas.is_on)
    store = cloud.tree.session()
    (name,) = await store.children(paths.QUOTAS)
    await store.set(f"{paths.QUOTAS}/{name}", b"{}")
    await until(lambda: "metadata.unreadable" in caplog.text)
    assert second.services.quotas.is_on, "what was readable last stays in force"
    await store.delete(f"{paths.QUOTAS}/{name}")
    await until(lambda: not second.services.quotas.is_on)


async def test_without_them_nothing_is_shown_or_set(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1, security=SecurityConfig(quotas=False))
    client = await WireClient.connect(broker.port)
    answer = await client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, **ALL)
    assert (answer.error_code, "security.quotas is off" in answer.error_message) == (42, True)
    answer = await alter(client, change(USER, {"producer_byte_rate": 1.0}))
    assert answer.entries[0].error_code == 42
    await client.close()
