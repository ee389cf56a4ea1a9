"""AlterShareGroupOffsets (91), version 0: let a share group begin elsewhere in its partitions.

Behaviour: the group must have no members. What it had of the partition is forgotten: every record
from the given offset on is delivered, also those that were settled. Durable before the answer. An
offset must lie in the log, else it is OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, UnknownTopicOrPartition
from broker.faults import code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.front.shares.share_orders import NO_ERROR, empty_group
from broker.groups.core.share_offset_messages import AskedPartition, OffsetsQuestion, What
from broker.security.rights import READ_GROUP, READ_TOPIC
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 0)
NEEDS: Final = (READ_GROUP, READ_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an outcome for each partition."""
    try:
        incarnation = empty_group(services, call, request.group_id, READ_GROUP)
    except BrokerError as error:
        refusal = {"error_code": code_of(error), "error_message": message_of(error)}
        return {**refusal, "responses": []}
    question = OffsetsQuestion(request.group_id, incarnation, What.BEGIN_AT, ())
    responses = [await _topic(services, call, question, one) for one in request.topics]
    return {**NO_ERROR, "responses": responses}


async def _topic(
    services: Services, call: Call, question: OffsetsQuestion, asked: Any
) -> dict[str, Any]:
    name = asked.topic_name
    topic = services.cluster.topics.get(name)
    code = services.rights.code(call.peer, READ_TOPIC, name)
    if code or topic is None:
        code = code or code_of(UnknownTopicOrPartition(""))
        refused = [
            {"partition_index": one.partition_index, "error_code": code, "error_message": None}
            for one in asked.partitions
        ]
        return {"topic_name": name, "topic_id": None, "partitions": refused}
    partitions = [
        AskedPartition(topic.topic_id, one.partition_index, one.start_offset)
        for one in asked.partitions
    ]
    rows = await services.shares.offsets.of(question._replace(partitions=partitions))
    for one, row in zip(partitions, rows, strict=True):
        if not row.code:
            place = f"{name}-{one.partition} at {one.offset}"
            audit.note(call, f"share group {question.group_id!r} begins in {place}")
    return {
        "topic_name": name,
        "topic_id": topic.topic_id,
        "partitions": [
            {
                "partition_index": row.partition,
                "error_code": row.code,
                "error_message": row.text or None,
            }
            for row in rows
        ],
    }
