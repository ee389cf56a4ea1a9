"""What tools do with replica lists: assign, reassign, elect, describe page by page."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.topics.core.config_resource import ConfigResource
from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic

ME = 1


async def reassign(client: WireClient, lists: dict[int, Any], version: int = 1, **f: Any) -> Any:
    rows = [{"partition_index": index, "replicas": ids} for index, ids in lists.items()]
    topics = [{"name": f.pop("topic", "t"), "partitions": rows}]
    answer = await client.call(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, timeout=1000, topics=topics, **f
    )
    assert answer.error_code is ErrorCode.none
    return [row.error_code for row in answer.responses[0].partitions]


async def replicas(client: WireClient) -> list[tuple[int, ...]]:
    answer = await client.call(ApiKey.METADATA, 12, topics=[{"name": "t", "topic_id": None}])
    rows = sorted(answer.topics[0].partitions, key=lambda row: row.partition_index)
    return [row.replica_nodes for row in rows]


@pytest.mark.parametrize("version", range(2))
async def test_a_replica_list_is_set_and_shown(
    broker: Broker, client: WireClient, version: int
) -> None:
    await create_topic(broker, partition_count=2)
    assert await reassign(client, {0: [ME]}, version) == [ErrorCode.none]
    assert broker.cluster.topics["t"].assignments == {0: (ME,)}
    assert await replicas(client) == [(ME,), (ME,)]


async def test_partitions_are_judged_one_by_one(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, partition_count=5)
    codes = await reassign(client, {0: [ME], 1: [ME, 9], 2: [], 3: None, 4: [ME, ME], 9: [ME]})
    assert codes == [
        ErrorCode.none,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.invalid_replica_assignment,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert broker.cluster.topics["t"].assignments == {0: (ME,)}
    codes = await reassign(client, {0: [ME]}, topic="none")
    assert codes == [ErrorCode.unknown_topic_or_partition]


async def test_a_list_of_another_length_can_be_forbidden(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker, partition_count=1)
    assert await reassign(client, {0: [ME]}, allow_replication_factor_change=False) == [
        ErrorCode.none
    ]


async def test_no_reassignment_is_in_progress(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    await reassign(client, {0: [ME]})
    answer = await client.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=1000, topics=None)
    assert (answer.error_code, answer.topics) == (ErrorCode.none, ())


async def elect(client: WireClient, version: int, asked: Any, kind: int = 0) -> Any:
    return await client.call(
        ApiKey.ELECT_LEADERS, version, timeout=1000, topic_partitions=asked, election_type=kind
    )


@pytest.mark.parametrize("version", range(3))
async def test_a_preferred_leader_is_not_elected_again(
    broker: Broker, client: WireClient, version: int
) -> None:
    await create_topic(broker, partition_count=2)
    asked = [{"topic": "t", "partitions": [7]}, {"topic": "none", "partitions": [0]},
             {"topic": "t", "partitions": [0]}]  # fmt: skip
    answer = await elect(client, version, asked)
    codes = {
        (row.topic, one.partition_id): one.error_code
        for row in answer.replica_election_results
        for one in row.partition_result
    }
    assert codes == {
        ("t", 0): ErrorCode.election_not_needed,
        ("t", 7): ErrorCode.unknown_topic_or_partition,
        ("none", 0): ErrorCode.unknown_topic_or_partition,
    }
    answer = await elect(client, version, None)
    assert answer.replica_election_results == (), "nothing is to be told of those that are right"


async def test_a_preferred_leader_that_is_gone_is_not_available(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    topic = broker.cluster.topics["t"]
    object.__setattr__(topic, "assignments", {0: (9, ME)})
    for kind, code in (
        (0, ErrorCode.preferred_leader_not_available), (1, ErrorCode.election_not_needed)
    ):  # fmt: skip
        answer = await elect(client, 2, [{"topic": "t", "partitions": [0]}], kind)
        (row,) = answer.replica_election_results[0].partition_result
        assert row.error_code is code
    answer = await elect(client, 2, None)
    (row,) = answer.replica_election_results[0].partition_result
    assert row.error_message == "broker 9 is not live; the partition goes back to it when that ends"
    assert (await elect(client, 2, None, 7)).error_code is ErrorCode.invalid_request
    answer = await elect(client, 2, [{"topic": "t", "partitions": [0]}], 7)
    (row,) = answer.replica_election_results[0].partition_result
    assert (answer.error_code, row.error_code) == (ErrorCode.invalid_request,) * 2


async def page(client: WireClient, names: list[str], limit: int, cursor: Any = None) -> Any:
    return await client.call(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name} for name in names],
        response_partition_limit=limit, cursor=cursor,
    )  # fmt: skip


async def test_partitions_come_page_by_page(broker: Broker, client: WireClient) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await create_topic(broker, name, partition_count=count)
    for names in ([], ["c", "b", "a", "b"]):
        seen, cursor = [], None
        while True:
            answer = await page(client, names, 2, cursor)
            found = [(row.name, one.partition_index) for row in answer.topics
                     for one in row.partitions]  # fmt: skip
            assert len(found) <= 2
            seen += found
            if answer.next_cursor is None:
                break
            cursor = {
                "topic_name": answer.next_cursor.topic_name,
                "partition_index": answer.next_cursor.partition_index,
            }
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_topics_that_are_not_there_have_a_code(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    answer = await page(client, ["t", "none", "a b"], 2000)
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a b", ErrorCode.invalid_topic_exception),
        ("none", ErrorCode.unknown_topic_or_partition),
        ("t", ErrorCode.none),
    ]
    (row,) = answer.topics[2].partitions
    assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (ME, (ME,), (ME,))
    assert list(broker.cluster.topics) == ["t"], "nothing is created"


@pytest.mark.parametrize(("topic", "index"), [("none", 0), ("z", 0), ("t", -1)])
async def test_a_cursor_that_was_not_ours_is_refused(
    broker: Broker, client: WireClient, topic: str, index: int
) -> None:
    await create_topic(broker)
    cursor = {"topic_name": topic, "partition_index": index}
    answer = await page(client, ["t", "u"], 2000, cursor)
    assert [(row.name, row.error_code, row.partitions) for row in answer.topics] == [
        ("t", ErrorCode.invalid_request, ()),
        ("u", ErrorCode.invalid_request, ()),
    ]
    assert answer.next_cursor is None


async def test_config_resources(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)

    async def listed(version: int, *types: int) -> Any:
        return await client.call(
            ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=[int(one) for one in types]
        )

    both = [("t", ConfigResource.TOPIC), ("1", ConfigResource.BROKER)]
    for types in ((), (ConfigResource.TOPIC, ConfigResource.BROKER)):
        rows = (await listed(1, *types)).config_resources
        assert [(row.resource_name, row.resource_type) for row in rows] == both
    assert (await listed(1, ConfigResource.GROUP)).config_resources == ()
    assert (await listed(1, 99)).error_code is ErrorCode.unsupported_version
    assert (await listed(0)).config_resources == ()


async def test_a_live_broker_stays_registered(client: WireClient) -> None:
    answer = await client.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=ME)
    assert answer.error_code is ErrorCode.invalid_request
    assert "is live: stop it" in answer.error_message
    answer = await client.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=9)
    assert answer.error_code is ErrorCode.broker_id_not_registered


@pytest.mark.parametrize("version", (1, 2))
async def test_there_are_no_directories_to_move_to(
    broker: Broker, client: WireClient, version: int
) -> None:
    await create_topic(broker)
    topics = [{"name": "t", "partitions": [0, 5]}]
    for path, code in (("ledgers", ErrorCode.none), ("/data2", ErrorCode.log_dir_not_found)):
        answer = await client.call(
            ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=[{"path": path, "topics": topics}]
        )
        (row,) = answer.results
        assert [one.error_code for one in row.partitions] == [
            code, ErrorCode.unknown_topic_or_partition
        ]  # fmt: skip


async def test_resetting_what_cannot_be_set_changes_nothing(client: WireClient) -> None:
    async def alter(operation: int) -> Any:
        config = {
            "name": "leader.replication.throttled.rate",
            "config_operation": operation,
            "value": "1" if operation == 0 else None,
        }
        resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
        answer = await client.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        return answer.responses[0].error_code

    assert await alter(1) is ErrorCode.none
    assert await alter(0) is ErrorCode.invalid_request
