"""One broker, put together.

This file is the only home of which parts a broker has, what each is given, and the order in
which they start and stop. Everything from outside (metadata store, ledgers, wall clock,
randomness, event loop) is handed in, nothing is global, so several brokers live in one process:
tests and the simulator run this very class.

Start: view of the cluster -> listener (the port is known now) -> registration -> ownership, from
which on partitions are led -> the helpers. Stop: partitions are handed over while still
registered, so that others find closed ledgers; then the registration goes, which is what makes
the others take over; connections last.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.cluster import Cluster
from broker.config import BrokerConfig
from broker.core.topology import BrokerInfo
from broker.deadlines import Deadlines
from broker.dispatch import Dispatcher
from broker.endpoints import registered_host
from broker.full_strength import FullStrength
from broker.gauges import provide_all
from broker.groups import Groups
from broker.hand_over import HandOver
from broker.handlers.registry import handlers
from broker.lease import SessionLease
from broker.ledger_sweep import LedgerSweep
from broker.ledgers import Ledgers
from broker.log_services import LogServices
from broker.maintenance import Maintenance
from broker.metrics import Metrics
from broker.owner_node import Owner
from broker.ownership import Ownership
from broker.partitions import Partitions
from broker.peers import Peers
from broker.producer_ids import ProducerIds
from broker.read_ahead import ReadAhead
from broker.read_budget import ReadBudget
from broker.registration import Registration
from broker.server import Server
from broker.services import Services
from broker.successions import Successions
from broker.tail_cache import TailCache
from broker.topic_answers import TopicAnswers
from broker.topic_changes import TopicChanges
from broker.topic_cleaner import TopicCleaner
from client.histogram import Stopwatch, loop_time
from client.ids import BookieId, Clock, Rng
from client.ledger.autorecovery.tree import ReplicationTree
from client.metadata.store import MetadataStore, SessionState

log = logging.getLogger(__name__)

_ONLOOKER: Final = BookieId("broker")
"""Name in auto recovery's tree of somebody who takes neither locks nor votes."""


class Broker:
    """Start it once, close it once."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MetadataStore,
        ledgers: Ledgers,
        clock: Clock,
        rng: Rng,
        now_s: Stopwatch = loop_time,
    ) -> None:
        """`store` and `ledgers` are started already, and closed by whoever made them.

        `now_s` measures what metrics show; nothing is decided by it.
        """
        self.config = config
        self.port = 0
        """Where Kafka clients connect; known after `start`."""
        self.incarnation = f"{rng.getrandbits(64):016x}"
        self.metrics = Metrics(topics_max=config.metric_topics_max, now_s=now_s)
        self.store = store
        self.ledgers = ledgers
        self.is_started = False
        self.started_ms = 0
        self._session_timeout_s = config.session_timeout_ms / 1000
        self.cluster = Cluster(store, config, clock=clock, rng=rng)
        self.cache = TailCache(config.tail_cache_bytes_max)
        self.ahead = ReadAhead(
            config.read_ahead_bytes_max,
            config.read_ahead_reader_bytes_max,
            config.read_ahead_patience_ms / 1000,
        )
        self.partitions = Partitions(self.cluster)
        self._ownership = Ownership(
            self._log_services(clock, rng),
            self.cluster,
            self.partitions,
            Owner(config.node_id, self.incarnation),
            close_timeout_s=config.shutdown_timeout_ms / 1000,
        )
        self.groups = Groups(self.cluster, config, clock=clock, rng=rng)
        self._ownership.add_observer(self.groups.on_opened, self.groups.on_closed)
        self._peers = Peers(store, self.cluster, config.node_id, config.peer_answer_max_ms / 1000)
        successions = Successions(self.cluster, self._peers, config.metadata_hold_max_ms / 1000)
        served = handlers()
        self.services = Services(
            config=config,
            cluster=self.cluster,
            successions=successions,
            topic_answers=TopicAnswers(self.cluster, successions),
            partitions=self.partitions,
            groups=self.groups,
            producer_ids=ProducerIds(store),
            metrics=self.metrics,
            deadlines=Deadlines(),
            reading=ReadBudget(config.fetch_reading_bytes_max),
            clock=clock,
            rng=rng,
            served={handler.key: handler.versions for handler in served},
        )
        self.server = Server(config, Dispatcher(self.services, served), self.metrics)
        self._maintenance = Maintenance(
            self.partitions, clock, interval_s=config.retention_check_interval_ms / 1000
        )
        tree = ReplicationTree(store, _ONLOOKER, config.ledger.ledgers_root)
        self._full_strength = FullStrength(self.partitions, ledgers, tree.marked_ledgers)
        changes = TopicChanges(store, clock, rng)
        self._cleaner = TopicCleaner(store, self.cluster, changes, ledgers, config.node_id, clock)
        self._sweep = LedgerSweep(store, ledgers, self.cluster, config.node_id)
        self._registration: Registration | None = None
        self._hand_over: HandOver | None = None
        provide_all(self)

    def _log_services(self, clock: Clock, rng: Rng) -> LogServices:
        """Return what all partitions share."""
        return LogServices(
            store=self.store,
            ledgers=self.ledgers,
            clock=clock,
            rng=rng,
            cache=self.cache,
            lease=SessionLease(self._session_timeout_s),
            ahead=self.ahead,
            limits=self.config.log_limits(),
            metrics=self.metrics,
        )

    async def start(self, admin_url: str = "") -> None:
        """Serve. `admin_url` is shown to other brokers and operators.

        Raises OSError (port taken), ConfigError (node id taken), MetadataError.
        """
        config = self.config
        await self.cluster.start()
        self.cluster.add_listener(lambda: self.metrics.keep_topics(self.cluster.topics))
        self.port = await self.server.start()
        myself = BrokerInfo(
            id=config.node_id,
            incarnation=self.incarnation,
            host=registered_host(config),
            port=config.advertised_port or self.port,
            advertised=config.advertised_host is not None,
            admin_url=admin_url,
            rack=config.rack,
        )
        self.cluster.introduce(myself)
        self._registration = Registration(self.store, myself, self._session_timeout_s)
        await self._registration.start()
        self._hand_over = HandOver(
            self.cluster, self._registration, config.hand_over_partitions_at_once
        )
        await self._ownership.start()
        self.groups.start()
        self._maintenance.start()
        self._full_strength.start()
        self._peers.start()
        self._cleaner.start()
        self._sweep.start()
        self.is_started = True
        self.started_ms = self.services.clock.now_ms()
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
        """Return the partitions that want this broker and are not led yet."""
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
        if self._registration is not None:
            await self._registration.close()
        await self._peers.close()
        await self._cleaner.close()
        await self._sweep.close()
        await self._maintenance.close()
        await self._full_strength.close()
        await self.server.close()
        self.services.deadlines.close()
        await self.cluster.close()
        log.info("broker.closed broker=%d", self.config.node_id)
