"""AddOffsetsToTxn (25), versions 0-4: a group's offsets become part of a transaction.

Behaviour: adds the partition of `__consumer_offsets` that keeps the group, as AddPartitionsToTxn
does; the offsets themselves come to the group's coordinator (TxnOffsetCommit).

Versions: 2+ know PRODUCER_FENCED.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import InvalidGroupId
from broker.faults import Code
from broker.front.services import Call, Services
from broker.front.transaction_codes import client_of, transaction_code
from broker.security.rights import READ_GROUP, WRITE_TRANSACTIONAL_ID
from broker.transactions.core.transaction import (
    AddPartitions,
    ProducerIdAndEpoch,
    TransactionPartition,
    TransactionVersion,
)
from client.errors import QuireError
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS: Final = (0, 4)
NEEDS: Final = (READ_GROUP, WRITE_TRANSACTIONAL_ID)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Add the partition that keeps a group's offsets."""
    producer = ProducerIdAndEpoch(ProducerId(request.producer_id), request.producer_epoch)
    try:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty")
        services.rights.require(call.peer, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        services.rights.require(call.peer, READ_GROUP, request.group_id)
        coordinator = services.transactions.coordinator(request.transactional_id)
        topic, index = await services.groups.place(request.group_id)
        await coordinator.add_partitions(
            AddPartitions(
                request.transactional_id,
                producer,
                (TransactionPartition(topic.name, topic.topic_id, index),),
                TransactionVersion.TV0,
                call.connection,
                client_of(call),
            )
        )
    except QuireError as error:
        code = transaction_code(error, call, producer.producer_id)
    else:
        code = int(Code.none)
    return {"throttle_time": 0, "error_code": code}
