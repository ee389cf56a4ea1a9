"""UnregisterBroker (64), version 0: forget a broker that is gone.

Deviations from Kafka: a registration ends with its broker's session, so there is nothing to do
for one that was there a moment ago, and one that lives is refused: stop it instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerNotRegistered, InvalidRequest
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.security.rights import ALTER_CLUSTER
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.UNREGISTER_BROKER
VERSIONS: Final = (0, 0)
NEEDS: Final = (ALTER_CLUSTER,)


def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Say whether the broker is gone."""
    services.rights.require(call.peer, ALTER_CLUSTER)
    try:
        _check(services, request.broker_id)
    except QuireError as error:
        return {"error_code": code_of(error), "error_message": message_of(error)}
    return {"error_code": Code.none, "error_message": None}


def _check(services: Services, broker_id: int) -> None:
    cluster = services.cluster
    if broker_id in cluster.brokers or broker_id in cluster.unreadable_brokers:
        raise InvalidRequest(f"broker {broker_id} is live: stop it, which ends its registration")
    if broker_id not in [broker.id for broker in services.cluster.listed_brokers()]:
        raise BrokerNotRegistered(f"there is no broker {broker_id}")
