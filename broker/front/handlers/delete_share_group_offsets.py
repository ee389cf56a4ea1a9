"""DeleteShareGroupOffsets (92), version 0: let a share group forget what it had of topics.

Behaviour: the group must have no members. If it reads the topic again, it begins where its settings
say. Durable before the answer; a topic of which the group has nothing is no error.
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
from broker.security.rights import DELETE_GROUP, READ_TOPIC
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 0)
NEEDS: Final = (DELETE_GROUP, READ_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an outcome for each topic."""
    try:
        incarnation = empty_group(services, call, request.group_id, DELETE_GROUP)
    except BrokerError as error:
        refusal = {"error_code": code_of(error), "error_message": message_of(error)}
        return {**refusal, "responses": []}
    question = OffsetsQuestion(request.group_id, incarnation, What.FORGET, ())
    names = dict.fromkeys(one.topic_name for one in request.topics)
    responses = [await _topic(services, call, question, name) for name in names]
    return {**NO_ERROR, "responses": responses}


async def _topic(
    services: Services, call: Call, question: OffsetsQuestion, name: str
) -> dict[str, Any]:
    topic = services.cluster.topics.get(name)
    code = services.rights.code(call.peer, READ_TOPIC, name)
    if code or topic is None:
        code = code or code_of(UnknownTopicOrPartition(""))
        return {"topic_name": name, "topic_id": None, "error_code": code, "error_message": None}
    partitions = [AskedPartition(topic.topic_id, index) for index in range(topic.partition_count)]
    rows = await services.shares.offsets.of(question._replace(partitions=partitions))
    failed = next((row for row in rows if row.code), None)
    answer = {"topic_name": name, "topic_id": topic.topic_id}
    if failed is not None:
        return {**answer, "error_code": failed.code, "error_message": failed.text}
    audit.note(call, f"share group {question.group_id!r} has forgotten {name!r}")
    return {**answer, **NO_ERROR}
