"""ElectLeaders (43), versions 0-2: say which partitions are not led by their preferred leader.

Behaviour: a preferred leader takes its partition back by itself as soon as it takes part, so there
is nothing to start here. The answer waits a moment while partitions are between two leaders, as
that of Metadata does. A partition led by its preferred leader is answered ELECTION_NOT_NEEDED, and
left out if all were asked for, as Kafka does; one whose preferred leader is gone or unloaded is
answered PREFERRED_LEADER_NOT_AVAILABLE.

Deviations from Kafka: an unclean election (type 1) is never needed, since any broker takes a
partition over without loss. The request's timeout is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from broker.cluster.core.topology import TopicInfo
from broker.faults import Code
from broker.front.partition_rows import PartitionState, partition_states
from broker.front.services import Call, Services
from broker.security.rights import ALTER_CLUSTER
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.ELECT_LEADERS
VERSIONS: Final = (0, 2)
NEEDS: Final = (ALTER_CLUSTER,)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1

Row = dict[str, Any]


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Answer for each partition asked for, or for all that are not where they should be."""
    kind = field(request, "election_type", _PREFERRED)
    if kind not in (_PREFERRED, _UNCLEAN):
        why = f"there is no election type {kind}: 0 is of preferred leaders, 1 an unclean one"
        return _refusal(request, Code.invalid_request, why)
    if code := services.rights.code(call.peer, ALTER_CLUSTER):
        return _refusal(request, code, None)
    cluster = services.cluster
    if request.topic_partitions is None:
        topics = list(cluster.topics.values())
        await services.leader_changes.settle(topics)
        asked: Mapping[str, Sequence[int]] = {
            topic.name: range(topic.partition_count) for topic in topics
        }
    else:
        named: dict[str, list[int]] = {}
        for row in request.topic_partitions:
            named.setdefault(row.topic, []).extend(row.partitions)
        await services.leader_changes.settle(
            [cluster.topics[name] for name in named if name in cluster.topics]
        )
        asked = named
    results = []
    pace = services.turns.pace()
    for name, indexes in asked.items():
        await pace.item()
        rows = []
        for row in _rows(services, cluster.topics.get(name), dict.fromkeys(indexes), kind):
            await pace.item()
            rows.append(row)
        if request.topic_partitions is None:
            rows = [row for row in rows if row["error_code"] is not Code.election_not_needed]
        if rows or request.topic_partitions is not None:
            results.append({"topic": name, "partition_result": rows})
    return {"error_code": Code.none, "replica_election_results": results}


def _refusal(request: Any, code: int, message: str | None) -> Mapping[str, Any]:
    """Version 0 has no place for an error of the request: each partition has it."""
    results = [
        {
            "topic": one.topic,
            "partition_result": [
                {"partition_id": index, "error_code": code, "error_message": message}
                for index in one.partitions
            ],
        }
        for one in request.topic_partitions or ()
    ]
    return {"error_code": code, "replica_election_results": results}


def _rows(
    services: Services, topic: TopicInfo | None, indexes: Iterable[int], kind: int
) -> Iterable[Row]:
    states = (
        [] if topic is None else partition_states(services.cluster, services.leader_changes, topic)
    )
    for index in indexes:
        if 0 <= index < len(states):
            code, message = _outcome(states[index], kind)
        else:
            code, message = Code.unknown_topic_or_partition, "there is no such partition"
        yield {"partition_id": index, "error_code": code, "error_message": message}


def _outcome(state: PartitionState, kind: int) -> tuple[Code, str | None]:
    if state.leader is None:
        return Code.leader_not_available, "the partition is being taken over"
    preferred = state.replicas[0]
    if kind == _UNCLEAN or state.leader == preferred:
        return Code.election_not_needed, "it is led by the right broker"
    why = "is unloaded" if preferred in state.live else "is not live"
    return (
        Code.preferred_leader_not_available,
        f"broker {preferred} {why}; the partition goes back to it when that ends",
    )
