"""SyncGroup (14), versions 0-5: the leader sends the assignment, every member receives its part.

Behaviour: `broker/groups/core/group.py`. The answer waits until the leader's assignment is durable.
While the coordinator loads, the member is told to rejoin: the rebalance under way is lost, and
old clients understand no other answer.

Versions: 3+ static members, 5+ the member states protocol type and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, CoordinatorLoading, InvalidGroupId, InvalidRequest
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_types import NO_MEMBER, Sync
from broker.security.rights import READ_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.SYNC_GROUP
VERSIONS: Final = (0, 5)
NEEDS: Final = (READ_GROUP,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the member's assignment."""
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, READ_GROUP, request.group_id)
        count, count_max = len(request.assignments), services.config.group_size_max
        if count > count_max:
            raise InvalidRequest(f"assignments for {count} members; a group may have {count_max}")
        size = sum(len(one.assignment) for one in request.assignments)
        coordinator = services.groups.coordinator(request.group_id)
        services.groups.room.require(coordinator, request.group_id, NO_MEMBER, size)
        reply = await coordinator.sync(
            Sync(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=field(request, "group_instance_id"),
                generation=request.generation_id,
                protocol_type=field(request, "protocol_type"),
                protocol_name=field(request, "protocol_name"),
                assignments=tuple(
                    (one.member_id, bytes(one.assignment)) for one in request.assignments
                ),
            )
        )
    except CoordinatorLoading:
        return _answer(Code.rebalance_in_progress)
    except BrokerError as error:
        return _answer(code_of(error))
    return _answer(
        Code.none,
        assignment=reply.assignment,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
    )


def _answer(
    code: int,
    *,
    assignment: bytes = b"",
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": code,
        "protocol_type": protocol_type,
        "protocol_name": protocol_name,
        "assignment": assignment,
    }
