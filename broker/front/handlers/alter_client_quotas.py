"""AlterClientQuotas (49), versions 0-1: set and remove limits of users, client ids and addresses
(KIP-546).

Behaviour: each entity by itself, its changes together; an entity that is named twice is refused.
In effect on this broker when it is answered, and on the others within moments.

Deviations from Kafka: addresses must be numeric, as connections have them.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest
from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.services import Call, Services
from broker.security.core.quota_limits import IP, Entity, check_types, check_value
from broker.security.rights import ALTER_CONFIGS_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS: Final = (0, 1)
NEEDS: Final = (ALTER_CONFIGS_CLUSTER,)

_NAME_CHARS_MAX: Final = 1_000


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Change every entity that can be changed."""
    counts = Counter(_raw(entry) for entry in request.entries)
    pace = services.turns.pace()
    results = []
    for entry in request.entries:
        await pace.item()
        code, message = int(Code.none), None
        try:
            services.rights.require(call.peer, ALTER_CONFIGS_CLUSTER)
            if counts[_raw(entry)] > 1:
                raise InvalidRequest("the request names the same entity twice")
            entity = _entity(entry)
            changes = _changes(entity, entry.ops)
            if not request.validate_only:
                await services.quotas.store().change(entity, changes)
                audit.note(call, f"{dict(entity)}: {changes}")
        except QuireError as error:
            code, message = code_of(error), message_of(error)
        rows = [
            {"entity_type": part.entity_type, "entity_name": part.entity_name}
            for part in entry.entity
        ]
        results.append({"error_code": code, "error_message": message, "entity": rows})
    return {"entries": results}


def _raw(entry: Any) -> tuple[tuple[str, str], ...]:
    """Return what tells entities of a request apart, whether they make sense or not."""
    return tuple(sorted((part.entity_type, repr(part.entity_name)) for part in entry.entity))


def _entity(entry: Any) -> Entity:
    parts = [(part.entity_type, part.entity_name) for part in entry.entity]
    if not parts:
        raise InvalidRequest("an entity needs at least one part")
    check_types(kind for kind, _ in parts)
    for kind, name in parts:
        if name is not None and not 0 < len(name) <= _NAME_CHARS_MAX:
            raise InvalidRequest(f"a name must have 1 to {_NAME_CHARS_MAX} characters")
        if kind == IP and name is not None:
            _check_address(name)
    return tuple(sorted(parts))


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise InvalidRequest(f"{name[:100]!r} is not a numeric address") from None


def _changes(entity: Entity, ops: Any) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key in changes:
            raise InvalidRequest(f"quota {op.key} is changed twice")
        check_value(entity, op.key, 1 if op.remove else op.value)
        changes[op.key] = None if op.remove else op.value
    return changes
