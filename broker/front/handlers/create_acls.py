"""CreateAcls (30), versions 1-3: add entries to access control lists.

Behaviour: entries about one resource take effect together, as nobody may do what no entry allows
once there is one; one that is there already is no error. In effect on this broker when it is
answered, and on the others within moments.

Deviations from Kafka: what an entry may be about is a topic, a group, the cluster or a
transactional id, and its principal is a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.acl_rows import acl_of, require_authorization
from broker.front.services import Call, Services
from broker.security.core.acls import Acl
from broker.security.rights import ALTER_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.CREATE_ACLS
VERSIONS: Final = (1, 3)
NEEDS: Final = (ALTER_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Add every entry that can be added."""
    pace = services.turns.pace()
    results: list[dict[str, Any]] = [_DONE] * len(request.creations)
    together: dict[tuple[object, ...], list[tuple[int, Acl]]] = {}
    for number, row in enumerate(request.creations):
        await pace.item()
        try:
            services.rights.require(call.peer, ALTER_CLUSTER)
            require_authorization(services)
            acl = acl_of(row)
        except QuireError as error:
            results[number] = _refused(error)
        else:
            place = acl.resource_type, acl.pattern, acl.name
            together.setdefault(place, []).append((number, acl))
    for entries in together.values():
        await pace.item()
        try:
            await services.rights.acls.add([acl for _, acl in entries])
        except QuireError as error:
            for number, _ in entries:
                results[number] = _refused(error)
        else:
            for _, acl in entries:
                audit.note(call, acl.text)
    return {"throttle_time": 0, "results": results}


_DONE: Final = {"error_code": int(Code.none), "error_message": None}


def _refused(error: QuireError) -> dict[str, Any]:
    return {"error_code": code_of(error), "error_message": message_of(error)}
