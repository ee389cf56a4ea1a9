"""What a handler may use, and what it is told about the call.

Every handler gets these two beside its request. `Services` is made once per broker by
`broker/app.py`; a handler uses nothing outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.cluster.cluster import Cluster
from broker.cluster.features import Features
from broker.cluster.leader_changes import LeaderChangeTracker
from broker.config import BrokerConfig
from broker.front.codec_thread import CodecThread
from broker.front.core.client_telemetry import ClientTelemetry
from broker.front.core.fetch_sessions import FetchSessions
from broker.front.deadlines import Deadlines
from broker.front.read_budget import ReadBudget
from broker.front.shares.share_services import ShareServices
from broker.front.topic_metadata_cache import TopicMetadataCache
from broker.groups.group_settings import GroupSettings
from broker.groups.groups import Groups
from broker.leadership.followers import Followers
from broker.leadership.partitions import Partitions
from broker.metrics import Metrics
from broker.security.core.acls import ANONYMOUS
from broker.security.core.listeners import DEFAULT_NAME
from broker.security.login import Login
from broker.security.quotas import Quotas
from broker.security.rights import Rights
from broker.security.users import Users
from broker.settings.live_settings import ClientSubscriptions, LiveSettings
from broker.topics.producer_ids import ProducerIds
from broker.topics.topics import Topics
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.transactions import Transactions
from client.ids import Clock, ConnectionId, Rng
from client.node.turns import Turns

REQUEST_BYTES: Final = 2 * 1024
"""About what a request under way takes beside its own bytes, and is counted with."""


class Peer(NamedTuple):
    """The two ends of a connection. Hosts are numeric addresses; port 0 means unknown."""

    host: str
    port: int
    local_host: str
    local_port: int
    listener: str = DEFAULT_NAME
    """Name of the listener that the client came by."""
    user: str = ANONYMOUS
    """Who the client is: the name of its Kafka principal, of type User."""


class Call(NamedTuple):
    """The frame of one request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    peer: Peer
    connection: ConnectionId = ConnectionId(0)
    """Which connection it came over; later ones have greater numbers."""
    login: Login | None = None

    @property
    def user(self) -> str:
        """Who asks."""
        return self.peer.user


class LinkReceiver(Protocol):
    """What answers other brokers: `broker/link/link_services.py`."""

    def receive(
        self,
        connection: object,
        correlation_id: int,
        body: memoryview,
        answer: Callable[[Sequence[bytes]], None],
    ) -> None:
        """Take one request of a connection; `answer` is called once, now or later.

        Raises RemoteProtocolError: the connection must be closed.
        """
        ...


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of one broker."""

    config: BrokerConfig
    """As it is now: `settings` replaces it."""
    settings: LiveSettings
    cluster: Cluster
    topics: Topics
    features: Features
    leader_changes: LeaderChangeTracker
    topic_metadata_cache: TopicMetadataCache
    partitions: Partitions
    followers: Followers
    groups: Groups
    transactions: Transactions
    link: LinkReceiver
    markers: MarkerWriter
    producer_ids: ProducerIds
    users: Users
    rights: Rights
    quotas: Quotas
    metrics: Metrics
    deadlines: Deadlines
    reading: ReadBudget
    fetch_sessions: FetchSessions
    shares: ShareServices
    telemetry: ClientTelemetry
    subscriptions: ClientSubscriptions
    """To the metrics of clients."""
    group_settings: GroupSettings
    codecs: CodecThread
    turns: Turns
    """Where long requests wait; one for the whole process."""
    clock: Clock
    rng: Rng
    served: Mapping[int, tuple[int, int]]
    """API key -> (lowest, highest version) that has a handler here and is advertised."""
