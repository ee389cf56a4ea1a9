"""DescribeTransactions (65), version 0: what transactional ids are doing.

Behaviour: tools ask the coordinator of each id. While markers are written, the partitions are those
that have none yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError, InvalidRequest, TransactionalIdNotFound
from broker.faults import Code, code_of
from broker.front.services import Call, Services
from broker.security.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from broker.transactions.core.transaction import STATE_NAMES, TransactionMetadata
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS: Final = (0, 0)
NEEDS: Final = (DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each transactional id."""
    pace = services.turns.pace()
    found = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        await pace.item()
        found.append(_describe(services, call, transactional_id))
    return {"throttle_time": 0, "transaction_states": found}


def _describe(services: Services, call: Call, transactional_id: str) -> dict[str, Any]:
    try:
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        services.rights.require(call.peer, DESCRIBE_TRANSACTIONAL_ID, transactional_id)
        view = services.transactions.coordinator(transactional_id).view()
        stored = view.describe(transactional_id)
        if stored is None:
            raise TransactionalIdNotFound(f"{transactional_id!r} is not known")
    except BrokerError as error:
        return _row(transactional_id, code_of(error))
    row = _row(transactional_id, int(Code.none), stored)
    may = services.rights.may
    row["topics"] = [one for one in row["topics"] if may(call.peer, DESCRIBE_TOPIC, one["topic"])]
    return row


def _row(
    transactional_id: str, code: int, stored: TransactionMetadata | None = None
) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for partition in () if stored is None else stored.partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "" if stored is None else STATE_NAMES[stored.state],
        "transaction_timeout": 0 if stored is None else stored.timeout_ms,
        "transaction_start_time": 0 if stored is None else stored.start_ms,
        "producer_id": -1 if stored is None else stored.producer_id,
        "producer_epoch": -1 if stored is None else stored.epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
