"""Reading ledgers over scripted bookies: ranges, fail-over, tails."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from client.errors import (
    BookieUnavailable,
    DigestMismatch,
    IncorrectParameter,
    NoSuchEntry,
    NoSuchLedger,
    ReadFailed,
)
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.entry import DigestType
from client.wire.bookkeeper.messages import AddRequest, ReadLacRequest, ReadRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, settle

SMALL_WINDOW = LedgerClientConfig(
    read_window_entries=4, read_window_bytes=0, read_batch_bytes=0, metadata_retry_delay_ms=0
)


async def start(
    count: int = 10,
    *,
    sizes: tuple[int, int, int] = (3, 3, 2),
    names: str = "b0 b1 b2",
    digest_type: DigestType = DigestType.CRC32C,
) -> tuple[LedgerCluster, LedgerClient, LedgerWriter]:
    cluster = await LedgerCluster.start(*names.split())
    client = await cluster.client(SMALL_WINDOW)
    ensemble, write, ack = sizes
    writer = await client.create(
        ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, digest_type=digest_type
    )
    for number in range(count):
        await writer.append(b"entry %d" % number)
    await settle()
    return cluster, client, writer


def ids(first: int, last: int) -> tuple[EntryId, EntryId]:
    return EntryId(first), EntryId(last)


def payloads(first: int, last: int) -> list[bytes]:
    return [b"entry %d" % number for number in range(first, last + 1)]


@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_a_closed_ledger_is_read_to_its_end(digest_type: DigestType) -> None:
    _, client, writer = await start(digest_type=digest_type)
    await writer.close()
    reader = await client.open(writer.ledger_id)
    assert (reader.last_entry, reader.closed, reader.length) == (9, True, 70)
    found = await reader.read(*ids(0, 9))
    assert [bytes(entry.payload) for entry in found] == payloads(0, 9)
    assert [bytes(e.payload) for e in await reader.read(*ids(3, 5))] == payloads(3, 5)
    assert await reader.refresh() == 9


async def test_entries_are_iterated_in_windows() -> None:
    cluster, client, writer = await start()
    await writer.close()
    reader = await client.open(writer.ledger_id)
    assert [bytes(e.payload) async for e in reader.entries()] == payloads(0, 9)
    first, last = ids(6, 8)
    assert [bytes(e.payload) async for e in reader.entries(first, last)] == payloads(6, 8)
    assert [e async for e in reader.entries(EntryId(10))] == []
    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: Fate.HOLD_REQUEST
    task = asyncio.ensure_future(reader.read(*ids(0, 9)))
    await settle()
    under_way = sum(len(cluster.bookies[name].held) for name in cluster.bookies.writable)
    assert under_way == 4, "not all at once"
    task.cancel()


@pytest.mark.parametrize(("window_bytes", "expected"), [(0, 4), (56, 8), (1 << 20, 10)])
async def test_more_small_entries_are_asked_for_at_once(window_bytes: int, expected: int) -> None:
    cluster, _, writer = await start()
    await writer.close()
    client = await cluster.client(dataclasses.replace(SMALL_WINDOW, read_window_bytes=window_bytes))
    reader = await client.open(writer.ledger_id)
    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: Fate.HOLD_REQUEST
    task = asyncio.ensure_future(reader.read(*ids(0, 9)))
    await settle()
    assert sum(len(cluster.bookies[name].held) for name in cluster.bookies.writable) == expected
    task.cancel()


async def test_an_empty_ledger() -> None:
    _, client, writer = await start(0)
    await writer.close()
    reader = await client.open(writer.ledger_id)
    assert (reader.last_entry, reader.length) == (-1, 0)
    assert [e async for e in reader.entries()] == []


async def test_bad_ranges() -> None:
    _, _, writer = await start(2)
    reader = writer.reader()
    for first, last in ((-1, 0), (1, 0)):
        with pytest.raises(IncorrectParameter):
            await reader.read(*ids(first, last))
    with pytest.raises(ReadFailed):
        await reader.read(*ids(0, 2))


async def test_reads_spread_over_the_bookies() -> None:
    cluster, _, writer = await start(9)
    await writer.reader().read(*ids(0, 8))
    counts = [
        sum(isinstance(request, ReadRequest) for request in cluster.bookies[name].seen)
        for name in cluster.bookies.writable
    ]
    assert counts == [3, 3, 3]


async def test_read_next_after_a_dead_bookie() -> None:
    cluster, _, writer = await start()
    cluster.bookies["b1"].crash()
    assert [bytes(e.payload) for e in await writer.reader().read(*ids(0, 9))] == payloads(0, 9)


async def test_read_order_asks_the_unreachable_last() -> None:
    cluster, _, writer = await start()
    cluster.bookies["b1"].is_unreachable = True
    await writer.reader().read(*ids(0, 9))
    assert not any(isinstance(r, ReadRequest) for r in cluster.bookies["b1"].seen)


async def test_read_next_after_a_wrong_digest() -> None:
    cluster, _, writer = await start(3)
    for name in ("b0", "b1"):
        for entry_id in range(3):
            cluster.bookies[name].damage(writer.ledger_id, EntryId(entry_id))
    assert [bytes(e.payload) for e in await writer.reader().read(*ids(0, 2))] == payloads(0, 2)
    cluster.bookies["b2"].crash()
    with pytest.raises(DigestMismatch):
        await writer.reader().read(*ids(0, 2))


async def test_read_none_needs_everybody() -> None:
    cluster, _, writer = await start(3)
    for name in ("b0", "b1"):
        del cluster.bookies[name].ledgers[writer.ledger_id].entries[EntryId(1)]
    assert len(await writer.reader().read(*ids(0, 2))) == 3
    cluster.bookies["b2"].io_errors.add(EntryId(1))
    with pytest.raises(ReadFailed):
        await writer.reader().read(*ids(0, 2))
    cluster.bookies["b2"].io_errors.clear()
    del cluster.bookies["b2"].ledgers[writer.ledger_id].entries[EntryId(1)]
    with pytest.raises(NoSuchEntry):
        await writer.reader().read(*ids(0, 2))


async def test_reads_follow_fragments() -> None:
    cluster, client, writer = await start(4, names="b0 b1 b2 b3 b4 b5")
    for bookie in writer.metadata.last_fragment.ensemble:
        cluster.bookies[bookie].fate_of = lambda request: (
            Fate.LOSE_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER
        )
    for number in range(4, 8):
        await writer.append(b"entry %d" % number)
    first, *_, last = writer.metadata.fragments
    assert not set(first.ensemble) & set(last.ensemble)
    await writer.close()
    reader = await client.open(writer.ledger_id)
    assert [bytes(e.payload) for e in await reader.read(*ids(0, 7))] == payloads(0, 7)


async def test_metadata_is_read_again_when_all_replicas_moved() -> None:
    """Issue 4613: a reader that keeps old ensembles."""
    cluster, client, writer = await start(4, names="b0 b1 b2 b3 b4 b5")
    await writer.close()
    reader = await client.open(writer.ledger_id)
    metadata = cluster.stored_metadata(writer.ledger_id)
    old = metadata.last_fragment.ensemble
    new = tuple(sorted(set(cluster.bookies.writable) - set(old)))
    for before, after in zip(old, new, strict=True):
        cluster.bookies[after].ledgers = dict(cluster.bookies[before].ledgers)
        cluster.bookies[before].wipe()
    moved = metadata.last_fragment._replace(ensemble=new)
    cluster.store_metadata(
        writer.ledger_id,
        metadata.__class__(
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            fragments=(moved,),
            state=metadata.state,
            last_entry=metadata.last_entry,
            length=metadata.length,
            digest_type=metadata.digest_type,
            password=metadata.password,
        ),
    )
    assert [bytes(e.payload) for e in await reader.read(*ids(0, 3))] == payloads(0, 3)


async def test_a_tail_is_read_up_to_the_lac_that_bookies_know() -> None:
    _, client, writer = await start(4)
    reader = await client.open(writer.ledger_id)
    assert reader.last_entry == 2, "entry 3 carries LAC 2"
    assert not reader.closed
    assert len(await reader.read(*ids(0, 2))) == 3
    with pytest.raises(ReadFailed):
        await reader.read(*ids(0, 3))
    assert len(await reader.read_unconfirmed(*ids(0, 3))) == 4
    await writer.append(b"entry 4")
    assert reader.last_entry == 2
    assert await reader.refresh() == 3
    await writer.close()
    await settle()
    assert await reader.refresh() == 4
    assert reader.closed


async def test_a_tail_follows_an_ensemble_change() -> None:
    cluster, client, writer = await start(4, names="b0 b1 b2 b3")
    reader = await client.open(writer.ledger_id)
    lost = writer.metadata.last_fragment.ensemble[0]
    cluster.bookies[lost].crash()
    await writer.append(b"entry 4")
    await writer.append(b"entry 5")
    await writer.append(b"entry 6")
    await settle()
    assert await reader.refresh() == 5
    assert len(reader.metadata.fragments) == 2


async def test_lac_coverage_is_needed_for_a_tail() -> None:
    cluster, client, writer = await start(4)
    cluster.bookies["b0"].crash()
    assert (await client.open(writer.ledger_id)).last_entry == 2
    cluster.bookies["b1"].crash()
    with pytest.raises(ReadFailed):
        await client.open(writer.ledger_id)


async def test_a_tails_lac_never_goes_back() -> None:
    cluster, client, writer = await start(4)
    reader = await client.open(writer.ledger_id)
    for name in ("b0", "b1", "b2"):
        cluster.bookies[name].ledgers[writer.ledger_id].entries = {}
    assert await reader.refresh() == 2


async def test_a_damaged_last_entry_gives_no_lac() -> None:
    cluster, client, writer = await start(4)
    for name in ("b0", "b1", "b2"):
        cluster.bookies[name].damage(writer.ledger_id, EntryId(3))
    assert (await client.open(writer.ledger_id)).last_entry == -1


async def test_a_late_lac_answer_changes_nothing() -> None:
    cluster, client, writer = await start(4)

    def hold_lac(request: Request) -> Fate:
        return Fate.HOLD_ANSWER if isinstance(request, ReadLacRequest) else Fate.DELIVER

    cluster.bookies["b0"].fate_of = hold_lac
    assert (await client.open(writer.ledger_id)).last_entry == 2
    cluster.bookies["b0"].fail_held(BookieUnavailable("late"))
    await settle()


async def test_a_tail_whose_ledger_is_deleted() -> None:
    _, client, writer = await start(4)
    reader = await client.open(writer.ledger_id)
    await reader.refresh()
    await client.delete(writer.ledger_id)
    await settle()
    with pytest.raises(NoSuchLedger):
        await reader.refresh()
    with pytest.raises(NoSuchLedger):
        await client.open(writer.ledger_id)


async def test_a_failed_reload_is_tried_again() -> None:
    cluster, client, writer = await start(4)
    reader = await client.open(writer.ledger_id)
    metadata = cluster.stored_metadata(writer.ledger_id)
    cluster.metadata.tree.set("/ledgers/00/0000/L0000", b"rubbish", -1)
    reader._view._on_change()  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(Exception, match="format version"):
            await reader.refresh()
    cluster.store_metadata(writer.ledger_id, metadata)
    assert await reader.refresh() == 2
