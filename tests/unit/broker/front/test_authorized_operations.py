"""What may be done to a topic, a group and the cluster, in answers to who asks for it (KIP-430)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from broker.security.rights import OPERATIONS_NOT_ASKED
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic

ALL_OF_TOPIC = {3, 4, 5, 6, 7, 8, 10, 11}
ALL_OF_GROUP = {3, 6, 8, 10, 11}
ALL_OF_CLUSTER = {5, 7, 8, 9, 10, 11, 12}
"""Kafka's numbers of the operations that a resource of each type supports."""


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


async def serve(cloud: FakeCloud, **security: Any) -> tuple[Broker, WireClient]:
    broker = await cloud.start_broker(1, security=SecurityConfig(**security))
    await create_topic(broker)
    await broker.services.groups.find("g")
    await until(lambda: not broker.missing())
    return broker, await WireClient.connect(broker.port)


def operations(bits: int) -> set[int]:
    return {bit for bit in range(31) if bits >> bit & 1}


async def of_topics(client: WireClient, version: int, *names: str) -> dict[str, int]:
    answer = await client.call(
        ApiKey.METADATA, version, topics=[{"name": name, "topic_id": None} for name in names],
        allow_auto_topic_creation=False, include_topic_authorized_operations=True,
    )  # fmt: skip
    return {row.name: row.topic_authorized_operations for row in answer.topics}


async def of_cluster(client: WireClient) -> list[int]:
    """Ask by both of the requests that can."""
    fields = {"include_cluster_authorized_operations": True}
    metadata = await client.call(ApiKey.METADATA, 10, topics=[], **fields)
    described = await client.call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=1, **fields)
    return [one.cluster_authorized_operations for one in (metadata, described)]


async def of_group(client: WireClient) -> int:
    answer = await client.call(
        ApiKey.DESCRIBE_GROUPS, 5, groups=["g"], include_authorized_operations=True
    )
    return int(answer.groups[0].authorized_operations)


async def of_pages(client: WireClient, name: str) -> int:
    answer = await client.call(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name}], response_partition_limit=9,
        cursor=None,
    )  # fmt: skip
    return int(answer.topics[0].topic_authorized_operations)


async def test_without_authorization_everything_may_be_done(cloud: FakeCloud) -> None:
    _, client = await serve(cloud)
    for version in (8, 9, 12, 13):
        found = await of_topics(client, version, "t", "unknown")
        assert operations(found["t"]) == operations(found["unknown"]) == ALL_OF_TOPIC
    assert operations(await of_pages(client, "t")) == ALL_OF_TOPIC
    assert [operations(bits) for bits in await of_cluster(client)] == [ALL_OF_CLUSTER] * 2
    assert operations(await of_group(client)) == ALL_OF_GROUP
    await client.close()


async def test_with_it_what_the_entries_allow_and_imply(cloud: FakeCloud) -> None:
    broker, client = await serve(cloud, authorization=True, super_users=("User:root",))
    who = "User:ANONYMOUS", "*"
    literal, allow = PatternType.LITERAL, Permission.ALLOW
    for kind, name, operation in (
        (ResourceType.TOPIC, "t", Operation.READ),
        (ResourceType.TOPIC, "t", Operation.ALTER_CONFIGS),
        (ResourceType.GROUP, "g", Operation.DELETE),
    ):
        entry = Acl(kind, name, literal, *who, operation, allow)
        await broker.services.rights.acls.add([entry])
    read_alter_configs = {3, 8, 10, 11}
    assert operations((await of_topics(client, 12, "t"))["t"]) == read_alter_configs
    assert operations(await of_pages(client, "t")) == read_alter_configs
    assert operations(await of_group(client)) == {6, 8}
    assert await of_cluster(client) == [0, 0], "who may not describe it is told nothing"
    entry = Acl(ResourceType.CLUSTER, CLUSTER_NAME, literal, *who, Operation.ALTER, allow)
    await broker.services.rights.acls.add([entry])
    assert [operations(bits) for bits in await of_cluster(client)] == [{7, 8}] * 2
    assert broker.services.rights.denied == 0, "what was not tried was not denied"
    await client.close()


async def test_what_is_hidden_has_none(cloud: FakeCloud) -> None:
    _, client = await serve(cloud, authorization=True, super_users=("User:root",))
    assert (await of_topics(client, 12, "t"))["t"] == OPERATIONS_NOT_ASKED
    assert await of_pages(client, "t") == OPERATIONS_NOT_ASKED
    assert await of_group(client) == OPERATIONS_NOT_ASKED
    await client.close()


async def test_who_does_not_ask_is_told_nothing_though_somebody_asked_before(
    cloud: FakeCloud,
) -> None:
    _, client = await serve(cloud)
    assert (await of_topics(client, 12, "t"))["t"] != OPERATIONS_NOT_ASKED
    answer = await client.call(ApiKey.METADATA, 12, topics=[{"name": "t", "topic_id": None}])
    assert answer.topics[0].topic_authorized_operations == OPERATIONS_NOT_ASKED
    described = await client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
    assert described.groups[0].authorized_operations == OPERATIONS_NOT_ASKED
    await client.close()
