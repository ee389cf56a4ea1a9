"""Requests in order about topics and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.request import SETTINGS_TOPICS, Base, same, topic_id
from tests.integration.differential.plain_wire import Tree

K = ApiKey


def _new(name: str, **more: Any) -> Tree:
    return {"name": name, "num_partitions": 1, "replication_factor": 1,
            "assignments": [], "configs": [], **more}  # fmt: skip


_ASSIGNED: Tree = {"num_partitions": -1, "replication_factor": -1,
                   "assignments": [{"partition_index": 0, "broker_ids": [0]}]}  # fmt: skip
_CONFIGS = [{"name": "retention.ms", "value": "90000"}, {"name": "segment.ms", "value": None}]


def _moved(number: int, _version: int) -> Tree:
    row = {"partition_index": 0, "replicas": [0]}
    name = f"c-{number % SETTINGS_TOPICS}"
    return {"timeout": 10_000, "allow_replication_factor_change": True,
            "topics": [{"name": name, "partitions": [row]}]}  # fmt: skip


TOPICS: Mapping[ApiKey, Sequence[Base]] = {
    K.METADATA: (
        Base("two", lambda _n, _v: {"topics": [{"name": "t"}, {"name": "one"}]}),
        Base("all", lambda _n, v: {"topics": None if v >= 1 else []}),
        Base("by id", lambda _n, _v: {"topics": [{"name": None, "topic_id": topic_id("t")}]},
             (), range(12, 99)),
    ),
    K.CREATE_TOPICS: (
        Base("only tried", lambda n, _v: {"topics": [_new(f"n-{n}"), _new(f"n-{n}b")],
                                          "timeout": 10_000, "validate_only": True}),
        Base("assigned", lambda n, _v: {"topics": [_new(f"n-{n}", **_ASSIGNED)],
                                        "timeout": 10_000, "validate_only": True}),
        Base("settings", lambda n, _v: {"topics": [_new(f"n-{n}", configs=_CONFIGS)],
                                        "timeout": 10_000, "validate_only": True}),
    ),
    K.DELETE_TOPICS: (
        Base("one", lambda n, _v: {"topics": [{"name": f"s-{n}"}], "timeout": 10_000,
                                   "topic_names": [f"s-{n}"]}),
        Base("by id", lambda n, _v: {"topics": [{"topic_id": topic_id(f"s-{n}")}],
                                     "timeout": 10_000}, (), range(6, 99)),
    ),
    K.CREATE_PARTITIONS: (
        Base("one more", lambda n, _v: {
            "topics": [{"name": f"s-{n}", "count": 2, "assignments": None}], "timeout": 10_000}),
        Base("where", lambda n, _v: {
            "topics": [{"name": f"s-{n}", "count": 2, "assignments": [{"broker_ids": [0]}]}],
            "timeout": 10_000, "validate_only": True}),
    ),
    K.DESCRIBE_TOPIC_PARTITIONS: (
        same("two", topics=[{"name": "t"}, {"name": "one"}], response_partition_limit=2000,
              cursor=None),
        same("a page", topics=[{"name": "t"}, {"name": "one"}], response_partition_limit=2,
              cursor={"topic_name": "t", "partition_index": 1}),
    ),
    K.ELECT_LEADERS: (same("preferred", election_type=0, timeout=10_000, topic_partitions=[
        {"topic": "t", "partitions": [0, 1]}, {"topic": "one", "partitions": [0]}]),),
    K.ALTER_PARTITION_REASSIGNMENTS: (Base("to itself", _moved),),
    K.LIST_PARTITION_REASSIGNMENTS: (
        same("some", timeout=10_000, topics=[{"name": "t", "partition_indexes": [0]}]),
        same("all", timeout=10_000, topics=None),
    ),
    K.ALTER_REPLICA_LOG_DIRS: (
        same("to nowhere", dirs=[{"path": "/nowhere", "topics": [
            {"name": "t", "partitions": [0, 1]}]}]),
    ),
    K.DESCRIBE_LOG_DIRS: (
        same("some", topics=[{"topic": "t", "partitions": [0, 1]}]),
        same("all", topics=None),
    ),
}  # fmt: skip
