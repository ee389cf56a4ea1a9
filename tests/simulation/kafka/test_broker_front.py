"""Whole brokers on the simulated loop: nothing of the front needs the real world, and a seed
replays to the same schedule.

The ledgers are the in-memory service with real fencing; network, time and metadata sessions are
simulated, and the tripwires are armed. An idempotent producer follows the leader through a
kill -9 and a restart; what was acknowledged is read back, each record once and in order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
from typing import Any

import pytest

from broker.app import Broker
from broker.config import BrokerConfig
from client.ids import BookieId, BrokerId
from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch, headers
from tests.fakes.ledgers import FakeLedgers
from tests.fakes.wire_client import WireClient
from tests.simulation.machine.hosts import Host, SimClock
from tests.simulation.machine.loop import SimLoop
from tests.simulation.machine.net import NetOptions, SimNet
from tests.simulation.machine.store import SimMetadata, StoreOptions
from tests.simulation.machine.tripwires import armed

PORT = 9092
COUNT = 60
CONFIG = BrokerConfig(admin_port=-1, listen_host="0.0.0.0", auto_create_topics=False)


class World:
    """Two brokers and a client."""

    def __init__(self, seed: int, *, hostile: bool) -> None:
        self.loop = SimLoop(random.Random(f"{seed} loop"), hostile=hostile)
        self.net = SimNet(self.loop, random.Random(f"{seed} net"), NetOptions(split_p=0.2))
        self.hosts = {number: self.net.add_host(f"broker{number}") for number in (1, 2)}
        self.client = self.net.add_host("client")
        clock = SimClock(self.loop, self.client)
        self.store = SimMetadata(
            self.net, random.Random(f"{seed} store"), StoreOptions(session_timeout_s=6.0), clock
        )
        self.ledgers = FakeLedgers()
        self.brokers: dict[int, Broker] = {}
        self.acknowledged: list[int] = []
        self.stored: list[int] = []
        self.throttled_s = 0.0

    def boot(self, number: int) -> None:
        host = self.hosts[number]
        process = self.loop.start_process(host, lambda: self._broker(number, host))
        self.net.bind(process)

    async def _broker(self, number: int, host: Host) -> None:
        config = dataclasses.replace(
            CONFIG, node_id=BrokerId(number), port=PORT, advertised_host=host.name
        )
        broker = Broker(
            config,
            store=self.store.session(),
            ledgers=self.ledgers.client(f"{host.name}.{host.starts}"),
            clock=SimClock(self.loop, host),
            rng=random.Random(f"{number} {host.starts}"),
        )
        self.brokers[number] = broker
        await broker.start()
        await asyncio.Event().wait()

    async def drive(self) -> None:
        admin = self.store.cluster.session()
        for number in range(3):
            await admin.create(paths.cookie(BookieId(f"b{number}")), make_parents=True)
        for number in self.hosts:
            self.boot(number)
        await self._until(lambda: all(len(b.cluster.brokers) == 2 for b in self.brokers.values()))
        process = self.loop.start_process(self.client, self._produce)
        self.net.bind(process)
        await self._until(lambda: len(self.acknowledged) >= COUNT // 3)
        cluster = self.brokers[1].cluster
        leader = cluster.preferred_leader(cluster.topics["t"], 0)
        assert leader is not None
        killed = self.hosts[leader].process
        assert killed is not None
        self.loop.kill(killed)
        await self._until(lambda: len(self.acknowledged) >= 2 * COUNT // 3)
        self.boot(leader)
        await self._until(lambda: len(self.stored) > 0)

    async def _until(self, done: Any) -> None:
        async with asyncio.timeout(120):
            while not (len(self.brokers) == 2 and done()):  # noqa: ASYNC110  (virtual time)
                await asyncio.sleep(0.01)

    async def _produce(self) -> None:
        """Send one batch at a time, each until it is acknowledged, then read everything."""
        await self._insist(self._create)
        for number in range(COUNT):
            await self._insist(self._send, number)
            self.acknowledged.append(number)
        await self._insist(self._read)

    async def _insist(self, step: Any, *args: Any) -> None:
        while not await self._try(step, *args):  # noqa: ASYNC110  (virtual time)
            await asyncio.sleep(0.05)

    async def _create(self, leader: str) -> bool:
        client = await WireClient.connect(PORT, leader)
        row = {"name": "t", "num_partitions": 1, "replication_factor": 3,
               "assignments": [], "configs": []}  # fmt: skip
        answer = await client.call(ApiKey.CREATE_TOPICS, 7, topics=[row], timeout=1000)
        everybody = [{"entity_type": "user", "entity_name": None}]
        rate = [{"key": "producer_byte_rate", "value": 100.0, "remove": False}]
        limit = {"entity": everybody, "ops": rate}
        await client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[limit], validate_only=False)
        await client.close()
        return int(answer.topics[0].error_code) in (0, 36)

    async def _try(self, step: Any, *args: Any) -> bool:
        """Ask any broker for the leader, then do the step there."""
        for host in self.hosts.values():
            try:
                async with asyncio.timeout(3):
                    leader = await self._leader(host.name)
                    if leader is not None and await step(leader, *args):
                        return True
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                continue
        return False

    async def _leader(self, host: str) -> str | None:
        client = await WireClient.connect(PORT, host)
        answer = await client.call(ApiKey.METADATA, 9, topics=[{"name": "t"}])
        await client.close()
        names = {node.node_id: node.host for node in answer.brokers}
        partitions = answer.topics[0].partitions
        return names.get(partitions[0].leader_id) if partitions else host

    async def _send(self, leader: str, number: int) -> bool:
        client = await WireClient.connect(PORT, leader)
        records = build_batch(
            [Record(None, b"%d" % number, SimClock.EPOCH_MS)],
            producer_id=1, producer_epoch=0, base_sequence=number,
        )  # fmt: skip
        answer = await client.call(
            ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout=2000,
            topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": records}]}],
        )  # fmt: skip
        await client.close()
        self.throttled_s += answer.throttle_time.total_seconds()
        return answer.responses[0].partition_responses[0].error_code == 0

    async def _read(self, leader: str) -> bool:
        client = await WireClient.connect(PORT, leader)
        offset, found = 0, []
        while offset < COUNT:
            row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset,
                   "partition_max_bytes": 1000}  # fmt: skip
            answer = await client.call(
                ApiKey.FETCH, 12, replica_id=-1, max_wait=500, min_bytes=1, max_bytes=1000,
                topics=[{"topic": "t", "partitions": [row]}],
            )  # fmt: skip
            data = answer.responses[0].partitions[0]
            if data.error_code != 0:
                return False
            for _, header in headers(bytes(data.records)):
                found.append(header.base_sequence)
                offset = header.next_offset
        await client.close()
        self.stored = found
        return True


def run(seed: int, *, hostile: bool) -> World:
    # What an earlier world left is collected now, not in the middle of this one.
    gc.collect()
    world = World(seed, hostile=hostile)
    with armed(world.loop.time):
        gc.disable()
        try:
            world.loop.run_until_complete(world.drive())
        finally:
            gc.enable()
            world.loop.dispose()
    assert world.loop.failure is None
    return world


# The coroutines of a killed process are collected after its loop is gone, and say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_brokers_run_under_simulation_and_a_seed_replays() -> None:
    for hostile in (False, True):
        for seed in range(3):
            world = run(seed, hostile=hostile)
            assert world.stored == list(range(COUNT))
            assert world.throttled_s > 0, "a quota is met, in the time of the simulation"
            assert run(seed, hostile=hostile).loop.digest == world.loop.digest
