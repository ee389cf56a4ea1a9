"""Metadata goes out as lines and comes back the same, but for numbers that must not return."""

from __future__ import annotations

import json
import random

import pytest

from broker.cluster.core.features import Finalized
from broker.topics.producer_ids import ProducerIds
from client.errors import ConfigError, QuireError
from client.ledger.ledger_ids import LedgerIds
from client.ledger.ledger_nodes import LedgerNodes
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper, init_quire
from client.metadata.memory import MemoryCluster, MemoryStore
from ops.metadata_backup import backup, restore


async def a_cluster() -> MemoryStore:
    store = MemoryCluster().session()
    await init_bookkeeper(store, rng=random.Random(1))
    await init_quire(store, rng=random.Random(1))
    await store.create(f"{paths.TOPICS}/orders", b"\x00\xff")
    await store.create(f"{paths.BROKERS}/1", b"alive", ephemeral=True)
    for _ in range(3):
        await ids_of(store).next()
    await ProducerIds(store).take()
    return store


def ids_of(store: MemoryStore) -> LedgerIds:
    nodes = LedgerNodes(store, paths.LEDGERS_ROOT, attempts_max=1, retry_delay_s=0)
    return LedgerIds(store, nodes, paths.LEDGERS_ROOT)


async def lines_of(store: MemoryStore) -> list[str]:
    return [line async for line in backup(store, now_ms=5)]


async def test_everything_but_ephemerals_comes_back() -> None:
    store = await a_cluster()
    lines = await lines_of(store)
    assert json.loads(lines[0])["made_ms"] == 5
    fresh = MemoryCluster().session()
    assert await restore(fresh, lines) == len(lines) - 1
    assert (await fresh.get(f"{paths.TOPICS}/orders")).data == b"\x00\xff"
    assert (await fresh.get(paths.CLUSTER_ID)).data == (await store.get(paths.CLUSTER_ID)).data
    assert await fresh.exists(f"{paths.BROKERS}/1") is None


async def test_numbers_given_out_since_are_not_given_out_again() -> None:
    store = await a_cluster()
    lines = await lines_of(store)
    later = [await ids_of(store).next() for _ in range(100)]
    producers = [await ProducerIds(store).take() for _ in range(100)]
    fresh = MemoryCluster().session()
    await restore(fresh, lines)
    assert await ids_of(fresh).next() > max(later)
    assert await ProducerIds(fresh).take() > max(producers)
    again = MemoryCluster().session()
    second = [line async for line in backup(fresh, now_ms=6)]
    newest = await ids_of(fresh).next()
    await restore(again, second)
    assert await ids_of(again).next() > newest


async def test_the_epoch_of_features_does_not_fall() -> None:
    store = await a_cluster()
    await store.create(paths.FEATURES, Finalized(3, {"transaction.version": 2}).encode())
    lines = await lines_of(store)
    fresh = MemoryCluster().session()
    await restore(fresh, lines)
    found = Finalized.decode((await fresh.get(paths.FEATURES)).data)
    assert found.epoch > 1_000
    assert found.levels == {"transaction.version": 2}


async def test_a_restore_that_was_cut_short_is_completed() -> None:
    lines = await lines_of(await a_cluster())
    fresh = MemoryCluster().session()
    await restore(fresh, lines[:4])
    assert await restore(fresh, lines) == len(lines) - 1


async def test_another_cluster_is_not_overwritten() -> None:
    lines = await lines_of(await a_cluster())
    other = MemoryCluster().session()
    await init_bookkeeper(other, rng=random.Random(2))
    with pytest.raises(QuireError, match="is there already, with other data"):
        await restore(other, lines)


async def test_a_cluster_at_work_is_left_alone() -> None:
    store = await a_cluster()
    lines = await lines_of(store)
    with pytest.raises(QuireError, match="1 is registered at /quire/brokers: stop all"):
        await restore(store, lines)
    assert await store.exists(f"{paths.LEDGERS_ROOT}/idgen-long") is None


async def test_what_is_no_backup_is_refused() -> None:
    fresh = MemoryCluster().session()
    for lines in ([], ['{"path": "/x", "data": ""}'], ['{"quire_metadata_backup": 9}']):
        with pytest.raises(ConfigError, match="not a backup"):
            await restore(fresh, lines)
    good = (await lines_of(await a_cluster()))[:2]
    for damaged in ("{", '{"path": "/x"}', '{"path": "/x", "data": "*"}'):
        with pytest.raises(ConfigError, match="line 3 of the backup is damaged"):
            await restore(fresh, [*good, damaged])


async def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="there is nothing at /ledgers"):
        await lines_of(MemoryCluster().session())
