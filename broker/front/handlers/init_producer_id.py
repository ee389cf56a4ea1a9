"""InitProducerId (22), versions 0-4: allocate an id for an idempotent producer.

Behaviour: every call without a transactional id gets a new id with epoch 0, unique in the
cluster.

Deviations from Kafka: there are no transactions yet; a transactional id is refused with
UNSUPPORTED_VERSION, which clients report at once instead of retrying.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest, UnsupportedVersion
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from client.errors import QuireError
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 4)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Hand out a producer id."""
    try:
        if request.transactional_id == "":
            raise InvalidRequest("a transactional id must not be empty")
        if request.transactional_id is not None:
            raise UnsupportedVersion("this broker does not support transactions yet")
        producer_id = await services.producer_ids.take()
    except QuireError as error:
        return {"error_code": code_of(error), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": Code.none, "producer_id": producer_id, "producer_epoch": 0}
