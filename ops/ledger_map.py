"""Which topic partition a ledger belongs to, as the metadata store tells it.

Covers the way back from a ledger to its partition: brokers only need the way there. It reads every
topic's segment lists, so it is for people, not for hot paths.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from broker.cluster.core.topology import TopicInfo
from client.errors import NoNode
from client.ids import LedgerId
from client.log.segment_pages import PageRef
from client.log.segments import Segment, SegmentList, decode_segments, segment_count
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.segments.pages import SegmentPages


class LedgerPlace(NamedTuple):
    """A ledger as a segment of a partition."""

    topic: str
    partition: int
    segment: Segment
    position: int
    """Its place in the partition's segment list, from 0."""
    segment_count: int


async def places(
    store: MetadataStore, ledger_id: LedgerId | None = None
) -> AsyncIterator[LedgerPlace]:
    """Yield every listed ledger, by topic, partition and age; not those in pages of a list that
    cannot have `ledger_id`. Raises MetadataError, LogCorrupt."""
    try:
        names = await store.children(paths.TOPICS)
    except NoNode:
        return
    for name in names:
        try:
            topic = TopicInfo.decode(name, (await store.get(paths.topic(name))).data)
        except NoNode:
            continue  # deleted meanwhile
        for partition in range(topic.partition_count):
            path = paths.partition(topic.id_text, partition)
            try:
                listed = decode_segments((await store.get(path)).data)
            except NoNode:
                continue  # nobody has opened it yet
            async for position, segment in _positions(store, path, listed, ledger_id):
                yield LedgerPlace(name, partition, segment, position, segment_count(listed))


async def _positions(
    store: MetadataStore, path: str, listed: SegmentList, ledger_id: LedgerId | None
) -> AsyncIterator[tuple[int, Segment]]:
    position = 0

    def wanted(ref: PageRef) -> bool:
        nonlocal position
        is_wanted = ledger_id is None or ref.may_hold(ledger_id)
        position += 0 if is_wanted else ref.segment_count
        return is_wanted

    async for segment in SegmentPages(store, path).segments(listed, wanted):
        yield position, segment
        position += 1


async def find(store: MetadataStore, ledger_id: LedgerId) -> LedgerPlace | None:
    """Return where a ledger is listed; None if no partition knows it."""
    async for place in places(store, ledger_id):
        if place.segment.ledger_id == ledger_id:
            return place
    return None
