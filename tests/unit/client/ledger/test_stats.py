"""What the ledger client counts of its bookies."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from client.errors import BookieTimeout, BookieUnavailable, NoSuchEntry
from client.ids import BookieId, EntryId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookies import Bookies
from client.ledger.metrics import ROWS, LedgerStats, provide_ledgers
from client.metadata.memory import MemoryCluster
from client.node.exposition import Exposition, table
from client.wire.bookkeeper.messages import (
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
)
from tests.fakes.bookies import Fate
from tests.fakes.scrape import parse
from tests.fakes.wire_bookie import WireBookie
from tests.unit.client.ledger.bookies.test_bookies import LEDGER, QUICK, add, send


class World:
    """One bookie, and the connections to it that count."""

    def __init__(self) -> None:
        self.server = WireBookie()
        self.stats = LedgerStats()
        self.bookies = Bookies(
            BookieDirectory(MemoryCluster().session(), "/ledgers"), QUICK, self.stats
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.server.start()
    yield world
    world.bookies.close()
    await world.server.stop()


async def test_answers_are_timed_by_kind_whatever_they_say(world: World) -> None:
    bookie = world.bookies.bookie(world.server.id)
    stats = world.stats.bookies[world.server.id]
    await asyncio.gather(*(send(bookie, add(entry), 5) for entry in range(3)))
    assert isinstance(await send(bookie, ReadRequest(LEDGER, EntryId(9))), NoSuchEntry)
    await send(bookie, ReadLacRequest(LEDGER))
    counts = {operation: seconds.count for operation, seconds in stats.by_operation()}
    assert counts == {"add": 3, "read": 1, "other": 1}
    assert 0 < stats.adds.total < 60
    assert stats.errors == 0


async def test_bytes_of_entries_that_a_bookie_gave_are_counted(world: World) -> None:
    bookie = world.bookies.bookie(world.server.id)
    stats = world.stats.bookies[world.server.id]
    await asyncio.gather(*(send(bookie, add(entry), 5) for entry in range(3)))
    assert isinstance(await send(bookie, ReadRequest(LEDGER, EntryId(9))), NoSuchEntry)
    await send(bookie, ReadLacRequest(LEDGER))
    assert stats.read_bytes == 0
    one = await send(bookie, ReadRequest(LEDGER, EntryId(0)))
    assert isinstance(one, ReadResponse)
    assert one.entry is not None
    assert stats.read_bytes == len(one.entry) > 0
    some = await send(bookie, BatchReadRequest(LEDGER, EntryId(0), 7, 3, 1 << 20))
    assert isinstance(some, BatchReadResponse)
    assert len(some.entries) == 3
    assert stats.read_bytes == len(one.entry) + sum(map(len, some.entries))


async def test_bytes_of_a_bookie_are_shown_with_where_it_is() -> None:
    stats = LedgerStats()
    config = dataclasses.replace(QUICK, local_rack="/a", racks=("b0=/a", "b1=/b"))
    Bookies(BookieDirectory(MemoryCluster().session(), "/ledgers"), config, stats)
    for name, size in (("b0", 3), ("b1", 5), ("b2", 7)):
        stats.bookie(BookieId(name)).read_bytes = size
    shown = Exposition(table(ROWS))
    provide_ledgers(shown, stats, lambda: 3)
    name = "quire_ledger_bookie_read_bytes_total"
    found = parse(shown.exposition())
    assert {key: size for key, size in found.items() if key.startswith(name)} == {
        f'{name}{{bookie="b0",rack="same"}}': 3,
        f'{name}{{bookie="b1",rack="other"}}': 5,
        f'{name}{{bookie="b2",rack="unknown"}}': 7,
    }


async def test_requests_without_an_answer_are_errors(world: World) -> None:
    bookie = world.bookies.bookie(world.server.id)
    stats = world.stats.bookies[world.server.id]
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    lost = [send(bookie, add(entry)) for entry in (1, 2)]
    await asyncio.sleep(0)
    await world.server.stop()
    for answer in lost:
        assert isinstance(await answer, BookieUnavailable)
    assert stats.errors == 2
    assert isinstance(await send(bookie, add(3)), BookieUnavailable)
    assert isinstance(await send(bookie, add(4)), BookieUnavailable)
    assert stats.errors == 4
    await world.server.start()


async def test_a_request_that_times_out_is_an_error(world: World) -> None:
    bookie = world.bookies.bookie(world.server.id)
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: (
        Fate.LOSE_REQUEST if getattr(request, "entry_id", None) == 1 else Fate.DELIVER
    )
    late = send(bookie, add(1))
    while not late.done():
        await send(bookie, add(2))
        await asyncio.sleep(0.005)
    assert isinstance(await late, BookieTimeout)
    assert world.stats.bookies[world.server.id].errors == 1
