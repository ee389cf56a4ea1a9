"""Which ledgers are nobody's: only a successful "no such node" says so.

Scenario 12 and Apache BookKeeper issues 865, 870, 875, 876: a directory that vanished, a list that
failed or an empty answer must never read as "no ledgers".
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bookie.membership.cluster_ledgers import ClusterLedgers, WrongCluster
from client.errors import ConnectionLoss, MetadataCorrupt
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from client.ledger.core.metadata_codec import encode
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import Fault, MemoryCluster, Operation
from tests.fakes.bookie_box import settle

ROOT = "/ledgers"
ME, OTHER = BookieId("me:1"), BookieId("other:1")
SHORT = [LedgerId(n) for n in (0, 1, 9_999, 10_000, 123_456_789)]
LONG = LedgerId(2**40)


def metadata(*members: BookieId, closed: bool = True) -> bytes:
    return encode(
        LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            state=LedgerState.CLOSED if closed else LedgerState.OPEN,
            fragments=tuple(Fragment(EntryId(n), (member,)) for n, member in enumerate(members)),
        )
    )


class Cluster:
    """A metadata store with ledgers in it."""

    def __init__(self) -> None:
        self.memory = MemoryCluster()
        self.store = self.memory.session()

    async def make(self, *ledger_ids: LedgerId) -> ClusterLedgers:
        instance_id = await init_bookkeeper(self.store, rng=random.Random(1))
        for ledger_id in ledger_ids:
            await self.put(ledger_id)
        return ClusterLedgers(self.store, ME, instance_id=instance_id, root=ROOT)

    async def put(self, ledger_id: LedgerId, data: bytes = b"") -> None:
        await self.store.create(paths.ledger(ledger_id), data, make_parents=True)

    def fail(self, is_hit: Callable[[Operation], bool], fault: Fault = Fault.LOSE_REQUEST) -> None:
        self.memory.on_request = lambda operation: fault if is_hit(operation) else None

    async def delete_tree(self, path: str) -> None:
        for name in await self.store.children(path):
            await self.delete_tree(f"{path}/{name}")
        await self.store.delete(path)


async def test_only_what_is_in_no_list_and_under_no_name_is_gone() -> None:
    cluster = Cluster()
    ledgers = await cluster.make(*SHORT, LONG)
    missing = [LedgerId(2), LedgerId(20_000), LedgerId(2**40 + 1), LedgerId(2**31)]
    assert await ledgers.deleted([*SHORT, LONG]) == []
    assert sorted(await ledgers.deleted([*SHORT, LONG, *missing])) == sorted(missing)
    assert await ledgers.deleted([]) == []


async def test_870_a_list_that_failed_says_nothing() -> None:
    cluster = Cluster()
    ledgers = await cluster.make(LedgerId(0), LedgerId(10_000))
    cluster.fail(lambda operation: operation.path == "/ledgers/00/0001")
    assert await ledgers.deleted([LedgerId(1), LedgerId(10_001)]) == [LedgerId(1)]


async def test_865_a_directory_that_vanished_says_nothing_about_its_ledgers(monkeypatch) -> None:
    """It vanishes from the list, and is there again when a ledger is asked for by name."""
    cluster = Cluster()
    ledgers = await cluster.make(*SHORT)
    children = cluster.store.children

    async def none(path: str, watcher: object = None) -> list[str]:
        await cluster.store.get("/ledgers/99/9999")
        raise AssertionError("there is no such node")

    for answer in (none, lambda path, watcher=None: _empty()):
        monkeypatch.setattr(cluster.store, "children", answer)
        assert await ledgers.deleted([*SHORT, LedgerId(2)]) == [LedgerId(2)]
    monkeypatch.setattr(cluster.store, "children", children)


async def _empty() -> list[str]:
    return []


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_REPLY])
async def test_a_ledger_that_cannot_be_asked_for_stays(fault: Fault) -> None:
    cluster = Cluster()
    ledgers = await cluster.make(LedgerId(0))
    cluster.fail(lambda operation: operation.path == paths.ledger(LedgerId(5)), fault)
    assert await ledgers.deleted([LedgerId(5)]) == []


async def test_while_the_store_is_away_nothing_is_gone() -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    cluster.fail(lambda operation: "/00/" in operation.path)
    with pytest.raises(ConnectionLoss):
        await ledgers.deleted([LedgerId(10_000 * n) for n in range(10)])


async def test_a_server_that_lags_behind_is_waited_for() -> None:
    """A ledger's node is made before its first entry; not every server knows it at once."""
    cluster = Cluster()
    ledgers = await cluster.make()
    cluster.memory.freeze(cluster.store)
    writer = cluster.memory.session()
    await writer.create(paths.ledger(LedgerId(7)), b"", make_parents=True)
    assert await ledgers.deleted([LedgerId(7)]) == []


async def test_another_cluster_or_none_is_no_reason_to_delete() -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    await cluster.store.set(paths.instance_id(ROOT), b"another")
    with pytest.raises(WrongCluster):
        await ledgers.deleted([LedgerId(1)])
    await cluster.delete_tree(ROOT)
    with pytest.raises(WrongCluster):
        await ledgers.deleted([LedgerId(1)])


async def test_a_tree_that_goes_while_it_is_read_is_no_reason_to_delete() -> None:
    cluster = Cluster()
    ledgers = await cluster.make(*SHORT)

    def wipe(path: str) -> None:
        tree = cluster.memory.tree
        for name in tree.children(path):
            wipe(f"{path}/{name}")
        tree.delete(path, -1)

    def on_request(operation: Operation) -> None:
        if operation.name == "children":
            cluster.memory.on_request = lambda operation: None
            wipe(ROOT)

    cluster.memory.on_request = on_request
    with pytest.raises(WrongCluster):
        await ledgers.deleted(SHORT)


async def test_a_store_that_was_another_clusters_at_first_is_no_reason_to_delete() -> None:
    """What was read before it was ours again came from somewhere else."""
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.instance_id(ROOT)
    right = (await cluster.store.get(path)).data
    await cluster.store.set(path, b"another")

    def on_request(operation: Operation) -> None:
        if operation.path.startswith(f"{ROOT}/00"):
            cluster.memory.on_request = lambda operation: None
            cluster.memory.tree.set(path, right, -1)

    cluster.memory.on_request = on_request
    with pytest.raises(WrongCluster):
        await ledgers.deleted([LedgerId(1)])


async def test_over_replicated_is_closed_and_wholly_elsewhere() -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    await cluster.put(LedgerId(1), metadata(OTHER))
    await cluster.put(LedgerId(2), metadata(OTHER, ME))
    await cluster.put(LedgerId(3), metadata(OTHER, closed=False))
    await cluster.put(LedgerId(5), b"not metadata")
    found = [await ledgers.is_over_replicated(LedgerId(n)) for n in range(1, 5)]
    assert found == [True, False, False, False]
    with pytest.raises(MetadataCorrupt):
        await ledgers.is_over_replicated(LedgerId(5))
    assert [*cluster.store.unreadable.all()] == [paths.ledger(LedgerId(5), ROOT)]
    mark = paths.under_replicated_ledger(LedgerId(1), ROOT)
    await cluster.store.create(mark, b"", make_parents=True)
    assert not await ledgers.is_over_replicated(LedgerId(1))


async def test_the_lock_is_auto_recoverys_and_is_given_back() -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.replication_lock(LedgerId(1), ROOT)
    async with ledgers.locked(LedgerId(1)) as is_locked:
        assert is_locked
        assert (await cluster.store.get(path)).data == b'bookieId: "me:1 gc"\n'
        async with ledgers.locked(LedgerId(1)) as again:
            assert not again
        assert await cluster.store.exists(path) is not None
    assert await cluster.store.exists(path) is None


async def test_a_lock_of_somebody_else_even_in_our_session_is_respected() -> None:
    """Auto recovery in the same process may be copying the ledger to this very bookie."""
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.replication_lock(LedgerId(1), ROOT)
    await cluster.store.create(path, b'bookieId: "me:1"\n', ephemeral=True, make_parents=True)
    async with ledgers.locked(LedgerId(1)) as is_locked:
        assert not is_locked
    assert await cluster.store.exists(path) is not None


async def test_a_lock_whose_answer_was_lost_is_not_held_and_not_left() -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.replication_lock(LedgerId(1), ROOT)
    cluster.fail(lambda operation: operation.name == "create", Fault.LOSE_REPLY)
    async with ledgers.locked(LedgerId(1)) as is_locked:
        assert not is_locked
    cluster.memory.on_request = lambda operation: None
    await settle()
    assert await cluster.store.exists(path) is None


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("lags", [True, False])
async def test_no_lock_stays_though_its_answer_was_lost_and_the_next_server_lags(
    fault: Fault, lags: bool
) -> None:
    """It would stay for as long as our session: nobody could repair the ledger."""
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.replication_lock(LedgerId(1), ROOT)
    cluster.memory.late_s = lambda: 5.0
    faults = [fault]
    cluster.memory.on_request = lambda operation: (
        faults.pop() if faults and operation.name == "create" else None
    )
    if lags:
        cluster.memory.freeze(cluster.store)
    async with ledgers.locked(LedgerId(1)) as is_locked:
        assert not is_locked
    assert await cluster.memory.session().exists(path) is None


async def test_a_lock_that_could_not_be_given_back_is_in_the_next_round() -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.replication_lock(LedgerId(1), ROOT)
    for _ in range(2):
        cluster.fail(lambda operation: operation.name == "delete")
        async with ledgers.locked(LedgerId(1)) as is_locked:
            assert is_locked, "it is our own from the first time"
        cluster.memory.on_request = lambda operation: None
        assert await cluster.store.exists(path) is not None
    assert await ledgers.deleted([]) == []
    assert await cluster.store.exists(path) is None


@pytest.mark.parametrize(
    ("name", "is_former"),
    [
        # It says our name, but who knows which life of ours works under it.
        ("me:1 gc", True),
        # Auto recovery in this process, and session.
        ("me:1", False),
    ],
)
async def test_a_lock_that_is_not_ours_stays_though_an_answer_was_lost(
    name: str, is_former: bool
) -> None:
    cluster = Cluster()
    ledgers = await cluster.make()
    path = paths.replication_lock(LedgerId(1), ROOT)
    holder = cluster.memory.session() if is_former else cluster.store
    data = f'bookieId: "{name}"\n'.encode()
    await holder.create(path, data, ephemeral=True, make_parents=True)
    cluster.fail(lambda operation: operation.name == "create")
    async with ledgers.locked(LedgerId(1)) as is_locked:
        assert not is_locked
    assert await holder.exists(path) is not None


async def test_what_was_written_before_the_lock_is_seen_under_it() -> None:
    """The server may lag behind whoever moved the ledger to this bookie."""
    cluster = Cluster()
    ledgers = await cluster.make()
    await cluster.put(LedgerId(1), metadata(OTHER))
    cluster.memory.freeze(cluster.store)
    mover = cluster.memory.session()
    await mover.set(paths.ledger(LedgerId(1)), metadata(ME))
    async with ledgers.locked(LedgerId(1)) as is_locked:
        assert is_locked
        assert not await ledgers.is_over_replicated(LedgerId(1))
