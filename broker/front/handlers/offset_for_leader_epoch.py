"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended.

Behaviour: the largest known epoch up to the one asked for, and its end; (-1, -1) if there is
none. Nothing that was acknowledged is ever truncated, so no consumer is told an end below its
own position.

Deviations from Kafka: none known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code, code_of
from broker.front.handlers.fetch import check_epoch
from broker.front.services import Call, Services
from broker.security.rights import DESCRIBE_TOPIC
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS: Final = (2, 4)
NEEDS: Final = (DESCRIBE_TOPIC,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Answer each partition by itself."""
    pace = services.turns.pace()
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            await pace.item()
            partitions.append(await _end(services, call, topic.topic, item))
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


async def _end(services: Services, call: Call, topic: str, item: Any) -> dict[str, Any]:
    answer = {"error_code": int(Code.none), "partition": item.partition}
    try:
        services.rights.require(call.peer, DESCRIBE_TOPIC, topic)
        leader = services.partitions.leader(topic, item.partition)
        check_epoch(leader, field(item, "current_leader_epoch", -1))
        epoch, end_offset = await leader.reader.epoch_end(item.leader_epoch)
    except QuireError as error:
        return {**answer, "error_code": code_of(error), "leader_epoch": -1, "end_offset": -1}
    return {**answer, "leader_epoch": epoch, "end_offset": end_offset}
