"""DescribeGroups (15), versions 0-6: members, protocol and state of groups.

Behaviour: subscriptions and assignments are shown for stable groups only. A group that does not
exist is in state Dead without an error; from version 6 on it is GROUP_ID_NOT_FOUND as well. The
same goes for groups of the consumer protocol: ConsumerGroupDescribe shows them.
Tools compare the state names literally.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.groups.core.group_types import GroupDescription, GroupState, GroupType
from broker.security.core.acls import ResourceType
from broker.security.rights import DESCRIBE_GROUP, OPERATIONS_NOT_ASKED
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.DESCRIBE_GROUPS
VERSIONS: Final = (0, 6)
NEEDS: Final = (DESCRIBE_GROUP,)

_NOT_FOUND_FROM: Final = 6


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each group, one that is named twice once."""
    asks = field(request, "include_authorized_operations", False)
    pace = services.turns.pace()
    groups = []
    for group_id in dict.fromkeys(request.groups):
        await pace.item()
        row = _describe(services, call, group_id)
        for _ in row["members"]:
            await pace.item()
        if asks and row["error_code"] == Code.none:
            may = services.rights.operations(call.peer, ResourceType.GROUP, group_id)
            row["authorized_operations"] = may
        groups.append(row)
    return {"throttle_time": 0, "groups": groups}


def _describe(services: Services, call: Call, group_id: str) -> dict[str, Any]:
    try:
        services.rights.require(call.peer, DESCRIBE_GROUP, group_id)
        description = services.groups.coordinator(group_id).view().describe(group_id)
    except BrokerError as error:
        empty = GroupDescription(group_id, GroupState.DEAD, "", "", ())
        row = {**_row(empty), "group_state": ""}
        return {**row, "error_code": code_of(error), "error_message": message_of(error)}
    if description is not None and description.group_type is GroupType.CLASSIC:
        return _row(description)
    row = _row(GroupDescription(group_id, GroupState.DEAD, "", "", ()))
    if call.version >= _NOT_FOUND_FROM:
        row["error_code"] = Code.group_id_not_found
        row["error_message"] = f"Group {group_id[:249]} not found."
    return row


def _row(group: GroupDescription) -> dict[str, Any]:
    return {
        "error_code": Code.none,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "member_metadata": one.metadata,
                "member_assignment": one.assignment,
            }
            for one in group.members
        ],
        "authorized_operations": OPERATIONS_NOT_ASKED,
    }
