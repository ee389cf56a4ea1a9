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
from client.log.segments import Segment, decode_segments
from client.metadata import paths
from client.metadata.store import MetadataStore


class LedgerPlace(NamedTuple):
    """A ledger as a segment of a partition."""

    topic: str
    partition: int
    segment: Segment
    position: int
    """Its place in the partition's segment list, from 0."""
    segment_count: int


async def places(store: MetadataStore) -> AsyncIterator[LedgerPlace]:
    """Yield every listed ledger, by topic, partition and age. Raises MetadataError, LogCorrupt."""
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
            try:
                node = await store.get(paths.partition(topic.id_text, partition))
            except NoNode:
                continue  # nobody has opened it yet
            segments = decode_segments(node.data).segments
            for position, segment in enumerate(segments):
                yield LedgerPlace(name, partition, segment, position, len(segments))


async def find(store: MetadataStore, ledger_id: LedgerId) -> LedgerPlace | None:
    """Return where a ledger is listed; None if no partition knows it."""
    async for place in places(store):
        if place.segment.ledger_id == ledger_id:
            return place
    return None
