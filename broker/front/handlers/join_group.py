"""JoinGroup (11), versions 0-9: become a member of a group, or take part in its rebalance.

Behaviour: `broker/groups/core/group.py`. More than `group_protocols_max` protocols are refused with
INVALID_REQUEST. The answer waits until the rebalance completes; meanwhile
the connection is not read.

Versions: 1+ rebalance timeout apart from the session timeout, 4+ a new member first learns its
id (MEMBER_ID_REQUIRED), 5+ static members, 7+ protocol type, 8+ a reason for our log, 9+ a
leader that must not assign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import (
    BrokerError,
    InvalidGroupId,
    InvalidRequest,
    MemberIdRequired,
)
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_types import NO_GENERATION, Join, JoinReply
from broker.security.rights import READ_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.JOIN_GROUP
VERSIONS: Final = (0, 9)
NEEDS: Final = (READ_GROUP,)

_MEMBER_ID_REQUIRED_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_SKIP_ASSIGNMENT_FROM: Final = 9
_CLIENT_ID_CHARS_MAX: Final = 255
"""Of a client id, which member ids begin with and every rebalance stores."""


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return the generation that the member is part of."""
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, READ_GROUP, request.group_id)
        count, count_max = len(request.protocols), services.config.group_protocols_max
        if count > count_max:
            raise InvalidRequest(
                f"a member offers {count} protocols; at most {count_max} are allowed"
            )
        coordinator = await services.groups.coordinator_soon(request.group_id)
        size = sum(len(one.name) + len(one.metadata) for one in request.protocols)
        services.groups.room.require(coordinator, request.group_id, request.member_id, size)
        reply = await coordinator.join(_join(call, request))
    except BrokerError as error:
        return _refusal(call, request, error)
    return _answer(reply)


def _join(call: Call, request: Any) -> Join:
    session_timeout_ms = field(request, "session_timeout")
    rebalance_timeout_ms = field(request, "rebalance_timeout", -1)
    return Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=field(request, "group_instance_id"),
        client_id=(call.client_id or "member")[:_CLIENT_ID_CHARS_MAX],
        client_host=f"/{call.peer.host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            rebalance_timeout_ms if rebalance_timeout_ms > 0 else session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        requires_member_id=call.version >= _MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=call.version >= _SKIP_ASSIGNMENT_FROM,
        reason=field(request, "reason") or "",
    )


def _answer(reply: JoinReply) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "error_code": Code.none,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "metadata": one.metadata,
            }
            for one in reply.members
        ],
    }


def _refusal(call: Call, request: Any, error: BrokerError) -> dict[str, Any]:
    member_id = request.member_id
    if isinstance(error, MemberIdRequired):
        member_id = error.member_id
    return {
        "throttle_time": 0,
        "error_code": code_of(error),
        "generation_id": NO_GENERATION,
        "protocol_type": None,
        "protocol_name": None if call.version >= _NULL_PROTOCOL_FROM else "",
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }
