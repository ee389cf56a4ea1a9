"""Every API and every operation: without the right, the field's own error and no effect."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import pkgutil
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from broker.access import rights
from broker.access.rights import Need
from broker.app import Broker
from broker.errors import BrokerError, InvalidRequest
from broker.front import handlers as catalogue
from broker.front.handlers.registry import handlers
from broker.front.services import Peer
from broker.groups.core.group_types import Commit, OffsetToCommit
from broker.security.config import SecurityConfig
from broker.security.core.acls import (
    CLUSTER_NAME,
    IMPLIED_BY,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from broker.transactions.config import TransactionSettings
from client.metadata import paths
from client.wire.kafka.apis import LINK_API_KEY, ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import (
    batch,
    create_topic,
    fetch_fields,
    produce_fields,
)

REFUSALS = {29, 30, 31, 53}
CODES = {
    ResourceType.TOPIC: 29,
    ResourceType.GROUP: 30,
    ResourceType.CLUSTER: 31,
    ResourceType.TRANSACTIONAL_ID: 53,
}


ANY = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


class Row(NamedTuple):
    """A request, and what it needs: all of it."""

    label: str
    key: ApiKey
    version: int
    fields: Mapping[str, Any]
    needs: Mapping[Need, str]
    """Need -> the name of what."""


def row(label: str, key: ApiKey, version: int, *needs: tuple[Need, str], **fields: Any) -> Row:
    return Row(label, key, version, fields, dict(needs))


PARTITION = {"name": "t", "partitions": [{"partition_index": 0}]}
ENTRY = {
    "resource_type": 2, "resource_name": "x", "resource_pattern_type": 3, "principal": "User:x",
    "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": "User:someone", "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
TXN = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0}
V3_TXN = {f"v3_and_below_{name}": value for name, value in TXN.items()}
MEMBER = {"group_id": "g", "member_id": "", "generation_id": 1}
RESET = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
SCRAM = {"name": "x", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
CLUSTER = CLUSTER_NAME

ROWS = [
    row("produce", ApiKey.PRODUCE, 9, (rights.WRITE_TOPIC, "t"), **produce_fields(batch(b"v"))),
    row("produce in a transaction", ApiKey.PRODUCE, 9, (rights.WRITE_TOPIC, "t"),
        (rights.WRITE_TRANSACTIONAL_ID, "x"),
        **{**produce_fields(batch(b"v")), "transactional_id": "x"}),
    row("fetch", ApiKey.FETCH, 12, (rights.READ_TOPIC, "t"), **fetch_fields(0)),
    row("list offsets", ApiKey.LIST_OFFSETS, 7, (rights.DESCRIBE_TOPIC, "t"), replica_id=-1,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]),
    row("metadata", ApiKey.METADATA, 9, (rights.DESCRIBE_TOPIC, "t"), topics=[{"name": "t"}]),
    row("metadata that creates", ApiKey.METADATA, 9, (rights.DESCRIBE_TOPIC, "new"),
        (rights.CREATE_TOPIC, "new"), topics=[{"name": "new"}], allow_auto_topic_creation=True),
    row("commit", ApiKey.OFFSET_COMMIT, 8, (rights.READ_GROUP, "g"), (rights.READ_TOPIC, "t"),
        group_id="g", generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1,
                                                     "committed_metadata": ""}]}]),
    row("committed", ApiKey.OFFSET_FETCH, 8, (rights.DESCRIBE_GROUP, "g"),
        (rights.DESCRIBE_TOPIC, "t"),
        groups=[{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]),
    row("coordinator of a group", ApiKey.FIND_COORDINATOR, 4, (rights.DESCRIBE_GROUP, "g"),
        key_type=0, coordinator_keys=["g"]),
    row("coordinator of transactions", ApiKey.FIND_COORDINATOR, 4,
        (rights.DESCRIBE_TRANSACTIONAL_ID, "x"), key_type=1, coordinator_keys=["x"]),
    row("join", ApiKey.JOIN_GROUP, 3, (rights.READ_GROUP, "g"), group_id="g", member_id="",
        protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
        session_timeout=10_000, rebalance_timeout=10_000),
    row("sync", ApiKey.SYNC_GROUP, 3, (rights.READ_GROUP, "g"), **MEMBER),
    row("heartbeat", ApiKey.HEARTBEAT, 3, (rights.READ_GROUP, "g"), **MEMBER),
    row("leave", ApiKey.LEAVE_GROUP, 4, (rights.READ_GROUP, "g"), group_id="g",
        members=[{"member_id": "m"}]),
    row("describe groups", ApiKey.DESCRIBE_GROUPS, 5, (rights.DESCRIBE_GROUP, "g"), groups=["g"]),
    row("delete groups", ApiKey.DELETE_GROUPS, 2, (rights.DELETE_GROUP, "g"), groups_names=["g"]),
    row("delete offsets", ApiKey.OFFSET_DELETE, 0, (rights.DELETE_GROUP, "g"),
        (rights.READ_TOPIC, "t"), group_id="g", topics=[PARTITION]),
    row("create topics", ApiKey.CREATE_TOPICS, 5, (rights.CREATE_TOPIC, "new"),
        (rights.DESCRIBE_CONFIGS_TOPIC, "new"),
        topics=[{"name": "new", "num_partitions": 1, "replication_factor": 1,
                 "assignments": [], "configs": []}]),
    row("delete topics", ApiKey.DELETE_TOPICS, 5, (rights.DELETE_TOPIC, "t"), topic_names=["t"]),
    row("delete records", ApiKey.DELETE_RECORDS, 2, (rights.DELETE_TOPIC, "t"),
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]),
    row("create partitions", ApiKey.CREATE_PARTITIONS, 3, (rights.ALTER_TOPIC, "t"),
        topics=[{"name": "t", "count": 5, "assignments": None}]),
    row("epochs", ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, (rights.DESCRIBE_TOPIC, "t"), replica_id=-2,
        topics=[{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1,
                                                   "leader_epoch": 0}]}]),
    row("producer id", ApiKey.INIT_PRODUCER_ID, 4, (rights.IDEMPOTENT_WRITE, CLUSTER),
        transactional_id=None),
    row("begin", ApiKey.INIT_PRODUCER_ID, 4, (rights.WRITE_TRANSACTIONAL_ID, "x"),
        transactional_id="x", transaction_timeout=1_000, producer_id=-1, producer_epoch=-1),
    row("add partitions", ApiKey.ADD_PARTITIONS_TO_TXN, 3, (rights.WRITE_TRANSACTIONAL_ID, "x"),
        (rights.WRITE_TOPIC, "t"), **V3_TXN,
        v3_and_below_topics=[{"name": "t", "partitions": [0]}]),
    row("add partitions for others", ApiKey.ADD_PARTITIONS_TO_TXN, 4,
        (rights.CLUSTER_ACTION, CLUSTER),
        transactions=[{**TXN, "topics": [{"name": "t", "partitions": [0]}]}]),
    row("add offsets", ApiKey.ADD_OFFSETS_TO_TXN, 3, (rights.WRITE_TRANSACTIONAL_ID, "x"),
        (rights.READ_GROUP, "g"), **TXN, group_id="g"),
    row("end", ApiKey.END_TXN, 3, (rights.WRITE_TRANSACTIONAL_ID, "x"), **TXN, committed=True),
    row("commit in a transaction", ApiKey.TXN_OFFSET_COMMIT, 3, (rights.READ_GROUP, "g"),
        (rights.READ_TOPIC, "t"), (rights.WRITE_TRANSACTIONAL_ID, "x"), **TXN, group_id="g",
        member_id="", generation_id=-1, group_instance_id=None,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1,
                                              "committed_leader_epoch": -1,
                                              "committed_metadata": ""}]}]),
    row("write markers", ApiKey.WRITE_TXN_MARKERS, 1, (rights.CLUSTER_ACTION, CLUSTER),
        markers=[{"producer_id": 7, "producer_epoch": 0, "transaction_result": False,
                  "coordinator_epoch": 0,
                  "topics": [{"name": "t", "partition_indexes": [0]}]}]),
    row("describe transactions", ApiKey.DESCRIBE_TRANSACTIONS, 0,
        (rights.DESCRIBE_TRANSACTIONAL_ID, "x"), transactional_ids=["x"]),
    row("describe producers", ApiKey.DESCRIBE_PRODUCERS, 0, (rights.READ_TOPIC, "t"),
        topics=[{"name": "t", "partition_indexes": [0]}]),
    row("describe acls", ApiKey.DESCRIBE_ACLS, 2, (rights.DESCRIBE_CLUSTER, CLUSTER), **FILTER),
    row("create acls", ApiKey.CREATE_ACLS, 2, (rights.ALTER_CLUSTER, CLUSTER), creations=[ENTRY]),
    row("delete acls", ApiKey.DELETE_ACLS, 2, (rights.ALTER_CLUSTER, CLUSTER), filters=[FILTER]),
    row("describe a topic's settings", ApiKey.DESCRIBE_CONFIGS, 4,
        (rights.DESCRIBE_CONFIGS_TOPIC, "t"),
        resources=[{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]),
    row("describe a broker's settings", ApiKey.DESCRIBE_CONFIGS, 4,
        (rights.DESCRIBE_CONFIGS_CLUSTER, CLUSTER),
        resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]),
    row("describe loggers", ApiKey.DESCRIBE_CONFIGS, 4, (rights.DESCRIBE_CONFIGS_CLUSTER, CLUSTER),
        resources=[{"resource_type": 8, "resource_name": "1", "configuration_keys": None}]),
    row("describe a group's settings", ApiKey.DESCRIBE_CONFIGS, 4,
        (rights.DESCRIBE_CONFIGS_GROUP, "g"),
        resources=[{"resource_type": 32, "resource_name": "g", "configuration_keys": None}]),
    row("replace settings", ApiKey.ALTER_CONFIGS, 2, (rights.ALTER_CONFIGS_TOPIC, "t"),
        resources=[{"resource_type": 2, "resource_name": "t",
                    "configs": [{"name": "retention.ms", "value": "1"}]}]),
    row("replace a broker's settings", ApiKey.ALTER_CONFIGS, 2,
        (rights.ALTER_CONFIGS_CLUSTER, CLUSTER),
        resources=[{"resource_type": 4, "resource_name": "1", "configs": []}]),
    row("change settings", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, (rights.ALTER_CONFIGS_TOPIC, "t"),
        resources=[{"resource_type": 2, "resource_name": "t", "configs": RESET}]),
    row("change a broker's settings", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
        (rights.ALTER_CONFIGS_CLUSTER, CLUSTER),
        resources=[{"resource_type": 4, "resource_name": "1", "configs": []}]),
    row("move between directories", ApiKey.ALTER_REPLICA_LOG_DIRS, 2,
        (rights.ALTER_CLUSTER, CLUSTER),
        dirs=[{"path": "ledgers", "topics": [{"name": "t", "partitions": [0]}]}]),
    row("describe directories", ApiKey.DESCRIBE_LOG_DIRS, 4, (rights.DESCRIBE_CLUSTER, CLUSTER),
        topics=None),
    row("elect", ApiKey.ELECT_LEADERS, 2, (rights.ALTER_CLUSTER, CLUSTER),
        topic_partitions=[{"topic": "t", "partitions": [0]}]),
    row("elect of old", ApiKey.ELECT_LEADERS, 0, (rights.ALTER_CLUSTER, CLUSTER),
        topic_partitions=[{"topic": "t", "partitions": [0]}]),
    row("reassign", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, (rights.ALTER_CLUSTER, CLUSTER),
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]),
    row("reassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0,
        (rights.DESCRIBE_CLUSTER, CLUSTER), topics=None),
    row("describe users", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0,
        (rights.DESCRIBE_CLUSTER, CLUSTER), users=None),
    row("alter users", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, (rights.ALTER_CLUSTER, CLUSTER),
        upsertions=[SCRAM]),
    row("describe quotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, 1,
        (rights.DESCRIBE_CONFIGS_CLUSTER, CLUSTER), components=[], strict=False),
    row("alter quotas", ApiKey.ALTER_CLIENT_QUOTAS, 1, (rights.ALTER_CONFIGS_CLUSTER, CLUSTER),
        validate_only=False, entries=[{"entity": [{"entity_type": "user", "entity_name": "x"}],
                 "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}]),
    row("change features", ApiKey.UPDATE_FEATURES, 2, (rights.ALTER_CLUSTER, CLUSTER),
        feature_updates=[]),
    row("unregister", ApiKey.UNREGISTER_BROKER, 0, (rights.ALTER_CLUSTER, CLUSTER), broker_id=9),
    row("list what has settings", ApiKey.LIST_CONFIG_RESOURCES, 0,
        (rights.DESCRIBE_CONFIGS_CLUSTER, CLUSTER)),
    row("describe partitions", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, (rights.DESCRIBE_TOPIC, "t"),
        topics=[{"name": "t"}], response_partition_limit=9, cursor=None),
]  # fmt: skip

SERVED = [one for one in ROWS if one.key in {handler.key for handler in handlers()}]

ELSEWHERE = {
    (ApiKey.LIST_GROUPS, rights.DESCRIBE_CLUSTER),
    (ApiKey.LIST_GROUPS, rights.DESCRIBE_GROUP),
    (ApiKey.LIST_TRANSACTIONS, rights.DESCRIBE_TRANSACTIONAL_ID),
    (ApiKey.METADATA, rights.CREATE_CLUSTER),
    (ApiKey.METADATA, rights.DESCRIBE_CLUSTER),
    (ApiKey.DESCRIBE_CLUSTER, rights.DESCRIBE_CLUSTER),
    (ApiKey.CREATE_TOPICS, rights.CREATE_CLUSTER),
    (ApiKey.DELETE_TOPICS, rights.DESCRIBE_TOPIC),
    (ApiKey.INIT_PRODUCER_ID, rights.WRITE_TOPIC),
    (ApiKey.DESCRIBE_TRANSACTIONS, rights.DESCRIBE_TOPIC),
    (LINK_API_KEY, rights.CLUSTER_ACTION),
    (ApiKey.WRITE_TXN_MARKERS, rights.ALTER_CLUSTER),
}
"""Needs that are no condition by themselves, with tests of their own below, or in `broker/link`."""


def declared() -> set[tuple[int, Need]]:
    """Return what the modules of all APIs declare."""
    found = set()
    for info in pkgutil.iter_modules(catalogue.__path__):
        module = importlib.import_module(f"{catalogue.__name__}.{info.name}")
        if hasattr(module, "KEY"):
            found |= {(int(module.KEY), need) for need in module.NEEDS}
    return found


def test_the_table_has_every_need_that_an_api_declares() -> None:
    tested = {(int(one.key), need) for one in ROWS for need in one.needs}
    elsewhere = {(int(key), need) for key, need in ELSEWHERE}
    assert tested | elsewhere == declared()
    assert not tested & elsewhere


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    """With nobody who may do anything."""
    return await start(cloud, "User:root")


async def start(cloud: FakeCloud, super_user: str) -> Broker:
    """With topic t, group g, which has an offset, and a coordinator of transactions."""
    security = SecurityConfig(authorization=True, super_users=(super_user,))
    transactions = TransactionSettings(enabled=True, topic_partitions=2)
    broker = await cloud.start_broker(1, security=security, transactions=transactions)
    await create_topic(broker)
    await broker.services.groups.find("g")
    await broker.services.transactions.find("x")
    await until(lambda: not broker.missing() and is_coordinating(broker))
    await with_offset(broker)
    return broker


async def with_offset(broker: Broker) -> None:
    """Commit an offset of group g."""
    coordinator = broker.services.groups.coordinator("g")
    commit = Commit(group_id="g", member_id="", instance_id=None, generation=-1)
    assert await coordinator.commit(commit, [OffsetToCommit("t", 0, 1, -1, "")]) == (None,)


def is_coordinating(broker: Broker) -> bool:
    try:
        broker.services.groups.coordinator("g").view()
        broker.services.transactions.coordinator("x").view()
    except BrokerError:
        return False
    return True


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(broker.port)
    yield made
    await made.close()


def entry(
    need: Need, name: str, permission: Permission = Permission.ALLOW, user: str = "ANONYMOUS"
) -> Acl:
    return Acl(
        need.kind, name, PatternType.LITERAL, f"User:{user}", "127.0.0.1", need.operation,
        permission,
    )  # fmt: skip


async def grant(broker: Broker, *acls: Acl) -> None:
    for acl in acls:
        await broker.services.rights.acls.add([acl])


def codes(answer: Any) -> Iterator[int]:
    """Yield every error code of an answer, wherever it is."""
    if isinstance(answer, tuple):
        for one in answer:
            yield from codes(one)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)


async def refusals(client: WireClient, one: Row) -> set[int]:
    answer = await client.call(one.key, one.version, **one.fields)
    return set(codes(answer)) & REFUSALS


def state(broker: Broker) -> Any:
    """Return everything that one of the requests could have changed."""
    partition = broker.partitions.find("t", 0)
    groups = [
        [coordinator.view().describe(each) for each in coordinator.view().group_ids()]
        for coordinator in broker.services.groups.coordinators()
    ]
    return (
        dict(broker.cluster.topics),
        None if partition is None else (partition.high_watermark, partition.log_start_offset),
        groups,
        broker.services.users.names(),
        broker.services.rights.acls.find(ANY),
    )


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_each_need_is_one(broker: Broker, client: WireClient, one: Row) -> None:
    """With all but one of the rights the request is refused and changes nothing."""
    for missing in one.needs:
        others = [entry(need, name) for need, name in one.needs.items() if need != missing]
        await grant(broker, *others)
        before = state(broker)
        assert await refusals(client, one) == {CODES[missing.kind]}, missing
        if (one.key, missing) != (ApiKey.CREATE_TOPICS, rights.DESCRIBE_CONFIGS_TOPIC):
            assert state(broker) == before, missing
        await broker.services.rights.acls.remove(ANY)
    assert broker.services.rights.denied > 0


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_all_of_them_are_enough(broker: Broker, client: WireClient, one: Row) -> None:
    await grant(broker, *(entry(need, name) for need, name in one.needs.items()))
    assert await refusals(client, one) == set()


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_a_denial_takes_each_of_them(broker: Broker, client: WireClient, one: Row) -> None:
    for denied in one.needs:
        await grant(broker, *(entry(need, name) for need, name in one.needs.items()))
        await grant(broker, entry(denied, one.needs[denied], Permission.DENY))
        assert await refusals(client, one) == {CODES[denied.kind]}
        await broker.services.rights.acls.remove(ANY)


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_no_other_operation_is_enough(broker: Broker, client: WireClient, one: Row) -> None:
    """Every operation by itself, on everything: it serves those that it names or implies."""
    # ALL comes last: it is enough, and some requests can be served once only.
    last = [] if one.label == "join" else [Operation.ALL]
    for operation in [*(each for each in Operation if each > Operation.ALL), *last]:
        kinds = [kind for kind in ResourceType if kind is not ResourceType.ANY]
        names = {kind: CLUSTER if kind is ResourceType.CLUSTER else "*" for kind in kinds}
        await grant(broker, *(entry(Need(operation, kind), names[kind]) for kind in kinds))
        left = {
            need for need in one.needs
            if operation not in (need.operation, Operation.ALL)
            and operation not in IMPLIED_BY.get(need.operation, ())
        }  # fmt: skip
        if (one.label, operation) in EITHER:
            left = set()
        if left:
            assert await refusals(client, one) == {CODES[need.kind] for need in left} or (
                {CODES[need.kind] for need in left} > await refusals(client, one) > set()
            ), operation
        else:
            assert await refusals(client, one) == set(), operation
        await broker.services.rights.acls.remove(ANY)


EITHER = {
    ("producer id", Operation.WRITE),  # whoever may write somewhere may have one
    ("write markers", Operation.ALTER),
}
"""Operations that are enough although they are not what is needed."""


# --- rights that are no condition by themselves


async def with_topics(broker: Broker, *names: str) -> None:
    for name in names:
        await create_topic(broker, name)


async def test_topics_that_may_not_be_seen_are_not_there(
    broker: Broker, client: WireClient
) -> None:
    await with_topics(broker, "seen")
    await grant(broker, entry(rights.DESCRIBE_TOPIC, "seen"))
    answer = await client.call(ApiKey.METADATA, 9, topics=None)
    assert [one.name for one in answer.topics] == ["seen"]
    answer = await client.call(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=9, cursor=None
    )
    assert [one.name for one in answer.topics] == ["seen"]


async def test_hidden_and_absent_topics_look_the_same(broker: Broker, client: WireClient) -> None:
    for key, version, more in (
        (ApiKey.METADATA, 9, {"allow_auto_topic_creation": True}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"response_partition_limit": 9, "cursor": None}),
        (ApiKey.DELETE_TOPICS, 6, {}),
    ):
        absent, hidden = [
            (await client.call(key, version, topics=[{"name": name, "topic_id": None}], **more))
            for name in ("absent", "t")
        ]
        assert set(codes(absent)) == set(codes(hidden)) == {29}
    assert [one for one in broker.cluster.topics if one[0] != "_"] == ["t"]


async def test_a_hidden_topic_has_no_id(broker: Broker, client: WireClient) -> None:
    topic_id = broker.cluster.topics["t"].topic_id
    answer = await client.call(ApiKey.METADATA, 12, topics=[{"name": None, "topic_id": topic_id}])
    assert (answer.topics[0].error_code, answer.topics[0].name) == (100, None)
    answer = await client.call(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}]
    )
    assert (answer.responses[0].error_code, answer.responses[0].name) == (29, None)
    await grant(broker, entry(rights.DESCRIBE_TOPIC, "t"))
    answer = await client.call(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}]
    )
    assert (answer.responses[0].error_code, answer.responses[0].name) == (29, "t")
    assert "t" in broker.cluster.topics


@pytest.mark.parametrize("need", [rights.CREATE_CLUSTER, rights.CREATE_TOPIC])
async def test_either_right_to_create_is_enough(
    broker: Broker, client: WireClient, need: Need
) -> None:
    name = CLUSTER if need is rights.CREATE_CLUSTER else "*"
    await grant(broker, entry(need, name), entry(rights.DESCRIBE_TOPIC, "*"))
    await client.call(
        ApiKey.METADATA, 9, topics=[{"name": "first"}], allow_auto_topic_creation=True
    )
    rows = [
        {
            "name": "second",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
    ]
    await client.call(ApiKey.CREATE_TOPICS, 5, topics=rows)
    assert {"first", "second"} <= broker.cluster.topics.keys()


async def test_settings_of_a_new_topic_are_shown_to_who_may_see_them(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.CREATE_CLUSTER, CLUSTER))
    rows = [
        {
            "name": "new",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
    ]
    (created,) = (await client.call(ApiKey.CREATE_TOPICS, 5, topics=rows)).topics
    assert (created.error_code, created.topic_config_error_code) == (0, 29)
    assert (created.num_partitions, created.configs) == (-1, None)
    assert "new" in broker.cluster.topics


async def test_who_may_write_somewhere_may_have_a_producer_id(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.WRITE_TOPIC, "elsewhere"))
    answer = await client.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    assert answer.error_code == 0
    await grant(broker, entry(rights.WRITE_TOPIC, "*", Permission.DENY))
    answer = await client.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    assert answer.error_code == 31


async def all_codes(client: WireClient, one: Row, **changes: Any) -> set[int]:
    return set(codes(await client.call(one.key, one.version, **{**one.fields, **changes})))


async def groups_seen(client: WireClient) -> list[str]:
    answer = await client.call(ApiKey.LIST_GROUPS, 4)
    assert answer.error_code == 0
    return sorted(one.group_id for one in answer.groups)


async def test_groups_that_may_not_be_seen_are_not_listed(
    broker: Broker, client: WireClient
) -> None:
    everything = [
        entry(Need(Operation.ALL, kind), "*") for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    await grant(broker, *everything)
    await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a"])
    commit = next(one for one in ROWS if one.label == "commit")
    for group in ("a", "b"):
        async with asyncio.timeout(5):
            while set(codes(await client.call(8, 8, **{**commit.fields, "group_id": group}))) != {
                0
            }:
                pass
    assert await groups_seen(client) == ["a", "b", "g"]
    await broker.services.rights.acls.remove(ANY)
    assert await groups_seen(client) == []
    await grant(broker, entry(rights.DESCRIBE_GROUP, "b"))
    assert await groups_seen(client) == ["b"]
    await grant(broker, entry(rights.DESCRIBE_CLUSTER, CLUSTER))
    assert await groups_seen(client) == ["a", "b", "g"]


async def test_all_offsets_are_those_of_topics_that_may_be_seen(
    broker: Broker, client: WireClient
) -> None:
    await with_topics(broker, "seen")
    await grant(broker, *(entry(Need(Operation.ALL, kind), "*") for kind in (
        ResourceType.TOPIC, ResourceType.GROUP)))  # fmt: skip
    await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    rows = [
        {
            "name": name,
            "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
        }
        for name in ("seen", "t")
    ]
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": rows}
    async with asyncio.timeout(5):
        while set(codes(await client.call(ApiKey.OFFSET_COMMIT, 8, **commit))) != {0}:
            pass
    await broker.services.rights.acls.remove(ANY)
    await grant(broker, entry(rights.DESCRIBE_GROUP, "g"), entry(rights.DESCRIBE_TOPIC, "seen"))
    asked = [{"group_id": "g", "topics": None}]
    (found,) = (await client.call(ApiKey.OFFSET_FETCH, 8, groups=asked)).groups
    assert [topic.name for topic in found.topics] == ["seen"]


async def test_a_right_that_is_taken_ends_a_fetch_session_too(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.READ_TOPIC, "t"))
    opened = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, session_epoch=0))
    assert opened.session_id
    await broker.services.rights.acls.remove(ANY)
    again = fetch_fields(0, session_id=opened.session_id, session_epoch=1)
    answer = await client.call(ApiKey.FETCH, 12, **{**again, "topics": []})
    assert set(codes(answer)) == {0, 29}


async def test_super_users_may_do_everything(cloud: FakeCloud) -> None:
    broker = await start(cloud, "User:ANONYMOUS")
    client = await WireClient.connect(broker.port)
    # Whoever has begun has no start time yet, which the test's decoder cannot read: that is last.
    for one in sorted(SERVED, key=lambda one: one.label == "begin"):
        assert await refusals(client, one) == set(), one.label
    await client.close()


async def test_without_authorization_there_are_no_lists(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    assert (await client.call(ApiKey.DESCRIBE_ACLS, 2, **FILTER)).error_code == 54
    answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=[ENTRY])
    assert answer.results[0].error_code == 54
    answer = await client.call(ApiKey.DELETE_ACLS, 2, filters=[FILTER])
    assert answer.filter_results[0].error_code == 54
    await client.close()


async def test_a_link_needs_the_right_to_act_for_the_cluster(
    broker: Broker, client: WireClient
) -> None:
    client.send_raw(struct.pack(">ihhih", 10, LINK_API_KEY, 1, 7, -1))
    assert await client.is_closed()
    assert broker.services.rights.denied == 1


# --- entries


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 0}, {"resource_type": 1}, {"resource_type": 6}, {"resource_type": 99},
        {"resource_name": ""}, {"resource_name": "x" * 1_001}, {"resource_pattern_type": 1},
        {"resource_pattern_type": 2}, {"resource_pattern_type": 9}, {"principal": "anna"},
        {"principal": "User:"}, {"principal": "Group:x"}, {"host": ""}, {"operation": 1},
        {"operation": 0}, {"operation": 99}, {"permission_type": 1}, {"permission_type": 0},
        {"resource_type": 4, "resource_name": "other"},
    ],
)  # fmt: skip
async def test_entries_that_make_no_sense(
    broker: Broker, client: WireClient, change: dict[str, Any]
) -> None:
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    before = broker.services.rights.acls.find(ANY)
    answer = await client.call(
        ApiKey.CREATE_ACLS, 2, creations=[{**ENTRY, **change}, {**ENTRY, "resource_name": "ok"}]
    )
    assert [one.error_code for one in answer.results] == [42, 0]
    assert answer.results[0].error_message
    assert len(broker.services.rights.acls.find(ANY)) == len(before) + 1


async def test_entries_come_are_shown_and_go(broker: Broker, client: WireClient) -> None:
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    rows = [{**ENTRY, "resource_name": name, "operation": number}
            for name in ("a", "b") for number in (3, 4)]  # fmt: skip
    for _ in range(2):  # those that are there stay
        answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=rows)
        assert [one.error_code for one in answer.results] == [0] * 4
    mine = {**FILTER, "principal_filter": "User:x"}
    shown = await client.call(ApiKey.DESCRIBE_ACLS, 2, **mine)
    found = [(one.resource_name, [acl.operation for acl in one.acls]) for one in shown.resources]
    assert found == [("a", [3, 4]), ("b", [3, 4])]
    gone = await client.call(ApiKey.DELETE_ACLS, 2, filters=[{**mine, "operation": 3}])
    assert [one.resource_name for one in gone.filter_results[0].matching_acls] == ["a", "b"]
    shown = await client.call(ApiKey.DESCRIBE_ACLS, 2, **mine)
    assert [len(one.acls) for one in shown.resources] == [1, 1]


async def test_entries_about_one_resource_take_effect_together(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, the first would take their rights from those whom the next ones name, as
    `allow.everyone.if.no.acl.found` ends with it."""
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    acls = broker.services.rights.acls
    steps: list[tuple[str, int]] = []
    add = acls.add

    async def noted(together: Sequence[Acl]) -> None:
        steps.append((together[0].name, len(together)))
        await add(together)

    monkeypatch.setattr(acls, "add", noted)
    rows = [{**ENTRY, "resource_name": name, "operation": number}
            for number in (3, 4) for name in ("a", "b")]  # fmt: skip
    answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=rows)
    assert [one.error_code for one in answer.results] == [0] * 4
    assert steps == [("a", 2), ("b", 2)]


async def test_so_many_entries_and_no_more(cloud: FakeCloud) -> None:
    security = SecurityConfig(authorization=True, acls_max=3)
    broker = await cloud.start_broker(1, security=security)
    await grant(broker, *(entry(rights.WRITE_TOPIC, name) for name in "abc"))
    await grant(broker, entry(rights.WRITE_TOPIC, "a"))  # is there already
    with pytest.raises(InvalidRequest, match="acls_max"):
        await grant(broker, entry(rights.WRITE_TOPIC, "d"))
    await broker.services.rights.acls.remove(ANY._replace(name="a"))
    await grant(broker, entry(rights.WRITE_TOPIC, "d"))
    assert [one.name for one in broker.services.rights.acls.find(ANY)] == ["b", "c", "d"]


async def test_another_broker_decides_by_them_within_moments(cloud: FakeCloud) -> None:
    security = SecurityConfig(authorization=True)
    first, second = [await cloud.start_broker(n, security=security) for n in (1, 2)]
    await grant(first, entry(rights.DESCRIBE_CLUSTER, CLUSTER))
    await until(lambda: second.services.rights.may(
        Peer("127.0.0.1", 1, "", 0), rights.DESCRIBE_CLUSTER))  # fmt: skip
    await first.services.rights.acls.remove(ANY)
    await until(lambda: not second.services.rights.may(
        Peer("127.0.0.1", 1, "", 0), rights.DESCRIBE_CLUSTER))  # fmt: skip


async def test_damaged_entries_allow_nothing(
    broker: Broker, client: WireClient, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    await grant(broker, entry(rights.READ_TOPIC, "t"), entry(rights.DESCRIBE_GROUP, "g"))
    store = cloud.tree.session()
    names = await store.children(paths.ACLS)
    fetch = next(one for one in ROWS if one.label == "fetch")
    assert await refusals(client, fetch) == set()
    for name in names:
        node = await store.get(f"{paths.ACLS}/{name}")
        if b"GROUP" in node.data:
            await store.set(f"{paths.ACLS}/{name}", b"{}")
    await until(lambda: "acls.unreadable" in caplog.text)
    assert await refusals(client, fetch) == {29}
