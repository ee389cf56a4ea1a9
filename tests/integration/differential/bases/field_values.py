"""What the fields of a request may be changed to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.shapes import Shape
from tests.integration.differential.bases.request import KEYED, SETTINGS_TOPICS, WRITTEN, topic_id
from tests.integration.differential.steps import NOW_MS, UNKNOWN_ID, batch

K = ApiKey
_MAX32, _MAX64 = 2**31 - 1, 2**63 - 1
_LONG = "x" * 250
_INDEXES = (0, 1, 2, 9, -1, _MAX32, -_MAX32 - 1)
_READ = ("t", "one", "compacted", "unknown", "", "a b", "..", _LONG, "é", "__consumer_offsets")
_TOPIC_FIELDS = ("name", "topic", "topics", "topic_name", "topic_names")
_CHANGING = (K.DELETE_TOPICS, K.CREATE_PARTITIONS, K.DELETE_RECORDS, K.PRODUCE,
             K.ALTER_PARTITION_REASSIGNMENTS, K.CREATE_TOPICS, K.WRITE_TXN_MARKERS,
             K.ADD_PARTITIONS_TO_TXN)  # fmt: skip
_GROUPS_CHANGING = (K.OFFSET_COMMIT, K.OFFSET_DELETE, K.DELETE_GROUPS, K.TXN_OFFSET_COMMIT,
                    K.ADD_OFFSETS_TO_TXN, K.JOIN_GROUP)  # fmt: skip
_COMPARED_EXACTLY = (K.FETCH, K.LIST_OFFSETS, K.OFFSET_FOR_LEADER_EPOCH, K.DESCRIBE_PRODUCERS)
"""Of these the internal topics, which both fill in their own way, are not asked."""
_SETTINGS = ("retention.ms", "cleanup.policy", "segment.bytes", "no.such", "", "max.message.bytes",
             "compression.type", "message.timestamp.type", "min.insync.replicas", "metrics",
             "interval.ms", "match")  # fmt: skip
_VALUES = ("", "1000", "-1", "soon", "compact", "compact,delete", "delete", "gzip", "9" * 25,
           "client_id=a", "client_id=[")  # fmt: skip
_GOOD = batch(b"one", b"two")
BATCHES: Mapping[str, bytes] = {
    "good": _GOOD, "empty": b"", "a byte": b"\0", "cut": _GOOD[:-1], "cut early": _GOOD[:40],
    "two": _GOOD + _GOOD, "damaged": _GOOD[:-3] + b"\x55" + _GOOD[-2:],
    "magic 1": _GOOD[:16] + b"\x01" + _GOOD[17:], "magic 3": _GOOD[:16] + b"\x03" + _GOOD[17:],
    "more behind": _GOOD + b"\0" * 5, "no key": batch(b"v", key=None), "long": batch(b"x" * 2_000),
    "far ahead": batch(b"v", at_ms=NOW_MS + 90_000_000), "offset 7": batch(b"v", base_offset=7),
    "a producer": batch(b"v", producer_id=4_000_000, producer_epoch=0, base_sequence=0),
    "no epoch": batch(b"v", producer_id=4_000_000, producer_epoch=-1, base_sequence=0),
    "no sequence": batch(b"v", producer_id=4_000_000, producer_epoch=0, base_sequence=-1),
}  # fmt: skip

_BY_NAME: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("partition", "partitions", "partition_index", "partition_indexes", "index"),
                    _INDEXES),
    **dict.fromkeys(("group", "group_id", "groups", "groups_names", "key", "coordinator_keys"),
                    ("", "g", "nothing", "é", "x" * 3_000)),
    "member_id": ("", "nobody", "é"),
    "group_instance_id": ("", "i", "x" * 250, "."),
    **dict.fromkeys(("transactional_id", "v3_and_below_transactional_id", "transactional_ids"),
                    ("", "nothing", "é", "tx")),
    **dict.fromkeys(("producer_id", "v3_and_below_producer_id", "producer_id_filters"),
                    (-1, -2, 987_654_321, _MAX64)),
    **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"),
                    (-1, 0, 1, 2, -2, 32767, -32768)),
    "topic_id": (None, topic_id("t"), topic_id("one"), UNKNOWN_ID, UUID(int=1)),
    "isolation_level": (0, 1, 2, -1, 127),
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, NOW_MS, NOW_MS + 2, NOW_MS + 10**9, _MAX64),
    "fetch_offset": (0, 1, 4, 6, 7, -1, -2, 10**6, _MAX64),
    "current_leader_epoch": (-1, 0, 5, -2, _MAX32),
    "leader_epoch": (0, -1, 1, 7, -2, _MAX32),
    "last_fetched_epoch": (-1, 0, 3, -2, _MAX32),
    "session_timeout": (-1, 0, 1, 5_999, 6_000, 1_800_000, 1_800_001, _MAX32),
    "rebalance_timeout": (-1, 0, 1, _MAX32),
    "transaction_timeout": (-1, 0, 1, 60_000, 900_000, 900_001, _MAX32),
    "states_filter": ("", "Empty", "Stable", "stable", "Dead", "no such"),
    "types_filter": ("", "classic", "Classic", "consumer", "no such"),
    "state_filters": ("", "Empty", "Ongoing", "empty", "no such"),
    "duration_filter": (-1, 0, 10**12, -2, _MAX64),
    "transactional_id_pattern": ("", "t.*", "[", "x", "(a)(b"),
    "resource_type": (2, 4, 8, 16, 32, 0, 1, 3, -1, 99),
    "resource_types": (2, 4, 8, 16, 32, 0, 1, 3, -1, 99),
    "resource_type_filter": (0, 1, 2, 3, 4, 5, 6, 9, -1),
    "configuration_keys": ("retention.ms", "no.such", "", "cleanup.policy"),
    "value": _VALUES,
    "protocol_type": ("", "consumer", "connect"),
    "protocol_name": ("", "range", "nothing"),
    "broker_id": (77, -1, _MAX32),
    "broker_ids": (0, 77, -1, _MAX32),
    "replicas": (0, 77, -1, _MAX32),
    "response_partition_limit": (0, -1, 1, 3, 2000, _MAX32),
    "entity_type": ("user", "client-id", "ip", "group", "", "User"),
    "match": ("limited", "", "nobody", "127.0.0.1"),
    "match_type": (0, 1, 2, 3, -1),
    "feature": ("transaction.version", "no.such", "", "x" * 300),
    "max_version_level": (0, 1, 2, 3, 99, -1, 32767),
    "upgrade_type": (0, 1, 2, 3, 9, -1),
    "records": tuple(BATCHES.values()),
    "committed_metadata": ("", "m", "x" * 4_096, "x" * 4_097),
    "iterations": (4_095, 4_096, 16_384, 16_385, 0, -1, _MAX32),
    "count": (2, 1, 0, -1, 3),
    "num_partitions": (1, 2, 0, -1, -2),
    "replication_factor": (1, 0, -1, -2, 2, 32767),
    "mechanism": (0, 1, 2, 3, -1),
    "client_software_name": ("", "a", "-a", "a b", "a-", "é", "x" * 300),
    "client_software_version": ("", "1", "1 0", "-", "é"),
}  # fmt: skip
_BY_TYPE: Mapping[str, Sequence[Any]] = {
    "int8": (0, 1, 2, 3, 5, 9, -1, 127, -128),
    "int16": (0, 1, 2, -1, -2, 32767, -32768),
    "int32": (0, 1, 2, 100, -1, -2, _MAX32, -_MAX32 - 1),
    "int64": (0, 1, 2, 100, -1, -2, _MAX64, -_MAX64 - 1),
    "timedelta_i32": (0, 1, -1, _MAX32),
    "timedelta_i64": (0, 1, -1, _MAX64),
    "float64": (0.0, -1.0, 0.5, 1.0, 1e300, float("inf"), float("nan")),
    "string": ("", "x", "a b", "é", "x" * 300),
    "bytes": (b"", b"\0" * 6, b"x" * 3_000),
}


def values_of(key: ApiKey, shape: Shape, number: int) -> Sequence[Any]:
    """Return what a field may be changed to."""
    name = shape.name
    special = _special(key, name, number)
    if special is not None:
        return special
    if name in _BY_NAME and type(_plain_of(_BY_NAME[name])) is _TYPES.get(shape.kafka_type, object):
        return _BY_NAME[name]
    return _BY_TYPE[shape.kafka_type]


_TYPES: Mapping[str, type] = {
    "string": str, "bytes": bytes, "records": bytes, "uuid": type(None), "float64": float,
    **dict.fromkeys(("int8", "int16", "int32", "int64", "timedelta_i32", "timedelta_i64"), int),
}  # fmt: skip


def _plain_of(values: Sequence[Any]) -> Any:
    return values[0]


def _special(key: ApiKey, name: str, number: int) -> Sequence[Any] | None:
    """Return the values of fields whose name means something else elsewhere."""
    own = _own(key, name, number)
    if own is not None:
        return own
    if name == "resource_name":
        return (*_READ, "0", "77", "m")
    if name == "name" and key == K.CREATE_TOPICS:
        return (*_SETTINGS, f"n-{number}c", "t", "..")
    if name == "name" and key in (K.ALTER_CONFIGS, K.INCREMENTAL_ALTER_CONFIGS):
        return _SETTINGS
    if name == "name" and key == K.DESCRIBE_USER_SCRAM_CREDENTIALS:
        return ("limited", "", "é", "x" * 300)
    if name == "name" and key == K.JOIN_GROUP:
        return ("range", "sticky", "", "x")
    if key == K.ALTER_CLIENT_QUOTAS and name == "key":
        return ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "",
                "controller_mutation_rate", "connection_creation_rate", "no_such")  # fmt: skip
    if name in _TOPIC_FIELDS and key in _CHANGING:
        mine = f"s-{number}" if key in (K.DELETE_TOPICS, K.CREATE_PARTITIONS) else WRITTEN
        return (mine, "unknown", "", "a b", "..", _LONG, "é")
    if name not in _TOPIC_FIELDS:
        return None
    return _READ[:-1] if key in _COMPARED_EXACTLY else _READ


def _own(key: ApiKey, name: str, number: int) -> Sequence[Any] | None:
    """Return values with the request's number in them, of what a request might change."""
    if key in (K.ALTER_CONFIGS, K.INCREMENTAL_ALTER_CONFIGS) and name == "resource_name":
        topic = f"c-{number % SETTINGS_TOPICS}"
        return (topic, "unknown", "", "a b", "0", "77", f"m-{number}", _LONG)
    if key in _GROUPS_CHANGING and name in ("group_id", "groups_names"):
        return ("", f"g-{number}", f"g-{number}z", f"g-{number}é", f"g-{number}{'x' * 3_000}")
    if key == K.INIT_PRODUCER_ID and name == "transactional_id":
        return ("", f"x-{number}z", f"x-{number}é")
    if key == K.ALTER_USER_SCRAM_CREDENTIALS and name == "name":
        return ("", f"u-{number}", f"u-{number}é", f"u-{number}{'x' * 300}")
    if key == K.ALTER_CLIENT_QUOTAS and name == "entity_name":
        return (f"u-{number}", "", "127.0.0.9", "é")
    if key == K.DELETE_TOPICS and name == "topic_id":
        return (None, topic_id(f"s-{number}"), UNKNOWN_ID, UUID(int=1))
    if key == K.PRODUCE and name == "topic_id":
        return (None, topic_id(WRITTEN), topic_id(KEYED), UNKNOWN_ID, UUID(int=1))
    return None
