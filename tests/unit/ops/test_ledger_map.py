"""From a ledger back to its partition, out of the metadata alone."""

from __future__ import annotations

from uuid import UUID

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import Segment, SegmentFacts, SegmentList
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.metadata.store import MetadataStore
from ops import ledger_map

ORDERS = TopicInfo(
    name="orders",
    topic_id=UUID(int=7),
    partition_count=2,
    replication_factor=3,
    config=TopicConfig(),
)


def _segment(ledger_id: int, base_offset: int, *, sealed: bool) -> Segment:
    facts = SegmentFacts(Offset(base_offset + 9), 100, -1) if sealed else None
    return Segment(LedgerId(ledger_id), Offset(base_offset), LeaderEpoch(0), 0, facts)


async def _store() -> MetadataStore:
    store = MemoryCluster().session()
    segments = (_segment(4, 0, sealed=True), _segment(6, 10, sealed=False))
    data = SegmentList(LeaderEpoch(0), Offset(0), segments).encode()
    await store.create(paths.topic(ORDERS.name), ORDERS.encode(), make_parents=True)
    await store.create(paths.partition(ORDERS.id_text, 1), data, make_parents=True)
    return store


async def test_lists_every_segment_with_its_place() -> None:
    found = [place async for place in ledger_map.places(await _store())]
    assert [(p.topic, p.partition, p.segment.ledger_id) for p in found] == [
        ("orders", 1, 4),
        ("orders", 1, 6),
    ]
    assert [(p.position, p.segment_count) for p in found] == [(0, 2), (1, 2)]


async def test_finds_one_ledger_and_knows_what_is_nowhere() -> None:
    store = await _store()
    place = await ledger_map.find(store, LedgerId(6))
    assert place is not None
    assert place.segment.base_offset == 10
    assert await ledger_map.find(store, LedgerId(5)) is None


async def test_a_cluster_without_topics_has_no_places() -> None:
    assert [place async for place in ledger_map.places(MemoryCluster().session())] == []
