"""The seam between partitions and the coordinators of transactions, in both directions.

Partitions ask through a `TransactionVerifier`, which whoever puts the broker together plugs in,
because coordinators stand above partitions. Coordinators write markers through
`TransactionalPartition`, which is what `Partition.transactions` offers them.

A batch of a transaction is appended with `Partition.append(batch, transaction=ProducerTransaction)`
like any other, by clients' requests and by group coordinators. While its coordinator is asked, the
append that is returned is held: it has no offsets yet (`base_offset` -1), and is settled as any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.partition.core.transactions.verification import OpenTransactionView, VerificationRequest
from client.ids import LeaderEpoch
from client.wire.kafka.batches.control_batch import Marker


class TransactionVerifier(Protocol):
    """Asks the coordinator of a transactional id, wherever that is."""

    async def verify(self, request: VerificationRequest) -> int:
        """Return the epoch of the coordinator that vouches for the transaction.

        It gives up after a bounded time. Raises BrokerError: ProducerFenced,
        InvalidProducerIdMapping and TransactionAbortable if the coordinator knows better; anything
        retriable (NotCoordinator, CoordinatorLoading, ConcurrentTransactions, RequestTimedOut, ...)
        lets the producer send its batch again.
        """
        ...


class PluggedVerifier:
    """The verifier of a broker, once it has one; until then transactions are refused."""

    def __init__(self) -> None:
        self.verifier: TransactionVerifier | None = None


class TransactionalPartition(Protocol):
    """What coordinators and operators do with the transactions of a led partition."""

    async def write_marker(
        self, marker: Marker, *, is_tv2: bool, leader_epoch: LeaderEpoch | None
    ) -> None:
        """End a producer's transaction; returns when the marker is confirmed, or there was nothing
        to write and our lead is proven (PROVEN).

        `is_tv2`: the marker's epoch is the one after the transaction's. `leader_epoch`: of the
        leader that it is for (MARKER-ADDRESS); None: of whoever leads, for an operator.

        Raises FencedLeaderEpoch and UnknownLeaderEpoch (it is for another leader), NotLeader,
        TransactionCoordinatorFenced (the log knows a newer coordinator): nothing was written then.
        LeadershipLost: the outcome is unknown.
        """
        ...

    def open_transactions(self) -> Sequence[OpenTransactionView]:
        """Return the transactions that have no marker, the oldest first."""
        ...
