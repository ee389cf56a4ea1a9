"""DescribeTopicPartitions (75), version 0: topics and their partitions, a page at a time (KIP-966).

Behaviour: topics come sorted by name; no names means all. A page ends after as many partitions as
the request allows, 2,000 at most, and says where the next one begins; a cursor that names a topic
skips those before it. One whose topic is not asked for, or whose partition is below 0, was not
ours: every topic that was asked for gets INVALID_REQUEST. The answer waits a moment while
partitions are between two leaders, as that of Metadata does, and creates no topics.

Deviations from Kafka: `replicas` are as in Metadata (`broker/front/partition_rows.py`). There are
no eligible leader replicas: any broker may lead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from broker.cluster.core.topology import TopicInfo
from broker.errors import InvalidTopicName
from broker.faults import Code
from broker.front.partition_rows import PartitionState, partition_states
from broker.front.services import Call, Services
from broker.security.core.acls import ResourceType
from broker.security.rights import DESCRIBE_TOPIC, OPERATIONS_NOT_ASKED
from broker.topics.core.topic_rules import check_name
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS: Final = (0, 0)
NEEDS: Final = (DESCRIBE_TOPIC,)

_PARTITIONS_MAX: Final = 2_000
_LOOKUPS_MAX: Final = 32
"""Unknown names per request that are worth a question to the metadata store."""

Row = dict[str, Any]


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe partitions from the cursor on, up to the limit."""
    start = ("", 0)
    asked = {row.name for row in request.topics}
    if request.cursor is not None:
        start = request.cursor.topic_name, request.cursor.partition_index
        if start[1] < 0 or (asked and start[0] not in asked):
            refused = [_refused(name, Code.invalid_request) for name in sorted(asked)]
            return {"topics": refused, "next_cursor": None}
    names = sorted(asked or services.cluster.topics)
    names = [name for name in names if name >= start[0]]
    rights, who, hidden = services.rights, call.peer, set[str]()
    if request.topics:
        hidden = {name for name in names if rights.code(who, DESCRIBE_TOPIC, name)}
    else:
        names = [name for name in names if rights.may(who, DESCRIBE_TOPIC, name)]
    left = min(_PARTITIONS_MAX, max(1, request.response_partition_limit))
    found = await _find(services, names, left, start, hidden)
    await _settle(services, list(filter(None, found.values())), are_named=bool(request.topics))
    topics: list[Row] = []
    for name, topic in found.items():
        if not left:
            return {"topics": topics, "next_cursor": _cursor(name, 0)}
        operations = OPERATIONS_NOT_ASKED
        if name not in hidden:
            operations = rights.operations(who, ResourceType.TOPIC, name)
        if topic is None:
            topics.append(_missing(name, operations, is_hidden=name in hidden))
            continue
        first = start[1] if name == start[0] else 0
        states = partition_states(services.cluster, services.leader_changes, topic)
        page = states[first : first + left]
        topics.append(_described(topic, page, operations))
        left -= len(page)
        if first + len(page) < len(states):
            return {"topics": topics, "next_cursor": _cursor(name, first + len(page))}
    rest = names[len(found) :]
    return {"topics": topics, "next_cursor": _cursor(rest[0], 0) if rest else None}


async def _find(
    services: Services,
    names: Sequence[str],
    limit: int,
    start: tuple[str, int],
    hidden: Collection[str],
) -> dict[str, TopicInfo | None]:
    """Return the first of the topics, until they have this many partitions from `start` on."""
    found: dict[str, TopicInfo | None] = {}
    lookups = 0
    pace = services.turns.pace()
    for name in names:
        await pace.item()
        if name in hidden:
            found[name] = None
            continue
        topic = services.cluster.topics.get(name)
        if topic is None and lookups < _LOOKUPS_MAX:
            lookups += 1
            topic = await _look_for(services, name)
        found[name] = topic
        if topic is not None:
            limit -= max(0, topic.partition_count - (start[1] if name == start[0] else 0))
        if limit <= 0:
            break
    return found


async def _settle(services: Services, topics: Sequence[TopicInfo], *, are_named: bool) -> None:
    """Wait as Metadata does: for topics that are named, or else only for new ones."""
    if not are_named:
        epochs = services.cluster.leader_epochs
        await epochs.load(topics)
        topics = list(filter(epochs.unled, topics))
    await services.leader_changes.settle(topics)


def _cursor(name: str, index: int) -> Row:
    return {"topic_name": name, "partition_index": index}


async def _look_for(services: Services, name: str) -> TopicInfo | None:
    """Ask the metadata store for a topic that the view does not show; it may be new."""
    try:
        check_name(name)
    except InvalidTopicName:
        return None
    return await services.cluster.look_for_topic(name)


def _described(topic: TopicInfo, states: Sequence[PartitionState], operations: int) -> Row:
    none: Row = {"eligible_leader_replicas": [], "last_known_elr": []}
    return {
        "error_code": Code.none,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [state.fields() | none for state in states],
        "topic_authorized_operations": operations,
    }


def _missing(name: str, operations: int, *, is_hidden: bool) -> Row:
    try:
        check_name(name)
    except InvalidTopicName:
        code = Code.invalid_topic_exception
    else:
        code = Code.unknown_topic_or_partition
    if is_hidden:
        code = Code.topic_authorization_failed
    return _refused(name, code, operations)


def _refused(name: str, code: Code, operations: int = OPERATIONS_NOT_ASKED) -> Row:
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": operations,
    }
