"""Creating, deleting, growing and configuring topics over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.cluster.core.topic_config import TOPIC_KEYS, TopicConfig
from broker.settings.core.dynamic_settings import KEPT
from broker.topics.core.config_resource import ConfigResource
from broker.topics.core.topic_rules import TopicShape
from broker.topics.topic_changes import TopicChanges
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.clock import rng
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, fetch, produce

TOPIC = int(ConfigResource.TOPIC)
BROKER = int(ConfigResource.BROKER)


def new_topic(name: str, partitions: int = -1, factor: int = -1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": more.get("assignments", []),
        "configs": [
            {"name": key, "value": value} for key, value in more.get("configs", {}).items()
        ],
    }


async def create(client: WireClient, *topics: dict[str, Any], version: int = 7, **f: Any) -> Any:
    answer = await client.call(
        ApiKey.CREATE_TOPICS, version, topics=list(topics), timeout=1000, **f
    )
    return answer.topics


@pytest.mark.parametrize("version", range(2, 8))
async def test_creation(broker: Broker, client: WireClient, version: int) -> None:
    wanted = new_topic("t", 3, 2, configs={"retention.ms": "7"})
    (row,) = await create(client, wanted, version=version)
    assert (row.name, row.error_code, row.error_message) == ("t", ErrorCode.none, None)
    topic = broker.cluster.topics["t"]
    assert (topic.partition_count, topic.replication_factor) == (3, 2)
    assert topic.config.retention_ms == 7
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (3, 2)
        values = {config.name: config.value for config in row.configs}
        assert values.keys() == TOPIC_KEYS.keys()
        assert values["retention.ms"] == "7"
    if version >= 7:
        assert row.topic_id == topic.topic_id


async def test_the_broker_decides_on_minus_one(broker: Broker, client: WireClient) -> None:
    (row,) = await create(client, new_topic("t"))
    assert (row.num_partitions, row.replication_factor) == (1, 3)


async def test_validation_only(broker: Broker, client: WireClient) -> None:
    good, bad = await create(client, new_topic("t"), new_topic("b", factor=9), validate_only=True)
    assert (good.error_code, good.num_partitions) == (ErrorCode.none, 1)
    assert bad.error_code is ErrorCode.invalid_replication_factor
    assert not broker.cluster.topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic(""), ErrorCode.invalid_topic_exception),
        (new_topic("a b"), ErrorCode.invalid_topic_exception),
        (new_topic("__consumer_offsets", 1), ErrorCode.invalid_topic_exception),
        (new_topic("there"), ErrorCode.topic_already_exists),
        (new_topic("t", 0), ErrorCode.invalid_partitions),
        (new_topic("t", -2), ErrorCode.invalid_partitions),
        (new_topic("t", 1, 0), ErrorCode.invalid_replication_factor),
        (new_topic("t", 1, 4), ErrorCode.invalid_replication_factor),
        (new_topic("t", configs={"no.such": "1"}), ErrorCode.invalid_config),
        (new_topic("t", configs={"retention.ms": "x"}), ErrorCode.invalid_config),
        (new_topic("t", configs={"retention.ms": None}), ErrorCode.invalid_config),
    ],
)
async def test_refusals(
    broker: Broker, client: WireClient, topic: dict[str, Any], code: ErrorCode
) -> None:
    await broker.topics.create("there")
    (row,) = await create(client, topic)
    assert row.error_code is code
    assert row.error_message
    assert list(broker.cluster.topics) == ["there"]


async def test_a_name_twice_refuses_both(broker: Broker, client: WireClient) -> None:
    rows = await create(client, new_topic("a"), new_topic("b"), new_topic("a"))
    assert {row.name: row.error_code for row in rows} == {
        "a": ErrorCode.invalid_request, "b": ErrorCode.none,
    }  # fmt: skip


def assignment(*rows: tuple[int, list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": ids} for index, ids in rows]


async def test_a_manual_assignment_gives_the_numbers(broker: Broker, client: WireClient) -> None:
    me = broker.cluster.controller_id()
    wanted = new_topic("t", assignments=assignment((1, [me]), (0, [me])))
    (row,) = await create(client, wanted)
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 2, 1)
    assert broker.cluster.topics["t"].assignments == {0: (me,), 1: (me,)}
    for bad in (
        assignment((0, [me + 1])),
        assignment((0, [1]), (2, [1])),
        assignment((0, [1]), (1, [1, 2])),
        assignment((0, [1, 1])),
        assignment((0, [])),
    ):
        (row,) = await create(client, new_topic("u", assignments=bad))
        assert row.error_code is ErrorCode.invalid_replica_assignment
    both = new_topic("u", 1, 1, assignments=assignment((0, [1])))
    assert (await create(client, both))[0].error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", range(1, 7))
async def test_deletion(broker: Broker, client: WireClient, version: int) -> None:
    partition = await create_topic(broker)
    names = ["t", "none"]
    answer = await client.call(
        ApiKey.DELETE_TOPICS, version, timeout=1000, topic_names=names,
        topics=[{"name": name, "topic_id": None} for name in names],
    )  # fmt: skip
    gone, missing = answer.responses
    assert (gone.name, gone.error_code) == ("t", ErrorCode.none)
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert not broker.cluster.topics
    await until(lambda: not partition.is_open)


async def test_deletion_by_id(broker: Broker, client: WireClient) -> None:
    topic_id = (await create_topic(broker)).topic.topic_id
    unknown = type(topic_id)(int=99)
    rows = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown}]
    answer = await client.call(ApiKey.DELETE_TOPICS, 6, timeout=1000, topics=rows)
    gone, missing = answer.responses
    assert (gone.name, gone.topic_id, gone.error_code) == ("t", topic_id, ErrorCode.none)
    assert missing.error_code is ErrorCode.unknown_topic_id


async def test_an_id_means_that_topic_and_a_name_the_one_that_has_it_now(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    """Another broker has made the topic anew, and this one's view does not show that yet."""
    old = (await create_topic(broker)).topic
    other = TopicChanges(cloud.tree.session(), cloud.clock, rng(9))
    cloud.tree.freeze(cloud.stores[1])
    await other.delete(old)
    shape = TopicShape(1, 3, TopicConfig({}))
    new = await other.create("t", shape, internal=False, assignments={})
    rows = [{"name": None, "topic_id": old.topic_id}]
    (row,) = (await client.call(ApiKey.DELETE_TOPICS, 6, timeout=1000, topics=rows)).responses
    assert (row.topic_id, row.error_code) == (old.topic_id, ErrorCode.unknown_topic_id)
    assert broker.cluster.topics["t"].topic_id == new.topic_id
    broker.cluster.topics = {"t": old}
    rows = [{"name": "t", "topic_id": None}]
    (row,) = (await client.call(ApiKey.DELETE_TOPICS, 6, timeout=1000, topics=rows)).responses
    assert (row.topic_id, row.error_code) == (new.topic_id, ErrorCode.none)


async def test_internal_topics_stay(broker: Broker, client: WireClient) -> None:
    await create_topic(broker, "__consumer_offsets", internal=True)
    (row,) = (
        await client.call(ApiKey.DELETE_TOPICS, 5, topic_names=["__consumer_offsets"])
    ).responses
    assert row.error_code is ErrorCode.policy_violation
    grown = [{"name": "__consumer_offsets", "count": 9, "assignments": None}]
    (row,) = (await client.call(ApiKey.CREATE_PARTITIONS, 3, topics=grown)).results
    assert row.error_code is ErrorCode.policy_violation


async def test_a_recreated_topic_starts_afresh(broker: Broker, client: WireClient) -> None:
    await create_topic(broker)
    numbered = batch(b"old", producer_id=5, producer_epoch=0, base_sequence=0)
    await produce(client, numbered)
    await client.call(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    await until(lambda: broker.partitions.find("t", 0) is None)
    await create_topic(broker)
    assert (await fetch(client, 0)).high_watermark == 0
    again = batch(b"new", producer_id=5, producer_epoch=0, base_sequence=0)
    assert (await produce(client, again)).base_offset == 0
    assert (await fetch(client, 0)).high_watermark == 1


@pytest.mark.parametrize("version", range(4))
async def test_growing(broker: Broker, client: WireClient, version: int) -> None:
    await create_topic(broker)
    rows = [
        {"name": name, "count": count, "assignments": None}
        for name, count in (("t", 3), ("none", 2))
    ]
    answer = await client.call(ApiKey.CREATE_PARTITIONS, version, topics=rows)
    assert [row.error_code for row in answer.results] == [
        ErrorCode.none, ErrorCode.unknown_topic_or_partition,
    ]  # fmt: skip
    await until(lambda: broker.partitions.find("t", 2) is not None)
    smaller = [{"name": "t", "count": 3, "assignments": None}]
    (row,) = (await client.call(ApiKey.CREATE_PARTITIONS, version, topics=smaller)).results
    assert row.error_code is ErrorCode.invalid_partitions
    dry = [{"name": "t", "count": 9, "assignments": None}]
    answer = await client.call(ApiKey.CREATE_PARTITIONS, version, topics=dry, validate_only=True)
    assert answer.results[0].error_code is ErrorCode.none
    assert broker.cluster.topics["t"].partition_count == 3


async def test_an_assignment_has_a_list_for_each_new_partition(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    for count, assignments, code in (
        (3, [], ErrorCode.invalid_replica_assignment),
        (3, [[1]], ErrorCode.invalid_replica_assignment),
        (3, [[1], [77]], ErrorCode.invalid_replica_assignment),
        (1, [[77]], ErrorCode.invalid_partitions),
        (3, [[1], [1]], ErrorCode.none),
    ):
        rows = [{"name": "t", "count": count,
                 "assignments": [{"broker_ids": brokers} for brokers in assignments]}]  # fmt: skip
        (row,) = (await client.call(ApiKey.CREATE_PARTITIONS, 3, topics=rows)).results
        assert (row.error_code, row.error_message is None) == (code, code is ErrorCode.none)
    assert broker.cluster.topics["t"].assignments == {1: (1,), 2: (1,)}


async def describe(client: WireClient, kind: int, name: str, version: int = 4, **f: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name,
                "configuration_keys": f.pop("keys", None)}  # fmt: skip
    answer = await client.call(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **f)
    return answer.results[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_topic_setting_is_described(
    broker: Broker, client: WireClient, version: int
) -> None:
    await broker.topics.create("t", 1, 1, {"retention.ms": "7"})
    result = await describe(client, TOPIC, "t", version)
    assert (result.error_code, result.resource_name) == (ErrorCode.none, "t")
    rows = {row.name: row for row in result.configs}
    assert rows.keys() == TOPIC_KEYS.keys()
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("7", 1)
    assert (rows["segment.bytes"].value, rows["segment.bytes"].config_source) == ("1073741824", 5)
    assert rows["min.insync.replicas"].value == "1"
    assert not rows["retention.ms"].is_sensitive
    assert rows["retention.ms"].synonyms == ()


async def test_descriptions_can_be_narrowed_and_explained(
    broker: Broker, client: WireClient
) -> None:
    await broker.topics.create("t")
    result = await describe(
        client, TOPIC, "t", keys=["retention.ms"], include_synonyms=True,
        include_documentation=True,
    )  # fmt: skip
    (row,) = result.configs
    assert (row.name, row.config_type) == ("retention.ms", 5)
    assert row.documentation
    assert [same.source for same in row.synonyms] == [5]


async def test_broker_settings_are_described(broker: Broker, client: WireClient) -> None:
    result = await describe(client, BROKER, "1")
    rows = {row.name: row for row in result.configs}
    assert rows["listeners"].value == f"PLAINTEXT://127.0.0.1:{broker.port}"
    assert rows["auto.create.topics.enable"].value == "true"
    assert all(row.config_source == (5 if row.name in KEPT else 4) for row in result.configs)
    assert rows["listeners"].read_only and not rows["num.partitions"].read_only
    assert (await describe(client, BROKER, "")).configs == ()
    explained = await describe(client, BROKER, "1", include_documentation=True)
    assert all(row.documentation for row in explained.configs)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (8, "2", ErrorCode.invalid_request),
        (77, "1", ErrorCode.invalid_request),
        (32, "", ErrorCode.invalid_request),
    ],
)
async def test_other_resources(
    broker: Broker, client: WireClient, kind: int, name: str, code: ErrorCode
) -> None:
    result = await describe(client, kind, name)
    assert (result.error_code, result.configs) == (code, ())


async def alter(client: WireClient, key: ApiKey, version: int, *configs: Any, **f: Any) -> Any:
    resource = {"resource_type": f.pop("kind", TOPIC), "resource_name": f.pop("name", "t"),
                "configs": list(configs)}  # fmt: skip
    answer = await client.call(key, version, resources=[resource], **f)
    return answer.responses[0]


def setting(name: str, value: str | None, operation: int = 0) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


@pytest.mark.parametrize("version", range(3))
async def test_replacing_all_settings(broker: Broker, client: WireClient, version: int) -> None:
    await broker.topics.create("t", config={"retention.ms": "7"})
    result = await alter(client, ApiKey.ALTER_CONFIGS, version, setting("segment.ms", "8"))
    assert result.error_code is ErrorCode.none
    assert broker.cluster.topics["t"].config.overrides == {"segment.ms": "8"}


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("t", [setting("segment.ms", None)], ErrorCode.invalid_request),
        ("t", [setting("no.such", None)], ErrorCode.invalid_request),
        ("t", [setting("segment.ms", "1"), setting("segment.ms", "2")], ErrorCode.invalid_request),
        ("t", [setting("segment.ms", "soon")], ErrorCode.invalid_config),
        ("", [setting("segment.ms", "1")], ErrorCode.invalid_request),
        ("a b", [setting("segment.ms", "1")], ErrorCode.invalid_topic_exception),
        ("none", [setting("segment.ms", "1")], ErrorCode.unknown_topic_or_partition),
    ],
)
async def test_what_cannot_replace_settings(
    broker: Broker, client: WireClient, name: str, changes: list[Any], code: ErrorCode
) -> None:
    await broker.topics.create("t", config={"retention.ms": "7"})
    result = await alter(client, ApiKey.ALTER_CONFIGS, 2, *changes, name=name)
    assert (result.error_code, bool(result.error_message)) == (code, True)
    assert broker.cluster.topics["t"].config.overrides == {"retention.ms": "7"}


@pytest.mark.parametrize("version", range(2))
async def test_changing_single_settings(broker: Broker, client: WireClient, version: int) -> None:
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    partition = await create_topic(broker, config={"retention.ms": "7"})
    steps: list[tuple[list[Any], dict[str, str]]] = [
        ([setting("segment.ms", "8")], {"retention.ms": "7", "segment.ms": "8"}),
        ([setting("retention.ms", None, 1)], {"segment.ms": "8"}),
        ([setting("cleanup.policy", "compact", 2)],
         {"segment.ms": "8", "cleanup.policy": "delete,compact"}),
        ([setting("cleanup.policy", "delete", 3), setting("segment.ms", None, 1)],
         {"cleanup.policy": "compact"}),
        ([setting("cleanup.policy", "compact", 3)], {"cleanup.policy": ""}),
        ([setting("cleanup.policy", "compact")], {"cleanup.policy": "compact"}),
    ]  # fmt: skip
    for changes, expected in steps:
        result = await alter(client, key, version, *changes)
        assert result.error_code is ErrorCode.none
        assert broker.cluster.topics["t"].config.overrides == expected
    await until(lambda: partition.topic.config.compacts)
    keyless = await produce(client, batch(b"v"))
    assert keyless.error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([setting("no.such", "1")], ErrorCode.invalid_config),
        ([setting("segment.ms", "x")], ErrorCode.invalid_config),
        ([setting("segment.ms", None)], ErrorCode.invalid_request),
        ([setting("segment.ms", "1", 2)], ErrorCode.invalid_config),
        ([setting("no.such", "1", 2)], ErrorCode.invalid_config),
        ([setting("segment.ms", "1", 9)], ErrorCode.invalid_request),
        ([setting("segment.ms", "1"), setting("segment.ms", "2")], ErrorCode.invalid_request),
        ([setting("min.insync.replicas", "9")], ErrorCode.invalid_config),
    ],
)
async def test_bad_changes_change_nothing(
    broker: Broker, client: WireClient, changes: list[Any], code: ErrorCode
) -> None:
    await broker.topics.create("t", config={"retention.ms": "7"})
    result = await alter(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, *changes)
    assert result.error_code is code
    assert result.error_message
    assert broker.cluster.topics["t"].config.overrides == {"retention.ms": "7"}


async def test_what_cannot_be_configured(broker: Broker, client: WireClient) -> None:
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    change = setting("segment.ms", "1")
    for kind, name, code in (
        (TOPIC, "none", ErrorCode.unknown_topic_or_partition),
        (BROKER, "1", ErrorCode.invalid_config),
        (8, "2", ErrorCode.invalid_request),
    ):
        result = await alter(client, key, 1, change, kind=kind, name=name)
        assert result.error_code is code


async def test_validating_a_change(broker: Broker, client: WireClient) -> None:
    await broker.topics.create("t")
    result = await alter(
        client, ApiKey.ALTER_CONFIGS, 2, setting("segment.ms", "1"), validate_only=True
    )
    assert result.error_code is ErrorCode.none
    assert broker.cluster.topics["t"].config.overrides == {}


async def test_a_topic_that_cannot_be_does_not_grow(client: WireClient) -> None:
    rows = [{"name": name, "count": 2, "assignments": None} for name in ("", "..", "a/b")]
    answer = await client.call(ApiKey.CREATE_PARTITIONS, 3, topics=rows)
    assert [row.error_code for row in answer.results] == [ErrorCode.unknown_topic_or_partition] * 3


async def test_a_topic_to_delete_needs_a_name_or_an_id(client: WireClient) -> None:
    rows = [{"name": None, "topic_id": None}]
    (row,) = (await client.call(ApiKey.DELETE_TOPICS, 6, topics=rows)).responses
    assert row.error_code is ErrorCode.invalid_request
