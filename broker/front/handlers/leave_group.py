"""LeaveGroup (13), versions 0-5: remove members from a group.

Behaviour: `broker/groups/core/group.py`. Versions 0-2 name one member, whose error is the
response's; 3+ name several, and an empty member id removes a static member by its instance id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, InvalidGroupId
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_types import Leaving
from broker.security.rights import READ_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.steps import STEP_ITEMS

KEY: Final = ApiKey.LEAVE_GROUP
VERSIONS: Final = (0, 5)
NEEDS: Final = (READ_GROUP,)

_SEVERAL_FROM: Final = 3


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each member."""
    if call.version < _SEVERAL_FROM:
        leaving = [Leaving(request.member_id, None)]
    else:
        leaving = [Leaving(one.member_id, one.group_instance_id) for one in request.members]
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, READ_GROUP, request.group_id)
        outcomes: list[BrokerError | None] = []
        for begin in range(0, max(1, len(leaving)), STEP_ITEMS):
            if begin:
                await services.turns.next()
            some = leaving[begin : begin + STEP_ITEMS]
            outcomes += services.groups.coordinator(request.group_id).leave(request.group_id, some)
    except BrokerError as error:
        return {"throttle_time": 0, "error_code": code_of(error), "members": []}
    codes = [Code.none if outcome is None else code_of(outcome) for outcome in outcomes]
    return {
        "throttle_time": 0,
        "error_code": Code.none if call.version >= _SEVERAL_FROM else codes[0],
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "error_code": code,
            }
            for one, code in zip(leaving, codes, strict=True)
        ],
    }
