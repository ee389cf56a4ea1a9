"""Reading the pages of a list: as few as it takes, and each only once while it is kept."""

from __future__ import annotations

import pytest

from client.errors import LogCorrupt, NoNode
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import SegmentList, epoch_end
from client.metadata import paths
from client.segments.pages import PageCache, SegmentPages
from tests.fakes.segment_lists import PATH, counting, long_list, stored

COUNT = 40


async def test_a_search_reads_one_page_per_level() -> None:
    listed = long_list(COUNT)
    head, cluster = await stored(listed, 3)
    levels = 1 + max(ref.level for ref in head.pages)
    assert levels == 3
    for number in range(COUNT):
        store = counting(cluster)
        found = await SegmentPages(store, PATH).find(head, Offset(10 * number + 3))
        assert found == listed.segments[number]
        assert store.gets <= levels


async def test_the_newest_segments_take_no_read() -> None:
    head, cluster = await stored(long_list(COUNT), 3)
    store = counting(cluster)
    found = await SegmentPages(store, PATH).find(head, Offset(10 * COUNT + 5))
    assert found.ledger_id == COUNT
    assert store.gets == 0


async def test_a_page_that_is_kept_is_not_read_again() -> None:
    head, cluster = await stored(long_list(COUNT), 3)
    store = counting(cluster)
    pages = SegmentPages(store, PATH)
    for _ in range(5):
        await pages.find(head, Offset(0))
    assert store.gets == 3


async def test_few_pages_are_kept_those_used_last() -> None:
    head, cluster = await stored(long_list(COUNT), 3)
    cache = PageCache(4)
    store = counting(cluster)
    pages = SegmentPages(store, PATH, cache)
    assert len([one async for one in pages.segments(head)]) == COUNT + 1
    assert len(cache) == 4
    gets = store.gets
    await pages.find(head, Offset(10 * COUNT - 30))
    assert store.gets == gets, "the walk ended with these"
    other = SegmentPages(store, paths.partition("id", 1), cache)
    with pytest.raises(NoNode):
        await other.find(head, Offset(10 * COUNT - 30))


async def test_walks_both_ways_and_past_what_nobody_wants() -> None:
    listed = long_list(COUNT)
    head, cluster = await stored(listed, 3)
    store = counting(cluster)
    pages = SegmentPages(store, PATH)
    assert [one async for one in pages.segments(head)] == [*listed.segments]
    backwards = [one async for one in pages.segments(head, newest_first=True)]
    assert backwards == [*listed.segments[::-1]]
    store.gets = 0
    none = [one async for one in SegmentPages(store, PATH).segments(head, lambda ref: False)]
    assert none == [*head.segments]
    assert store.gets == 0


async def test_whether_a_ledger_is_listed_is_found_in_its_page() -> None:
    """PAGE-LOOK."""
    head, cluster = await stored(long_list(COUNT), 3)
    store = counting(cluster)
    assert await SegmentPages(store, PATH).has(head, LedgerId(COUNT))
    assert store.gets == 0
    assert await SegmentPages(store, PATH).has(head, LedgerId(7))
    assert store.gets == 3
    assert not await SegmentPages(store, PATH).has(head, LedgerId(COUNT + 1))
    assert store.gets == 3


async def test_epochs_end_where_a_plain_list_says() -> None:
    listed = long_list(COUNT, segments_per_epoch=4)
    head, cluster = await stored(listed, 3)
    end = Offset(10 * COUNT + 5)
    for epoch in range(-1, COUNT // 4 + 2):
        store = counting(cluster)
        found = await SegmentPages(store, PATH).epoch_end(head, LeaderEpoch(epoch), end)
        assert found == epoch_end(listed, LeaderEpoch(epoch), end)
        assert store.gets <= 3


async def test_opening_the_first_page_reads_one_per_level() -> None:
    head, cluster = await stored(long_list(COUNT), 3)
    store = counting(cluster)
    unfolded, opened = await SegmentPages(store, PATH).unfolded(head)
    assert [one.ledger_id for one in unfolded.front] == [0, 1, 2]
    assert [ref.level for ref in opened] == [2, 1, 0]
    assert store.gets == 3
    again = await SegmentPages(store, PATH).unfolded(unfolded)
    assert again == (unfolded, ())
    assert await SegmentPages(store, PATH).unfolded(SegmentList()) == (SegmentList(), ())


async def test_names_are_found_without_reading_pages_of_segments() -> None:
    head, cluster = await stored(long_list(COUNT), 3)
    store = counting(cluster)
    names = await SegmentPages(store, PATH).names(head)
    assert sorted(name.number for name in names) == list(range(head.page_count))
    leaves = -(-(COUNT - len(head.segments) + 1) // 3)
    assert store.gets == head.page_count - leaves


async def test_a_missing_page_is_missing_and_a_damaged_one_names_itself() -> None:
    head, cluster = await stored(long_list(7), 3)
    first, second = head.pages
    store = cluster.session()
    await store.set(paths.segment_page(PATH, *first.name), b"{")
    await store.delete(paths.segment_page(PATH, *second.name))
    pages = SegmentPages(store, PATH)
    with pytest.raises(LogCorrupt, match=r"^/quire/partitions/id/0/pages/0000000/0000000000-0-7: "):
        await pages.find(head, Offset(0))
    with pytest.raises(NoNode):
        await pages.find(head, Offset(30))
