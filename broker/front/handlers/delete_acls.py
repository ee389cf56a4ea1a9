"""DeleteAcls (31), versions 1-3: remove the entries that filters mean.

Behaviour: each filter by itself; the answer has what it removed. In effect on this broker when it
is answered, and on the others within moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code, code_of, message_of
from broker.front import audit
from broker.front.acl_rows import acl_filter, require_authorization
from broker.front.services import Call, Services
from broker.security.core.acls import Acl
from broker.security.rights import ALTER_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DELETE_ACLS
VERSIONS: Final = (1, 3)
NEEDS: Final = (ALTER_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Remove what each filter means."""
    pace = services.turns.pace()
    results = []
    for row in request.filters:
        await pace.item()
        code, message = int(Code.none), None
        removed: list[Acl] = []
        try:
            services.rights.require(call.peer, ALTER_CLUSTER)
            require_authorization(services)
            removed = await services.rights.acls.remove(acl_filter(row))
            for acl in removed:
                audit.note(call, f"no longer {acl.text}")
        except QuireError as error:
            code, message = code_of(error), message_of(error)
        results.append(
            {"error_code": code, "error_message": message, "matching_acls": _rows(removed)}
        )
    return {"throttle_time": 0, "filter_results": results}


def _rows(acls: list[Acl]) -> list[dict[str, Any]]:
    return [
        {
            "error_code": Code.none,
            "error_message": None,
            "resource_type": acl.resource_type,
            "resource_name": acl.name,
            "pattern_type": acl.pattern,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]
