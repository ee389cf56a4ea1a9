"""What is asked of both brokers: every API in every version, with good requests and bad ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.record_builder import Record, build_batch
from tests.integration.differential.conversation import Fields, Seen, Step

NOW_MS = int(time.time() * 1000)
UNKNOWN_ID = UUID(int=0x1234_5678_9ABC_4DEF_8123_4567_89AB_CDEF)


def always(**fields: Any) -> Callable[[Seen, int], Fields]:
    return lambda _seen, _version: fields


# --- topics ------------------------------------------------------------------------------------


def _new(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": more.get("assignments", []),
        "configs": [{"name": k, "value": v} for k, v in more.get("configs", {}).items()],
    }


def _create(*topics: dict[str, Any], validate_only: bool = False) -> Callable[[Seen, int], Fields]:
    return always(topics=list(topics), timeout=10_000, validate_only=validate_only)


def _per_version(name: str, **more: Any) -> Callable[[Seen, int], Fields]:
    return lambda _seen, version: {
        "topics": [_new(f"{name}{version}", **more)], "timeout": 10_000, "validate_only": False
    }  # fmt: skip


def _note_ids(seen: Seen, answer: Any) -> None:
    for topic in answer.topics:
        if getattr(topic, "topic_id", None) is not None and topic.name:
            seen.topics[topic.name] = topic.topic_id


def _assignment(broker: int) -> list[dict[str, Any]]:
    return [{"partition_index": 0, "broker_ids": [broker]}]


C = ApiKey.CREATE_TOPICS
CREATING: Sequence[Step] = (
    Step("make what others use", C, _create(
        _new("t", 3), _new("one"), _new("compacted", configs={"cleanup.policy": "compact"}),
        _new("small", configs={"max.message.bytes": "200"}),
        _new("stamped", configs={"message.timestamp.type": "LogAppendTime"}),
    ), (7,), _note_ids),
    Step("one", C, _per_version("made")),
    Step("one that exists", C, _create(_new("t"))),
    Step("a bad name", C, _create(_new("a b"), _new(""), _new(".."), _new("x" * 250))),
    Step("a name with a dot", C, _create(_new("a.b")), (2,)),
    Step("a name that collides", C, _create(_new("a_b"))),
    Step("no partitions", C, _create(_new("zero", 0), _new("minus", -2))),
    Step("bad replication", C, _create(_new("none", 1, 0), _new("many", 1, 99))),
    Step("a setting that does not exist", C, _create(_new("u", configs={"no.such": "1"}))),
    Step("a bad value", C, _create(_new("v", configs={"retention.ms": "soon"}))),
    Step("a null value", C, _create(_new("w", configs={"retention.ms": None}))),
    Step("twice in a request", C, _create(_new("twice"), _new("twice"))),
    Step("only tried", C, _create(_new("tried", 2), _new("t")), None),
    Step("an unknown broker", C, _create(_new("x1", -1, -1, assignments=_assignment(77)))),
    Step("an assignment and a count", C, _create(_new("x2", 1, 1, assignments=_assignment(0)))),
    Step("gaps in an assignment", C, _create(_new("x3", -1, -1, assignments=[
        {"partition_index": 1, "broker_ids": [0]}]))),
    Step("the same broker twice", C, _create(_new("x4", -1, -1, assignments=[
        {"partition_index": 0, "broker_ids": [0, 0]}]))),
)  # fmt: skip

M = ApiKey.METADATA


def _named(*names: str) -> Callable[[Seen, int], Fields]:
    return always(topics=[{"name": name, "topic_id": None} for name in names],
                  allow_auto_topic_creation=False)  # fmt: skip


METADATA: Sequence[Step] = (
    Step("named", M, _named("t", "one")),
    Step("unknown", M, _named("unknown"), range(4, 20)),
    Step("bad names", M, _named("a b", "x" * 300), range(4, 20)),
    Step("none", M, always(topics=[]), range(1, 20)),
    Step("named twice", M, _named("t", "t")),
    Step("by id", M, lambda seen, _: {
        "topics": [{"name": None, "topic_id": seen.topics["t"]},
                   {"name": None, "topic_id": UNKNOWN_ID}]}, range(12, 20)),
    Step("with what may be done", M, always(
        topics=[{"name": name, "topic_id": None} for name in ("t", "unknown", "a b")],
        allow_auto_topic_creation=False, include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True), range(8, 20)),
    Step("by id and name", M, lambda seen, _: {
        "topics": [{"name": "t", "topic_id": seen.topics["t"]}]}, range(12, 20)),
)  # fmt: skip


def _partitions(*topics: tuple[str, int]) -> Callable[[Seen, int], Fields]:
    return always(
        topics=[{"name": name, "count": count, "assignments": None} for name, count in topics],
        timeout=10_000, validate_only=False,
    )  # fmt: skip


P = ApiKey.CREATE_PARTITIONS
GROWING: Sequence[Step] = (
    Step("more", P, lambda _s, version: {
        "topics": [{"name": f"made{max(version, 2)}", "count": 3 + version, "assignments": None}],
        "timeout": 10_000, "validate_only": False}, (2, 3)),
    Step("fewer, as many, unknown", P, _partitions(("t", 2), ("one", 1), ("unknown", 3))),
    Step("none", P, _partitions(("t", 0), ("one", -1))),
    Step("twice", P, _partitions(("one", 5), ("one", 6))),
    Step("an unknown broker", P, always(
        topics=[{"name": "one", "count": 2, "assignments": [{"broker_ids": [77]}]}],
        timeout=10_000, validate_only=False)),
)  # fmt: skip

D = ApiKey.DELETE_TOPICS
DELETING: Sequence[Step] = (
    Step("by name", D, lambda _seen, version: {
        "topic_names": [f"made{version + 1}", "unknown", "a b"], "timeout": 10_000}, range(1, 6)),
    Step("by name or id", D, lambda seen, _: {
        "topics": [{"name": "made7", "topic_id": None}, {"name": "unknown", "topic_id": None},
                   {"name": None, "topic_id": UNKNOWN_ID},
                   {"name": "t", "topic_id": seen.topics["t"]}], "timeout": 10_000}, (6,)),
    Step("twice", D, always(topics=[{"name": "one", "topic_id": None},
                                    {"name": "one", "topic_id": None}], timeout=10_000), (6,)),
)  # fmt: skip

# --- records -----------------------------------------------------------------------------------


def batch(*values: bytes, key: bytes | None = b"k", at_ms: int = NOW_MS, **fields: Any) -> bytes:
    return build_batch([Record(key, value, at_ms) for value in values], **fields)


def _produce(
    records: bytes | None, topic: str = "one", partition: int = 0, acks: int = -1
) -> Callable[[Seen, int], Fields]:
    def fields(seen: Seen, version: int) -> Fields:
        known = seen.topics.get(topic, UNKNOWN_ID)
        named = {"topic_id": known} if version >= 13 else {"name": topic}
        rows = [{"index": partition, "records": records}]
        return {
            "transactional_id": None, "acks": acks, "timeout": 10_000,
            "topic_data": [{**named, "partition_data": rows}],
        }  # fmt: skip

    return fields


def _broken(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


R = ApiKey.PRODUCE
_GOOD = batch(b"one", b"two")
_ONES = batch(b"v" * 50, b"v" * 50, b"v" * 50, b"v" * 50)
PRODUCING: Sequence[Step] = (
    Step("two records", R, _produce(_GOOD), range(3, 14)),
    Step("acks 1", R, _produce(_GOOD, acks=1)),
    Step("acks 2", R, _produce(_GOOD, acks=2), range(3, 14)),
    Step("an unknown topic", R, _produce(_GOOD, "unknown"), range(3, 14)),
    Step("an unknown partition", R, _produce(_GOOD, "one", 9), range(3, 14)),
    Step("a negative partition", R, _produce(_GOOD, "one", -1), range(3, 14)),
    Step("a broken record", R, _produce(_broken(_GOOD, len(_GOOD) - 3, 0x55)), range(3, 14)),
    Step("no records", R, _produce(b""), range(3, 14)),
    Step("too large", R, _produce(_ONES, "small"), range(3, 14)),
    Step("no key where keys are needed", R, _produce(batch(b"v", key=None), "compacted"),
         range(3, 14)),
    Step("a time far ahead", R, _produce(batch(b"v", at_ms=NOW_MS + 90_000_000)), range(3, 14)),
    Step("the broker's time", R, _produce(_GOOD, "stamped"), range(3, 14)),
    Step("an idempotent batch", R, _produce(batch(b"v", producer_id=4_000_000, producer_epoch=0,
         base_sequence=0)), (9,)),
    Step("the same again", R, _produce(batch(b"v", producer_id=4_000_000, producer_epoch=0,
         base_sequence=0)), (9,)),
    Step("a gap in the sequence", R, _produce(batch(b"v", producer_id=4_000_000, producer_epoch=0,
         base_sequence=5)), (9,)),
    Step("an older epoch", R, lambda _s, _v: _produce(batch(b"v", producer_id=4_000_001,
         producer_epoch=2, base_sequence=0))(_s, _v), (9,)),
    Step("an older epoch, after it", R, _produce(batch(b"v", producer_id=4_000_001,
         producer_epoch=1, base_sequence=0)), (9,)),
    Step("a new epoch in the middle", R, _produce(batch(b"v", producer_id=4_000_001,
         producer_epoch=3, base_sequence=4)), (9,)),
)  # fmt: skip


def _fetch(
    offset: int, topic: str = "one", partition: int = 0, **more: Any
) -> Callable[[Seen, int], Fields]:
    row = {
        "partition": partition, "current_leader_epoch": more.get("epoch", -1),
        "fetch_offset": offset, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip

    def fields(seen: Seen, version: int) -> Fields:
        known = seen.topics.get(topic, UNKNOWN_ID)
        name = {"topic_id": known} if version >= 13 else {"topic": topic}
        return {
            "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20,
            "isolation_level": more.get("isolation", 0), "session_id": more.get("session", 0),
            "session_epoch": more.get("session_epoch", -1),
            "topics": [{**name, "partitions": [row]}], "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip

    return fields


F = ApiKey.FETCH
FETCHING: Sequence[Step] = (
    Step("from the start", F, _fetch(0)),
    Step("read committed", F, _fetch(0, isolation=1)),
    Step("at the end", F, _fetch(10_000_000)),
    Step("before the start", F, _fetch(-5)),
    Step("an unknown topic", F, _fetch(0, "unknown")),
    Step("an unknown partition", F, _fetch(0, "one", 9)),
    Step("a newer epoch", F, _fetch(0, epoch=7)),
    Step("no such session", F, _fetch(0, session=99, session_epoch=4)),
    Step("leaving a session", F, _fetch(0, session=99)),
)

L = ApiKey.LIST_OFFSETS


def _offsets(*times: int, topic: str = "one", partition: int = 0, epoch: int = -1) -> Any:
    return always(
        replica_id=-1, isolation_level=0, timeout_ms=10_000,
        topics=[{"name": topic, "partitions": [
            {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": at}]}
            for at in times],
    )  # fmt: skip


LISTING: Sequence[Step] = (
    Step("latest", L, _offsets(-1)),
    Step("earliest", L, _offsets(-2)),
    Step("largest timestamp", L, _offsets(-3)),
    Step("earliest local", L, _offsets(-4)),
    Step("latest tiered", L, _offsets(-5)),
    Step("earliest pending upload", L, _offsets(-6)),
    Step("a negative time", L, _offsets(-9)),
    Step("a time", L, _offsets(NOW_MS)),
    Step("the beginning of time", L, _offsets(0)),
    Step("a time ahead", L, _offsets(NOW_MS + 10**9)),
    Step("an unknown topic", L, _offsets(-1, topic="unknown")),
    Step("an unknown partition", L, _offsets(-1, partition=9)),
    Step("a newer epoch", L, _offsets(-1, epoch=9)),
    Step("an empty partition", L, _offsets(-3, topic="t")),
)

E = ApiKey.OFFSET_FOR_LEADER_EPOCH


def _epochs(epoch: int, topic: str = "one", current: int = -1) -> Callable[[Seen, int], Fields]:
    return always(
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [
            {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]}],
    )  # fmt: skip


EPOCHS: Sequence[Step] = (
    Step("the first", E, _epochs(0)),
    Step("a later one", E, _epochs(5)),
    Step("none", E, _epochs(-1)),
    Step("unknown topic", E, _epochs(0, "unknown")),
    Step("a newer leader", E, _epochs(0, current=4)),
)

X = ApiKey.DELETE_RECORDS


def _delete_records(offset: int, topic: str = "one", index: int = 0) -> Any:
    return always(
        topics=[{"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}],
        timeout=10_000,
    )


RECORDS: Sequence[Step] = (
    Step("some", X, _delete_records(2)),
    Step("fewer than before", X, _delete_records(1)),
    Step("beyond the end", X, _delete_records(10_000_000)),
    Step("a negative offset", X, _delete_records(-2)),
    Step("unknown", X, _delete_records(0, "unknown")),
    Step("an unknown partition", X, _delete_records(0, "one", 9)),
    Step("of a compacted topic", X, _delete_records(0, "compacted")),
    Step("all", X, _delete_records(-1)),
)

# --- groups ------------------------------------------------------------------------------------

G = ApiKey.FIND_COORDINATOR


def _find(key: str, kind: int) -> Callable[[Seen, int], Fields]:
    return lambda _s, version: (
        {"key": key, "key_type": kind}
        if version < 4
        else {"coordinator_keys": [key], "key_type": kind}
    )


def _is_found(answer: Any) -> bool:
    rows = getattr(answer, "coordinators", None) or [answer]
    return all(row.error_code.name != "coordinator_not_available" for row in rows)


FINDING: Sequence[Step] = (
    Step("a group", G, _find("g", 0), settle=_is_found),
    Step("no name", G, _find("", 0)),
    Step("a kind that does not exist", G, _find("g", 9), range(1, 9)),
)

J = ApiKey.JOIN_GROUP


def _join(group: str = "g", member: str = "", **more: Any) -> Callable[[Seen, int], Fields]:
    return lambda seen, version: {
        "group_id": group,
        "session_timeout": more.get("session", 10_000),
        "rebalance_timeout": 10_000,
        "member_id": seen.values.get(member, member),
        "group_instance_id": None,
        "protocol_type": more.get("kind", "consumer"),
        "protocols": more.get("protocols", [{"name": "range", "metadata": b"\x00" * 6}]),
        "reason": None,
    }


def _is_loaded(answer: Any) -> bool:
    return bool(answer.error_code.name not in ("coordinator_load_in_progress", "not_coordinator"))


S, H, W = ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP


def _sync(group: str, generation: int, member: str) -> Callable[[Seen, int], Fields]:
    return always(group_id=group, generation_id=generation, member_id=member,
                  group_instance_id=None, protocol_type="consumer", protocol_name="range",
                  assignments=[])  # fmt: skip


def _beat(group: str, generation: int, member: str) -> Callable[[Seen, int], Fields]:
    return always(group_id=group, generation_id=generation, member_id=member,
                  group_instance_id=None)  # fmt: skip


def _leave(group: str, member: str) -> Callable[[Seen, int], Fields]:
    return lambda _s, version: (
        {"group_id": group, "member_id": member}
        if version < 3
        else {"group_id": group, "members": [{"member_id": member, "group_instance_id": None,
                                              "reason": None}]}
    )  # fmt: skip


GROUPS: Sequence[Step] = (
    Step("a session that is too short", J, _join(session=10), settle=_is_loaded),
    Step("no group", J, _join("")),
    Step("an unknown member", J, _join("g", "nobody")),
    Step("no protocols", J, _join("g2", protocols=[])),
    Step("no protocol type", J, _join("g2", kind="")),
    Step("sync without a group", S, _sync("nothing", 1, "m")),
    Step("sync with no name", S, _sync("", 1, "m")),
    Step("a beat without a group", H, _beat("nothing", 1, "m")),
    Step("a beat with no name", H, _beat("", 1, "m")),
    Step("leaving no group", W, _leave("nothing", "m")),
    Step("leaving without a name", W, _leave("", "m")),
)

OC, OF, OD = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE


def _commit(group: str = "g", **more: Any) -> Callable[[Seen, int], Fields]:
    def fields(seen: Seen, version: int) -> Fields:
        topic = more.get("topic", "one")
        known = {"topic_id": seen.topics.get(topic, UNKNOWN_ID)}
        return {
            "group_id": group, "member_id": more.get("member", ""),
            "generation_id_or_member_epoch": more.get("generation", -1),
            "group_instance_id": None, "retention_time": -1,
            "topics": [{**(known if version >= 10 else {"name": topic}), "partitions": [{
                "partition_index": more.get("partition", 0), "committed_offset": 3,
                "committed_leader_epoch": 0,
                "committed_metadata": more.get("metadata", "m")}]}],
        }  # fmt: skip

    return fields


def _committed(group: str = "g", topic: str | None = "one") -> Callable[[Seen, int], Fields]:
    def fields(seen: Seen, version: int) -> Fields:
        known = {"topic_id": seen.topics.get(topic or "", UNKNOWN_ID)}
        rows = [{**(known if version >= 10 else {"name": topic}), "partition_indexes": [0, 7]}]
        topics = None if topic is None else rows
        if version < 8:
            return {"group_id": group, "topics": topics, "require_stable": False}
        groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
        return {"groups": groups, "require_stable": False}

    return fields


OFFSETS: Sequence[Step] = (
    Step("commit", OC, _commit()),
    Step("commit of a member of nothing", OC, _commit(generation=4, member="m")),
    Step("commit of an unknown topic", OC, _commit(topic="unknown")),
    Step("commit of an unknown partition", OC, _commit(partition=9)),
    Step("commit with long metadata", OC, _commit(metadata="x" * 5_000)),
    Step("commit without a group", OC, _commit("")),
    Step("committed", OF, _committed()),
    Step("committed of an unknown topic", OF, _committed("g", "unknown")),
    Step("committed of an unknown group", OF, _committed("nothing")),
    Step("all that is committed", OF, _committed("g", None), range(2, 20)),
    Step("all of an unknown group", OF, _committed("nothing", None), range(2, 20)),
)

DG, LG, RG = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS

ADMINISTRATION: Sequence[Step] = (
    Step("a group", DG, always(groups=["g"], include_authorized_operations=False)),
    Step("an unknown one", DG, always(groups=["nothing"], include_authorized_operations=False)),
    Step("what may be done to them", DG, always(
        groups=["g", "nothing"], include_authorized_operations=True), range(3, 20)),
    Step("no name", DG, always(groups=[""], include_authorized_operations=False)),
    Step("list", LG, always(states_filter=[], types_filter=[])),
    Step("list by state", LG, always(states_filter=["Stable"], types_filter=[]), range(4, 9)),
    Step("list by type", LG, always(states_filter=[], types_filter=["classic"]), range(5, 9)),
    Step("delete an offset", OD, always(group_id="g", topics=[
        {"name": "one", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "unknown", "partitions": [{"partition_index": 0}]}])),
    Step("delete an offset of no group", OD, always(group_id="nothing", topics=[
        {"name": "one", "partitions": [{"partition_index": 0}]}])),
    Step("delete", RG, always(groups_names=["g", "nothing", ""])),
)  # fmt: skip

# --- settings ----------------------------------------------------------------------------------

DC, AC, IC = ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
TOPIC, BROKER, CLIENT_METRICS, GROUP_RESOURCE = 2, 4, 16, 32


def _describe(
    kind: int, name: str, keys: list[str] | None = None, *, synonyms: bool = False
) -> Callable[[Seen, int], Fields]:
    return always(
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=synonyms, include_documentation=True,
    )  # fmt: skip


def _alter(
    kind: int, name: str, *rows: tuple[str, str | None, int], validate_only: bool = False
) -> Callable[[Seen, int], Fields]:
    configs = [{"name": key, "value": value, "config_operation": how} for key, value, how in rows]
    return always(
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
        validate_only=validate_only,
    )


SETTINGS: Sequence[Step] = (
    Step("a topic", DC, _describe(TOPIC, "one")),
    Step("some of it", DC, _describe(TOPIC, "compacted", ["cleanup.policy", "no.such"])),
    Step("an unknown topic", DC, _describe(TOPIC, "unknown")),
    Step("a bad name", DC, _describe(TOPIC, "a b")),
    Step("another broker", DC, _describe(BROKER, "77")),
    Step("no number", DC, _describe(BROKER, "x")),
    Step("an unknown kind", DC, _describe(99, "x")),
    Step("set", IC, _alter(TOPIC, "one", ("retention.ms", "77", 0))),
    Step("set what is unknown", IC, _alter(TOPIC, "one", ("no.such", "77", 0))),
    Step("set badly", IC, _alter(TOPIC, "one", ("retention.ms", "soon", 0))),
    Step("set nothing", IC, _alter(TOPIC, "one", ("retention.ms", None, 0))),
    Step("twice", IC, _alter(TOPIC, "one", ("retention.ms", "1", 0), ("retention.ms", "2", 0))),
    Step("no list", IC, _alter(TOPIC, "one", ("retention.ms", "1", 2))),
    Step("no operation", IC, _alter(TOPIC, "one", ("retention.ms", "1", 9))),
    Step("of an unknown topic", IC, _alter(TOPIC, "unknown", ("retention.ms", "1", 0))),
    Step("of an unknown kind", IC, _alter(99, "one", ("retention.ms", "1", 0))),
    Step("a list", IC, _alter(TOPIC, "t", ("cleanup.policy", "compact", 2))),
    Step("a list again", IC, _alter(TOPIC, "t", ("cleanup.policy", "compact", 3))),
    Step("reset", IC, _alter(TOPIC, "one", ("retention.ms", None, 1))),
    Step("only tried", IC, _alter(TOPIC, "one", ("retention.ms", "5", 0), validate_only=True)),
    Step("what it is then", DC, _describe(TOPIC, "one", ["retention.ms"])),
    Step("replace", AC, _alter(TOPIC, "one", ("segment.bytes", "2000000", 0))),
    Step("replace badly", AC, _alter(TOPIC, "one", ("segment.bytes", "x", 0))),
    Step("of an unknown topic", AC, _alter(TOPIC, "unknown", ("segment.bytes", "2000000", 0))),
    Step("what it is after that", DC, _describe(TOPIC, "one", ["segment.bytes"])),
)

# --- the cluster -------------------------------------------------------------------------------

CLUSTER: Sequence[Step] = (
    Step("brokers", ApiKey.DESCRIBE_CLUSTER,
         always(include_cluster_authorized_operations=False, endpoint_type=1,
                include_fenced_brokers=False)),
    Step("what may be done to them", ApiKey.DESCRIBE_CLUSTER,
         always(include_cluster_authorized_operations=True, endpoint_type=1,
                include_fenced_brokers=False)),
    Step("an endpoint that does not exist", ApiKey.DESCRIBE_CLUSTER,
         always(include_cluster_authorized_operations=False, endpoint_type=9), (1, 2)),
    Step("preferred leaders", ApiKey.ELECT_LEADERS, always(
        election_type=0, timeout=10_000,
        topic_partitions=[{"topic": "one", "partitions": [0, 9]},
                          {"topic": "unknown", "partitions": [0]}])),
    Step("unclean leaders", ApiKey.ELECT_LEADERS, always(
        election_type=1, timeout=10_000, topic_partitions=[{"topic": "one", "partitions": [0]}]),
        (1, 2)),
    Step("nothing moves", ApiKey.LIST_PARTITION_REASSIGNMENTS,
         always(timeout=10_000, topics=None)),
    Step("move to itself", ApiKey.ALTER_PARTITION_REASSIGNMENTS, always(
        timeout=10_000, allow_replication_factor_change=True,
        topics=[{"name": "one", "partitions": [{"partition_index": 0, "replicas": [0]}]}])),
    Step("move to nobody", ApiKey.ALTER_PARTITION_REASSIGNMENTS, always(
        timeout=10_000, allow_replication_factor_change=True,
        topics=[{"name": "one", "partitions": [{"partition_index": 0, "replicas": [77]},
                                               {"partition_index": 9, "replicas": [0]}]},
                {"name": "unknown", "partitions": [{"partition_index": 0, "replicas": [0]}]}])),
    Step("stay", ApiKey.ALTER_PARTITION_REASSIGNMENTS, always(
        timeout=10_000, allow_replication_factor_change=True,
        topics=[{"name": "one", "partitions": [{"partition_index": 0, "replicas": None}]}])),
    Step("pages of topics", ApiKey.DESCRIBE_TOPIC_PARTITIONS, always(
        topics=[{"name": "one"}, {"name": "t"}, {"name": "unknown"}],
        response_partition_limit=2, cursor=None)),
    Step("a page of none", ApiKey.DESCRIBE_TOPIC_PARTITIONS, always(
        topics=[{"name": "t"}], response_partition_limit=2,
        cursor={"topic_name": "t", "partition_index": 1})),
    Step("kinds of settings", ApiKey.LIST_CONFIG_RESOURCES, always(resource_types=[99]), (1,)),
    Step("topics with settings", ApiKey.LIST_CONFIG_RESOURCES, always(resource_types=[2]), (1,)),
    Step("a subscription to metrics", AC, _alter(CLIENT_METRICS, "m", ("metrics", "a.", 0),
                                                 ("interval.ms", "200", 0))),
    Step("bad subscriptions", AC, _alter(CLIENT_METRICS, "m", ("interval.ms", "1", 0))),
    Step("a subscription to nobody", AC, _alter(CLIENT_METRICS, "m", ("match", "colour=x", 0))),
    Step("subscriptions", ApiKey.LIST_CONFIG_RESOURCES, always(resource_types=[16])),
    Step("it is described", DC, _describe(CLIENT_METRICS, "m")),
    Step("a broker's setting", AC, _alter(BROKER, "0", ("log.retention.ms", "1000000", 0))),
    Step("a bad value", AC, _alter(BROKER, "0", ("log.retention.ms", "soon", 0))),
    Step("no broker", ApiKey.UNREGISTER_BROKER, always(broker_id=77)),
    Step("a producer", ApiKey.INIT_PRODUCER_ID, always(
        transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1),
        settle=_is_loaded),
    Step("a transaction without a name", ApiKey.INIT_PRODUCER_ID, always(
        transactional_id="", transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)),
)  # fmt: skip


def _limit(entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> Fields:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value, "remove": gone} for key, value, gone in ops],
    }


def _limits(*entries: Fields, validate_only: bool = False) -> Callable[[Seen, int], Fields]:
    return always(entries=list(entries), validate_only=validate_only)


def _asked(*parts: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in parts]
    return always(components=rows, strict=strict)


_RATE = ("producer_byte_rate", 1e9, False)
A, D = ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.DESCRIBE_CLIENT_QUOTAS
LIMITING: Sequence[Step] = (
    Step("limits that make sense", A, _limits(
        _limit([("user", "anna")], _RATE, ("request_percentage", 50.5, False)),
        _limit([("user", "anna"), ("client-id", None)], ("consumer_byte_rate", 1e9, False)),
        _limit([("client-id", "app")], ("controller_mutation_rate", 1e6, False)),
        _limit([("ip", "10.0.0.1")], ("connection_creation_rate", 1e6, False)))),
    Step("limits only tried", A, _limits(_limit([("user", "bert")], _RATE), validate_only=True)),
    Step("limits that do not exist", A, _limits(
        _limit([("user", "x")], ("no_such", 1.0, False)),
        _limit([("user", "y")], ("connection_creation_rate", 1.0, False)),
        _limit([("ip", "10.0.0.2")], _RATE))),
    Step("limits of nothing or less", A, _limits(
        _limit([("user", "x")], ("producer_byte_rate", 0.0, False)),
        _limit([("user", "y")], ("producer_byte_rate", -1.0, False)),
        _limit([("user", "z")], ("producer_byte_rate", 1.5, False)))),
    Step("entities that make no sense", A, _limits(
        _limit([], _RATE), _limit([("group", "g")], _RATE),
        _limit([("ip", "10.0.0.1"), ("user", "x")], _RATE))),
    Step("a limit that is not there goes", A, _limits(
        _limit([("user", "nobody")], ("producer_byte_rate", 0.0, True)))),
    Step("all limits", D, _asked(), settle=lambda answer: len(answer.entries or ()) == 4),
    Step("limits of a user", D, _asked(("user", 0, "anna"))),
    Step("limits of a user alone", D, _asked(("user", 0, "anna"), strict=True)),
    Step("limits of any user", D, _asked(("user", 2, None))),
    Step("limits of the default client id", D, _asked(("client-id", 1, None))),
    Step("limits of both", D, _asked(("client-id", 2, None), ("user", 2, None), strict=True)),
    Step("limits of addresses", D, _asked(("ip", 2, None))),
    Step("filters that make no sense", D, _asked(("user", 2, None), ("ip", 2, None))),
    Step("a type twice", D, _asked(("user", 2, None), ("user", 2, None))),
    Step("an unknown type", D, _asked(("group", 2, None))),
    Step("an unknown match", D, _asked(("user", 9, None))),
    Step("limits go", A, _limits(
        _limit([("user", "anna")], ("producer_byte_rate", 0.0, True),
               ("request_percentage", 0.0, True)),
        _limit([("user", "anna"), ("client-id", None)], ("consumer_byte_rate", 0.0, True)),
        _limit([("client-id", "app")], ("controller_mutation_rate", 0.0, True)),
        _limit([("ip", "10.0.0.1")], ("connection_creation_rate", 0.0, True))), (1,)),
)  # fmt: skip

STEPS: Sequence[Step] = (
    *CREATING, *METADATA, *GROWING, *PRODUCING, *FETCHING, *LISTING, *EPOCHS, *RECORDS, *FINDING,
    *GROUPS, *OFFSETS, *ADMINISTRATION, *SETTINGS, *CLUSTER, *LIMITING,
)  # fmt: skip
