"""The registration among live brokers: made, kept, and taken over only from the dead."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from broker.cluster.core.topology import BrokerInfo
from broker.cluster.registration import Registration
from client.errors import ConfigError
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, MemoryStore
from tests.fakes.broker import until

ME = BrokerInfo(id=BrokerId(1), incarnation="new", host="h", port=9, advertised=False)
PATH = paths.broker(ME.id)
PATIENCE_S = 0.3


@pytest.fixture
async def tree() -> MemoryCluster:
    made = MemoryCluster()
    await made.session().create(paths.BROKERS, make_parents=True)
    return made


@pytest.fixture
async def store(tree: MemoryCluster) -> AsyncIterator[MemoryStore]:
    made = tree.session()
    yield made
    await made.close()


def registration(store: MemoryStore) -> Registration:
    return Registration(store, ME, PATIENCE_S)


async def owner(store: MemoryStore) -> int:
    node = await store.exists(PATH)
    return node.ephemeral_owner if node is not None else 0


async def soon_ours(store: MemoryStore) -> bool:
    for _ in range(500):
        if await owner(store) == store.session_id:
            return True
        await asyncio.sleep(0.001)
    return False


async def test_it_is_made_and_taken_back(tree: MemoryCluster, store: MemoryStore) -> None:
    mine = registration(store)
    await mine.start()
    node = await store.get(PATH)
    assert BrokerInfo.decode(ME.id, node.data) == ME
    assert node.ephemeral_owner == store.session_id
    await mine.close()
    assert await store.exists(PATH) is None


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_lost_answer_is_settled(
    tree: MemoryCluster, store: MemoryStore, fault: Fault
) -> None:
    faults = [fault]
    tree.on_request = lambda operation: (
        faults.pop() if faults and operation.name == "create" else None
    )
    mine = registration(store)
    await mine.start()
    assert await owner(store) == store.session_id
    await mine.close()


async def test_it_is_made_again_when_a_peer_deleted_it(
    tree: MemoryCluster, store: MemoryStore
) -> None:
    mine = registration(store)
    await mine.start()
    other = tree.session()
    await other.delete(PATH)
    assert await soon_ours(store)
    await mine.close()


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_unloading_shows_in_the_registration_and_outlives_a_session(
    tree: MemoryCluster, store: MemoryStore, fault: Fault | None
) -> None:
    mine = registration(store)
    await mine.start()
    faults = [fault]
    tree.on_request = lambda operation: faults.pop() if faults and operation.name == "set" else None
    await mine.set_eligibility(unloaded=True, leads_from=(UUID(int=3), 4))
    assert BrokerInfo.decode(ME.id, (await store.get(PATH)).data).unloaded
    before = store.session_id
    tree.expire(store)
    await until(lambda: store.session_id not in (0, before))
    assert await soon_ours(store)
    again = BrokerInfo.decode(ME.id, (await store.get(PATH)).data)
    assert again == mine.info
    assert (again.unloaded, again.leads_from) == (True, (UUID(int=3), 4))
    await mine.set_eligibility(unloaded=False, leads_from=None)
    assert BrokerInfo.decode(ME.id, (await store.get(PATH)).data) == ME
    await mine.close()


async def test_it_is_made_again_in_a_new_session(tree: MemoryCluster, store: MemoryStore) -> None:
    mine = registration(store)
    await mine.start()
    before = store.session_id
    tree.expire(store)
    await until(lambda: store.session_id not in (0, before))
    assert await soon_ours(store)
    await mine.close()


@pytest.mark.parametrize(
    "old", [dataclasses.replace(ME, port=77), dataclasses.replace(ME, incarnation="old")]
)
async def test_what_is_certainly_ours_is_replaced_at_once(
    tree: MemoryCluster, store: MemoryStore, old: BrokerInfo
) -> None:
    """Same incarnation, or an address that we listen on now."""
    await tree.session().create(PATH, old.encode(), ephemeral=True)
    mine = registration(store)
    await mine.start()
    assert await owner(store) == store.session_id
    await mine.close()


async def test_a_live_namesake_is_left_alone(tree: MemoryCluster, store: MemoryStore) -> None:
    other = dataclasses.replace(ME, incarnation="other", port=77)
    namesake = tree.session()
    await namesake.create(PATH, other.encode(), ephemeral=True)
    with pytest.raises(ConfigError, match="node id 1"):
        await registration(store).start()
    assert await owner(store) == namesake.session_id


async def test_a_dead_namesake_is_waited_for(tree: MemoryCluster, store: MemoryStore) -> None:
    other = dataclasses.replace(ME, incarnation="other", port=77)
    namesake = tree.session()
    await namesake.create(PATH, other.encode(), ephemeral=True)
    mine = Registration(store, ME, 5.0)
    await namesake.close()
    await mine.start()
    assert await owner(store) == store.session_id
    await mine.close()


async def test_somebody_elses_node_survives_our_closing(
    tree: MemoryCluster, store: MemoryStore
) -> None:
    mine = registration(store)
    await mine.start()
    assert mine._task is not None
    mine._task.cancel()
    other = tree.session()
    await other.delete(PATH)
    await other.create(PATH, ME.encode(), ephemeral=True)
    await mine.close()
    assert await owner(other) == other.session_id
