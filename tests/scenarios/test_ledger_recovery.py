"""Recovery scenarios: fencing, finding the end, closing, against writers that will not die.

Numbers are those of the BookKeeper scenario list; issue numbers are Apache BookKeeper's. RULES.md
says which rule each test defends and how it fails without it.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from client.errors import LedgerError, LedgerFenced, RecoveryInconclusive
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import LedgerState
from client.ledger.write.writer import LedgerWriter
from client.metadata.memory import MemoryStore
from client.wire.bookkeeper.messages import LAST_ENTRY, AddRequest, ReadRequest, Request
from tests.fakes.bookies import FakeBookie, Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle

ONE_BY_ONE = LedgerClientConfig(recovery_window_entries=1, metadata_retry_delay_ms=0)


class World:
    """A ledger on three bookies with its writer, and another client that recovers it."""

    def __init__(
        self, cluster: LedgerCluster, writer: LedgerWriter, recoverer: LedgerClient
    ) -> None:
        self.cluster = cluster
        self.writer = writer
        self.outcomes = Outcomes(writer)
        self.recoverer = recoverer
        self.ledger_id = writer.ledger_id

    @classmethod
    async def start(
        cls, *names: str, sizes: tuple[int, int, int] = (3, 3, 2), ensemble: str = "b0 b1 b2"
    ) -> World:
        cluster = await LedgerCluster.start(*(names or ("b0", "b1", "b2")))
        cluster.bookies.set_writable(ensemble.split())
        client = await cluster.client()
        writer = await client.create(
            ensemble_size=sizes[0], write_quorum=sizes[1], ack_quorum=sizes[2]
        )
        cluster.bookies.set_writable(names or ("b0", "b1", "b2"))
        return cls(cluster, writer, await cluster.client())

    def member(self, index: int) -> FakeBookie:
        """Return the bookie at an index of the last ensemble."""
        return self.cluster.bookies[self.writer.metadata.last_fragment.ensemble[index]]

    async def add(self, count: int) -> None:
        for _ in range(count):
            self.outcomes.add()
        await settle()

    async def recover(self) -> int:
        return (await self.recoverer.recover(self.ledger_id)).last_entry

    def check(self) -> None:
        self.cluster.check_ledger(self.ledger_id, self.outcomes.confirmed)


def is_add(request: Request) -> bool:
    return isinstance(request, AddRequest) and not request.recovery


def lose_adds(request: Request) -> Fate:
    return Fate.LOSE_REQUEST if is_add(request) else Fate.DELIVER


def hold_adds(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if is_add(request) else Fate.DELIVER


async def test_1_old_writer_sends_after_a_lost_fence_request() -> None:
    """Scenario 1, issue 2614. The fencing LAC read of b2 is lost; entry 5 has reached only b0,
    whose answer to the recovery read is lost. Recovery hears "no entry 5" from b1 and b2 and
    closes at 4. Now entry 5 arrives at b2: if it were accepted, the writer would have Qa acks."""
    world = await World.start()
    await world.add(5)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b1.fate_of = b2.fate_of = hold_adds
    b0.fate_of = lambda request: Fate.HOLD_ANSWER if is_add(request) else Fate.DELIVER
    await world.add(1)
    b0.fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, ReadRequest) and request.entry_id == 5
        else Fate.DELIVER
    )
    b2.fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, ReadRequest) and request.entry_id == LAST_ENTRY
        else hold_adds(request)
    )
    assert await world.recover() == 4
    for bookie in (b2, b0):
        bookie.release()
    await settle()
    assert world.outcomes.confirmed == [0, 1, 2, 3, 4]
    assert world.outcomes.errors == [LedgerFenced]
    world.check()


async def test_2_empty_last_fragment() -> None:
    """Scenario 2, issue 2615. All three bookies were replaced at entry 9, which then reached
    nobody: the last ensemble knows nothing, but entries 0..8 are confirmed elsewhere."""
    world = await World.start("b0", "b1", "b2", "b3", "b4", "b5")
    await world.add(9)
    first = [world.member(index) for index in range(3)]
    for name in world.cluster.bookies.writable:
        bookie = world.cluster.bookies[name]
        bookie.fate_of = lose_adds if bookie in first else hold_adds
    await world.add(1)
    fragments = world.writer.metadata.fragments
    assert [fragment.first_entry for fragment in fragments] == [0, 9]
    assert not set(fragments[0].ensemble) & set(fragments[1].ensemble)
    world.writer.abandon()
    await settle()
    assert await world.recover() == 8
    assert world.cluster.stored_metadata(world.ledger_id).fragments == fragments
    for name in fragments[1].ensemble:
        assert world.cluster.bookies[name].entry_ids(world.ledger_id) == []
    world.check()


@pytest.mark.parametrize("state", ["refused to boot", "limbo"])
async def test_3_wiped_bookie(state: str) -> None:
    """Scenario 3, issue 2612. Entry 1 was confirmed by b0 and b1; b0 lost its disk. A bookie
    that knows about its loss says so or stays away, and that is no "never stored"."""
    world = await World.start()
    await world.add(1)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b2.fate_of = lose_adds
    await world.add(1)
    assert world.outcomes.confirmed == [0, 1]
    world.writer.abandon()
    b0.wipe()
    b0.is_down = state == "refused to boot"
    b0.is_in_limbo = state == "limbo"
    b1.fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, ReadRequest) and request.entry_id == 1
        else Fate.DELIVER
    )
    with pytest.raises(RecoveryInconclusive):
        await world.recover()
    b1.fate_of = lambda request: Fate.DELIVER
    assert await world.recover() == 1
    reader = await world.recoverer.open(world.ledger_id)
    assert len(await reader.read(EntryId(0), EntryId(1))) == 2


@pytest.mark.parametrize("seed", range(25))
async def test_6_two_recoverers_and_the_writer_close_at_once(seed: int) -> None:
    """Scenario 6, issues 1712, BOOKKEEPER-584, -112. Whoever closes first is right, and
    everybody who was told an end was told the same one."""
    rng = random.Random(seed)
    world = await World.start("b0", "b1", "b2", "b3")
    chaos = Chaos(world.cluster, rng)
    world.cluster.metadata.latency = lambda: rng.choice((0.0, 0.0, 0.001, 0.002))
    await world.add(2)
    for name in world.cluster.bookies.writable:
        world.cluster.bookies[name].fate_of = chaos.fate_of
    for _ in range(4):
        world.outcomes.add()
    second = await world.cluster.client()
    closing = asyncio.ensure_future(world.writer.close())
    recoveries = [
        asyncio.ensure_future(client.recover(world.ledger_id))
        for client in (world.recoverer, second)
    ]
    results = await chaos.run(closing, *recoveries)
    metadata = world.cluster.stored_metadata(world.ledger_id)
    assert metadata.is_closed
    for recovery in recoveries:
        assert recovery.result().last_entry == metadata.last_entry
    if not isinstance(results[0], LedgerError):
        assert world.writer.progress.last_add_confirmed == metadata.last_entry
    world.check()


class Chaos:
    """Holds every second request or answer and lets them through in random order."""

    def __init__(self, cluster: LedgerCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng

    def fate_of(self, request: Request) -> Fate:
        return self._rng.choice((Fate.DELIVER, Fate.HOLD_REQUEST, Fate.HOLD_ANSWER))

    async def run(self, *futures: asyncio.Future[object]) -> list[object]:
        """Let requests through until all futures are done; return results or exceptions."""
        while not all(future.done() for future in futures):
            names = [n for n in self._cluster.bookies.writable if self._cluster.bookies[n].held]
            if names:
                bookie = self._cluster.bookies[self._rng.choice(names)]
                self._rng.shuffle(bookie.held)
                bookie.release(1)
            await asyncio.sleep(0 if self._rng.random() < 0.9 else 0.001)
        return await asyncio.gather(*futures, return_exceptions=True)


async def test_11_io_error_and_no_entry_are_inconclusive() -> None:
    """Scenario 11, issue 2908. Entry 1 was confirmed by b0 and b1. b0's copy is damaged, b1 is
    away, b2 never had it: one "no entry" proves nothing."""
    world = await World.start()
    await world.add(1)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b2.fate_of = lose_adds
    world.outcomes.add()
    b1.fate_of = lambda request: (
        Fate.HOLD_REQUEST
        if isinstance(request, AddRequest) and request.entry_id > 1
        else Fate.DELIVER
    )
    world.outcomes.add()
    await settle()
    world.writer.abandon()
    assert world.outcomes.confirmed == [0, 1]
    b0.io_errors.add(EntryId(1))
    b1.is_down = True
    with pytest.raises(RecoveryInconclusive):
        await world.recover()
    metadata = world.cluster.stored_metadata(world.ledger_id)
    assert metadata.state is LedgerState.IN_RECOVERY
    b1.is_down = False
    b1.fate_of = lambda request: Fate.DELIVER
    assert await world.recover() >= 1
    world.check()


async def test_11_a_wrong_digest_is_inconclusive_too() -> None:
    """Scenario 11 with damage that the bookie did not notice."""
    world = await World.start()
    await world.add(1)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b2.fate_of = lose_adds
    await world.add(1)
    world.writer.abandon()
    b0.damage(world.ledger_id, EntryId(1))
    b1.is_down = True
    with pytest.raises(RecoveryInconclusive):
        await world.recover()
    b1.is_down = False
    assert await world.recover() == 1


async def test_one_dead_bookie_does_not_block_recovery() -> None:
    """Issue 1067."""
    world = await World.start()
    await world.add(5)
    world.writer.abandon()
    world.member(1).crash()
    assert await world.recover() == 4
    world.check()


async def test_an_ack_quorum_of_one_needs_every_bookie() -> None:
    """Issues 2273, 3952: with Qa = 1 any bookie may hold a confirmed entry alone. Two of three
    that say "never stored" prove nothing while the third is silent."""
    world = await World.start(sizes=(3, 3, 1))
    await world.add(3)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b0.fate_of = b2.fate_of = lose_adds
    await world.add(1)
    assert world.outcomes.confirmed == [0, 1, 2, 3]
    world.writer.abandon()
    b1.fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, ReadRequest) and request.entry_id == 3
        else Fate.DELIVER
    )
    with pytest.raises(RecoveryInconclusive):
        await world.recover()
    b1.fate_of = lambda request: Fate.DELIVER
    assert await world.recover() == 3


async def test_what_one_recoverer_writes_back_stays_unreadable() -> None:
    """Invariant R2 (frozen LAC). Entries 2 and 3 reached only b0 and were never confirmed. One
    recoverer, which b0 did not answer, is about to close at 1; another one writes entry 2 back
    to everybody and entry 3 to b0. A reader must not take entry 2 for confirmed."""
    world = await World.start()
    await world.add(2)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b1.fate_of = b2.fate_of = lose_adds
    await world.add(2)
    assert world.outcomes.confirmed == [0, 1]

    b0.fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, ReadRequest) and request.entry_id == 2
        else Fate.DELIVER
    )
    gate = hold_closing(world.cluster.stores[-1])
    first = asyncio.ensure_future(world.recoverer.recover(world.ledger_id))
    await settle()
    b0.fate_of = lambda request: Fate.DELIVER
    b1.fate_of = b2.fate_of = lambda request: (
        Fate.HOLD_REQUEST
        if isinstance(request, AddRequest) and request.entry_id == 3
        else Fate.DELIVER
    )
    second = await world.cluster.client(ONE_BY_ONE)
    other = asyncio.ensure_future(second.recover(world.ledger_id))
    await settle(100)
    assert b2.entry_ids(world.ledger_id) == [0, 1, 2]
    reader = await (await world.cluster.client()).open(world.ledger_id)
    gate.set()
    assert (await first).last_entry == 1
    assert reader.last_entry <= 1
    for bookie in (b1, b2):
        bookie.release()
    assert (await other).last_entry == 1


async def test_a_recoverer_never_reads_from_its_own_replacement() -> None:
    """REC-SNAPSHOT, invariant R6. Entries 2 and 3 are confirmed on b1 and b2. b2 takes no recovery
    adds, so b3 replaces it in memory; b1 is slow to show entry 3. b0 says "never stored", and b3
    would, too, if it were asked."""
    world = await World.start()
    await world.add(2)
    b0, b1, b2 = (world.member(index) for index in range(3))
    b0.fate_of = lose_adds
    await world.add(2)
    assert world.outcomes.confirmed == [0, 1, 2, 3]
    world.writer.abandon()
    world.cluster.bookies.set_writable(["b0", "b1", "b2", "b3"])
    await settle()
    b0.fate_of = lambda request: Fate.DELIVER
    b1.fate_of = lambda request: (
        Fate.HOLD_REQUEST
        if isinstance(request, ReadRequest) and request.entry_id == 3
        else Fate.DELIVER
    )
    b2.fate_of = lambda request: (
        Fate.LOSE_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER
    )
    reader = await (await world.cluster.client(ONE_BY_ONE)).recover(world.ledger_id)
    assert reader.last_entry == 3
    assert "b3" in reader.metadata.last_fragment.ensemble
    world.check()


def hold_closing(store: MemoryStore) -> asyncio.Event:
    """Hold a session's writes of closed metadata until the returned event is set."""
    gate = asyncio.Event()
    write = store.set

    async def gated(path: str, data: bytes, version: int = -1) -> int:
        if metadata_codec.decode(data).is_closed:
            await gate.wait()
        return await write(path, data, version)

    store.set = gated  # type: ignore[method-assign]
    return gate
