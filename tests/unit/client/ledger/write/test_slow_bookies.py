"""A bookie that answers, but stays behind the others, loses its places; not when all are slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.ids import BookieId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.write.writer import LedgerWriter
from tests.fakes import virtual_time
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle


class Bench:
    """Writers that add twice a second, to bookies some of which answer late."""

    def __init__(self, cluster: LedgerCluster, client: LedgerClient) -> None:
        self.cluster = cluster
        self.client = client
        self.writers: list[LedgerWriter] = []
        self.outcomes: list[Outcomes] = []
        self.slow: dict[BookieId, float] = {}
        """How late each of them answers, in seconds."""

    @classmethod
    async def start(cls, names: str, writers: int = 1, **settings: Any) -> Bench:
        cluster = await LedgerCluster.start(*names.split())
        client = await cluster.client(LedgerClientConfig(metadata_retry_delay_ms=0, **settings))
        bench = cls(cluster, client)
        for _ in range(writers):
            bench.writers.append(await client.create())
        bench.outcomes = [Outcomes(writer) for writer in bench.writers]
        return bench

    def ensemble(self, writer: int = 0) -> tuple[BookieId, ...]:
        return self.writers[writer].metadata.last_fragment.ensemble

    def slow_down(self, bookie: BookieId, seconds: float = 4.0) -> None:
        self.cluster.bookies[bookie].fate_of = lambda request: Fate.HOLD_REQUEST
        self.slow[bookie] = seconds

    async def write(self, seconds: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2 * seconds):
            held = {bookie: len(self.cluster.bookies[bookie].held) for bookie in self.slow}
            for outcomes in self.outcomes:
                outcomes.add()
            await settle()
            for bookie, late_s in self.slow.items():
                fake = self.cluster.bookies[bookie]
                loop.call_later(late_s, fake.release, len(fake.held) - held[bookie])
            await asyncio.sleep(0.5)


def test_a_bookie_that_stays_behind_loses_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2 b3")
        slow = bench.ensemble()[1]
        bench.slow_down(slow)
        await bench.write(30)
        assert slow in bench.ensemble()
        await bench.write(10)
        assert slow not in bench.ensemble()
        await settle()
        assert bench.outcomes[0].failed == []
        assert len(bench.outcomes[0].confirmed) == 80
        assert bench.client.stats.slow_replacements == 1
        assert bench.client.stats.ensemble_changes == 1
        assert f"bookie.slow bookie={slow}" in caplog.text
        await bench.client.close()
        marked = await bench.cluster.marked(bench.writers[0].ledger_id)
        assert marked == {slow}, "what it had not answered may be missing there"

    virtual_time.run(scenario())


def test_all_writers_leave_one_slow_bookie_and_new_ledgers_are_made_elsewhere() -> None:
    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2 b3", writers=4)
        slow = bench.ensemble()[0]
        bench.slow_down(slow)
        await bench.write(40)
        for number in range(4):
            assert slow not in bench.ensemble(number)
        ensembles = [
            (await bench.client.create()).metadata.last_fragment.ensemble for _ in range(5)
        ]
        assert all(slow not in ensemble for ensemble in ensembles)

    virtual_time.run(scenario())


def test_a_second_slow_bookie_stays_until_the_first_is_forgotten() -> None:
    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2 b3 b4", slow_bookie_memory_ms=60_000)
        first, second, _ = bench.ensemble()
        bench.slow_down(first)
        await bench.write(40)
        assert first not in bench.ensemble()
        bench.slow_down(second)
        await bench.write(40)
        assert second in bench.ensemble(), "one at a time: maybe it is not the bookies"
        await bench.write(40)
        assert second not in bench.ensemble()

    virtual_time.run(scenario())


@pytest.mark.parametrize(
    "settings",
    [{"slow_bookie_replace_ms": 0}, {"slow_bookies_max": 0}, {"delay_ensemble_change": True}],
    ids=str,
)
def test_it_can_be_switched_off(settings: dict[str, Any]) -> None:
    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2 b3", **settings)
        before = bench.ensemble()
        bench.slow_down(before[2])
        await bench.write(60)
        assert bench.ensemble() == before

    virtual_time.run(scenario())


def test_without_another_bookie_it_stays_and_misses_nothing() -> None:
    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2")
        slow = bench.ensemble()[1]
        bench.slow_down(slow)
        await bench.write(80)
        assert slow in bench.ensemble()
        assert bench.writers[0].suspended == []
        assert bench.client.stats.ensemble_changes == 0
        await asyncio.sleep(10)
        await bench.writers[0].close()
        assert bench.cluster.lacking(bench.writers[0].ledger_id) == set()
        assert len(bench.outcomes[0].confirmed) == 160

    virtual_time.run(scenario())


def test_the_limit_of_changes_ends_no_ledger_for_a_slow_bookie() -> None:
    """CHANGE-MAX is for failures; without another change a slow bookie stays."""

    async def scenario() -> None:
        bench = await Bench.start("b0 b1 b2 b3 b4", ensemble_changes_max=1)
        lost, slow, _ = bench.ensemble()
        bench.cluster.bookies[lost].crash()
        await bench.write(1)
        bench.slow_down(slow)
        await bench.write(60)
        assert slow in bench.ensemble()
        assert not bench.writers[0].is_ended

    virtual_time.run(scenario())
