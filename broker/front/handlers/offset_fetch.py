"""OffsetFetch (9), versions 1-10: how far groups have read.

Behaviour: a partition or group without committed offsets is answered with offset -1 and no
error; consumers depend on that. Only durable commits are shown. Commits of transactions
do not exist here, so `require_stable` is always fulfilled.

Versions: 1 cannot express an error of the group but per partition, 2+ a null list means all
partitions, 5+ leader epoch, 8+ several groups: of one that is named twice the last list counts, 10+
topics by id: what this broker does not know gets UNKNOWN_TOPIC_ID, and is not among all partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.access.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.errors import BrokerError
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition
from broker.groups.core.group_types import CommittedOffset
from client.node.turns import Pace
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = (1, 10)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TOPIC)

_GROUP_ERROR_FROM: Final = 2
_SEVERAL_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10

_NOTHING: Final = CommittedOffset(-1, -1, "", -1, -1)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the committed offsets."""
    pace = services.turns.pace()
    if call.version < _SEVERAL_FROM:
        return await _fetch(services, pace, call, request.group_id, request.topics)
    asked = {one.group_id: one.topics for one in request.groups}
    groups = []
    for group_id, topics in asked.items():
        await pace.item()
        groups.append(await _fetch(services, pace, call, group_id, topics))
    return {"groups": groups}


async def _fetch(
    services: Services, pace: Pace, call: Call, group_id: str, asked: Any
) -> dict[str, Any]:
    code = int(Code.none)
    offsets = GroupOffsets()
    try:
        services.rights.require(call.peer, DESCRIBE_GROUP, group_id)
        offsets = services.groups.coordinator(group_id).view().committed(group_id)
    except BrokerError as error:
        code = code_of(error)
        if call.version >= _GROUP_ERROR_FROM:
            return {
                "throttle_time": 0, "group_id": group_id, "error_code": code, "topics": []
            }  # fmt: skip
    by_id = call.version >= _TOPIC_IDS_FROM
    if asked is None:
        may = services.rights.may
        seen = [one for one in offsets if may(call.peer, DESCRIBE_TOPIC, one[0].topic)]
        topics = await _all(services, pace, seen, by_id=by_id)
    else:
        topics = []
        for topic in asked:
            name, label = _name_and_label(services, topic, by_id=by_id)
            rows = []
            hidden = name and services.rights.code(call.peer, DESCRIBE_TOPIC, name)
            for index in topic.partition_indexes:
                await pace.item()
                if hidden:
                    rows.append(_partition(index, None, hidden))
                elif name is None:
                    rows.append(_partition(index, None, Code.unknown_topic_id))
                else:
                    rows.append(_partition(index, offsets.get(name, index), code))
            topics.append({**label, "partitions": rows})
    return {"throttle_time": 0, "group_id": group_id, "error_code": code, "topics": topics}


def _name_and_label(
    services: Services, topic: Any, *, by_id: bool
) -> tuple[str | None, dict[str, Any]]:
    """Return a topic's name, None if its id is unknown, and how the answer calls it."""
    if not by_id:
        return topic.name, {"name": topic.name}
    known = services.cluster.topic_by_id.get(topic.topic_id)
    return None if known is None else known.name, {"topic_id": topic.topic_id}


async def _all(
    services: Services,
    pace: Pace,
    offsets: Sequence[tuple[TopicPartition, CommittedOffset]],
    *,
    by_id: bool,
) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for key, committed in offsets:
        await pace.item()
        rows = topics.setdefault(key.topic, [])
        rows.append(_partition(key.partition, committed, Code.none))
    if not by_id:
        return [{"name": name, "partitions": rows} for name, rows in topics.items()]
    known = services.cluster.topics
    return [
        {"topic_id": known[name].topic_id, "partitions": rows}
        for name, rows in topics.items()
        if name in known
    ]


def _partition(index: int, committed: CommittedOffset | None, code: int) -> dict[str, Any]:
    shown = committed or _NOTHING
    return {
        "partition_index": index,
        "committed_offset": shown.offset,
        "committed_leader_epoch": shown.leader_epoch,
        "metadata": shown.metadata,
        "error_code": code,
    }
