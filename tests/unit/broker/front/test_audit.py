"""Every change by an API is an event that says who did what, and no secret."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker.security.config import SecurityConfig
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
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
