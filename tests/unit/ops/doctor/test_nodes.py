"""Every node that cannot be read is named, with what to do; what is readable is fine."""

from __future__ import annotations

import json
import random

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from client.autorecovery.tree import ReplicationTree
from client.errors import ConnectionLoss
from client.ids import BookieId, EntryId, LeaderEpoch, LedgerId, Offset
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.log.segment import Segment, SegmentFacts
from client.log.segments import SegmentList, paged
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, init_quire
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from ops.doctor.findings import Level
from ops.doctor.nodes import SINGLE, check_nodes, directories, of_recovery
from tests.fakes.bad_nodes import NEWER_FORMAT, NO_JSON
from tests.fakes.topics import topic_info

ROOT = paths.LEDGERS_ROOT
TOPIC: TopicInfo = topic_info(2)
LEDGER = metadata_codec.encode(
    LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(EntryId(0), (BookieId("b:1"),)),),
    )
)


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryCluster().session()
    await init_bookkeeper(made, rng=random.Random(1))
    await init_quire(made, rng=random.Random(1))
    await made.create(paths.topic(TOPIC.name), TOPIC.encode())
    await made.create(paths.partition(TOPIC.id_text, 0), b"", make_parents=True)
    tree = ReplicationTree(made, BookieId("b:1"), ROOT)
    await tree.switches.set_delay(30)
    await tree.set_checked_ms(300)
    await made.create(paths.deleted_topic(str(TOPIC.topic_id)), b"t", make_parents=True)
    return made


async def test_a_cluster_whose_nodes_are_all_readable_is_fine(store: MemoryStore) -> None:
    (found,) = await check_nodes(store, ROOT)
    assert found.level is Level.FINE


PLACES = [
    *(f"{directory}/1" for directory in directories(ROOT)),
    *SINGLE,
    *of_recovery(ROOT),
    paths.topic("u"),
    paths.partition(TOPIC.id_text, 1),
    paths.ledger(LedgerId(7)),
    paths.ledger(LedgerId(7 << 40)),
    paths.under_replicated_ledger(LedgerId(8)),
]


@pytest.mark.parametrize("bad", [NO_JSON, NEWER_FORMAT])
@pytest.mark.parametrize("path", PLACES)
async def test_a_node_that_cannot_be_read_is_trouble(
    store: MemoryStore, path: str, bad: bytes
) -> None:
    if await store.exists(path) is None:
        await store.create(path, make_parents=True)
    await store.set(path, bad)
    (found,) = await check_nodes(store, ROOT)
    assert (found.level, found.check) == (Level.TROUBLE, "nodes")
    assert found.what.startswith(f"{path} cannot be read: ")
    assert found.advice.startswith("Upgrade this node if a newer release wrote it; otherwise")
    assert (await store.get(path)).data == bad


async def test_pages_are_looked_at(store: MemoryStore) -> None:
    sealed = [
        Segment(LedgerId(n), Offset(n), LeaderEpoch(0), 1, SegmentFacts(Offset(n), 1, 1))
        for n in range(4)
    ]
    last = Segment(LedgerId(4), Offset(4), LeaderEpoch(0), 1)
    listed = SegmentList(LeaderEpoch(0), Offset(0), (*sealed, last))
    moved = paged(listed, LedgerId(4), page_entries=2)
    (new,) = moved.pages
    at = paths.partition(TOPIC.id_text, 0)
    path = paths.segment_page(at, *new.name)
    await store.set(at, moved.segments.encode())
    await store.create(path, new.page.encode(), make_parents=True)
    (found,) = await check_nodes(store, ROOT)
    assert found.level is Level.FINE
    await store.set(path, NEWER_FORMAT)
    (found,) = await check_nodes(store, ROOT)
    assert found.what.startswith(f"{path} cannot be read: ")


async def test_ledgers_are_read_many_at_once(store: MemoryStore) -> None:
    for number in range(600):
        data = NO_JSON if number in (3, 599) else LEDGER
        await store.create(paths.ledger(LedgerId(number)), data, make_parents=True)
    reads: list[str] = []

    def note(operation: Operation) -> None:
        reads.append(operation.name)

    store._cluster.on_request = note
    found = await check_nodes(store, ROOT)
    assert [one.what.partition(" ")[0] for one in found] == [
        paths.ledger(LedgerId(3)), paths.ledger(LedgerId(599))
    ]  # fmt: skip
    assert reads.count("get_many") == 3


async def test_very_many_are_counted(store: MemoryStore) -> None:
    for number in range(50):
        await store.create(paths.topic(f"t{number}"), NO_JSON)
    found = await check_nodes(store, ROOT)
    assert (len(found), found[-1].what) == (21, "30 more nodes cannot be read")


async def test_settings_of_another_release_are_a_warning(store: MemoryStore) -> None:
    fields = json.loads(TOPIC.encode())
    fields["configs"] = {"x.of.tomorrow": 1, "segment.bytes": "7"}
    await store.set(paths.topic(TOPIC.name), json.dumps(fields).encode())
    (found,) = await check_nodes(store, ROOT)
    assert found.level is Level.WARNING
    assert "x.of.tomorrow (unknown), segment.bytes (14 holds)" in found.what
    assert TopicConfig.read(fields["configs"]).segment_bytes == 14


async def test_a_store_that_is_away_is_no_damage(store: MemoryStore) -> None:
    store._cluster.on_request = lambda operation: (
        Fault.LOSE_REQUEST if operation.name == "get" else None
    )
    with pytest.raises(ConnectionLoss):
        await check_nodes(store, ROOT)
