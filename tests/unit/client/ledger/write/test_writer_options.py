"""What a writer offers beyond `add`: submit and flush, chosen ids, limits, explicit LAC, marks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from client.errors import (
    DuplicateEntryId,
    LedgerClosed,
    LedgerFenced,
    Outcome,
    QuorumTimeout,
    WriteFailed,
)
from client.ids import EntryId
from client.ledger.config import LedgerClientConfig
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.messages import AddRequest, Request, WriteLacRequest
from tests.fakes import virtual_time
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle


async def start(
    *names: str, sizes: tuple[int, int, int] = (3, 3, 2), **settings: Any
) -> tuple[LedgerCluster, LedgerWriter]:
    cluster = await LedgerCluster.start(*(names or ("b0", "b1", "b2")))
    client = await cluster.client(LedgerClientConfig(metadata_retry_delay_ms=0, **settings))
    ensemble, write, ack = sizes
    writer = await client.create(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
    return cluster, writer


def run(scenario: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(scenario)


def hold_adds(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER


def lose_adds(request: Request) -> Fate:
    return Fate.LOSE_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER


async def test_submit_sends_and_flush_waits_for_all_of_it() -> None:
    cluster, writer = await start()
    for name in ("b0", "b1"):
        cluster.bookies[name].fate_of = hold_adds
    assert [await writer.submit(b"x") for _ in range(3)] == [0, 1, 2]
    flushing = asyncio.ensure_future(writer.flush())
    await settle()
    assert not flushing.done()
    for name in ("b0", "b1"):
        cluster.bookies[name].release()
    assert await flushing == 2
    assert writer.progress.last_add_confirmed == 2


async def test_flush_does_not_wait_for_what_is_sent_later() -> None:
    cluster, writer = await start()
    await writer.submit(b"x")
    flushing = asyncio.ensure_future(writer.flush())
    await settle(1)
    for name in ("b0", "b1"):
        cluster.bookies[name].fate_of = hold_adds
    await writer.submit(b"y")
    assert await flushing == 0


async def test_flush_of_an_empty_ledger() -> None:
    _, writer = await start()
    assert await writer.flush() == -1


async def test_flush_tells_that_the_outcome_is_unknown() -> None:
    cluster, writer = await start()
    for name in ("b0", "b1"):
        cluster.bookies[name].is_down = True
    await writer.submit(b"x")
    with pytest.raises(WriteFailed) as caught:
        await writer.flush()
    assert caught.value.outcome is Outcome.UNKNOWN
    with pytest.raises(LedgerFenced):
        cluster, writer = await start()
        await writer.submit(b"x")
        await (await cluster.client()).recover(writer.ledger_id)
        await writer.submit(b"y")
        await writer.flush()


async def test_submit_waits_for_room_and_the_end_wakes_it() -> None:
    cluster, writer = await start(writer_in_flight_bytes_max=10)
    for name in ("b1", "b2"):
        cluster.bookies[name].fate_of = hold_adds
    await writer.submit(b"0123456789")
    waiting = asyncio.ensure_future(writer.submit(b"x"))
    await settle()
    assert writer.progress.last_add_pushed == 0
    assert not waiting.done()
    writer.abandon()
    with pytest.raises(LedgerClosed):
        await waiting


async def test_chosen_ids_are_confirmed_in_order() -> None:
    _, writer = await start()
    outcomes = Outcomes(writer)
    writer.add([b"c"], lambda *told: outcomes.told.append(told), entry_id=EntryId(2))
    writer.add([b"b"], lambda *told: outcomes.told.append(told), entry_id=EntryId(1))
    await settle()
    assert outcomes.told == []
    with pytest.raises(DuplicateEntryId):
        writer.add([b"b"], lambda *told: None, entry_id=EntryId(1))
    assert await writer.append(b"a", entry_id=EntryId(0)) == 0
    assert outcomes.confirmed == [1, 2]
    await writer.close()
    assert writer.metadata.length == 3
    found = [bytes(entry.payload) async for entry in writer.reader().entries()]
    assert found == [b"a", b"b", b"c"]


async def test_the_entry_that_fills_the_gap_needs_no_room() -> None:
    _, writer = await start(writer_in_flight_bytes_max=10)
    await writer.submit(b"0123456789", entry_id=EntryId(1))
    assert await asyncio.wait_for(writer.append(b"gap", entry_id=EntryId(0)), 10) == 0
    assert writer.progress.last_add_confirmed == 1


async def test_close_does_not_wait_behind_a_gap() -> None:
    cluster, writer = await start()
    outcomes = Outcomes(writer)
    await writer.append(b"a", entry_id=EntryId(0))
    writer.add([b"far"], lambda *told: outcomes.told.append(told), entry_id=EntryId(10**12))
    await writer.close()
    assert outcomes.failed == [10**12]
    closed = cluster.stored_metadata(writer.ledger_id)
    assert (closed.last_entry, closed.length) == (0, 1)


def test_the_quorum_timeout_ends_a_stall() -> None:
    """Nobody refuses, nobody answers; the request timeout of real bookies is longer here."""

    async def scenario() -> None:
        cluster, writer = await start(add_quorum_timeout_ms=8_000)
        loop = asyncio.get_running_loop()
        assert await writer.append(b"fine") == 0
        await asyncio.sleep(100)
        for name in ("b0", "b1", "b2"):
            cluster.bookies[name].fate_of = hold_adds
        began_s = loop.time()
        with pytest.raises(QuorumTimeout):
            await writer.append(b"stuck")
        assert 8 <= loop.time() - began_s <= 10
        with pytest.raises(QuorumTimeout):
            await writer.append(b"more")

    run(scenario())


async def test_ensemble_changes_are_limited() -> None:
    cluster, writer = await start("b0", "b1", "b2", "b3", "b4", ensemble_changes_max=1)
    outcomes = Outcomes(writer)
    cluster.bookies[writer.metadata.last_fragment.ensemble[0]].crash()
    outcomes.add()
    await settle()
    assert outcomes.confirmed == [0]
    cluster.bookies[writer.metadata.last_fragment.ensemble[1]].crash()
    outcomes.add()
    await settle()
    assert outcomes.errors == [WriteFailed]
    assert writer.is_ended


async def test_a_change_that_replaced_nobody_does_not_count() -> None:
    cluster, writer = await start(ensemble_changes_max=1)
    outcomes = Outcomes(writer)
    cluster.bookies["b0"].crash()
    for _ in range(3):
        outcomes.add()
        await settle()
        cluster.bookies.set_writable(["b1", "b2"])
        await settle()
    cluster.bookies.set_writable(["b1", "b2", "b9"])
    await settle()
    outcomes.add()
    await settle()
    assert outcomes.confirmed == [0, 1, 2, 3]
    assert "b9" in writer.metadata.last_fragment.ensemble


async def test_a_delayed_change_leaves_metadata_alone_until_quorums_fail() -> None:
    cluster, writer = await start("b0", "b1", "b2", "b3", "b4", delay_ensemble_change=True)
    outcomes = Outcomes(writer)
    ensemble = writer.metadata.last_fragment.ensemble
    cluster.bookies[ensemble[0]].crash()
    for _ in range(3):
        outcomes.add()
        await settle()
    assert len(cluster.stored_metadata(writer.ledger_id).fragments) == 1
    cluster.bookies[ensemble[1]].crash()
    outcomes.add()
    await settle()
    assert outcomes.confirmed == [0, 1, 2, 3]
    fragments = cluster.stored_metadata(writer.ledger_id).fragments
    assert [fragment.first_entry for fragment in fragments] == [0, 3]
    assert not {ensemble[0], ensemble[1]} & {*fragments[1].ensemble}
    await writer.close()
    await settle()
    assert ensemble[0] in await cluster.marked(writer.ledger_id)


def test_explicit_lac_tells_the_last_confirmation() -> None:
    """EXPLICIT-LAC: once per interval, only if LAC moved, to the write set of that entry."""

    async def scenario() -> None:
        cluster, writer = await start(
            "b0", "b1", "b2", "b3", sizes=(4, 2, 2), explicit_lac_interval_ms=500
        )
        for _ in range(3):
            await writer.append(b"x")
        sent = [packets(cluster, name) for name in writer.metadata.last_fragment.ensemble]
        assert sent == [[], [], [], []], "not before the interval is over"
        await asyncio.sleep(10)
        sent = [packets(cluster, name) for name in writer.metadata.last_fragment.ensemble]
        assert sent == [[], [], [2], [2]]
        reader = await (await cluster.client()).open(writer.ledger_id)
        assert reader.last_entry == 2, "entries alone say 1"
        await writer.append(b"x")
        await writer.close()
        await asyncio.sleep(10)
        sent = [packets(cluster, name) for name in writer.metadata.last_fragment.ensemble]
        assert sent == [[], [], [2], [2]], "a closed ledger's end is in its metadata"

    run(scenario())


def packets(cluster: LedgerCluster, name: str) -> list[EntryId]:
    return [r.lac for r in cluster.bookies[name].seen if isinstance(r, WriteLacRequest)]


async def test_holes_are_marked_when_the_writer_closes() -> None:
    cluster, writer = await start()
    cluster.bookies["b2"].fate_of = lose_adds
    for _ in range(3):
        await writer.append(b"x")
    assert await cluster.marked(writer.ledger_id) == set()
    await writer.close()
    await settle()
    assert await cluster.marked(writer.ledger_id) == cluster.lacking(writer.ledger_id) == {"b2"}


async def test_holes_are_marked_when_the_client_closes() -> None:
    """The last answers come a moment after the last `append`."""
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    cluster.bookies["b2"].fate_of = hold_adds
    await writer.append(b"x")
    closing = asyncio.ensure_future(client.close())
    await settle()
    assert not closing.done(), "b2 has not answered"
    cluster.bookies["b2"].fate_of = lose_adds
    cluster.bookies["b2"].crash()
    await closing
    assert await cluster.marked(writer.ledger_id) == {"b2"}


async def test_a_writer_is_a_context_manager() -> None:
    cluster, writer = await start()
    async with writer:
        await writer.submit(b"x")
    assert cluster.stored_metadata(writer.ledger_id).last_entry == 0
    cluster, writer = await start()
    with pytest.raises(ZeroDivisionError):
        async with writer:
            await writer.append(b"x")
            raise ZeroDivisionError
    assert not cluster.stored_metadata(writer.ledger_id).is_closed
    assert writer.is_ended
