"""Requests in order about records and offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.request import (
    KEYED,
    WRITTEN,
    WRITTEN_PARTITIONS,
    Base,
    named,
    same,
)
from tests.integration.differential.known import Known
from tests.integration.differential.plain_wire import Tree
from tests.integration.differential.steps import NOW_MS, batch

K = ApiKey


def _produce(name: str, records: Any, topic: str = WRITTEN, transactional: bool = False) -> Base:
    def fields(n: int, version: int) -> Tree:
        data = Known(f"batch {n}", b"") if transactional else records
        rows = [{"index": n % WRITTEN_PARTITIONS if topic == WRITTEN else 0, "records": data}]
        return {
            "transactional_id": f"x-{n}" if transactional else None, "acks": -1,
            "timeout": 10_000,
            "topic_data": [{**named(version, 13, topic), "partition_data": rows}],
        }  # fmt: skip

    return Base(name, fields, ("transaction", "batch") if transactional else ())


def _fetch(name: str, *at: tuple[str, int, int], **more: Any) -> Base:
    def fields(_n: int, version: int) -> Tree:
        topics = [
            {
                **named(version, 13, topic, "topic"),
                "partitions": [{"partition": index, "fetch_offset": offset,
                                "partition_max_bytes": 1 << 20}],
            }
            for topic, index, offset in at
        ]  # fmt: skip
        return {
            "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 50 << 20,
            "isolation_level": more.get("isolation", 0), "session_id": 0,
            "session_epoch": more.get("epoch", -1), "topics": topics,
            "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip

    return Base(name, fields)


def _offsets(*times: int) -> list[Tree]:
    rows = [{"partition_index": at, "timestamp": time} for at, time in enumerate(times)]
    return [{"name": "t", "partitions": rows}, {"name": "one", "partitions": rows[:1]}]


RECORDS: Mapping[ApiKey, Sequence[Base]] = {
    K.PRODUCE: (
        _produce("two records", batch(b"one", b"two")),
        _produce("no keys", batch(b"v", key=None), KEYED),
        _produce("in a transaction", None, transactional=True),
    ),
    K.FETCH: (
        _fetch("from the start", ("t", 0, 0)),
        _fetch("three", ("t", 0, 3), ("t", 1, 0), ("one", 0, 1), isolation=1),
        _fetch("a session", ("one", 0, 0), ("t", 2, 0), epoch=0),
    ),
    K.LIST_OFFSETS: (
        same("ends", replica_id=-1, isolation_level=0, timeout=10_000, topics=_offsets(-1, -2, 0)),
        same("times", replica_id=-1, isolation_level=1, timeout=10_000,
              topics=_offsets(NOW_MS, NOW_MS + 1, -1)),
    ),
    K.OFFSET_FOR_LEADER_EPOCH: (
        same("epochs", replica_id=-1, topics=[
            {"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]},
            {"topic": "one", "partitions": [{"partition": 0, "leader_epoch": 0}]}]),
    ),
    K.DELETE_RECORDS: (
        same("some", timeout=10_000, topics=[
            {"name": WRITTEN, "partitions": [{"partition_index": 0, "offset": 0}]}]),
    ),
    K.DESCRIBE_PRODUCERS: (
        same("of two", topics=[{"name": "t", "partition_indexes": [0, 1]},
                                {"name": "one", "partition_indexes": [0]}]),
    ),
}  # fmt: skip
