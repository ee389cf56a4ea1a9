"""The election: one auditor, the oldest candidate alive, and never one without a session."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from client.autorecovery.election import Election
from client.errors import ConnectionLoss
from client.ids import BookieId
from client.metadata.memory import Fault, MemoryCluster
from tests.fakes.virtual_time import run

TOP = "/ledgers/underreplication/auditorelection"


def test_the_oldest_candidate_wins_and_its_successor_follows() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(reconnect_delay_s=0.0)
        stores = [cluster.session() for _ in range(3)]
        names = [BookieId(f"n{number}:1") for number in range(3)]
        elections = [Election(s, n, "/ledgers") for s, n in zip(stores, names, strict=True)]
        await elections[0].won()
        waiting = []
        for election in elections[1:]:
            waiting.append(asyncio.create_task(election.won()))
            await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        assert (await stores[1].get(TOP)).data == b'bookieId: "n0:1"\n'
        await stores[0].close()
        await asyncio.sleep(1)
        assert [task.done() for task in waiting] == [True, False]
        assert (await stores[1].get(TOP)).data == b'bookieId: "n1:1"\n'
        waiting[1].cancel()

    run(scenario())


def test_an_auditor_whose_session_ends_is_out() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(reconnect_delay_s=0.0)
        store, other = cluster.session(), cluster.session()
        election = Election(store, BookieId("a:1"), "/ledgers")
        await election.won()
        losing = asyncio.create_task(election.lost())
        await asyncio.sleep(1)
        assert not losing.done()
        cluster.expire(store)
        await asyncio.sleep(1)
        await losing
        assert await other.children(TOP) == []

    run(scenario())


def test_a_lost_answer_makes_no_second_candidate() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(reconnect_delay_s=0.0)
        store = cluster.session()
        election = Election(store, BookieId("a:1"), "/ledgers")
        await store.create(TOP, make_parents=True)
        faults = [Fault.LOSE_REPLY]
        cluster.on_request = lambda operation: (
            faults.pop() if operation.name == "create" and faults else None
        )
        for _ in range(2):
            with contextlib.suppress(ConnectionLoss):
                await election.won()
            await asyncio.sleep(1)
        assert len(await store.children(TOP)) == 1

    run(scenario())


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.DELAY_REQUEST])
def test_a_candidacy_that_its_server_does_not_show_yet_is_the_only_one(fault: Fault) -> None:
    """With a second one we would wait for our own first one, and nobody would be auditor."""

    async def scenario() -> None:
        cluster = MemoryCluster(reconnect_delay_s=0.0)
        cluster.late_s = lambda: 5.0
        store = cluster.session()
        election = Election(store, BookieId("a:1"), "/ledgers")
        await store.create(TOP, make_parents=True)
        faults = [fault]
        cluster.on_request = lambda operation: (
            faults.pop() if faults and operation.name == "create" else None
        )
        cluster.freeze(store)
        with pytest.raises(ConnectionLoss):
            await election.won()
        async with asyncio.timeout(30):
            await election.won()
        assert len(await cluster.session().children(TOP)) == 1

    run(scenario())
