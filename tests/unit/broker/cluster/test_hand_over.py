"""A broker that goes, or comes back, does so step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.cluster.core.hand_over_steps import END, FIRST
from broker.cluster.core.topology import Position
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import Fault
from tests.fakes.broker import FakeCloud, until

AT_ONCE = 2
PARTITIONS = 12


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    for number in (1, 2):
        await made.start_broker(number, hand_over_partitions_at_once=AT_ONCE)
    await made.brokers[1].topics.create("t", PARTITIONS)
    await led(made, 6, 6)
    yield made
    await made.close()


async def led(cloud: FakeCloud, first: int, second: int) -> None:
    """Wait until the brokers lead so many partitions each."""
    brokers = cloud.brokers
    await until(lambda: (len(brokers[1].partitions), len(brokers[2].partitions)) == (first, second))


def watch(cloud: FakeCloud) -> tuple[list[Position | None], list[int]]:
    """Note broker 2's places, and how many partitions nobody led when each was told."""
    places: list[Position | None] = []
    leaderless: list[int] = []
    first, second = cloud.brokers[1], cloud.brokers[2]

    def look() -> None:
        info = second.cluster.brokers.get(second.config.node_id)
        if info is None or info.leads_from in (FIRST, END):
            return
        if not places or places[-1] != info.leads_from:
            places.append(info.leads_from)
            leaderless.append(PARTITIONS - len(first.partitions) - len(second.partitions))

    second.cluster.add_listener(look)
    return places, leaderless


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_the_next_partitions_move_when_the_ones_before_are_led(
    cloud: FakeCloud, fault: Fault | None
) -> None:
    places, leaderless = watch(cloud)
    faults = [None, fault]
    cloud.tree.on_request = lambda operation: (
        faults.pop(0)
        if faults and operation.name == "set" and operation.path == paths.broker(BrokerId(2))
        else None
    )
    await cloud.brokers[2].set_unloaded(True)
    await led(cloud, 12, 0)
    await until(lambda: places[-1] is None)
    assert len(places) == 6 // AT_ONCE
    # A new epoch shows just before its leader serves: those of one step may still be on their way.
    assert max(leaderless) <= AT_ONCE
    await cloud.brokers[2].set_unloaded(False)
    await led(cloud, 6, 6)
    await until(lambda: len(places) == 2 * (6 // AT_ONCE))
    assert places[-1] is None


async def test_it_turns_round_on_the_way(cloud: FakeCloud) -> None:
    places, _ = watch(cloud)
    await cloud.brokers[2].set_unloaded(True)
    await until(lambda: len(places) == 2)
    await cloud.brokers[2].set_unloaded(False)
    await led(cloud, 6, 6)
    await until(lambda: places[-1] is None)
    assert not cloud.brokers[1].cluster.brokers[cloud.brokers[2].config.node_id].unloaded


async def test_a_step_that_does_not_end_stops_nobody(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.cluster.hand_over._STEP_MAX_S", 0.05)
    epochs = cloud.brokers[2].cluster.leader_epochs
    monkeypatch.setattr(epochs, "get", lambda topic, index: -1)
    await cloud.brokers[2].set_unloaded(True)
    await led(cloud, 12, 0)
