"""Metadata: what exists, what is created on the way, and where clients are sent."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from client.metadata.memory import Fault
from client.node.logs import Repeats
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic

VERSIONS = range(14)


def asking(names: list[str] | None, version: int, **fields: Any) -> dict[str, Any]:
    topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
    return {"topics": topics if version or names is not None else [], **fields}


async def metadata(client: WireClient, names: list[str] | None, version: int = 12, **f: Any) -> Any:
    return await client.call(ApiKey.METADATA, version, **asking(names, version, **f))


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_versions_describe_brokers_and_topics(
    broker: Broker, client: WireClient, version: int
) -> None:
    partition = await create_topic(broker, partition_count=2)
    answer = await metadata(client, ["t"], version)
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", broker.port)
    assert getattr(answer, "controller_id", 1) == 1
    assert getattr(answer, "cluster_id", broker.cluster.cluster_id) == broker.cluster.cluster_id
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "t")
    assert getattr(topic, "topic_id", partition.topic.topic_id) == partition.topic.topic_id
    assert not getattr(topic, "is_internal", False)
    for index, row in enumerate(topic.partitions):
        assert (row.error_code, row.partition_index, row.leader_id) == (ErrorCode.none, index, 1)
        assert (row.replica_nodes, row.isr_nodes) == ((1,), (1,))
        assert getattr(row, "leader_epoch", 0) == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_null_is_all_and_an_empty_list_is_none(
    broker: Broker, client: WireClient, version: int
) -> None:
    await create_topic(broker, "a")
    await create_topic(broker, "__consumer_offsets", internal=True)
    answer = await metadata(client, None, version)
    assert [topic.name for topic in answer.topics] == ["__consumer_offsets", "a"]
    assert getattr(answer.topics[0], "is_internal", True)
    nothing = await metadata(client, [], version)
    assert len(nothing.topics) == (0 if version else 2)
    assert len(nothing.brokers) == 1


@pytest.mark.parametrize("version", [0, 3, 4, 12])
async def test_a_named_topic_is_created(broker: Broker, client: WireClient, version: int) -> None:
    answer = await metadata(client, ["new"], version, allow_auto_topic_creation=True)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.none, "new")
    assert [row.leader_id for row in topic.partitions] == [1]
    assert broker.cluster.topics["new"].replication_factor == 3


async def test_creation_needs_both_sides(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    (topic,) = (await metadata(client, ["new"], 12, allow_auto_topic_creation=False)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.unknown_topic_or_partition, ())
    strict = await cloud.start_broker(2, auto_create_topics=False)
    other = await WireClient.connect(strict.port)
    (topic,) = (await metadata(other, ["new"], 12, allow_auto_topic_creation=True)).topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert not broker.cluster.topics
    await client.close()
    await other.close()


async def test_asking_for_an_internal_topic_does_not_create_it(
    broker: Broker, client: WireClient
) -> None:
    names = ["__consumer_offsets", "__transaction_state"]
    answer = await metadata(client, names, 12, allow_auto_topic_creation=True)
    codes = {topic.error_code for topic in answer.topics}
    assert codes == {ErrorCode.unknown_topic_or_partition}
    assert not broker.cluster.topics


async def test_bad_names_are_bad_also_where_nothing_is_created(
    broker: Broker, client: WireClient
) -> None:
    names = ["", "a/b", "..", "with space"]
    answer = await metadata(client, names, 12, allow_auto_topic_creation=False)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.invalid_topic_exception}


async def test_bad_names_are_never_created(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, "a.b")
    names = ["", "..", "with space", "x" * 250, "a_b"]
    answer = await metadata(client, names, 12, allow_auto_topic_creation=True)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.invalid_topic_exception}
    assert list(broker.cluster.topics) == ["a.b"]


async def test_a_client_that_asks_for_wrong_names_fills_no_log(
    broker: Broker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Each such line is one that a client causes at will: `client/node/logs.py` counts the rest."""
    caplog.set_level(logging.INFO)
    for number in range(200):
        answer = await metadata(client, [f"no/topic{number}"], 4, allow_auto_topic_creation=True)
        assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception
    repeats = Repeats()
    told = [line for line in caplog.records if line.message.startswith("topic.not_created")]
    assert len(told) == 200
    for line in told:
        line.created = 100.0  # however long the requests took
    assert sum(map(repeats.filter, told)) == 50


async def test_topics_by_id(broker: Broker, client: WireClient) -> None:
    partition = await create_topic(broker)
    topic_id = partition.topic.topic_id
    unknown = type(topic_id)(int=99)
    answer = await client.call(
        ApiKey.METADATA, 12,
        topics=[{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown}],
    )  # fmt: skip
    found, missing = answer.topics
    assert (found.name, found.topic_id) == ("t", topic_id)
    assert (missing.error_code, missing.topic_id) == (ErrorCode.unknown_topic_id, unknown)


async def test_of_a_name_and_an_id_the_id_counts(broker: Broker, client: WireClient) -> None:
    first = await create_topic(broker)
    await create_topic(broker, "u")
    topics = [{"name": "u", "topic_id": first.topic.topic_id}]
    (found,) = (await client.call(ApiKey.METADATA, 12, topics=topics)).topics
    assert (found.name, found.topic_id) == ("t", first.topic.topic_id)


async def test_a_topic_made_elsewhere_is_found_before_the_watch_fires(
    cloud: FakeCloud,
) -> None:
    first = await cloud.start_broker(1)
    second = await cloud.start_broker(2)
    await second.cluster._topic_view.close()
    await first.topics.create("t")
    assert not second.cluster.topics
    client = await WireClient.connect(second.port)
    (topic,) = (await metadata(client, ["t"], 12, allow_auto_topic_creation=False)).topics
    assert topic.error_code is ErrorCode.none
    await client.close()


async def test_leaders_are_spread_and_replicas_name_live_brokers(cloud: FakeCloud) -> None:
    brokers = [await cloud.start_broker(number) for number in (1, 2, 3)]
    topic = await brokers[0].topics.create("t", 6, 2)
    await until(lambda: all("t" in broker.cluster.topics for broker in brokers))
    answers = []
    for broker in brokers:
        client = await WireClient.connect(broker.port)
        answers.append((await metadata(client, ["t"])).topics[0])
        await client.close()
    for answer in answers:
        assert [row.leader_id for row in answer.partitions] == [
            row.leader_id for row in answers[0].partitions
        ]
        for row in answer.partitions:
            assert row.replica_nodes[0] == row.leader_id
            assert len(set(row.replica_nodes)) == 2
    leaders = sorted(row.leader_id for row in answers[0].partitions)
    assert leaders == [1, 1, 2, 2, 3, 3]
    assert topic.replication_factor == 2


async def test_a_broker_that_is_gone_leads_nothing_but_is_listed(cloud: FakeCloud) -> None:
    """librdkafka looks a second later for leaders that came with the loss of another broker."""
    first, second = [await cloud.start_broker(number) for number in (1, 2)]
    await first.topics.create("t", 2, 2)
    await until(lambda: len(first.cluster.brokers) == 2 and "t" in second.cluster.topics)
    await second.close()
    await until(lambda: len(first.cluster.brokers) == 1)
    client = await WireClient.connect(first.port)
    answer = await metadata(client, ["t"])
    assert [node.node_id for node in answer.brokers] == [1, 2]
    assert [row.leader_id for row in answer.topics[0].partitions] == [1, 1]
    assert [row.replica_nodes for row in answer.topics[0].partitions] == [(1,), (1,)]
    await client.close()


async def test_the_next_leader_of_a_broker_that_dies_is_named(cloud: FakeCloud) -> None:
    """Not the dead one, and not the next before it leads: clients would back off."""
    first, second = [
        await cloud.start_broker(number, metadata_hold_max_ms=5_000) for number in (1, 2)
    ]
    await first.topics.create("t", 4, 2)
    client = await WireClient.connect(first.port)
    led_by_second = [
        row.partition_index
        for row in (await metadata(client, ["t"])).topics[0].partitions
        if row.leader_id == 2
    ]
    assert led_by_second
    await until(lambda: all(second.partitions.find("t", index) for index in led_by_second))
    await asyncio.sleep(0.11)
    cloud.tree.kill(cloud.stores[2])
    await second.server.close()
    rows = (await metadata(client, ["t"])).topics[0].partitions
    assert [(row.leader_id, row.leader_epoch) for row in rows] == [
        (1, 1 if row.partition_index in led_by_second else 0) for row in rows
    ]
    assert all(first.partitions.find("t", index) for index in led_by_second)
    await client.close()


async def test_a_leader_that_may_be_gone_is_not_named(cloud: FakeCloud) -> None:
    """Even if nobody finds out in time: clients ask again soon."""
    first, second = [await cloud.start_broker(number, metadata_hold_max_ms=20) for number in (1, 2)]
    await first.topics.create("t", 2, 2)
    client = await WireClient.connect(first.port)
    await metadata(client, ["t"])
    await asyncio.sleep(0.11)
    cloud.tree.on_request = lambda call: Fault.LOSE_REQUEST if call.name == "delete" else None
    await second.server.close()
    rows = {row.leader_id: row for row in (await metadata(client, ["t"])).topics[0].partitions}
    assert sorted(rows) == [-1, 1]
    assert rows[-1].error_code is ErrorCode.leader_not_available
    assert rows[-1].replica_nodes == (2, 1)
    assert rows[1].error_code is ErrorCode.none
    cloud.tree.on_request = lambda _: None
    await client.close()


async def test_leader_epochs_grow_with_takeovers_and_every_broker_knows(
    cloud: FakeCloud,
) -> None:
    first = await cloud.start_broker(1)
    partition = await create_topic(first)
    second = await cloud.start_broker(2)
    client = await WireClient.connect(second.port)
    before = (await metadata(client, ["t"])).topics[0].partitions[0]
    assert before.leader_epoch in (0, 1)
    epoch = partition.leader_epoch
    partition.resign("test")
    owners = (first, second)

    def led() -> bool:
        found = [broker.partitions.find("t", 0) for broker in owners]
        return any(leader is not None and leader.leader_epoch > epoch for leader in found)

    await until(led)

    async def known() -> int:
        return (await metadata(client, ["t"])).topics[0].partitions[0].leader_epoch

    for _ in range(100):
        if await known() > epoch:
            break
    assert await known() > epoch
    await client.close()


class TestAddresses:
    """Which host a client is told to use."""

    async def test_a_configured_host_is_always_given_out(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1, advertised_host="kafka.example", advertised_port=99)
        client = await WireClient.connect(broker.port)
        (node,) = (await metadata(client, [])).brokers
        assert (node.host, node.port) == ("kafka.example", 99)
        await client.close()

    async def test_otherwise_the_address_that_worked(self, cloud: FakeCloud) -> None:
        first = await cloud.start_broker(1, listen_host="0.0.0.0", hostname="box")
        second = await cloud.start_broker(2, listen_host="0.0.0.0", hostname="box")
        await cloud.start_broker(3, listen_host="0.0.0.0", hostname="elsewhere")
        client = await WireClient.connect(first.port)
        nodes = {node.node_id: node for node in (await metadata(client, [])).brokers}
        assert (nodes[1].host, nodes[1].port) == ("127.0.0.1", first.port)
        assert (nodes[2].host, nodes[2].port) == ("127.0.0.1", second.port)
        assert nodes[3].host == "elsewhere"
        await client.close()

    async def test_racks_are_told(self, cloud: FakeCloud) -> None:
        broker = await cloud.start_broker(1, rack="r1")
        client = await WireClient.connect(broker.port)
        (node,) = (await metadata(client, [])).brokers
        assert node.rack == "r1"
        await client.close()
