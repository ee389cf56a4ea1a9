"""DeleteGroups (42), versions 0-3: remove groups without members, with their offsets.

Behaviour: NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND if there is no such group.
Durable before the answer.

Versions: 3+ say in words why a group was not deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError
from broker.faults import code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.groups.coordinator import Coordinator
from broker.security.rights import DELETE_GROUP
from client.wire.kafka.apis import ApiKey
from client.wire.steps import STEP_ITEMS

KEY: Final = ApiKey.DELETE_GROUPS
VERSIONS: Final = (0, 3)
NEEDS: Final = (DELETE_GROUP,)

_MESSAGES_FROM: Final = 3


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Return an error code for each group."""
    outcomes: dict[str, BrokerError | None] = {}
    mine: dict[Coordinator, list[str]] = {}
    pace = services.turns.pace()
    for group_id in dict.fromkeys(request.groups_names):
        await pace.item()
        try:
            services.rights.require(call.peer, DELETE_GROUP, group_id)
            mine.setdefault(services.groups.coordinator(group_id), []).append(group_id)
        except BrokerError as error:
            outcomes[group_id] = error
    for coordinator, group_ids in mine.items():
        for begin in range(0, len(group_ids), STEP_ITEMS):
            if begin:
                await services.turns.next()
            outcomes |= await _delete(coordinator, group_ids[begin : begin + STEP_ITEMS])
    for group_id, outcome in outcomes.items():
        if outcome is None:
            audit.note(call, f"group {group_id!r} deleted")
    has_messages = call.version >= _MESSAGES_FROM
    return {
        "throttle_time": 0,
        "results": [
            {"group_id": group_id, **_result(outcome, has_message=has_messages)}
            for group_id, outcome in outcomes.items()
        ],
    }


def _result(error: BrokerError | None, *, has_message: bool) -> Mapping[str, Any]:
    code = code_of(error) if error is not None else 0
    if not has_message:
        return {"error_code": code}
    return {"error_code": code, "error_message": None if error is None else message_of(error)}


async def _delete(coordinator: Coordinator, group_ids: list[str]) -> dict[str, BrokerError | None]:
    try:
        outcomes = await coordinator.delete_groups(group_ids)
    except BrokerError as error:
        return dict.fromkeys(group_ids, error)
    return dict(zip(group_ids, outcomes, strict=True))
