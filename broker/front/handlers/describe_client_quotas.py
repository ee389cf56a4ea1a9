"""DescribeClientQuotas (48), versions 0-1: the limits of what a filter means (KIP-546).

Behaviour: a filter names types of entities, each with a name, the default or any name; a strict one
means entities that have no other part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest, UnsupportedVersion
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.security.core.quota_limits import ENTITY_TYPES, Wanted, check_types, matches
from broker.security.rights import DESCRIBE_CONFIGS_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS: Final = (0, 1)
NEEDS: Final = (DESCRIBE_CONFIGS_CLUSTER,)

_EXACT, _DEFAULT, _ANY = range(3)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List entities and their limits."""
    try:
        return await _list(services, call, request)
    except QuireError as error:
        code, message = code_of(error), message_of(error)
        return {"error_code": code, "error_message": message, "entries": None}


async def _list(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    services.rights.require(call.peer, DESCRIBE_CONFIGS_CLUSTER)
    for part in request.components:
        if not part.entity_type:
            raise InvalidRequest("a part of the filter has no entity type")
        if part.entity_type not in ENTITY_TYPES:
            raise UnsupportedVersion(
                f"there is no entity type {part.entity_type[:100]!r} of quotas"
            )
    wanted = [_wanted(one) for one in request.components]
    check_types(one.type for one in wanted)
    entries = []
    pace = services.turns.pace()
    for entity, quotas in services.quotas.store().all():
        await pace.item()
        if matches(entity, wanted, strict=request.strict):
            entries.append(
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                    "values": [{"key": key, "value": value} for key, value in quotas.items()],
                }
            )
    return {"error_code": Code.none, "error_message": None, "entries": entries}


def _wanted(part: Any) -> Wanted:
    if part.match_type not in (_EXACT, _DEFAULT, _ANY):
        raise InvalidRequest(f"unknown match type {part.match_type}")
    if (part.match_type == _EXACT) != (part.match is not None):
        raise InvalidRequest("a name is given with an exact match only")
    return Wanted(part.entity_type, part.match_type == _ANY, part.match)
