"""Long segment lists with their pages, and stores of pages that count what is read of them."""

from __future__ import annotations

from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment_pages import Page, PageName
from client.log.segments import Segment, SegmentFacts, SegmentList, paged
from client.metadata import paths
from client.metadata.memory import MemoryCluster, MemoryStore
from client.segments.page_nodes import write_page

PATH = paths.partition("id", 0)
RECORDS = 10
"""Records of each segment."""


def sealed(number: int, epoch: int = 0, *, size: int = 100) -> Segment:
    """The segment of a ledger with that number, of ten records; its newest timestamp is its
    last offset."""
    last = Offset(RECORDS * number + RECORDS - 1)
    facts = SegmentFacts(last, size, last)
    return Segment(
        LedgerId(number), Offset(RECORDS * number), LeaderEpoch(epoch), 1000 * number, facts
    )


def long_list(count: int, segments_per_epoch: int = 1 << 62) -> SegmentList:
    """A list of so many sealed segments, and one that is written; all of them in the head."""
    segments = [sealed(number, number // segments_per_epoch) for number in range(count)]
    epoch = LeaderEpoch(count // segments_per_epoch)
    last = Segment(LedgerId(count), Offset(RECORDS * count), epoch, 1000 * count)
    return SegmentList(epoch, Offset(0), (*segments, last)).check()


def in_pages(listed: SegmentList, entries: int) -> tuple[SegmentList, dict[PageName, Page]]:
    """Return the list's head, and its pages."""
    head, made = paged(listed, listed.segments[-1].ledger_id, entries)
    return head, {new.name: new.page for new in made}


class CountingStore(MemoryStore):
    """A session that counts the nodes that it gets."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.gets = 0

    async def get(self, path: str, watcher: object = None):  # type: ignore[no-untyped-def]
        self.gets += 1
        return await super().get(path, watcher)  # type: ignore[arg-type]


async def stored(listed: SegmentList, entries: int) -> tuple[SegmentList, MemoryCluster]:
    """Put a list with its pages into a store; return its head."""
    cluster = MemoryCluster()
    store = cluster.session()
    head, made = paged(listed, listed.segments[-1].ledger_id, entries)
    await store.create(PATH, head.encode(), make_parents=True)
    for new in made:
        await write_page(store, PATH, new)
    return head, cluster


def counting(cluster: MemoryCluster) -> CountingStore:
    """Open a session that counts."""
    store = CountingStore(cluster)
    store._on_connected(cluster._open_session(store))
    return store
