"""Producer ids never repeat, whatever happens to the answers."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import RequestTimedOut
from broker.topics.producer_ids import BLOCK_SIZE, ProducerIds
from client.errors import LogCorrupt
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster
from tests.fakes import virtual_time


async def test_two_brokers_never_hand_out_the_same() -> None:
    tree = MemoryCluster()
    brokers = [ProducerIds(tree.session()) for _ in range(2)]
    found = []
    for _ in range(BLOCK_SIZE + 5):
        found += await asyncio.gather(*(broker.take() for broker in brokers))
    assert len(set(found)) == 2 * (BLOCK_SIZE + 5)
    assert min(found) == 0


async def test_ids_of_one_broker_count_up() -> None:
    ids = ProducerIds(MemoryCluster().session())
    assert [await ids.take() for _ in range(3)] == [0, 1, 2]


async def test_a_block_is_one_write() -> None:
    tree = MemoryCluster()
    ids = ProducerIds(tree.session())
    for _ in range(BLOCK_SIZE):
        await ids.take()
    node = await tree.session().get(paths.PRODUCER_IDS)
    assert (node.version, node.data) == (1, b'{"version": 1, "next": 1000}')


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_lost_answer_gives_the_block_up(fault: Fault) -> None:
    tree = MemoryCluster()
    first, second = ProducerIds(tree.session()), ProducerIds(tree.session())
    faults = [fault, fault]
    tree.on_request = lambda operation: (
        faults.pop() if faults and operation.name in ("create", "set") else None
    )
    found = [await ids.take() for ids in (first, second, first)]
    assert not faults
    assert len(set(found)) == 3


def test_no_answer_at_all_is_a_timeout() -> None:
    async def scenario() -> None:
        tree = MemoryCluster()
        await ProducerIds(tree.session()).take()
        tree.on_request = lambda operation: Fault.LOSE_REQUEST if operation.name == "set" else None
        with pytest.raises(RequestTimedOut):
            await ProducerIds(tree.session()).take()

    virtual_time.run(scenario())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"version": 2, "next": 0}', b'{"version": 1, "next": -1}',
             b'{"version": 1, "next": 9223372036854775807}'],
)  # fmt: skip
async def test_an_unreadable_node_is_not_guessed_at(data: bytes) -> None:
    tree = MemoryCluster()
    store = tree.session()
    await store.create(paths.PRODUCER_IDS, data, make_parents=True)
    with pytest.raises(LogCorrupt):
        await ProducerIds(store).take()
