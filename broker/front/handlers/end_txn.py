"""EndTxn (26), versions 0-5: commit or abort a transaction.

Behaviour: `broker/transactions/core/transaction.py`. The decision is durable before the answer;
markers reach the partitions after it. CONCURRENT_TRANSACTIONS while they do, or while another
change of the transactional id is under way: clients ask again.

Versions: 2+ know PRODUCER_FENCED. 5+ give each transaction an epoch of its own
(`transaction.version` 2): the answer says which producer id and epoch the next one has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.faults import Code
from broker.front.services import Call, Services
from broker.front.transaction_codes import client_of, transaction_code
from broker.security.rights import WRITE_TRANSACTIONAL_ID
from broker.transactions.core.transaction import (
    EndTransaction,
    ProducerIdAndEpoch,
    TransactionVersion,
)
from client.errors import QuireError
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.END_TXN
VERSIONS: Final = (0, 5)
NEEDS: Final = (WRITE_TRANSACTIONAL_ID,)

_TV2_FROM: Final = 5


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Decide a transaction."""
    producer = ProducerIdAndEpoch(ProducerId(request.producer_id), request.producer_epoch)
    version = TransactionVersion.TV2 if call.version >= _TV2_FROM else TransactionVersion.TV0
    try:
        services.rights.require(call.peer, WRITE_TRANSACTIONAL_ID, request.transactional_id)
        coordinator = services.transactions.coordinator(request.transactional_id)
        after = await coordinator.end_transaction(
            EndTransaction(
                request.transactional_id,
                producer,
                request.committed,
                version,
                call.connection,
                client_of(call),
            )
        )
    except QuireError as error:
        code = transaction_code(error, call, producer.producer_id)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": Code.none,
        "producer_id": after.producer_id,
        "producer_epoch": after.epoch,
    }
