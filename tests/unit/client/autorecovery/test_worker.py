"""A worker's lock goes when its ledger is whole, also if answers about it were lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.core.repair import ReplicationResult
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.tree import ReplicationTree
from client.autorecovery.worker import Worker
from client.errors import ConnectionLoss
from client.ids import BookieId, LedgerId
from client.ledger.under_replication import mark_under_replicated, read_mark
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, Operation
from tests.fakes.clock import rng

ONE = LedgerId(1)
ROOT = "/ledgers"
LOCK = paths.replication_lock(ONE, ROOT)
MARK = paths.under_replicated_ledger(ONE, ROOT)


class Replicator:
    """Finds every ledger whole."""

    async def replicate(self, ledger_id: LedgerId, gone: Sequence[BookieId]) -> Any:
        return ReplicationResult.WHOLE


async def start() -> tuple[MemoryCluster, Any, Worker]:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    tree = ReplicationTree(store, BookieId("me:1"), ROOT)
    await tree.prepare()
    await mark_under_replicated(store, ONE, [BookieId("gone:1")], root=ROOT)
    replicator = cast(FragmentReplicator, Replicator())
    return cluster, store, Worker(store, tree, replicator, AutoRecoveryConfig(), rng(1), ROOT)


def lose(cluster: MemoryCluster, name: str, fault: Fault) -> None:
    faults = [fault]
    cluster.on_request = lambda operation: (
        faults.pop() if faults and operation.name == name and operation.path == LOCK else None
    )


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("is_whole_by_then", [True, False])
async def test_a_lock_whose_answer_was_lost_is_used_or_given_back(
    fault: Fault, is_whole_by_then: bool
) -> None:
    cluster, store, worker = await start()
    cluster.late_s = lambda: 5.0
    lose(cluster, "create", fault)
    cluster.freeze(store)
    with pytest.raises(ConnectionLoss):
        await worker.round()
    if is_whole_by_then:
        cluster.thaw(store)
        cluster.tree.delete(paths.under_replicated_ledger(ONE, ROOT), -1)
    else:
        worker._pending[ONE].due_s = 0.0
    await worker.round()
    other = cluster.session()
    assert await other.exists(LOCK) is None
    assert await read_mark(other, ONE, root=ROOT) is None


async def test_a_lock_that_could_not_be_given_back_is_later() -> None:
    cluster, store, worker = await start()
    lose(cluster, "delete", Fault.LOSE_REQUEST)
    with pytest.raises(ConnectionLoss):
        await worker.round()
    assert await store.exists(LOCK) is not None
    await worker.round()
    assert await store.exists(LOCK) is None


async def test_a_lock_is_given_back_though_the_answer_that_the_mark_is_gone_was_lost() -> None:
    cluster, store, worker = await start()
    deletions: list[str] = []

    def lose_first(operation: Operation) -> Fault | None:
        if operation.name != "delete":
            return None
        deletions.append(operation.path)
        return Fault.LOSE_REPLY if len(deletions) == 1 else None

    cluster.on_request = lose_first
    with pytest.raises(ConnectionLoss):
        await worker.round()
    assert deletions == [MARK] and await store.exists(MARK) is None
    assert await store.exists(LOCK) is not None
    await worker.round()
    assert await store.exists(LOCK) is None


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.DELAY_REQUEST])
async def test_a_lock_that_its_server_does_not_show_yet_is_given_back(fault: Fault) -> None:
    cluster, store, _ = await start()
    cluster.late_s = lambda: 5.0
    tree = ReplicationTree(store, BookieId("me:1"), ROOT)
    lose(cluster, "create", fault)
    cluster.freeze(store)
    with pytest.raises(ConnectionLoss):
        await tree.lock(ONE)
    await tree.unlock(ONE)
    assert await cluster.session().exists(LOCK) is None
