"""Confirmed entries that a live member lacks: who finds out, and that they are replicated.

The promise to the owner of an entry is Qa copies; the rest is brought by auto recovery, which must
be told, as nothing that it looks at by itself shows a gap in the middle of a fragment (rule HOLES).
"""

from __future__ import annotations

import asyncio
import random

import pytest

from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.service import AutoRecovery
from client.errors import LedgerFenced
from client.ids import BookieId
from client.ledger.client import LedgerClient
from client.ledger.under_replication import remove_mark
from client.ledger.write.writer import LedgerWriter
from client.metadata import paths
from client.wire.bookkeeper.messages import AddRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster
from tests.fakes.virtual_time import VirtualClock, run

MEMBERS = ("b0", "b1", "b2")


class World:
    """A writer on all three bookies; b2 is the one that fails."""

    def __init__(self, cluster: LedgerCluster, client: LedgerClient, writer: LedgerWriter) -> None:
        self.cluster = cluster
        self.client = client
        self.writer = writer
        self.ledger_id = writer.ledger_id
        self.b2 = cluster.bookies["b2"]

    @classmethod
    async def start(cls) -> World:
        cluster = await LedgerCluster.start(*MEMBERS)
        client = await cluster.client()
        return cls(cluster, client, await client.create())

    async def add(self, count: int) -> None:
        for _ in range(count):
            await self.writer.append(b"entry")

    async def lose_b2_for(self, count: int) -> None:
        """Let b2 miss that many entries and come back, without losing what it had."""
        self.b2.is_down = True
        await self.add(count)
        self.b2.is_down = False

    async def resume_b2(self) -> None:
        while self.writer.suspended:
            await self.add(1)
            await asyncio.sleep(0.3)

    async def marked(self) -> set[BookieId]:
        await asyncio.sleep(1)
        return await self.cluster.marked(self.ledger_id)

    def lacking(self) -> set[BookieId]:
        return self.cluster.lacking(self.ledger_id)

    def kill_writer(self) -> None:
        """The writer's process dies: it tells nobody anything any more."""
        self.cluster.metadata.kill(self.cluster.stores[0])


def test_a_member_that_was_suspended_and_resumed() -> None:
    """Its first and its last entries are there: a quick look finds nothing."""

    async def scenario() -> None:
        world = await World.start()
        await world.add(5)
        await world.lose_b2_for(5)
        assert await world.marked() == set(), "it is not back, there is nothing to replicate yet"
        await world.resume_b2()
        assert await world.marked() == {"b2"}, "while the ledger is still being written"
        await world.add(5)
        await world.writer.close()
        held = world.b2.entry_ids(world.ledger_id)
        assert held[0] == 0
        assert held[-1] == world.writer.progress.last_add_confirmed
        assert world.lacking() == {"b2"} == await world.marked()

    run(scenario())


def test_a_member_that_was_replaced_though_it_lives() -> None:
    """It timed out once, for an entry that others had confirmed already."""

    async def scenario() -> None:
        world = await World.start()
        await world.add(5)
        world.b2.fate_of = lose_adds
        await world.add(1)
        world.cluster.bookies.set_writable([*MEMBERS, "b3"])
        await world.add(1)
        assert "b3" in world.writer.metadata.last_fragment.ensemble
        assert await world.marked() == {"b2"}
        await world.writer.close()
        assert world.lacking() == {"b2"}

    run(scenario())


def lose_adds(request: Request) -> Fate:
    return Fate.LOSE_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER


def test_the_writer_dies_while_a_member_is_suspended() -> None:
    """Whoever recovers the ledger knows less, but enough: b2 could not be fenced."""

    async def scenario() -> None:
        world = await World.start()
        await world.add(5)
        world.b2.is_down = True
        await world.add(5)
        world.kill_writer()
        recoverer = await world.cluster.client()
        await recoverer.recover(world.ledger_id)
        assert world.lacking() == {"b2"} == await world.marked()

    run(scenario())


def test_the_member_is_back_before_the_dead_writers_ledger_is_recovered() -> None:
    """It can be fenced, and its last entry is too early."""

    async def scenario() -> None:
        world = await World.start()
        await world.add(5)
        await world.lose_b2_for(5)
        world.kill_writer()
        recoverer = await world.cluster.client()
        await recoverer.recover(world.ledger_id)
        assert world.lacking() == {"b2"} == await world.marked()

    run(scenario())


def test_a_fenced_writer_that_still_lives_tells_what_it_knows() -> None:
    """The gap is in the middle: the recoverer cannot see it, the zombie can. The first mark was
    removed by somebody who looked at first and last entries only."""

    async def scenario() -> None:
        world = await World.start()
        await world.add(3)
        await world.lose_b2_for(3)
        await world.resume_b2()
        assert await world.marked() == {"b2"}
        await remove_mark(world.cluster.metadata.session(), world.ledger_id, 0)
        await world.add(3)
        recoverer = await world.cluster.client()
        await recoverer.recover(world.ledger_id)
        assert await world.marked() == set()
        with pytest.raises(LedgerFenced):
            await world.add(1)
        assert world.lacking() == {"b2"} == await world.marked()

    run(scenario())


def test_a_healthy_ledger_is_never_marked() -> None:
    async def scenario() -> None:
        world = await World.start()
        await world.add(20)
        await world.writer.close()
        other = await world.client.create()
        await other.append(b"x")
        other.abandon()
        await (await world.cluster.client()).recover(other.ledger_id)
        assert await world.marked() == await world.cluster.marked(other.ledger_id) == set()

    run(scenario())


def test_auto_recovery_fills_every_hole_that_a_writer_left() -> None:
    """Together: the mark is written, found, and every missing entry copied to that very member."""

    async def scenario() -> None:
        world = await World.start()
        store = world.cluster.metadata.session()
        for name in map(BookieId, MEMBERS):
            await store.create(paths.cookie(name), make_parents=True)
            await store.create(paths.available_bookie(name))
        node = AutoRecovery(
            store,
            await world.cluster.client(),
            me=BookieId("healer"),
            clock=VirtualClock(),
            rng=random.Random(1),
            config=AutoRecoveryConfig(ledger_check_interval_ms=0),
        )
        await node.start()
        await world.add(5)
        for _ in range(3):
            await world.lose_b2_for(7)
            await world.resume_b2()
        await asyncio.sleep(60)
        await world.add(1)
        assert not world.writer.is_ended, "a live writer is left alone"
        await world.writer.close()
        assert world.lacking() == {"b2"}
        await asyncio.sleep(400)
        assert world.lacking() == set()
        assert await world.cluster.marked(world.ledger_id) == set()
        assert world.cluster.stored_metadata(world.ledger_id).fragments[0].ensemble[0] in MEMBERS
        await node.stop()

    run(scenario())
