"""Transactions over takeovers: leaders change in the middle of them, markers are sent again.

On scripted ledgers and on the real ledger client over in-process bookies, as `test_takeover.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.errors import (
    BrokerError,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    LeadershipLost,
    NotLeader,
)
from broker.partition.partition import Partition
from client.ids import LeaderEpoch, Offset
from client.wire.kafka.batches.control_batch import Marker, read_marker
from client.wire.kafka.batches.records import headers
from tests.fakes.brokers import (
    Broker,
    ClientBackend,
    FakeBackend,
    World,
    batch,
    done,
    forget_cache,
    settle,
)
from tests.fakes.transactions import FakeVerifier, end, send
from tests.fakes.virtual_time import run

both = pytest.mark.parametrize("backend", [FakeBackend, ClientBackend])

Scenario = Callable[[World, Broker, Broker], Awaitable[None]]


def two_brokers(scenario: Scenario, backend: type = FakeBackend, **limits: int) -> None:
    async def whole() -> None:
        world = await World(backend(), **limits).start()
        brokers = [await world.broker(number, owning=False) for number in (1, 2)]
        for broker in brokers:
            broker.services.coordinators.verifier = FakeVerifier()
        try:
            await scenario(world, *brokers)
        finally:
            await world.close()

    run(whole())


async def log_of(partition: Partition) -> list[tuple[int, int, Marker | None]]:
    """Return (offset, producer, marker) of each batch in the log."""
    found: list[tuple[int, int, Marker | None]] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        fetched = await partition.reader.read(
            offset, 1 << 20, at_least_one=True, read_committed=False
        )
        data = memoryview(b"".join(bytes(part) for part in fetched.buffers))
        for at, header in headers(data):
            marker = read_marker(data[at : at + header.size]) if header.is_control else None
            found.append((header.base_offset, header.producer_id, marker))
        offset = fetched.next_offset
    return found


async def committed(partition: Partition) -> tuple[list[int], list[int]]:
    """Return the offsets that a committed reader gets, and first offsets of what is aborted."""
    offsets: list[int] = []
    aborted: list[int] = []
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        fetched = await partition.reader.read(
            offset, 1 << 20, at_least_one=True, read_committed=True
        )
        data = b"".join(bytes(part) for part in fetched.buffers)
        offsets += [header.base_offset for _, header in headers(data)]
        aborted += [one.first_offset for one in fetched.aborted]
        offset = fetched.next_offset
    return offsets, aborted


@both
def test_the_next_leader_ends_what_the_one_before_began(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("plain")))
        await done(send(old, pid=1))
        await done(send(old, pid=2))
        await end(old, 2, commit=False)
        new = await second.open(topic)
        assert (new.last_stable_offset, new.high_watermark) == (1, 4)
        assert [one.first_offset for one in new.transactions.open_transactions()] == [1]
        assert await done(send(new, pid=1, sequence=1)) == 4, "nobody is asked: it is open"
        assert await done(send(new, pid=1, sequence=0)) == 1, "a duplicate"
        await end(new, 1)
        assert new.last_stable_offset == new.high_watermark == 6
        forget_cache(new)
        assert await committed(new) == ([0, 1, 2, 3, 4, 5], [2])

    two_brokers(scenario, backend)


@both
@pytest.mark.parametrize("survives", [True, False])
def test_a_marker_that_nobody_answered_is_in_the_log_once(backend: type, survives: bool) -> None:
    """The coordinator sends it again: MARKER-ONCE finds whether it is there."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(send(old))
        if not survives:
            new = await second.open(topic)
        task = asyncio.create_task(end(old, commit=False, leader_epoch=LeaderEpoch(0)))
        await settle()
        if survives:
            new = await second.open(topic)
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert outcome is None or isinstance(outcome, LeadershipLost)
        assert survives or outcome is not None
        with pytest.raises(FencedLeaderEpoch):
            await end(new, commit=False, leader_epoch=LeaderEpoch(0))
        await end(new, commit=False, leader_epoch=LeaderEpoch(1))
        markers = [at for at, _, marker in await log_of(new) if marker is not None]
        assert markers == [1]
        assert new.last_stable_offset == new.high_watermark == 2
        with pytest.raises((NotLeader, LeadershipLost)):
            await end(old, commit=False)

    two_brokers(scenario, backend)


@both
def test_a_batch_that_was_held_is_stored_by_the_next_leader_once(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        verifier = first.services.coordinators.verifier
        assert isinstance(verifier, FakeVerifier)
        gate = verifier.hold()
        held = send(old)
        await settle()
        new = await second.open(topic)
        gate.set()
        with pytest.raises(BrokerError):
            await done(held)
        assert await done(send(new)) == 0
        await end(new)
        assert [at for at, *_ in await log_of(new)] == [0, 1]

    two_brokers(scenario, backend)


@both
def test_a_fenced_producer_is_fenced_for_the_next_leader(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(send(old, epoch=0))
        await end(old, epoch=1, commit=False, coordinator=7)
        new = await second.open(topic)
        with pytest.raises(InvalidProducerEpoch):
            send(new, epoch=0, sequence=1)
        verifier = second.services.coordinators.verifier
        assert isinstance(verifier, FakeVerifier)
        verifier.vouch(6)
        with pytest.raises(BrokerError):
            await done(send(new, epoch=1))
        verifier.vouch(7)
        assert await done(send(new, epoch=1)) == 2

    two_brokers(scenario, backend)


@both
def test_what_was_aborted_in_earlier_segments_is_told_by_every_leader(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        leader = await first.open(topic)
        expected: list[int] = []
        for number in range(12):
            pid = number % 3
            sequence = number // 3
            expected.append(leader.log_end_offset)
            await done(send(leader, pid=pid, sequence=sequence))
            if number % 4 == 1:
                await leader.changes.roll()
            await end(leader, pid, commit=False)
            if number % 5 == 4:
                leader = await (second if number == 4 else first).open(topic)
        assert len(world.segments(topic).segments) == 6
        for is_cached in (True, False):
            if not is_cached:
                forget_cache(leader)
            offsets, aborted = await committed(leader)
            assert offsets == list(range(24))
            assert sorted(dict.fromkeys(aborted)) == expected, "one may be in two answers"
        facts = [item.facts for item in world.segments(topic).segments[:-1]]
        assert all(known is not None and known.transactions is not None for known in facts)

    two_brokers(scenario, backend, aborted_block_entries=1)


def test_many_aborted_transactions_cost_a_takeover_little() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        for number in range(1_000):
            await done(send(old, sequence=number))
            await end(old, commit=False)
        service = world.backend.service
        before = service.read_count
        new = await second.open(topic)
        assert service.read_count - before < 500, "what follows the last snapshot, of 2,000"
        last = new.high_watermark
        read = await new.reader.read(
            Offset(last - 2), 1 << 20, at_least_one=True, read_committed=True
        )
        assert [one.first_offset for one in read.aborted] == [last - 2]
        ((_, index),) = new._leader.log.active.transactions.earlier.items()
        assert (len(index), len(index.refs)) == (1_000, 20)
        (first_snapshot,) = service.ledgers[new._leader.log.active.ledger_id].entries
        assert len(first_snapshot) < 4_000, "where the blocks are, and not all of them once more"

    two_brokers(scenario, aborted_block_entries=50)
