"""A fresh metadata store becomes a cluster, exactly as Apache BookKeeper would make it."""

import asyncio
import random
import uuid

import pytest

from client.errors import ConnectionLoss, MetadataCorrupt, NoNode
from client.metadata import paths
from client.metadata.bookkeeper import (
    LAYOUT,
    check_layout,
    init_bookkeeper,
    init_quire,
    read_instance_id,
)
from client.metadata.memory import Fault, MemoryCluster


def rng(seed: int = 0) -> random.Random:
    return random.Random(seed)


async def test_the_layout_is_what_apache_bookkeeper_writes() -> None:
    assert LAYOUT == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    cluster = MemoryCluster()
    await init_bookkeeper(cluster.session(), rng=rng())
    assert cluster.tree.get("/ledgers/LAYOUT").data == LAYOUT


async def test_a_fresh_store_gets_bookkeepers_tree() -> None:
    cluster = MemoryCluster()
    instance_id = await init_bookkeeper(cluster.session(), rng=rng())
    assert cluster.tree.paths() == [
        "/ledgers",
        "/ledgers/INSTANCEID",
        "/ledgers/LAYOUT",
        "/ledgers/available",
        "/ledgers/available/readonly",
    ]
    assert str(uuid.UUID(instance_id)) == instance_id
    assert cluster.tree.get("/ledgers/INSTANCEID").data == instance_id.encode()


async def test_a_nested_root_gets_its_parents() -> None:
    cluster = MemoryCluster()
    await init_bookkeeper(cluster.session(), rng=rng(), root="/a/b/ledgers")
    assert cluster.tree.get("/a/b/ledgers/LAYOUT").data == LAYOUT


async def test_initialising_again_changes_nothing() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    first = await init_bookkeeper(store, rng=rng(1))
    cluster_id = await init_quire(store, rng=rng(1))
    before = {path: cluster.tree.get(path) for path in cluster.tree.paths()}
    assert await init_bookkeeper(store, rng=rng(2)) == first
    assert await init_quire(store, rng=rng(2)) == cluster_id
    assert {path: cluster.tree.get(path) for path in cluster.tree.paths()} == before


async def test_two_at_once_agree() -> None:
    cluster = MemoryCluster()
    ids = await asyncio.gather(
        *(init_bookkeeper(cluster.session(), rng=rng(seed)) for seed in range(3))
    )
    assert len(set(ids)) == 1


async def test_a_half_made_tree_is_completed() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    await store.create("/ledgers/available", make_parents=True)
    instance_id = await init_bookkeeper(store, rng=rng())
    assert await store.exists("/ledgers/available/readonly") is not None
    assert await read_instance_id(store) == instance_id
    await check_layout(store)


async def test_a_foreign_ledger_manager_is_refused() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    foreign = b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"
    await store.create("/ledgers/LAYOUT", foreign, make_parents=True)
    with pytest.raises(MetadataCorrupt, match="FlatLedgerManagerFactory"):
        await init_bookkeeper(store, rng=rng())


async def test_an_uninitialised_store_is_told_from_a_foreign_one() -> None:
    store = MemoryCluster().session()
    with pytest.raises(NoNode):
        await check_layout(store)
    with pytest.raises(NoNode):
        await read_instance_id(store)


async def test_a_lost_answer_leaves_a_tree_that_the_next_call_accepts() -> None:
    cluster = MemoryCluster()
    store = cluster.session()
    faults = [Fault.LOSE_REPLY]
    cluster.on_request = lambda operation: (
        faults.pop() if operation.name == "multi" and faults else None
    )
    with pytest.raises(ConnectionLoss):
        await init_bookkeeper(store, rng=rng(1))
    written = cluster.tree.get(paths.instance_id()).data.decode()
    assert await init_bookkeeper(store, rng=rng(2)) == written


async def test_quires_tree_and_cluster_id() -> None:
    cluster = MemoryCluster()
    cluster_id = await init_quire(cluster.session(), rng=rng())
    assert cluster.tree.paths() == [
        "/quire",
        "/quire/brokers",
        "/quire/cluster_id",
        "/quire/partitions",
        "/quire/topics",
    ]
    assert len(cluster_id) == 22
    assert cluster_id.replace("-", "").replace("_", "").isalnum()
