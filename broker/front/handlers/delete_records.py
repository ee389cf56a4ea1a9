"""DeleteRecords (21), versions 0-2: move a partition's log start.

Behaviour: of several offsets for one partition the last counts, as in Kafka. -1 means the high
watermark; the answer is the log start afterwards. The log start may be inside a batch; consumers
get the whole batch and skip to it.

Partitions are trimmed one after the other, within the request's timeout altogether, but each has at
least a second. One that takes longer, because it is busy with another change, gets
REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidTopicName, PolicyViolation
from broker.faults import Code, code_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.security.rights import DELETE_TOPIC
from client.errors import QuireError
from client.ids import Offset
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DELETE_RECORDS
VERSIONS: Final = (0, 2)
NEEDS: Final = (DELETE_TOPIC,)
_TRIM_S_MIN: Final = 1.0


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Answer each partition by itself."""
    pace = services.turns.pace()
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = asked.setdefault(topic.name, {})
        for item in topic.partitions:
            await pace.item()
            offsets[item.partition_index] = item.offset
    until_s = asyncio.get_running_loop().time() + request.timeout.total_seconds()
    topics = []
    for name, offsets in asked.items():
        partitions = []
        for index, before in offsets.items():
            await pace.item()
            partitions.append(await _delete(services, call, name, index, before, until_s))
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


async def _delete(
    services: Services, call: Call, topic: str, index: int, before: int, until_s: float
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
        answer["low_watermark"] = await leader.changes.delete_records(
            Offset(before), max(_TRIM_S_MIN, until_s - asyncio.get_running_loop().time())
        )
        audit.note(call, f"topic {topic}: records of partition {index} before {before} deleted")
    except QuireError as error:
        answer["error_code"] = code_of(error)
    return answer
