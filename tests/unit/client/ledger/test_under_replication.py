"""Marks of ledgers that lack copies: bytes, merging, and removal against a concurrent marker."""

from __future__ import annotations

import pytest

from client.errors import MetadataCorrupt
from client.ids import BookieId, LedgerId
from client.ledger.under_replication import (
    Mark,
    mark_under_replicated,
    read_mark,
    remove_mark,
)
from client.metadata import paths
from client.metadata.memory import MemoryCluster, MemoryStore

LEDGER = LedgerId(0x1_0002_0003)
A, B, C = BookieId("a:1"), BookieId("b:1"), BookieId("c:1")


def make_store() -> MemoryStore:
    return MemoryCluster(reconnect_delay_s=0.0).session()


def test_where_apache_bookkeeper_looks_for_a_mark() -> None:
    top = "/ledgers/underreplication/ledgers"
    assert paths.under_replicated_ledger(LedgerId(7)) == f"{top}/0000/0000/0000/0007/urL0000000007"
    assert (
        paths.under_replicated_ledger(LEDGER) == f"{top}/0000/0001/0002/0003/urL{4295098371:010d}"
    )


async def test_a_mark_is_text_that_java_reads() -> None:
    store = make_store()
    await mark_under_replicated(store, LEDGER, [A, B], now_ms=1234)
    node = await store.get(paths.under_replicated_ledger(LEDGER))
    assert node.data == b'replica: "a:1"\nreplica: "b:1"\nctime: 1234\n'
    assert await read_mark(store, LEDGER) == Mark((A, B), 1234, 0)


async def test_marks_merge() -> None:
    store = make_store()
    await mark_under_replicated(store, LEDGER, [A, B], now_ms=1)
    await mark_under_replicated(store, LEDGER, [B, C])
    assert await read_mark(store, LEDGER) == Mark((A, B, C), 1, 1)


async def test_the_same_mark_again_keeps_a_worker_from_removing_it() -> None:
    """The worker looked at version 0; an entry was lost after that."""
    store = make_store()
    await mark_under_replicated(store, LEDGER, [A])
    await mark_under_replicated(store, LEDGER, [A])
    assert not await remove_mark(store, LEDGER, 0)
    assert await read_mark(store, LEDGER) == Mark((A,), None, 1)


async def test_a_mark_behind_a_server_that_lags_is_added_to_the_newest_one() -> None:
    """The mark that the server still shows was removed since, and the new one has its version."""
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    one, late = cluster.session(), cluster.session()
    await mark_under_replicated(one, LEDGER, [A])
    await late.sync("/")
    cluster.freeze(late)
    assert await remove_mark(one, LEDGER, 0)
    await mark_under_replicated(one, LEDGER, [B])
    await mark_under_replicated(late, LEDGER, [C])
    assert await read_mark(one, LEDGER) == Mark((B, C), None, 1)


async def test_what_a_newer_release_has_written_stays_in_the_mark() -> None:
    store = make_store()
    await mark_under_replicated(store, LEDGER, [A], now_ms=5)
    path = paths.under_replicated_ledger(LEDGER)
    theirs = b'reason: "holes"\nfragments {\n  first: 7\n  replica: "x:1"\n}\n'
    await store.set(path, theirs + (await store.get(path)).data)
    await mark_under_replicated(store, LEDGER, [B])
    ours = b'replica: "a:1"\nreplica: "b:1"\nctime: 5\n'
    assert (await store.get(path)).data == ours + theirs


async def test_two_markers_at_once_lose_nothing() -> None:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    one, two = cluster.session(), cluster.session()
    await mark_under_replicated(one, LEDGER, [A])
    original = two.set

    async def set_late(path: str, data: bytes, version: int = -1) -> int:
        await mark_under_replicated(one, LEDGER, [B])
        two.set = original  # type: ignore[method-assign]
        return await two.set(path, data, version)

    two.set = set_late  # type: ignore[method-assign]
    await mark_under_replicated(two, LEDGER, [C])
    found = await read_mark(two, LEDGER)
    assert found is not None
    assert found.bookies == (A, B, C)


async def test_removal_tidies_up() -> None:
    store = make_store()
    other = LedgerId(LEDGER + 0x1_0000)
    await mark_under_replicated(store, LEDGER, [A])
    await mark_under_replicated(store, other, [A])
    assert await remove_mark(store, LEDGER, 0)
    assert await read_mark(store, LEDGER) is None
    assert await store.children(f"{paths.under_replicated_ledgers()}/0000/0001") == ["0003"]
    assert await remove_mark(store, other, 0)
    assert await store.children(paths.under_replicated_ledgers()) == []
    assert await remove_mark(store, other, 0), "absent is fine"


async def test_a_mark_of_java_without_time() -> None:
    store = make_store()
    path = paths.under_replicated_ledger(LEDGER)
    await store.create(path, b'replica: "a:1" replica:"b:1"\n', make_parents=True)
    assert await read_mark(store, LEDGER) == Mark((A, B), None, 0)


@pytest.mark.parametrize("data", [b"replica: {", b"\xff\xfe"])
async def test_a_malformed_mark_is_not_guessed_at(data: bytes) -> None:
    store = make_store()
    await store.create(paths.under_replicated_ledger(LEDGER), data, make_parents=True)
    with pytest.raises(MetadataCorrupt):
        await read_mark(store, LEDGER)
