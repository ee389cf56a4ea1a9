"""ListConfigResources (74), versions 0-1: what has settings (KIP-1142).

Behaviour: topics, brokers, subscriptions to metrics of clients, and the groups for which something
was set. No types means all that there are; version 0 asks for client metrics alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from broker.security.rights import DESCRIBE_CONFIGS_CLUSTER
from broker.topics.core.config_resource import ConfigResource
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS: Final = (0, 1)
NEEDS: Final = (DESCRIBE_CONFIGS_CLUSTER,)


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """List the resources of the types asked for."""
    services.rights.require(call.peer, DESCRIBE_CONFIGS_CLUSTER)
    types = list(field(request, "resource_types", (ConfigResource.CLIENT_METRICS,)))
    types = types or list(ConfigResource)
    if any(kind not in list(ConfigResource) for kind in types):
        return {"error_code": Code.unsupported_version, "config_resources": []}
    cluster = services.cluster
    names: Mapping[int, list[str]] = {
        ConfigResource.TOPIC: sorted(cluster.topics),
        ConfigResource.BROKER: [str(broker) for broker in cluster.brokers],
        ConfigResource.CLIENT_METRICS: services.subscriptions.names(),
        ConfigResource.GROUP: services.group_settings.names(),
    }
    rows = [
        {"resource_name": name, "resource_type": int(kind)}
        for kind in dict.fromkeys(types)
        for name in names.get(kind, [])
    ]
    return {"error_code": Code.none, "config_resources": rows}
