"""ShareGroupHeartbeat (76), version 1: join, stay in and leave a share group (KIP-932).

Behaviour: `broker/groups/core/share_group.py`. What a heartbeat changed is durable before the
answer, which has the member's partitions at once. A client has to be allowed to describe the topics
that it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.cluster.core.features import SHARE_VERSION
from broker.errors import BrokerError, InvalidRequest
from broker.front.handlers.consumer_group_heartbeat import heartbeat_answer, heartbeat_refused
from broker.front.services import Call, Services
from broker.front.shares.share_requests import SHARE_GROUPS
from broker.groups.core.consumer_heartbeat import (
    UNKNOWN,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from broker.security.rights import DESCRIBE_TOPIC, READ_GROUP
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS: Final = (1, 1)
NEEDS: Final = (READ_GROUP, DESCRIBE_TOPIC)

_CLIENT_ID_CHARS_MAX: Final = 255


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the member's epoch, and its partitions if they changed."""
    try:
        reply = await _heartbeat(services, call, request)
    except BrokerError as error:
        return heartbeat_refused(error)
    return heartbeat_answer(reply, services.config.group_share_heartbeat_interval_ms)


async def _heartbeat(services: Services, call: Call, request: Any) -> ConsumerHeartbeatReply:
    """Raises BrokerError."""
    group_id, member_id = request.group_id, request.member_id
    if not group_id:
        raise InvalidRequest("GroupId can't be empty.")
    services.rights.require(call.peer, READ_GROUP, group_id)
    services.features.require(SHARE_VERSION, SHARE_GROUPS)
    topics = request.subscribed_topic_names
    for name in topics or ():
        services.rights.require(call.peer, DESCRIBE_TOPIC, name)
    heartbeat = ConsumerHeartbeat(
        group_id=group_id,
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=None,
        rack_id=request.rack_id,
        client_id=(call.client_id or "")[:_CLIENT_ID_CHARS_MAX],
        client_host=f"/{call.peer.host}",
        rebalance_timeout_ms=UNKNOWN,
        topics=None if topics is None else tuple(topics),
        pattern=None,
        assignor=None,
        owned=None,
        sees=lambda _: False,
    )
    coordinator = await services.groups.coordinator_soon(group_id)
    if topics is not None:
        services.groups.room.require(coordinator, group_id, member_id, heartbeat.kept_bytes)
    return await coordinator.heartbeat_share(heartbeat)
