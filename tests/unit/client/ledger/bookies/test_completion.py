"""LINK-OTHERS: what one request's callback raises costs nobody else an answer or a connection."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from client.callbacks import Kind
from client.errors import BookieTimeout, BookieUnavailable
from client.ids import BookieId, EntryId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookie_link import InFlight
from client.metadata.memory import MemoryCluster
from client.wire.bookkeeper.messages import AddResponse, Status
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import until
from tests.fakes.raised import Reports, broken
from tests.unit.client.ledger.bookies.test_bookies import (
    LEDGER,
    SlowTransport,
    World,
    add,
    hold,
    send,
    unconnected,
    world,
)

__all__ = ["world"]


async def test_the_others_in_the_same_bytes_are_answered_and_the_connection_stays(
    world: World,
) -> None:
    reports, bookie = Reports(), await world.connect()
    await send(bookie, add(0))
    world.server.bookie.fate_of = hold
    first = send(bookie, add(1))
    bookie.request(add(2), broken)
    last = send(bookie, add(3))
    await until(lambda: len(world.server.held) == 3)
    world.server.answer_held()
    assert isinstance(await first, AddResponse)
    assert isinstance(await last, AddResponse)
    assert reports.kinds() == {Kind.REQUEST: 1}
    world.server.bookie.fate_of = lambda request: Fate.DELIVER
    assert isinstance(await send(bookie, add(4)), AddResponse)
    assert len(world.server.connections) == 1


async def test_all_are_told_of_a_lost_connection(world: World) -> None:
    reports, bookie = Reports(), await world.connect()
    await send(bookie, add(0))
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    bookie.request(add(1), broken)
    last = send(bookie, add(2))
    await until(lambda: len(world.server.calls) == 3)
    await world.server.stop()
    assert isinstance(await last, BookieUnavailable)
    assert reports.kinds() == {Kind.REQUEST: 1}


async def test_all_are_told_of_a_timeout_and_the_clock_goes_on() -> None:
    reports, link = Reports(), unconnected()
    link.connection_made(cast(asyncio.Transport, SlowTransport()))
    answers: list[object] = []
    link.send(InFlight(add(1), broken, 5))
    link.send(InFlight(add(2), lambda _request, answer: answers.append(answer), 5))
    done = InFlight(add(3), broken, 5)
    link.send(done)
    while not answers:  # something arrives now and then: the connection is not silent
        link.get_buffer(-1)
        link.buffer_updated(0)
        await asyncio.sleep(0.005)
    assert isinstance(answers[0], BookieTimeout)
    assert reports.kinds()[Kind.REQUEST] >= 1
    late = InFlight(add(4), lambda _request, answer: answers.append(answer), 5)
    link.send(late)
    link.on_response(late, AddResponse(Status.OK, LEDGER, EntryId(4)))
    assert isinstance(answers[1], AddResponse)
    link.abort("over")


async def test_all_are_told_that_nobody_answers_there(world: World) -> None:
    reports, bookie = Reports(), await world.connect()
    await world.server.stop()
    bookie.request(add(1), broken)
    last = send(bookie, add(2))
    assert isinstance(await last, BookieUnavailable)
    bookie.request(add(3), broken)  # refused without trying
    await until(lambda: len(reports.seen) == 2)
    assert reports.kinds() == {Kind.REQUEST: 2}


@pytest.mark.parametrize("count", [1, 2])
async def test_every_listener_hears_of_bookies_that_come(count: int) -> None:
    reports, cluster = Reports(), MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    await store.create("/ledgers/available/b0:3181", make_parents=True)
    directory = BookieDirectory(cluster.session(), "/ledgers")
    await directory.start()
    heard: list[tuple[BookieId, ...]] = []
    for _ in range(count):
        directory.add_listener(broken)
    directory.add_listener(lambda: heard.append(directory.writable))
    await store.create("/ledgers/available/b1:3181")
    await until(lambda: bool(heard))
    assert [len(bookies) for bookies in heard] == [2]
    assert reports.kinds() == {Kind.BOOKIES: count}
    directory.close()
