"""DescribeAcls (29), versions 1-3: the entries that a filter means.

Behaviour: entries are grouped by what they are about. Without authorization there are none:
SECURITY_DISABLED.

Deviations from Kafka: delegation tokens and users (as resources) do not exist here; a filter for
them is refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.acl_rows import acl_filter, require_authorization
from broker.front.services import Call, Services
from broker.security.core.acls import Acl
from broker.security.rights import DESCRIBE_CLUSTER
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_ACLS
VERSIONS: Final = (1, 3)
NEEDS: Final = (DESCRIBE_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List the entries."""
    services.rights.require(call.peer, DESCRIBE_CLUSTER)
    require_authorization(services)
    found: dict[tuple[int, str, int], list[Acl]] = {}
    pace = services.turns.pace()
    for acl in services.rights.acls.find(acl_filter(request)):
        await pace.item()
        found.setdefault((acl.resource_type, acl.name, acl.pattern), []).append(acl)
    return {
        "throttle_time": 0,
        "error_code": Code.none,
        "error_message": None,
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "pattern_type": pattern,
                "acls": [
                    {
                        "principal": acl.principal,
                        "host": acl.host,
                        "operation": acl.operation,
                        "permission_type": acl.permission,
                    }
                    for acl in acls
                ],
            }
            for (kind, name, pattern), acls in found.items()
        ],
    }
