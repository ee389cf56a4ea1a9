"""One schedule of a whole cluster: bookies, auto recovery, brokers and Kafka clients under faults.

Bookies, ledger client, auto recovery and brokers are the production code, unmodified, each
process with a metadata session, connections and randomness of its own; clients speak the Kafka
protocol to them over the simulated network.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from broker.app import Broker
from broker.leadership.orphan_ledgers import OrphanLedgers
from broker.offload.offloader import Objects
from broker.partition.ledger_access import LedgerAccess
from broker.partition.partition import Partition
from client.autorecovery.service import AutoRecovery
from client.errors import MetadataError, NodeExists, QuireError
from client.ids import BookieId, BrokerId
from client.ledger.client import LedgerClient
from client.metadata import paths
from tests.simulation.bookies import machines
from tests.simulation.bookies.machines import Machines
from tests.simulation.clusters import planted_bugs, secured_load
from tests.simulation.clusters import settings as cluster_settings
from tests.simulation.clusters import swarm as cluster_swarm
from tests.simulation.clusters.access_book import AccessBook
from tests.simulation.clusters.admin_book import AdminBook
from tests.simulation.clusters.admin_clients import AdminClients
from tests.simulation.clusters.admin_judge import AdminJudge
from tests.simulation.clusters.admin_load import NAMES
from tests.simulation.clusters.calm_rules import CalmRules
from tests.simulation.clusters.compacted_book import Expected
from tests.simulation.clusters.faults import ClusterNemesis
from tests.simulation.clusters.held_bytes import HeldBytes
from tests.simulation.clusters.newer_release import NewerStore
from tests.simulation.clusters.offload_load import SimObjects
from tests.simulation.clusters.oracle import ClusterOracle, PartitionBook
from tests.simulation.clusters.spoiled_nodes import SpoiledNodes
from tests.simulation.kafka import group_member
from tests.simulation.kafka.clients import KafkaClients
from tests.simulation.kafka.consumer_clients import ConsumerClients
from tests.simulation.kafka.guide import SILENCE_S, TOPIC
from tests.simulation.kafka.secured_clients import SecuredClients
from tests.simulation.kafka.share_clients import SHARED, ShareClients
from tests.simulation.kafka.transaction_clients import TransactionClients
from tests.simulation.ledgers.ledger_tap import TappedLedgers
from tests.simulation.machine.hosts import Host, SimClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from broker.config import BrokerConfig
    from client.metadata.memory import Fault, Operation
    from client.metadata.store import MetadataStore
    from tests.simulation.clusters.swarm import ClusterSwarm
    from tests.simulation.kafka.connection import Account
    from tests.simulation.machine.hosts import Process
    from tests.simulation.result import Result

_RESTART_S = 0.3
_FOLLOW_S = 2.0
"""How long a broker may take to follow a change in the store, beyond the time for which it may
believe that it leads."""
_OFTEN, _SELDOM = 1.5, 0.15
"""How much more likely a broker is interrupted that reads a topic which goes just now, than that it
is disturbed while it is asked for a change; and one that reads something else."""
_PASSWORD = b"sesame"
_SILENCE_MS = int(SILENCE_S * 1000)


class ClusterWorld(Machines):
    """The cluster of one whole-cluster schedule."""

    oracle: ClusterOracle

    def __init__(self, plan: ClusterSwarm, *, log: bool) -> None:
        super().__init__(plan.common, ClusterOracle, log=log)
        self.plan = plan
        self.brokers = [self.net.add_host(f"broker{n}") for n in range(plan.brokers)]
        self._running: dict[str, Broker] = {}
        self._ledger_clients: dict[str, LedgerClient] = {}
        self.calm = CalmRules(self)
        self.disturb: Callable[[Host, float], None] = lambda host, within_s: None
        """Disturb the broker on a host within so many seconds."""
        self.interrupt: Callable[[Host, float], None] = lambda host, within_s: None
        """Stop the broker on a host within so many seconds, or cut it off from the store."""
        self.produce_timeout_ms = plan.load.produce_timeout_ms if plan.load else _SILENCE_MS
        self.work = KafkaClients(self)
        self.transactions = TransactionClients(self)
        self.secured = self._make_secured()
        """What secured schedules have; None: everybody may do everything."""
        self.spoiled: SpoiledNodes | None = None
        self.operators = self._make_operators()
        """Who administers the cluster; None: nobody does."""
        load = plan.consumers
        self.consumers = None if load is None else ConsumerClients(self, load)
        """The group of the consumer protocol; None: there is none."""
        self.shares = self._make_shares()
        """The share groups; None: there are none."""
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
        kafka += [*self._add_transactional(), *self._add_secured(), *self._add_operators()]
        kafka += [*self._add_consumers(), *self._add_shares()]
        self.clients = [*self.brokers, *kafka]
        if plan.load is not None:
            self.loop.on_step = HeldBytes(self).look
        self._ledger_config = cluster_settings.ledger_client_config(plan)
        _, _, acks = plan.quorums
        self.oracle.ack_quorum_min = acks
        self.oracle.is_only_slow = lambda: self.calm.is_only_slow
        self.oracle.share.is_busy_otherwise = True
        if plan.compaction is not None:
            is_timed = "clock jump" not in plan.common.faults
            list_age_s = plan.nearby.list_age_ms / 1000 if plan.nearby else 0.0
            late_s = max(plan.broker_session_s, list_age_s)
            self.oracle.compaction = Expected(
                plan.compaction, late_s, is_timed, plan.sweep_every_s > 0
            )
        self.objects = None if plan.offload is None else SimObjects(self, plan.offload)
        """The object store; None: there is none."""
        self.oracle.objects = self.objects
        self._broker_config = cluster_settings.broker_config(plan)
        self._recovery_config = cluster_settings.auto_recovery_config()

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

    def _make_operators(self) -> AdminClients | None:
        options = self.plan.admin
        if options is None:
            return None
        book = self.oracle.admin = AdminBook(self.loop, self.oracle.fail, self.oracle.count, NAMES)
        self.spoiled = self.oracle.spoiled = SpoiledNodes(self, book)
        return AdminClients(self, book, options)

    def _add_operators(self) -> list[Host]:
        """Add the hosts of operators."""
        if self.operators is None:
            return []
        count = self.operators.options.operators
        hosts = [self.net.add_host(f"operator{number}") for number in range(count)]
        for host in hosts:
            self.operators.assign(host)
        return hosts

    def _add_consumers(self) -> list[Host]:
        """Add the hosts of members of the consumer protocol."""
        load = self.plan.consumers
        if load is None or self.consumers is None:
            return []
        hosts = [self.net.add_host(f"consumer{number}") for number in range(load.members)]
        for host in hosts:
            self.consumers.assign(host)
        return hosts

    def _make_shares(self) -> ShareClients | None:
        load, oracle = self.plan.shares, self.oracle
        if load is None:
            return None
        found = ShareClients(
            self,
            load,
            self.running,
            lambda name: oracle.count(f"shares: {name}"),
            lambda text: oracle.note("%s", text),
            self._say,
            broker_session_s=self.plan.broker_session_s,
        )
        found.on_trim = self._trims_shared
        return found

    def _say(self, text: str) -> None:
        self.doing = text

    def _trims_shared(self, index: int, offset: int) -> None:
        book = self.oracle.partition(SHARED, index)
        book.trim_to = max(book.trim_to, offset)

    def _add_shares(self) -> list[Host]:
        """Add the hosts of members of share groups, and of those who feed them."""
        if self.shares is None:
            return []
        hosts = [self.net.add_host(name) for name in self.shares.host_names()]
        for host in hosts[:-1]:
            self.shares.assign(host)
        return hosts

    def _watch_reads(self, operators: AdminClients) -> None:
        """Interrupt a broker now and then between what it reads and what it makes of that."""
        cluster, options = self.store.cluster, operators.options
        on_request, rng = cluster.on_request, self.fork_rng("interrupted")

        begun = self.fork_rng("interrupted changes")

        def watched(operation: Operation) -> Fault | None:
            if (
                options.interrupt_p
                and operation.name == "get_many"
                and operators.book.is_changed_with(operation.path)
                and begun.random() < options.interrupt_p
            ):
                self._interrupt_session(operation.session_id)
            if operation.name == "get" and operators.book.is_edited(operation.path):
                often = _OFTEN if operators.book.is_doomed(operation.path) else _SELDOM
                if rng.random() < often * options.disturb_p:
                    self._interrupt_session(operation.session_id)
            return on_request(operation)

        cluster.on_request = watched

    def _interrupt_session(self, session_id: int) -> None:
        latency_s = self.options.store.latency_s
        for store, process in self.store._stores.items():
            if store.session_id == session_id and process.host in self.brokers:
                self.interrupt(process.host, latency_s)
                return

    def account_of(self, host: Host) -> Account | None:
        """Return what the clients of a host log in with; None: they need not."""
        return None if self.secured is None else self.secured.account_of(host)

    async def _init_store(self) -> None:
        if self.shares is not None:
            self.shares.watch(self.store.cluster.tree)
        await super()._init_store()
        if self.operators is not None and self.spoiled is not None:
            self._watch_reads(self.operators)
            self.spoiled.watch()
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
        broker = self._running.get(host)
        partition = None if broker is None else broker.partitions.find(TOPIC, index)
        if partition is not None:
            self.oracle.served(
                self.partition(index),
                host,
                partition.leader_epoch,
                asked_s,
                self.plan.broker_session_s,
            )

    def running(self, name: str) -> Broker | None:
        """Return the broker that a host runs, or ran last if nothing runs there, by the host's
        name."""
        return self._running.get(name)

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
        return load is not None and load.is_all and not self.calm.is_only_slow

    def spoil_a_node(self) -> bool:
        """Let something in the metadata store be unreadable for a while; False: nothing is."""
        if self.spoiled is None:
            return False
        newer = [self._node_id(host) for host in self.brokers if self._is_newer(host)]
        return self.spoiled.spoil(newer[0] if newer else None)

    def break_a_task(self, host: Host, which: int) -> None:
        """Let a background task of the broker on a host run into a bug, once."""
        planted_bugs.break_a_task(self._running.get(host.name), which)

    def break_a_request(self, host: Host) -> None:
        """Let a request of the broker on a host to the metadata store run into a bug, once."""
        planted_bugs.break_a_request(self._running.get(host.name))

    def break_an_effect(self, host: Host) -> bool:
        """Let an effect of a leader on a host run into a bug, once; False if it leads nothing."""
        return planted_bugs.break_an_effect(self._running.get(host.name))

    def break_a_callback(self, host: Host, which: int) -> bool:
        """Let whoever hears of an add of the broker on a host run into a bug, once."""
        return planted_bugs.break_a_callback(self._running.get(host.name), which)

    # ---------------------------------------------------------------- processes

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of the next process of a host that is no bookie."""
        if host in self.brokers:
            return self._broker(host)
        if self.secured is not None and self.secured.runs_on(host):
            return self.secured.main_of(host)
        if self.operators is not None and self.operators.runs_on(host):
            return self.operators.main_of(host)
        if self.consumers is not None and self.consumers.runs_on(host):
            return self.consumers.main_of(host)
        if self.shares is not None and self.shares.runs_on(host):
            return self.shares.main_of(host)
        work = self.transactions if self.transactions.runs_on(host) else self.work
        return work.main_of(host)

    async def _broker(self, host: Host) -> None:
        """Run one broker until it is closed or cannot start."""
        self._running.pop(host.name, None)  # its process has ended
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
                store=NewerStore(store) if self._is_newer(host) else store,
                ledgers=tapped,
                clock=clock,
                rng=rng,
                objects=None if self.objects is None else Objects(self.objects),
            )
            self._running[host.name] = broker
            self._ledger_clients[host.name] = client
            await broker.start()
            await self._sweep(OrphanLedgers(store, tapped, broker.cluster, broker.config.node_id))
        except (QuireError, OSError) as error:
            self.oracle.note("%s ends: %r", host.name, error)
            self.oracle.count(f"broker ended by {type(error).__name__}")
            self.restart_later(host, _RESTART_S)

    def _is_newer(self, host: Host) -> bool:
        """Whether the broker on a host is of a newer release."""
        admin = self.plan.admin
        return admin is not None and admin.has_newer and host is self.brokers[-1]

    def _config_of(self, host: Host) -> BrokerConfig:
        """Return the settings of the broker on a host."""
        node_id, shared = self._node_id(host), self._broker_config
        return cluster_settings.config_on(host.name, node_id, shared, self.plan)

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
        nemesis = ClusterNemesis(self, self.fork_rng("nemesis"), self.options.faults)
        self.disturb, self.interrupt = nemesis.disturb, nemesis.interrupt
        return nemesis

    async def until_ready(self) -> None:
        """Wait until something is acknowledged, so that faults find something to break."""
        for _ in range(600):
            if "batches acknowledged" in self.oracle.counts:
                break
            await asyncio.sleep(0.02)
        if self.plan.load is not None and self.plan.load.is_all:
            await self.calm.until_steady()
        if self.consumers is not None:
            self.consumers.begin()
        if self.shares is not None:
            self._sharing = self.loop.create_task(self.shares.begin())
            for _ in range(600):
                if "shares: records settled" in self.oracle.counts:
                    break
                await asyncio.sleep(0.02)
        if self.plan.compaction is not None:
            self._operator = self.loop.create_task(self._ask_for_rounds())

    def wind_down(self) -> None:
        """Nothing to do: clients see by themselves that all is healed."""

    def judge(self, host: Host, done: asyncio.Future[None]) -> Coroutine[Any, Any, None]:
        """See that everything is there and goes on."""
        self.calm.check_tasks()
        return self.work.judge(host, done)

    async def judge_operators(self) -> None:
        """See that every broker shows what operators have changed, if there are any."""
        if self.operators is not None:
            await AdminJudge(self, self.operators).judge()

    def judge_logs(self) -> None:
        """Check every partition's whole log, the internal topic's too, and the object store."""
        if self.objects is not None:
            self.objects.judge()
        for book in self.oracle.partitions.values():
            self.oracle.judge_log(book)
        for host in self.brokers:
            if host.running and host.name in self._running:
                assert host.process is not None
                node = self.node(host.process)
                if node is not None:
                    self.calm.judge_memory(*node)

    def late(self, text: str) -> None:
        """The bound of the healed phase is over."""
        self.oracle.fail("T16", text)


def run_schedule(seed: int, *, log: bool = False) -> Result:
    """Run one whole-cluster schedule and return what it came to."""
    plan = cluster_swarm.draw(seed)
    return machines.run(ClusterWorld(plan, log=log), plan)


def run_offloaded(seed: int, *, log: bool = False) -> Result:
    """Run one schedule of a cluster with an object store."""
    plan = cluster_swarm.draw_offloaded(seed)
    return machines.run(ClusterWorld(plan, log=log), plan)


def _roll_soon(partition: Partition) -> None:
    """Let a partition roll as a full segment does."""
    partition._runner.run(partition._leader.roll_soon(partition._now()))
