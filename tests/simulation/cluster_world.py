"""One schedule of a whole cluster: bookies, auto recovery, brokers and Kafka clients under faults.

Bookies, ledger client, auto recovery and brokers are the production code, unmodified, each
process with a metadata session, connections and randomness of its own; clients speak the Kafka
protocol to them over the simulated network.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from broker.app import Broker
from broker.compaction.config import CompactionConfig
from broker.config import BrokerConfig
from broker.follower_settings import RACK_AWARE_SELECTOR, FollowerSettings
from broker.leadership.orphan_ledgers import OrphanLedgers
from broker.partition.core.log_limits import LogLimits
from broker.partition.ledger_access import LedgerAccess
from broker.partition.partition import Partition
from broker.transaction_settings import TransactionSettings
from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.service import AutoRecovery
from client.config import setting
from client.errors import MetadataError, NodeExists, QuireError
from client.ids import BookieId, BrokerId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from tests.simulation import cluster_swarm, group_member, machines, secured_load
from tests.simulation.access_book import AccessBook
from tests.simulation.cluster_faults import ClusterNemesis
from tests.simulation.cluster_oracle import ClusterOracle, PartitionBook
from tests.simulation.compacted_book import Expected
from tests.simulation.held_bytes import HeldBytes
from tests.simulation.hosts import Host, Injected, SimClock
from tests.simulation.kafka_clients import TOPIC, KafkaClients
from tests.simulation.kafka_link import PORT
from tests.simulation.ledger_tap import TappedLedgers
from tests.simulation.machines import Machines
from tests.simulation.secured_clients import SecuredClients
from tests.simulation.transaction_clients import TransactionClients
from tests.simulation.transaction_load import SWEEP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from client.metadata.store import MetadataStore
    from tests.simulation.cluster_swarm import ClusterSwarm
    from tests.simulation.hosts import Process
    from tests.simulation.kafka_link import Account, KafkaLink
    from tests.simulation.result import Result

_RESTART_S = 0.3
_FOLLOW_S = 2.0
"""How long a broker may take to follow a change in the store, beyond the time for which it may
believe that it leads."""
_SILENCE_MS = 2_000
_ANSWER_S_MAX = 8.0
"""Longest that a producer waits for an answer where everything is slow: its timeout and those of
whoever holds the broker's bytes before it."""
_STEADY_LOOKS = 10
_STEADY_S_MAX = 15.0
_BUSY_CODES = (0, 7, 19)
"""What a busy leader may answer to a batch: stored, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS."""
_PASSWORD = b"sesame"
_TIMED_OUT, _NO_ROOM = 7, 19


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VariedConfig(BrokerConfig):
    """A broker's settings, with sizes that no setting of a broker tells."""

    snapshot_interval_bytes: int = setting(1 << 22, "See LogLimits.", at_least=1)
    page_entries: int = setting(256, "See LogLimits.", at_least=2)
    aborted_block_entries: int = setting(1_000, "See LogLimits.", at_least=1)
    room_bytes: int = setting(0, "LogLimits.in_flight_bytes_max; 0: its default.", at_least=0)

    def log_limits(self) -> LogLimits:
        """Return the limits of partition logs: small ones, so that small logs meet them."""
        return LogLimits(
            in_flight_bytes_max=self.room_bytes or self.log_in_flight_bytes_max,
            segment_page_entries=self.page_entries,
            snapshot_interval_bytes=self.snapshot_interval_bytes,
            snapshot_interval_entries=min(64, max(3, self.snapshot_interval_bytes // 100)),
            shared_entry_bytes_max=min(1 << 16, 2 * self.snapshot_interval_bytes),
            shared_entry_batches_max=min(128, 1 + self.snapshot_interval_bytes // 150),
            entries_before_sharing=1 if self.snapshot_interval_bytes < 1000 else 2,
            index_interval_bytes=500,
            search_span_entries=2,
            read_entries_max=8,
            readers_max=2,
            aborted_block_entries=self.aborted_block_entries,
        )


class ClusterWorld(Machines):
    """The cluster of one whole-cluster schedule."""

    oracle: ClusterOracle

    def __init__(self, plan: ClusterSwarm, *, log: bool) -> None:
        super().__init__(plan.common, ClusterOracle, log=log)
        self.plan = plan
        self.brokers = [self.net.add_host(f"broker{n}") for n in range(plan.brokers)]
        self._running: dict[str, Broker] = {}
        self._ledger_clients: dict[str, LedgerClient] = {}
        self.is_only_slow = False
        """Whether everything is up and in place, and nothing happens to it but slowness."""
        self.produce_timeout_ms = plan.load.produce_timeout_ms if plan.load else _SILENCE_MS
        self.work = KafkaClients(self)
        self.transactions = TransactionClients(self)
        self.secured = self._make_secured()
        """What secured schedules have; None: everybody may do everything."""
        kafka: list[Host] = []
        for role, count in (
            ("admin", 1),
            ("producer", plan.producers),
            ("reader", plan.readers),
            ("member", plan.members),
            ("rude", plan.load.rude_clients if plan.load else 0),
        ):
            for number in range(count):
                host = self.net.add_host(f"{role}{number}")
                kafka.append(host)
                self.work.assign(host, role)
        kafka += [*self._add_transactional(), *self._add_secured()]
        self.clients = [*self.brokers, *kafka]
        timeout_ms = int(self.options.request_timeout_s * 1000)
        names = ("writer_in_flight_bytes_max", "bookie_in_flight_bytes_max")
        narrow = dict.fromkeys(names, plan.room_bytes // 2) if plan.room_bytes else {}
        if plan.load is not None:
            narrow["writer_unanswered_bytes_max"] = plan.load.unanswered_bytes_max
            self.loop.on_step = HeldBytes(self).look
        self._ledger_config = LedgerClientConfig(
            request_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
            reconnect_delay_min_ms=10,
            reconnect_delay_max_ms=100,
            metadata_retry_delay_ms=20,
            recovery_window_entries=self.options.recovery_window,
            quarantine_interval_ms=500,
            quarantine_ms=1000,
            **{**self.options.client, **narrow},
        )
        ensemble_size, copies, acks = plan.quorums
        self.oracle.ack_quorum_min = acks
        self.oracle.is_only_slow = lambda: self.is_only_slow
        self.oracle.share.is_busy_otherwise = True
        if plan.compaction is not None:
            is_timed = "clock jump" not in plan.common.faults
            list_age_s = plan.nearby.list_age_ms / 1000 if plan.nearby else 0.0
            late_s = max(plan.broker_session_s, list_age_s)
            self.oracle.compaction = Expected(
                plan.compaction, late_s, is_timed, plan.sweep_every_s > 0
            )
        self._broker_config = VariedConfig(
            snapshot_interval_bytes=plan.snapshot_interval_bytes,
            page_entries=plan.page_entries,
            segment_pages_max=2,
            room_bytes=plan.room_bytes,
            admin_port=-1,
            listen_host="0.0.0.0",
            port=PORT,
            session_timeout_ms=int(plan.broker_session_s * 1000),
            offsets_topic_partitions=1,
            default_replication_factor=copies,
            default_min_insync_replicas=acks,
            default_ensemble_size=ensemble_size,
            group_initial_rebalance_delay_ms=100,
            group_session_timeout_min_ms=500,
            group_log_copy_bytes=3_000,
            tail_cache_bytes_max=plan.tail_cache_bytes,
            shutdown_timeout_ms=1000,
            transactions=_transaction_settings(plan),
            security=secured_load.security(None, ""),
            compaction=_compaction_settings(plan),
            aborted_block_entries=plan.transactions.block_entries if plan.transactions else 1_000,
            follower=_follower_settings(plan),
        )
        self._recovery_config = AutoRecoveryConfig(
            poll_ms=500,
            start_grace_ms=1_000,
            open_ledger_grace_ms=2_000,
            retry_min_ms=300,
            retry_max_ms=2_000,
            batch_entries=2,
        )

    def _add_transactional(self) -> list[Host]:
        """Add the hosts of transactional clients."""
        options = self.plan.transactions
        hosts: list[Host] = []
        if options is not None:
            roles = {
                "writer": options.writers,
                "chain": options.chains,
                "committed": options.readers,
            }
            for role, count in roles.items():
                for number in range(count):
                    hosts.append(self.net.add_host(f"{role}{number}"))
                    self.transactions.assign(hosts[-1], role)
        return hosts

    def _make_secured(self) -> SecuredClients | None:
        options = self.plan.secured
        if options is None:
            return None
        bound_s = self.plan.broker_session_s + _FOLLOW_S
        fail = self.oracle.fail
        book = self.oracle.access = AccessBook(self.loop, fail, bound_s, self.plan.broker_session_s)
        return SecuredClients(self, book, options, TOPIC)

    def _add_secured(self) -> list[Host]:
        """Add the hosts of keeper and wanderer."""
        if self.secured is None:
            return []
        hosts = [self.net.add_host(name) for name in ("keeper0", secured_load.WANDERER)]
        for host in hosts:
            self.secured.assign(host, host.name[:-1])
        return hosts

    def account_of(self, host: Host) -> Account | None:
        """Return what the clients of a host log in with; None: they need not."""
        return None if self.secured is None else self.secured.account_of(host)

    async def _init_store(self) -> None:
        await super()._init_store()
        if self.secured is None:
            return
        names = [secured_load.ADMIN, *(host.name for host in self.clients)]
        nodes = [*secured_load.users(names), *secured_load.entries(TOPIC, group_member.GROUP)]
        for path, data in nodes:
            while True:
                try:
                    await self.admin.create(path, data, make_parents=True)
                except NodeExists:
                    break
                except MetadataError:
                    await asyncio.sleep(0.01)
                else:
                    break

    def partition(self, index: int) -> PartitionBook:
        """Return the oracle's book of a partition of the topic."""
        return self.oracle.partition(TOPIC, index)

    def check_fresh(self, host: str, index: int, asked_s: float) -> None:
        """A broker answered a read; see whether it could still believe that it leads."""
        broker = self._running[host]
        partition = broker.partitions.find(TOPIC, index)
        if partition is not None:
            self.oracle.served(
                self.partition(index),
                host,
                partition.leader_epoch,
                asked_s,
                self.plan.broker_session_s,
            )

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing fails, and nothing takes its time."""
        common, store = self.plan.common, self.plan.common.store
        return not (
            common.fault_every_s
            or common.ambush_p
            or common.net.tail_p
            or store.tail_p
            or store.lose_request_p
            or store.lose_reply_p
            or store.lose_read_p
        )

    def check_named(self, host: str, leader: str, epoch: int) -> None:
        """A broker named a leader; when all is quiet, that is one who has opened the partition."""
        if epoch >= 0:
            self.oracle.count("leaders named")
        elif self._is_quiet:
            self.oracle.fail("T17", f"{host} named {leader}, who has not opened the partition")

    def check_refused(self, host: str, index: int) -> None:
        """A broker does not lead a partition; when all is quiet, nor does its plan want it to."""
        broker = self._running.get(host)
        topic = None if broker is None else broker.cluster.topics.get(TOPIC)
        if broker is None or topic is None or not self._is_quiet:
            return
        if broker.cluster.preferred_leader(topic, index) == broker.config.node_id:
            self.oracle.fail("T17", f"{host} refused a batch for partition {index}: it is to lead")

    # ---------------------------------------------------------------- where all is only slow

    def node(self, process: Process) -> tuple[Broker, LedgerClient] | None:
        """Return the broker that runs in a process, and its ledger client."""
        assert process.host is not None
        name = process.host.name
        broker = self._running.get(name)
        return None if broker is None else (broker, self._ledger_clients[name])

    @property
    def is_settling(self) -> bool:
        """Whether what the cluster is to be overloaded with should wait, but for a first batch."""
        load = self.plan.load
        return load is not None and load.is_all and not self.is_only_slow

    async def answered(self, link: KafkaLink, index: int) -> tuple[int, int]:
        """Wait for the answer to a producer's oldest batch: (error code, base offset).

        Raises OSError, IncompleteReadError, TimeoutError.
        """
        if not self.is_only_slow:
            code, base = await link.produced(_SILENCE_MS / 1000)
        else:
            try:
                code, base = await link.produced(_ANSWER_S_MAX)
            except TimeoutError:
                timeout_ms = self.produce_timeout_ms
                self.oracle.fail(
                    "T19", f"{link.host}: a batch with {timeout_ms} ms has no answer for so long"
                )
                raise
        if code == _TIMED_OUT:
            self.oracle.count("appends timed out")
        elif code == _NO_ROOM:
            self.oracle.count("batches without room")
        if code not in _BUSY_CODES:
            self.refused(link.host, index, code)
        return code, base

    def refused(self, host: str, index: int, code: int) -> None:
        """A broker answered a client that knows the leader with an error."""
        if self.secured is not None:
            self.secured.book.refused(f"a client of {host}", code)
        if self.is_only_slow:
            self.oracle.fail("T18", f"{host} was busy, and answers {code} for partition {index}")

    async def _until_steady(self) -> None:
        """Wait until every partition has been with the leader that is wanted for a while."""
        looks, before = 0, None
        start_s = self.loop.time()
        while looks < _STEADY_LOOKS:
            if self.loop.time() > start_s + _STEADY_S_MAX:
                self.oracle.fail("T18", "nothing happens to the cluster, and no leader stays")
            await asyncio.sleep(0.05)
            now = [self._led_epoch(index) for index in range(self.plan.partitions)]
            looks = looks + 1 if now == before and None not in now else 0
            before = now
        self.is_only_slow = True

    def _led_epoch(self, index: int) -> int | None:
        """Return the epoch of a partition whose leader is the wanted one, in everybody's view."""
        running = [self._running.get(host.name) for host in self.brokers]
        for broker in running:
            if broker is None or not broker.is_started or TOPIC not in broker.cluster.topics:
                return None
        found = []
        for broker in running:
            assert broker is not None
            topic = broker.cluster.topics[TOPIC]
            if len(broker.cluster.brokers) < len(running) or broker.partitions.opening_count:
                return None
            if broker.cluster.preferred_leader(topic, index) == broker.config.node_id:
                found.append(broker.partitions.find(TOPIC, index))
        return found[0].leader_epoch if len(found) == 1 and found[0] is not None else None

    def break_a_task(self, host: Host, which: int) -> None:
        """Let a background task of the broker on a host run into a bug, once."""
        broker = self._running.get(host.name)
        if broker is None or not broker.is_started:
            return
        owner: Any = broker.log_services.lease if which else broker._background[0]
        name = "ask" if which else "visit_all"

        async def fail(*_: object) -> None:
            owner.__dict__.pop(name, None)
            raise Injected("planted in a background task")

        setattr(owner, name, fail)

    def break_a_callback(self, host: Host, which: int) -> bool:
        """Let whoever hears of an add of the broker on a host run into a bug, once: the owner of
        its outcome, or the core that takes a bookie's answer."""
        broker = self._running.get(host.name)
        partitions = [] if broker is None or not broker.is_started else [*broker.partitions]
        for partition in partitions:
            writer: Any = partition._sender.steps.writer
            pipeline = writer._writer._pipeline
            waiting = pipeline._reports._callbacks
            if waiting and partition.is_open:
                first = next(iter(waiting))
                if which:
                    pipeline.adds.on_stored = partial(_fail_once, pipeline.adds)
                else:
                    waiting[first] = partial(_fail_after, waiting[first])
                return True
        return False

    def check_tasks(self) -> None:
        """See that no background task of a broker has ended."""
        for host in self.brokers:
            broker = self._running.get(host.name)
            if broker is None or not broker.is_started or not host.running:
                continue
            tasks = [getattr(part, "_task", None) for part in broker._background]
            for task in [*tasks, broker._ownership._lease_task, broker.groups._sweeper]:
                if task is not None and task.done():
                    self.oracle.fail("T20", f"{host.name}: {task.get_name()} has ended")

    # ---------------------------------------------------------------- processes

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of the next process of a host that is no bookie."""
        if host in self.brokers:
            return self._broker(host)
        if self.secured is not None and self.secured.runs_on(host):
            return self.secured.main_of(host)
        work = self.transactions if self.transactions.runs_on(host) else self.work
        return work.main_of(host)

    async def _broker(self, host: Host) -> None:
        """Run one broker until it is closed or cannot start."""
        store = self.store.session()
        rng = self.fork_rng(f"{host.name} {host.starts}")
        clock = SimClock(self.loop, host)
        client = LedgerClient(store, rng=rng, clock=clock, config=self._ledger_config)
        try:
            await client.start()
            ledgers = LedgerAccess(client, _PASSWORD)
            tapped = TappedLedgers(ledgers, self.oracle, f"{host.name}#{host.starts}")
            broker = Broker(
                self._config_of(host),
                store=store,
                ledgers=tapped,
                clock=clock,
                rng=rng,
            )
            self._running[host.name] = broker
            self._ledger_clients[host.name] = client
            await broker.start()
            await self._sweep(OrphanLedgers(store, tapped, broker.cluster, broker.config.node_id))
        except (QuireError, OSError) as error:
            self.oracle.note("%s ends: %r", host.name, error)
            self.oracle.count(f"broker ended by {type(error).__name__}")
            self.restart_later(host, _RESTART_S)

    def _config_of(self, host: Host) -> BrokerConfig:
        """Return the settings of the broker on a host; some limits lower than they may be set."""
        config = dataclasses.replace(
            self._broker_config,
            node_id=self._node_id(host),
            advertised_host=host.name,
            rack=host.name,
        )
        if self.plan.secured is not None:
            config = dataclasses.replace(
                config,
                listen_host="127.0.0.1",
                advertised_host=None,
                security=secured_load.security(
                    self.plan.secured, host.name, config.session_timeout_ms
                ),
            )
        if self.plan.compaction is not None:
            object.__setattr__(config, "retention_check_interval_ms", 300)
        load = self.plan.load
        if load is not None:
            lower = {
                "in_flight_bytes_max": load.broker_bytes_max,
                "connection_in_flight_bytes_max": load.broker_bytes_max // 2,
                "connection_requests_max": load.connection_requests_max,
                "send_buffer_bytes_max": load.unsent_bytes_max,
                "fetch_bytes_max": load.unsent_bytes_max,
                "unread_bytes_max": 8 * load.unsent_bytes_max,
                "unfinished_bytes_max": 20_000,
                "frame_timeout_ms": 1_000,
                "retention_check_interval_ms": 300,
            }
            for name, value in lower.items():
                object.__setattr__(config, name, value)
        return config

    async def _ask_for_rounds(self) -> None:
        """Be an operator who asks for compaction now and then, at whichever broker."""
        assert self.plan.compaction is not None
        rng = self.fork_rng("compaction operator")
        while True:
            await asyncio.sleep(rng.expovariate(1 / self.plan.compaction.ask_every_s))
            host = rng.choice(self.brokers)
            broker, process = self._running.get(host.name), host.process
            if broker is None or process is None or not process.alive or process.paused:
                continue
            for partition in list(broker.partitions):
                if broker.compactor.covers(partition):
                    process.context.run(broker.compactor.ask, partition)

    async def until_clean(self) -> None:
        """Wait until all is compacted that may be, where there is such a topic, and judge it."""
        for index in range(self.plan.partitions):
            compacted = self.partition(index).compacted
            while compacted is not None and (why := compacted.unclean()):
                self.doing = f"waiting for the compaction of partition {index}: {why}"
                await asyncio.sleep(0.1)
            if compacted is not None:
                compacted.judge()

    async def _sweep(self, orphans: OrphanLedgers) -> None:
        """Look for orphans now and then, in every broker: brokers do so every few hours."""
        while True:
            await asyncio.sleep(self.plan.sweep_every_s or 1e9)
            try:
                for _ in await orphans.sweep():
                    self.oracle.count("orphan ledgers")
                for _ in await orphans.sweep_pages():
                    self.oracle.count("orphan pages")
            except QuireError as error:
                self.oracle.note("sweep: %r", error)

    def close_broker(self, host: Host) -> None:
        """Stop the broker on a host in peace; its supervisor starts another."""
        broker, process = self._running.get(host.name), host.process
        if broker is None or process is None:
            return

        async def close() -> None:
            with contextlib.suppress(QuireError):
                await broker.close()
            self.loop.kill(process)
            self.restart_later(host, _RESTART_S)

        process.context.run(self.loop.create_task, close())

    def leading(self) -> list[Host]:
        """Return the hosts of brokers that lead a partition of the topic, or think so."""
        return [
            host
            for host in self.brokers
            if host.running
            and host.name in self._running
            and any(each.topic.name == TOPIC for each in self._running[host.name].partitions)
        ]

    def forget_broker(self, host: Host) -> None:
        """Delete the registration of the broker on a host, as a peer does that thinks it dead."""

        async def delete() -> None:
            with contextlib.suppress(MetadataError):
                await self.admin.delete(paths.broker(self._node_id(host)))

        self.loop.create_task(delete())

    def broker_host(self, node_id: int) -> str:
        """Return the host of a broker."""
        return self.brokers[node_id - 1].name

    def _node_id(self, host: Host) -> BrokerId:
        return BrokerId(self.brokers.index(host) + 1)

    def roll(self, host: Host) -> None:
        """Let the broker on a host roll the partitions that it leads."""
        broker, process = self._running.get(host.name), host.process
        if broker is None or process is None or not process.alive or process.paused:
            return
        for partition in list(broker.partitions):
            process.context.run(_roll_soon, partition)

    async def _beside(self, host: Host, store: MetadataStore) -> None:
        """Auto recovery in a bookie's process, started again when a part of it fails."""
        clock = SimClock(self.loop, host)
        rng = self.fork_rng(f"recovery {host.name} {host.starts}")
        me = BookieId(self.bookie_id(host))
        config = dataclasses.replace(self._ledger_config, wire_version="both")
        while True:
            client = LedgerClient(store, rng=rng, clock=clock, config=config)
            node = AutoRecovery(
                store, client, me=me, clock=clock, rng=rng, config=self._recovery_config
            )
            try:
                await client.start()
                await node.start()
                await node.failed()
            except QuireError as error:
                self.oracle.note("auto recovery of %s: %r", host.name, error)
            await node.stop()
            await client.close()
            await asyncio.sleep(1.0)

    def beside_bookie(self, host: Host, store: MetadataStore) -> Coroutine[Any, Any, None] | None:
        """Return auto recovery, if this schedule has it."""
        return self._beside(host, store) if self.plan.auto_recovery else None

    # ---------------------------------------------------------------- the schedule

    def make_nemesis(self) -> ClusterNemesis:
        """Return what makes the faults."""
        return ClusterNemesis(self, self.fork_rng("nemesis"), self.options.faults)

    async def until_ready(self) -> None:
        """Wait until something is acknowledged, so that faults find something to break."""
        for _ in range(600):
            if "batches acknowledged" in self.oracle.counts:
                break
            await asyncio.sleep(0.02)
        if self.plan.load is not None and self.plan.load.is_all:
            await self._until_steady()
        if self.plan.compaction is not None:
            self._operator = self.loop.create_task(self._ask_for_rounds())

    def wind_down(self) -> None:
        """Nothing to do: clients see by themselves that all is healed."""

    def judge(self, host: Host, done: asyncio.Future[None]) -> Coroutine[Any, Any, None]:
        """See that everything is there and goes on."""
        self.check_tasks()
        return self.work.judge(host, done)

    def judge_logs(self) -> None:
        """Check every partition's whole log, the internal topic's too."""
        for book in self.oracle.partitions.values():
            self.oracle.judge_log(book)
        for host in self.brokers:
            if host.running and host.name in self._running:
                assert host.process is not None
                node = self.node(host.process)
                if node is not None:
                    self._judge_memory(*node)

    def _judge_memory(self, broker: Broker, client: LedgerClient) -> None:
        """T21: or else a broker that loses count reads nothing more in the end."""
        connections = broker.server._connections
        open_bytes = sum(connection._wire.in_flight_bytes for connection in connections)
        held, reading = broker.server.in_flight_bytes, broker.services.reading.taken
        slots = [slot for connection in connections for slot in connection._wire.slots]
        if any(slot.api_key == ApiKey.FETCH and not slot.done for slot in slots):
            reading = 0  # a consumer goes on, and reads just now
        entries = [e for w in client._writers for e in w._pipeline._memory._entries.values()]
        open_bytes += sum(entry.size for entry in entries if entry.unanswered or entry.is_pending)
        if held > open_bytes or reading:
            self.oracle.fail("T21", f"{held} bytes are held, {open_bytes} open, {reading} read")

    def late(self, text: str) -> None:
        """The bound of the healed phase is over."""
        self.oracle.fail("T16", text)


def _compaction_settings(plan: ClusterSwarm) -> CompactionConfig:
    """Return the settings of compaction: quick ones where there is any."""
    options = plan.compaction
    if options is None:
        return CompactionConfig()
    return CompactionConfig(
        check_interval_ms=options.check_interval_ms,
        bytes_per_s=options.bytes_per_s,
        key_bytes_max=options.key_bytes_max,
        grace_ms=options.grace_ms,
    )


def _follower_settings(plan: ClusterSwarm) -> FollowerSettings:
    nearby = plan.nearby
    if nearby is None:
        return FollowerSettings()
    return FollowerSettings(
        selector=RACK_AWARE_SELECTOR,
        behind_bytes_min=nearby.behind_bytes_min,
        list_age_ms=nearby.list_age_ms,
        partitions_max=nearby.partitions_max,
    )


def _transaction_settings(plan: ClusterSwarm) -> TransactionSettings:
    """Return the settings of transactions: served only where there are any."""
    options = plan.transactions
    if options is None:
        return TransactionSettings()
    return TransactionSettings(
        enabled=True,
        topic_partitions=options.coordinators,
        timeout_interval_ms=int(SWEEP_S * 1000),
        log_copy_bytes=options.log_copy_bytes,
        request_markers_max=2,
    )


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one whole-cluster schedule and return what it came to."""
    plan = cluster_swarm.draw(seed)
    return machines.run(ClusterWorld(plan, log=log), plan)


def _fail_once(adds: Any, *_: object) -> None:
    """Stand for `on_stored` once, and fail."""
    adds.__dict__.pop("on_stored", None)
    raise Injected("planted in a callback")


def _fail_after(call: Callable[..., None], *arguments: object) -> None:
    """Do what a callback does, and fail then."""
    call(*arguments)
    raise Injected("planted in a callback")


def _roll_soon(partition: Partition) -> None:
    """Let a partition roll as a full segment does."""
    partition._runner.run(partition._leader.roll_soon(partition._now()))
