"""Topics: creating, growing and deleting them, and their metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import UNKNOWN_ID, always


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
