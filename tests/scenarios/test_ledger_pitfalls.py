"""Losses and hangs of Apache BookKeeper's history that concern a client, by issue number.

What is not here has a test elsewhere: `tests/README.md` has the table.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from client.errors import (
    DigestMismatch,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    NoSuchLedger,
    UnauthorizedAccess,
)
from client.ids import EntryId
from client.ledger.core.ledger_metadata import LedgerState
from client.wire.bookkeeper.messages import AddRequest, ReadRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle


async def test_bookkeeper_135_nobody_fences_without_the_password() -> None:
    """Neither our client nor, should metadata not tell the password, the bookies let it pass."""
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client, stranger = await cluster.client(), await cluster.client()
    writer = await client.create(password=b"secret")
    await writer.append(b"one")
    with pytest.raises(UnauthorizedAccess):
        await stranger.recover(writer.ledger_id, password=b"guess")
    assert cluster.stored_metadata(writer.ledger_id).state is LedgerState.OPEN
    fence = ReadRequest(writer.ledger_id, EntryId(-1), fence=True, master_key=b"guess" * 4)
    for name in ("b0", "b1", "b2"):
        assert isinstance(cluster.bookies[name].apply(fence), UnauthorizedAccess)
    assert await writer.append(b"two") == 1, "nobody was fenced"


async def test_4462_a_writer_of_a_deleted_ledger_does_not_bring_it_back() -> None:
    """Fenced, recovered, deleted, its bookies have forgotten it: adds pass, the end does not."""
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client, other = await cluster.client(), await cluster.client()
    first, second = await client.create(), await client.create()
    for writer in (first, second):
        await writer.append(b"one")
        await other.recover(writer.ledger_id)
        await other.delete(writer.ledger_id)
    for name in ("b0", "b1", "b2", "b3"):
        cluster.bookies[name].wipe()
    with pytest.raises(NoSuchLedger):
        await first.close()
    cluster.bookies[second.metadata.last_fragment.ensemble[0]].crash()
    outcomes = Outcomes(second)
    with pytest.raises(NoSuchLedger):  # what an ensemble change finds
        for _ in range(4):
            outcomes.add()
            await settle()
    assert outcomes.failed
    for writer in (first, second):
        with pytest.raises(NoSuchLedger):
            await other.describe(writer.ledger_id)


@pytest.mark.parametrize("seed", range(20))
async def test_4171_4175_4557_every_add_is_told_once_whatever_its_owner_does(seed: int) -> None:
    """Callbacks that add, close, abandon and raise, answers in any order, a fence in between."""
    rng = random.Random(seed)
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client = await cluster.client()
    writer = await client.create()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    told: list[int] = []
    sent: list[int] = []

    def add() -> None:
        try:
            sent.append(writer.add([b"x"], on_done))
        except LedgerError:
            return

    def on_done(entry_id: EntryId, error: LedgerError | None) -> None:
        told.append(entry_id)
        match rng.randrange(40):
            case 0:
                writer.abandon()
            case 1:
                raise RuntimeError("a bug of the owner")
            case number if number < 12:
                add()

    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: (
            rng.choice(list(Fate)) if is_plain_add(request) else Fate.DELIVER
        )
    for _ in range(40):
        add()
        await settle(rng.randrange(4))
        bookie = cluster.bookies[rng.choice(cluster.bookies.writable)]
        rng.shuffle(bookie.held)
        bookie.release(rng.randrange(3))
    if rng.random() < 0.3:
        await (await cluster.client()).recover(writer.ledger_id)
    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: Fate.DELIVER
        cluster.bookies[name].release()
    await settle(200)
    writer.abandon()
    await settle()
    assert told == sorted(told) == sent


async def test_4680_4788_reads_that_retry_keep_their_own_write_sets() -> None:
    """Many entries retry at once, each over other bookies: nobody is asked for what is not his."""
    cluster = await LedgerCluster.start(*(f"b{number}" for number in range(5)))
    client = await cluster.client()
    writer = await client.create(ensemble_size=5, write_quorum=3, ack_quorum=2)
    for number in range(40):
        await writer.append(b"%d" % number)
    await settle()
    for index in (1, 3):
        name = writer.metadata.last_fragment.ensemble[index]
        cluster.bookies[name].fate_of = lambda request: (
            Fate.LOSE_REQUEST if isinstance(request, ReadRequest) else Fate.DELIVER
        )
    found = await writer.reader().read(0, 39)
    assert [bytes(entry.payload) for entry in found] == [b"%d" % number for number in range(40)]
    ensemble = writer.metadata.last_fragment.ensemble
    for index, name in enumerate(ensemble):
        for request in cluster.bookies[name].seen:
            if isinstance(request, ReadRequest):
                assert index in writer.metadata.schedule.write_set(request.entry_id)


async def test_4404_4289_4293_what_is_sent_again_is_what_was_sent_first() -> None:
    """Byte for byte, also when the owner's next entries were sealed meanwhile."""
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    writer = await (await cluster.client()).create()
    outcomes = Outcomes(writer)
    ensemble = writer.metadata.last_fragment.ensemble
    for name in ensemble:
        cluster.bookies[name].fate_of = lambda request: Fate.HOLD_REQUEST
    for number in range(10):
        outcomes.add(b"payload %d" % number)
    cluster.bookies[ensemble[1]].crash()
    for name in (ensemble[0], ensemble[2]):
        cluster.bookies[name].fate_of = lambda request: Fate.DELIVER
        cluster.bookies[name].release()
    await settle()
    assert outcomes.confirmed == list(range(10))
    replacement = writer.metadata.last_fragment.ensemble[1]
    assert replacement != ensemble[1]
    for entry_id in map(EntryId, range(10)):
        copies = {
            cluster.bookies[name].ledgers[writer.ledger_id].entries[entry_id]
            for name in writer.metadata.last_fragment.ensemble
        }
        assert len(copies) == 1


async def test_4789_a_read_ends_though_its_retries_meet_wrong_digests() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    writer = await (await cluster.client()).create()
    for _ in range(10):
        await writer.append(b"entry")
    await settle()
    for name in ("b0", "b1"):
        for entry_id in map(EntryId, range(10)):
            cluster.bookies[name].damage(writer.ledger_id, entry_id)
    async with asyncio.timeout(30):
        assert len(await writer.reader().read(0, 9)) == 10
    cluster.bookies["b2"].damage(writer.ledger_id, EntryId(7))
    async with asyncio.timeout(30):
        with pytest.raises(DigestMismatch):
            await writer.reader().read(0, 9)


async def test_2006_a_chosen_id_is_recognised_as_well() -> None:
    """The create whose answer was lost is ours by its token; a stranger's is not."""
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client, other = await cluster.client(), await cluster.client()
    writer = await client.create(ledger_id=7)
    await writer.append(b"x")
    with pytest.raises(LedgerError):
        await other.create(ledger_id=7)
    assert await writer.append(b"y") == 1


async def test_1712_a_writer_that_closes_first_is_right() -> None:
    """The recoverer finds CLOSED when it wants to write its own end."""
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client, other = await cluster.client(), await cluster.client()
    writer = await client.create()
    await writer.append(b"x")
    await writer.close()
    assert (await other.recover(writer.ledger_id)).last_entry == 0
    with pytest.raises((LedgerClosed, LedgerFenced)):
        await writer.append(b"late")


def is_plain_add(request: Request) -> bool:
    return isinstance(request, AddRequest) and not request.recovery
