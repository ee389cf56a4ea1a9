"""Ledgers that nobody lists any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.leadership.orphan_ledgers import LedgerSet, OrphanLedgers, purpose_of
from broker.partition.core.log_limits import LogLimits
from broker.partition.ledgers import create_ledger
from client.ids import BrokerId, LeaderEpoch, LedgerId
from client.log.segment_pages import NewPage, Page, PageName
from client.metadata import paths
from client.metadata.memory import Fault
from client.segments.page_nodes import write_page
from tests.fakes.bad_nodes import BAD_NODES
from tests.fakes.brokers import (
    Broker,
    ClientBackend,
    FakeBackend,
    World,
    batch,
    done,
    until,
)
from tests.fakes.segment_lists import sealed
from tests.fakes.virtual_time import run


def with_sweep(
    scenario: Callable[[World, Broker, OrphanLedgers], Awaitable[None]], backend: type = FakeBackend
) -> None:
    async def whole() -> None:
        world = await World(backend()).start()
        broker = await world.broker(1, owning=False)
        sweep = OrphanLedgers(broker.store, broker.ledgers, broker.cluster, BrokerId(1))
        try:
            await scenario(world, broker, sweep)
        finally:
            await world.close()

    run(whole())


@pytest.mark.parametrize("backend", [FakeBackend, ClientBackend])
def test_an_unlisted_ledger_goes_once_its_epoch_has_passed(backend: type) -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        topic = await world.topic()
        await done((await broker.open(topic)).append(batch("a")))
        left = (await create_ledger(broker.ledgers, topic, 0, LeaderEpoch(1))).ledger_id
        assert await sweep.sweep() == [], "its creator might still list it"
        await broker.open(topic)
        assert await sweep.sweep() == [], "a roll of that epoch might still list it"
        partition = await broker.open(topic)
        assert await sweep.sweep() == [left]
        listed = [item.ledger_id for item in world.segments(topic).segments]
        assert world.ledger_ids() == listed
        assert await done(partition.append(batch("b"))) == 1

    with_sweep(scenario, backend)


def test_the_next_ledger_of_a_roll_under_way_is_left_alone() -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        topic = await world.topic()
        partition = await broker.open(topic)
        world.cluster.on_request = lambda operation: (
            Fault.LOSE_REQUEST if operation.name == "set" else None
        )
        rolling = asyncio.create_task(partition.changes.roll())
        await until(lambda: len(world.ledger_ids()) == 2)
        other = world.cluster.session()
        assert await OrphanLedgers(other, broker.ledgers, broker.cluster, BrokerId(1)).sweep() == []
        world.cluster.on_request = lambda operation: None
        await rolling
        assert len(world.segments(topic).segments) == 2

    with_sweep(scenario)


def test_a_ledger_in_a_page_is_listed() -> None:
    """PAGE-LOOK: in the round's own list, and in the closer look."""

    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        world.limits = LogLimits(segment_page_entries=2)
        short = await world.broker(2, owning=False)
        topic = await world.topic()
        for _ in range(2):
            partition = await short.open(topic)
            for number in range(6):
                await done(partition.append(batch(f"v{number}")))
                await partition.changes.roll()
        before = world.ledger_ids()
        assert world.segments(topic).pages
        assert await sweep.sweep() == []
        sweep._listed = no_list  # type: ignore[method-assign]
        assert await sweep.sweep() == []
        assert world.ledger_ids() == before

    with_sweep(scenario)


async def no_list() -> LedgerSet:
    return LedgerSet()


def test_a_page_that_nobody_names_goes_once_its_epoch_has_passed() -> None:
    """SWEEP."""

    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        topic = await world.topic()
        await broker.open(topic)
        path = paths.partition(topic.id_text, 0)
        new = NewPage(PageName(0, LeaderEpoch(0), LedgerId(9)), Page((sealed(0),)))
        await write_page(world.admin, path, new)
        assert await sweep.sweep_pages() == [], "its creator might still list it"
        await broker.open(topic)
        assert await sweep.sweep_pages() == [paths.segment_page(path, *new.name)]
        assert await sweep.sweep_pages() == []

    with_sweep(scenario)


def test_a_set_of_ledgers_has_what_was_added() -> None:
    found = LedgerSet()
    ids = [5, 1, 1 << 62, (1 << 16) - 1, 1 << 16, 70_000, 3]
    for number in ids:
        found.add(LedgerId(number))
    found.sort()
    assert all(LedgerId(number) in found for number in ids)
    assert not any(LedgerId(number) in found for number in (0, 2, 4, 65_537, 1 << 61))


def test_ledgers_of_deleted_partitions_and_of_others() -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        topic = await world.topic()
        await broker.open(topic)
        foreign = await broker.ledgers.create(
            ensemble_size=1, write_quorum=1, ack_quorum=1, custom_metadata={"application": b"x"}
        )
        path = paths.partition(topic.id_text, 0)
        world.cluster.tree.delete(path, -1)
        await sweep.sweep()
        assert world.ledger_ids() == [foreign.ledger_id]

    with_sweep(scenario)


def test_only_the_lowest_live_broker_sweeps_now_and_then() -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        topic = await world.topic()
        await broker.open(topic)
        world.cluster.tree.delete(paths.partition(topic.id_text, 0), -1)
        sweep.start()
        await asyncio.sleep(7 * 3600)
        assert len(world.ledger_ids()) == 1, "broker 1 is not registered"
        await broker.registration.start()
        await asyncio.sleep(7 * 3600)
        assert world.ledger_ids() == []
        await sweep.close()

    with_sweep(scenario)


TOPIC_ID = "0b6b1cf5-5a9c-4fd9-9a3c-5d3c7f6f3e11"
LABELS = {
    "application": b"quire", "quire.topic_id": TOPIC_ID.encode(), "quire.partition": b"3",
    "quire.leader_epoch": b"7",
}  # fmt: skip
MISLABELLED = [
    {"quire.topic_id": b".."},
    {"quire.topic_id": b""},
    {"quire.topic_id": b"t"},
    {"quire.topic_id": TOPIC_ID.upper().encode()},
    {"quire.topic_id": b"\xff\xfe"},
    {"quire.partition": b"x"},
    {"quire.partition": b"-1"},
    {"quire.partition": b"03"},
    {"quire.partition": b"9" * 10_000},
    {"quire.partition": str(2**31).encode()},
    {"quire.leader_epoch": b"\xff"},
    {"quire.leader_epoch": b"9" * 30},
]


def test_purpose() -> None:
    assert purpose_of(LABELS) == (TOPIC_ID, 3, 7)
    assert purpose_of({}) is None
    assert purpose_of({**LABELS, "application": b"pulsar"}) is None


@pytest.mark.parametrize("wrong", MISLABELLED, ids=lambda wrong: repr(wrong)[:40])
def test_labels_that_we_never_write_name_no_purpose(wrong: dict[str, bytes]) -> None:
    assert purpose_of({**LABELS, **wrong}) is None


def test_mislabelled_ledgers_are_left_alone_and_do_not_end_the_sweep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        made = [
            await broker.ledgers.create(
                ensemble_size=1, write_quorum=1, ack_quorum=1, custom_metadata={**LABELS, **labels}
            )
            for labels in (*MISLABELLED, {})
        ]
        *foreign, left = (writer.ledger_id for writer in made)
        assert await sweep.sweep() == [left], "of a partition that is gone"
        assert world.ledger_ids() == foreign
        told = [each for each in caplog.records if "sweep.mislabelled" in each.message]
        assert len(told) == 1

    with_sweep(scenario)


def test_a_sweep_that_fails_as_nobody_expected_comes_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await broker.registration.start()
        rounds = 0

        async def fail() -> list[LedgerId]:
            nonlocal rounds
            rounds += 1
            raise ZeroDivisionError

        monkeypatch.setattr(sweep, "sweep", fail)
        sweep.start()
        await asyncio.sleep(20 * 3600)
        await sweep.close()
        assert rounds == 3
        assert sum("task.failed" in each.message for each in caplog.records) == 3

    with_sweep(scenario)


@pytest.mark.parametrize("bad", BAD_NODES[1:])
def test_a_list_that_cannot_be_read_protects_its_ledgers_and_no_others(bad: bytes) -> None:
    async def scenario(world: World, broker: Broker, sweep: OrphanLedgers) -> None:
        spoiled, whole = await world.topic("spoiled"), await world.topic("whole")
        left = {}
        for topic in (spoiled, whole):
            for _ in range(3):
                await broker.open(topic)
            made = await create_ledger(broker.ledgers, topic, 0, LeaderEpoch(1))
            left[topic.name] = made.ledger_id
        path = paths.partition(spoiled.id_text, 0)
        listed = [item.ledger_id for item in world.segments(spoiled).segments]
        await world.admin.set(path, bad)
        assert await sweep.sweep() == [left["whole"]]
        assert await sweep.sweep_pages() == []
        assert {left["spoiled"], *listed} <= {*world.ledger_ids()}
        assert list(broker.store.unreadable.all()) == [path]

    with_sweep(scenario)
