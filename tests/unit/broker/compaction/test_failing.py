"""No partition is left out in silence: what fails is shown, tried again, and holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.admin.resources import compaction
from broker.compaction.compactor import OUTRUN_MAX, Compactor
from broker.compaction.config import CompactionConfig
from broker.compaction.core.round_messages import BeginRound, Request, WorkDone
from broker.compaction.worker import LocalWorker
from broker.errors import SegmentsChanged
from broker.partition.partition import Partition
from client.errors import ConnectionLoss, LogCorrupt, WriteFailed
from client.metadata import paths
from client.segments.pages import SegmentPages
from tests.fakes.brokers import Broker, World
from tests.fakes.keyed import newest, read_keyed
from tests.fakes.virtual_time import run
from tests.unit.broker.compaction.test_compactor import COMPACT, compactor, filled

CLEAN_ONLY_IF_ASKED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "1.0"}
PAUSE_S = 15.1


def two_partitions(
    scenario: Callable[[World, Broker, list[Partition]], Awaitable[None]], **config: str
) -> None:
    async def whole() -> None:
        world = await World().start()
        topic = await world.topic(partition_count=2, **(config or COMPACT))
        broker = await world.broker(1, owning=False)
        partitions = [await broker.open(topic, index) for index in range(2)]
        try:
            await scenario(world, broker, partitions)
        finally:
            await world.close()

    run(whole())


async def pause(broker: Broker) -> None:
    await asyncio.sleep(PAUSE_S)
    await broker.services.lease.ask(broker.store)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """By a partition's path: why its segments cannot be listed."""
    errors: dict[str, Exception] = {}
    original = SegmentPages.runs

    def runs(self: SegmentPages, listed: Any) -> Any:
        if self._path in errors:
            raise errors[self._path]
        return original(self, listed)

    monkeypatch.setattr(SegmentPages, "runs", runs)
    return errors


def path_of(partition: Partition) -> str:
    return paths.partition(partition.topic.id_text, partition.index)


class Broken(LocalWorker):
    """Has a mistake that one partition's records show."""

    left = 1

    async def do(self, request: Request) -> WorkDone:
        if isinstance(request, BeginRound) and self.left:
            self.left -= 1
            raise AssertionError("a mistake")
        return await super().do(request)


def test_what_nobody_expected_of_a_round_waits_for_the_others() -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        written = [await filled(one) for one in partitions]
        worker = Broken(broker.services.turns)
        cleaning = Compactor(broker.services, partitions, CompactionConfig(bytes_per_s=0), worker)
        with pytest.raises(AssertionError, match="a mistake"):
            await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == 1, "the other one had its turn"
        found = [cleaning.status(one) for one in partitions]
        assert [(one.reason, one.failure_count) for one in found if one is not None] == [
            ("a mistake", 1),
            ("", 0),
        ]
        await cleaning.visit_all()  # too early
        assert broker.services.metrics.compaction_rounds == 1
        await pause(broker)
        await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == 2
        for partition, what in zip(partitions, written, strict=True):
            assert newest(await read_keyed(partition)) == newest(what)

    two_partitions(scenario)


@pytest.mark.parametrize("error", [LogCorrupt("a page is damaged"), AssertionError("a mistake")])
def test_a_partition_that_cannot_be_looked_at_is_shown_and_the_others_are_compacted(
    error: Exception, unreadable: dict[str, Exception]
) -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        for one in partitions:
            await filled(one)
        cleaning = compactor(broker, *partitions)
        unreadable[path_of(partitions[0])] = error
        for number in range(1, 4):
            if isinstance(error, LogCorrupt):
                await cleaning.visit_all()
            else:
                with pytest.raises(AssertionError):
                    await cleaning.visit_all()
            status = cleaning.status(partitions[0])
            assert status is not None
            assert (status.found, status.why, status.reason) == (None, None, str(error))
            assert status.failure_count >= number
        assert status in cleaning.statuses(), "the metrics count it"
        assert broker.services.metrics.compaction_rounds == 1
        unreadable.clear()
        await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert (status.reason, status.failure_count) == ("", 0)
        assert broker.services.metrics.compaction_rounds == 2, "without a pause"

    two_partitions(scenario)


def test_a_look_that_failed_once_is_not_held_against_a_partition_for_ever(
    unreadable: dict[str, Exception],
) -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        await filled(partitions[0])
        cleaning = compactor(broker, *partitions)
        unreadable[path_of(partitions[0])] = ConnectionLoss("no session")
        await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert status.reason == "no session"
        unreadable.clear()
        await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert (status.why, status.reason, status.failure_count) == (None, "", 0)

    two_partitions(scenario, **CLEAN_ONLY_IF_ASKED)


def test_a_round_that_was_asked_for_and_fails_is_asked_for_until_it_is_done() -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        await filled(partitions[0])
        cleaning = compactor(broker, *partitions)
        cleaning.ask(partitions[0])
        world.backend.service.fail_next("open", WriteFailed("no bookie answers"))
        await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == 0
        assert cleaning.is_asked(partitions[0])
        await pause(broker)
        await cleaning.visit_all()
        assert broker.services.metrics.compaction_rounds == 1
        assert not cleaning.is_asked(partitions[0])

    two_partitions(scenario, **CLEAN_ONLY_IF_ASKED)


def test_a_failure_counts_no_longer_than_something_is_due() -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        await filled(partitions[0])
        cleaning = compactor(broker, *partitions)
        world.backend.service.fail_next("open", WriteFailed("no bookie answers"))
        await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert status.failure_count == 1
        await partitions[0].changes.delete_records(partitions[0].high_watermark)
        await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert (status.why, status.reason, status.failure_count) == (None, "", 0)

    two_partitions(scenario)


def test_a_list_that_is_always_quicker_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        await filled(partitions[0])
        cleaning = compactor(broker, *partitions)

        async def outrun(*_: object) -> None:
            raise SegmentsChanged("the list has changed")

        with monkeypatch.context() as patch:
            patch.setattr(partitions[0].changes, "compact", outrun)
            for number in range(OUTRUN_MAX):
                status = cleaning.status(partitions[0])
                assert status is None or status.reason == "", number
                await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert status.reason == "3 rounds in a row were broken off: the list has changed"
        assert status.failure_count == 1
        await pause(broker)
        await cleaning.visit_all()
        status = cleaning.status(partitions[0])
        assert status is not None
        assert (status.reason, status.failure_count) == ("", 0)

    two_partitions(scenario)


def test_the_admin_api_says_why_nobody_knows_how_a_partition_stands(
    unreadable: dict[str, Exception],
) -> None:
    class Context:
        """What is asked of it."""

        broker: Any

    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        await filled(partitions[0])
        cleaning = compactor(broker, *partitions)
        context: Any = Context()
        context.broker = Context()
        context.broker.compactor = cleaning
        shown = compaction._shown(context, partitions[0])
        assert (shown["state"], shown["reason"], shown["failures"]) == ("unknown", "", 0)
        unreadable[path_of(partitions[0])] = LogCorrupt("a page is damaged")
        await cleaning.visit_all()
        shown = compaction._shown(context, partitions[0])
        assert (shown["state"], shown["reason"]) == ("failing", "a page is damaged")
        assert shown["failures"] > 0
        assert shown["dirty_percent"] is None
        assert set(shown) == set(compaction.SCHEMAS["Compaction"]["properties"])

    two_partitions(scenario)


def test_a_roll_that_does_not_end_holds_up_no_other_partition() -> None:
    """IN-TIME: its own round fails, and is tried again."""

    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        written = [await filled(one) for one in partitions]
        stuck = partitions[0]
        world.backend.service.stop_at("create")
        rolling = asyncio.ensure_future(stuck.changes.roll())
        await asyncio.sleep(1)
        del world.backend.service.gate["create"]  # only that one waits
        cleaning = compactor(broker, *partitions)
        async with asyncio.timeout(200):
            await cleaning.visit_all()
        assert stuck.changes.is_rolling
        assert broker.services.metrics.compaction_rounds == 1
        found = [cleaning.status(one) for one in partitions]
        assert [one.failure_count for one in found if one is not None] == [1, 0]
        await broker.services.lease.ask(broker.store)
        assert newest(await read_keyed(partitions[1])) == newest(written[1])
        rolling.cancel()

    two_partitions(scenario)


def test_a_ledger_that_takes_nothing_holds_up_no_other_partition() -> None:
    async def scenario(world: World, broker: Broker, partitions: list[Partition]) -> None:
        for one in partitions:
            await filled(one)
        cleaning = compactor(broker, *partitions)
        broker.ledgers.hold_answers = True
        async with asyncio.timeout(300):
            await cleaning.visit_all()
        found = [cleaning.status(one) for one in partitions]
        assert [one.failure_count for one in found if one is not None] == [1, 1]
        assert "confirmed nothing" in found[0].reason  # type: ignore[union-attr]
        broker.ledgers.release()

    two_partitions(scenario)
