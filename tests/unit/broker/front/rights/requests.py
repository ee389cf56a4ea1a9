"""The requests of the matrix of rights: one row for each API and way to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.front.handlers.registry import handlers
from broker.security import rights
from broker.security.core.acls import CLUSTER_NAME, ResourceType
from broker.security.rights import Need
from client.wire.kafka.apis import ApiKey
from tests.unit.broker.front.handlers.requests import batch, fetch_fields, produce_fields

REFUSALS = {29, 30, 31, 53}
CODES = {
    ResourceType.TOPIC: 29,
    ResourceType.GROUP: 30,
    ResourceType.CLUSTER: 31,
    ResourceType.TRANSACTIONAL_ID: 53,
}


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
SESSION = {"group_id": "g", "member_id": "m", "share_session_epoch": 1}
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
    row("heartbeat of the consumer protocol", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1,
        (rights.READ_GROUP, "g"), (rights.DESCRIBE_TOPIC, "t"), group_id="g", member_id="m",
        member_epoch=0, rebalance_timeout=10_000, subscribed_topic_names=["t"],
        topic_partitions=[]),
    row("describe a group of the consumer protocol", ApiKey.CONSUMER_GROUP_DESCRIBE, 1,
        (rights.DESCRIBE_GROUP, "g"), group_ids=["g"]),
    row("heartbeat of a share group", ApiKey.SHARE_GROUP_HEARTBEAT, 1, (rights.READ_GROUP, "g"),
        (rights.DESCRIBE_TOPIC, "t"), group_id="g", member_id="m", member_epoch=0,
        subscribed_topic_names=["t"]),
    row("describe a share group", ApiKey.SHARE_GROUP_DESCRIBE, 1, (rights.DESCRIBE_GROUP, "g"),
        group_ids=["g"]),
    row("share fetch", ApiKey.SHARE_FETCH, 2, (rights.READ_GROUP, "g"), **SESSION,
        max_wait=0, min_bytes=0, max_bytes=1_000, max_records=1, batch_size=1,
        topics=[], forgotten_topics_data=[]),
    row("share acknowledge", ApiKey.SHARE_ACKNOWLEDGE, 2, (rights.READ_GROUP, "g"), **SESSION,
        topics=[]),
    row("where a share group is", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
        (rights.DESCRIBE_GROUP, "g"), groups=[{"group_id": "g", "topics": None}]),
    row("let a share group begin elsewhere", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0,
        (rights.READ_GROUP, "g"), group_id="g", topics=[]),
    row("let a share group forget", ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0,
        (rights.DELETE_GROUP, "g"), group_id="g", topics=[]),
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
    row("replace a group's settings", ApiKey.ALTER_CONFIGS, 2, (rights.ALTER_CONFIGS_GROUP, "g"),
        resources=[{"resource_type": 32, "resource_name": "g", "configs": []}]),
    row("change a group's settings", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
        (rights.ALTER_CONFIGS_GROUP, "g"),
        resources=[{"resource_type": 32, "resource_name": "g", "configs": []}]),
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
