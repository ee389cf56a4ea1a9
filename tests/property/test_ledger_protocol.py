"""The ledger protocol under random faults: one writer, two recoverers, readers, bookies that crash.

Every run is a seed. Requests and answers are delayed, reordered and lost at random, bookies crash
and come back, metadata answers are lost; the writer may choose its entry ids, out of order, and
keep failed bookies. Whatever happens, at the end, when all bookies are back:

- L2  nothing confirmed is above the end of the ledger, and everybody was told the same end;
- L4  every entry up to the end is on Qa bookies of its fragment;
- L5  entry n holds the n-th payload;
- L6  fragments ascend;
- L7  the ledger can be closed;
- R1  what a reader was allowed to read stays there;
- R8  adds are told in entry order;
- HOLES  whoever lacks an entry is named by the ledger's mark, so that auto recovery replicates it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from client.errors import LedgerError, MetadataError
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.metadata.memory import Fault, Operation
from client.wire.bookkeeper.messages import AddRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle

SIZES = [(3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 1), (4, 2, 2), (3, 3, 3)]
FATES = {
    "calm": [Fate.DELIVER] * 18 + [Fate.HOLD_REQUEST, Fate.HOLD_ANSWER],
    "slow": [Fate.DELIVER, Fate.HOLD_REQUEST, Fate.HOLD_ANSWER],
    "lossy": [Fate.DELIVER] * 12
    + [Fate.HOLD_REQUEST] * 3
    + [Fate.HOLD_ANSWER] * 3
    + [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER],
}


class Run:
    """One seeded run."""

    def __init__(self, cluster: LedgerCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.fates = FATES[rng.choice(list(FATES))]
        self.crash_rate = rng.choice((0.0, 0.01, 0.03))
        self.metadata_loss = rng.choice((0.0, 0.05))
        self.chooses_ids = rng.random() < 0.3
        self.ends: list[EntryId] = []
        self.readable: dict[EntryId, bytes] = {}
        self.tasks: list[asyncio.Future[Any]] = []

    @property
    def bookies(self) -> list[str]:
        return list(self.cluster.bookies.writable)

    def fate_of(self, request: Request) -> Fate:
        return self.rng.choice(self.fates)

    def lose(self, operation: Operation) -> Fault | None:
        if operation.name in ("set", "get") and self.rng.random() < self.metadata_loss:
            return self.rng.choice(list(Fault))
        return None

    async def step(self) -> None:
        """Let some held requests through; perhaps crash or revive a bookie."""
        for _ in range(self.rng.randrange(4)):
            bookie = self.cluster.bookies[self.rng.choice(self.bookies)]
            self.rng.shuffle(bookie.held)
            bookie.release(1)
        bookie = self.cluster.bookies[self.rng.choice(self.bookies)]
        if bookie.is_down:
            bookie.is_down = self.rng.random() < 0.9
        elif self.rng.random() < self.crash_rate:
            bookie.crash()
        await settle(self.rng.randrange(1, 6))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(coroutine))

    async def write(self, outcomes: Outcomes, closes: bool) -> None:
        try:
            for number in self.ids(self.rng.randrange(1, 20)):
                outcomes.add(b"payload %d" % number, EntryId(number))
                await settle(self.rng.choice((0, 0, 3, 20)))
            if closes:
                await outcomes.writer.close()
                self.ends.append(outcomes.writer.progress.last_add_confirmed)
        except (LedgerError, MetadataError):
            return

    def ids(self, count: int) -> list[int]:
        """Return entry ids in the order to add them: chosen ones change places with others."""
        ids = list(range(count))
        if self.chooses_ids:
            ids.sort(key=lambda number: number + self.rng.randrange(5))
        return ids

    async def recover(self, client: LedgerClient, outcomes: Outcomes) -> None:
        await settle(self.rng.randrange(200))
        try:
            self.ends.append((await client.recover(outcomes.writer.ledger_id)).last_entry)
        except (LedgerError, MetadataError):
            return

    async def follow(self, client: LedgerClient, outcomes: Outcomes) -> None:
        for _ in range(3):
            await settle(self.rng.randrange(100))
            try:
                reader = await client.open(outcomes.writer.ledger_id)
                if reader.last_entry >= 0:
                    found = await reader.read(EntryId(0), reader.last_entry)
                    self.readable.update((e.entry_id, bytes(e.payload)) for e in found)
            except (LedgerError, MetadataError):
                continue

    async def calm_down(self) -> None:
        """Bring everything back and let everything through."""
        self.fates = [Fate.DELIVER]
        self.crash_rate = self.metadata_loss = 0.0
        for _ in range(2000):
            for name in self.bookies:
                self.cluster.bookies[name].is_down = False
                self.cluster.bookies[name].release()
            await settle(5)
            if all(task.done() for task in self.tasks):
                return
        raise AssertionError("somebody hangs")


@pytest.mark.parametrize("seed", range(80))
async def test_whatever_happens_nothing_confirmed_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    cluster = await LedgerCluster.start(*(f"b{i}" for i in range(rng.choice((4, 5, 6)))), seed=seed)
    config = LedgerClientConfig(metadata_retry_delay_ms=0, delay_ensemble_change=rng.random() < 0.3)
    clients = [await cluster.client(config) for _ in range(4)]
    ensemble, write, ack = rng.choice(SIZES)
    writer = await clients[0].create(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
    outcomes = Outcomes(writer)
    run = Run(cluster, rng)
    for name in run.bookies:
        cluster.bookies[name].fate_of = run.fate_of
    cluster.metadata.on_request = run.lose
    run.spawn(run.write(outcomes, closes=rng.random() < 0.5))
    for client in clients[1 : rng.choice((1, 2, 3))]:
        run.spawn(run.recover(client, outcomes))
    run.spawn(run.follow(clients[3], outcomes))
    for _ in range(rng.randrange(20, 120)):
        await run.step()
    await run.calm_down()
    run.ends.append((await clients[1].recover(writer.ledger_id)).last_entry)
    await check(run, outcomes, clients[2])
    for client in clients:
        await client.close()
    assert cluster.lacking(writer.ledger_id) <= await cluster.marked(writer.ledger_id)


async def check(run: Run, outcomes: Outcomes, client: LedgerClient) -> None:
    """Assert the invariants of the module docstring."""
    ledger_id = outcomes.writer.ledger_id
    metadata = run.cluster.stored_metadata(ledger_id)
    assert metadata.is_closed
    assert set(run.ends) == {metadata.last_entry}
    told = [entry_id for entry_id, _ in outcomes.told]
    assert told == sorted(told)
    every = [EntryId(entry_id) for entry_id in range(metadata.last_entry + 1)]
    run.cluster.check_ledger(
        ledger_id, {**dict.fromkeys(outcomes.confirmed), **dict.fromkeys(every)}
    )
    starts = [fragment.first_entry for fragment in metadata.fragments]
    assert starts == sorted(set(starts))
    found = [bytes(e.payload) async for e in (await client.open(ledger_id)).entries()]
    assert found == [b"payload %d" % entry_id for entry_id in every]
    assert all(found[entry_id] == seen for entry_id, seen in run.readable.items())
    if not run.chooses_ids:  # else entries carry lengths in the order in which they were sent
        assert metadata.length in (0, sum(map(len, found)))


async def test_recovery_adds_are_the_only_ones_a_fenced_bookie_takes() -> None:
    """Invariant R3, on the model itself: the fakes must not be kinder than bookies are."""
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    await (await cluster.client()).recover(writer.ledger_id)
    for name in ("b0", "b1", "b2"):
        assert cluster.bookies[name].ledgers[writer.ledger_id].fenced
    plain = next(r for r in cluster.bookies["b0"].seen if isinstance(r, AddRequest))
    assert isinstance(cluster.bookies["b0"].apply(plain), LedgerError)
    assert not isinstance(cluster.bookies["b0"].apply(plain._replace(recovery=True)), LedgerError)
