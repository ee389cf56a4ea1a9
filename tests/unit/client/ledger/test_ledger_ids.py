"""Ledger ids over the in-memory metadata store."""

from __future__ import annotations

import asyncio
import random

from client.ledger.ledger_ids import LedgerIds
from client.ledger.ledger_nodes import LedgerNodes
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import Fault, MemoryCluster, MemoryStore
from tests.fakes.ledger_cluster import settle

ROOT = "/ledgers"


async def start() -> tuple[MemoryCluster, MemoryStore]:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    await init_bookkeeper(store, rng=random.Random(1))
    return cluster, store


def ids_of(store: MemoryStore) -> LedgerIds:
    return LedgerIds(store, LedgerNodes(store, ROOT, attempts_max=3, retry_delay_s=0.0), ROOT)


def exhaust(cluster: MemoryCluster, directory: str) -> None:
    """Let a directory's sequence counter overflow, as ZooKeeper's does after 2^31 creations."""
    cluster.tree._find(directory).created_count = -(2**31)


async def test_ids_are_unique_across_clients_and_leave_nothing_behind() -> None:
    cluster, store = await start()
    sources = [ids_of(store), ids_of(cluster.session())]
    found = await asyncio.gather(*(source.next() for source in sources * 5))
    assert len(set(found)) == 10
    await settle()
    assert cluster.tree.children(f"{ROOT}/idgen") == []


async def test_what_is_behind_a_taken_id_goes_with_the_next_change() -> None:
    cluster, store = await start()
    source = ids_of(store)
    first = await source.take()
    await settle()
    assert len(cluster.tree.children(f"{ROOT}/idgen")) == 1
    assert await source.next() > first
    await settle()
    assert cluster.tree.children(f"{ROOT}/idgen") == []


async def test_a_lost_answer_wastes_a_number() -> None:
    cluster, store = await start()
    faults = [Fault.LOSE_REPLY]
    cluster.on_request = lambda operation: (
        faults.pop() if operation.name == "create" and faults else None
    )
    source = ids_of(store)
    assert await source.next() == 1
    assert await source.next() == 2


async def test_a_node_that_cannot_be_deleted_goes_with_the_session() -> None:
    cluster, store = await start()
    faults = [Fault.LOSE_REQUEST]
    cluster.on_request = lambda operation: (
        faults.pop() if operation.name == "delete" and faults else None
    )
    await ids_of(store).next()
    await settle()
    assert len(cluster.tree.children(f"{ROOT}/idgen")) == 1
    cluster.expire(store)
    assert cluster.tree.children(f"{ROOT}/idgen") == []


async def test_long_ids_once_the_counter_has_run_out() -> None:
    cluster, store = await start()
    source = ids_of(store)
    await source.next()
    exhaust(cluster, f"{ROOT}/idgen")
    first, second = await source.next(), await source.next()
    assert (first, second) == (1 << 32, 1 << 32 | 1)
    assert cluster.tree.children(f"{ROOT}/idgen-long") == ["HOB-0000000001"]
    assert await ids_of(cluster.session()).next() == 1 << 32 | 2, "others see it at once"


async def test_a_full_directory_of_long_ids_is_followed_by_the_next() -> None:
    cluster, store = await start()
    await store.create(f"{ROOT}/idgen-long/HOB-0000000007", make_parents=True)
    source = ids_of(store)
    assert await source.next() == 7 << 32
    exhaust(cluster, f"{ROOT}/idgen-long/HOB-0000000007")
    assert await source.next() == 8 << 32
