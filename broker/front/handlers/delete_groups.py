"""DeleteGroups (42), versions 0-2: remove groups without members, with their offsets.

Behaviour: NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND if there is no such group.
Durable before the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.access.rights import DELETE_GROUP
from broker.errors import BrokerError
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.groups.coordinator import Coordinator
from client.wire.kafka.apis import ApiKey
from client.wire.steps import STEP_ITEMS

KEY: Final = ApiKey.DELETE_GROUPS
VERSIONS: Final = (0, 2)
NEEDS: Final = (DELETE_GROUP,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each group."""
    codes: dict[str, int] = {}
    mine: dict[Coordinator, list[str]] = {}
    pace = services.turns.pace()
    for group_id in dict.fromkeys(request.groups_names):
        await pace.item()
        try:
            services.rights.require(call.peer, DELETE_GROUP, group_id)
            mine.setdefault(services.groups.coordinator(group_id), []).append(group_id)
        except BrokerError as error:
            codes[group_id] = code_of(error)
    for coordinator, group_ids in mine.items():
        for begin in range(0, len(group_ids), STEP_ITEMS):
            if begin:
                await services.turns.next()
            codes |= await _delete(coordinator, group_ids[begin : begin + STEP_ITEMS])
    return {
        "throttle_time": 0,
        "results": [{"group_id": group_id, "error_code": code} for group_id, code in codes.items()],
    }


async def _delete(coordinator: Coordinator, group_ids: list[str]) -> dict[str, int]:
    try:
        outcomes = await coordinator.delete_groups(group_ids)
    except BrokerError as error:
        return dict.fromkeys(group_ids, code_of(error))
    return {
        group_id: int(Code.none) if outcome is None else code_of(outcome)
        for group_id, outcome in zip(group_ids, outcomes, strict=True)
    }
