"""Puts a coordinator's errors into codes that the version of a request knows.

    PRODUCER_FENCED      INVALID_PRODUCER_EPOCH in versions before the one below
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
    ProducerFenced,
    TransactionAbortable,
)
from client.ids import ProducerId
from client.wire.kafka.apis import ApiKey

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
