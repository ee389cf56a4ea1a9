"""ListPartitionReassignments (46), version 0: nothing is ever in progress.

Deviations from Kafka: a reassignment is done when it is answered (`alter_partition_reassignments`),
since brokers hold no data that would have to be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from broker.security.rights import DESCRIBE_CLUSTER
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 0)
NEEDS: Final = (DESCRIBE_CLUSTER,)


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List none."""
    services.rights.require(call.peer, DESCRIBE_CLUSTER)
    return {"error_code": Code.none, "error_message": None, "topics": []}
