"""The services that a broker provides to its partitions: one bundle, the same for all of them."""

from __future__ import annotations

import dataclasses

from broker.cluster.lease import SessionLease
from broker.metrics import Metrics
from broker.partition.core.log_limits import LogLimits
from broker.partition.leading.send_turns import SendTurns
from broker.partition.leading.transaction_verifier import PluggedVerifier
from broker.partition.ledgers import Ledgers
from broker.partition.read_ahead import ReadAhead
from broker.partition.tail_cache import TailCache
from client.ids import Clock, Rng
from client.metadata.store import MetadataStore
from client.node.grouped_requests import GroupedRequests
from client.node.turns import Turns
from client.segments.pages import PageCache


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
    ahead: ReadAhead = dataclasses.field(default_factory=ReadAhead)
    coordinators: PluggedVerifier = dataclasses.field(default_factory=PluggedVerifier)
    """Verifies the first batch of each transaction."""
    limits: LogLimits = dataclasses.field(default_factory=LogLimits)
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    requests: GroupedRequests = dataclasses.field(init=False)
    """Requests to the metadata store, grouped over partitions."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", GroupedRequests(self.store))
