"""CreateAcls (30), versions 1-3: add entries to access control lists.

Behaviour: each entry by itself; one that is there already is no error. In effect on this broker
when it is answered, and on the others within moments.

Deviations from Kafka: what an entry may be about is a topic, a group, the cluster or a
transactional id, and its principal is a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.access.rights import ALTER_CLUSTER
from broker.faults import Code, code_of, message_of
from broker.front.acl_rows import acl_of, require_authorization
from broker.front.services import Call, Services
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.CREATE_ACLS
VERSIONS: Final = (1, 3)
NEEDS: Final = (ALTER_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Add every entry that can be added."""
    pace = services.turns.pace()
    results = []
    for row in request.creations:
        await pace.item()
        code, message = int(Code.none), None
        try:
            services.rights.require(call.peer, ALTER_CLUSTER)
            require_authorization(services)
            await services.rights.acls.add([acl_of(row)])
        except QuireError as error:
            code, message = code_of(error), message_of(error)
        results.append({"error_code": code, "error_message": message})
    return {"throttle_time": 0, "results": results}
