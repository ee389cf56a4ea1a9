"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

Behaviour: tools ask every broker and put the answers together, so the whole answer is an error
while any coordinator here is still loading. Filters ignore case, as Kafka's do.

Versions: 4+ state and a filter by state, 5+ type and a filter by type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, NotCoordinator
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.core.group_table import GroupView
from broker.security.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.LIST_GROUPS
VERSIONS: Final = (0, 5)
NEEDS: Final = (DESCRIBE_CLUSTER, DESCRIBE_GROUP)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List the groups that pass the filters."""
    states = {name.lower() for name in field(request, "states_filter", ())}
    types = {name.lower() for name in field(request, "types_filter", ())}
    code = int(Code.none)
    found: list[tuple[GroupView, str]] = []
    for coordinator in services.groups.coordinators():
        try:
            view = coordinator.view()
        except NotCoordinator:
            continue  # whoever coordinates them now lists them
        except BrokerError as error:
            code = code_of(error)
            continue
        found += ((view, group_id) for group_id in view.group_ids())
    pace = services.turns.pace()
    groups = []
    rights = services.rights
    sees_all = rights.may(call.peer, DESCRIBE_CLUSTER)
    for view, group_id in found:
        await pace.item()
        group = view.headline(group_id)
        if group is None:
            continue  # gone meanwhile
        if not sees_all and not rights.may(call.peer, DESCRIBE_GROUP, group.group_id):
            continue
        group_type = group.group_type.value
        has_state = not states or group.state.value.lower() in states
        if has_state and (not types or group_type.lower() in types):
            groups.append(
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type,
                    "group_state": group.state.value,
                    "group_type": group_type,
                }
            )
    return {"throttle_time": 0, "error_code": code, "groups": groups}
