"""What the handlers of transactions have in common: error codes by version, and which client asks.

    PRODUCER_FENCED          INVALID_PRODUCER_EPOCH in versions before the one below
    TRANSACTION_ABORTABLE    INVALID_TXN_STATE before version 5 of AddPartitionsToTxn

Clients end on both; the older ones know only the second. `broker/faults.py` maps to numbers.

Source: the "version N adds" notes of Kafka's schemas (KIP-588, KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.errors import (
    BrokerError,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OldConnection,
    ProducerFenced,
    TransactionAbortable,
)
from broker.faults import code_of
from broker.front.services import Call
from broker.transactions.core.transaction import Client
from client.errors import QuireError
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey


def client_of(call: Call) -> Client:
    """Return who asks, for operators."""
    return Client(call.client_id or "", call.peer.host)


def transaction_code(error: QuireError, call: Call, producer_id: ProducerId) -> int:
    """Return the code to answer a call of a transactional producer with.

    Raises OldConnection again: that has no code, the connection is closed.
    """
    if isinstance(error, OldConnection):
        raise error
    if isinstance(error, BrokerError):
        error = for_version(error, ApiKey(call.api_key), call.version, producer_id)
    return code_of(error)


_KNOWS_FENCED_FROM: Final[Mapping[ApiKey, int]] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_KNOWS_ABORTABLE_FROM: Final = 5
"""Of AddPartitionsToTxn; of the others there, no version is told so."""


def for_version(
    error: BrokerError, api: ApiKey, version: int, producer_id: ProducerId
) -> BrokerError:
    """Return the error to answer a request of this version with."""
    if isinstance(error, ProducerFenced) and version < _KNOWS_FENCED_FROM[api]:
        return InvalidProducerEpoch(producer_id, str(error))
    if isinstance(error, TransactionAbortable) and version < _KNOWS_ABORTABLE_FROM:
        return InvalidTransactionState(producer_id, str(error))
    return error
