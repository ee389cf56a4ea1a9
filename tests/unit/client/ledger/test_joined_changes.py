"""Ledgers whose changes of metadata somebody else makes, in a transaction of his own."""

from __future__ import annotations

import pytest

from client.errors import NodeExists, NoSuchLedger, NotEnoughBookies, VersionConflict
from client.ids import EntryId, LedgerId
from client.ledger.core.ledger_metadata import LedgerState
from client.metadata import paths
from tests.fakes.ledger_cluster import LedgerCluster, settle

QUORUMS = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


async def test_a_planned_ledger_is_there_once_its_change_was_made() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    planned = await client.plan(**QUORUMS, password=b"p", custom_metadata={"of": b"us"})
    assert [change.path for change in planned.changes] == [paths.ledger(planned.ledger_id)]
    with pytest.raises(NoSuchLedger):
        await client.describe(planned.ledger_id)
    assert client.stats.created == 0
    await client.requests.multi(planned.changes)
    writer = planned.created()
    assert client.stats.created == 1
    assert await writer.append(b"x") == 0
    metadata = cluster.stored_metadata(planned.ledger_id)
    assert metadata == writer.metadata
    assert metadata.custom_metadata == {"of": b"us"}
    await writer.close()
    reader = await (await cluster.client()).open(planned.ledger_id, password=b"p")
    assert reader.last_entry == 0


async def test_a_planned_ledger_has_the_id_that_was_taken_or_takes_one() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    taken = await client.take_id()
    planned = await client.plan(**QUORUMS, ledger_id=taken)
    assert planned.ledger_id == taken
    other = await client.plan(**QUORUMS)
    assert other.ledger_id > taken
    await settle()
    assert cluster.metadata.tree.children("/ledgers/idgen") == [], "the nodes behind them go"


async def test_a_plan_needs_bookies_and_its_transaction_an_id_that_nobody_has() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    taken = (await client.create(**QUORUMS)).ledger_id
    planned = await client.plan(**QUORUMS, ledger_id=taken)
    with pytest.raises(NodeExists):
        await client.requests.multi(planned.changes)
    with pytest.raises(NotEnoughBookies):
        await client.plan(ensemble_size=4, write_quorum=4, ack_quorum=2)


async def test_an_end_that_was_found_is_closed_by_the_change() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    writer = await (await cluster.client()).create(**QUORUMS)
    for _ in range(5):
        writer.add([b"xy"], lambda *_: None)
    await settle()
    client = await cluster.client()
    found = await client.recoveries.find_end(writer.ledger_id)
    assert (found.reader.last_entry, found.reader.length) == (4, 10)
    assert len(await found.reader.read(EntryId(0), EntryId(4))) == 5
    assert cluster.stored_metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY
    assert found.close is not None
    await client.requests.multi([found.close])
    closed = cluster.stored_metadata(writer.ledger_id)
    assert (closed.state, closed.last_entry, closed.length) == (LedgerState.CLOSED, 4, 10)
    assert (await client.recoveries.find_end(writer.ledger_id)).close is None
    cluster.check_ledger(writer.ledger_id, [EntryId(number) for number in range(5)])


async def test_who_closes_it_first_is_right() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    writer = await (await cluster.client()).create(**QUORUMS)
    await writer.append(b"x")
    client, other = await cluster.client(), await cluster.client()
    found = await client.recoveries.find_end(writer.ledger_id)
    await other.recover(writer.ledger_id)
    assert found.close is not None
    with pytest.raises(VersionConflict):
        await client.requests.multi([found.close])


async def test_a_recovery_begins_from_what_was_read_and_marked() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    first = await cluster.client()
    closed, open_ = await first.create(**QUORUMS), await first.create(**QUORUMS)
    await closed.append(b"x")
    await closed.close()
    await open_.append(b"y")
    client = await cluster.client()
    older, newer = await client.recoveries.starts([closed.ledger_id, open_.ledger_id])
    assert older.mark is None
    assert newer.mark is not None
    await client.requests.multi([newer.mark])
    seen: list[str] = []
    cluster.metadata.on_request = lambda operation: seen.append(operation.name)
    assert (await client.recoveries.recover(older.ledger_id, older)).last_entry == 0
    found = await client.recoveries.find_end(newer.ledger_id, newer.after_mark())
    assert found.reader.last_entry == 0
    assert seen == []
    assert found.close is not None
    await client.requests.multi([found.close])
    assert cluster.stored_metadata(open_.ledger_id).is_closed


async def test_a_start_that_is_outdated_only_costs_a_reading() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    writer = await (await cluster.client()).create(**QUORUMS)
    await writer.append(b"x")
    client = await cluster.client()
    [start] = await client.recoveries.starts([writer.ledger_id])
    await writer.close()
    assert (await client.recoveries.find_end(writer.ledger_id, start)).close is None
    with pytest.raises(NoSuchLedger):
        await client.recoveries.starts([writer.ledger_id, LedgerId(writer.ledger_id + 1)])
