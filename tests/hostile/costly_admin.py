"""Requests about transactions, groups, rights and settings that cost a broker as much as they can.

With those of `costly.py` they are `ALL`, in the order in which they may be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from client.wire.kafka.apis import ApiKey
from tests.hostile.costly import ATTACKS, ITEMS, PLAIN, Attack, frame

_RESOURCES: Final = 2_000
"""Each is looked up in the metadata store, one after the other."""


def _offsets(at: int) -> dict[str, Any]:
    return {
        "partition_index": at, "committed_offset": 1, "committed_leader_epoch": -1,
        "committed_metadata": "",
    }  # fmt: skip


def _rule(at: int) -> dict[str, Any]:
    return {
        "resource_type": 2, "resource_name": f"n{at}", "resource_pattern_type": 3,
        "principal": f"User:u{at}", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip


def _filter(at: int) -> dict[str, Any]:
    return {
        "resource_type_filter": 2, "resource_name_filter": f"n{at}", "pattern_type_filter": 3,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip


def _join(at: int) -> bytes:
    return frame(ApiKey.JOIN_GROUP, 3, {
        "group_id": f"large-{at}", "session_timeout": 10_000, "rebalance_timeout": 1_000,
        "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(1 << 20)}],
    })  # fmt: skip


def _new_topics(count: int, partitions: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"wide-{at}", "num_partitions": partitions, "replication_factor": 3,
            "assignments": [], "configs": [],
        }
        for at in range(count)
    ]  # fmt: skip


def _settings(count: int) -> list[dict[str, Any]]:
    change = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    return [
        {"resource_type": 2, "resource_name": f"n{at}", "configs": [change]} for at in range(count)
    ]


def _producer_ids(names: Sequence[str | None]) -> list[bytes]:
    return [
        frame(ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": one, "transaction_timeout": 60_000})
        for one in names
    ]


ALL: Final = (
    *ATTACKS,
    Attack("describe transactions: 49,000 ids", lambda _: [
        frame(ApiKey.DESCRIBE_TRANSACTIONS, 0, {
            "transactional_ids": [f"t{at}" for at in range(ITEMS)]})]),
    Attack("producer ids: 1,000 transactional ids", lambda _: _producer_ids(
        [f"t{at}" for at in range(1_000)])),
    Attack("producer ids: 2,000 without a name", lambda _: _producer_ids([None] * 2_000)),
    Attack("offsets of a transaction: 49,000", lambda _: [
        frame(ApiKey.TXN_OFFSET_COMMIT, 2, {
            "transactional_id": "h", "group_id": "hostile", "producer_id": 5, "producer_epoch": 0,
            "topics": [{"name": PLAIN, "partitions": [_offsets(at) for at in range(ITEMS)]}]})]),
    Attack("add to a transaction: 49,000 partitions", lambda _: [
        frame(ApiKey.ADD_PARTITIONS_TO_TXN, 1, {
            "v3_and_below_transactional_id": "h", "v3_and_below_producer_id": 5,
            "v3_and_below_producer_epoch": 0, "v3_and_below_topics": [
                {"name": PLAIN, "partitions": list(range(ITEMS))}]})]),
    Attack("describe producers: 49,000 partitions", lambda _: [
        frame(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [
            {"name": PLAIN, "partition_indexes": list(range(ITEMS))}]})]),
    Attack("offset fetch: all of 49,000 groups", lambda _: [
        frame(ApiKey.OFFSET_FETCH, 8, {"require_stable": False, "groups": [
            {"group_id": f"g{at}", "topics": None} for at in range(ITEMS)]})]),
    Attack("join: 20 groups, a MiB each", lambda _: [_join(at) for at in range(20)]),
    Attack("create topics: 2 million partitions", lambda _: [
        frame(ApiKey.CREATE_TOPICS, 4, {
            "timeout": 1_000, "validate_only": True, "topics": _new_topics(200, 10_000)})]),
    Attack("change settings: of 2,000 topics", lambda _: [
        frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {
            "validate_only": True, "resources": _settings(_RESOURCES)})]),
    Attack("describe settings: of 2,000 topics", lambda _: [
        frame(ApiKey.DESCRIBE_CONFIGS, 1, {"include_synonyms": True, "resources": [
            {"resource_type": 2, "resource_name": f"n{at}", "configuration_keys": None}
            for at in range(_RESOURCES)]})]),
    Attack("create rules: 40,000", lambda _: [
        frame(ApiKey.CREATE_ACLS, 1, {"creations": [_rule(at) for at in range(40_000)]})]),
    Attack("delete rules: 40,000 filters", lambda _: [
        frame(ApiKey.DELETE_ACLS, 1, {"filters": [_filter(at) for at in range(40_000)]})]),
    Attack("describe users: 40,000", lambda _: [
        frame(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {
            "users": [{"name": f"u{at}"} for at in range(40_000)]})]),
    Attack("log in: 10 MiB, unasked", lambda _: [
        frame(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": bytes(10 << 20)})], True),
    Attack("elect leaders: 49,000 partitions", lambda _: [
        frame(ApiKey.ELECT_LEADERS, 1, {"election_type": 0, "timeout": 1_000, "topic_partitions": [
            {"topic": PLAIN, "partitions": list(range(ITEMS))}]})]),
    Attack("metadata: all topics, 1,000 times", lambda _: [
        frame(ApiKey.METADATA, 4, {"topics": None, "allow_auto_topic_creation": False})] * 1_000),
)  # fmt: skip
"""In this order: the first ones prepare what later ones search."""
