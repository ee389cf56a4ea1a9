"""Heartbeat (12), versions 0-4: keep a member's session alive.

Behaviour: `broker/groups/core/group.py`. REBALANCE_IN_PROGRESS tells the member to join again.
While the coordinator loads, heartbeats succeed: sessions start afresh after that anyway, and
clients have no better answer.

Versions: 3+ static members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, CoordinatorLoading, InvalidGroupId
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_types import Heartbeat
from broker.security.rights import READ_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.HEARTBEAT
VERSIONS: Final = (0, 4)
NEEDS: Final = (READ_GROUP,)


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return whether the member still belongs to the generation it names."""
    code = int(Code.none)
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, READ_GROUP, request.group_id)
        services.groups.coordinator(request.group_id).heartbeat(
            Heartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                instance_id=field(request, "group_instance_id"),
                generation=request.generation_id,
            )
        )
    except CoordinatorLoading:
        code = int(Code.none)
    except BrokerError as error:
        code = code_of(error)
    return {"throttle_time": 0, "error_code": code}
