"""What dealing with one answer raises reaches the one who asked, as an error, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.callbacks import Kind
from client.errors import ReadFailed, RecoveryInconclusive
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core.reads import LacQuorum, LongPolls
from client.ledger.core.recovery import Recovery
from client.ledger.read import range_read
from client.ledger.read.batch_read import BatchReads
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.messages import AddRequest, Request
from tests.fakes import virtual_time
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, settle
from tests.fakes.raised import Bug, Reports, broken


def lose_recovery_adds(request: Request) -> Fate:
    is_lost = isinstance(request, AddRequest) and request.recovery
    return Fate.LOSE_REQUEST if is_lost else Fate.DELIVER


async def start(**settings: Any) -> tuple[Reports, LedgerCluster, LedgerClient, LedgerWriter]:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client(LedgerClientConfig(metadata_retry_delay_ms=0, **settings))
    writer = await client.create()
    for number in range(4):
        await writer.append(b"%d" % number)
    return Reports(), cluster, client, writer


async def test_a_read_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, _, _, writer = await start()
    reader, plain = writer.reader(), range_read.open_entry

    def open_entry(codec: Any, entry_id: Any, answer: Any) -> Any:
        return broken() if entry_id == 1 else plain(codec, entry_id, answer)

    monkeypatch.setattr(range_read, "open_entry", open_entry)
    one, other = await asyncio.gather(
        reader.read(EntryId(0), EntryId(1)),
        reader.read(EntryId(2), EntryId(3)),
        return_exceptions=True,
    )
    assert isinstance(one, ReadFailed)
    assert isinstance(one.__cause__, Bug)
    assert not isinstance(other, BaseException)
    assert [entry.entry_id for entry in other] == [2, 3]
    assert reports.kinds() == {Kind.REQUEST: 1}


def test_a_read_fails_when_asking_beside_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        reports, cluster, _, writer = await start()
        for name in cluster.bookies.writable:
            cluster.bookies[name].fate_of = lambda request: Fate.HOLD_REQUEST
        monkeypatch.setattr(writer._context.health, "on_slow", broken)
        with pytest.raises(ReadFailed):
            await writer.reader().read(EntryId(0), EntryId(0))
        assert reports.kinds() == {Kind.REQUEST: 1}

    virtual_time.run(scenario())


async def test_a_batch_read_goes_on_with_other_bookies(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, cluster, client, writer = await start()
    monkeypatch.setattr(BatchReads, "_tells_of_lack", broken)
    for name in ("b0", "b1"):
        cluster.bookies[name].crash()
    reads = BatchReads(writer._context)
    found = await reads.read(EntryId(0), EntryId(3), writer.metadata, writer._codec, 1 << 20)
    assert len(found) == 4
    assert reports.kinds().keys() == {Kind.REQUEST}
    await client.close()


async def test_the_question_for_the_lac_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, cluster, _, writer = await start()
    other = await cluster.client()
    monkeypatch.setattr(LacQuorum, "on_known", broken)
    with pytest.raises(ReadFailed) as caught:
        await other.open(writer.ledger_id)
    assert isinstance(caught.value.__cause__, Bug)
    assert reports.kinds() == {Kind.REQUEST: 1}


async def test_following_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, cluster, _, writer = await start()
    reader = await (await cluster.client()).open(writer.ledger_id)
    waiting = asyncio.ensure_future(reader.wait(EntryId(50)))
    await settle()
    monkeypatch.setattr(LongPolls, "on_answer", broken)
    cluster.bookies["b0"].crash()
    await writer.append(b"x")
    await writer.append(b"x")
    with pytest.raises(ReadFailed) as caught:
        await waiting
    assert isinstance(caught.value.__cause__, Bug)
    assert reports.kinds().keys() == {Kind.REQUEST}


@pytest.mark.parametrize("step", ["on_fence_answer", "on_read_answer", "on_stored", "on_failed"])
async def test_a_recovery_fails_and_another_one_succeeds(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    reports, cluster, _, writer = await start()
    recoverer = await cluster.client()
    for name in cluster.bookies.writable if step == "on_failed" else ():
        cluster.bookies[name].fate_of = lose_recovery_adds
    monkeypatch.setattr(Recovery, step, broken)
    with pytest.raises(RecoveryInconclusive) as caught:
        await recoverer.recover(writer.ledger_id)
    assert isinstance(caught.value.__cause__, Bug)
    assert reports.kinds().keys() == {Kind.REQUEST}
    monkeypatch.undo()
    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: Fate.DELIVER
    assert (await recoverer.recover(writer.ledger_id)).last_entry == 3
