"""Brokers that die, stall, duel and lose answers, under idempotent producers and consumers.

One seed is one run in virtual time. Whatever happens, at the end the log holds every batch that
was acknowledged exactly once, at its offset, in its producer's order; and nobody ever read
anything that is not there any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from broker.cluster.core.topology import TopicInfo
from broker.errors import BrokerError
from client.errors import (
    ConnectionLoss,
    QuireError,
    ReadFailed,
    RecoveryInconclusive,
    WriteFailed,
)
from client.ids import Offset
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from client.wire.kafka.batches.records import headers, records
from tests.fakes.brokers import Broker, FakeBackend, World, batch, done, read_all
from tests.fakes.ledgers import StoredLedger
from tests.fakes.virtual_time import run

BROKERS = 3
PRODUCERS = 3
STORM_S = 40.0
LIMITS = {"snapshot_interval_bytes": 2000, "index_interval_bytes": 500, "search_span_entries": 2}


class Storm:
    """One run: the world, what producers were told, what consumers saw."""

    def __init__(self, world: World, topic: TopicInfo, rng: random.Random) -> None:
        self.world = world
        self.topic = topic
        self.rng = rng
        self.calm = False
        self.starting = 0
        """Brokers on their way up; faults wait for them, because they would only give up."""
        self.trims: list[asyncio.Task[None]] = []
        self.acknowledged: dict[tuple[int, int], int] = {}
        """(producer, sequence) -> offset."""
        self.seen: dict[int, str] = {}
        self.live: dict[int, Broker] = {}

    # --- faults

    def on_request(self, operation: Operation) -> Fault | None:
        if self.calm or self.starting or self.rng.random() > 0.03:
            return None
        return self.rng.choice(list(Fault))

    def keep_unconfirmed(self, ledger: StoredLedger) -> int:
        return self.rng.randint(ledger.confirmed + 1, len(ledger.entries))

    async def trouble(self) -> None:
        """Cause something every now and then until the storm is over."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + STORM_S
        causes: list[Callable[[], object]] = [
            self.kill, self.kill, self.cut_off, self.cut_off, self.expire, self.restart_gently,
            self.break_ledgers, self.break_writer, self.roll, self.roll, self.trim, self.freeze,
        ]  # fmt: skip
        while loop.time() < end_s:
            await asyncio.sleep(self.rng.random() * 1.5)
            result = self.rng.choice(causes)()
            if asyncio.iscoroutine(result):
                await result

    def pick(self) -> Broker:
        return self.live[self.rng.randrange(1, BROKERS + 1)]

    async def kill(self) -> None:
        broker = self.pick()
        broker.kill()
        if self.rng.random() < 0.7:  # a peer noticed
            with contextlib.suppress(QuireError):
                await self.world.admin.delete(paths.broker(broker.id))
        await asyncio.sleep(self.rng.random())
        await self.start(int(broker.id))

    async def start(self, broker_id: int) -> None:
        self.starting += 1
        self.live[broker_id] = await self.world.broker(broker_id)
        self.starting -= 1

    def cut_off(self) -> None:
        """A network partition around one broker, from bookies, metadata store, or both."""
        broker = self.pick()
        loop = asyncio.get_running_loop()
        seconds = self.rng.random() * 15
        if self.rng.random() < 0.7:
            broker.ledgers.hold_arrivals = self.rng.random() < 0.5
            broker.ledgers.hold_answers = True
            loop.call_later(seconds, broker.ledgers.release)
        if self.rng.random() < 0.7:
            self.world.cluster.suspend(broker.store)
            loop.call_later(seconds, self.resume, broker)

    def resume(self, broker: Broker) -> None:
        if not broker.dead:
            self.world.cluster.resume(broker.store)

    def expire(self) -> None:
        self.world.cluster.expire(self.pick().store)

    def freeze(self) -> None:
        """One broker's metadata server lags behind."""
        broker = self.pick()
        self.world.cluster.freeze(broker.store)
        asyncio.get_running_loop().call_later(
            self.rng.random() * 3, self.world.cluster.thaw, broker.store
        )

    async def restart_gently(self) -> None:
        broker = self.pick()
        try:
            await broker.stop()
        except QuireError:
            broker.kill()
        broker.dead = True
        await self.start(int(broker.id))

    def break_ledgers(self) -> None:
        service = self.world.backend.service
        operation, error = self.rng.choice(
            [
                ("create", ConnectionLoss("x")),
                ("recover", RecoveryInconclusive("x")),
                ("recover_read", RecoveryInconclusive("x")),
                ("close", ConnectionLoss("x")),
                ("delete", ConnectionLoss("x")),
                ("read", ReadFailed("x")),
            ]
        )
        service.fail_next(operation, error)

    def break_writer(self) -> None:
        broker = self.pick()
        if broker.ledgers.writers:
            broker.ledgers.writers[-1].fail_add = WriteFailed("x")

    def leaders(self) -> list[Broker]:
        return [
            one
            for one in self.live.values()
            if not one.dead and one.partitions.find(self.topic.name, 0) is not None
        ]

    async def roll(self) -> None:
        for broker in self.leaders():
            partition = broker.partitions.find(self.topic.name, 0)
            if partition is not None:
                partition._runner.run(partition._leader.roll_soon(partition._now()))

    async def trim(self) -> None:
        for broker in self.leaders():
            partition = broker.partitions.find(self.topic.name, 0)
            if partition is not None and self.rng.random() < 0.3:
                self.trims.append(asyncio.ensure_future(self.delete_some(partition)))

    async def delete_some(self, partition: object) -> None:
        try:
            start = partition.log_start_offset  # type: ignore[attr-defined]
            end = partition.high_watermark  # type: ignore[attr-defined]
            await partition.changes.delete_records(Offset(self.rng.randint(start, end)))  # type: ignore[attr-defined]
        except BrokerError:
            pass

    # --- load

    async def produce(self, pid: int) -> None:
        """Keep up to five batches in flight; after any trouble send all unconfirmed ones again."""
        first = 0
        while not self.calm:
            await asyncio.sleep(self.rng.random() * 0.2)
            leaders = self.leaders()
            if not leaders:
                continue
            partition = self.rng.choice(leaders).partitions.find(self.topic.name, 0)
            if partition is None:
                continue
            waiting = []
            try:
                for sequence in range(first, first + self.rng.randint(1, 5)):
                    data = batch(f"{pid}:{sequence}", pid=pid, sequence=sequence, pad=40)
                    waiting.append((sequence, partition.append(data)))
            except BrokerError:
                pass
            for sequence, append in waiting:
                try:
                    async with asyncio.timeout(3):
                        offset = await done(append)
                except (BrokerError, TimeoutError):
                    break
                known = self.acknowledged.setdefault((pid, sequence), offset)
                assert known == offset, f"{pid}:{sequence} at {known} and at {offset}"
                first = sequence + 1

    async def consume(self) -> None:
        """Read what whoever says he leads has to offer; it must never change."""
        while not self.calm:
            await asyncio.sleep(self.rng.random() * 0.3)
            leaders = self.leaders()
            if not leaders:
                continue
            partition = self.rng.choice(leaders).partitions.find(self.topic.name, 0)
            if partition is None:
                continue
            start, end = partition.log_start_offset, partition.high_watermark
            offset = Offset(self.rng.randint(start, end))
            try:
                fetched = await partition.reader.read(
                    offset, self.rng.choice([10, 2000]), at_least_one=True, read_committed=False
                )
            except BrokerError:
                continue
            data = b"".join(bytes(part) for part in fetched.buffers)
            for at, header in headers(data):
                for record in records(data[at : at + header.size]):
                    assert record.value is not None
                    self.see(record.offset, record.value.rstrip(b".").decode())

    def see(self, offset: int, value: str) -> None:
        known = self.seen.setdefault(offset, value)
        assert known == value, f"offset {offset} was {known}, is {value}"


async def storm(seed: int) -> Storm:
    rng = random.Random(seed)
    world = await World(FakeBackend(), **LIMITS).start()
    service = world.backend.service
    slow = rng.choice([0.0, 0.02, 0.3])
    service.arrival_s = lambda: rng.random() * slow
    service.answer_s = lambda: rng.random() * slow
    world.cluster.latency = lambda: rng.random() * slow / 10
    topic = await world.topic(segment_bytes=str(rng.choice([1500, 6000, 1 << 20])))
    run_of = Storm(world, topic, rng)
    service.keep_unconfirmed = run_of.keep_unconfirmed
    for broker_id in range(1, BROKERS + 1):
        await run_of.start(broker_id)
    world.cluster.on_request = run_of.on_request
    load = [asyncio.create_task(run_of.produce(pid)) for pid in range(PRODUCERS)]
    load.append(asyncio.create_task(run_of.consume()))
    try:
        await run_of.trouble()
        run_of.calm = True
        service.fail.clear()
        for broker in run_of.live.values():
            world.cluster.thaw(broker.store)
            run_of.resume(broker)
            broker.ledgers.release()
        await asyncio.gather(*load, *run_of.trims)
        await check(run_of)
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        await world.close()
    return run_of


async def check(run_of: Storm) -> None:
    """What must hold once everybody is well again."""
    topic = run_of.topic
    async with asyncio.timeout(60):
        while True:
            await asyncio.sleep(0.1)
            leaders = run_of.leaders()
            if not leaders:
                continue
            partition = leaders[0].partitions.leader(topic.name, 0)
            try:
                await done(partition.append(batch("last")))
                found = await read_all(partition)
                break
            except BrokerError:
                continue
    start = partition.log_start_offset
    assert [offset for offset, _ in found] == list(range(start, partition.high_watermark))
    for offset, value in found:
        run_of.see(offset, value)
    stored = [value for _, value in found if value != "last"]
    assert len(stored) == len(set(stored)), "stored twice"
    values = dict(found)
    for (pid, sequence), offset in run_of.acknowledged.items():
        if offset >= start:
            assert values[offset] == f"{pid}:{sequence}"
    for pid in range(PRODUCERS):
        mine = [int(value.split(":")[1]) for value in stored if value.startswith(f"{pid}:")]
        assert mine == sorted(mine), "out of order"
    check_ledgers(run_of)


def check_ledgers(run_of: Storm) -> None:
    listed = run_of.world.segments(run_of.topic).check().segments
    service = run_of.world.backend.service
    for segment in listed[:-2]:
        assert service.get(segment.ledger_id).closed_at is not None
    listed_ids = [segment.ledger_id for segment in listed]
    for ledger_id, ledger in service.ledgers.items():
        if ledger_id not in listed_ids and ledger_id > listed_ids[0]:
            assert ledger.confirmed == -1, "an unlisted ledger has confirmed entries"


@pytest.mark.parametrize("seed", range(8))
def test_storm(seed: int) -> None:
    run_of = run(storm(seed))
    assert len(run_of.acknowledged) > 20
