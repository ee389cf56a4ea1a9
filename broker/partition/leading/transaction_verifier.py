"""The interfaces between partitions and transaction coordinators, in both directions.

Partitions ask through a `TransactionVerifier`. It is set when the broker is put together, because
coordinators are built on partitions. Coordinators write markers through `TransactionalPartition`,
which `Partition.transactions` implements.

Requests of clients and group coordinators append a transactional batch like any other, with
`Partition.append(batch, transaction=ProducerTransaction)`. While its coordinator is asked, the
returned append is held: it has no offsets yet (`base_offset` -1), and is completed like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.partition.core.transactions.verification import OpenTransactionView, VerificationRequest
from client.ids import LeaderEpoch
from client.wire.kafka.batches.control_batch import Marker


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transactional id, on any broker."""

    async def verify(self, request: VerificationRequest) -> int:
        """Return the epoch of the coordinator, once it has verified the transaction.

        Gives up after a bounded time. Raises BrokerError: ProducerFenced, InvalidProducerIdMapping
        and TransactionAbortable if the coordinator refuses for good; after a retriable one
        (NotCoordinator, CoordinatorLoading, ConcurrentTransactions, RequestTimedOut, ...) the
        producer resends its batch.
        """
        ...


class PluggedVerifier:
    """The verifier of a broker, once it is set; until then transactions are refused."""

    def __init__(self) -> None:
        self.verifier: TransactionVerifier | None = None


class TransactionalPartition(Protocol):
    """The transactions of a led partition, for coordinators and operators."""

    async def write_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> None:
        """End a producer's transaction; return when the marker is confirmed, or when there was
        nothing to write and our leadership is proven (PROVEN).

        `is_tv2`: the marker's epoch is the one after the transaction's. `leader_epoch`: of the
        leader that the marker is meant for (MARKER-ADDRESS); None: any leader, for operators.

        Raises FencedLeaderEpoch and UnknownLeaderEpoch (it is meant for another leader), NotLeader,
        TransactionCoordinatorFenced (the log has a newer coordinator): nothing was written then.
        LeadershipLost: the outcome is unknown.
        """
        ...

    def open_transactions(self) -> Sequence[OpenTransactionView]:
        """Return the open transactions, oldest first."""
        ...
