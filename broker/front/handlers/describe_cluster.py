"""DescribeCluster (60), versions 0-2.

Deviations from Kafka: there are no controllers apart from brokers (endpoint type 2), so a request
for them is refused. No broker is ever fenced without being gone, so those that are asked for too
(version 2) are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.endpoints import reachable
from broker.front.services import Call, Services
from broker.security.core.acls import ResourceType
from broker.security.rights import DESCRIBE_CLUSTER, OPERATIONS_NOT_ASKED
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.DESCRIBE_CLUSTER
VERSIONS: Final = (0, 2)
NEEDS: Final = (DESCRIBE_CLUSTER,)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List the live brokers."""
    cluster = services.cluster
    kind = field(request, "endpoint_type", _BROKERS)
    code, message = _refusal(kind)
    refused = code is not Code.none
    live = () if refused else cluster.brokers.values()
    brokers = [
        {
            "broker_id": broker.id,
            "host": host,
            "port": port,
            "rack": broker.rack,
            "is_fenced": False,
        }
        for broker, host, port in reachable(services, live, call.peer)
    ]
    rights, operations = services.rights, OPERATIONS_NOT_ASKED
    if request.include_cluster_authorized_operations and not refused:
        operations = 0
        if rights.may(call.peer, DESCRIBE_CLUSTER):
            operations = rights.operations(call.peer, ResourceType.CLUSTER)
    return {
        "error_code": code,
        "error_message": message,
        "endpoint_type": _BROKERS,
        "cluster_id": cluster.cluster_id,
        "controller_id": -1 if refused else cluster.controller_id(),
        "brokers": brokers,
        "cluster_authorized_operations": operations,
    }


def _refusal(kind: int) -> tuple[Code, str | None]:
    """Return why this is no place to ask for endpoints of a kind; none: it is one."""
    if kind == _BROKERS:
        return Code.none, None
    if kind == _CONTROLLERS:
        return Code.mismatched_endpoint_type, (
            "this is a broker, and there are no controllers apart from brokers: ask with"
            " --bootstrap-server, not with --bootstrap-controller"
        )
    return Code.unsupported_endpoint_type, f"endpoint type {kind} does not exist"
