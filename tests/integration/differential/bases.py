"""Requests that are in order, for every API, and what their fields may be changed to.

What must not be asked, because it would end the comparison instead of telling something, is
taken back by `tamed`; `LEFT_OUT_OF_REQUESTS` says what that is, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.shapes import Shape
from tests.integration.differential.known import Known
from tests.integration.differential.plain_wire import Tree
from tests.integration.differential.steps import NOW_MS, UNKNOWN_ID, batch

K = ApiKey
SETTINGS_TOPICS = 8
"""Topics `c-0`, `c-1`...: of them settings and places are changed."""
WRITTEN = "w"
KEYED = "keyed"
"""A compacted topic that is written to."""
WRITTEN_PARTITIONS = 4


class Base(NamedTuple):
    """A request that is in order; `fields` may hold more than its version has."""

    name: str
    fields: Callable[[int, int], Mapping[str, Any]]
    """Of the request's number and version."""
    prepare: tuple[str, ...] = ()
    """What is asked before it (`campaign.py`)."""
    versions: range | None = None


def _same(name: str, **fields: Any) -> Base:
    return Base(name, lambda _n, _v: fields)


def topic_id(name: str) -> Known:
    return Known(f"id of {name}", UNKNOWN_ID)


def member(number: int) -> Known:
    return Known(f"member {number}", "")


def producer(number: int) -> dict[str, Known]:
    return {
        "producer_id": Known(f"producer {number}", -1),
        "producer_epoch": Known(f"epoch {number}", -1),
    }


def _named(version: int, ids_from: int, name: str, field: str = "name") -> dict[str, Any]:
    return {"topic_id": topic_id(name)} if version >= ids_from else {field: name}


# --- records and offsets -------------------------------------------------------------------------


def _produce(name: str, records: Any, topic: str = WRITTEN, transactional: bool = False) -> Base:
    def fields(n: int, version: int) -> Tree:
        data = Known(f"batch {n}", b"") if transactional else records
        rows = [{"index": n % WRITTEN_PARTITIONS if topic == WRITTEN else 0, "records": data}]
        return {
            "transactional_id": f"x-{n}" if transactional else None, "acks": -1,
            "timeout": 10_000,
            "topic_data": [{**_named(version, 13, topic), "partition_data": rows}],
        }  # fmt: skip

    return Base(name, fields, ("transaction", "batch") if transactional else ())


def _fetch(name: str, *at: tuple[str, int, int], **more: Any) -> Base:
    def fields(_n: int, version: int) -> Tree:
        topics = [
            {
                **_named(version, 13, topic, "topic"),
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


_RECORDS: Mapping[ApiKey, Sequence[Base]] = {
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
        _same("ends", replica_id=-1, isolation_level=0, timeout=10_000, topics=_offsets(-1, -2, 0)),
        _same("times", replica_id=-1, isolation_level=1, timeout=10_000,
              topics=_offsets(NOW_MS, NOW_MS + 1, -1)),
    ),
    K.OFFSET_FOR_LEADER_EPOCH: (
        _same("epochs", replica_id=-1, topics=[
            {"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]},
            {"topic": "one", "partitions": [{"partition": 0, "leader_epoch": 0}]}]),
    ),
    K.DELETE_RECORDS: (
        _same("some", timeout=10_000, topics=[
            {"name": WRITTEN, "partitions": [{"partition_index": 0, "offset": 0}]}]),
    ),
    K.DESCRIBE_PRODUCERS: (
        _same("of two", topics=[{"name": "t", "partition_indexes": [0, 1]},
                                {"name": "one", "partition_indexes": [0]}]),
    ),
}  # fmt: skip

# --- groups --------------------------------------------------------------------------------------


def _in_group(name: str, prepare: tuple[str, ...], **more: Any) -> Base:
    return Base(name, lambda n, _v: {
        "group_id": f"g-{n}", "generation_id": 1, "member_id": member(n),
        "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": member(n), "assignment": b"mine"}],
        "members": [{"member_id": member(n), "group_instance_id": None, "reason": None}], **more,
    }, prepare)  # fmt: skip


def join_fields(number: int, member_id: Any = "") -> Tree:
    """Return a JoinGroup request of a group of the number's own."""
    return {
        "group_id": f"g-{number}", "session_timeout": 60_000, "rebalance_timeout": 60_000,
        "member_id": member_id, "group_instance_id": None, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(6)},
                      {"name": "sticky", "metadata": bytes(6)}],
        "reason": None,
    }  # fmt: skip


def commit_fields(number: int, version: int, **more: Any) -> Tree:
    """Return an OffsetCommit request of a group of the number's own."""
    row = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1,
           "committed_metadata": "m", "retention_time": -1}  # fmt: skip
    return {
        "group_id": f"g-{number}", "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "retention_time": -1,
        "topics": [{**_named(version, 10, name), "partitions": [row]} for name in ("t", "one")],
        **more,
    }  # fmt: skip


def _fetched(group: str, *topics: str) -> Base:
    def fields(_n: int, version: int) -> Tree:
        rows = [{**_named(version, 10, one), "partition_indexes": [0, 1]} for one in topics]
        asked = rows or (None if version >= 2 else [])
        return {"group_id": group, "topics": asked, "require_stable": False,
                "groups": [{"group_id": group, "topics": asked}]}  # fmt: skip

    return Base(f"committed by {group}", fields)


_GROUPS: Mapping[ApiKey, Sequence[Base]] = {
    K.FIND_COORDINATOR: (
        Base("a group", lambda n, _v: {"key": f"g-{n}", "key_type": 0,
                                       "coordinator_keys": [f"g-{n}", "g"]}),
        Base("a transaction", lambda n, _v: {"key": f"x-{n}", "key_type": 1,
                                             "coordinator_keys": [f"x-{n}"]}, (), range(1, 99)),
    ),
    K.JOIN_GROUP: (
        Base("a new member", lambda n, _v: join_fields(n)),
        Base("again", lambda n, _v: join_fields(n, member(n)), ("member",)),
    ),
    K.SYNC_GROUP: (_in_group("the leader", ("joined",)), _in_group("again", ("member",))),
    K.HEARTBEAT: (_in_group("a beat", ("member",)),),
    K.LEAVE_GROUP: (_in_group("goes", ("member",)),),
    K.OFFSET_COMMIT: (
        Base("of nobody", commit_fields),
        Base("of a member", lambda n, v: commit_fields(
            n, v, member_id=member(n), generation_id_or_member_epoch=1), ("member",)),
    ),
    K.OFFSET_FETCH: (_fetched("g", "t", "one"), _fetched("g"), _fetched("nothing", "t")),
    K.OFFSET_DELETE: (
        Base("of a group", lambda n, _v: {"group_id": f"g-{n}", "topics": [
            {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 1}]},
            {"name": "one", "partitions": [{"partition_index": 0}]}]}, ("offsets",)),
    ),
    K.DESCRIBE_GROUPS: (
        _same("two", groups=["g", "nothing"], include_authorized_operations=False),
        Base("with a member", lambda n, _v: {"groups": [f"g-{n}"]}, ("member",)),
    ),
    K.LIST_GROUPS: (
        _same("all", states_filter=[], types_filter=[]),
        _same("some", states_filter=["Empty", "stable"], types_filter=["classic"]),
    ),
    K.DELETE_GROUPS: (
        Base("one", lambda n, _v: {"groups_names": [f"g-{n}", "nothing"]}, ("offsets",)),
        Base("with a member", lambda n, _v: {"groups_names": [f"g-{n}"]}, ("member",)),
    ),
}  # fmt: skip

# --- transactions --------------------------------------------------------------------------------


def _txn(name: str, fields: Callable[[int, int], Mapping[str, Any]], *prepare: str) -> Base:
    return Base(name, lambda n, v: {
        "transactional_id": f"x-{n}", **producer(n), **fields(n, v)}, prepare)  # fmt: skip


def add_fields(number: int, _version: int = 0) -> Tree:
    """Return an AddPartitionsToTxn request, in both of its shapes."""
    rows = [{"name": WRITTEN, "partitions": [number % WRITTEN_PARTITIONS]}]
    who: Tree = {"transactional_id": f"x-{number}", **producer(number), "topics": rows}
    return {
        **{f"v3_and_below_{name}": value for name, value in who.items()},
        "transactions": [{**who, "verify_only": False}],
    }


def init_fields(number: int, _version: int) -> Tree:
    """Return an InitProducerId request of an id of the number's own."""
    return {"transactional_id": f"x-{number}", "transaction_timeout": 900_000,
            "producer_id": -1, "producer_epoch": -1}  # fmt: skip


_OFFSET = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1,
           "committed_metadata": "m"}  # fmt: skip
_TRANSACTIONS: Mapping[ApiKey, Sequence[Base]] = {
    K.INIT_PRODUCER_ID: (
        Base("the first time", init_fields),
        Base("again", lambda n, v: {**init_fields(n, v), **producer(n)}, ("producer",)),
        Base("no transactions", lambda n, v: {**init_fields(n, v), "transactional_id": None}),
    ),
    K.ADD_PARTITIONS_TO_TXN: (Base("a partition", add_fields, ("producer",)),),
    K.ADD_OFFSETS_TO_TXN: (_txn("a group", lambda n, _v: {"group_id": f"g-{n}"}, "producer"),),
    K.END_TXN: (_txn("commit", lambda _n, _v: {"committed": True}, "transaction"),
                _txn("of nothing", lambda _n, _v: {"committed": False}, "producer")),
    K.TXN_OFFSET_COMMIT: (
        _txn("an offset", lambda n, _v: {
            "group_id": f"g-{n}", "topics": [{"name": "t", "partitions": [_OFFSET]}]},
            "producer", "offsets in it"),
    ),
    K.WRITE_TXN_MARKERS: (
        Base("a marker", lambda n, _v: {"markers": [{
            **producer(n), "transaction_result": True, "coordinator_epoch": 0,
            "topics": [{"name": WRITTEN, "partition_indexes": [n % WRITTEN_PARTITIONS]}]}]},
            ("producer",)),
    ),
    K.DESCRIBE_TRANSACTIONS: (_same("two", transactional_ids=["tx", "nothing"]),),
    K.LIST_TRANSACTIONS: (
        _same("all", state_filters=[], producer_id_filters=[], duration_filter=-1),
        _same("some", state_filters=["Empty"], producer_id_filters=[-1], duration_filter=-1,
              transactional_id_pattern="t.*"),
    ),
}  # fmt: skip

# --- topics --------------------------------------------------------------------------------------


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


_TOPICS: Mapping[ApiKey, Sequence[Base]] = {
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
        _same("two", topics=[{"name": "t"}, {"name": "one"}], response_partition_limit=2000,
              cursor=None),
        _same("a page", topics=[{"name": "t"}, {"name": "one"}], response_partition_limit=2,
              cursor={"topic_name": "t", "partition_index": 1}),
    ),
    K.ELECT_LEADERS: (_same("preferred", election_type=0, timeout=10_000, topic_partitions=[
        {"topic": "t", "partitions": [0, 1]}, {"topic": "one", "partitions": [0]}]),),
    K.ALTER_PARTITION_REASSIGNMENTS: (Base("to itself", _moved),),
    K.LIST_PARTITION_REASSIGNMENTS: (
        _same("some", timeout=10_000, topics=[{"name": "t", "partition_indexes": [0]}]),
        _same("all", timeout=10_000, topics=None),
    ),
    K.ALTER_REPLICA_LOG_DIRS: (
        _same("to nowhere", dirs=[{"path": "/nowhere", "topics": [
            {"name": "t", "partitions": [0, 1]}]}]),
    ),
    K.DESCRIBE_LOG_DIRS: (
        _same("some", topics=[{"topic": "t", "partitions": [0, 1]}]),
        _same("all", topics=None),
    ),
}  # fmt: skip

# --- settings, the cluster, rights ---------------------------------------------------------------


def _altered(number: int, _version: int) -> Tree:
    rows = [{"name": "retention.ms", "value": "90000", "config_operation": 0},
            {"name": "cleanup.policy", "value": "compact", "config_operation": 0}]  # fmt: skip
    name = f"c-{number % SETTINGS_TOPICS}"
    return {"resources": [{"resource_type": 2, "resource_name": name, "configs": rows}],
            "validate_only": False}  # fmt: skip


def _metrics_altered(number: int, _version: int) -> Tree:
    rows = [{"name": "metrics", "value": "a.b", "config_operation": 0},
            {"name": "interval.ms", "value": "1000", "config_operation": 0}]  # fmt: skip
    return {"resources": [{"resource_type": 16, "resource_name": f"m-{number}", "configs": rows}],
            "validate_only": True}  # fmt: skip


def _described(name: str, *rows: tuple[int, str, list[str] | None]) -> Base:
    return _same(name, include_synonyms=False, include_documentation=False, resources=[
        {"resource_type": kind, "resource_name": one, "configuration_keys": keys}
        for kind, one, keys in rows])  # fmt: skip


_ACL = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
        "principal": "User:anna", "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
_ACL_FILTER = {"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3,
               "principal_filter": None, "host_filter": None, "operation": 1,
               "permission_type": 1}  # fmt: skip

_CLUSTER: Mapping[ApiKey, Sequence[Base]] = {
    K.API_VERSIONS: (_same("asked", client_software_name="a-client",
                           client_software_version="1.0"),),
    K.DESCRIBE_CLUSTER: (_same("asked", include_cluster_authorized_operations=False,
                               endpoint_type=1, include_fenced_brokers=False),),
    K.DESCRIBE_CONFIGS: (
        _described("a topic", (2, "one", None), (2, "t", ["retention.ms", "cleanup.policy"])),
        _described("a broker", (4, "0", ["log.retention.ms"])),
        _described("metrics", (16, "m", None), (32, "g", ["consumer.session.timeout.ms"])),
    ),
    K.ALTER_CONFIGS: (Base("a topic", _altered), Base("metrics", _metrics_altered)),
    K.INCREMENTAL_ALTER_CONFIGS: (Base("a topic", _altered), Base("metrics", _metrics_altered)),
    K.LIST_CONFIG_RESOURCES: (_same("all", resource_types=[]),
                              _same("some", resource_types=[2, 16])),
    K.UPDATE_FEATURES: (_same("a version", timeout=10_000, validate_only=True, feature_updates=[
        {"feature": "transaction.version", "max_version_level": 1, "allow_downgrade": True,
         "upgrade_type": 2}]),),
    K.UNREGISTER_BROKER: (_same("one that is not there", broker_id=77),),
    K.DESCRIBE_CLIENT_QUOTAS: (
        _same("of one", strict=False, components=[
            {"entity_type": "user", "match_type": 0, "match": "limited"}]),
        _same("of two", strict=True, components=[
            {"entity_type": "user", "match_type": 0, "match": "limited"},
            {"entity_type": "client-id", "match_type": 2, "match": None}]),
    ),
    K.ALTER_CLIENT_QUOTAS: (
        Base("a user", lambda n, _v: {"validate_only": False, "entries": [
            {"entity": [{"entity_type": "user", "entity_name": f"u-{n}"}],
             "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False},
                     {"key": "request_percentage", "value": 50.0, "remove": False}]}]}),
    ),
    K.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        _same("two", users=[{"name": "limited"}, {"name": "nobody"}]),
        _same("all", users=None),
    ),
    K.ALTER_USER_SCRAM_CREDENTIALS: (
        Base("a password", lambda n, _v: {"deletions": [], "upsertions": [
            {"name": f"u-{n}", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16,
             "salted_password": b"p" * 32}]}),
        Base("nobody's", lambda n, _v: {"upsertions": [], "deletions": [
            {"name": f"u-{n}", "mechanism": 1}]}),
    ),
    K.DESCRIBE_ACLS: (_same("some", **_ACL_FILTER),),
    K.CREATE_ACLS: (_same("one", creations=[_ACL]),),
    K.DELETE_ACLS: (_same("some", filters=[_ACL_FILTER]),),
    K.SASL_HANDSHAKE: (_same("a login", mechanism="PLAIN"),),
    K.SASL_AUTHENTICATE: (_same("a login", auth_bytes=b"\0anna\0secret"),),
}  # fmt: skip

BASES: Mapping[ApiKey, Sequence[Base]] = {
    **_RECORDS, **_GROUPS, **_TRANSACTIONS, **_TOPICS, **_CLUSTER,
}  # fmt: skip

# --- what fields are changed to ------------------------------------------------------------------

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


# --- what is not asked ---------------------------------------------------------------------------

LEFT_OUT_OF_REQUESTS: Mapping[str, str] = {
    "timeouts, and waits for records": "what is in time is up to the machine",
    "Produce with acks 0": "nothing is answered",
    "Produce with null records, AddPartitionsToTxn of no transactions": "Kafka never answers",
    "Fetch of replicas": "is between Kafka's brokers, and moves their watermarks",
    "Metadata that makes topics": "makes them in the background, some time later",
    "thousands of partitions": "both would make them",
    "changes of brokers' settings": "are only tried: some would end the service",
    "UpdateFeatures": "is only tried, and version 0 cannot: transactions change with it",
    "UnregisterBroker of the broker itself": "ends Kafka's service",
    "quotas for everybody": "would hold up the test itself: are only tried",
    "settings of brokers, all of them": "are each program's own; some are asked for by name",
    "DescribeTopicPartitions of all topics": "is cut where topics are that others just made",
    "AlterConfigs of a resource twice": "Kafka never answers",
    "WriteTxnMarkers of several partitions": "Kafka never answers if one is unknown",
    "JoinGroup of a second member": "waits for the first one, and that for its session's end",
}


def tamed(key: ApiKey, version: int, number: int, fields: Tree) -> list[str]:
    """Take back what must not be asked; return what was."""
    rule = _RULES.get(key)
    return rule(version, number, fields) if rule is not None else []


def _tame_produce(_version: int, _number: int, fields: Tree) -> list[str]:
    said = []
    if fields["acks"] == 0:
        fields["acks"] = 1
        said.append("acks=1")
    for topic in fields["topic_data"] or ():
        for one in topic["partition_data"] or ():
            if one["records"] is None:
                one["records"] = b""
                said.append("records=b''")
    return said


def _tame_adding(version: int, number: int, fields: Tree) -> list[str]:
    if version >= 4 and not fields["transactions"]:
        fields["transactions"] = add_fields(number)["transactions"]
        return ["of one"]
    return []


def _tame_fetch(_version: int, _number: int, fields: Tree) -> list[str]:
    if fields.get("replica_id", -1) >= 0:
        fields["replica_id"] = -1
        return ["replica_id=-1"]
    return []


def _tame_metadata(version: int, _number: int, fields: Tree) -> list[str]:
    fields["allow_auto_topic_creation"] = False
    if version >= 4 or fields["topics"] is None:
        return []
    kept = [one for one in fields["topics"] if one["name"] not in ("unknown", "é", "")]
    said = ["without unknown ones"] if kept != fields["topics"] else []
    fields["topics"] = kept
    return said


def _tame_settings(_version: int, _number: int, fields: Tree) -> list[str]:
    said = []
    rows = fields["resources"] or []
    unique = {(one["resource_type"], one["resource_name"]): one for one in rows}
    if len(unique) < len(rows):
        fields["resources"] = list(unique.values())
        said.append("each once")
    of_brokers = [one for one in fields["resources"] or () if one["resource_type"] in (4, 8)]
    if of_brokers and not fields["validate_only"]:
        fields["validate_only"] = True
        said.append("validate_only=True")
    return said


def _tame_described(_version: int, _number: int, fields: Tree) -> list[str]:
    for one in fields["resources"] or ():
        if one["resource_type"] in (4, 8, 32) and not one["configuration_keys"]:
            one["configuration_keys"] = ["log.retention.ms", "no.such"]
    return []


def _tame_topic_pages(_version: int, _number: int, fields: Tree) -> list[str]:
    if not fields["topics"]:
        fields["topics"] = [{"name": "one"}]
        return ["topics=['one']"]
    return []


def _tame_features(version: int, _number: int, fields: Tree) -> list[str]:
    if version >= 1:
        fields["validate_only"] = True
        return []
    for one in fields["feature_updates"] or ():
        if one["feature"] == "transaction.version":
            one["feature"] = "no.such"
    return []


def _tame_quotas(_version: int, _number: int, fields: Tree) -> list[str]:
    names = [part["entity_name"] for one in fields["entries"] or () for part in one["entity"] or ()]
    if None in names and not fields["validate_only"]:
        fields["validate_only"] = True
        return ["validate_only=True"]
    return []


def _tame_join(version: int, number: int, fields: Tree) -> list[str]:
    """The second base has a member in the group already, and names it."""
    is_known = isinstance(fields["member_id"], Known)
    if fields["group_id"] not in (f"g-{number}", "", None):
        fields["group_id"] = f"g-{number}" if is_known else f"g-{number}b"
        return [f"group_id={fields['group_id']!r}"]
    if not is_known and (fields["member_id"] or "") == "":
        # Alone in a group of its own, whatever its base was.
        fields["group_id"] = fields["group_id"] and f"g-{number}b"
    return []


def _tame_markers(_version: int, _number: int, fields: Tree) -> list[str]:
    """Kafka never answers if one of several partitions is unknown, or is named twice."""
    markers = fields["markers"] or []
    rows = [
        (topic["name"], index)
        for one in markers
        for topic in one["topics"] or ()
        for index in topic["partition_indexes"] or ()
    ]
    if len(rows) > 1 or len(markers) > 1:
        fields["markers"] = markers[:1]
        for one in fields["markers"]:
            one["topics"] = (one["topics"] or [])[:1]
            for topic in one["topics"]:
                topic["partition_indexes"] = (topic["partition_indexes"] or [])[:1]
        return ["only the first"]
    return []


_RULES: Mapping[ApiKey, Callable[[int, int, Tree], list[str]]] = {
    K.PRODUCE: _tame_produce,
    K.ADD_PARTITIONS_TO_TXN: _tame_adding,
    K.FETCH: _tame_fetch,
    K.METADATA: _tame_metadata,
    K.ALTER_CONFIGS: _tame_settings,
    K.INCREMENTAL_ALTER_CONFIGS: _tame_settings,
    K.DESCRIBE_CONFIGS: _tame_described,
    K.DESCRIBE_TOPIC_PARTITIONS: _tame_topic_pages,
    K.UPDATE_FEATURES: _tame_features,
    K.ALTER_CLIENT_QUOTAS: _tame_quotas,
    K.JOIN_GROUP: _tame_join,
    K.WRITE_TXN_MARKERS: _tame_markers,
}

# --- what of an answer is compared ---------------------------------------------------------------

NEVER_TWO_ALIKE = frozenset(
    ("throttle_time", "host", "port", "cluster_id", "log_append_time", "commit_timestamp", "rack",
     "transaction_start_time", "last_timestamp", "log_dir", "partition_size", "total_bytes",
     "usable_bytes", "api_keys", "supported_features", "finalized_features",
     "finalized_features_epoch")
)  # fmt: skip
"""Times, places and sizes; versions and features have tests of their own."""
OFFSETS = ("base_offset", "log_start_offset", "low_watermark")
WRITING = (K.PRODUCE, K.DELETE_RECORDS)
"""APIs in whose answers only the presence of `OFFSETS` is compared: a batch that one of both
refuses should not be found again in all that follow."""
STABLE_TOPICS = ("t", "one", "compacted")
STABLE = frozenset(
    (*STABLE_TOPICS, "g", "tx", "limited", "__consumer_offsets", "__transaction_state")
)
"""What no request changes."""
WHOLE_LISTS: Mapping[ApiKey, Sequence[str]] = {
    K.METADATA: ("name",),
    K.DESCRIBE_LOG_DIRS: ("name",),
    K.ELECT_LEADERS: ("topic",),
    K.LIST_PARTITION_REASSIGNMENTS: ("name",),
    K.LIST_GROUPS: ("group_id",),
    K.LIST_TRANSACTIONS: ("transactional_id",),
    K.LIST_CONFIG_RESOURCES: ("resource_name",),
    K.DESCRIBE_USER_SCRAM_CREDENTIALS: ("user",),
    K.DESCRIBE_CLIENT_QUOTAS: (),
}
"""APIs that may be asked for all there is: rows of other things than `STABLE` and what the request
names are left out, by these of their fields."""
