"""Reaching bookies from a task: whom it asks where they are, and when it looks again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from client.errors import BookieUnavailable, LogCorrupt, MetadataError, NoSuchEntry, NoSuchLedger
from client.ids import BookieId, EntryId, LeaderEpoch, LedgerId, Offset
from client.ledger.bookies.bookie_directory import Address
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.log.segments import Segment, SegmentList, decode_segments
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.segments.page_nodes import delete_pages
from client.segments.pages import PageCache, SegmentPages
from client.spark.ledgers.ledger_access import BookieAddresses, LedgerAccess
from client.spark.ledgers.metadata_view import MetadataView
from tests.fakes.ledger_source import FakeLedger
from tests.fakes.segment_lists import PATH, counting, long_list, stored


class Unreachable(MetadataView):
    """A metadata store that must not be asked, or cannot be."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.asked: list[str] = []

    async def get(self, path: str, watcher: Any = None) -> Any:
        self.asked.append(path)
        raise MetadataError("nobody there")


async def test_an_id_that_is_an_address_needs_no_metadata() -> None:
    view = Unreachable()
    addresses = BookieAddresses(view)
    assert await addresses.address(BookieId("10.0.0.1:3181")) == Address("10.0.0.1", 3181)
    assert view.asked == []
    assert addresses.writable == ("10.0.0.1:3181",)


async def test_registrations_are_asked_for_names_and_for_addresses_in_doubt() -> None:
    view = Unreachable()
    addresses = BookieAddresses(view)
    with pytest.raises(MetadataError):
        await addresses.address(BookieId("bookie-a"))
    assert view.asked == ["/ledgers/available/bookie-a"]
    addresses.doubt_address(BookieId("10.0.0.1:3181"))
    with pytest.raises((MetadataError, BookieUnavailable)):
        await addresses.address(BookieId("10.0.0.1:3181"))
    assert len(view.asked) > 1


class Listing(LedgerAccess):
    """Looks segment lists up in a tree in memory."""

    def __init__(self, tree: MemoryCluster) -> None:
        self._view = tree.session()
        self._pages = PageCache()


async def test_only_partitions_that_exist_have_segments() -> None:
    tree = MemoryCluster()
    listed = SegmentList(
        LeaderEpoch(4), Offset(12), (Segment(LedgerId(3), Offset(10), LeaderEpoch(4), 1),)
    ).check()
    store = tree.session()
    await store.create(paths.partition("id", 0), listed.encode(), make_parents=True)
    await store.create(paths.partition("id", 1), listed.condemned().encode())
    await store.create(paths.partition("id", 2), b"{")
    access = Listing(tree)
    assert await access.segments("id", 0, 0, 99) == [*listed.segments]
    assert await access.segments("id", 0, 0, 10) == []
    for none_of_it in (1, 3):  # deleted, and never made
        assert await access.segments("id", none_of_it, 0, 99) == []
    with pytest.raises(LogCorrupt, match=r"^/quire/partitions/id/2: segment list is damaged"):
        await access.segments("id", 2, 0, 99)


class Moving(LedgerAccess):
    """Reads fail with what `known` says; `describe` tells what stands now."""

    def __init__(self, now: LedgerMetadata | None, error: Exception) -> None:
        self.now = now
        self.error = error
        self.reads: list[LedgerMetadata] = []

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        if self.now is None:
            raise NoSuchLedger("deleted")
        return self.now

    async def _read(
        self, ledger_id: Any, metadata: Any, first: int, last: int, size_max: int
    ) -> list[Any]:
        self.reads.append(metadata)
        if metadata is not self.now:
            raise self.error
        return []


def ledger() -> LedgerMetadata:
    made = FakeLedger(10, 0)
    made.add_snapshot()
    made.close()
    return made.metadata()


async def test_replaced_bookies_are_looked_up_once() -> None:
    known = ledger()
    ensemble = tuple(BookieId(f"10.0.1.{number}:3181") for number in (1, 2, 3))
    moved = replace(known, fragments=(Fragment(EntryId(0), ensemble),))
    access = Moving(moved, NoSuchEntry("gone"))
    assert await access.read(LedgerId(10), known, 0, 0, 1 << 20) == []
    assert access.reads == [known, moved]


async def test_a_failure_at_the_known_places_is_told() -> None:
    known = ledger()
    access = Moving(replace(known), NoSuchEntry("gone"))
    with pytest.raises(NoSuchEntry):
        await access.read(LedgerId(10), known, 0, 0, 1 << 20)
    assert len(access.reads) == 1
    with pytest.raises(NoSuchLedger):
        await Moving(None, NoSuchEntry("gone")).read(LedgerId(10), known, 0, 0, 1 << 20)


async def long_partition() -> tuple[MemoryCluster, SegmentList]:
    head, cluster = await stored(long_list(30), 3)
    return cluster, head


async def test_segments_of_a_long_list_come_out_of_the_pages_that_have_them() -> None:
    cluster, _ = await long_partition()
    access = Listing(cluster)
    store = counting(cluster)
    access._view = store  # type: ignore[assignment]
    found = await access.segments("id", 0, 95, 121)
    assert [one.ledger_id for one in found] == [9, 10, 11, 12]
    gets = store.gets
    assert gets <= 1 + 2 + 1 + 2, "the head, and a page or two of each level"
    assert await access.segments("id", 0, 95, 121) == found
    assert store.gets == gets + 1, "pages are kept"
    assert len(await access.segments("id", 0, 0, 10_000)) == 31


async def test_a_page_that_a_trim_deletes_meanwhile_is_looked_for_in_the_list_of_then() -> None:
    cluster, head = await long_partition()
    store = cluster.session()
    unfolded, opened = await SegmentPages(store, PATH).unfolded(head)
    old = head.encode()
    trimmed = unfolded.trimmed(3, Offset(30))
    await store.set(PATH, trimmed.encode())
    await delete_pages(store, PATH, [ref.name for ref in opened])
    reads = 0

    class Late(Listing):
        async def _segment_list(self, path: str) -> SegmentList | None:
            nonlocal reads
            reads += 1
            return decode_segments(old) if reads == 1 else await super()._segment_list(path)

    found = await Late(cluster).segments("id", 0, 0, 45)
    assert [one.ledger_id for one in found] == [3, 4]
    assert reads == 2


async def test_a_page_that_is_lost_is_an_error() -> None:
    cluster, head = await long_partition()
    store = cluster.session()
    await delete_pages(store, PATH, [head.pages[0].name])
    with pytest.raises(LogCorrupt, match=r"^/quire/partitions/id/0 names a page that is not there"):
        await Listing(cluster).segments("id", 0, 0, 45)
