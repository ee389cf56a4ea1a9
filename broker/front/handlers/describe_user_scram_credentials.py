"""DescribeUserScramCredentials (50), version 0: which users have which credentials (KIP-554).

Behaviour: no users asked for means all. A user that is named twice, or is not there, has an error
of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from broker.errors import DuplicateResource, ResourceNotFound
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.security.core.scram import SCRAM_NUMBERS
from broker.security.rights import DESCRIBE_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)
NEEDS: Final = (DESCRIBE_CLUSTER,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each user by itself."""
    services.rights.require(call.peer, DESCRIBE_CLUSTER)
    await services.users.start()
    asked = Counter(one.name for one in request.users or ()) or Counter(services.users.names())
    pace = services.turns.pace()
    results = []
    for name, count in asked.items():
        await pace.item()
        try:
            if count > 1:
                raise DuplicateResource(f"the request names user {name!r} {count} times")
            results.append(_describe(services, name))
        except QuireError as error:
            results.append(
                {
                    "user": name,
                    "error_code": code_of(error),
                    "error_message": message_of(error),
                    "credential_infos": [],
                }
            )
    return {"throttle_time": 0, "error_code": Code.none, "error_message": None, "results": results}


def _describe(services: Services, name: str) -> dict[str, Any]:
    kept = services.users.credentials(name)
    if not kept:
        raise ResourceNotFound(f"user {name!r} has no SCRAM credentials")
    return {
        "user": name,
        "error_code": Code.none,
        "error_message": None,
        "credential_infos": [
            {"mechanism": number, "iterations": kept[mechanism].iterations}
            for number, mechanism in SCRAM_NUMBERS.items()
            if mechanism in kept
        ],
    }
