"""What requests that commit offsets have in common: which partitions exist, and rows of codes.

A partition that does not exist gets an error while the others are stored. Very many are stored in
several batches, one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from broker.cluster.core.topology import TopicInfo
from broker.errors import BrokerError
from broker.faults import Code, code_of
from broker.front.services import Peer, Services
from broker.groups.core.group_types import OffsetToCommit
from broker.security.rights import READ_TOPIC
from client.errors import MetadataError
from client.wire.kafka.codec import field
from client.wire.steps import STEP_ITEMS

_LOOKUPS_MAX: Final = 16
"""Topics per request that are looked for in the metadata store if our view lacks them."""


async def commit_offsets(
    services: Services,
    topics: Sequence[Any],
    store: Callable[[list[OffsetToCommit]], Awaitable[list[int]]],
    *,
    who: Peer,
    refusal: int = 0,
    by_id: bool = False,
) -> Mapping[str, Any]:
    """Return the response to a request with those topics.

    `store` is called for some offsets at a time, and returns a code for each. `who` may commit for
    topics that it may read, and nothing at all if there is a `refusal`, a code.
    """
    if not by_id:
        await _look_for_topics(services, topics)
    unknown = int(Code.unknown_topic_or_partition)
    codes: dict[tuple[int, int], int] = {}
    offsets: dict[tuple[int, int], OffsetToCommit] = {}
    pace = services.turns.pace()
    for at_topic, topic in enumerate(topics):
        await pace.item()
        info = _topic(services, topic, by_id=by_id)
        name = topic.name if not by_id else None if info is None else info.name
        hidden = refusal
        if not hidden and name is not None:
            hidden = services.rights.code(who, READ_TOPIC, name)
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
                    info.topic_id,
                    is_named=not by_id,
                )
    places = list(offsets)
    for begin in range(0, len(places), STEP_ITEMS):
        if begin:
            await services.turns.next()
        some = places[begin : begin + STEP_ITEMS]
        stored = await store([offsets[place] for place in some])
        codes.update(zip(some, stored, strict=True))
    answered = []
    for at_topic, topic in enumerate(topics):
        rows = []
        for at, one in enumerate(topic.partitions):
            await pace.item()
            rows.append({"partition_index": one.partition_index, "error_code": codes[at_topic, at]})
        label = {"topic_id": topic.topic_id} if by_id else {"name": topic.name}
        answered.append({**label, "partitions": rows})
    return {"throttle_time": 0, "topics": answered}


def outcome_codes(outcomes: Sequence[BrokerError | None]) -> list[int]:
    """Return the code of each outcome."""
    return [int(Code.none) if one is None else code_of(one) for one in outcomes]


def _topic(services: Services, topic: Any, *, by_id: bool) -> TopicInfo | None:
    if by_id:
        return services.cluster.topic_by_id.get(topic.topic_id)
    return services.cluster.topics.get(topic.name)


async def _look_for_topics(services: Services, topics: Sequence[Any]) -> None:
    """A topic that was just created elsewhere may not have reached our view."""
    missing = [one.name for one in topics if one.name not in services.cluster.topics]
    try:
        for name in missing[:_LOOKUPS_MAX]:
            await services.cluster.look_for_topic(name)
    except MetadataError:
        return  # then they stay unknown, and clients try again
