"""ConsumerGroupHeartbeat (68), versions 0-1: join, stay in and leave a group whose partitions the
broker divides (KIP-848).

Behaviour: `broker/groups/core/consumer_group.py`. What a heartbeat changed is durable before the
answer. A client has to be allowed to describe the topics that it names; a pattern matches only
those that it may describe.

Versions: 0 the broker makes the member id if the client has none, 1+ the client makes it; patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from broker.cluster.core.features import GROUP_VERSION
from broker.cluster.features import Features
from broker.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest, UnsupportedVersion
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.groups.core.consumer_group_records import Held
from broker.groups.core.consumer_heartbeat import JOINING, ConsumerHeartbeat, ConsumerHeartbeatReply
from broker.security.rights import DESCRIBE_TOPIC, READ_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS: Final = (0, 1)
NEEDS: Final = (READ_GROUP, DESCRIBE_TOPIC)

_CLIENT_MAKES_ID_FROM: Final = 1
_CLIENT_ID_CHARS_MAX: Final = 255
_CONSUMER_PROTOCOL: Final = 1
"""The level of `group.version` from which on there are such groups."""


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the member's epoch, and what it may read if that changed."""
    try:
        reply = await _heartbeat(services, call, request)
    except BrokerError as error:
        return heartbeat_refused(error)
    times = services.groups.limits.times(request.group_id)
    return heartbeat_answer(reply, times.heartbeat_interval_ms)


def heartbeat_answer(reply: ConsumerHeartbeatReply, interval_ms: int) -> Mapping[str, Any]:
    """Return the fields of an answer; those of a share group's are the same."""
    return {
        "error_code": Code.none,
        "error_message": None,
        "member_id": reply.member_id,
        "member_epoch": reply.epoch,
        "heartbeat_interval": interval_ms,
        "assignment": None if reply.assignment is None else _assignment(reply.assignment),
    }


def heartbeat_refused(error: BrokerError) -> Mapping[str, Any]:
    """Return the same of a heartbeat that was refused."""
    return {
        "error_code": code_of(error),
        "error_message": message_of(error),
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }


async def _heartbeat(services: Services, call: Call, request: Any) -> ConsumerHeartbeatReply:
    """Raises BrokerError."""
    if not request.group_id:
        raise InvalidRequest("GroupId can't be empty.")
    services.rights.require(call.peer, READ_GROUP, request.group_id)
    _require_feature(services.features)
    topics = request.subscribed_topic_names
    for name in topics or ():
        services.rights.require(call.peer, DESCRIBE_TOPIC, name)
    member_id = request.member_id
    is_made_here = call.version < _CLIENT_MAKES_ID_FROM and request.member_epoch == JOINING
    if not member_id and is_made_here:
        member_id = services.groups.new_member_id()
    owned = request.topic_partitions
    heartbeat = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=(call.client_id or "")[:_CLIENT_ID_CHARS_MAX],
        client_host=f"/{call.peer.host}",
        rebalance_timeout_ms=field(request, "rebalance_timeout"),
        topics=None if topics is None else tuple(topics),
        pattern=field(request, "subscribed_topic_regex"),
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else {
            one.topic_id: frozenset(one.partitions)
            for one in owned
            if one.partitions or request.member_epoch == JOINING  # it may name no topic, even
        },
        sees=partial(_sees, services, call),
    )
    coordinator = await services.groups.coordinator_soon(request.group_id)
    if topics is not None or heartbeat.pattern is not None:
        services.groups.room.require(coordinator, request.group_id, member_id, heartbeat.kept_bytes)
    return await coordinator.heartbeat_consumer(heartbeat)


def _require_feature(features: Features) -> None:
    if features.finalized.levels.get(GROUP_VERSION, 0) >= _CONSUMER_PROTOCOL:
        return
    if features.is_coming(GROUP_VERSION, _CONSUMER_PROTOCOL):
        raise CoordinatorNotAvailable("the cluster is about to allow the consumer protocol")
    raise UnsupportedVersion(
        "this cluster has group.version 0: use group.protocol=classic, or let an operator raise it"
        " once no broker runs an earlier release (kafka-features upgrade --feature group.version=1)"
    )


def _sees(services: Services, call: Call, name: str) -> bool:
    return services.rights.may(call.peer, DESCRIBE_TOPIC, name)


def _assignment(assignment: Held) -> Mapping[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": sorted(held)}
            for topic_id, held in sorted(assignment.items())
        ]
    }
