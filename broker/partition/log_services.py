"""The services that a broker provides to its partitions: one bundle, the same for all of them.

Partitions ask coordinators of transactions through a `TransactionVerifier`. It is set when the
broker is put together, because coordinators are built on partitions. In the other direction,
coordinators write markers through `Partition.transactions`.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from broker.cluster.lease import SessionLease
from broker.metrics import Metrics
from broker.partition.archive import Archive
from broker.partition.core.held_batches import VerificationRequest
from broker.partition.core.log_limits import LogLimits
from broker.partition.core.producer_state import RefusedBatches
from broker.partition.leading.partition_shares import ArchivingNews
from broker.partition.leading.send_turns import SendTurns
from broker.partition.ledgers import Ledgers
from broker.partition.read_ahead import ReadAhead
from broker.partition.tail_cache import TailCache
from client.ids import Clock, Rng
from client.metadata.store import MetadataStore
from client.node.grouped_requests import GroupedRequests
from client.node.turns import Turns
from client.segments.pages import PageCache


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """Everything outside of a partition; simulations replace each field."""

    store: MetadataStore
    ledgers: Ledgers
    clock: Clock
    rng: Rng
    cache: TailCache
    lease: SessionLease
    turns: Turns = dataclasses.field(default_factory=Turns)
    """Turns of the loop for long work; one for the whole process."""
    sends: SendTurns = dataclasses.field(default_factory=SendTurns)
    """Turns in which partitions send large entries; one for the whole process."""
    pages: PageCache = dataclasses.field(default_factory=PageCache)
    """Pages of segment lists, of all partitions together."""
    archive: Archive | None = None
    """Reads what only the object store has; None: this broker knows of no store."""
    ahead: ReadAhead = dataclasses.field(default_factory=ReadAhead)
    coordinators: PluggedVerifier = dataclasses.field(default_factory=PluggedVerifier)
    """Verifies the first batch of each transaction."""
    archiving: ArchivingNews = dataclasses.field(default_factory=ArchivingNews)
    """Tells whoever writes dead letters."""
    limits: LogLimits = dataclasses.field(default_factory=LogLimits)
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    refused: RefusedBatches = dataclasses.field(init=False)
    """Batches that this broker refused before it led their partitions."""
    requests: GroupedRequests = dataclasses.field(init=False)
    """Requests to the metadata store, grouped over partitions and their ledgers."""

    def __post_init__(self) -> None:
        refused = RefusedBatches(self.limits.settling_ms / 1000)
        object.__setattr__(self, "refused", refused)
        requests = self.ledgers.requests
        if requests is None or requests.store is not self.store:
            requests = GroupedRequests(self.store)
        object.__setattr__(self, "requests", requests)
