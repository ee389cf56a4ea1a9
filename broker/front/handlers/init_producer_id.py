"""InitProducerId (22), versions 0-5: a producer id, or the next epoch of a transactional id.

Behaviour: every call without a transactional id gets a new id with epoch 0, unique in the
cluster. With one it begins an incarnation, which fences the one before and aborts its transaction;
the rules are in `broker/transactions/core/transaction.py`. Durable before the answer.

Versions: 3+ say what the producer has, so that a lost answer costs no epoch and a fenced producer
learns of it; 4+ know PRODUCER_FENCED; 5+ is the same.

Deviations from Kafka: a broker with `transactions.enabled` off answers
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients end with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidRequest
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.front.transaction_codes import client_of, transaction_code
from broker.security.rights import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.transactions.core.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    InitProducerId,
    ProducerIdAndEpoch,
)
from client.errors import QuireError
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import field

KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 5)
NEEDS: Final = (IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Hand out a producer id and an epoch."""
    had = ProducerId(field(request, "producer_id", NO_PRODUCER_ID))
    try:
        _require(services, call, request.transactional_id)
        if (had == NO_PRODUCER_ID) != (field(request, "producer_epoch", NO_EPOCH) == NO_EPOCH):
            raise InvalidRequest("producer id and epoch must be given together, or not at all")
        if request.transactional_id is None:
            given = ProducerIdAndEpoch(await services.producer_ids.take(), 0)
        else:
            given = await _begin(services, call, request, had)
    except QuireError as error:
        is_transactional = request.transactional_id is not None
        code = transaction_code(error, call, had) if is_transactional else code_of(error)
        return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}
    return {
        "error_code": Code.none,
        "producer_id": given.producer_id,
        "producer_epoch": given.epoch,
    }


async def _begin(
    services: Services, call: Call, request: Any, had: ProducerId
) -> ProducerIdAndEpoch:
    coordinator = await services.transactions.coordinator_soon(request.transactional_id)
    return await coordinator.init_producer_id(
        InitProducerId(
            request.transactional_id,
            field(request, "transaction_timeout"),
            had,
            field(request, "producer_epoch", NO_EPOCH),
            call.connection,
            client_of(call),
        )
    )


def _require(services: Services, call: Call, transactional_id: str | None) -> None:
    """Who may write to any topic needs nothing more for idempotence (KIP-679)."""
    rights = services.rights
    if transactional_id is not None:
        rights.require(call.peer, WRITE_TRANSACTIONAL_ID, transactional_id)
    elif not rights.may_somewhere(call.peer, WRITE_TOPIC):
        rights.require(call.peer, IDEMPOTENT_WRITE)
