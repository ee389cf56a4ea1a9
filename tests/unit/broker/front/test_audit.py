"""Every change by an API is an event that says who did what, and no secret."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from broker.security.config import SecurityConfig
from client.node.logs import Repeats
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic
from tests.unit.broker.front.rights.requests import ENTRY, SCRAM

TOPIC = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": []}
SETTING = {"name": "retention.ms", "config_operation": 0, "value": "123456"}
FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
CHANGES: list[tuple[ApiKey, int, dict[str, Any], str]] = [
    (ApiKey.CREATE_TOPICS, 5, {"topics": [{**TOPIC, "configs": []}]}, "topic t"),
    (ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "t", "count": 3, "assignments": None}]},
     "topic t: 3 partitions"),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
     {"resources": [{"resource_type": 2, "resource_name": "t", "configs": [SETTING]}]},
     "settings of 't': retention.ms"),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0,
     {"upsertions": [{**SCRAM, "salted_password": b"very secret", "name": "x"}]},
     "user x: SCRAM-SHA-256"),
    (ApiKey.CREATE_ACLS, 2, {"creations": [ENTRY]},
     "ALLOW User:x READ topic 'x' (literal) from *"),
    (ApiKey.DELETE_ACLS, 2, {"filters": [FILTER]},
     "no longer ALLOW User:x READ topic 'x' (literal) from *"),
    (ApiKey.ALTER_CLIENT_QUOTAS, 1, {"validate_only": False, "entries": [
        {"entity": [{"entity_type": "user", "entity_name": "x"}],
         "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}]},
     "{'user': 'x'}: {'producer_byte_rate': 1000000000.0}"),
    (ApiKey.DELETE_RECORDS, 2,
     {"timeout": 1000, "topics": [{"name": "t", "partitions": [
         {"partition_index": 0, "offset": 0}]}]},
     "topic t: records of partition 0 before 0 deleted"),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 1000, "topics": [
        {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]},
     "topic t: replicas of 1 partitions"),
    (ApiKey.METADATA, 9, {"topics": [{"name": "other"}], "allow_auto_topic_creation": True},
     "topic other: created by asking for it"),
    (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"]}, "topic t"),
]  # fmt: skip


async def test_changes_are_told_with_who_made_them(caplog: pytest.LogCaptureFixture) -> None:
    cloud = FakeCloud()
    security = SecurityConfig(authorization=True, super_users=("User:ANONYMOUS",))
    broker = await cloud.start_broker(1, security=security)
    client = await WireClient.connect(broker.port)
    for key, version, fields, what in CHANGES:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            await client.call(key, version, **fields)
        (line,) = [one.getMessage() for one in caplog.records if "request.changed" in one.msg]
        assert f"user='ANONYMOUS' peer=127.0.0.1 api={key.name.lower()} what={what!r}" in line
        assert "very secret" not in caplog.text and "123456" not in line
    await client.close()
    await cloud.close()


async def test_changes_of_groups_and_features_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    await create_topic(broker)
    row = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
    partitions = [{**row, "committed_metadata": None}]
    commit = {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "topics": [{"name": "t", "partitions": partitions}],
    }  # fmt: skip
    for _ in range(200):  # until the group has a coordinator
        await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        answer = await client.call(ApiKey.OFFSET_COMMIT, 7, **commit)
        if not answer.topics[0].partitions[0].error_code:
            break
        await asyncio.sleep(0.02)
    rows = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    await client.call(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=rows)
    await client.call(ApiKey.OFFSET_COMMIT, 7, **commit)
    await client.call(ApiKey.DELETE_GROUPS, 1, groups_names=["g"])
    whats = [one.getMessage().partition("what=")[2] for one in caplog.records
             if one.msg.startswith("request.changed")]  # fmt: skip
    assert whats == ["\"group 'g': offsets of 1 partitions deleted\"", "\"group 'g' deleted\""]
    await client.close()
    await cloud.close()


async def test_no_change_is_left_out_and_no_level_hides_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither by many changes, nor by setting levels, which is a change itself."""
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    repeats = Repeats()
    caplog.handler.addFilter(repeats)
    row = {"name": "root", "config_operation": 0, "value": "FATAL"}
    level = {"resource_type": 8, "resource_name": "1", "configs": [row]}
    root = logging.getLogger().level
    try:
        await client.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[level], validate_only=False
        )
        for number in range(60):
            topic = {**TOPIC, "name": f"t{number}", "configs": []}
            await client.call(ApiKey.CREATE_TOPICS, 5, topics=[topic])
    finally:
        logging.getLogger().setLevel(root)
        caplog.handler.removeFilter(repeats)  # the handler is every test's
    told = [one.getMessage() for one in caplog.records if one.msg.startswith("request.changed")]
    assert len(told) == 61 and "settings of '1': root" in told[0]
    security = logging.getLogger("security")
    assert security.getEffectiveLevel() == logging.INFO
    row = {**row, "name": "security"}
    answer = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[{**level, "configs": [row]}],
        validate_only=False,
    )  # fmt: skip
    assert answer.responses[0].error_code, "its level is nobody's to set"
    await client.close()
    await cloud.close()


async def test_what_is_refused_or_only_tried_is_no_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cloud = FakeCloud()
    broker = await cloud.start_broker(1, security=SecurityConfig(authorization=True))
    client = await WireClient.connect(broker.port)
    with caplog.at_level(logging.INFO):
        for key, version, fields, _ in CHANGES:
            await client.call(key, version, **fields)
    assert "request.changed" not in caplog.text
    assert "request.denied" in caplog.text
    await client.close()
    await cloud.close()
