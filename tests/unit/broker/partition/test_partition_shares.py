"""Share groups of one led partition: what is durable before answers, what a takeover finds."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from broker.errors import LeadershipLost, NotEnoughReplicas, NotLeader, Overloaded
from broker.partition.core.append_queue import Append
from broker.partition.core.shares.share_partition import (
    ACCEPT,
    RELEASE,
    Acknowledgement,
    Extent,
    SharePartition,
    ShareTerms,
)
from broker.partition.core.shares.share_states import GROUPS_MAX
from broker.partition.core.shares.share_updates import open_updates
from broker.partition.leading.partition_shares import settled
from broker.partition.partition import Partition
from client.ids import Offset
from client.log.entry_format import SHARE_TYPE, is_internal, open_internal
from tests.fakes.brokers import Broker, World, batch, done, settle
from tests.fakes.one_partition import one_partition

GROUP, OTHER = UUID(int=1), UUID(int=2)
TERMS = ShareTerms(lock_s=30.0, deliveries_max=3, window_max=100)


async def begin(partition: Partition, name: str = "g", at: int = 0) -> SharePartition:
    return await partition.shares.begin(name, GROUP, lambda: Offset(at))


def take(
    partition: Partition, share: SharePartition, *, member: str = "m", count: int = 100
) -> list[tuple[int, ...]]:
    """Lend records; the log has them one in each batch."""
    wanted = partition.shares.wanted(share, TERMS)
    if wanted is None:
        return []
    extents = [Extent(Offset(at), Offset(at)) for at in range(wanted, partition.high_watermark)]
    found = partition.shares.acquire(
        share, extents, member, TERMS, read_from=wanted, count_max=count, is_strict=False
    )
    return [tuple(one) for one in found]


def say(
    partition: Partition, share: SharePartition, first: int, last: int, *types: int
) -> Append | None:
    asked = [Acknowledgement(Offset(first), Offset(last), types)]
    return partition.shares.acknowledge(share, "m", asked, TERMS)


async def said(
    partition: Partition, share: SharePartition, first: int, last: int, *types: int
) -> None:
    written = say(partition, share, first, last, *types)
    assert written is not None
    await settled(written)


async def publish(partition: Partition, count: int) -> None:
    for number in range(count):
        await done(partition.append(batch(f"v{number}")))


async def taken_over(world: World, partition: Partition) -> Partition:
    """Another broker leads the partition now."""
    partition.resign("gone")
    broker = await world.broker(len(world.brokers) + 1, owning=False)
    return await broker.open(partition.topic)


def shown(partition: Partition) -> list[tuple[str, int, list[tuple[int, ...]]]]:
    return [
        (one.group_id, one.start, [tuple(each) for each in one.whole().ranges])
        for one in partition.shares.states
    ]


def test_a_takeover_knows_what_was_answered() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 6)
        share = await begin(partition)
        assert take(partition, share) == [
            (0, 0, 1),
            (1, 1, 1),
            (2, 2, 1),
            (3, 3, 1),
            (4, 4, 1),
            (5, 5, 1),
        ]
        await said(partition, share, 0, 1, ACCEPT)
        await said(partition, share, 3, 4, ACCEPT, RELEASE)
        found = shown(partition)
        after = await taken_over(world, partition)
        assert shown(after) == [("g", 2, [(2, 2, 0, 0), (3, 3, 2, 0), (4, 4, 0, 1)])] != found
        share = await begin(after)
        assert take(after, share, member="other") == [(2, 2, 1), (4, 4, 2), (5, 5, 1)]

    one_partition(scenario)


def test_so_it_does_after_a_roll_and_with_nothing_but_a_snapshot() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 4)
        share = await begin(partition)
        take(partition, share)
        await said(partition, share, 1, 1, ACCEPT)
        await partition.changes.roll()
        await partition.changes.roll()
        await said(partition, share, 2, 2, ACCEPT)
        found = await taken_over(world, partition)
        assert shown(found) == [("g", 0, [(0, 0, 0, 1), (1, 2, 2, 0), (3, 3, 0, 1)])]
        again = await taken_over(world, found)
        assert shown(again) == shown(found)

    one_partition(scenario)


def test_what_lies_before_the_start_is_answered_when_that_is_durable() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 2)
        share = await begin(partition)
        take(partition, share)
        first = say(partition, share, 0, 0, ACCEPT)
        assert share.start == 1
        again = say(partition, share, 0, 0, ACCEPT)
        assert again is first is not None
        assert not first.completed
        await settled(first)
        again = say(partition, share, 0, 0, ACCEPT)
        assert again is None or again.completed

    one_partition(scenario)


def test_answer_late_and_gathered() -> None:
    """Changes that come while entries are on their way are in one entry, in their order."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 9)
        share = await begin(partition)
        take(partition, share)
        written = [say(partition, share, number, number, ACCEPT) for number in range(9)]
        assert not any(one is None or one.completed for one in written)
        for one in written:
            assert one is not None
            await settled(one)
        assert share.start == 9
        entries = [
            open_updates(payload)
            for payload in _payloads(world)
            if is_internal(payload) and open_internal(payload).type == SHARE_TYPE
        ]
        assert [len(updates) for updates in entries] == [1, 9]
        assert [one.start for one in entries[1]] == list(range(1, 10))

    one_partition(scenario)


def _payloads(world: World) -> list[bytes]:
    return [
        bytes(payload)
        for ledger_id in world.ledger_ids()
        for payload in world.backend.service.ledgers[ledger_id].entries
    ]


def test_nothing_is_answered_that_may_be_lost() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 3)
        share = await begin(partition)
        take(partition, share)
        written = say(partition, share, 0, 2, ACCEPT)
        assert written is not None
        partition.resign("gone")
        with pytest.raises(LeadershipLost):
            await settled(written)
        with pytest.raises(NotLeader):
            say(partition, share, 0, 2, ACCEPT)

    one_partition(scenario)


def test_a_released_record_is_free_when_that_is_durable_and_who_waits_is_told() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 2)
        share = await begin(partition)
        take(partition, share)
        told: list[int] = []
        cancel = partition.shares.on_news("g", lambda: told.append(1))
        partition.shares.on_news("other", lambda: told.append(2))
        written = say(partition, share, 0, 1, RELEASE)
        assert written is not None
        assert take(partition, share, member="other") == []
        await settled(written)
        await settle()
        assert set(told) == {1}
        assert take(partition, share, member="other") == [(0, 0, 2), (1, 1, 2)]
        cancel()
        partition.shares.release("g", "other")
        await settle()
        assert take(partition, share) == [(0, 0, 3)], "LAST-ALONE"

    one_partition(scenario)


def test_locks_pass_by_themselves() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 2)
        share = await begin(partition)
        take(partition, share)
        await asyncio.sleep(29)
        assert share.counts().acquired == 2
        await asyncio.sleep(1.1)
        assert share.counts().acquired == 0
        assert take(partition, share, member="other") == [(0, 0, 2), (1, 1, 2)]
        await asyncio.sleep(31)
        assert take(partition, share) == [(0, 0, 3)]
        await asyncio.sleep(31)
        assert share.start == 1, "delivered as often as allowed"

    one_partition(scenario)


def test_begun_first() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 3)
        beginning = asyncio.ensure_future(begin(partition, at=3))
        await asyncio.sleep(0)
        assert partition.shares.find("g", GROUP) is None
        both = await asyncio.gather(beginning, begin(partition, at=0))
        assert both[0] is both[1]
        assert both[0].start == 3, "the first one says where"
        assert partition.shares.find("g", OTHER) is None
        after = await taken_over(world, partition)
        assert shown(after) == [("g", 3, [])]

    one_partition(scenario)


def test_groups_that_end_and_begin_elsewhere() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 3)
        share = await begin(partition)
        take(partition, share)
        await settled(partition.shares.restart("g", GROUP, Offset(2)))
        assert take(partition, await begin(partition)) == [(2, 2, 1)]
        await begin(partition, "gone")
        ended = partition.shares.end("gone")
        assert ended is not None
        await settled(ended)
        assert partition.shares.end("gone") is None
        after = await taken_over(world, partition)
        assert shown(after) == [("g", 2, [])]

    one_partition(scenario)


def test_bounded_groups() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        assert not partition.has_shares
        for number in range(GROUPS_MAX):
            await begin(partition, f"g{number}")
        with pytest.raises(Overloaded):
            await begin(partition, "one too many")
        assert partition.has_shares

    one_partition(scenario)


def test_read_only_nothing_is_lent_or_settled_until_there_is_a_ledger() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await publish(partition, 3)
        share = await begin(partition)
        take(partition, share)
        await said(partition, share, 0, 0, ACCEPT)
        world.backend.service.set_bookie_count(1)
        after = await taken_over(world, partition)
        share = await begin(after)
        assert shown(after) == [("g", 1, [])]
        assert take(after, share) == []
        with pytest.raises(NotEnoughReplicas):
            say(after, share, 1, 2, ACCEPT)
        with pytest.raises(NotEnoughReplicas):
            await begin(after, "another")

    one_partition(scenario)


def test_the_end_of_the_leadership_is_told_to_who_waits() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await begin(partition)
        told: list[str] = []
        partition.shares.on_news("g", lambda: told.append("over"))
        partition.resign("gone")
        await settle()
        assert told == ["over"]

    one_partition(scenario)
