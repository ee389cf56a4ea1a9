"""The transaction that the batches of a Produce request belong to.

The first batch of a transaction in a partition is held there until its coordinator vouches for it,
and its producer's next ones behind it (`partition/core/transactions/held_batches.py`); from version
12 on that adds the partition to the transaction. A transactional batch is refused with
INVALID_TXN_STATE in a request without a transactional id, and while this broker serves none; with
INVALID_PRODUCER_ID_MAPPING if another batch of the request is of another producer.
"""

from __future__ import annotations

from typing import Final

from broker.errors import InvalidProducerIdMapping
from broker.partition.core.transactions.verification import ProducerTransaction
from client.errors import RemoteProtocolError
from client.ids import ProducerId
from client.wire.kafka.batches.records import Buffer, parse_header

_TV2_FROM: Final = 12
"""The version from which a batch adds its partition to the transaction."""


class ProduceTransaction:
    """What a request with a transactional id says: all its batches are of one producer."""

    __slots__ = ("_producer_id", "_transaction")

    def __init__(self, transactional_id: str, version: int) -> None:
        self._transaction = ProducerTransaction(transactional_id, version >= _TV2_FROM)
        self._producer_id: ProducerId | None = None

    def of(self, records: Buffer) -> ProducerTransaction | None:
        """Return the transaction of a batch; None: it belongs to none, or is no batch at all, which
        whoever appends it will say. Raises InvalidProducerIdMapping."""
        try:
            header = parse_header(records)
        except RemoteProtocolError:
            return None
        if not header.is_transactional:
            return None
        if self._producer_id is None:
            self._producer_id = header.producer_id
        elif self._producer_id != header.producer_id:
            raise InvalidProducerIdMapping(
                f"one transaction has batches of producers {self._producer_id} and"
                f" {header.producer_id}"
            )
        return self._transaction
