"""What a handler may use, and what it is told about the call.

This file is the only home of the two arguments that every handler gets beside its request.
`Services` is made once per broker by `broker/app.py`; nothing in a handler reaches outside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.config import BrokerConfig
from broker.deadlines import Deadlines
from broker.metrics import Metrics
from broker.read_budget import ReadBudget
from client.ids import Clock, Rng

if TYPE_CHECKING:
    from broker.cluster import Cluster
    from broker.groups import Groups
    from broker.partitions import Partitions
    from broker.producer_ids import ProducerIds
    from broker.successions import Successions
    from broker.topic_answers import TopicAnswers


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
    successions: Successions
    topic_answers: TopicAnswers
    partitions: Partitions
    groups: Groups
    producer_ids: ProducerIds
    metrics: Metrics
    deadlines: Deadlines
    reading: ReadBudget
    clock: Clock
    rng: Rng
    served: Mapping[int, tuple[int, int]]
    """API key -> (lowest, highest version) that has a handler here."""
