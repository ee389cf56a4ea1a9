"""Requests that are made to cost a broker as much as their senders can make them.

Each is a frame, or several; what it may get for it is said beside it. `stalls.py` measures how long
others wait meanwhile, and `tests/integration/test_hostile_requests.py` sees that an honest producer
gets through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from client.wire.kafka.apis import ApiKey, is_flexible
from client.wire.kafka.batches.records import (
    BatchHeader,
    Codec,
    Record,
    build_batch,
    compress,
    pack_batch,
    parse_header,
)
from client.wire.kafka.requests import encode_request_body, request_frame

COMPACTED: Final = "hostile-compacted"
PLAIN: Final = "hostile-plain"
TINY: Final = b"\x0c\x00\x00\x00\x00\x00\x00"
"""A record with an empty key, an empty value and no headers."""
RECORDS_OF_A_MIB: Final = 149_000
ITEMS: Final = 49_000
"""Just as many as are allowed."""


class Attack(NamedTuple):
    """What is sent, and whether the connection may be closed for it."""

    name: str
    frames: Callable[[int], Sequence[bytes]]
    """By the time of day in ms."""
    may_close: bool = False


def many(now_ms: int, count: int, codec: Codec, **fields: Any) -> bytes:
    """Return a batch of `count` records of seven bytes."""
    head = parse_header(build_batch([Record(b"k", b"v", now_ms)]))
    changed = {
        "record_count": count, "last_offset_delta": count - 1, "attributes": int(codec), **fields,
    }  # fmt: skip
    return pack_batch(BatchHeader(*head)._replace(**changed), compress(codec, TINY * count))


def frame(key: ApiKey, version: int, fields: dict[str, Any]) -> bytes:
    """Return a request."""
    return request_frame(key, version, 1, "hostile", encode_request_body(key, version, fields))


def produce(topic: str, batches: Sequence[bytes]) -> bytes:
    """Return a Produce of many batches for one partition."""
    rows = [{"index": 0, "records": batch} for batch in batches]
    return frame(ApiKey.PRODUCE, 9, {
        "transactional_id": None, "acks": -1, "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": rows}],
    })  # fmt: skip


def search(now_ms: int) -> bytes:
    """Return a search for a time that headers claim and no record has."""
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": now_ms}
    return frame(ApiKey.LIST_OFFSETS, 7, {
        "replica_id": -1, "isolation_level": 0, "topics": [{"name": PLAIN, "partitions": [row]}],
    })  # fmt: skip


def fetch(indexes: Sequence[int]) -> bytes:
    """Return a Fetch of these partitions."""
    rows = b"".join(struct.pack(">iiqqi", index, -1, 0, 0, 1) for index in indexes)
    name = PLAIN.encode()
    body = (
        struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)
        + struct.pack(f">ih{len(name)}si", 1, len(name), name, len(indexes)) + rows
        + struct.pack(">ih", 0, 0)
    )  # fmt: skip
    return request_frame(ApiKey.FETCH, 11, 1, "hostile", body)


def empty_lists(key: ApiKey, version: int, size: int) -> bytes:
    """Return a request that is one list of as many one-byte items as fit into `size` bytes."""
    assert is_flexible(key, version)
    count = size + 1
    length = bytearray()
    while count >= 0x80:
        length.append(count & 0x7F | 0x80)
        count >>= 7
    length.append(count)
    return request_frame(key, version, 1, "hostile", bytes(length) + b"\x01" * size)


def _topics(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"topics": [{"name": f"unknown-{at}", **item} for at in range(ITEMS)], **more}


def _in_topic(row: Callable[[int], dict[str, Any]], **more: Any) -> dict[str, Any]:
    rows = [row(at) for at in range(ITEMS)]
    return {"topics": [{"name": PLAIN, "partitions": rows}], **more}


def _resource(at: int) -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": f"t{at}", "configuration_keys": None}


def _commit(at: int) -> dict[str, Any]:
    return {"partition_index": at % 2, "committed_offset": at, "committed_metadata": "m"}


ATTACKS: Final = (
    Attack("keys: 16 batches of zstd in 1.6 KB, 2.4 million records", lambda now_ms: [
        produce(COMPACTED, [many(now_ms, RECORDS_OF_A_MIB, Codec.ZSTD)] * 16)]),
    Attack("keys: 16 batches of zstd, 16,384 records each", lambda now_ms: [
        produce(COMPACTED, [many(now_ms, 16_384, Codec.ZSTD)] * 16)]),
    Attack("keys: 6 batches of a MB, 894,000 records", lambda now_ms: [
        produce(COMPACTED, [many(now_ms, RECORDS_OF_A_MIB, Codec.NONE)] * 6)]),
    Attack("search: 16 batches of zstd in 1.6 KB, 2.4 million records", lambda now_ms: [
        produce(PLAIN, [many(now_ms, RECORDS_OF_A_MIB, Codec.ZSTD,
                             max_timestamp=now_ms + 2_000)] * 16),
        search(now_ms + 2_000)]),
    Attack("search: 6 batches of a MB, 894,000 records", lambda now_ms: [
        produce(PLAIN, [many(now_ms, RECORDS_OF_A_MIB, Codec.NONE,
                             max_timestamp=now_ms + 3_000)] * 6),
        search(now_ms + 3_000)]),
    Attack("fetch: one partition 450,000 times, 12 MiB", lambda _: [fetch([0] * 450_000)]),
    Attack("fetch: one partition 49,000 times", lambda _: [fetch([0] * ITEMS)]),
    Attack("fetch: 49,000 partitions", lambda _: [fetch(range(ITEMS))]),
    Attack("produce: 49,000 batches", lambda now_ms: [
        produce(PLAIN, [build_batch([Record(b"k", b"v", now_ms)])] * ITEMS)]),
    Attack("produce: 49,000 batches for a compacted topic", lambda now_ms: [
        produce(COMPACTED, [many(now_ms, 100, Codec.ZSTD)] * ITEMS)]),
    Attack("produce: 20 million partitions in 100 MB", lambda _: [
        request_frame(ApiKey.PRODUCE, 3, 1, "hostile", struct.pack(">hhiih1si", -1, 1, 1, 1, 1,
                      b"t", 10_000_000) + bytes(80_000_000))], True),
    Attack("metadata: 12 million topics", lambda _: [
        empty_lists(ApiKey.METADATA, 9, 12_000_000)], True),
    Attack("groups: 12 million of them", lambda _: [
        empty_lists(ApiKey.DESCRIBE_GROUPS, 5, 12_000_000)], True),
    Attack("list offsets: 49,000 partitions", lambda _: [
        frame(ApiKey.LIST_OFFSETS, 7, _in_topic(
            lambda at: {"partition_index": at, "current_leader_epoch": -1, "timestamp": 5},
            replica_id=-1, isolation_level=0))]),
    Attack("leader epochs: 49,000 partitions", lambda _: [
        frame(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, {
            "replica_id": -1, "topics": [{"topic": PLAIN, "partitions": [
                {"partition": at, "current_leader_epoch": -1, "leader_epoch": 1}
                for at in range(ITEMS)]}]})]),
    Attack("metadata: 49,000 unknown topics", lambda _: [
        frame(ApiKey.METADATA, 9, _topics({}, allow_auto_topic_creation=False,
              include_cluster_authorized_operations=False,
              include_topic_authorized_operations=False))]),
    Attack("offset fetch: 49,000 partitions", lambda _: [
        frame(ApiKey.OFFSET_FETCH, 5, {"group_id": "g", "topics": [
            {"name": PLAIN, "partition_indexes": list(range(ITEMS))}]})]),
    Attack("offset commit: 49,000 offsets", lambda _: [
        frame(ApiKey.OFFSET_COMMIT, 5, _in_topic(_commit, group_id="hostile",
              generation_id_or_member_epoch=-1, member_id=""))]),
    Attack("delete records: 49,000 partitions", lambda _: [
        frame(ApiKey.DELETE_RECORDS, 1, _in_topic(
            lambda at: {"partition_index": at, "offset": 0}, timeout=1_000))]),
    Attack("describe groups: 49,000 groups", lambda _: [
        frame(ApiKey.DESCRIBE_GROUPS, 4, {"groups": [f"g{at}" for at in range(ITEMS)],
              "include_authorized_operations": False})]),
    Attack("delete groups: 49,000 groups", lambda _: [
        frame(ApiKey.DELETE_GROUPS, 1, {"groups_names": [f"g{at}" for at in range(ITEMS)]})]),
    Attack("leave: 49,000 members", lambda _: [
        frame(ApiKey.LEAVE_GROUP, 3, {"group_id": "g", "members": [
            {"member_id": f"m{at}", "group_instance_id": None} for at in range(ITEMS)]})]),
    Attack("sync: 49,000 assignments", lambda _: [
        frame(ApiKey.SYNC_GROUP, 3, {"group_id": "g", "generation_id": 1, "member_id": "m",
              "group_instance_id": None, "assignments": [
                  {"member_id": f"m{at}", "assignment": b""} for at in range(ITEMS)]})]),
    Attack("join: 49,000 protocols", lambda _: [
        frame(ApiKey.JOIN_GROUP, 5, {"group_id": "g", "session_timeout": 10_000,
              "rebalance_timeout": 10_000, "member_id": "", "group_instance_id": None,
              "protocol_type": "consumer", "protocols": [
                  {"name": f"p{at}", "metadata": b""} for at in range(ITEMS)]})]),
    Attack("create topics: one, 49,000 times", lambda _: [
        frame(ApiKey.CREATE_TOPICS, 4, {"timeout": 1_000, "validate_only": True, "topics": [
            {"name": "one", "num_partitions": 1, "replication_factor": 1, "assignments": [],
             "configs": []}] * ITEMS})]),
    Attack("create topics: one with 49,000 settings", lambda _: [
        frame(ApiKey.CREATE_TOPICS, 4, {"timeout": 1_000, "validate_only": True, "topics": [
            {"name": "one", "num_partitions": 1, "replication_factor": 1, "assignments": [],
             "configs": [{"name": f"c{at}", "value": "1"} for at in range(ITEMS)]}]})]),
    Attack("change settings: 49,000 of one topic", lambda _: [
        frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"validate_only": True, "resources": [
            {"resource_type": 2, "resource_name": PLAIN, "configs": [
                {"name": f"c{at}", "config_operation": 0, "value": "1"} for at in range(ITEMS)]}]})
        ]),
    Attack("extend a setting 49,000 times", lambda _: [
        frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"validate_only": True, "resources": [
            {"resource_type": 2, "resource_name": PLAIN, "configs": [
                {"name": "cleanup.policy", "config_operation": 2, "value": f"v{at}"}
                for at in range(ITEMS)]}]})]),
)  # fmt: skip
"""In this order: the first ones prepare what later ones search."""
