"""A led partition whose segment list has pages: rolls, takeovers, trims, searches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from broker.errors import LeadershipLost, LogReadFailed
from broker.partition.partition import HIGH_WATERMARK, Partition
from client.errors import VersionConflict
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import SegmentList, is_inline
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from client.segments.page_nodes import orphan_pages
from client.segments.pages import SegmentPages
from tests.fakes.brokers import Broker, World, batch, done, forget_cache, read_all, settle, until
from tests.fakes.one_partition import fetch, one_partition

SMALL = {"segment_page_entries": 2}


def path_of(partition: Partition) -> str:
    return paths.partition(partition.topic.id_text, partition.index)


async def fill(partition: Partition, segments: int, *, timestamp_ms: int | None = None) -> None:
    """One record per segment; record n says so."""
    for number in range(segments):
        at_ms = {} if timestamp_ms is None else {"timestamp_ms": timestamp_ms + number}
        await done(partition.append(batch(f"v{number}", **at_ms)))
        await partition.changes.roll()


async def bases(world: World, partition: Partition) -> list[int | None]:
    """Return where the listed segments begin, those in pages included."""
    pages = SegmentPages(world.admin, path_of(partition))
    walk = pages.segments(world.segments(partition.topic))
    return [segment.base_offset async for segment in walk]


def page_nodes(world: World, partition: Partition) -> list[str]:
    tree, top = world.cluster.tree, paths.segment_pages(path_of(partition))
    if "pages" not in tree.children(path_of(partition)):
        return []
    return [name for folder in tree.children(top) for name in tree.children(f"{top}/{folder}")]


def counted_gets(world: World) -> list[str]:
    """Note the paths of all reads from now on."""
    gets: list[str] = []

    def note(request: Operation) -> Fault | None:
        if request.name == "get":
            gets.append(request.path)
        return None

    world.cluster.on_request = note
    return gets


def test_rolls_move_old_segments_into_pages_and_all_of_it_is_read() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 20)
        listed = world.segments(partition.topic)
        assert [ref.level for ref in listed.pages] == [3, 0]
        assert await bases(world, partition) == list(range(21))
        expected = [(number, f"v{number}") for number in range(20)]
        forget_cache(partition)
        assert await read_all(partition) == expected

    one_partition(scenario, **SMALL)


def test_a_takeover_of_a_long_list_reads_no_page() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 20)
        partition.resign("test")
        other = await world.broker(2, owning=False)
        gets = counted_gets(world)
        taken = await other.open(partition.topic)
        await settle()
        assert not [path for path in gets if "/pages/" in path]
        assert taken.leader_epoch == 1
        assert await bases(world, taken) == [*range(21), 20]
        assert await read_all(taken) == [(number, f"v{number}") for number in range(20)]
        await taken.close(1)

    one_partition(scenario, **SMALL)


def test_an_old_list_moves_with_the_first_write_of_a_new_leader() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 9)
        assert json.loads(world.segments(partition.topic).encode())["version"] == 1
        before = world.segments(partition.topic)
        await partition.close(1)
        world.limits = world.limits.__class__(**SMALL)
        other = await world.broker(2, owning=False)
        taken = await other.open(partition.topic)
        after = world.segments(partition.topic)
        assert json.loads(after.encode())["version"] == 2
        assert await bases(world, taken) == [one.base_offset for one in before.segments] + [9]
        assert await read_all(taken) == [(number, f"v{number}") for number in range(9)]
        await taken.close(1)

    one_partition(scenario)


def test_a_short_list_stays_what_brokers_without_pages_know() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 5)
        data = world.cluster.tree.get(path_of(partition)).data
        assert json.loads(data).keys() == {
            "version", "leader_epoch", "log_start_offset", "segments"
        }  # fmt: skip
        assert page_nodes(world, partition) == []

    one_partition(scenario, segment_page_entries=6)


def test_pages_are_there_before_the_list_names_them() -> None:
    """PAGE-FIRST: every version of the list can be read from the nodes of its moment."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        seen: list[int] = []

        def look(request: Operation) -> Fault | None:
            tree, listed = world.cluster.tree, world.segments(partition.topic)
            left = [*listed.pages]
            while left:
                ref = left.pop()
                tree.get(paths.segment_page(path_of(partition), *ref.name))
                seen.append(ref.level)
            return None

        world.cluster.on_request = look
        await fill(partition, 12)
        await partition.changes.delete_records(Offset(7))
        assert seen

    one_partition(scenario, **SMALL)


@pytest.mark.parametrize("fault", list(Fault))
def test_answers_of_pages_that_get_lost_are_asked_for_again(fault: Fault) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        lost: dict[str, None] = {}

        def lose(request: Operation) -> Fault | None:
            if "/pages" not in request.path or request.path in lost:
                return None
            lost[request.path] = None
            return fault

        world.cluster.on_request = lose
        await fill(partition, 10)
        world.cluster.on_request = lambda request: None
        assert lost
        assert await bases(world, partition) == list(range(11))
        assert await read_all(partition) == [(number, f"v{number}") for number in range(10)]

    one_partition(scenario, **SMALL)


def test_a_page_that_another_leader_wrote_is_never_ours() -> None:
    """PAGE-NAME: a replaced leader's page stays an orphan, which the sweep takes."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 3)
        held = asyncio.Event()
        original = partition.changes._steps.node.set

        async def stall(segments: SegmentList, version: int) -> int:
            await held.wait()
            return await original(segments, version)

        partition.changes._steps.node.change = stall  # type: ignore[method-assign]
        await done(partition.append(batch("v3")))
        rolling = asyncio.create_task(partition.changes.roll())
        await until(lambda: bool(page_nodes(world, partition)))
        (stale,) = page_nodes(world, partition)
        other = await world.broker(2, owning=False)
        taken = await other.open(partition.topic)
        await fill(taken, 3)
        held.set()
        with pytest.raises(Exception, match="lost the segment list"):
            await rolling
        assert await orphan_pages(world.admin, path_of(partition))
        names = await SegmentPages(world.admin, path_of(taken)).names(world.segments(taken.topic))
        assert stale not in [f"{n.number:010d}-{n.leader_epoch}-{n.ledger_id}" for n in names]
        assert stale in page_nodes(world, taken)
        await taken.close(1)

    one_partition(scenario, **SMALL)


def test_a_ledger_of_ours_that_others_moved_into_a_page_is_not_discarded() -> None:
    """PAGE-LOOK: our roll was listed, unheard, and others went on from it."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 3)
        node = partition.changes._steps.node
        other = await world.broker(2, owning=False)
        leaders: list[Partition] = []
        ours: list[LedgerId] = []

        async def overtaken(segments: SegmentList, version: int) -> int:
            await node.set(segments, version)
            ours.append(segments.segments[-1].ledger_id)
            taken = await other.open(partition.topic)
            leaders.append(taken)
            for number in range(4, 10):
                await done(taken.append(batch(f"v{number}")))
                await taken.changes.roll()
            raise VersionConflict("somebody else was here")

        node.change = overtaken  # type: ignore[method-assign]
        await done(partition.append(batch("v3")))
        with pytest.raises(LeadershipLost):
            await partition.changes.roll()
        await settle(50)
        assert ours[0] in world.ledger_ids()
        (taken,) = leaders
        assert await read_all(taken) == [(number, f"v{number}") for number in range(10)]
        assert not is_inline(world.segments(partition.topic), ours[0])
        await taken.close(1)

    one_partition(scenario, **SMALL)


def test_a_trim_opens_the_oldest_page_and_deletes_it_with_its_ledgers() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 20)
        before = len(page_nodes(world, partition))
        assert await partition.changes.delete_records(Offset(1)) == 1
        await settle(50)
        listed = world.segments(partition.topic)
        assert [segment.base_offset for segment in listed.oldest] == [1]
        assert len(world.backend.service.deleted) == 1
        assert len(page_nodes(world, partition)) == before - 4, "a page of each level was opened"
        assert await bases(world, partition) == list(range(1, 21))
        names = await SegmentPages(world.admin, path_of(partition)).names(listed)
        assert len(names) == len(page_nodes(world, partition)), "nothing is left behind"
        assert await read_all(partition) == [(number, f"v{number}") for number in range(1, 20)]

    one_partition(scenario, **SMALL)


def test_a_trim_of_many_pages_moves_the_start_at_once_and_drops_them_one_by_one() -> None:
    """PAGE-BY-PAGE: what others wait for comes in between."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 20)
        deleted = world.backend.service.deleted
        assert await partition.changes.delete_records(HIGH_WATERMARK) == 20
        assert len(deleted) <= 2
        await done(partition.append(batch("v20")))
        await partition.changes.roll()
        assert len(deleted) < 20
        await until(lambda: len(deleted) == 20)
        await settle(50)
        assert await bases(world, partition) == [20, 21]
        assert page_nodes(world, partition) == []
        assert await read_all(partition) == [(20, "v20")]

    one_partition(scenario, **SMALL)


@pytest.mark.parametrize("config", [{"retention_ms": "60000"}, {"retention_bytes": "1"}])
def test_retention_goes_through_pages(config: dict[str, str]) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        now_ms = world.clock.now_ms()
        await fill(partition, 12, timestamp_ms=now_ms)
        await done(partition.append(batch("last", timestamp_ms=now_ms + 60_000)))
        await asyncio.sleep((now_ms + 60_006 - world.clock.now_ms()) / 1000)
        await partition.changes.maintain(world.clock.now_ms())
        kept = 12 if "retention_bytes" in config else 6
        await until(lambda: partition.log_start_offset == kept)
        await settle(50)
        assert await bases(world, partition) == list(range(kept, 13))

    one_partition(scenario, config=config, **SMALL)


def test_without_retention_nobody_reads_the_oldest_page() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 12)
        gets = counted_gets(world)
        await partition.changes.maintain(world.clock.now_ms() + 10**12)
        assert not [path for path in gets if "/pages/" in path]
        assert len(await bases(world, partition)) == 13

    one_partition(scenario, config={"retention_ms": "-1"}, **SMALL)


def test_a_page_that_cannot_be_read_is_not_trimmed_and_costs_no_leadership() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 12)
        broker.services.pages._pages.clear()
        world.cluster.on_request = lambda request: (
            Fault.LOSE_REQUEST if "/pages/" in request.path and request.name == "get" else None
        )
        assert await partition.changes.delete_records(Offset(5)) == 5
        assert world.segments(partition.topic).log_start_offset == 5
        assert world.backend.service.deleted == []
        world.cluster.on_request = lambda request: None
        assert partition.is_open
        await partition.changes.maintain(world.clock.now_ms())
        await until(lambda: len(world.backend.service.deleted) == 5)

    one_partition(scenario, **SMALL)


def test_a_search_whose_page_cannot_be_read_is_asked_for_again() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 12, timestamp_ms=1_000)
        forget_cache(partition)
        world.cluster.on_request = lambda request: (
            Fault.LOSE_REQUEST if "/pages/" in request.path else None
        )
        questions: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: fetch(partition, 0),
            lambda: partition.reader.offset_for_timestamp(0),
        )
        for question in questions:
            broker.services.pages._pages.clear()
            with pytest.raises(LogReadFailed, match="a page of the segment list"):
                await question()
        world.cluster.on_request = lambda request: None
        assert await fetch(partition, 0)

    one_partition(scenario, **SMALL)


def test_timestamps_and_epochs_are_found_in_pages() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await fill(partition, 9, timestamp_ms=1_000_000)
        partition.resign("test")
        other = await world.broker(2, owning=False)
        taken = await other.open(partition.topic)
        for number in range(9, 18):
            await done(taken.append(batch(f"v{number}", timestamp_ms=1_000_000 + number)))
            await taken.changes.roll()
        reader = taken.reader
        for number in range(18):
            found = await reader.offset_for_timestamp(1_000_000 + number)
            assert found == (number, 1_000_000 + number)
        assert await reader.offset_for_timestamp(1_000_018) is None
        assert await reader.offset_of_max_timestamp() == (17, 1_000_017)
        assert await reader.epoch_end(LeaderEpoch(0)) == (0, 9)
        assert await reader.epoch_end(LeaderEpoch(1)) == (1, 18)
        assert taken.usage.size_bytes > 18 * 60
        await taken.close(1)

    one_partition(scenario, **SMALL)
