"""Brokers' partition logs in one loop: in-memory metadata, ledgers of either kind, no sockets.

`World` is what brokers share; `World.broker` starts one: its own metadata session, its own
ledger client, the real cluster view, registration and ownership. `FakeBackend` puts scripted
ledgers behind them, `ClientBackend` the real ledger client over in-process bookies.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from broker.cluster.cluster import Cluster
from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import BrokerInfo, TopicInfo
from broker.cluster.lease import SessionLease
from broker.cluster.owner_node import Owner
from broker.cluster.registration import Registration
from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.leadership.ownership import Ownership
from broker.leadership.partitions import Partitions
from broker.partition.archive import Archive
from broker.partition.core.append_queue import Append
from broker.partition.core.log_limits import LogLimits
from broker.partition.log_services import LogServices
from broker.partition.opening import Opening
from broker.partition.partition import Partition
from broker.partition.read_ahead import ReadAhead
from broker.partition.tail_cache import TailCache
from client.ids import BrokerId, LedgerId, Offset, ProducerId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.log.segments import SegmentList, decode_segments
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster, MemoryStore
from client.objects.memory import MemoryObjectStore
from client.wire.kafka.batches.records import Codec, Record, build_batch, headers, records
from tests.fakes.bookies import FakeBookies
from tests.fakes.ledgers import FakeLedgers
from tests.fakes.virtual_time import VirtualClock, run

SESSION_TIMEOUT_S = 10.0


class Backend(Protocol):
    """Where ledgers come from."""

    async def start(self, cluster: MemoryCluster) -> None: ...

    async def client(self, store: MemoryStore, name: str) -> Any: ...

    def ledger_ids(self, cluster: MemoryCluster) -> list[LedgerId]: ...


class FakeBackend:
    """Scripted ledgers."""

    def __init__(self) -> None:
        self.service = FakeLedgers()

    async def start(self, cluster: MemoryCluster) -> None:
        self.service.tree = cluster.tree
        directory = paths.ledger(LedgerId(0)).rpartition("/")[0]
        await cluster.session().create(directory, make_parents=True)

    async def client(self, store: MemoryStore, name: str) -> Any:
        return self.service.client(name)

    def ledger_ids(self, cluster: MemoryCluster) -> list[LedgerId]:
        return sorted(self.service.ledgers)


class ClientBackend:
    """The real ledger client over in-process bookies."""

    def __init__(self) -> None:
        self.bookies = FakeBookies(["b1:1", "b2:1", "b3:1", "b4:1"])
        self._rng = random.Random(5)

    async def start(self, cluster: MemoryCluster) -> None:
        await init_bookkeeper(cluster.session(), rng=self._rng)

    async def client(self, store: MemoryStore, name: str) -> Any:
        client = LedgerClient(
            store,
            rng=self._rng,
            clock=VirtualClock(),
            config=LedgerClientConfig(metadata_retry_delay_ms=10),
            bookies=self.bookies,
        )
        await client.start()
        return client

    def ledger_ids(self, cluster: MemoryCluster) -> list[LedgerId]:
        found: list[LedgerId] = []
        root = paths.LEDGERS_ROOT
        for top in cluster.tree.children(root):
            if not top.isdigit():
                continue
            for middle in cluster.tree.children(f"{root}/{top}"):
                for leaf in cluster.tree.children(f"{root}/{top}/{middle}"):
                    found.append(LedgerId(int(top + middle + leaf[1:])))
        return sorted(found)


class World:
    """What all brokers share."""

    def __init__(self, backend: Backend | None = None, **limits: int) -> None:
        self.backend: Any = backend or FakeBackend()
        self.clock = VirtualClock()
        self.cluster = MemoryCluster(clock=self.clock, session_timeout_s=SESSION_TIMEOUT_S)
        self.limits = LogLimits(**limits)
        self.objects = MemoryObjectStore(self.clock)
        self.brokers: list[Broker] = []
        self.admin = self.cluster.session()
        self._topic_count = 0

    async def start(self) -> World:
        for path in (paths.TOPICS, paths.PARTITIONS, paths.BROKERS):
            await self.admin.create(path, make_parents=True)
        await self.backend.start(self.cluster)
        return self

    async def topic(self, name: str = "t", partition_count: int = 1, **config: str) -> TopicInfo:
        """Create a topic; `config` has underscores for dots."""
        self._topic_count += 1
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        topic = TopicInfo(
            name=name,
            topic_id=uuid.UUID(int=0xABC000 + self._topic_count),
            partition_count=partition_count,
            replication_factor=3,
            config=TopicConfig.parse(overrides),
        )
        for index in range(partition_count):
            await self.admin.create(paths.partition(topic.id_text, index), make_parents=True)
        await self.admin.create(paths.topic(name), topic.encode())
        return topic

    async def broker(self, broker_id: int, *, owning: bool = True) -> Broker:
        """Start a broker; without `owning` it leads only what `Broker.open` opens."""
        broker = Broker(self, BrokerId(broker_id))
        await broker.start(owning=owning)
        self.brokers.append(broker)
        return broker

    def segments(self, topic: TopicInfo, index: int = 0) -> SegmentList:
        """Return the segment list as the store has it."""
        return decode_segments(self.cluster.tree.get(paths.partition(topic.id_text, index)).data)

    def version(self, topic: TopicInfo, index: int = 0) -> int:
        return self.cluster.tree.get(paths.partition(topic.id_text, index)).version

    def ledger_ids(self) -> list[LedgerId]:
        return self.backend.ledger_ids(self.cluster)

    async def close(self) -> None:
        for broker in self.brokers:
            await broker.close()


class Broker:
    """One broker process, without its network side."""

    _runs = 0

    def __init__(self, world: World, broker_id: BrokerId) -> None:
        self.world = world
        self.id = broker_id
        self.store = world.cluster.session()
        Broker._runs += 1
        self.info = BrokerInfo(
            id=broker_id,
            incarnation=f"run-{Broker._runs}",
            host="127.0.0.1",
            port=9000 + int(broker_id),
            advertised=False,
        )
        self.dead = False
        self.ledgers: Any = None
        self.opened: list[Partition] = []
        self.closed: list[Partition] = []
        self._own_partitions: list[Partition] = []

    async def start(self, *, owning: bool) -> None:
        world = self.world
        self.ledgers = await world.backend.client(self.store, f"broker {self.id}")
        self.services = LogServices(
            store=self.store,
            ledgers=self.ledgers,
            clock=world.clock,
            rng=random.Random(int(self.id)),
            cache=TailCache(1 << 20),
            lease=SessionLease(SESSION_TIMEOUT_S),
            ahead=ReadAhead(1 << 20),
            archive=Archive(world.objects),
            limits=world.limits,
        )
        self.cluster = Cluster(
            self.store, BrokerConfig(node_id=self.id), rng=random.Random(int(self.id))
        )
        await self.cluster.start()
        self.partitions = Partitions(self.cluster)
        self.registration = Registration(self.store, self.info, SESSION_TIMEOUT_S)
        self.ownership = Ownership(
            self.services,
            self.cluster,
            self.partitions,
            Owner(self.id, self.info.incarnation),
            close_timeout_s=5.0,
        )
        self.ownership.add_observer(self.opened.append, self.closed.append)
        if owning:
            await self.registration.start()
            await self.ownership.start()
        else:
            await self.services.lease.ask(self.store)

    async def open(self, topic: TopicInfo, index: int = 0) -> Partition:
        """Take over a partition without any election."""
        opened = await Opening(self.services, topic, index, lambda: True).run()
        partition = Partition(self.services, topic, index, opened)
        self._own_partitions.append(partition)
        return partition

    async def leads(self, topic: TopicInfo, index: int = 0) -> Partition:
        """Wait until this broker leads a partition."""
        while True:
            partition = self.partitions.find(topic.name, index)
            if partition is not None:
                return partition
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Shut down in peace, as the program does."""
        await self.ownership.close()
        await self.registration.close()
        await self.close()

    def kill(self) -> None:
        """kill -9: nothing leaves any more, nothing comes in. The session times out by itself."""
        self.dead = True
        self.world.cluster.kill(self.store)
        if hasattr(self.ledgers, "kill"):
            self.ledgers.kill()
        self.ownership._closing = True
        for owned in self.ownership._owned.values():
            owned.task.cancel()
        if self.ownership._lease_task is not None:
            self.ownership._lease_task.cancel()

    async def close(self) -> None:
        """End everything that still runs."""
        for partition in self._own_partitions:
            partition.resign("test ended")
            await partition.close(1.0)
        self.ownership._closing = True
        tasks = [owned.task for owned in self.ownership._owned.values()]
        if self.ownership._lease_task is not None:
            tasks.append(self.ownership._lease_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.dead:
            await self.registration.close()
            await self.cluster.close()
        if isinstance(self.ledgers, LedgerClient):
            await self.ledgers.close()


def batch(
    *values: str,
    pid: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    timestamp_ms: int = -1,
    codec: Codec = Codec.NONE,
    pad: int = 0,
) -> bytes:
    """Build what a producer sends: one record per value, idempotent if `pid` is given."""
    made = [Record(None, value.encode() + b"." * pad, timestamp_ms) for value in values]
    if pid < 0:
        return build_batch(made, codec=codec)
    return build_batch(
        made,
        codec=codec,
        producer_id=ProducerId(pid),
        producer_epoch=epoch,
        base_sequence=sequence,
    )


async def done(append: Append) -> int:
    """Wait for an append; return its base offset or raise its error."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    append.on_done(lambda _: future.set_result(None) if not future.done() else None)
    await future
    if append.error is not None:
        raise append.error
    return append.base_offset


async def read_all(
    partition: Partition, start: int | None = None, *, size_max: int = 1 << 20
) -> list[tuple[int, str]]:
    """Read from `start` (default: the log start) to the high watermark: (offset, value)."""
    offset = partition.log_start_offset if start is None else Offset(start)
    found: list[tuple[int, str]] = []
    while offset < partition.high_watermark:
        fetched = await partition.reader.read(
            offset, size_max, at_least_one=True, read_committed=False
        )
        assert fetched.next_offset > offset
        data = b"".join(bytes(part) for part in fetched.buffers)
        assert len(data) == fetched.size
        for at, header in headers(data):
            for record in records(data[at : at + header.size]):
                if record.offset >= offset:
                    assert record.value is not None
                    found.append((record.offset, record.value.rstrip(b".").decode()))
        offset = fetched.next_offset
    return found


async def until(condition: Callable[[], Any], *, timeout_s: float = 1000.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions look at anything, in virtual time
            await asyncio.sleep(0.01)


async def settle(rounds: int = 100) -> None:
    """Let everything happen that needs no timer."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def in_world(
    scenario: Callable[[World], Awaitable[None]], backend: Callable[[], Backend] = FakeBackend
) -> None:
    """Run a scenario in a world of its own, in virtual time."""

    async def whole() -> None:
        world = await World(backend()).start()
        try:
            await scenario(world)
        finally:
            await world.close()

    run(whole())


def forget_cache(partition: Partition) -> None:
    """Make the next reads go to the ledgers."""
    partition.reader.tail.clear()


def with_config(topic: TopicInfo, **config: str) -> TopicInfo:
    """Return the topic with other settings; `config` has underscores for dots."""
    overrides = {key.replace("_", "."): value for key, value in config.items()}
    return dataclasses.replace(topic, config=TopicConfig.parse(overrides))


__all__ = ["Broker", "BrokerError", "ClientBackend", "FakeBackend", "World"]
