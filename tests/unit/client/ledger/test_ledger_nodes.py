"""Ledger znodes over the in-memory metadata store."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from client.errors import (
    ConnectionLoss,
    LedgerExists,
    LedgerFenced,
    MetadataCorrupt,
    NoSuchLedger,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata, VersionedMetadata
from client.ledger.ledger_nodes import LedgerNodes
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import Fault, MemoryCluster, Operation
from client.metadata.store import MetadataStore
from tests.fakes.bad_nodes import BAD_NODES

ONE = LedgerId(1)


def ledger(c_token: int = 5) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(EntryId(0), (BookieId("b0"),)),),
        c_token=c_token,
    )


async def start() -> tuple[MemoryCluster, LedgerNodes]:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    await init_bookkeeper(store, rng=random.Random(1))
    return cluster, nodes_of(store)


def nodes_of(store: MetadataStore) -> LedgerNodes:
    return LedgerNodes(store, paths.LEDGERS_ROOT, attempts_max=3, retry_delay_s=0.0)


def fail_first(name: str, fault: Fault, count: int = 1) -> Callable[[Operation], Fault | None]:
    """Return a fault hook that breaks the first `count` operations of a kind on ledgers."""
    left = [count]

    def hook(operation: Operation) -> Fault | None:
        if operation.name != name or "/00/" not in operation.path or not left[0]:
            return None
        left[0] -= 1
        return fault

    return hook


async def test_create_makes_parents_and_starts_at_version_0() -> None:
    cluster, nodes = await start()
    assert await nodes.create(ONE, ledger()) == VersionedMetadata(ledger(), 0)
    assert cluster.tree.get("/ledgers/00/0000/L0001").data == metadata_codec.encode(ledger())
    assert await nodes.read(ONE) == VersionedMetadata(ledger(), 0)


@pytest.mark.parametrize("bad", BAD_NODES, ids=range(len(BAD_NODES)))
async def test_metadata_that_cannot_be_read_is_named_and_stays(bad: bytes) -> None:
    _, nodes = await start()
    path, store = paths.ledger(ONE), nodes._store
    await store.create(path, bad, make_parents=True)
    with pytest.raises(MetadataCorrupt, match=f"^{path}: "):
        await nodes.read(ONE)
    assert [*store.unreadable.all()] == [path]
    with pytest.raises(LedgerExists):
        await nodes.create(ONE, ledger())
    transform = LedgerMetadata.in_recovery
    with pytest.raises(MetadataCorrupt):
        await nodes.update(ONE, VersionedMetadata(ledger(), 7), transform)
    assert (await store.get(path)).data == bad
    await store.set(path, metadata_codec.encode(ledger()))
    assert (await nodes.read(ONE)).metadata == ledger()
    assert store.unreadable.all() == {}


async def test_a_ledger_that_is_deleted_is_named_no_more() -> None:
    _, nodes = await start()
    await nodes._store.create(paths.ledger(ONE), b"?", make_parents=True)
    with pytest.raises(MetadataCorrupt):
        await nodes.read(ONE)
    await nodes.delete(ONE)
    assert nodes._store.unreadable.all() == {}


@pytest.mark.parametrize("fault", list(Fault))
async def test_create_survives_a_lost_connection(fault: Fault) -> None:
    """Issue 2006: the node of the first attempt is recognised by its cToken."""
    cluster, nodes = await start()
    cluster.on_request = fail_first("create", fault)
    assert (await nodes.create(ONE, ledger())).metadata == ledger()


async def test_create_does_not_take_a_foreign_ledger() -> None:
    _, nodes = await start()
    await nodes.create(ONE, ledger(c_token=1))
    with pytest.raises(LedgerExists):
        await nodes.create(ONE, ledger(c_token=2))


async def test_read_of_nothing_and_of_rubbish() -> None:
    cluster, nodes = await start()
    with pytest.raises(NoSuchLedger):
        await nodes.read(ONE)
    await nodes.create(ONE, ledger())
    cluster.tree.set(paths.ledger(ONE), b"rubbish", -1)
    with pytest.raises(MetadataCorrupt):
        await nodes.read(ONE)


async def test_update_writes_what_the_transform_says() -> None:
    _, nodes = await start()
    current = await nodes.create(ONE, ledger())
    updated = await nodes.update(ONE, current, LedgerMetadata.in_recovery)
    assert updated == VersionedMetadata(ledger().in_recovery(), 1)
    assert await nodes.read(ONE) == updated


async def test_update_decides_again_on_what_it_finds() -> None:
    cluster, nodes = await start()
    current = await nodes.create(ONE, ledger())
    await nodes_of(cluster.session()).update(ONE, current, LedgerMetadata.in_recovery)
    seen: list[LedgerMetadata] = []

    def transform(metadata: LedgerMetadata) -> LedgerMetadata:
        seen.append(metadata)
        return metadata.closed(EntryId(3), 30)

    updated = await nodes.update(ONE, current, transform)
    assert seen == [ledger(), ledger().in_recovery()]
    assert updated == VersionedMetadata(ledger().in_recovery().closed(EntryId(3), 30), 2)


async def test_update_stops_when_there_is_nothing_to_write() -> None:
    _, nodes = await start()
    current = await nodes.create(ONE, ledger())
    assert await nodes.update(ONE, current, lambda metadata: None) == current


async def test_update_raises_what_the_transform_raises() -> None:
    _, nodes = await start()
    current = await nodes.create(ONE, ledger())

    def transform(metadata: LedgerMetadata) -> LedgerMetadata:
        raise LedgerFenced("not ours any more")

    with pytest.raises(LedgerFenced):
        await nodes.update(ONE, current, transform)


async def test_update_whose_answer_was_lost_finds_its_own_write() -> None:
    cluster, nodes = await start()
    current = await nodes.create(ONE, ledger())
    cluster.on_request = fail_first("set", Fault.LOSE_REPLY)
    calls: list[LedgerMetadata] = []

    def transform(metadata: LedgerMetadata) -> LedgerMetadata | None:
        calls.append(metadata)
        return None if metadata.is_closed else metadata.closed(EntryId(3), 30)

    updated = await nodes.update(ONE, current, transform)
    assert updated == VersionedMetadata(ledger().closed(EntryId(3), 30), 1)
    assert len(calls) == 2


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.DELAY_REQUEST])
async def test_nothing_left_to_write_is_believed_of_the_newest_metadata_only(fault: Fault) -> None:
    """The server that is asked after a lost answer does not have the write yet."""
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    nodes = nodes_of(store)
    cluster.late_s = lambda: 1.0
    current = await nodes.create(ONE, ledger())
    cluster.on_request = fail_first("set", fault)
    cluster.freeze(store)
    wanted = [ledger().in_recovery()]
    updated = await nodes.update(ONE, current, lambda _: wanted.pop() if wanted else None)
    assert updated == VersionedMetadata(ledger().in_recovery(), 1)


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.DELAY_REQUEST])
async def test_a_creation_is_recognised_in_a_session_that_begins_at_a_server_that_lags(
    fault: Fault,
) -> None:
    cluster = MemoryCluster(reconnect_delay_s=0.0)
    store = cluster.session()
    nodes = nodes_of(store)
    cluster.late_s = lambda: 1.0
    cluster.on_request = fail_first("create", fault)
    cluster.freeze(store)
    assert (await nodes.create(ONE, ledger())).metadata == ledger()


async def test_update_gives_up_after_some_attempts() -> None:
    cluster, nodes = await start()
    current = await nodes.create(ONE, ledger())
    cluster.on_request = fail_first("set", Fault.LOSE_REQUEST, count=2)
    assert (await nodes.update(ONE, current, LedgerMetadata.in_recovery)).version == 1
    cluster.on_request = fail_first("set", Fault.LOSE_REQUEST, count=3)
    with pytest.raises(ConnectionLoss):
        await nodes.update(ONE, current, lambda metadata: metadata.closed(EntryId(0), 1))


async def test_update_of_a_deleted_ledger() -> None:
    _, nodes = await start()
    current = await nodes.create(ONE, ledger())
    await nodes.delete(ONE)
    with pytest.raises(NoSuchLedger):
        await nodes.update(ONE, current, LedgerMetadata.in_recovery)


async def test_delete_tidies_empty_directories_only() -> None:
    cluster, nodes = await start()
    other = LedgerId(10_000)
    await nodes.create(ONE, ledger())
    await nodes.create(other, ledger())
    await nodes.delete(ONE)
    assert cluster.tree.children("/ledgers/00") == ["0001"]
    await nodes.delete(other)
    assert "00" not in cluster.tree.children("/ledgers")
    await nodes.delete(other)


async def test_ids_lists_both_ranges_and_nothing_else() -> None:
    cluster, nodes = await start()
    store = cluster.session()
    await store.create("/ledgers/idgen/ID-0000000001", make_parents=True)
    await store.create("/ledgers/cookies/b0:3181", make_parents=True)
    await store.create("/ledgers/00/0000/rubbish", make_parents=True)
    await store.create("/ledgers/00/emptied", make_parents=True)
    wanted = [0, 7, 12_345, 2**31 - 2, 2**31 - 1, 2**40 + 1]
    for ledger_id in wanted:
        await nodes.create(LedgerId(ledger_id), ledger())
    found = [ledger_id async for ledger_id in nodes.ids()]
    assert sorted(found) == wanted


async def test_4731_an_empty_range_is_not_the_end() -> None:
    """There, a listing stopped at the first range without ledgers: audits skipped the rest."""
    cluster, nodes = await start()
    store = cluster.session()
    wanted = [3, 50_000, 990_000, 2**31 - 2, 2**40, 2**62]
    for ledger_id in wanted:
        await nodes.create(LedgerId(ledger_id), ledger())
    for empty in ("00/0001", "00/0006", "05/0000", "05/0001", "000/0001/0000"):
        await store.create(f"/ledgers/{empty}", make_parents=True)
    assert sorted([ledger_id async for ledger_id in nodes.ids()]) == wanted


async def test_ids_survives_directories_that_vanish() -> None:
    """Issues 865, 870: an absent directory means no ledgers there, not the end of the list."""
    cluster, nodes = await start()
    for ledger_id in (1, 10_000, 20_000):
        await nodes.create(LedgerId(ledger_id), ledger())
    other = nodes_of(cluster.session())
    found: list[int] = []
    async for ledger_id in nodes.ids():
        found.append(ledger_id)
        await other.delete(LedgerId(10_000))
    assert found == [1, 20_000]
