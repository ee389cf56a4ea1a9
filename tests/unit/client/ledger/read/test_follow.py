"""Following an open ledger: waiting for entries, its end, and bookies that do not help."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from client.errors import NoSuchLedger
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.read.reader import LedgerReader
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.messages import AddRequest, ReadRequest, Request
from tests.fakes import virtual_time
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle


class Bench:
    """A writer in one client, a follower in another."""

    def __init__(self, cluster: LedgerCluster, clients: list[LedgerClient], writer: LedgerWriter):
        self.cluster = cluster
        self.clients = clients
        self.writer = writer
        self.reader: LedgerReader

    @classmethod
    async def start(cls, names: str = "b0 b1 b2", **settings: Any) -> Bench:
        cluster = await LedgerCluster.start(*names.split())
        config = LedgerClientConfig(metadata_retry_delay_ms=0, **settings)
        clients = [await cluster.client(config) for _ in range(2)]
        bench = cls(cluster, clients, await clients[0].create())
        bench.reader = await clients[1].open(bench.writer.ledger_id)
        return bench

    def polls(self) -> int:
        """Count the long polls that bookies got."""
        return sum(
            isinstance(request, ReadRequest) and request.previous_lac is not None
            for name in ("b0", "b1", "b2")
            for request in self.cluster.bookies[name].seen
        )


def run(scenario: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(scenario)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_follower_hears_of_an_entry_when_the_next_one_carries_its_confirmation() -> None:
    async def scenario() -> None:
        bench = await Bench.start()
        await bench.writer.append(b"one")
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(-1)))
        await asyncio.sleep(7)
        assert not waiting.done(), "nobody but the writer knows that it is confirmed"
        began_s = now_s()
        await bench.writer.append(b"two")
        assert await waiting == 0
        assert now_s() == began_s, "at once, not at the end of a poll"

    run(scenario())


def test_an_explicit_lac_wakes_followers_of_a_silent_writer() -> None:
    async def scenario() -> None:
        bench = await Bench.start(explicit_lac_interval_ms=300)
        await bench.writer.append(b"one")
        await bench.reader.wait(EntryId(-1))
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(0)))
        await asyncio.sleep(5)
        began_s = now_s()
        await bench.writer.append(b"two")
        assert await waiting == 1
        assert now_s() - began_s == pytest.approx(0.3)

    run(scenario())


def test_tail_yields_everything_in_order_to_the_end() -> None:
    async def scenario() -> None:
        bench = await Bench.start(read_window_entries=4)
        seen: list[bytes] = []

        async def follow() -> None:
            async for entry in bench.reader.tail():
                seen.append(bytes(entry.payload))

        following = asyncio.ensure_future(follow())
        for number in range(20):
            await bench.writer.append(b"%d" % number)
            await asyncio.sleep(0.7 if number % 5 == 0 else 0.0)
        await asyncio.sleep(10)
        assert not following.done()
        await bench.writer.close()
        await following
        assert seen == [b"%d" % number for number in range(20)]

    run(scenario())


def test_tail_of_a_closed_ledger_just_reads_it() -> None:
    async def scenario() -> None:
        bench = await Bench.start()
        await bench.writer.append(b"one")
        await bench.writer.close()
        reader = await bench.clients[1].open(bench.writer.ledger_id)
        assert [bytes(entry.payload) async for entry in reader.tail()] == [b"one"]
        assert [entry async for entry in reader.tail(EntryId(1))] == []
        assert bench.polls() == 0

    run(scenario())


def test_a_follower_moves_on_with_the_ensemble() -> None:
    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2 b3")
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(3)))
        outcomes = Outcomes(bench.writer)
        lost = bench.writer.metadata.last_fragment.ensemble[1]
        await asyncio.sleep(1)
        bench.cluster.bookies[lost].crash()
        for _ in range(6):
            outcomes.add()
            await asyncio.sleep(0.1)
        assert await waiting >= 4
        (spare,) = {"b0", "b1", "b2", "b3"} - {*bench.reader.metadata.fragments[0].ensemble}
        asked = [r for r in bench.cluster.bookies[spare].seen if isinstance(r, ReadRequest)]
        assert any(request.previous_lac is not None for request in asked)

    run(scenario())


def test_bookies_that_know_nothing_new_are_not_pestered() -> None:
    """TAIL-POLL: a fenced ledger answers at once, a dead bookie fails at once."""

    async def scenario() -> None:
        bench = await Bench.start()
        await bench.writer.append(b"one")
        bench.cluster.bookies["b1"].is_down = True
        for name in ("b0", "b2"):
            bench.cluster.bookies[name].ledgers[bench.writer.ledger_id].fenced = True
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(0)))
        await asyncio.sleep(60)
        assert not waiting.done()
        assert bench.polls() <= 3 * (2 * 60 + 1)
        waiting.cancel()

    run(scenario())


def test_one_bookie_that_hears_of_it_is_enough() -> None:
    async def scenario() -> None:
        bench = await Bench.start()
        await bench.writer.append(b"one")
        hang = bench.cluster.bookies["b0"], bench.cluster.bookies["b1"]
        for bookie in hang:
            bookie.fate_of = hold_polls
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(-1)))
        await asyncio.sleep(1)
        await bench.writer.append(b"two")
        assert await waiting == 0

    run(scenario())


def hold_polls(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if isinstance(request, ReadRequest) else Fate.DELIVER


def test_followers_learn_of_a_recovery_and_of_a_deletion() -> None:
    async def scenario() -> None:
        bench = await Bench.start()
        await bench.writer.append(b"one")
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(5)))
        await asyncio.sleep(1)
        await bench.clients[1].recover(bench.writer.ledger_id)
        assert await waiting == 0
        assert bench.reader.closed
        other = await bench.clients[0].create()
        reader = await bench.clients[1].open(other.ledger_id)
        waiting = asyncio.ensure_future(reader.wait(EntryId(5)))
        await asyncio.sleep(1)
        await bench.clients[0].delete(other.ledger_id)
        with pytest.raises(NoSuchLedger):
            await waiting

    run(scenario())


def test_without_long_polls_bookies_are_asked_now_and_again() -> None:
    """Version 2 of the wire protocol alone."""

    async def scenario() -> None:
        bench = await Bench.start(long_poll_ms=400)
        bench.cluster.bookies.has_long_poll = False
        await bench.writer.append(b"one")
        waiting = asyncio.ensure_future(bench.reader.wait(EntryId(-1)))
        await asyncio.sleep(3)
        began_s = now_s()
        await bench.writer.append(b"two")
        assert await waiting == 0
        assert now_s() - began_s <= 0.5
        assert bench.polls() == 0

    run(scenario())


async def test_the_writers_own_reader_follows_it() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    writer = await (await cluster.client()).create()
    reader = writer.reader()
    for name in ("b0", "b1"):
        cluster.bookies[name].fate_of = hold_adds
    waiting = asyncio.ensure_future(reader.wait(EntryId(-1)))
    await writer.submit(b"one")
    await settle()
    assert not waiting.done()
    for name in ("b0", "b1"):
        cluster.bookies[name].release()
    assert await waiting == 0
    waiting = asyncio.ensure_future(reader.wait(EntryId(0)))
    await settle()
    writer.abandon()
    assert await waiting == 0, "nothing more will come"


def hold_adds(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER
