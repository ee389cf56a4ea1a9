"""Compaction of a partition with transactions: what goes, what readers and later leaders see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.errors import BrokerError
from broker.partition.partition import Partition
from client.ids import Offset
from client.log.segments import Segment
from client.wire.kafka.batches.records import headers
from tests.fakes.brokers import Broker, World, done, forget_cache, settle
from tests.fakes.keyed import Kept, keyed, newest, opened, read_keyed
from tests.fakes.one_partition import one_partition
from tests.fakes.transactions import CLASSIC, FakeVerifier, end
from tests.unit.broker.compaction.test_compactor import COMPACT, compactor, write

Scenario = Callable[[World, Broker, Partition], Awaitable[None]]


def run(scenario: Scenario, **config: str) -> None:
    """Run a scenario on a compacted partition whose coordinator vouches for everybody."""

    async def whole(world: World, broker: Broker, partition: Partition) -> None:
        broker.services.coordinators.verifier = FakeVerifier()
        await scenario(world, broker, partition)

    one_partition(whole, config={**COMPACT, **config})


async def send(
    partition: Partition, pid: int, sequence: int, *pairs: tuple[str, str | None], epoch: int = 0
) -> list[Kept]:
    """Append a batch of a transaction."""
    batch = keyed(*pairs, producer=(pid, epoch, sequence))
    base = await done(partition.append(batch, transaction=CLASSIC))
    return [Kept(base + at, key, value) for at, (key, value) in enumerate(pairs)]


async def tail(partition: Partition) -> list[Kept]:
    """Write what is never cleaned."""
    return [*await write(partition, ("tail", "1")), *await write(partition, ("tail", "2"))]


async def committed(partition: Partition, start: int = 0) -> list[Kept]:
    """Read from an offset to the last stable one, as a consumer of committed data would."""
    offset, found = Offset(start), []
    while offset < partition.last_stable_offset:
        fetched = await partition.reader.read(
            offset, 1 << 20, at_least_one=True, read_committed=True
        )
        assert fetched.next_offset > offset, (offset, fetched)
        for data in map(bytes, fetched.buffers):
            for at, header in headers(data):
                void = header.is_transactional and any(
                    one.producer_id == header.producer_id
                    and one.first_offset <= header.base_offset < one.last_offset
                    for one in fetched.aborted or ()
                )
                if not void:
                    kept = opened([data[at : at + header.size]])
                    found += [one for one in kept if one.offset >= offset]
        offset = fetched.next_offset
    return found


async def mixed(partition: Partition) -> list[Kept]:
    """Write transactions that end well and badly, over several segments; return what counts."""
    counts = await write(partition, ("only", "once"), ("a", "0"))
    for number in range(1, 5):
        good = await send(partition, 1, number - 1, ("a", f"good {number}"))
        await send(partition, 2, 0, ("a", f"bad {number}"), ("only", "bad"), epoch=number)
        await partition.changes.roll()
        counts += await write(partition, ("b", f"{number}"))
        await end(partition, 2, number, commit=False)
        await end(partition, 1, 0, commit=True)
        counts += good
        await partition.changes.roll()
    counts += await tail(partition)
    forget_cache(partition)
    return sorted(counts)


def test_readers_of_committed_data_end_with_the_same_from_every_offset() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        counts = await mixed(partition)
        assert await committed(partition) == counts
        for _ in range(3):
            await compactor(broker, partition).visit_all()
            counts += await write(partition, ("tail", "more"))
        whole = await committed(partition)
        assert newest(whole) == newest(counts)
        assert len(whole) < len(counts)
        assert not [one for one in await read_keyed(partition) if "bad" in (one.value or "")]
        for start in range(partition.high_watermark):
            forget_cache(partition)
            assert await committed(partition, start) == [
                one for one in whole if one.offset >= start
            ]
        assert not [one for one in sealed(world, partition) if aborted_count(one)]

    run(scenario)


def sealed(world: World, partition: Partition) -> list[Segment]:
    return [one for one in world.segments(partition.topic).segments if one.facts is not None]


def aborted_count(segment: Segment) -> int:
    assert segment.facts is not None
    known = segment.facts.transactions
    return 0 if known is None or not segment.cleaned else known.aborted_count


def test_an_open_transaction_holds_back_what_follows_and_that_is_told() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await write(partition, ("a", "1"))
        await write(partition, ("a", "2"))
        (first,) = await send(partition, 1, 0, ("x", "open"))
        await partition.changes.roll()
        for number in range(3, 6):
            await write(partition, ("a", f"{number}"))
        forget_cache(partition)
        cleaning = compactor(broker, partition)
        await cleaning.visit_all()
        status = cleaning.status(partition)
        assert status is not None
        assert f"open from offset {first.offset} on" in status.reason
        assert status.found.blocked_at == first.offset
        # The record just below stays: who reads committed data up to there waits for it.
        left = await read_keyed(partition)
        assert [one.value for one in left if one.key == "a"] == ["1", "2", "3", "4", "5"]
        await end(partition, 1, commit=True)
        await write(partition, ("a", "6"))
        await cleaning.visit_all()
        status = cleaning.status(partition)
        assert status is not None
        assert status.reason == ""
        forget_cache(partition)
        left = await read_keyed(partition)
        assert [one.value for one in left if one.key != "a"] == ["open"]
        assert len(left) < 6

    run(scenario)


def test_a_later_leader_knows_producers_and_transactions_as_before() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await mixed(partition)
        await send(partition, 3, 0, ("c", "open"))
        await compactor(broker, partition).visit_all()
        stable = partition.last_stable_offset
        known = partition._leader.log.fold.encode(partition._leader.log.active.transactions)
        assert any(one.cleaned for one in sealed(world, partition))
        await partition.close(1)
        other = await world.broker(2, owning=False)
        other.services.coordinators.verifier = FakeVerifier()
        taken = await other.open(partition.topic)
        log = taken._leader.log
        assert taken.last_stable_offset == stable
        assert log.fold.encode(log.active.transactions) == known
        with pytest.raises(BrokerError, match="sequence 9"):
            await send(taken, 1, 9, ("a", "x"))
        await send(taken, 1, 4, ("a", "next"))
        await send(taken, 3, 1, ("c", "more"))
        await end(taken, 3, commit=False)
        await end(taken, 1, commit=True)
        assert newest(await committed(taken))["a"].value == "next"
        assert "c" not in newest(await committed(taken))
        await taken.close(1)

    run(scenario)


def test_same_version_the_list_of_aborted_transactions_is_that_of_the_records() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        counts = await mixed(partition)
        log = partition.reader.log
        original, swapped = log.read, 0

        async def read(*args: Any, **options: Any) -> Any:
            nonlocal swapped
            fetched = await original(*args, **options)
            if not swapped and any(b"bad" in bytes(one) for one in fetched.buffers):
                swapped = 1
                await compactor(broker, partition).visit_all()
            return fetched

        log.read = read  # type: ignore[method-assign]
        found = await committed(partition)
        assert swapped
        assert {*found} <= {*counts}
        assert newest(found) == newest(counts)

    run(scenario)


def test_own_index_a_list_that_stands_in_a_ledger_that_goes_is_written_anew() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await write(partition, ("a", "1"))
        await send(partition, 1, 0, ("a", "bad"))
        await partition.changes.roll()
        await write(partition, ("b", "1"))
        await end(partition, 1, commit=False)
        await done(partition.append(keyed(("c", "1"))))
        # Killed: the next leader recovers this ledger, and lists what is aborted in its own.
        broker.kill()
        other = await world.broker(2, owning=False)
        other.services.coordinators.verifier = FakeVerifier()
        taken = await other.open(partition.topic)
        await write(taken, ("d", "1"))
        await write(taken, ("d", "2"))
        await tail(taken)
        places = [
            (one.ledger_id, one.facts.transactions.aborted_at.ledger_id)
            for one in sealed(world, taken)
            if one.facts and one.facts.transactions and one.facts.transactions.aborted_at
        ]
        assert [own != place for own, place in places] == [True]
        cleaning = compactor(other, taken)
        await cleaning.visit_all()
        await asyncio.sleep(60.001)
        await other.services.lease.ask(other.store)
        await cleaning.visit_all()
        await settle()
        assert {*world.ledger_ids()} == {
            one.ledger_id for one in world.segments(taken.topic).segments
        }
        assert len([one for one in sealed(world, taken) if one.cleaned]) > 1
        await taken.close(1)
        third = await world.broker(3, owning=False)
        read_by = await third.open(taken.topic)
        values = {key: one.value for key, one in newest(await committed(read_by)).items()}
        assert values == {"a": "1", "b": "1", "c": "1", "d": "2", "tail": "2"}
        await read_by.close(1)

    run(scenario, segment_bytes="300")
