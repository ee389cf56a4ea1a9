"""Metadata (3), versions 0-13: who is there and who leads what.

Behaviour: a null list of topics (an empty one in version 0) means all topics. A topic that is
named, unknown and validly named is created if this broker and the request allow it, and the
answer has it with its leaders. Before a named topic is called unknown, the metadata store is
asked: another broker may have just made it. The leader of a partition is its preferred leader; data
requests wait a moment while that one still opens the partition (`awaited_partitions.py`). An
answer about named topics waits a moment while one of their partitions is between two leaders, or
has had none yet (`leader_changes.py`); an answer about all topics waits for new ones only. It has
LEADER_NOT_AVAILABLE for a partition whose leader may be gone, and for one that nobody opened yet.
Leader epochs are the ones in the partitions' segment lists, never invented.

Version 12+ name topics by name or id; of one that has both the id counts, as in Kafka.

What an answer says of a topic is made once for all who ask
(`broker/front/topic_metadata_cache.py`).

Deviations from Kafka: `replicas` and `isr` are brokers, not bookies (see there). A broker that is
gone is listed for a session timeout longer, for the sake of clients that would lose track of its
partitions (`Cluster.listed_brokers`). Any broker takes admin requests; the controller is the live
broker with the lowest id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.errors import TopicExists
from broker.faults import Code, code_of
from broker.front import audit
from broker.front.endpoints import reachable
from broker.front.services import Call, Services
from broker.security.core.acls import ResourceType
from broker.security.rights import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    OPERATIONS_NOT_ASKED,
)
from broker.topics.core.topic_rules import INTERNAL_TOPICS, check_name
from client.errors import MetadataError, QuireError
from client.node import background
from client.node.logs import AT_WILL
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

log = logging.getLogger(__name__)

KEY: Final = ApiKey.METADATA
VERSIONS: Final = (0, 13)
NEEDS: Final = (CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER, DESCRIBE_TOPIC)

_NULL_IS_ALL_FROM: Final = 1
_NULL_NAMES_FROM: Final = 12
_LOOKUPS_MAX: Final = 32
"""Unknown names per request that are worth a question to the metadata store."""

Fields = dict[str, Any]


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe brokers and the topics asked for."""
    asked = field(request, "topics")
    cluster = services.cluster
    missing: list[Fields] = []
    if asked is None or (not asked and call.version < _NULL_IS_ALL_FROM):
        may = services.rights.may
        topics = [
            one for one in cluster.topics.values() if may(call.peer, DESCRIBE_TOPIC, one.name)
        ]
        await cluster.leader_epochs.load(topics)
        await services.leader_changes.settle(filter(cluster.leader_epochs.unled, topics))
    else:
        may_create = services.config.auto_create_topics and field(
            request, "allow_auto_topic_creation", True
        )
        topics = await _find(services, call, asked, missing, may_create=may_create)
        if call.version < _NULL_NAMES_FROM:
            missing = [{**one, "name": one["name"] or ""} for one in missing]
        await services.leader_changes.settle(topics)
    topics = [cluster.topic_by_id.get(topic.topic_id, topic) for topic in topics]
    asks = field(request, "include_topic_authorized_operations", False)
    rights, none = services.rights, OPERATIONS_NOT_ASKED
    pace = services.turns.pace()
    described = []
    for topic in topics:
        await pace.item()
        bits = rights.operations(call.peer, ResourceType.TOPIC, topic.name) if asks else none
        described.append(services.topic_metadata_cache.get(topic, call.version, bits))
    for one in missing if asks else ():
        if one["name"] and one["error_code"] != Code.topic_authorization_failed:
            bits = rights.operations(call.peer, ResourceType.TOPIC, one["name"])
            one["topic_authorized_operations"] = bits
    return {
        "brokers": _brokers(services, call),
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id(),
        "topics": [*described, *missing],
        "cluster_authorized_operations": _cluster_operations(services, call, request),
        "error_code": Code.none,
    }


def _cluster_operations(services: Services, call: Call, request: Any) -> int:
    """Return what may be done to the cluster, if that is asked for: versions 8 to 10 can."""
    if not field(request, "include_cluster_authorized_operations", False):
        return OPERATIONS_NOT_ASKED
    if not services.rights.may(call.peer, DESCRIBE_CLUSTER):
        return 0
    return services.rights.operations(call.peer, ResourceType.CLUSTER)


def _brokers(services: Services, call: Call) -> list[Fields]:
    listed = services.cluster.listed_brokers()
    return [
        {"node_id": broker.id, "host": host, "port": port, "rack": broker.rack}
        for broker, host, port in reachable(services, listed, call.peer)
    ]


async def _find(
    services: Services, call: Call, asked: Sequence[Any], missing: list[Fields], *, may_create: bool
) -> list[TopicInfo]:
    """Return the topics that exist, or do now; describe the others in `missing`."""
    cluster = services.cluster
    found: dict[UUID, TopicInfo] = {}
    lookups = 0
    pace = services.turns.pace()
    for name, topic_id in dict.fromkeys(
        (field(item, "name"), field(item, "topic_id")) for item in asked
    ):
        await pace.item()
        if topic_id is not None or name is None:
            by_id = cluster.topic_by_id.get(topic_id)
            if by_id is not None and services.rights.may(call.peer, DESCRIBE_TOPIC, by_id.name):
                found[by_id.topic_id] = by_id
            else:
                missing.append(_refusal(None, topic_id, Code.unknown_topic_id))
            continue
        topic = cluster.topics.get(name)
        try:
            services.rights.require(call.peer, DESCRIBE_TOPIC, name)
            if topic is None:
                check_name(name)
                lookups += 1
                if may_create or lookups <= _LOOKUPS_MAX:
                    topic = await _look_or_create(services, call, name, may_create)
        except QuireError as error:
            log.info("topic.not_created topic=%r error=%s", name, error, extra=AT_WILL)
            code = Code.leader_not_available if isinstance(error, MetadataError) else code_of(error)
            missing.append(_refusal(name, None, code))
            continue
        if topic is not None:
            found[topic.topic_id] = topic
        else:
            missing.append(_refusal(name, None, Code.unknown_topic_or_partition))
    return list(found.values())


async def _look_or_create(
    services: Services, call: Call, name: str, may_create: bool
) -> TopicInfo | None:
    cluster = services.cluster
    topic = await cluster.look_for_topic(name)
    if topic is None and may_create and name not in INTERNAL_TOPICS:
        if not services.rights.may(call.peer, CREATE_CLUSTER):
            services.rights.require(call.peer, CREATE_TOPIC, name)
        # It is made though whoever asked may be gone by then: a client with little patience would
        # never get it.
        topic = await asyncio.shield(
            background.begin(_create(services, call, name), f"create {name}")
        )
    return topic


async def _create(services: Services, call: Call, name: str) -> TopicInfo | None:
    try:
        topic = await services.topics.create(name)
    except TopicExists:
        return await services.cluster.look_for_topic(name)
    audit.note(call, f"topic {name}: created by asking for it")
    return topic


def _refusal(name: str | None, topic_id: UUID | None, code: int) -> Fields:
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}
