"""DescribeShareGroupOffsets (90), versions 0-1: where share groups are in their partitions.

Behaviour: the leaders of the partitions are asked, those that a request names or all that have
anything of the group. The start is the first record that is not settled; a partition of which the
group has nothing yet has start -1. Lag counts records that are not settled, up to the end.

Versions: 1+ lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.cluster.core.topology import TopicInfo
from broker.errors import BrokerError, GroupIdNotFound, UnknownTopicOrPartition
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.groups.core.share_offset_messages import (
    NOTHING,
    AskedPartition,
    OffsetsQuestion,
    OffsetsRow,
    What,
)
from broker.groups.share_offsets import by_topic
from broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 1)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each group."""
    groups = []
    pace = services.turns.pace()
    for group in request.groups:
        await pace.item()
        answer: dict[str, Any] = {
            "group_id": group.group_id,
            "error_code": Code.none,
            "error_message": None,
            "topics": [],
        }
        try:
            answer["topics"] = await _describe(services, call, group)
        except BrokerError as error:
            answer |= {"error_code": code_of(error), "error_message": message_of(error)}
        groups.append(answer)
    return {"groups": groups}


async def _describe(services: Services, call: Call, group: Any) -> list[dict[str, Any]]:
    """Raises BrokerError."""
    services.rights.require(call.peer, DESCRIBE_GROUP, group.group_id)
    incarnation = services.groups.coordinator(group.group_id).view().incarnation(group.group_id)
    if incarnation is None:
        raise GroupIdNotFound(f"Group {group.group_id[:249]} not found.")
    question = OffsetsQuestion(group.group_id, incarnation, What.DESCRIBE, ())
    if group.topics is None:
        return _all(services, call, await services.shares.offsets.all_of(question))
    topics = []
    for asked in group.topics:
        topic = services.cluster.topics.get(asked.topic_name)
        if services.rights.code(call.peer, DESCRIBE_TOPIC, asked.topic_name) or topic is None:
            topics.append(_unknown(services, call, asked))
            continue
        partitions = [AskedPartition(topic.topic_id, index) for index in asked.partitions]
        rows = await services.shares.offsets.of(question._replace(partitions=partitions))
        topics.append(_topic(topic, rows))
    return topics


def _all(services: Services, call: Call, rows: list[OffsetsRow]) -> list[dict[str, Any]]:
    topics = []
    for topic_id, some in by_topic(rows).items():
        topic = services.cluster.topic_by_id.get(topic_id)
        if topic is not None and services.rights.may(call.peer, DESCRIBE_TOPIC, topic.name):
            topics.append(_topic(topic, sorted(some, key=lambda row: row.partition)))
    return topics


def _topic(topic: TopicInfo, rows: list[OffsetsRow]) -> dict[str, Any]:
    return {
        "topic_name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [
            {
                "partition_index": row.partition,
                "start_offset": row.start,
                "leader_epoch": row.leader_epoch,
                "lag": row.lag,
                "error_code": row.code,
                "error_message": row.text or None,
            }
            for row in rows
        ],
    }


def _unknown(services: Services, call: Call, asked: Any) -> dict[str, Any]:
    error: QuireError = UnknownTopicOrPartition(f"no topic {asked.topic_name!r}")
    code = services.rights.code(call.peer, DESCRIBE_TOPIC, asked.topic_name) or code_of(error)
    return {
        "topic_name": asked.topic_name,
        "topic_id": None,
        "partitions": [
            {
                "partition_index": index,
                "start_offset": NOTHING,
                "leader_epoch": -1,
                "error_code": code,
                "error_message": None,
            }
            for index in asked.partitions
        ],
    }
