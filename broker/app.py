"""Puts one broker together: its parts, what each is given, the order in which they start and stop.

Everything from outside (metadata store, ledgers, wall clock, randomness, event loop) is handed in
and nothing is global, so several brokers fit into one process: tests and the simulator run this
very class.

Start: view of the cluster -> listener (now the port is known) -> registration -> ownership, which
begins to lead partitions -> background tasks. Stop: partitions are handed over while the broker is
still registered, so that others find closed ledgers; then the registration goes, which makes the
others take over; connections go last.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from broker import gauges
from broker.cluster.cluster import Cluster
from broker.cluster.core.features import KNOWN, SHARE_VERSION
from broker.cluster.core.topology import BrokerInfo
from broker.cluster.directory_view import Freshness
from broker.cluster.features import Features
from broker.cluster.hand_over import HandOver
from broker.cluster.leader_changes import LeaderChangeTracker
from broker.cluster.lease import SessionLease
from broker.cluster.owner_node import Owner
from broker.cluster.peer_access import PeerAccess
from broker.cluster.peers import Peers
from broker.cluster.registration import Registration
from broker.compaction.compactor import Compactor
from broker.compaction.worker import Worker
from broker.config import BrokerConfig
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.front.codec_thread import CodecThread
from broker.front.core.client_telemetry import ClientTelemetry, Limits
from broker.front.core.fetch_sessions import FetchSessions
from broker.front.core.share_sessions import ShareSessions
from broker.front.deadlines import Deadlines
from broker.front.dispatch import Dispatcher
from broker.front.endpoints import endpoints_of
from broker.front.handlers.registry import advertised, handlers
from broker.front.read_budget import ReadBudget
from broker.front.server import Server
from broker.front.services import Services
from broker.front.shares.dead_letters import DeadLetters
from broker.front.shares.share_services import ShareServices
from broker.front.shares.share_settings import GroupConfigs
from broker.front.topic_metadata_cache import TopicMetadataCache
from broker.groups.group_settings import GroupSettings
from broker.groups.groups import Groups
from broker.groups.share_members import ShareMembers
from broker.groups.share_offsets import ShareOffsets
from broker.leadership.awaited_partitions import AwaitedPartitions
from broker.leadership.followers import Followers
from broker.leadership.maintenance import Maintenance
from broker.leadership.orphan_ledgers import OrphanLedgers
from broker.leadership.ownership import Ownership
from broker.leadership.partitions import Partitions
from broker.leadership.under_replicated_roller import UnderReplicatedRoller
from broker.link.link_services import LinkServices
from broker.link.links import Links
from broker.metrics import Metrics
from broker.offload.offloader import Objects, Offloader, in_place
from broker.partition.core.producer_state import RefusedBatches
from broker.partition.leading.send_turns import SendTurns
from broker.partition.ledgers import Ledgers
from broker.partition.log_services import LogServices
from broker.partition.read_ahead import ReadAhead
from broker.partition.tail_cache import TailCache
from broker.security.listener_security import ListenerSecurity, TlsFiles
from broker.security.login import Logins, own_account, own_credentials
from broker.security.quotas import Quotas
from broker.security.rights import Rights
from broker.security.users import Users
from broker.settings.live_settings import ClientSubscriptions, LiveSettings
from broker.topics.producer_ids import ProducerIds
from broker.topics.topic_changes import TopicChanges
from broker.topics.topic_cleaner import TopicCleaner
from broker.topics.topics import Topics
from broker.transactions.marker_sender import LinkedMarkers
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.transactions import Transactions
from broker.transactions.verifier import Questions, Verifier
from client.autorecovery.tree import ReplicationTree
from client.histogram import Stopwatch, loop_time
from client.ids import BookieId, Clock, Rng
from client.metadata.store import MetadataStore, SessionState
from client.segments.pages import PageCache
from client.wire.kafka.batches.records import IS_COMPILED

log = logging.getLogger(__name__)

_ONLOOKER: Final = BookieId("broker")
"""Name in auto recovery's tree of somebody who takes neither locks nor votes."""


class BackgroundTask(Protocol):
    """What a broker does beside serving requests."""

    def start(self) -> None:
        """Begin."""
        ...

    async def close(self) -> None:
        """Stop, wherever it is; works without a `start` too."""
        ...


class Broker:
    """Start it once, close it once."""

    _registration: Registration | None = None
    _hand_over: HandOver | None = None

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MetadataStore,
        ledgers: Ledgers,
        clock: Clock,
        rng: Rng,
        now_s: Stopwatch = loop_time,
        worker: Worker | None = None,
        objects: Objects | None = None,
    ) -> None:
        """`store` and `ledgers` are started already, and closed by whoever made them.

        `worker`: who does the work of compaction; None: this process. `objects`: where old segments
        go; the broker closes it. None: they stay on bookies.

        `now_s` measures what metrics show; nothing is decided by it.
        """
        self.ports: Mapping[str, int] = {}
        """The port of each listener; known after `start`."""
        self.incarnation = f"{rng.getrandbits(64):016x}"
        self.is_started, self.started_ms = False, 0
        self.log_services = _log_services(config, store, ledgers, clock, rng, now_s, objects)
        self.cluster = Cluster(store, config, rng=rng)
        changes = TopicChanges(store, clock, rng, config.ledger.ledgers_root, bool(objects))
        self.topics = Topics(self.cluster, changes, config)
        self.partitions = _partitions(self.cluster, config, self.log_services.refused)
        led = self.log_services, self.cluster, self.partitions
        self._ownership = _ownership(*led, Owner(config.node_id, self.incarnation), config)
        groups = Groups(self.cluster, self.topics, self.partitions, config, clock=clock, rng=rng)
        producer_ids = ProducerIds(store)
        parts = self.cluster, self.topics, self.partitions, producer_ids, config
        tls, access, freshness = _access(config, self.log_services.lease, clock, rng)
        peers, leader_changes = _peers(self.cluster, store, config, access)
        links = _links(self.cluster, config, self.incarnation, access, self.metrics)
        transactions = Transactions(*parts, LinkedMarkers(links), clock)
        markers = MarkerWriter(self.cluster, self.partitions, {OFFSETS_TOPIC: groups.write_marker})
        self._serve(links, transactions, markers, config)
        self.compactor = Compactor(self.log_services, self.partitions, config.compaction, worker)
        self.offloader = _offloader(*led, config, objects)
        self.services = Services(
            config=config,
            settings=LiveSettings(store, config),
            cluster=self.cluster,
            topics=self.topics,
            features=Features(store, self.cluster, config.node_id),
            leader_changes=leader_changes,
            topic_metadata_cache=TopicMetadataCache(self.cluster, leader_changes),
            partitions=self.partitions,
            followers=Followers(self.log_services, self.cluster, config),
            groups=groups,
            transactions=transactions,
            link=links.services,
            markers=markers,
            producer_ids=producer_ids,
            users=_users(store, config, rng, self.metrics, freshness),
            rights=Rights(config.security, store, self.metrics, freshness),
            quotas=Quotas(config.security, store, self.metrics),
            metrics=self.metrics,
            deadlines=Deadlines(),
            reading=ReadBudget(config.fetch_reading_bytes_max),
            fetch_sessions=_fetch_sessions(config, rng),
            shares=_shares(self, config, links, groups),
            telemetry=_telemetry(config),
            subscriptions=ClientSubscriptions(store),
            group_settings=GroupSettings(store),
            codecs=CodecThread(self.metrics),
            turns=self.log_services.turns,
            clock=clock,
            rng=rng,
            served=advertised(handlers()),
        )
        self.letters, self.server = _front(self.services, ledgers, tls, links)
        self._background: tuple[BackgroundTask, ...] = (
            peers, links, tls, self.compactor, self.offloader, self.services.features,
            *_housekeeping(self.log_services, self.cluster, self.partitions, changes, config),
        )  # fmt: skip
        self._connect()

    def _serve(
        self, links: Links, transactions: Transactions, markers: MarkerWriter, config: BrokerConfig
    ) -> None:
        """Answer what other brokers ask of transactions, and ask them."""
        markers.serve(links.services)
        Questions(transactions).serve(links.services)
        if config.transactions.enabled:
            self.log_services.coordinators.verifier = Verifier(self.cluster, links)

    def _connect(self) -> None:
        """Tell the parts of each other where one has to be there before the other."""
        for coordinators in (self.groups, self.transactions):
            self._ownership.add_observer(coordinators.on_opened, coordinators.on_closed)
            coordinators.last_connection = lambda: self.server.last_connection
        self._ownership.add_observer(self.letters.on_opened, self.letters.on_closed)
        self.log_services.archiving.tell = self.letters.tell
        self.services.settings.follow(self._configure)
        self.services.group_settings.follow(self._configure_groups)
        gauges.provide_telemetry(self.metrics, self.services.telemetry)
        gauges.provide_shares(self.metrics, self.services.shares.sessions, self.letters)
        gauges.provide_offload(self.log_services, self.offloader)
        self._provide_gauges()

    def _configure(self) -> None:
        """Let everybody have the configuration as it is now."""
        settings = self.services.settings
        self.services.config = settings.config
        self.topics.follow(settings.config)
        self._configure_groups()
        self.server.configure(settings.config)
        self.cluster.set_topic_defaults(settings.topic_defaults)

    def _configure_groups(self) -> None:
        limits = self.config.groups()
        limits.own_times = self.services.group_settings.own_times(limits)
        self.groups.configure(limits)

    def _provide_gauges(self) -> None:
        services = self.services
        gauges.provide_all(
            self.log_services, self.partitions, services.groups, services.transactions,
            services.reading, services.fetch_sessions, self.compactor, unready=self.unready,
            missing=self.missing, topics_max=self.config.metric_topics_max,
        )  # fmt: skip

    @property
    def config(self) -> BrokerConfig:
        """The settings that it runs with, as they are now."""
        return self.services.config

    @property
    def port(self) -> int:
        """Where other brokers connect, and clients by default; known after `start`."""
        return self.ports.get(self.config.security.inter_broker_name, 0)

    @property
    def groups(self) -> Groups:
        """The coordinators of groups that it has."""
        return self.services.groups

    @property
    def transactions(self) -> Transactions:
        """The coordinators of transactions that it has."""
        return self.services.transactions

    @property
    def metrics(self) -> Metrics:
        """Everything that is counted in it."""
        return self.log_services.metrics

    @property
    def store(self) -> MetadataStore:
        """The metadata store that it was given."""
        return self.log_services.store

    @property
    def ledgers(self) -> Ledgers:
        """The ledgers that it was given."""
        return self.log_services.ledgers

    async def start(self, admin_url: str = "") -> None:
        """Serve. `admin_url` is shown to other brokers and operators.

        Raises OSError (port taken), ConfigError (node id taken, files of TLS, a feature that is not
        known), MetadataError, LogCorrupt.
        """
        config = self.config
        await self.cluster.start()
        await self.services.settings.start()
        await self.services.subscriptions.start()
        await self.services.group_settings.start()
        await self.services.features.load()
        self.cluster.add_listener(lambda: self.metrics.keep_topics(self.cluster.topics))
        await self.log_services.lease.ask(self.store)
        await self.services.rights.start()
        await self.services.quotas.start()
        self.ports = await self.server.start()
        name = config.security.inter_broker_name
        endpoints = endpoints_of(config, self.ports)
        myself = BrokerInfo(
            id=config.node_id,
            incarnation=self.incarnation,
            host=endpoints[name].host,
            port=endpoints[name].port,
            advertised=endpoints[name].advertised,
            listener=name,
            endpoints=endpoints,
            admin_url=admin_url,
            rack=config.rack,
            features=KNOWN if config.transactions.enabled else {},
        )
        self.cluster.introduce(myself)
        self._registration = Registration(self.store, myself, config.session_timeout_ms / 1000)
        await self._registration.start()
        self._hand_over = HandOver(
            self.cluster, self._registration, config.hand_over_partitions_at_once
        )
        await self._ownership.start()
        self.groups.start()
        self.transactions.start()
        for task in self._background:
            task.start()
        self.is_started = True
        self.started_ms = self.services.clock.now_ms()
        if not IS_COMPILED:
            log.warning("records.not_compiled broker=%d", config.node_id)
        log.info(
            "broker.serving broker=%d port=%d cluster=%s",
            config.node_id, self.port, self.cluster.cluster_id,
        )  # fmt: skip

    def unready(self) -> list[str]:
        """Return why clients are not served as they should be; nothing if they are."""
        if not self.is_started:
            return ["starting, or stopping"]
        if self.store.state is not SessionState.CONNECTED:
            return ["the metadata session is lost"]
        if self.config.node_id not in self.cluster.brokers:
            return ["not registered"]
        return [f"{name} is not led yet" for name in self.missing()]

    def missing(self) -> list[str]:
        """Return the partitions that this broker should lead and does not lead yet."""
        return self._ownership.missing()

    async def set_unloaded(self, unloaded: bool) -> None:
        """Give all partitions away, as long as other brokers can have them; or take part again.

        Returns before they are gone. Raises MetadataError.
        """
        assert self._hand_over is not None, "not started"
        await self._hand_over.begin(unloaded=unloaded)

    async def close(self) -> None:
        """Hand over and stop; works after a failed `start` too."""
        self.is_started = False
        if self._hand_over is not None:
            await self._hand_over.close()
        await self._ownership.close()
        self.groups.close()
        self.transactions.close()
        self.letters.close()
        if self._registration is not None:
            await self._registration.close()
        for task in self._background:
            await task.close()
        await self.server.close()
        self.services.codecs.close()
        self.services.deadlines.close()
        await self.services.users.close()
        await self.services.rights.close()
        await self.services.quotas.close()
        await self.services.settings.close()
        await self.services.subscriptions.close()
        await self.services.group_settings.close()
        await self.cluster.close()
        log.info("broker.closed broker=%d", self.config.node_id)


def _housekeeping(
    shared: LogServices,
    cluster: Cluster,
    partitions: Partitions,
    changes: TopicChanges,
    config: BrokerConfig,
) -> tuple[BackgroundTask, ...]:
    """Return what looks after logs and topics from time to time."""
    store, ledgers, clock = shared.store, shared.ledgers, shared.clock
    tree = ReplicationTree(store, _ONLOOKER, config.ledger.ledgers_root)
    return (
        Maintenance(partitions, clock, interval_s=config.retention_check_interval_ms / 1000),
        UnderReplicatedRoller(partitions, ledgers, tree.marked_ledgers),
        TopicCleaner(store, cluster, changes, ledgers, config.node_id, clock, shared.archive),
        OrphanLedgers(store, ledgers, cluster, config.node_id),
    )


def _offloader(
    shared: LogServices,
    cluster: Cluster,
    partitions: Partitions,
    config: BrokerConfig,
    objects: Objects | None,
) -> Offloader:
    """Return who takes old segments to the object store, if there is one."""
    off_loop = in_place if objects is None else objects.off_loop
    return Offloader(shared, partitions, config.offload, lambda: cluster.cluster_id, off_loop)


def _access(
    config: BrokerConfig, lease: SessionLease, clock: Clock, rng: Rng
) -> tuple[TlsFiles, PeerAccess, Freshness]:
    """Return the certificates, how other brokers are reached, and how old what is known of users
    and rights may be: the lease's questions tell."""
    security = config.security
    tls = TlsFiles(security, clock)
    freshness = Freshness(security.access_age_max_s(config.session_timeout_ms))
    lease.add_listener(freshness.answered)
    return tls, PeerAccess(tls.peer_context, own_account(security, rng)), freshness


def _links(
    cluster: Cluster, config: BrokerConfig, incarnation: str, access: PeerAccess, metrics: Metrics
) -> Links:
    """Return the way to other brokers, and what answers them."""
    services = LinkServices(cluster, config.node_id, incarnation)
    links = Links(cluster, services, config.link(), access)
    gauges.provide_links(metrics, links)
    return links


def _partitions(cluster: Cluster, config: BrokerConfig, refused: RefusedBatches) -> Partitions:
    """Return the partitions that are led here, none yet."""
    hold_s, hold_bytes = config.partition_hold_max_ms / 1000, config.partition_hold_bytes_max
    return Partitions(cluster, AwaitedPartitions(hold_s, hold_bytes), refused)


def _ownership(
    shared: LogServices,
    cluster: Cluster,
    partitions: Partitions,
    owner: Owner,
    config: BrokerConfig,
) -> Ownership:
    """Return who leads partitions, and takes them over."""
    close_s = config.shutdown_timeout_ms / 1000
    return Ownership(shared, cluster, partitions, owner, close_timeout_s=close_s)


def _peers(
    cluster: Cluster, store: MetadataStore, config: BrokerConfig, access: PeerAccess
) -> tuple[Peers, LeaderChangeTracker]:
    """Return who watches the other brokers, and who answers for them."""
    answer_max_s = config.peer_answer_max_ms / 1000
    peers = Peers(store, cluster, config.node_id, answer_max_s, access)
    return peers, LeaderChangeTracker(cluster, peers, config.metadata_hold_max_ms / 1000)


def _front(
    services: Services, ledgers: Ledgers, tls: TlsFiles, links: Links
) -> tuple[DeadLetters, Server]:
    """Return who writes dead letters, and stores those of other brokers; and the listeners."""
    letters = DeadLetters(services, links)
    letters.serve(links.services)
    return letters, _server(services, ledgers, tls)


def _server(services: Services, ledgers: Ledgers, tls: TlsFiles) -> Server:
    security = services.config.security
    logins = Logins(security, services.users, services.turns, services.rng, services.clock)
    listener_security = ListenerSecurity(security, tls, logins, services.metrics)
    return Server(services, Dispatcher(services, handlers()), ledgers.memory, listener_security)


def _users(
    store: MetadataStore, config: BrokerConfig, rng: Rng, metrics: Metrics, freshness: Freshness
) -> Users:
    security = config.security
    own = functools.partial(own_credentials, security)
    users = Users(store, security.users_max, own, freshness, rng)
    metrics.provide_one("quire_broker_users", lambda: users.count)
    return users


def _telemetry(config: BrokerConfig) -> ClientTelemetry:
    limits = config.telemetry
    return ClientTelemetry(Limits(limits.clients_max, limits.series_max, limits.client_series_max))


def _fetch_sessions(config: BrokerConfig, rng: Rng) -> FetchSessions:
    return FetchSessions(
        config.fetch_sessions_max,
        config.fetch_session_partitions_max,
        lambda: rng.getrandbits(30) + 1,
    )


def _shares(broker: Broker, config: BrokerConfig, links: Links, groups: Groups) -> ShareServices:
    """Return what share groups need beside their coordinators; other brokers ask it, too."""
    members = ShareMembers(broker.cluster, links, groups)
    offsets = ShareOffsets(broker.cluster, links, broker.partitions)
    members.serve(links.services)
    offsets.serve(links.services)
    return ShareServices(
        ShareSessions(config.group_share_max_share_sessions, config.fetch_session_partitions_max),
        members,
        offsets,
        GroupConfigs(
            lambda: broker.services.group_settings,
            lambda: broker.services.config,
            lambda: broker.services.features.finalized.levels.get(SHARE_VERSION, 0),
        ),
    )


def _log_services(
    config: BrokerConfig,
    store: MetadataStore,
    ledgers: Ledgers,
    clock: Clock,
    rng: Rng,
    now_s: Stopwatch,
    objects: Objects | None,
) -> LogServices:
    """Return what all partitions share."""
    return LogServices(
        store=store,
        ledgers=ledgers,
        clock=clock,
        rng=rng,
        cache=TailCache(config.tail_cache_bytes_max),
        sends=SendTurns(config.log_turn_bytes_max),
        pages=PageCache(config.segment_pages_max),
        lease=SessionLease(config.session_timeout_ms / 1000),
        ahead=ReadAhead(
            config.read_ahead_bytes_max,
            config.read_ahead_reader_bytes_max,
            config.read_ahead_patience_ms / 1000,
        ),
        archive=None if objects is None else objects.archive(config.offload),
        limits=config.log_limits(),
        metrics=Metrics(topics_max=config.metric_topics_max, now_s=now_s),
    )
