"""OffsetCommit (8), versions 2-10: store how far a group has read.

Behaviour: durable before the answer, and shown to nobody before. Who may commit is decided by
`broker/groups/core/group.py`; a partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION
while the others are stored. Very many are stored in several batches, one after the other. Metadata
string and leader epoch are returned as they were given.

Versions: 2-4 may ask for a retention of their own, 6+ leader epoch, 7+ static members, 9+ an
unknown group is GROUP_ID_NOT_FOUND (before: ILLEGAL_GENERATION), 10+ topics by id: what this broker
does not know gets UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.access.rights import READ_GROUP, READ_TOPIC
from broker.cluster.core.topology import TopicInfo
from broker.errors import BrokerError, GroupIdNotFound
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_types import Commit, OffsetToCommit
from client.errors import MetadataError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field
from client.wire.steps import STEP_ITEMS

KEY: Final = ApiKey.OFFSET_COMMIT
VERSIONS: Final = (2, 10)
NEEDS: Final = (READ_GROUP, READ_TOPIC)

_GROUP_ID_NOT_FOUND_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10
_LOOKUPS_MAX: Final = 16
"""Topics per request that are looked for in the metadata store if our view lacks them."""


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each partition."""
    by_id = call.version >= _TOPIC_IDS_FROM
    if not by_id:
        await _look_for_topics(services, request)
    unknown = int(Code.unknown_topic_or_partition)
    codes: dict[tuple[int, int], int] = {}
    offsets: dict[tuple[int, int], OffsetToCommit] = {}
    pace = services.turns.pace()
    rights = services.rights
    refusal = rights.code(call.peer, READ_GROUP, request.group_id)
    for at_topic, topic in enumerate(request.topics):
        await pace.item()
        info = _topic(services, topic, by_id=by_id)
        name = topic.name if not by_id else None if info is None else info.name
        hidden = refusal
        if not refusal and name is not None:
            hidden = rights.code(call.peer, READ_TOPIC, name)
        for at, one in enumerate(topic.partitions):
            await pace.item()
            if hidden:
                codes[at_topic, at] = hidden
            elif info is None:
                codes[at_topic, at] = int(Code.unknown_topic_id) if by_id else unknown
            elif not 0 <= one.partition_index < info.partition_count:
                codes[at_topic, at] = unknown
            else:
                offsets[at_topic, at] = OffsetToCommit(
                    info.name,
                    one.partition_index,
                    one.committed_offset,
                    field(one, "committed_leader_epoch", -1),
                    one.committed_metadata or "",
                )
    places = list(offsets)
    for begin in range(0, len(places), STEP_ITEMS):
        if begin:
            await services.turns.next()
        some = places[begin : begin + STEP_ITEMS]
        stored = await _commit(services, call, request, [offsets[place] for place in some])
        codes.update(zip(some, stored, strict=True))
    topics = []
    for at_topic, topic in enumerate(request.topics):
        rows = []
        for at, one in enumerate(topic.partitions):
            await pace.item()
            rows.append({"partition_index": one.partition_index, "error_code": codes[at_topic, at]})
        name = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        topics.append({**name, "partitions": rows})
    return {"throttle_time": 0, "topics": topics}


async def _commit(
    services: Services, call: Call, request: Any, offsets: list[OffsetToCommit]
) -> list[int]:
    commit = Commit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=field(request, "group_instance_id"),
        generation=request.generation_id_or_member_epoch,
    )
    try:
        coordinator = services.groups.coordinator(request.group_id)
        outcomes = await coordinator.commit(
            commit, offsets, retention_ms=field(request, "retention_time", -1)
        )
    except GroupIdNotFound as error:
        known = call.version >= _GROUP_ID_NOT_FOUND_FROM
        return [code_of(error) if known else int(Code.illegal_generation)] * len(offsets)
    except BrokerError as error:
        return [code_of(error)] * len(offsets)
    return [int(Code.none) if one is None else code_of(one) for one in outcomes]


def _topic(services: Services, topic: Any, *, by_id: bool) -> TopicInfo | None:
    if by_id:
        return services.cluster.topic_by_id.get(topic.topic_id)
    return services.cluster.topics.get(topic.name)


async def _look_for_topics(services: Services, request: Any) -> None:
    """A topic that was just created elsewhere may not have reached our view."""
    missing = [one.name for one in request.topics if one.name not in services.cluster.topics]
    try:
        for name in missing[:_LOOKUPS_MAX]:
            await services.cluster.look_for_topic(name)
    except MetadataError:
        return  # then they stay unknown, and clients try again
