"""DeleteRecords (21), versions 0-2: move a partition's log start.

Behaviour: of several offsets for one partition the last counts, as in Kafka. -1 means the high
watermark; the answer is the log start afterwards. The log start may be inside a batch; consumers
get the whole batch and skip to it.

Deviations from Kafka: the request's timeout is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.access.rights import DELETE_TOPIC
from broker.errors import InvalidTopicName, PolicyViolation
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from client.errors import QuireError
from client.ids import Offset
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DELETE_RECORDS
VERSIONS: Final = (0, 2)
NEEDS: Final = (DELETE_TOPIC,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Answer each partition by itself."""
    pace = services.turns.pace()
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = asked.setdefault(topic.name, {})
        for item in topic.partitions:
            await pace.item()
            offsets[item.partition_index] = item.offset
    topics = []
    for name, offsets in asked.items():
        partitions = []
        for index, before in offsets.items():
            await pace.item()
            partitions.append(await _delete(services, call, name, index, before))
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


async def _delete(
    services: Services, call: Call, topic: str, index: int, before: int
) -> dict[str, Any]:
    answer = {"partition_index": index, "low_watermark": -1, "error_code": int(Code.none)}
    try:
        services.rights.require(call.peer, DELETE_TOPIC, topic)
        leader = await services.partitions.leader_soon(topic, index)
        if leader.topic.internal:
            raise InvalidTopicName(f"topic {topic!r} is internal")
        if not leader.topic.config.deletes:
            raise PolicyViolation(
                f"the cleanup.policy of topic {topic!r} does not contain 'delete'"
            )
        answer["low_watermark"] = await leader.changes.delete_records(Offset(before))
    except QuireError as error:
        answer["error_code"] = code_of(error)
    return answer
