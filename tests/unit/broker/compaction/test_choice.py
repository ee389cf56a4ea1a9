"""Which partition is compacted next, and what is shown of those that wait."""

from __future__ import annotations

import asyncio
import re

import pytest

from broker.compaction.compactor import Compactor
from broker.compaction.config import CompactionConfig
from broker.compaction.core.round_messages import BeginRound, Request, WorkDone
from broker.compaction.worker import LocalWorker
from broker.gauges import _provide_compaction
from broker.partition.partition import Partition
from client.errors import WriteFailed
from tests.fakes.brokers import Broker, World, with_config
from tests.fakes.scrape import parse
from tests.unit.broker.compaction.test_compactor import COMPACT, compactor, filled, write
from tests.unit.broker.compaction.test_failing import CLEAN_ONLY_IF_ASKED, two_partitions

_BEGAN = re.compile(r"compaction\.began topic=t partition=(\d) why=(\w+)")


def begun(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Return partition and reason of each round so far."""
    found = _BEGAN.findall(caplog.text)
    caplog.clear()
    return [(int(index), why) for index, why in found]


def test_the_dirtiest_comes_first_and_each_has_one_turn(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        first, second = partitions
        await filled(first)
        cleaning = compactor(broker, first, second)
        await cleaning.visit_all()
        await write(first, ("big", "x" * 500))
        await filled(second)
        await filled(first)
        begun(caplog)
        await cleaning.visit_all()
        # Of the second one everything is dirty.
        assert begun(caplog) == [(1, "dirty"), (0, "dirty")]

    two_partitions(scenario)


def test_what_is_overdue_comes_before_what_is_only_dirty(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        first, second = partitions
        await filled(first)
        await filled(second)
        overdue = {**CLEAN_ONLY_IF_ASKED, "max_compaction_lag_ms": "1000"}
        second.configure(with_config(second.topic, **overdue))
        await asyncio.sleep(1.1)
        await compactor(broker, first, second).visit_all()
        assert begun(caplog) == [(1, "overdue"), (0, "dirty")]

    two_partitions(scenario)


def test_what_is_asked_for_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        for one in partitions:
            await filled(one)
        cleaning = compactor(broker, *partitions)
        cleaning.ask(partitions[1])
        await cleaning.visit_all()
        assert begun(caplog) == [(1, "asked"), (0, "dirty")]

    two_partitions(scenario)


def test_each_round_draws_a_key_for_its_hashes() -> None:
    """Who knows the key of a round could make two keys of one hash, and one would be lost."""
    secrets: list[bytes] = []

    class Noting(LocalWorker):
        async def do(self, request: Request) -> WorkDone:
            if isinstance(request, BeginRound):
                secrets.append(request.secret)
            return await super().do(request)

    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        for one in partitions:
            await filled(one)
        worker = Noting(broker.services.turns)
        cleaning = Compactor(broker.services, partitions, CompactionConfig(bytes_per_s=0), worker)
        await cleaning.visit_all()
        for one in partitions:
            cleaning.ask(one)
        await cleaning.visit_all()

    two_partitions(scenario)
    assert len(secrets) == len(set(secrets)) == 4
    assert not any(one == bytes(len(one)) for one in secrets)


def test_metrics_show_for_how_long_the_first_one_waits_and_what_was_saved() -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        await filled(partitions[0])
        cleaning = compactor(broker, *partitions)
        _provide_compaction(broker.services, cleaning)

        def shown(name: str) -> float:
            scraped = parse(broker.services.metrics.exposition())
            return scraped[f"quire_broker_compaction_{name}"]

        world.backend.service.fail_next("open", WriteFailed("no bookie answers"))
        await cleaning.visit_all()
        assert shown("stuck_partitions") == 1
        assert shown("saved_bytes") == 0
        assert shown("last_clean_seconds") == 0, "there was no round yet"
        assert shown("next_due_seconds") == float("inf"), "nothing is due by age"
        await asyncio.sleep(10)
        assert shown("waiting_seconds") == pytest.approx(10, abs=0.1)
        await asyncio.sleep(10)
        assert shown("waiting_seconds") == pytest.approx(20, abs=0.1), "nobody has looked since"
        await broker.services.lease.ask(broker.store)
        await cleaning.visit_all()
        assert shown("waiting_seconds") == 0
        assert shown("stuck_partitions") == 0
        assert shown("saved_bytes") == partitions[0].usage.listed.compaction.saved_bytes > 0
        assert shown("last_clean_seconds") == pytest.approx(0, abs=0.1)
        await asyncio.sleep(10)
        assert shown("last_clean_seconds") == pytest.approx(10, abs=0.1)

    two_partitions(scenario, **COMPACT)
