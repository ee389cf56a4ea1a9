"""What a handler may use, and what it is told about the call.

Every handler gets these two beside its request. `Services` is made once per broker by
`broker/app.py`; a handler uses nothing outside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from broker.cluster.cluster import Cluster
from broker.cluster.leader_changes import LeaderChangeTracker
from broker.compaction.compactor import Compactor
from broker.config import BrokerConfig
from broker.front.deadlines import Deadlines
from broker.front.read_budget import ReadBudget
from broker.front.topic_metadata_cache import TopicMetadataCache
from broker.groups.groups import Groups
from broker.leadership.partitions import Partitions
from broker.metrics import Metrics
from broker.topics.producer_ids import ProducerIds
from broker.topics.topics import Topics
from client.ids import Clock, Rng
from client.node.turns import Turns


class Peer(NamedTuple):
    """The two ends of a connection. Hosts are numeric addresses; port 0 means unknown."""

    host: str
    port: int
    local_host: str
    local_port: int


class Call(NamedTuple):
    """The frame of one request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    peer: Peer


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of one broker."""

    config: BrokerConfig
    cluster: Cluster
    topics: Topics
    leader_changes: LeaderChangeTracker
    topic_metadata_cache: TopicMetadataCache
    partitions: Partitions
    groups: Groups
    compactor: Compactor
    producer_ids: ProducerIds
    metrics: Metrics
    deadlines: Deadlines
    reading: ReadBudget
    turns: Turns
    """Where long requests wait; one for the whole process."""
    clock: Clock
    rng: Rng
    served: Mapping[int, tuple[int, int]]
    """API key -> (lowest, highest version) that has a handler here."""
