"""Reads and the health of bookies: order, speculation, quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from client.errors import ReadFailed
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.write.writer import LedgerWriter
from client.metadata import paths
from client.wire.bookkeeper.messages import BatchReadRequest, ReadRequest, Request
from tests.fakes import virtual_time
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, settle


async def start(
    count: int = 9, names: str = "b0 b1 b2", **settings: Any
) -> tuple[LedgerCluster, LedgerClient, LedgerWriter]:
    cluster = await LedgerCluster.start(*names.split())
    config = LedgerClientConfig(metadata_retry_delay_ms=0, **{"read_batch_bytes": 0, **settings})
    client = await cluster.client(config)
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    for _ in range(count):
        await writer.append(b"entry")
    await settle()
    return cluster, client, writer


async def read_all(writer: LedgerWriter) -> int:
    return len(await writer.reader().read(EntryId(0), writer.progress.last_add_confirmed))


def reads(cluster: LedgerCluster) -> list[int]:
    """Count the reads that b0, b1, b2 got so far."""
    return [
        sum(isinstance(request, ReadRequest) for request in cluster.bookies[name].seen)
        for name in ("b0", "b1", "b2")
    ]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(scenario)


def hold_reads(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if isinstance(request, ReadRequest) else Fate.DELIVER


def test_read_speculate_passes_a_bookie_that_hangs() -> None:
    """Its requests would time out after 5 s; a second one is asked after one, and wins."""

    async def scenario() -> None:
        cluster, _, writer = await start(speculative_read_ms=1_000)
        cluster.bookies["b1"].fate_of = hold_reads
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await read_all(writer) == 9
        assert loop.time() - began_s < 1.5
        before = reads(cluster)
        began_s = loop.time()
        assert await read_all(writer) == 9
        assert loop.time() == began_s, "b1 is known to be slow now"
        assert reads(cluster)[1] == before[1]
        await asyncio.sleep(61)
        cluster.bookies["b1"].fate_of = lambda request: Fate.DELIVER
        await read_all(writer)
        assert reads(cluster)[1] > before[1], "and forgiven a minute later"

    run(scenario())


def test_late_answers_of_slow_bookies_disturb_nobody() -> None:
    async def scenario() -> None:
        cluster, _, writer = await start(speculative_read_ms=1_000)
        for name in ("b0", "b1", "b2"):
            cluster.bookies[name].fate_of = hold_reads
        reading = asyncio.ensure_future(read_all(writer))
        await asyncio.sleep(10)
        assert reads(cluster) == [9, 9, 9], "everybody was asked, once"
        for name in ("b0", "b1", "b2"):
            cluster.bookies[name].release()
        assert await reading == 9
        await settle()

    run(scenario())


def test_without_read_speculate_a_read_waits_for_the_time_limit() -> None:
    async def scenario() -> None:
        cluster, _, writer = await start(1, speculative_read_ms=0)
        first = writer.metadata.last_fragment.ensemble[0]
        cluster.bookies[first].fate_of = hold_reads
        reading = asyncio.ensure_future(read_all(writer))
        await asyncio.sleep(100)
        assert not reading.done()
        cluster.bookies[first].release()
        assert await reading == 1

    run(scenario())


async def test_read_order_asks_read_only_and_unregistered_bookies_after_others() -> None:
    cluster, _, writer = await start()
    cluster.bookies.set_writable(["b0"])
    cluster.bookies.readonly = (cluster.bookies["b1"].name,)
    await read_all(writer)
    assert reads(cluster) == [9, 0, 0]
    cluster.bookies["b0"].crash()
    await read_all(writer)
    assert reads(cluster)[2] == 0


async def test_read_order_prefers_the_local_rack() -> None:
    cluster, _, writer = await start(local_rack="/west")
    cluster.bookies.racks = {cluster.bookies["b2"].name: "/west"}
    await read_all(writer)
    assert reads(cluster) == [0, 0, 9]


@pytest.mark.parametrize(("local_rack", "across_bytes"), [(None, 30_000), ("/c", 0)])
async def test_bytes_read_across_racks(local_rack: str | None, across_bytes: int) -> None:
    """Each of three racks has a copy of everything: two thirds of what is read would cross them."""
    cluster, _, writer = await start(count=0, local_rack=local_rack)
    for _ in range(45):
        await writer.append(bytes(1_000))
    await settle()
    names = ("b0", "b1", "b2")
    cluster.bookies.racks = {
        cluster.bookies[name].name: rack
        for name, rack in zip(names, ("/a", "/b", "/c"), strict=True)
    }
    assert await read_all(writer) == 45
    assert sum(reads(cluster)[:2]) * 1_000 == across_bytes


async def test_many_entries_at_once_cross_racks_only_if_the_copy_nearby_is_gone() -> None:
    cluster, _, writer = await start(local_rack="/c", read_batch_bytes=1 << 20)
    cluster.bookies.racks = {cluster.bookies["b2"].name: "/c"}

    def is_asked(name: str) -> bool:
        kinds = (ReadRequest, BatchReadRequest)
        return any(isinstance(request, kinds) for request in cluster.bookies[name].seen)

    assert await read_all(writer) == 9
    assert [is_asked(name) for name in ("b0", "b1", "b2")] == [False, False, True]
    cluster.bookies["b2"].crash()
    assert await read_all(writer) == 9
    assert is_asked("b0") or is_asked("b1")


async def test_a_bookie_that_fails_reads_is_asked_last_from_then_on() -> None:
    cluster, _, writer = await start()
    cluster.bookies["b0"].io_errors = set(map(EntryId, range(9)))
    await read_all(writer)
    before = reads(cluster)
    await read_all(writer)
    assert reads(cluster)[0] == before[0]
    for name in ("b1", "b2"):
        cluster.bookies[name].io_errors = set(map(EntryId, range(9)))
    with pytest.raises(ReadFailed):
        await read_all(writer)


async def test_quarantine_keeps_a_failing_bookie_out_of_new_ledgers() -> None:
    """QUARANTINE: errors of reads count; the operator's switch ends it."""
    cluster, client, writer = await start(names="b0 b1 b2 b3 b4", quarantine_errors_max=2)
    bad = writer.metadata.last_fragment.ensemble[0]
    cluster.bookies[bad].io_errors = set(map(EntryId, range(9)))
    for _ in range(4):
        await read_all(writer)
    for _ in range(12):
        created = await client.create()
        assert bad not in created.metadata.last_fragment.ensemble
    wide = await client.create(ensemble_size=5, write_quorum=3, ack_quorum=2)
    assert bad in wide.metadata.last_fragment.ensemble, "there is nobody else"
    store = cluster.metadata.session()
    await store.create(paths.health_check_disabled())
    await settle()
    assert await is_chosen_again(client, bad)
    await store.delete(paths.health_check_disabled())
    await settle()
    assert not await is_chosen_again(client, bad)


async def is_chosen_again(client: LedgerClient, bookie: str) -> bool:
    made = [await client.create() for _ in range(12)]
    return any(bookie in each.metadata.last_fragment.ensemble for each in made)
