"""OffsetDelete (47), version 0: remove committed offsets of single partitions.

Behaviour: offsets of topics that a live consumer group subscribes to are refused with
GROUP_SUBSCRIBED_TO_TOPIC; a live group of another type is refused as a whole. A partition
without an offset is no error. Durable before the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, InvalidGroupId, UnknownTopicOrPartition
from broker.faults import Code, code_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.groups.core.group_offsets import TopicPartition
from broker.security.rights import DELETE_GROUP, READ_TOPIC
from client.wire.kafka.apis import ApiKey
from client.wire.steps import STEP_ITEMS

KEY: Final = ApiKey.OFFSET_DELETE
VERSIONS: Final = (0, 0)
NEEDS: Final = (DELETE_GROUP, READ_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each partition."""
    pace = services.turns.pace()
    keys: dict[TopicPartition, None] = {}
    for topic in request.topics:
        for one in topic.partitions:
            await pace.item()
            keys[TopicPartition(topic.name, one.partition_index)] = None
    known = []
    refused: dict[TopicPartition, int] = {}
    for key in keys:
        await pace.item()
        if code := services.rights.code(call.peer, READ_TOPIC, key.topic):
            refused[key] = code
        elif _exists(services, key):
            known.append(key)
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, DELETE_GROUP, request.group_id)
        coordinator = services.groups.coordinator(request.group_id)
        outcomes: list[BrokerError | None] = []
        for begin in range(0, max(1, len(known)), STEP_ITEMS):
            if begin:
                await services.turns.next()
            some = known[begin : begin + STEP_ITEMS]
            outcomes += await coordinator.delete_offsets(request.group_id, some)
    except BrokerError as error:
        return {"throttle_time": 0, "error_code": code_of(error), "topics": []}
    codes = dict.fromkeys(keys, code_of(UnknownTopicOrPartition("")))
    codes |= refused
    codes.update(
        (key, int(Code.none) if outcome is None else code_of(outcome))
        for key, outcome in zip(known, outcomes, strict=True)
    )
    done = sum(outcome is None for outcome in outcomes)
    if done:
        audit.note(call, f"group {request.group_id!r}: offsets of {done} partitions deleted")
    return {
        "throttle_time": 0,
        "error_code": Code.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": codes[TopicPartition(topic.name, one.partition_index)],
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _exists(services: Services, key: TopicPartition) -> bool:
    topic = services.cluster.topics.get(key.topic)
    return topic is not None and 0 <= key.partition < topic.partition_count
